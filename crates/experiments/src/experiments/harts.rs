//! What the HARTS experiments share (section 6.1): three guaranteed sources, one of them bursty, each 0.16 of
//! the capacity, and best effort from 0.16 of it on; messages of 4 packets, deadline 50 ms, link horizon 0, 50
//! slots a source.
//!
//! The capacity is the paper's 500 packets a second, with packets of 1,400 B payload instead of 2 KB.

use punctual::{BitRate, Contract, Horizon, Nanos, Rate};

use super::Conditions;
use super::findings::{Compared, Findings};
use super::sweep::{Point, Sweep};
use crate::loads::{Arrivals, Content};
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::{StreamSpec, System};
use crate::testbed::LinkSpec;

/// Packets a second that the link carries.
pub const CAPACITY_PPS: f64 = 500.0;
/// Packets a second of each guaranteed source.
pub const SOURCE_PPS: f64 = 80.0;
/// Payload of a packet.
pub const PACKET_BYTES: usize = 1_400;
/// Packets of a message.
pub const MESSAGE_PACKETS: usize = 4;
/// Slots of a source in packets.
pub const SLOTS: usize = 50;
/// The periodic sources and the bursty one, by the paper's numbers.
pub const CHANNELS: [&str; 3] = ["channel-1", "channel-2", "channel-3"];
/// Channel 0.
pub const BEST_EFFORT: &str = "best-effort";
/// Messages that a bursty source sends at once.
const BURST: u32 = 5;
const DEADLINE: Nanos = Nanos::from_millis(50);

/// A link of [`CAPACITY_PPS`] full packets.
pub fn link() -> LinkSpec {
    let bits_per_packet = ((PACKET_BYTES + 64 + 66) * 8) as f64;
    LinkSpec::new(BitRate((CAPACITY_PPS * bits_per_packet) as u64), Nanos::from_millis(200))
}

/// The span between messages of `packets` packets of a guaranteed source.
pub fn interval(packets: usize) -> Nanos {
    Nanos((packets as f64 / SOURCE_PPS * 1e9) as u64)
}

/// The contract of a source with messages of `packets` packets. Its burst fills the slots; its deadline is the
/// paper's, or its period where that is longer: what three sources can be promised at all.
///
/// # Panics
/// Never: the figures are constants within range.
pub fn promise(packets: usize) -> Contract {
    let interval = interval(packets);
    let burst = (SLOTS / packets).max(1);
    let rate = Rate::every(interval).expect("not zero");
    let contract = Contract::new((packets * PACKET_BYTES) as u32, rate, burst as u32, DEADLINE.max(interval));
    Contract { horizon: Horizon::Regulated, ..contract.expect("constants within range") }
}

/// Best effort and the three channels; channel 2 is bursty.
pub fn streams(packets: usize) -> Vec<StreamSpec> {
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
pub fn best_effort(pps: f64) -> Arrivals {
    Arrivals::Bursty { interval: Nanos((MESSAGE_PACKETS as f64 / pps * 1e9) as u64), burst: BURST }
}

/// Best-effort loads in packets a second: 0.16 to 0.96 of the capacity, and twice the capacity.
pub fn loads(conditions: &Conditions) -> &'static [f64] {
    if conditions.quick {
        &[80.0, 240.0, 480.0, 1_000.0]
    } else {
        &[80.0, 160.0, 240.0, 320.0, 400.0, 480.0, 1_000.0]
    }
}

/// The sweep over best-effort loads.
pub fn sweep(part: &'static str, conditions: &Conditions) -> Sweep {
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

/// p50 and largest latency of a channel over a sweep, and what was lost.
pub fn latencies(findings: &Findings, part: &str, system: System, stream: &str) -> String {
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
pub fn queueing(findings: &Findings, part: &str, stream: &str) -> f64 {
    findings.of(part, System::Punctual, stream).map(|one| one.figures.from_sending.max_ms).fold(0.0, f64::max)
}

/// Most slots in use at once.
pub fn slots(findings: &Findings, part: &str, stream: &str) -> String {
    let most = findings.of(part, System::Punctual, stream).filter_map(|one| one.slots_max).max();
    most.map_or("-".into(), |slots| slots.to_string())
}

/// The paper beside us for one part.
pub fn compared(findings: &Findings, part: &str, paper: [&str; 4]) -> Vec<Compared> {
    let mut rows: Vec<Compared> = CHANNELS
        .iter()
        .zip(paper)
        .map(|(stream, paper)| Compared {
            what: format!("{part}: {stream}"),
            paper: paper.into(),
            punctual: format!(
                "{}, from sending at most {:.0} ms, most slots {}",
                latencies(findings, part, System::Punctual, stream),
                queueing(findings, part, stream),
                slots(findings, part, stream)
            ),
            kernel: latencies(findings, part, System::Kernel, stream),
        })
        .collect();
    rows.push(Compared {
        what: format!("{part}: best effort"),
        paper: paper[3].into(),
        punctual: latencies(findings, part, System::Punctual, BEST_EFFORT),
        kernel: latencies(findings, part, System::Kernel, BEST_EFFORT),
    });
    rows
}

/// Largest latency of each channel over the best-effort load, and the bound.
pub fn plot(findings: &Findings, part: &'static str, title: &str) -> Plot {
    let mut series = findings.curves(part, &CHANNELS, |figures| figures.latency.max_ms);
    let xs = findings.of(part, System::Punctual, CHANNELS[0]).map(|one| (one.x, DEADLINE.as_millis_f64()));
    let bound = Series { name: "bound".into(), colour: 6, dashed: false, dots: false, points: xs.collect() };
    series.push(bound);
    Plot {
        title: title.into(),
        x: Axis::linear("best-effort load, packets/s (capacity 500, guaranteed 240)"),
        y: Axis::linear("largest latency from the logical arrival, ms"),
        series,
        marks: Vec::new(),
        legend: Legend::Top,
    }
}
