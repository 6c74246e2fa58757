//! This host's part of a static schedule (`[processor] plan`).

use std::path::Path;

use punctual_proto::config::plan::{PLAN_VERSION, PlanFile, PlannedFlow};
use punctual_proto::ids::Name;
use serde::Deserialize;

/// Read before the rest: another version may have other keys.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The flows that a plan has for the host `own`.
///
/// # Errors
/// One line if the file cannot be read, or if it belongs to another version or another host.
pub(super) fn load(path: &Path, own: &Name) -> Result<Vec<PlannedFlow>, String> {
    let what = |cause: String| {
        format!("[processor] plan \"{}\": {cause}: make it with 'punctual plan --output'", path.display())
    };
    let text = std::fs::read_to_string(path).map_err(|error| what(error.to_string()))?;
    let one_line = |error: toml::de::Error| what(error.message().replace('\n', " "));
    let Version { version } = toml::from_str(&text).map_err(one_line)?;
    if version != PLAN_VERSION {
        return Err(what(format!("it has version {version}, this host reads {PLAN_VERSION}")));
    }
    let file: PlanFile = toml::from_str(&text).map_err(one_line)?;
    let hosts: Vec<String> = file.host.iter().map(|host| format!("\"{}\"", host.name)).collect();
    let host = file.host.into_iter().find(|host| host.name == *own);
    let host = host.ok_or_else(|| what(format!("it is for {}, this host is \"{own}\"", hosts.join(", "))))?;
    Ok(host.flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(name: &str, text: &str, own: &str) -> Result<Vec<PlannedFlow>, String> {
        let path = std::env::temp_dir().join(format!("punctual-plan-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).expect("a file in the temporary directory");
        let found = load(&path, &Name::new(own).expect("a name"));
        std::fs::remove_file(&path).expect("it was there");
        found
    }

    #[test]
    fn a_plan_of_this_host_and_version_is_loaded_and_no_other() {
        let flow = "name = \"cam\"\nperiod_ns = 10000000\npackets = 2\ncost_ns = 40000\nunit_ns = 20000\n\
                    deadline_ns = 9000000\nrate_ns = 9921875\nplace = 1\n";
        let text = |version| format!("version = {version}\n[[host]]\nname = \"a\"\n[[host.flow]]\n{flow}");
        let flows = loaded("good", &text(1), "a").expect("its own");
        assert_eq!((flows.len(), flows[0].packets, flows[0].place), (1, 2, 1));
        let error = loaded("host", &text(1), "b").unwrap_err();
        assert!(error.contains("it is for \"a\", this host is \"b\""), "{error}");
        let error = loaded("version", &text(7), "a").unwrap_err();
        assert!(error.contains("version 7, this host reads 1"), "{error}");
        let error = loaded("garbage", "plan?", "a").unwrap_err();
        assert!(error.lines().count() == 1 && error.contains("punctual plan"), "{error}");
    }
}
