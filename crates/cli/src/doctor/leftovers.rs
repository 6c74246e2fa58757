//! Leftovers of killed programs: settings of devices (daemons), and network namespaces (demos and
//! experiments). Putting it back, and removing them.

use punctual_link::kernel::{Leftover, leftovers};
use punctual_os::namespaces::{remove_stale, stale};

use super::Finding;

const NAME: &str = "leftovers";

/// Finds leftovers; with `repair` they are restored or removed.
pub fn check(repair: bool) -> Vec<Finding> {
    let mut findings = devices(repair);
    findings.push(namespaces(stale(), repair));
    findings
}

/// Test beds whose program has ended; processes that still run in them take processor time.
fn namespaces(names: Vec<String>, repair: bool) -> Finding {
    const NAME: &str = "leftover namespaces";
    if names.is_empty() {
        return Finding::ok(NAME, "none of demos or experiments");
    }
    let found = format!("{} of demos or experiments that were killed: {}", names.len(), names.join(", "));
    if !repair {
        let fix = "punctual doctor --repair, as root; the next punctual demo or bench removes them, too";
        return Finding::note(NAME, found, fix);
    }
    match remove_stale() {
        Ok(_) => Finding::ok(NAME, format!("{found}: removed, and their programs ended")),
        Err(error) => Finding::problem(NAME, format!("{found}: {error}"), "run it as root"),
    }
}

fn devices(repair: bool) -> Vec<Finding> {
    match leftovers() {
        Ok(found) if found.is_empty() => {
            vec![Finding::ok(NAME, "none on the devices of this network namespace")]
        }
        Ok(found) => found.into_iter().map(if repair { put_back } else { finding }).collect(),
        Err(error) => vec![Finding::problem(NAME, error.to_string(), "run as root")],
    }
}

fn describe(leftover: &Leftover) -> String {
    let owner = match leftover.owner() {
        0 => "a process that has ended".to_owned(),
        owner => format!("process {owner}, which has ended"),
    };
    format!("{}: {} (of {owner})", leftover.device(), leftover.what())
}

fn finding(leftover: Leftover) -> Finding {
    let fix = "punctual doctor --repair, or start punctuald again with the same device";
    Finding::problem(NAME, describe(&leftover), fix)
}

fn put_back(leftover: Leftover) -> Finding {
    let what = describe(&leftover);
    match leftover.repair() {
        Ok(()) => Finding::ok(NAME, format!("{what}: restored")),
        Err(error) => Finding::problem(NAME, format!("{what}: {error}"), "run it as root"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn namespaces_without_an_owner_are_named_with_the_fix() {
        assert_eq!(namespaces(Vec::new(), false).state, State::Ok);
        let left = namespaces(vec!["punctual-8388608-0-a".into(), "punctual-8388608-0-b".into()], false);
        assert!(left.state == State::Note && left.fix.contains("doctor --repair"), "{left:?}");
        assert!(left.found.contains("punctual-8388608-0-a, punctual-8388608-0-b"), "{left:?}");
    }
}
