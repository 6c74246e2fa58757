//! CLIPS figure 5: traffic enforcement. One channel of 40 KB, 5/s, burst 10, deadline 200 ms; the interval
//! between messages falls from 500 ms to none.

use punctual::Nanos;

use super::findings::{Compared, Figure, Findings};
use super::sweep::{Point, Sweep, Worlds, kb_s, reserved_kb_s};
use super::{Conditions, clips_isolation};
use crate::demo::outcome::Check;
use crate::loads::{Arrivals, Content};
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::stream::contract;
use crate::session::{StreamSpec, System};

const CHANNEL: &str = "channel-1";
const BYTES: usize = 40_000;
/// By how much delivery may exceed the rate of the contract.
const ENFORCED_RATIO_MAX: f64 = 1.02;
/// What a source without pauses offers, KB/s.
const CONTINUOUS_X: f64 = 2.0 * clips_isolation::CAPACITY_KB_S;

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Findings> {
    let intervals_ms: &[u64] =
        if conditions.quick { &[500, 400, 200, 100, 0] } else { &[500, 400, 300, 250, 200, 150, 100, 50, 0] };
    let promise = contract(BYTES as u32, 5, 10, 200);
    let points = intervals_ms.iter().map(|&ms| point(ms)).collect();
    let sweep = Sweep {
        part: "5",
        link: clips_isolation::link(),
        streams: vec![StreamSpec::guaranteed(
            CHANNEL,
            promise,
            Content::of_size(BYTES),
            clips_isolation::without_pause(BYTES),
        )],
        points,
        slice: Nanos::from_millis(if conditions.quick { 4_200 } else { 10_200 }),
        warm_up: Nanos::from_millis(200),
        link_options: String::new(),
    };
    let mut worlds = Worlds::create(sweep.link, &sweep.link_options, conditions)?;
    let mut findings = worlds.run(&sweep, conditions)?;
    findings.x = "offered KB/s";
    findings.check_guarantees();
    let reserved = reserved_kb_s(&promise);
    let most =
        findings.of("5", System::Punctual, CHANNEL).map(|one| kb_s(one.figures.delivered_mbit_s) / reserved);
    let most = most.fold(0.0, f64::max);
    findings.checks.push(Check::at_most(
        "most delivered against the specified rate".into(),
        most,
        ENFORCED_RATIO_MAX,
    ));
    findings.compared = compared(&findings);
    findings.plot = Some(plot(&findings));
    Ok(findings)
}

fn point(interval_ms: u64) -> Point {
    let (x, arrivals) = match interval_ms {
        0 => (CONTINUOUS_X, clips_isolation::without_pause(BYTES)),
        ms => (BYTES as f64 / ms as f64, Arrivals::Periodic { interval: Nanos::from_millis(ms) }),
    };
    Point { x, set: vec![(CHANNEL, arrivals)] }
}

fn delivered(findings: &Findings, system: System, x: f64) -> String {
    let at = |one: &&Figure| (one.x - x).abs() < 1e-9;
    findings
        .of("5", system, CHANNEL)
        .find(at)
        .map_or("-".into(), |one| format!("{:.0} KB/s", kb_s(one.figures.delivered_mbit_s)))
}

fn compared(findings: &Findings) -> Vec<Compared> {
    let row = |what: &str, paper: &str, x: f64| Compared {
        what: what.into(),
        paper: paper.into(),
        punctual: delivered(findings, System::Punctual, x),
        kernel: delivered(findings, System::Kernel, x),
    };
    vec![
        row("delivered at 100 KB/s offered (every 400 ms)", "100 KB/s", 100.0),
        row("delivered at 200 KB/s offered (every 200 ms)", "200 KB/s", 200.0),
        row("delivered at 400 KB/s offered (every 100 ms)", "200 KB/s", 400.0),
        row("delivered with no pause between messages", "200 KB/s", CONTINUOUS_X),
    ]
}

fn plot(findings: &Findings) -> Plot {
    let series = [System::Punctual, System::Kernel].map(|system| Series {
        name: system.name().into(),
        colour: crate::demo::column(system),
        dashed: system == System::Kernel,
        dots: true,
        points: findings
            .of("5", system, CHANNEL)
            .map(|one| (one.x, kb_s(one.figures.delivered_mbit_s)))
            .collect(),
    });
    Plot {
        title: "CLIPS figure 5: enforcement of 200 KB/s (last point: no pause between messages)".into(),
        x: Axis::linear("offered load, KB/s"),
        y: Axis::linear("delivered, KB/s"),
        series: series.into(),
        marks: Vec::new(),
        legend: Legend::Top,
    }
}
