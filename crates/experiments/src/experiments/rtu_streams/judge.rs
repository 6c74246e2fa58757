//! The requirements for guaranteed connections and for the round trips beside them, and the figures of the report.

use punctual::Nanos;
use serde_json::json;

use super::world::{CALL_BYTES, Ended, Finished, Spec};
use super::{Figure, LINK, LOADS, PUNCTUAL};
use crate::excuse::Excuses;
use crate::experiments::Measured;
use crate::measure::{Question, ReceiveLog, StreamSummary, Windows};
use crate::report::{Plot, Row, Series};

/// Largest distance of a second from the rate.
const OFF_MAX: f64 = 0.01;
/// Segments of other connections that may be before one of the low-delay class: one in each of the four handlers of a round
/// trip (limited preemption), of the declared time, and one packet of Ethernet's size on the link in each direction.
const HANDLERS: u64 = 4;
const SEGMENT_TIME: Nanos = Nanos::from_micros(20);
const PACKETS: u64 = 2;
const PACKET_WIRE_BYTES: u64 = 1_538;

const COLUMNS: &str = "packets, load, world, connection, wanted_mbit_s, mbit_s, least_mbit_s, most_mbit_s, off, \
         offered, late, excused, resent, p50_ms, p99_ms, max_ms";

/// One connection or the round trips of a world, at one point and under one load.
struct Shown {
    world: &'static str,
    packets: u32,
    load: usize,
    name: String,
    /// Mbit/s of each second, or mean ms of a round trip.
    values: Vec<f64>,
}

impl Shown {
    fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len().max(1) as f64
    }
}

/// Mbit/s of each whole second of the windows, or of each window that is shorter.
pub(in crate::experiments) fn seconds(received: &ReceiveLog, windows: &Windows) -> Vec<f64> {
    let mut rates = Vec::new();
    for &(from, until) in windows.spans() {
        let slot = until.since(from).min(Nanos::from_secs(1));
        let mut bytes = vec![0_u64; (until.since(from).0 / slot.0.max(1)) as usize];
        for message in received.iter().filter(|message| message.delivered >= from) {
            let at = (message.delivered.since(from).0 / slot.0.max(1)) as usize;
            if let Some(sum) = bytes.get_mut(at) {
                *sum += u64::from(message.bytes);
            }
        }
        rates.extend(bytes.into_iter().map(|bytes| bytes as f64 * 8e3 / slot.0 as f64));
    }
    rates
}

fn name(spec: &Spec) -> String {
    spec.period_ms.map_or("best effort".into(), |period| format!("every {period} ms"))
}

pub(super) fn judge(figure: &Figure, finished: &[Finished], excuses: &Excuses) -> Measured {
    let mut measured = Measured::new("packets a period", COLUMNS);
    let (mut rates, mut calls) = (Vec::new(), Vec::new());
    for (load, load_name) in LOADS.iter().enumerate() {
        let (mut off_max, mut late) = (0.0_f64, 0);
        for world in finished {
            let at = (world, load);
            for flow in &world.flows {
                let (shown, off, missed) = stream(&mut measured, at, flow, excuses);
                if world.name == PUNCTUAL && flow.spec.contract.is_some() {
                    off_max = off_max.max(off);
                    late += missed;
                }
                rates.push(shown);
            }
            calls.extend(round_trips(&mut measured, at, excuses));
        }
        let check = |what: &str| format!("{load_name}: guaranteed connections: {what}");
        measured.at_most(check("largest distance of a second from the rate"), off_max, OFF_MAX);
        let what = check("packets later than the end of the next period, or lost, outside holes");
        measured.at_most(what, late as f64, 0.0);
    }
    check_calls(&mut measured, &calls);
    compared(&mut measured, figure, &rates, "Mbit/s of a second");
    compared(&mut measured, figure, &calls, "mean round trip, ms");
    plots(&mut measured, figure, &rates, &calls);
    measured
}

/// A point for one connection; its distance from the rate, and what came too late outside holes.
fn stream(
    measured: &mut Measured,
    (world, load): (&Finished, usize),
    Ended { spec, sent, received, resent }: &Ended,
    excuses: &Excuses,
) -> (Shown, f64, u64) {
    let windows = &world.windows[load];
    let contract = spec.contract.as_ref();
    let question = Question { contract, excuses, judged: windows, loaded: windows, steady: windows };
    let summary = StreamSummary::new(sent, received, &question);
    let values = seconds(received, windows);
    let wanted = spec.rate().map(|rate| rate / 1e6);
    let far = |rate: &f64| wanted.map_or(0.0, |wanted| (rate / wanted - 1.0).abs());
    let off = values.iter().map(far).fold(0.0, f64::max);
    if contract.is_some() {
        measured.samples += summary.judged();
        measured.excused += summary.excused;
    }
    let StreamSummary { offered, misses, excused, latency, .. } = &summary;
    let shown = Shown { world: world.name, packets: world.packets, load, name: name(spec), values };
    let least = shown.values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = shown.values.iter().copied().fold(0.0, f64::max);
    measured.add([json!({
        "packets": world.packets, "load": LOADS[load], "world": world.name, "connection": shown.name,
        "wanted_mbit_s": wanted, "mbit_s": shown.mean(), "least_mbit_s": least, "most_mbit_s": most, "off": off,
        "offered": offered, "late": misses, "excused": excused, "resent": resent,
        "p50_ms": latency.p50_ms, "p99_ms": latency.p99_ms, "max_ms": latency.max_ms,
    })]);
    (shown, off, summary.unexcused())
}

/// A point for the round trips of a world, if there are any.
fn round_trips(
    measured: &mut Measured,
    (world, load): (&Finished, usize),
    excuses: &Excuses,
) -> Option<Shown> {
    let caller = world.caller.as_ref()?;
    let figures = measured.count(&caller.sides[load], excuses);
    measured.add([json!({
        "packets": world.packets, "load": LOADS[load], "world": world.name, "connection": "low delay",
        "offered": figures.with_holes.samples, "late": caller.lost[load], "excused": figures.excused,
        "p50_ms": figures.clean.p50_us / 1e3, "p99_ms": figures.clean.p99_us / 1e3,
        "max_ms": figures.clean.max_us / 1e3,
    })]);
    let (name, values) = ("low delay".into(), vec![figures.clean.mean_us / 1e3]);
    Some(Shown { world: world.name, packets: world.packets, load, name, values })
}

/// Guaranteed connections add no more to a round trip than the blocking by one unit of each stage.
fn check_calls(measured: &mut Measured, calls: &[Shown]) {
    let blocking = SEGMENT_TIME * HANDLERS + LINK.time_of(PACKET_WIRE_BYTES) * PACKETS;
    for (load, name) in LOADS.iter().enumerate() {
        let mut ours = calls.iter().filter(|shown| shown.world == PUNCTUAL && shown.load == load);
        let (Some(least), most) = (ours.next(), ours.next_back()) else { continue };
        let added = most.unwrap_or(least).mean() - least.mean();
        let what =
            format!("{name}: ms that more guaranteed packets add to the mean round trip of {CALL_BYTES} B");
        measured.at_most(what, added, blocking.as_millis_f64());
    }
}

/// A row for each connection at the largest point: the least and the most of its values.
fn compared(measured: &mut Measured, figure: &Figure, shown: &[Shown], unit: &str) {
    let most = shown.iter().map(|one| one.packets).max().unwrap_or_default();
    let last = || shown.iter().filter(move |one| one.packets == most);
    for (load, load_name) in LOADS.iter().enumerate() {
        let of = |world: &str, name: &str| {
            let span = |one: &Shown| {
                let least = one.values.iter().copied().fold(f64::INFINITY, f64::min);
                let most = one.values.iter().copied().fold(0.0, f64::max);
                if least == most { format!("{most:.2}") } else { format!("{least:.2} to {most:.2}") }
            };
            let found = last().filter(|one| one.world == world && one.name == name && one.load == load);
            found.map(span).collect::<Vec<_>>().join("; ")
        };
        let mut names: Vec<&str> = last().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let kernel = format!("{} (tuned {})", of("plain", name), of("tuned", name));
            measured.compare(
                format!("{name}, {load_name}: {unit}"),
                figure.paper,
                of(PUNCTUAL, name),
                kernel,
            );
        }
    }
}

/// World and connection, and the points.
type Curve<'a> = (&'a str, &'a str, Vec<(f64, f64)>);

/// Rates by packets a period, or second by second where nothing is swept; round trips below.
fn plots(measured: &mut Measured, figure: &Figure, rates: &[Shown], calls: &[Shown]) {
    let is_swept = rates.iter().any(|one| one.packets != rates[0].packets);
    let curves = |shown: &[Shown], load: usize| -> Vec<Series> {
        let mut curves: Vec<Curve<'_>> = Vec::new();
        for one in shown.iter().filter(|one| one.load == load && one.world != "plain again") {
            let points: Vec<(f64, f64)> = match is_swept {
                true => vec![(f64::from(one.packets), one.mean())],
                false => one.values.iter().enumerate().map(|(at, value)| (at as f64, *value)).collect(),
            };
            match curves.iter_mut().find(|(world, name, _)| (*world, *name) == (one.world, &one.name)) {
                Some((_, _, known)) => known.extend(points),
                None => curves.push((one.world, &one.name, points)),
            }
        }
        let names: Vec<&str> = curves.iter().map(|(_, name, _)| *name).collect();
        let colour = |name: &str| names.iter().position(|other| *other == name).unwrap_or_default();
        let series = |(world, name, points): Curve<'_>| {
            Series::new(format!("{name}, {world}"), colour(name), points).dashed(world != PUNCTUAL)
        };
        curves.into_iter().map(series).collect()
    };
    let x = if is_swept { "packets a period" } else { "second" };
    let plot = |load: usize, shown: &[Shown], y: &str| {
        Plot::linear(&format!("{}, {}", figure.title, LOADS[load]), x, y, curves(shown, load))
    };
    measured.plot = Some(plot(0, rates, "Mbit/s"));
    measured.rows.push(Row::Plot(plot(1, rates, "Mbit/s")));
    if !calls.is_empty() {
        measured
            .rows
            .extend((0..LOADS.len()).map(|load| Row::Plot(plot(load, calls, "mean round trip, ms"))));
    }
}

#[cfg(test)]
mod tests {
    use punctual::Instant;

    use super::*;
    use crate::measure::Received;

    #[test]
    fn each_whole_second_of_a_window_counts() {
        const MS: u64 = 1_000_000;
        let message = |at_ms: u64| Received {
            sequence: at_ms,
            delivered: Instant(at_ms * MS),
            bytes: 1_250,
            intact: true,
        };
        let received: ReceiveLog = (0..400).map(|at| message(at * 10)).collect();
        let mut windows = Windows::default();
        windows.push(Instant(505 * MS), Instant(2_705 * MS));
        windows.push(Instant(3_105 * MS), Instant(3_605 * MS));
        assert_eq!(seconds(&received, &windows), [1.0, 1.0, 1.0], "two seconds, and half a one");
        assert!(seconds(&received, &Windows::default()).is_empty());
    }
}
