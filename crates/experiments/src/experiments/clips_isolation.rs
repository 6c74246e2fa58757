//! CLIPS figure 6: traffic isolation. (a) A greedy channel beside a small one; (b) two channels that always send
//! beside growing best effort.

use punctual::{BitRate, Nanos};

use super::Conditions;
use super::findings::{Compared, Findings};
use super::sweep::{Point, Sweep, Worlds, at_rate, kb_s};
use crate::loads::{Arrivals, Content};
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::stream::contract;
use crate::session::{StreamSpec, System};
use crate::testbed::LinkSpec;

/// What the paper's receiver could take, KB/s of payload.
pub const CAPACITY_KB_S: f64 = 475.0;
/// Best-effort messages: four full packets.
pub const BEST_EFFORT_BYTES: usize = 5_600;
/// The best-effort stream.
pub const BEST_EFFORT: &str = "best-effort";
/// The channel of 200 KB/s.
pub const HIGH: &str = "channel-1";
/// The small channel.
pub const LOW: &str = "channel-2";

/// A source that never pauses: it offers twice the capacity. (Kernel sockets take whatever they are given; without
/// this limit the baseline would measure how fast a loop can throw packets away.)
pub fn without_pause(bytes: usize) -> Arrivals {
    at_rate(bytes, 2.0 * CAPACITY_KB_S * 1e3)
}

/// A source that always has a message waiting: it offers twice what its contract of `kb_s` takes.
pub fn at_twice(bytes: usize, kb_s: f64) -> Arrivals {
    at_rate(bytes, 2.0 * kb_s * 1e3)
}

/// A link that carries [`CAPACITY_KB_S`] of payload in full packets.
pub fn link() -> LinkSpec {
    let wire_per_payload = (1_400.0 + 64.0 + 66.0) / 1_400.0;
    let rate = BitRate((CAPACITY_KB_S * 8e3 * wire_per_payload) as u64);
    LinkSpec::new(rate, Nanos::from_millis(200))
}

/// A turn: 2 or 6 s of steady state.
pub fn slice(conditions: &Conditions) -> Nanos {
    Nanos::from_millis(if conditions.quick { 2_200 } else { 6_200 })
}

/// The best-effort stream of figures 6b and 7.
pub fn best_effort() -> StreamSpec {
    StreamSpec::best_effort(BEST_EFFORT, Content::of_size(BEST_EFFORT_BYTES), Arrivals::Continuous)
}

/// Best-effort loads in KB/s: the paper's, twice what is left over, and twice the capacity.
pub fn best_effort_loads(conditions: &Conditions) -> &'static [f64] {
    if conditions.quick {
        &[50.0, 250.0, 500.0, 950.0]
    } else {
        &[50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0, 500.0, 950.0]
    }
}

/// A point of a best-effort sweep.
pub fn best_effort_point(load_kb_s: f64) -> Point {
    Point { x: load_kb_s, set: vec![(BEST_EFFORT, at_rate(BEST_EFFORT_BYTES, load_kb_s * 1e3))] }
}

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Findings> {
    let mut findings = run_channels(conditions)?;
    findings.add(run_best_effort(conditions)?);
    findings.x = "varied KB/s";
    findings.check_guarantees();
    findings.check_best_effort("6b", BEST_EFFORT, link().rate);
    findings.compared = compared(&findings);
    findings.plot = Some(plot(&findings));
    Ok(findings)
}

/// Figure 6a: x is what channel 1 offers.
fn run_channels(conditions: &Conditions) -> anyhow::Result<Findings> {
    let loads: &[f64] = if conditions.quick {
        &[100.0, 200.0, 400.0]
    } else {
        &[80.0, 100.0, 160.0, 200.0, 250.0, 400.0, 800.0]
    };
    let high = StreamSpec::guaranteed(
        HIGH,
        contract(40_000, 5, 10, 200),
        Content::of_size(40_000),
        without_pause(40_000),
    );
    let low = StreamSpec::guaranteed(
        LOW,
        contract(15_000, 2, 10, 100),
        Content::of_size(15_000),
        at_twice(15_000, 30.0),
    );
    let point = |&load: &f64| Point { x: load, set: vec![(HIGH, at_rate(40_000, load * 1e3))] };
    let sweep = Sweep {
        part: "6a",
        link: link(),
        streams: vec![high, low],
        points: loads.iter().map(point).collect(),
        slice: slice(conditions),
        warm_up: Nanos::from_millis(200),
        link_options: String::new(),
    };
    Worlds::create(sweep.link, "", conditions)?.run(&sweep, conditions)
}

/// Figure 6b: x is the best-effort load.
fn run_best_effort(conditions: &Conditions) -> anyhow::Result<Findings> {
    let high = StreamSpec::guaranteed(
        HIGH,
        contract(20_000, 10, 10, 200),
        Content::of_size(20_000),
        at_twice(20_000, 200.0),
    );
    let low = StreamSpec::guaranteed(
        LOW,
        contract(5_000, 5, 10, 100),
        Content::of_size(5_000),
        at_twice(5_000, 25.0),
    );
    let sweep = Sweep {
        part: "6b",
        link: link(),
        streams: vec![high, low, best_effort()],
        points: best_effort_loads(conditions).iter().map(|&load| best_effort_point(load)).collect(),
        slice: slice(conditions),
        warm_up: Nanos::from_millis(200),
        link_options: String::new(),
    };
    Worlds::create(sweep.link, "", conditions)?.run(&sweep, conditions)
}

/// (offered, delivered) best effort in KB/s.
pub fn best_effort_curve(findings: &Findings, part: &str, system: System) -> Vec<(f64, f64)> {
    findings.of(part, system, BEST_EFFORT).map(|one| (one.x, kb_s(one.figures.delivered_mbit_s))).collect()
}

/// Smallest and largest delivered rate of a channel over a sweep.
pub fn range(findings: &Findings, part: &str, system: System, stream: &str) -> String {
    let rates = findings.of(part, system, stream).map(|one| kb_s(one.figures.delivered_mbit_s));
    let (low, high) = rates.fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)));
    if low > high { "-".into() } else { format!("{low:.0} to {high:.0} KB/s") }
}

/// Best effort at its peak and at the largest load.
pub fn peak_and_last(findings: &Findings, part: &str, system: System) -> String {
    let curve = best_effort_curve(findings, part, system);
    let peak = curve.iter().map(|point| point.1).fold(0.0, f64::max);
    format!("peak {peak:.0}, at the end {:.0} KB/s", curve.last().map_or(0.0, |point| point.1))
}

fn compared(findings: &Findings) -> Vec<Compared> {
    let row = |what: &str, paper: &str, show: &dyn Fn(System) -> String| Compared {
        what: what.into(),
        paper: paper.into(),
        punctual: show(System::Punctual),
        kernel: show(System::Kernel),
    };
    vec![
        row("6a: channel 2 while channel 1 is greedy", "about 30 KB/s throughout", &|system| {
            range(findings, "6a", system, LOW)
        }),
        row("6b: channel 1 under best effort", "200 KB/s, slightly less at the end", &|system| {
            range(findings, "6b", system, HIGH)
        }),
        row("6b: channel 2 under best effort", "25 KB/s throughout", &|system| {
            range(findings, "6b", system, LOW)
        }),
        row("6b: best effort", "linear to 250 KB/s, then a sharp decline", &|system| {
            peak_and_last(findings, "6b", system)
        }),
    ]
}

/// Delivered rates over a best-effort sweep, both systems.
pub fn curves(findings: &Findings, part: &'static str, streams: &[&str]) -> Vec<Series> {
    findings.curves(part, streams, |figures| kb_s(figures.delivered_mbit_s))
}

fn plot(findings: &Findings) -> Plot {
    Plot {
        title: "CLIPS figure 6b: two channels that always send, growing best effort".into(),
        x: Axis::linear("offered best effort, KB/s"),
        y: Axis::linear("delivered, KB/s"),
        series: curves(findings, "6b", &[HIGH, LOW, BEST_EFFORT]),
        marks: Vec::new(),
        legend: Legend::Top,
    }
}
