//! Adds units to keys of JSON that have none.
//!
//! Values that programs exchange keep short keys (`deadline`), and scripts rely on them. Each number among
//! them that is no count appears a second time in the object under a key that ends in its unit
//! (`deadline_ns`). `rate_max` is stored as the time between messages, so it becomes `interval_ns` and
//! `rate_max_per_second`.

use serde_json::{Map, Number, Value};

/// Times.
const NANOS: &[&str] = &[
    "allowed",
    "blocking",
    "bound",
    "bound_possible",
    "by_max",
    "copy",
    "cold_start",
    "cost",
    "deadline",
    "drain",
    "error",
    "excess_max",
    "first_packets",
    "interference",
    "interarrival",
    "late_max",
    "later_packets",
    "jitter",
    "jitter_allowance",
    "latency",
    "latency_max",
    "limit",
    "max",
    "max_assumed",
    "mean_over",
    "message",
    "now",
    "offered",
    "others",
    "own",
    "p50",
    "p99",
    "p999",
    "period",
    "period_possible",
    "possible",
    "propagation_max",
    "reaction",
    "release_latency",
    "response",
    "round_trip_min",
    "round_trip_recent",
    "unit_cost_max",
    "uptime",
    "wait",
    "wait_max",
    "wanted",
];
/// Shares in millionths.
const PPM: &[&str] = &["cpu_utilisation", "margin", "request_share", "utilisation"];
/// Bits a second.
const BPS: &[&str] = &["configured", "drains"];
/// Shares in thousand millionths.
const PPB: &[&str] = &["miss_ratio"];
/// Rates, kept as the time between two messages.
const RATES: &[(&str, &str, &str)] = &[
    ("rate_max", "interval_ns", "rate_max_per_second"),
    ("mean_rate", "mean_interval_ns", "mean_rate_per_second"),
];

/// The same value, with a second key that has the unit for each key that has none.
pub fn with_units(value: Value) -> Value {
    match value {
        Value::Array(values) => Value::Array(values.into_iter().map(with_units).collect()),
        Value::Object(object) => Value::Object(of_object(object)),
        other => other,
    }
}

fn of_object(object: Map<String, Value>) -> Map<String, Value> {
    let mut found = Map::new();
    for (key, value) in object {
        let printed = twins(&key, &value);
        found.insert(key, with_units(value));
        for (key, value) in printed {
            // A key that the verb prints itself stays.
            found.entry(key).or_insert(value);
        }
    }
    found
}

fn twins(key: &str, value: &Value) -> Vec<(String, Value)> {
    let Some(number) = value.as_u64() else { return Vec::new() };
    let unit = [(NANOS, "ns"), (PPM, "ppm"), (PPB, "ppb"), (BPS, "bps")];
    let unit = unit.into_iter().find(|(keys, _)| keys.contains(&key)).map(|(_, unit)| unit);
    let rate = RATES.iter().find(|(rate, ..)| *rate == key).filter(|_| number > 0);
    let same = unit.map(|unit| (format!("{key}_{unit}"), value.clone()));
    let rate = rate.into_iter().flat_map(|(_, interval, per_second)| {
        let a_second = Number::from_f64(1e9 / number as f64).map_or(Value::Null, Value::Number);
        [((*interval).to_owned(), value.clone()), ((*per_second).to_owned(), a_second)]
    });
    same.into_iter().chain(rate).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn units_are_printed_for_keys_whose_names_lack_them() {
        let plain = json!({
            "contract": { "deadline": 80_000_000, "rate_max": 40_000_000, "burst_messages_max": 1 },
            "stages": [{ "utilisation": 1_000, "bound": 5, "kind": "link" }],
            "message": "a text", "messages": 7, "round_trip_min": null,
        });
        let printed = with_units(plain.clone());
        assert_eq!(printed["contract"]["deadline_ns"], json!(80_000_000));
        assert_eq!(printed["contract"]["interval_ns"], json!(40_000_000));
        assert_eq!(printed["contract"]["rate_max_per_second"], json!(25.0));
        assert_eq!(
            (&printed["stages"][0]["utilisation_ppm"], &printed["stages"][0]["bound_ns"]),
            (&json!(1_000), &json!(5))
        );
        assert_eq!(printed.get("message_ns"), None, "only numbers have units");
        for key in ["deadline", "rate_max", "burst_messages_max"] {
            assert_eq!(printed["contract"][key], plain["contract"][key], "what was there stays");
        }
        assert_eq!(printed["messages"], json!(7));
    }
}
