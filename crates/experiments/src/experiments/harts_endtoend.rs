//! HARTS figure 6: throughput and latency end to end by message size, for fragments of 1, 2 and 4 KB.
//!
//! Each fragment size is a pair of engines of its own. The bare driver on a link of the same kind shows the
//! rate of the adapter itself, before and after each measurement that is checked. Over AF_XDP, whose frames
//! are pages, the longest fragments are as long as a frame permits.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use punctual::{BitRate, Channel, Nanos, Receiver};
use punctual_host::config::Driver;
use punctual_link::Link;
use punctual_os::clock::{duration, now, wait_until};
use serde_json::json;

use super::{Conditions, Measured, judged};
use crate::excuse::Excuses;
use crate::loads::channel::received;
use crate::loads::{Class, beside};
use crate::measure::laps::rate_of;
use crate::measure::{Laps, Sample, Side, Statistic, compare_rounds};
use crate::report::{Plot, Series};
use crate::testbed::adapter::{self, LAP_BYTES};
use crate::testbed::{Hosting, LinkSpec, Options, Pair, PairSetup, Place};

const LINK: BitRate = BitRate(400_000_000);
const QUEUE: Nanos = Nanos::from_millis(50);
const MTU: u32 = 9_000;
/// Payload of a packet, the longest last.
const FRAGMENTS: [u32; 3] = [1_024, 2_048, 4_096];
/// What an AF_XDP frame of a page holds: 320 B of it are the kernel's, and our header.
const FRAGMENTS_XDP: [u32; 3] = [1_024, 2_048, 4_096 - 320 - HEADER_BYTES];
const HEADER_BYTES: u32 = 64;
/// Sizes of messages, in KB, including the one that is checked.
const SIZES_KB: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const CHECKED_KB: u32 = 16;
/// Minimum fraction of the adapter's own rate; the paper reached 0.44.
const RATE_MIN: f64 = 0.9;
/// Gap between the messages whose latency is measured.
const GAP: Nanos = Nanos::from_millis(5);
const PATIENCE: Nanos = Nanos::from_millis(500);
/// Pieces that the throughput of the checked point is measured in, the adapter's beside each.
const ROUNDS: u64 = 8;
/// Packets that the bare driver holds: enough for every driver here (`harts-adapter`).
const OWN_DEPTH: usize = 8;

/// The results at one size of fragments and messages.
struct Found {
    fragment: u32,
    kb: u32,
    /// The times of equally many bytes.
    laps: Side,
    latency: Side,
}

/// The bare drivers of a link of the same kind, and their throughput beside the checked point.
struct Own {
    _pair: Pair,
    source: Box<dyn Link>,
    sink: Box<dyn Link>,
    packet: u32,
    before: Side,
    after: Side,
}

fn fragments(driver: Driver) -> [u32; 3] {
    if driver.bypasses_kernel() { FRAGMENTS_XDP } else { FRAGMENTS }
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::new(LINK, QUEUE).with_mtu(MTU), pinned: true };
    let fragments = fragments(conditions.driver);
    let mut own = Own::open(&setup, fragments[2] + HEADER_BYTES, conditions)?;
    let witness = conditions.witness()?;
    let length = conditions.rounds((1, 700), (1, 4_000)).1;
    let singles = conditions.amount(40, 400) as usize;
    let mut found = Vec::new();
    for fragment in fragments {
        let options = Options {
            node: format!("fragment = \"{fragment}B\""),
            link: format!("best_effort_flow_queue = \"1MiB\"\npacket = \"{}B\"\n", own.packet),
            ..conditions.options()
        };
        let mut pair = Pair::create(&setup, conditions)?;
        let engine = pair.start_engines(&options, Hosting::Embedded)?;
        for kb in SIZES_KB {
            conditions.progress(format_args!("fragments of {fragment} B, messages of {kb} KB"));
            let name = format!("size-{kb}");
            let bytes = kb * 1_024;
            let receiver = pair.far_endsystem(engine)?.bind_best_effort(&name, bytes)?;
            let channel = pair.endsystem(engine)?.best_effort(&format!("{name}@b"), bytes)?;
            let (place, class) = (pair.place.clone(), conditions.class());
            let mut stream = PairChannel { channel, receiver, bytes: bytes as usize, place, class };
            let latency = Side::of(stream.latencies(singles)?);
            let laps = match (fragment, kb) == (fragments[2], CHECKED_KB) {
                true => own.beside(&mut stream, length)?,
                false => Side::of(stream.throughput(length)?),
            };
            found.push(Found { fragment, kb, laps, latency });
        }
    }
    judged(witness, |excuses| judge(&found, &own, excuses))
}

impl Own {
    fn open(setup: &PairSetup, packet: u32, conditions: &Conditions) -> anyhow::Result<Self> {
        let driver = conditions.driver;
        let options = Options { driver, link: format!("packet = \"{packet}B\"\n"), ..Options::default() };
        let pair = Pair::create(setup, conditions)?;
        let (source, sink) = pair.adapters(&options)?;
        Ok(Self { _pair: pair, source, sink, packet, before: Side::default(), after: Side::default() })
    }

    /// The checked point in rounds, the adapter before and after each.
    fn beside(&mut self, stream: &mut PairChannel, length: Nanos) -> anyhow::Result<Side> {
        let mut laps = Side::default();
        for _ in 0..ROUNDS {
            let piece = Nanos((length * 4).0 / ROUNDS);
            let before = self.laps(&stream.place, piece)?;
            laps.push(stream.throughput(piece)?);
            let after = self.laps(&stream.place, piece)?;
            self.before.push(before);
            self.after.push(after);
        }
        Ok(laps)
    }

    /// The most that the bare driver carries: a pipeline that is never empty.
    fn laps(&mut self, place: &Place, length: Nanos) -> anyhow::Result<Vec<Sample>> {
        let (source, sink, bytes) = (self.source.as_mut(), self.sink.as_mut(), self.packet as usize);
        let flow =
            place.on_cpu(Class::Ordinary, || adapter::drive(source, sink, bytes, OWN_DEPTH, length))?;
        Ok(flow.laps)
    }
}

/// One size of messages through one pair of engines.
struct PairChannel {
    channel: Channel,
    receiver: Receiver,
    bytes: usize,
    place: Place,
    class: Class,
}

impl PairChannel {
    /// Single messages on an idle link, from sending to delivery.
    fn latencies(&mut self, count: usize) -> anyhow::Result<Vec<Sample>> {
        let message = vec![7; self.bytes];
        let mut samples = Vec::with_capacity(count);
        self.receiver.set_recv_timeout(Some(duration(PATIENCE)));
        for _ in 0..count {
            wait_until(now() + GAP)?;
            let begun = now();
            self.channel.send(&message)?;
            let answered = received(self.receiver.recv_in_place(|_, _| ()))?;
            samples.extend(answered.map(|()| Sample { begun, span: now().since(begun) }));
        }
        Ok(samples)
    }

    /// Sends as many messages as are taken, for `length`; returns laps without the first fifth.
    fn throughput(&mut self, length: Nanos) -> anyhow::Result<Vec<Sample>> {
        let Self { channel, receiver, bytes, place, class } = self;
        channel.set_send_timeout(Some(duration(PATIENCE)));
        let send = |stop: &AtomicBool| {
            Place { namespace: None, cpu: place.cpu }.settle(Class::Ordinary)?;
            let message = vec![7; *bytes];
            while !stop.load(Ordering::Relaxed) {
                channel.send(&message)?;
            }
            Ok(())
        };
        let class = *class;
        beside(send, || Place::default().on_cpu(class, || take(receiver, length)))
    }
}

fn take(receiver: &mut Receiver, length: Nanos) -> anyhow::Result<Vec<Sample>> {
    let begun = now();
    let (warm, until) = (begun + Nanos(length.0 / 5), begun + length);
    let mut laps = Laps::of(LAP_BYTES);
    while now() < until {
        let taken = received(receiver.recv_in_place(|bytes, _| bytes.len()))?;
        let at = now();
        if let Some(len) = taken.filter(|_| at >= warm) {
            laps.arrived(len as u64, at);
        }
    }
    Ok(laps.finish())
}

fn judge(found: &[Found], own: &Own, excuses: &Excuses) -> anyhow::Result<Measured> {
    let columns = "fragment_bytes, message_kb, mbyte_s, samples, p50_us, mean_us, max_us, excused";
    let mut measured = Measured::new("message, KB", columns);
    let rates = |laps: &Side| {
        let figures = laps.figures(excuses);
        [figures.clean, figures.with_holes].map(|laps| rate_of(LAP_BYTES, laps.mean_us) / 1e6)
    };
    for one in found {
        let [mbyte_s, with_holes] = rates(&one.laps);
        measured.count(&one.laps, excuses);
        let first = json!({
            "fragment_bytes": one.fragment, "message_kb": one.kb, "mbyte_s": mbyte_s,
            // The same without leaving out what holes explain.
            "mbyte_s_with_holes": with_holes,
        });
        measured.add_side(first, &one.latency, excuses, |_| json!({}));
    }
    let at = |fragment: u32| found.iter().find(|one| (one.fragment, one.kb) == (fragment, CHECKED_KB));
    let longest = own.packet - HEADER_BYTES;
    let checked = at(longest).context("the checked point was not measured")?;
    // A ratio of times: the smaller, the faster.
    let ratio = compare_rounds(&own.before, &checked.laps, &own.after, Statistic::Mean, excuses);
    let name = format!(
        "fragments of {longest} B, messages of 16 KB: throughput against the adapter's own (A/A half-width {:.4})",
        ratio.half_width
    );
    measured.at_least(name, 1.0 / ratio.ratio, RATE_MIN);
    let [adapter, adapter_with_holes] = rates(&own.before);
    let [rate, with_holes] = rates(&checked.laps);
    let what = format!("16 KB in fragments of {longest} B, of the adapter's own rate");
    let shown = format!("{rate:.1} of {adapter:.1} MB/s ({:.3})", 1.0 / ratio.ratio);
    measured.compare(what, "1.2 of 2.7 MB/s (0.44)", shown, "-");
    let share = with_holes / adapter_with_holes;
    let shown = format!("{with_holes:.1} of {adapter_with_holes:.1} MB/s ({share:.3})");
    measured.compare("the same with holes", "-", shown, "-");
    let fragments = found.iter().filter(|one| one.kb == CHECKED_KB);
    for (one, paper) in fragments.zip(["least", "1 MB/s", "1.2 MB/s"]) {
        let shown = format!("{:.1} MB/s", rates(&one.laps)[0]);
        measured.compare(format!("16 KB in fragments of {} B", one.fragment), paper, shown, "-");
    }
    let sizes = found.chunks(SIZES_KB.len()).enumerate();
    let mut series: Vec<Series> = sizes
        .map(|(colour, of_fragment)| {
            let points = of_fragment.iter().map(|one| (f64::from(one.kb), rates(&one.laps)[0]));
            Series::new(format!("fragments of {} B", of_fragment[0].fragment), colour, points)
        })
        .collect();
    let ends = [SIZES_KB[0], SIZES_KB[SIZES_KB.len() - 1]].map(|kb| (f64::from(kb), adapter));
    series.push(Series::new("the adapter itself", 6, ends).dashed(true).without_dots());
    let title = "HARTS figure 6: throughput end to end";
    measured.plot = Some(Plot::log_x(title, "message, KB", "MB/s", series));
    Ok(measured)
}
