//! HARTS figure 6: throughput and latency end to end by message size, for fragments of 1, 2 and 4 KB.
//!
//! Each fragment size is a pair of engines of its own; the bare driver on a link of the same kind says what the adapter
//! itself can do. Over kernel sockets: packets of 4 KB do not fit the frames of AF_XDP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual::{BitRate, Channel, Nanos, Receiver, RecvError};
use serde::Serialize;

use super::{Conditions, Measured};
use crate::clock::{duration, now, wait_until};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::loads::Class;
use crate::measure::{Figures, Sample, Side};
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::{Bed, Hosting, Pair, Place, adapter};
use crate::testbed::{LinkSpec, Options};
use crate::witness::Witness;

const LINK: BitRate = BitRate(400_000_000);
const QUEUE: Nanos = Nanos::from_millis(50);
const MTU: u32 = 9_000;
/// Payload of a packet.
const FRAGMENTS: [u32; 3] = [1_024, 2_048, 4_096];
const HEADER_BYTES: u32 = 64;
/// Sizes of messages, in KB; the one that is checked among them.
const SIZES_KB: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const CHECKED_KB: u32 = 16;
/// Of the adapter's own rate; the paper reached 0.44.
const RATE_MIN: f64 = 0.9;
/// Between the messages whose latency is measured.
const GAP: Nanos = Nanos::from_millis(5);
const PATIENCE: Nanos = Nanos::from_millis(500);

#[derive(Serialize)]
struct Point {
    fragment_bytes: u32,
    message_kb: u32,
    mbyte_s: f64,
    #[serde(flatten)]
    latency: Figures,
}

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let bed = Bed { link: LinkSpec::new(LINK, QUEUE).with_mtu(MTU), pinned: true };
    let witness = conditions.witness()?;
    let length = Nanos::from_millis(if conditions.quick { 700 } else { 4_000 });
    let singles = if conditions.quick { 40 } else { 400 };
    let mut found = Vec::new();
    let own = adapters_rate(&bed, length * 2, conditions)?;
    for fragment in FRAGMENTS {
        let options = Options {
            real_time: conditions.real_time,
            node: format!("fragment = \"{fragment}B\""),
            link: "best_effort_flow_queue = \"1MiB\"\n".into(),
            ..Options::default()
        };
        let mut pair = Pair::create(&bed, conditions)?;
        let engine = pair.start_engines(&options, Hosting::Embedded)?;
        let class = if conditions.real_time { Class::RealTime } else { Class::Ordinary };
        for kb in SIZES_KB {
            conditions.progress(format_args!("fragments of {fragment} B, messages of {kb} KB"));
            let name = format!("size-{kb}");
            let bytes = kb * 1_024;
            let receiver = pair.far_endsystem(engine)?.bind_best_effort(&name, bytes)?;
            let channel = pair.endsystem(engine)?.best_effort(&format!("{name}@b"), bytes)?;
            let mut way = Way { channel, receiver, bytes: bytes as usize, place: pair.place.clone(), class };
            let latency = way.latencies(singles)?;
            let rate = way.throughput(length)?;
            let mut side = Side::default();
            side.push(latency);
            found.push((fragment, kb, rate, side));
        }
    }
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    let excuses = Excuses::new(&testimony.holes, punctual::Ppm(0));
    let mut measured = judge(&found, own, &excuses);
    measured.testimony = testimony;
    Ok(measured)
}

/// Most that the bare driver carries in packets of the checked fragment, bytes of payload a second.
fn adapters_rate(bed: &Bed, length: Nanos, conditions: &Conditions) -> anyhow::Result<f64> {
    conditions.progress(format_args!("the adapter itself"));
    let packet = FRAGMENTS[2] + HEADER_BYTES;
    let options = Options { link: format!("packet = \"{packet}B\"\n"), ..Options::default() };
    let pair = Pair::create(bed, conditions)?;
    let (mut source, mut sink) = pair.adapters(&options)?;
    let mut most = 0.0_f64;
    for depth in [2, 8] {
        let flow = adapter::drive(source.as_mut(), sink.as_mut(), packet as usize, depth, length)?;
        most = most.max(flow.bytes_per_s);
    }
    Ok(most)
}

/// One size of messages through one pair of engines.
struct Way {
    channel: Channel,
    receiver: Receiver,
    bytes: usize,
    place: Place,
    class: Class,
}

impl Way {
    /// Single messages on an idle link, from sending to delivery.
    fn latencies(&mut self, count: usize) -> anyhow::Result<Vec<Sample>> {
        let message = vec![7; self.bytes];
        let mut samples = Vec::with_capacity(count);
        self.receiver.set_recv_timeout(Some(duration(PATIENCE)));
        for _ in 0..count {
            wait_until(now() + GAP)?;
            let begun = now();
            self.channel.send(&message)?;
            match self.receiver.recv_in_place(|bytes, _| bytes.len()) {
                Ok(_) => samples.push(Sample { begun, span: now().since(begun) }),
                Err(RecvError::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(samples)
    }

    /// As many messages as are taken, for `length`: bytes a second that arrive, the first fifth left out.
    fn throughput(&mut self, length: Nanos) -> anyhow::Result<f64> {
        let stop = Arc::new(AtomicBool::new(false));
        let (channel, receiver) = (&mut self.channel, &mut self.receiver);
        let (bytes, place, class) = (self.bytes, Place { namespace: None, cpu: self.place.cpu }, self.class);
        channel.set_send_timeout(Some(duration(PATIENCE)));
        std::thread::scope(|scope| {
            let stopped = Arc::clone(&stop);
            let sender = scope.spawn(move || -> anyhow::Result<()> {
                place.settle(Class::Ordinary)?;
                let message = vec![7; bytes];
                while !stopped.load(Ordering::Relaxed) {
                    channel.send(&message)?;
                }
                Ok(())
            });
            let taker = scope.spawn(move || -> anyhow::Result<f64> {
                class.enter()?;
                take(receiver, length)
            });
            let rate = taker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a receiver panicked")));
            stop.store(true, Ordering::Relaxed);
            sender.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a sender panicked")))?;
            rate
        })
    }
}

fn take(receiver: &mut Receiver, length: Nanos) -> anyhow::Result<f64> {
    let begun = now();
    let (warm, until) = (begun + Nanos(length.0 / 5), begun + length);
    let (mut counted, mut from, mut last) = (0u64, None, begun);
    while now() < until {
        match receiver.recv_in_place(|bytes, _| bytes.len()) {
            Ok(len) => {
                last = now();
                if last >= warm {
                    // The first after warming up starts the clock and does not count.
                    match from {
                        None => from = Some(last),
                        Some(_) => counted += len as u64,
                    }
                }
            }
            Err(RecvError::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let span = from.map_or(0, |from| last.since(from).as_u64());
    Ok(if span == 0 { 0.0 } else { counted as f64 * 1e9 / span as f64 })
}

type Found = (u32, u32, f64, Side);

fn judge(found: &[Found], own: f64, excuses: &Excuses) -> Measured {
    let columns =
        ["fragment_bytes", "message_kb", "mbyte_s", "samples", "p50_us", "mean_us", "max_us", "excused"];
    let mut measured = Measured::new("message, KB", &columns);
    for (fragment, kb, rate, side) in found {
        let latency = side.figures(excuses);
        measured.samples += latency.with_holes.samples as u64;
        measured.excused += latency.excused;
        measured.add(&Point { fragment_bytes: *fragment, message_kb: *kb, mbyte_s: rate / 1e6, latency });
    }
    let rate = |fragment: u32, kb: u32| {
        found.iter().find(|one| (one.0, one.1) == (fragment, kb)).map_or(0.0, |one| one.2)
    };
    let checked = rate(FRAGMENTS[2], CHECKED_KB);
    measured.checks.push(Check::at_least(
        "fragments of 4 KB, messages of 16 KB: throughput against the adapter's own".into(),
        checked / own,
        RATE_MIN,
    ));
    let shown = format!("{:.1} of {:.1} MB/s ({:.2})", checked / 1e6, own / 1e6, checked / own);
    measured.compare(
        "16 KB in fragments of 4 KB, of the adapter's own rate",
        "1.2 of 2.7 MB/s (0.44)",
        shown,
        "-".into(),
    );
    for (fragment, paper) in FRAGMENTS.into_iter().zip(["least", "1 MB/s", "1.2 MB/s"]) {
        let what = format!("16 KB in fragments of {} KB", fragment / 1_024);
        measured.compare(&what, paper, format!("{:.1} MB/s", rate(fragment, CHECKED_KB) / 1e6), "-".into());
    }
    measured.notes.push("over kernel sockets: packets of 4 KB do not fit the frames of AF_XDP".into());
    measured.plot = Some(plot(found, own));
    measured
}

fn plot(found: &[Found], own: f64) -> Plot {
    let mut series: Vec<Series> = FRAGMENTS
        .into_iter()
        .enumerate()
        .map(|(colour, fragment)| Series {
            name: format!("fragments of {} KB", fragment / 1_024),
            colour,
            dashed: false,
            dots: true,
            points: found
                .iter()
                .filter(|one| one.0 == fragment)
                .map(|one| (f64::from(one.1), one.2 / 1e6))
                .collect(),
        })
        .collect();
    let ends = [SIZES_KB[0], SIZES_KB[SIZES_KB.len() - 1]];
    series.push(Series {
        name: "the adapter itself".into(),
        colour: 6,
        dashed: true,
        dots: false,
        points: ends.map(|kb| (f64::from(kb), own / 1e6)).to_vec(),
    });
    Plot {
        title: "HARTS figure 6: throughput end to end".into(),
        x: Axis::logarithmic("message, KB"),
        y: Axis::linear("MB/s"),
        series,
        marks: Vec::new(),
        legend: Legend::Top,
    }
}
