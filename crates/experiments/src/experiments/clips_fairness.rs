//! CLIPS figure 7: fairness to best effort. Channel 1 uses half of its reservation, in messages of 20 KB at 5/s
//! (case 1) or of 10 KB at 10/s (case 2); best effort takes the rest. And 7.4: receiving keeps up with sending.

use punctual::{BitRate, Nanos};

use super::Conditions;
use super::clips_isolation::{
    BEST_EFFORT, CAPACITY_KB_S, HIGH, LOW, at_twice, best_effort, best_effort_curve, best_effort_loads,
    best_effort_point, curves, link, peak_and_last, range, slice,
};
use super::findings::{Compared, Findings};
use super::sweep::{Point, Sweep, Worlds, kb_s};
use crate::demo::outcome::Check;
use crate::loads::{Arrivals, Content};
use crate::report::{Axis, Legend, Plot};
use crate::session::stream::contract;
use crate::session::{StreamSpec, System};
use crate::testbed::LinkSpec;

/// The two cases: their names, and the bytes and the rate of channel 1's messages.
const CASES: [(&str, usize, u64); 2] = [("case 1", 20_000, 5), ("case 2", 10_000, 10)];
/// How far case 1 may lie from case 2.
const CASES_RATIO_MIN: f64 = 0.95;
/// Least of what the sender can send that must arrive.
const KEEPS_UP_MIN: f64 = 0.95;
/// A link that is faster than one sender over kernel sockets.
const FAST: BitRate = BitRate(400_000_000);

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    for (part, bytes, per_second) in CASES {
        findings.add(run_case(part, bytes, per_second, conditions)?);
    }
    findings.x = "offered KB/s";
    findings.check_guarantees();
    for (part, ..) in CASES {
        findings.check_best_effort(part, BEST_EFFORT, link().rate);
    }
    let [one, two] = CASES.map(|(part, ..)| best_effort_curve(&findings, part, System::Punctual));
    let worst = one.iter().zip(&two).map(|(a, b)| (a.1 / b.1).min(b.1 / a.1)).fold(1.0, f64::min);
    findings.checks.push(Check::at_least(
        "best effort in case 1 against case 2".into(),
        worst,
        CASES_RATIO_MIN,
    ));
    let keeping_up = run_keeping_up(conditions)?;
    findings.compared = compared(&findings, &keeping_up);
    findings.add(keeping_up);
    findings.plot = Some(plot(&findings));
    Ok(findings)
}

fn run_case(
    part: &'static str,
    bytes: usize,
    per_second: u64,
    conditions: &Conditions,
) -> anyhow::Result<Findings> {
    let half = Arrivals::Periodic { interval: Nanos(1_000_000_000 / per_second) };
    let high = StreamSpec::guaranteed(HIGH, contract(20_000, 10, 10, 200), Content::of_size(bytes), half);
    let low = StreamSpec::guaranteed(
        LOW,
        contract(5_000, 5, 10, 100),
        Content::of_size(5_000),
        at_twice(5_000, 25.0),
    );
    let sweep = Sweep {
        part,
        link: link(),
        streams: vec![high, low, best_effort()],
        points: best_effort_loads(conditions).iter().map(|&load| best_effort_point(load)).collect(),
        slice: slice(conditions),
        warm_up: Nanos::from_millis(200),
        link_options: String::new(),
    };
    Worlds::create(sweep.link, "", conditions)?.run(&sweep, conditions)
}

/// 7.4: one best-effort sender without pauses on a fast link; what arrives against what was sent. The receiving
/// application runs in the real-time class: the question is what the system can do, not who else wants the CPUs.
fn run_keeping_up(conditions: &Conditions) -> anyhow::Result<Findings> {
    let sweep = Sweep {
        part: "7.4",
        link: LinkSpec::new(FAST, Nanos::from_millis(50)),
        streams: vec![StreamSpec { receiver_real_time: true, ..best_effort() }],
        points: vec![Point { x: 0.0, set: vec![(BEST_EFFORT, Arrivals::Continuous)] }],
        slice: slice(conditions),
        warm_up: Nanos::from_millis(200),
        link_options: String::new(),
    };
    let mut findings = Worlds::create(sweep.link, "", conditions)?.run(&sweep, conditions)?;
    let ratio = findings.of("7.4", System::Punctual, BEST_EFFORT).map(kept_up).fold(0.0, f64::max);
    findings.checks.push(Check::at_least(
        "7.4: received against what the sender sent".into(),
        ratio,
        KEEPS_UP_MIN,
    ));
    Ok(findings)
}

/// What arrived of what the sender's system took.
fn kept_up(one: &super::findings::Figure) -> f64 {
    let taken = one.figures.offered - one.figures.refused;
    if taken == 0 { 0.0 } else { one.figures.delivered as f64 / taken as f64 }
}

fn compared(findings: &Findings, keeping_up: &Findings) -> Vec<Compared> {
    let row = |what: &str, paper: &str, show: &dyn Fn(System) -> String| Compared {
        what: what.into(),
        paper: paper.into(),
        punctual: show(System::Punctual),
        kernel: show(System::Kernel),
    };
    let sent_and_received = |system| {
        let figure = keeping_up.of("7.4", system, BEST_EFFORT).next();
        figure.map_or("-".into(), |one| {
            format!(
                "{:.0} KB/s received, {:.1} % of what was sent",
                kb_s(one.figures.delivered_mbit_s),
                kept_up(one) * 100.0
            )
        })
    };
    vec![
        row("channel 1, half of its reservation", "100 KB/s throughout", &|system| {
            range(findings, "case 1", system, HIGH)
        }),
        row("channel 2", "25 KB/s throughout", &|system| range(findings, "case 1", system, LOW)),
        row("best effort, case 1", "linear to 250 KB/s, then falls", &|system| {
            peak_and_last(findings, "case 1", system)
        }),
        row("best effort, case 2", "linear to 350 KB/s", &|system| peak_and_last(findings, "case 2", system)),
        row("7.4: receiving against sending", "450-500 of 750 KB/s (60 to 67 %)", &sent_and_received),
    ]
}

fn plot(findings: &Findings) -> Plot {
    let mut series = curves(findings, "case 1", &[HIGH, LOW, BEST_EFFORT]);
    let second = curves(findings, "case 2", &[BEST_EFFORT]).into_iter().map(|mut one| {
        one.name += ", case 2";
        one.colour = 3;
        one
    });
    series.extend(second);
    Plot {
        title: format!(
            "CLIPS figure 7: best effort beside half-used reservations (capacity {CAPACITY_KB_S:.0} KB/s)"
        ),
        x: Axis::linear("offered best effort, KB/s"),
        y: Axis::linear("delivered, KB/s"),
        series,
        marks: Vec::new(),
        legend: Legend::Top,
    }
}
