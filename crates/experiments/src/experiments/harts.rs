//! HARTS section 6 on one link: isolation (figure 7), a channel that breaks its contract (figure 8), and burstiness by the
//! size of messages (6.3). All have (6.1) three guaranteed sources, one of them bursty, each 0.16 of
//! the capacity, and best effort from 0.16 of it on; messages of 4 packets, deadline 50 ms, link horizon 0, 50
//! slots a source.
//!
//! The capacity is the paper's 500 packets a second, with packets of 1,400 B payload instead of 2 KB.

use punctual::{BitRate, Contract, Horizon, Nanos, Rate, counted};

use super::findings::Findings;
use super::sweep::{Point, Sweep};
use super::{Compared, Conditions, Measured};
use crate::loads::{Arrivals, Content};
use crate::measure::StreamSummary;
use crate::report::{Plot, Series};
use crate::testbed::{LinkSpec, StreamSpec, System};

/// Packets a second that the link carries.
const CAPACITY_PPS: f64 = 500.0;
/// Packets a second of each guaranteed source.
const SOURCE_PPS: f64 = 80.0;
/// Payload of a packet.
const PACKET_BYTES: usize = 1_400;
/// Packets of a message.
const MESSAGE_PACKETS: usize = 4;
/// Slots of a source in packets.
const SLOTS: usize = 50;
/// The periodic sources and the bursty one, by the paper's numbers.
const CHANNELS: [&str; 3] = ["channel-1", "channel-2", "channel-3"];
/// Channel 0.
const BEST_EFFORT: &str = "best-effort";
/// Messages that a bursty source sends at once.
const BURST: u32 = 5;
const DEADLINE: Nanos = Nanos::from_millis(50);
/// What figures 7 and 8 vary.
const BEST_EFFORT_PPS: &str = "best effort pps";

/// A link of [`CAPACITY_PPS`] full packets.
fn link() -> LinkSpec {
    let bits_per_packet = ((PACKET_BYTES + 64 + 66) * 8) as f64;
    LinkSpec::new(BitRate((CAPACITY_PPS * bits_per_packet) as u64), Nanos::from_millis(200))
}

/// The span between messages of `packets` packets of a guaranteed source.
fn interval(packets: usize) -> Nanos {
    Nanos((packets as f64 / SOURCE_PPS * 1e9) as u64)
}

/// The contract of a source with messages of `packets` packets. Its burst fills the slots; its deadline is
/// the paper's, or its period if that is longer: the shortest that three sources can get.
///
/// # Panics
/// Never: the figures are constants within range.
fn promise(packets: usize) -> Contract {
    let interval = interval(packets);
    let burst = (SLOTS / packets).max(1);
    let rate = Rate::every(interval).expect("not zero");
    let contract = Contract::new((packets * PACKET_BYTES) as u32, rate, burst as u32, DEADLINE.max(interval));
    Contract { horizon: Horizon::Regulated, ..contract.expect("constants within range") }
}

/// Best effort and the three channels; channel 2 is bursty.
fn streams(packets: usize) -> Vec<StreamSpec> {
    let bytes = packets * PACKET_BYTES;
    let burst = BURST.min((SLOTS / packets).max(1) as u32);
    let arrivals = |name| match name {
        "channel-2" => Arrivals::Bursty { interval: interval(packets), burst },
        _ => Arrivals::Periodic { interval: interval(packets) },
    };
    let channel =
        |name| StreamSpec::guaranteed(name, promise(packets), Content::of_size(bytes), arrivals(name));
    let mut streams: Vec<StreamSpec> = CHANNELS.into_iter().map(channel).collect();
    let content = Content::of_size(MESSAGE_PACKETS * PACKET_BYTES);
    streams.push(StreamSpec::best_effort(BEST_EFFORT, content, best_effort(SOURCE_PPS)));
    streams
}

/// Bursty best effort at `pps` packets a second.
fn best_effort(pps: f64) -> Arrivals {
    Arrivals::Bursty { interval: Nanos((MESSAGE_PACKETS as f64 / pps * 1e9) as u64), burst: BURST }
}

/// Best-effort loads in packets a second: 0.16 to 0.96 of the capacity, and twice the capacity.
fn loads(conditions: &Conditions) -> &'static [f64] {
    if conditions.quick {
        &[80.0, 240.0, 480.0, 1_000.0]
    } else {
        &[80.0, 160.0, 240.0, 320.0, 400.0, 480.0, 1_000.0]
    }
}

/// The sweep over best-effort loads.
fn sweep(part: &'static str, conditions: &Conditions) -> Sweep {
    let point = |&pps: &f64| Point { x: pps, set: vec![(BEST_EFFORT, best_effort(pps))] };
    let slots_bytes = SLOTS * (PACKET_BYTES + 64);
    Sweep {
        part,
        link: link(),
        streams: streams(MESSAGE_PACKETS),
        points: loads(conditions).iter().map(point).collect(),
        // Whole bursts: 250 ms each.
        slice: Nanos::from_millis(if conditions.quick { 2_750 } else { 8_250 }),
        warm_up: Nanos::from_millis(250),
        link_options: format!("best_effort_flow_queue = \"{slots_bytes}B\""),
    }
}

/// p50 and largest latency of a channel over a sweep, and the lost messages.
fn latencies(findings: &Findings, part: &str, system: System, stream: &str) -> String {
    let mut p50: (f64, f64) = (f64::MAX, 0.0);
    let (mut most, mut lost) = (0.0_f64, 0);
    for one in findings.of(part, system, stream) {
        p50 = (p50.0.min(one.figures.latency.p50_ms), p50.1.max(one.figures.latency.p50_ms));
        most = most.max(one.figures.latency.max_ms);
        lost += one.figures.lost;
    }
    format!("p50 {:.0} to {:.0} ms, max {most:.0} ms, {lost} lost", p50.0.min(p50.1), p50.1)
}

/// The longest from sending to delivery over a sweep: queueing ahead of the logical arrival included.
fn queueing(findings: &Findings, part: &str, stream: &str) -> f64 {
    findings.of(part, System::Punctual, stream).map(|one| one.figures.from_sending.max_ms).fold(0.0, f64::max)
}

/// Most slots in use at once.
fn slots(findings: &Findings, part: &str, stream: &str) -> String {
    let most = findings.of(part, System::Punctual, stream).filter_map(|one| one.slots_max).max();
    most.map_or("-".into(), |slots| slots.to_string())
}

/// The paper beside us for one part.
fn compared(findings: &Findings, part: &str, paper: [&str; 4]) -> Vec<Compared> {
    let channel = |(stream, paper): (&&str, &str)| {
        let all = |system| latencies(findings, part, system, stream);
        let (most_ms, slots) = (queueing(findings, part, stream), slots(findings, part, stream));
        Compared::of(format!("{part}: {stream}"), paper, |system| match system {
            System::Punctual => {
                format!("{}, from sending at most {most_ms:.0} ms, most slots {slots}", all(system))
            }
            _ => all(system),
        })
    };
    let best_effort = |system| latencies(findings, part, system, BEST_EFFORT);
    let last = Compared::of(format!("{part}: best effort"), paper[3], best_effort);
    CHANNELS.iter().zip(paper).map(channel).chain([last]).collect()
}

/// Largest latency of each channel over the best-effort load, and the bound.
fn plot(findings: &Findings, part: &'static str, title: &str) -> Plot {
    let mut series = findings.curves(part, &CHANNELS, |figures| figures.latency.max_ms);
    let xs = findings.of(part, System::Punctual, CHANNELS[0]).map(|one| (one.x, DEADLINE.as_millis_f64()));
    series.push(Series::new("bound", 6, xs).without_dots());
    let x = "best-effort load, packets/s (capacity 500, guaranteed 240)";
    Plot::linear(title, x, "largest latency from the logical arrival, ms", series)
}

/// Figure 7: well-behaved channels, periodic and bursty, under growing best-effort load.
pub fn isolation(conditions: &Conditions) -> anyhow::Result<Measured> {
    const PART: &str = "7";
    let mut findings = sweep(PART, conditions).run(conditions)?;
    findings.check_guarantees();
    findings.check_best_effort(PART, BEST_EFFORT, link().rate);
    let paper = [
        "independent of the load, none lost",
        "as periodic: most wait for their logical arrival",
        "independent of the load, none lost",
        "grows until saturation, then drops",
    ];
    let compared = compared(&findings, PART, paper);
    let plot = plot(&findings, PART, "HARTS figure 7: well-behaved channels under best effort");
    Ok(findings.measured(BEST_EFFORT_PPS, compared, plot))
}

/// Figure 8: the same while channel 3 sends at twice its rate, periodically or in bursts.
pub fn misbehaving(conditions: &Conditions) -> anyhow::Result<Measured> {
    const OFFENDER: &str = "channel-3";
    const PARTS: [&str; 2] = ["8 periodic", "8 bursty"];
    let interval = Nanos(interval(MESSAGE_PACKETS).as_u64() / 2);
    let twice = [Arrivals::Periodic { interval }, Arrivals::Bursty { interval, burst: 10 }];
    let mut findings = Findings::default();
    for (part, arrivals) in PARTS.into_iter().zip(twice) {
        let mut sweep = sweep(part, conditions);
        for stream in sweep.streams.iter_mut().filter(|stream| stream.name == OFFENDER) {
            stream.arrivals = arrivals.clone();
        }
        if conditions.quick {
            sweep.points.retain(|point| point.x != 480.0);
        }
        findings.add(sweep.run(conditions)?);
    }
    findings.check_guarantees();
    let paper = [
        "as without the offender",
        "as without the offender",
        "excess dropped, the rest in time, long queueing",
        "as without the offender",
    ];
    let compared = PARTS.iter().flat_map(|part| compared(&findings, part, paper)).collect();
    let plot = plot(&findings, PARTS[0], "HARTS figure 8: channel 3 sends twice its rate");
    Ok(findings.measured(BEST_EFFORT_PPS, compared, plot))
}

/// 6.3: the same loads in messages of 4 to 32 KB; the paper's queues overflowed and lost packets of channels that kept their
/// contracts.
pub fn burst(conditions: &Conditions) -> anyhow::Result<Measured> {
    let mut findings = Findings::default();
    for packets in SIZES_PACKETS {
        let sweep = Sweep {
            streams: streams(packets),
            // All of the rest of the link.
            points: vec![Point { x: kilobytes(packets), set: vec![(BEST_EFFORT, best_effort(260.0))] }],
            // Whole bursts of this size after the warm-up.
            slice: WARM_UP
                + interval(packets) * if conditions.quick { 12 } else { 40 } * (24 / packets as u64),
            warm_up: WARM_UP,
            ..sweep(BY_SIZE, conditions)
        };
        findings.add(sweep.run(conditions)?);
    }
    findings.check_guarantees();
    let lost = |system| -> u64 {
        let figures = CHANNELS.iter().flat_map(|stream| findings.of(BY_SIZE, system, stream));
        figures.map(|one| one.figures.never_came()).sum()
    };
    let what = "loss of conforming messages, 4 to 32 KB";
    let paper = "some, by the burstiness of the source";
    let row = Compared::of(what, paper, |system| counted(lost(system), "message"));
    let lost = lost(System::Punctual) as f64;
    let by_size = SIZES_PACKETS.map(|packets| latency_row(&findings, packets));
    let compared = [row].into_iter().chain(by_size).collect();
    findings.measured.at_most("conforming messages lost or refused", lost, 0.0);
    let percent =
        |figures: &StreamSummary| figures.never_came() as f64 * 100.0 / figures.judged().max(1) as f64;
    let curves = findings.curves(BY_SIZE, &CHANNELS, percent);
    let title = "HARTS 6.3: loss of conforming messages by their size";
    Ok(findings.measured("message KB", compared, Plot::linear(title, "message, KB", "lost, %", curves)))
}

/// Part of the sweeps over sizes.
const BY_SIZE: &str = "6.3";
/// Packets of a message: 4, 8, 16 and 32 KB.
const SIZES_PACKETS: [usize; 4] = [3, 6, 12, 24];
const WARM_UP: Nanos = Nanos::from_millis(300);

fn kilobytes(packets: usize) -> f64 {
    (packets * PACKET_BYTES) as f64 / 1e3
}

fn latency_row(findings: &Findings, packets: usize) -> Compared {
    let x = kilobytes(packets);
    let bound = promise(packets).deadline.as_millis_f64();
    Compared::of(format!("bursty source, {x:.1} KB (bound {bound:.0} ms)"), "-", |system| {
        let figure = findings.of(BY_SIZE, system, CHANNELS[1]).find(|one| one.x == x);
        figure.map_or("-".into(), |one| {
            let latency = &one.figures.latency;
            let lost = one.figures.never_came();
            format!("p50 {:.1}, max {:.1} ms, {lost} lost", latency.p50_ms, latency.max_ms)
        })
    })
}
