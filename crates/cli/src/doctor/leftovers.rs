//! What daemons that were killed left on devices, and putting it back.

use punctual_link::kernel::{Leftover, leftovers};

use super::Finding;

const NAME: &str = "leftovers";

/// What is there; with `repair` it is put back.
pub fn check(repair: bool) -> Vec<Finding> {
    match leftovers() {
        Ok(found) if found.is_empty() => {
            vec![Finding::ok(NAME, "none on the devices of this network namespace")]
        }
        Ok(found) => found.into_iter().map(if repair { put_back } else { tell }).collect(),
        Err(error) => vec![Finding::problem(NAME, error.to_string(), "run as root")],
    }
}

fn describe(leftover: &Leftover) -> String {
    let owner = match leftover.owner() {
        0 => "somebody who is gone".to_owned(),
        owner => format!("process {owner}, which is gone"),
    };
    format!("{}: {} (of {owner})", leftover.device(), leftover.what())
}

fn tell(leftover: Leftover) -> Finding {
    let fix = "punctual doctor --repair, or start punctuald again with the same device";
    Finding::problem(NAME, describe(&leftover), fix)
}

fn put_back(leftover: Leftover) -> Finding {
    let what = describe(&leftover);
    match leftover.repair() {
        Ok(()) => Finding::ok(NAME, format!("{what}: put back")),
        Err(error) => Finding::problem(NAME, format!("{what}: {error}"), "run it as root"),
    }
}
