//! CLIPS section 7 on one link with the capacity of the paper's receiver: enforcement (figure 5), isolation
//! (figure 6), fairness to best effort (figure 7) and receiving that keeps up with sending (7.4).

use punctual::{BitRate, Nanos};

use super::findings::{Figure, Findings};
use super::sweep::{Point, Sweep, at_rate, kb_s, reserved_kb_s};
use super::{Compared, Conditions, Measured};
use crate::loads::{Arrivals, Content};
use crate::report::{Plot, Series};
use crate::testbed::stream::contract;
use crate::testbed::{LinkSpec, StreamSpec, System};

/// The capacity of the paper's receiver, KB/s of payload.
const CAPACITY_KB_S: f64 = 475.0;
/// Best-effort messages: four full packets.
const BEST_EFFORT_BYTES: usize = 5_600;
const BEST_EFFORT: &str = "best-effort";
/// The channel of 200 KB/s.
const HIGH: &str = "channel-1";
/// The small channel.
const LOW: &str = "channel-2";
/// Maximum ratio of the delivered rate to the rate of the contract.
const ENFORCED_RATIO_MAX: f64 = 1.02;
/// The load of a source without pauses, KB/s: twice the capacity. (Kernel sockets accept any load; without
/// this limit the baseline would measure how fast a loop can drop packets.)
const CONTINUOUS_KB_S: f64 = 2.0 * CAPACITY_KB_S;
/// The two cases of figure 7: their names, and the bytes and the rate of channel 1's messages.
const CASES: [(&str, usize, u64); 2] = [("case 1", 20_000, 5), ("case 2", 10_000, 10)];
/// Minimum ratio of case 1 to case 2.
const CASES_RATIO_MIN: f64 = 0.95;
/// Minimum fraction of the sender's throughput that must arrive.
const KEEPS_UP_MIN: f64 = 0.95;
/// A link that is faster than one sender over kernel sockets.
const FAST: BitRate = BitRate(400_000_000);

/// Axes of the plots.
const OFFERED_BEST_EFFORT: &str = "offered best effort, KB/s";
const DELIVERED: &str = "delivered, KB/s";

/// A link that carries [`CAPACITY_KB_S`] of payload in full packets.
fn link() -> LinkSpec {
    let wire_per_payload = (1_400.0 + 64.0 + 66.0) / 1_400.0;
    let rate = BitRate((CAPACITY_KB_S * 8e3 * wire_per_payload) as u64);
    LinkSpec::new(rate, Nanos::from_millis(200))
}

/// A sweep whose turns have 2 or 6 s of steady state.
fn sweep(part: &'static str, streams: Vec<StreamSpec>, points: Vec<Point>, conditions: &Conditions) -> Sweep {
    Sweep {
        part,
        link: link(),
        streams,
        points,
        slice: Nanos::from_millis(if conditions.quick { 2_200 } else { 6_200 }),
        warm_up: Nanos::from_millis(200),
        link_options: String::new(),
    }
}

/// A channel with bursts of 10 that always has a message waiting: it offers twice what its contract takes.
fn channel(name: &'static str, bytes: usize, per_second: u64, deadline_ms: u64) -> StreamSpec {
    let arrivals = at_rate(bytes, 2.0 * bytes as f64 * per_second as f64);
    let promise = contract(bytes as u32, per_second, 10, deadline_ms);
    StreamSpec::guaranteed(name, promise, Content::of_size(bytes), arrivals)
}

fn best_effort() -> StreamSpec {
    StreamSpec::best_effort(BEST_EFFORT, Content::of_size(BEST_EFFORT_BYTES), Arrivals::Continuous)
}

/// Best-effort loads in KB/s: the paper's, twice the unreserved rate, and twice the capacity.
fn best_effort_points(conditions: &Conditions) -> Vec<Point> {
    let all = &[50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0, 500.0, 950.0];
    let loads: &[f64] = if conditions.quick { &[50.0, 250.0, 500.0, 950.0] } else { all };
    let arrivals = |load: f64| vec![(BEST_EFFORT, at_rate(BEST_EFFORT_BYTES, load * 1e3))];
    loads.iter().map(|&load| Point { x: load, set: arrivals(load) }).collect()
}

/// (offered, delivered) in KB/s.
fn curve(findings: &Findings, part: &str, system: System, stream: &str) -> Vec<(f64, f64)> {
    findings.of(part, system, stream).map(|one| (one.x, kb_s(one.figures.delivered_mbit_s))).collect()
}

/// Smallest and largest delivered rate of a channel over a sweep.
fn range<'a>(findings: &'a Findings, part: &'a str, stream: &'a str) -> impl Fn(System) -> String + 'a {
    move |system| {
        let rates = curve(findings, part, system, stream).into_iter().map(|point| point.1);
        let (low, high) =
            rates.fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)));
        if low > high { "-".into() } else { format!("{low:.0} to {high:.0} KB/s") }
    }
}

/// Best effort at its peak and at the largest load.
fn peak_and_last<'a>(findings: &'a Findings, part: &'a str) -> impl Fn(System) -> String + 'a {
    move |system| {
        let curve = curve(findings, part, system, BEST_EFFORT);
        let peak = curve.iter().map(|point| point.1).fold(0.0, f64::max);
        format!("peak {peak:.0}, at the end {:.0} KB/s", curve.last().map_or(0.0, |point| point.1))
    }
}

/// Delivered rates over a best-effort sweep, both systems.
fn curves(findings: &Findings, part: &'static str, streams: &[&str]) -> Vec<Series> {
    findings.curves(part, streams, |figures| kb_s(figures.delivered_mbit_s))
}

/// Figure 5: one channel of 40 KB, 5/s, burst 10, deadline 200 ms; the interval between messages falls from 500 ms to none.
pub fn enforcement(conditions: &Conditions) -> anyhow::Result<Measured> {
    const BYTES: usize = 40_000;
    let intervals_ms: &[u64] =
        if conditions.quick { &[500, 400, 200, 100, 0] } else { &[500, 400, 300, 250, 200, 150, 100, 50, 0] };
    let without_pause = at_rate(BYTES, CONTINUOUS_KB_S * 1e3);
    let point = |&ms: &u64| match ms {
        0 => Point { x: CONTINUOUS_KB_S, set: vec![(HIGH, without_pause.clone())] },
        ms => Point {
            x: BYTES as f64 / ms as f64,
            set: vec![(HIGH, Arrivals::Periodic { interval: Nanos::from_millis(ms) })],
        },
    };
    let points = intervals_ms.iter().map(point).collect();
    let stream = StreamSpec { arrivals: without_pause.clone(), ..channel(HIGH, BYTES, 5, 200) };
    let promise = contract(BYTES as u32, 5, 10, 200);
    let slice = Nanos::from_millis(if conditions.quick { 4_200 } else { 10_200 });
    let mut findings = Sweep { slice, ..sweep("5", vec![stream], points, conditions) }.run(conditions)?;
    findings.check_guarantees();
    let delivered = curve(&findings, "5", System::Punctual, HIGH).into_iter().map(|point| point.1);
    let most = delivered.map(|kb_s| kb_s / reserved_kb_s(&promise)).fold(0.0, f64::max);
    findings.measured.at_most("most delivered against the specified rate", most, ENFORCED_RATIO_MAX);
    let row = |what, paper, x: f64| {
        Compared::of(what, paper, |system| {
            let curve = curve(&findings, "5", system, HIGH);
            let at = curve.iter().find(|point| (point.0 - x).abs() < 1e-9);
            at.map_or("-".into(), |point| format!("{:.0} KB/s", point.1))
        })
    };
    let compared = vec![
        row("delivered at 100 KB/s offered (every 400 ms)", "100 KB/s", 100.0),
        row("delivered at 200 KB/s offered (every 200 ms)", "200 KB/s", 200.0),
        row("delivered at 400 KB/s offered (every 100 ms)", "200 KB/s", 400.0),
        row("delivered with no pause between messages", "200 KB/s", CONTINUOUS_KB_S),
    ];
    let series = System::COMPARED.map(|system| {
        let points = curve(&findings, "5", system, HIGH);
        Series::new(system.name(), system as usize, points).dashed(system == System::Kernel)
    });
    let title = "CLIPS figure 5: enforcement of 200 KB/s (last point: no pause between messages)";
    let plot = Plot::linear(title, "offered load, KB/s", DELIVERED, series);
    Ok(findings.measured("offered KB/s", compared, plot))
}

/// Figure 6: (a) a greedy channel beside a small one; (b) two channels that always send beside growing best effort.
pub fn isolation(conditions: &Conditions) -> anyhow::Result<Measured> {
    let all = &[80.0, 100.0, 160.0, 200.0, 250.0, 400.0, 800.0];
    let loads: &[f64] = if conditions.quick { &[100.0, 200.0, 400.0] } else { all };
    // What channel 1 offers is varied.
    let greedy = |&load: &f64| Point { x: load, set: vec![(HIGH, at_rate(40_000, load * 1e3))] };
    let without_pause = at_rate(40_000, CONTINUOUS_KB_S * 1e3);
    let high = StreamSpec { arrivals: without_pause, ..channel(HIGH, 40_000, 5, 200) };
    let streams = vec![high, channel(LOW, 15_000, 2, 100)];
    let mut findings =
        sweep("6a", streams, loads.iter().map(greedy).collect(), conditions).run(conditions)?;
    let streams = vec![channel(HIGH, 20_000, 10, 200), channel(LOW, 5_000, 5, 100), best_effort()];
    findings.add(sweep("6b", streams, best_effort_points(conditions), conditions).run(conditions)?);
    findings.check_guarantees();
    findings.check_best_effort("6b", BEST_EFFORT, link().rate);
    let row = |what, paper, part, stream| Compared::of(what, paper, range(&findings, part, stream));
    let best_effort = "linear to 250 KB/s, then a sharp decline";
    let compared = vec![
        row("6a: channel 2 while channel 1 is greedy", "about 30 KB/s throughout", "6a", LOW),
        row("6b: channel 1 under best effort", "200 KB/s, slightly less at the end", "6b", HIGH),
        row("6b: channel 2 under best effort", "25 KB/s throughout", "6b", LOW),
        Compared::of("6b: best effort", best_effort, peak_and_last(&findings, "6b")),
    ];
    let title = "CLIPS figure 6b: two channels that always send, growing best effort";
    let series = curves(&findings, "6b", &[HIGH, LOW, BEST_EFFORT]);
    let plot = Plot::linear(title, OFFERED_BEST_EFFORT, DELIVERED, series);
    Ok(findings.measured("varied KB/s", compared, plot))
}

/// Figure 7: channel 1 uses half of its reservation, in messages of 20 KB at 5/s (case 1) or of 10 KB at 10/s (case 2); best
/// effort takes the rest. And 7.4: receiving keeps up with sending.
pub fn fairness(conditions: &Conditions) -> anyhow::Result<Measured> {
    let mut findings = Findings::default();
    for (part, bytes, per_second) in CASES {
        let half = Arrivals::Periodic { interval: Nanos(1_000_000_000 / per_second) };
        let content = Content::of_size(bytes);
        let high = StreamSpec { content, arrivals: half, ..channel(HIGH, 20_000, 10, 200) };
        let streams = vec![high, channel(LOW, 5_000, 5, 100), best_effort()];
        findings.add(sweep(part, streams, best_effort_points(conditions), conditions).run(conditions)?);
    }
    findings.check_guarantees();
    for (part, ..) in CASES {
        findings.check_best_effort(part, BEST_EFFORT, link().rate);
    }
    let [one, two] = CASES.map(|(part, ..)| curve(&findings, part, System::Punctual, BEST_EFFORT));
    let worst = one.iter().zip(&two).map(|(a, b)| (a.1 / b.1).min(b.1 / a.1)).fold(1.0, f64::min);
    findings.measured.at_least("best effort in case 1 against case 2", worst, CASES_RATIO_MIN);
    findings.add(keeping_up(conditions)?);
    let sent_and_received = |system| {
        let figure = findings.of("7.4", system, BEST_EFFORT).next();
        figure.map_or("-".into(), |one| {
            let received = kb_s(one.figures.delivered_mbit_s);
            format!("{received:.0} KB/s received, {:.1} % of what was sent", kept_up(one) * 100.0)
        })
    };
    let of_case_1 = |stream| range(&findings, "case 1", stream);
    let best_effort = |part| peak_and_last(&findings, part);
    let compared = vec![
        Compared::of("channel 1, half of its reservation", "100 KB/s throughout", of_case_1(HIGH)),
        Compared::of("channel 2", "25 KB/s throughout", of_case_1(LOW)),
        Compared::of("best effort, case 1", "linear to 250 KB/s, then falls", best_effort("case 1")),
        Compared::of("best effort, case 2", "linear to 350 KB/s", best_effort("case 2")),
        Compared::of("7.4: receiving against sending", "450-500 of 750 KB/s (60 to 67 %)", sent_and_received),
    ];
    let mut series = curves(&findings, "case 1", &[HIGH, LOW, BEST_EFFORT]);
    let second = curves(&findings, "case 2", &[BEST_EFFORT]).into_iter();
    series.extend(second.map(|one| Series { name: format!("{}, case 2", one.name), colour: 3, ..one }));
    let title = format!(
        "CLIPS figure 7: best effort beside half-used reservations (capacity {CAPACITY_KB_S:.0} KB/s)"
    );
    let plot = Plot::linear(&title, OFFERED_BEST_EFFORT, DELIVERED, series);
    Ok(findings.measured("offered KB/s", compared, plot))
}

/// 7.4: one best-effort sender without pauses on a fast link; compares arrived with sent messages. The
/// receiving application runs in the real-time class: the test is about the system's capacity, not about
/// other programs on the CPUs.
fn keeping_up(conditions: &Conditions) -> anyhow::Result<Findings> {
    let streams = vec![StreamSpec { receiver_real_time: true, ..best_effort() }];
    let points = vec![Point { x: 0.0, set: vec![(BEST_EFFORT, Arrivals::Continuous)] }];
    let link = LinkSpec::new(FAST, Nanos::from_millis(50));
    let mut findings = Sweep { link, ..sweep("7.4", streams, points, conditions) }.run(conditions)?;
    let ratio = findings.of("7.4", System::Punctual, BEST_EFFORT).map(kept_up).fold(0.0, f64::max);
    findings.measured.at_least("7.4: received against what the sender sent", ratio, KEEPS_UP_MIN);
    Ok(findings)
}

/// The fraction of the messages taken from the sender that arrived.
fn kept_up(one: &Figure) -> f64 {
    let taken = one.figures.offered - one.figures.refused;
    if taken == 0 { 0.0 } else { one.figures.delivered as f64 / taken as f64 }
}
