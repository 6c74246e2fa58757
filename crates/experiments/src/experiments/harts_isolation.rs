//! HARTS figure 7: well-behaved channels, periodic and bursty, under growing best-effort load.

use super::Conditions;
use super::findings::Findings;
use super::harts::{self, BEST_EFFORT, compared, plot};
use super::sweep::Worlds;

const PART: &str = "7";

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Findings> {
    let sweep = harts::sweep(PART, conditions);
    let mut findings =
        Worlds::create(sweep.link, &sweep.link_options, conditions)?.run(&sweep, conditions)?;
    findings.x = "best effort pps";
    findings.check_guarantees();
    findings.check_best_effort(PART, BEST_EFFORT, sweep.link.rate);
    let paper = [
        "independent of the load, none lost",
        "as periodic: most wait for their logical arrival",
        "independent of the load, none lost",
        "grows until saturation, then drops",
    ];
    findings.compared = compared(&findings, PART, paper);
    findings.plot = Some(plot(&findings, PART, "HARTS figure 7: well-behaved channels under best effort"));
    Ok(findings)
}
