//! Messages of 64 B a second and core: Punctual's best effort against kernel UDP with sendmmsg and recvmmsg, on the
//! same kind of link, in turns.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Context;
use punctual::{BitRate, Channel, DriverStatus, Endsystem, Nanos, Receiver};
use punctual_host::config::Driver;
use punctual_link::{Link, Port, Received};
use punctual_os::clock::{duration, now, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::{Conditions, Measured, judged};
use crate::loads::channel::{received, was_sent};
use crate::loads::{Class, beside};
use crate::measure::cpu;
use crate::report::{Plot, Series};
use crate::testbed::{Hosting, LinkSpec, Options, Pair, PairSetup, Place};

/// A configured rate faster than the machine, so that no packet waits for the pace.
const DECLARED_RATE: BitRate = BitRate(100_000_000_000);
const BYTES: usize = 64;
/// Packets per system call of the baseline: `sendmmsg` takes 32 (the driver's batch).
const BATCH: usize = 32;
const RATIO_MIN: f64 = 1.5;
const OURS: &str = "Punctual";
const KERNEL: &str = "kernel";
const PATIENCE: Nanos = Nanos::from_millis(50);
const WARM_UP: Nanos = Nanos::from_millis(100);

/// The counters at the ends of a world.
#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counts {
    /// Sent, received.
    fn read(&self) -> [u64; 2] {
        [&self.sent, &self.received].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::direct(DECLARED_RATE), pinned: true };
    let kernel = Pair::create(&setup, conditions)?;
    let sockets = Options { driver: Driver::UDP, ..Options::default() };
    let (mut source, mut sink) = kernel.adapters(&sockets)?;
    let mut pair = Pair::create(&setup, conditions)?;
    let options = Options {
        processor: super::FAST_COSTS.into(),
        link: "best_effort_flow_queue = \"1MiB\"\n".into(),
        ..conditions.options()
    };
    let engine = pair.start_engines(&options, Hosting::Embedded)?;
    let mut receiver = pair.far_endsystem(engine)?.bind_best_effort("small", BYTES as u32)?;
    let mut channel = pair.endsystem(engine)?.best_effort("small@b", BYTES as u32)?;
    receiver.set_recv_timeout(Some(duration(PATIENCE)));
    channel.set_send_timeout(Some(duration(PATIENCE)));
    let far = Place { namespace: None, cpu: pair.far_cpu() };
    let near = Place { namespace: None, cpu: pair.place.cpu };
    let witness = conditions.witness()?;
    let (rounds, length) = conditions.rounds((5, 1_500), (20, 3_000));
    let ends = [pair.endsystem(engine)?, pair.far_endsystem(engine)?];
    let reported_before = reported_lost(ends)?;
    let (mut of_kernel, mut ours) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        conditions.progress(format_args!("round {} of {rounds}", round + 1));
        of_kernel.push(measure(
            length,
            (&near, |counts, stop| send_batches(source.as_mut(), counts, stop)),
            (&far, |counts, stop| take_batches(sink.as_mut(), counts, stop)),
        )?);
        ours.push(measure(
            length,
            (&near, |counts, stop| send(&mut channel, counts, stop)),
            (&far, |counts, stop| take(&mut receiver, counts, stop)),
        )?);
    }
    let [sent, received] = [0, 1].map(|end| ours.iter().map(|turn| turn.total[end]).sum::<u64>());
    let lost = sent - received - drain(&mut receiver)?;
    let reported = reported_lost(ends)?
        .checked_sub(reported_before)
        .context("a host counts less than before: it began anew")?;
    judged(witness, |_| {
        let mut measured = judge(&of_kernel, &ours);
        let unreported = lost.saturating_sub(reported) as f64;
        measured.at_most("messages lost that no counter of the hosts shows", unreported, 0.0);
        measured
            .notes
            .push(format!("{lost} of {sent} messages were lost, the hosts' counters show {reported}"));
        Ok(measured)
    })
}

/// The messages that still wait at the receiver after the senders have stopped.
fn drain(receiver: &mut Receiver) -> anyhow::Result<u64> {
    let mut count = 0;
    while received(receiver.recv_in_place(|_, _| ()))?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Packets that the hosts report as dropped until now: in their drivers, at their edges, on their ways out,
/// or before a receiver.
fn reported_lost(ends: [&Endsystem; 2]) -> anyhow::Result<u64> {
    ends.into_iter().map(reported_lost_at).sum()
}

fn reported_lost_at(endsystem: &Endsystem) -> anyhow::Result<u64> {
    let status = endsystem.status()?;
    let drops = &status.node.drops;
    let edge = drops.no_buffer + drops.over_cap + drops.receiver_full + drops.no_receiver + drops.malformed;
    let queues: u64 = status.node.links.iter().map(|link| link.best_effort_dropped).sum();
    let lost = |link: &DriverStatus| link.overflows + link.send_errors + link.drops.total();
    let driver: u64 = status.engine.links.iter().map(lost).sum();
    Ok(edge + queues + driver)
}

/// The results of a turn.
struct Turn {
    /// Sent, received.
    counted: [u64; 2],
    seconds: f64,
    cpu_s: f64,
    /// Sent and received, including the time before and after the measurement.
    total: [u64; 2],
}

impl Turn {
    fn per_cpu_s(&self) -> f64 {
        self.counted[1] as f64 / self.cpu_s
    }
}

/// Runs both ends, each where it belongs; counts after they have warmed up.
fn measure(
    length: Nanos,
    (near, send): (&Place, impl FnOnce(&Counts, &AtomicBool) -> anyhow::Result<()> + Send),
    (far, take): (&Place, impl FnOnce(&Counts, &AtomicBool) -> anyhow::Result<()> + Send),
) -> anyhow::Result<Turn> {
    let counts = Counts::default();
    let watch = || {
        let sample = || (now(), cpu::Used::now(), counts.read());
        wait_until(now() + WARM_UP)?;
        let from = sample();
        wait_until(now() + length)?;
        Ok((from, sample()))
    };
    let send = |stop: &AtomicBool| near.settle(Class::Ordinary).and_then(|()| send(&counts, stop));
    let take = |stop: &AtomicBool| far.settle(Class::Ordinary).and_then(|()| take(&counts, stop));
    let (from, to) = beside(take, || beside(send, watch))?;
    Ok(Turn {
        counted: [0, 1].map(|end| to.2[end] - from.2[end]),
        seconds: to.0.since(from.0).as_u64() as f64 / 1e9,
        cpu_s: to.1.since(&from.1).as_u64() as f64 / 1e9,
        total: counts.read(),
    })
}

fn send_batches(link: &mut dyn Link, counts: &Counts, stop: &AtomicBool) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let mut queued = 0;
        while queued < BATCH && link.transmit_buffer().is_some() {
            link.transmit(Port::Data, BYTES, 0)?;
            queued += 1;
        }
        link.flush()?;
        counts.sent.fetch_add(queued as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn take_batches(link: &mut dyn Link, counts: &Counts, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut received: Vec<Received> = Vec::with_capacity(2 * BATCH);
    let wait = Timespec { tv_sec: 0, tv_nsec: PATIENCE.as_u64() as _ };
    while !stop.load(Ordering::Relaxed) {
        let count = link.receive(&mut received, 2 * BATCH)?;
        received.clear();
        counts.received.fetch_add(count as u64, Ordering::Relaxed);
        if count == 0 {
            let descriptors = link.descriptors();
            let waiting = descriptors.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
            poll(&mut waiting.collect::<Vec<_>>(), Some(&wait))?;
        }
    }
    Ok(())
}

fn send(channel: &mut Channel, counts: &Counts, stop: &AtomicBool) -> anyhow::Result<()> {
    let message = [7; BYTES];
    while !stop.load(Ordering::Relaxed) {
        counts.sent.fetch_add(was_sent(channel.send(&message))?.into(), Ordering::Relaxed);
    }
    Ok(())
}

fn take(receiver: &mut Receiver, counts: &Counts, stop: &AtomicBool) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let taken = received(receiver.recv_in_place(|_, _| ()))?.is_some();
        counts.received.fetch_add(taken.into(), Ordering::Relaxed);
    }
    Ok(())
}

fn judge(of_kernel: &[Turn], ours: &[Turn]) -> Measured {
    let columns = "round, world, sent_per_s, messages_per_s, cpu_share, messages_per_cpu_s";
    let mut measured = Measured::new("round", columns);
    for (round, both) in of_kernel.iter().zip(ours).enumerate() {
        for (world, turn) in [(KERNEL, both.0), (OURS, both.1)] {
            let [sent_per_s, messages_per_s] = turn.counted.map(|count| count as f64 / turn.seconds);
            measured.add([json!({
                "round": round, "world": world, "sent_per_s": sent_per_s, "messages_per_s": messages_per_s,
                "cpu_share": turn.cpu_s / turn.seconds, "messages_per_cpu_s": turn.per_cpu_s(),
                "total_sent": turn.total[0], "total_received": turn.total[1],
            })]);
            measured.samples += 1;
        }
    }
    let median = |turns: &[Turn]| {
        let mut all: Vec<f64> = turns.iter().map(Turn::per_cpu_s).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    let name = "messages of 64 B a second and core against sendmmsg and recvmmsg";
    measured.at_least(name, median(ours) / median(of_kernel), RATIO_MIN);
    let shown = |turns| format!("{:.0} thousand", median(turns) / 1e3);
    let what = "messages a second and core (median of rounds)";
    measured.compare(what, "-", shown(ours), shown(of_kernel));
    measured.note(
        "CPU time of both ends, the kernel's network threads counted in; a message that does not arrive counts for nothing",
    );
    let curve = |world, colour, turns: &[Turn]| {
        let rates = turns.iter().map(|turn| turn.per_cpu_s() / 1e3).enumerate();
        Series::new(world, colour, rates.map(|(round, rate)| (round as f64, rate)))
    };
    let series = [curve(KERNEL, 0, of_kernel).dashed(true), curve(OURS, 1, ours)];
    let y = "thousand messages a second and core";
    measured.plot = Some(Plot::linear("Messages of 64 B", "round", y, series));
    measured
}
