//! Causes in JSON in one form. A `cause` is a word or an object with numbers; its word and its text are added beside it.

use punctual::Cause;
use serde_json::Value;

/// The same with `cause_kind` and `cause_text` beside each cause of a broken stage.
pub fn with_causes(value: Value) -> Value {
    match value {
        Value::Array(values) => Value::Array(values.into_iter().map(with_causes).collect()),
        Value::Object(object) => {
            let cause = object.get("cause").cloned().and_then(|cause| serde_json::from_value(cause).ok());
            let mut reported: serde_json::Map<_, _> =
                object.into_iter().map(|(key, value)| (key, with_causes(value))).collect();
            if let Some(cause) = cause {
                let cause: Cause = cause;
                reported.insert("cause_kind".into(), cause.name().into());
                reported.insert("cause_text".into(), cause.to_string().into());
            }
            Value::Object(reported)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_and_objects_are_reported_alike() {
        let reported = with_causes(json!({ "broken": [
            { "host": "a", "cause": "slow-processor" },
            { "host": "b", "cause": { "slow-link": { "drains": 20_000_000, "configured": 95_000_000 } } },
        ], "cause": "nothing of ours" }));
        let [word, object] = [&reported["broken"][0], &reported["broken"][1]];
        assert_eq!(
            (&word["cause"], &word["cause_kind"]),
            (&json!("slow-processor"), &json!("slow-processor"))
        );
        assert_eq!(word["cause_text"], "serves later than its bounds");
        assert_eq!(object["cause_kind"], "slow-link");
        assert_eq!(
            object["cause_text"],
            "drains at 20.0 Mbit/s for us, configured 95.0 Mbit/s: slower, or shared beyond this host"
        );
        assert_eq!(object["cause"]["slow-link"]["drains"], 20_000_000, "what was there stays");
        assert_eq!(reported.get("cause_kind"), None);
    }
}
