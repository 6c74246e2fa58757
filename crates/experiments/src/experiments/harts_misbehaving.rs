//! HARTS figure 8: the same while channel 3 sends at twice its rate, periodically or in bursts.

use punctual::Nanos;

use super::Conditions;
use super::findings::Findings;
use super::harts::{self, MESSAGE_PACKETS, compared, plot};
use super::sweep::Worlds;
use crate::loads::Arrivals;

/// The channel that breaks its contract.
const OFFENDER: &str = "channel-3";

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Findings> {
    let twice = Nanos(harts::interval(MESSAGE_PACKETS).as_u64() / 2);
    let bursty = Arrivals::Bursty { interval: twice, burst: 10 };
    let mut findings = Findings::default();
    for (part, arrivals) in [("8 periodic", Arrivals::Periodic { interval: twice }), ("8 bursty", bursty)] {
        findings.add(run_part(part, arrivals, conditions)?);
    }
    findings.x = "best effort pps";
    findings.check_guarantees();
    for part in ["8 periodic", "8 bursty"] {
        let paper = [
            "as without the offender",
            "as without the offender",
            "excess dropped, the rest in time, long queueing",
            "as without the offender",
        ];
        let rows = compared(&findings, part, paper);
        findings.compared.extend(rows);
    }
    let title = "HARTS figure 8: channel 3 sends twice its rate";
    findings.plot = Some(plot(&findings, "8 periodic", title));
    Ok(findings)
}

fn run_part(part: &'static str, arrivals: Arrivals, conditions: &Conditions) -> anyhow::Result<Findings> {
    let mut sweep = harts::sweep(part, conditions);
    for stream in sweep.streams.iter_mut().filter(|stream| stream.name == OFFENDER) {
        stream.arrivals = arrivals.clone();
    }
    if conditions.quick {
        sweep.points.retain(|point| point.x != 480.0);
    }
    Worlds::create(sweep.link, &sweep.link_options, conditions)?.run(&sweep, conditions)
}
