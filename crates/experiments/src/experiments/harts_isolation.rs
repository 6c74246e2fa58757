//! HARTS figure 7: well-behaved channels, periodic and bursty, under growing best-effort load.

use super::Conditions;
use super::findings::Findings;
use super::harts::{self, BEST_EFFORT, CAPACITY_PPS, CHANNELS, PACKET_BYTES, compared, plot};
use super::sweep::Worlds;
use crate::demo::outcome::Check;
use crate::session::System;

const PART: &str = "7";
const PEAK_KEPT_MIN: f64 = 0.95;
const FILLED_MIN: f64 = 0.95;

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
    check_best_effort(&mut findings, PART);
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

/// Best effort keeps its peak, and everything together fills the link.
pub fn check_best_effort(findings: &mut Findings, part: &'static str) {
    let pps = |mbit_s: f64| mbit_s * 1e6 / 8.0 / PACKET_BYTES as f64;
    let last_of = |findings: &Findings, stream: &str| {
        let last = findings.of(part, System::Punctual, stream).last();
        last.map_or(0.0, |one| pps(one.figures.delivered_mbit_s))
    };
    let best_effort = findings.of(part, System::Punctual, BEST_EFFORT);
    let peak = best_effort.map(|one| pps(one.figures.delivered_mbit_s)).fold(0.0, f64::max);
    let last = last_of(findings, BEST_EFFORT);
    let all: f64 = last + CHANNELS.iter().map(|stream| last_of(findings, stream)).sum::<f64>();
    findings.checks.extend([
        Check::at_least(
            format!("{part}: best effort at the largest load against its peak"),
            if peak > 0.0 { last / peak } else { 0.0 },
            PEAK_KEPT_MIN,
        ),
        Check::at_least(
            format!("{part}: link filled by all traffic at the largest load"),
            all / CAPACITY_PPS,
            FILLED_MIN,
        ),
    ]);
}
