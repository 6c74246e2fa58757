//! Messages of 64 B a second and core: Punctual's best effort against kernel UDP with sendmmsg and recvmmsg, on the
//! same kind of link, in turns.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Context;
use punctual::{BitRate, Channel, DriverStatus, Endsystem, Nanos, Receiver, RecvError, SendError};
use punctual_link::{Link, Port, Received};
use punctual_os::clock::{duration, now, wait_until};
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;

use super::{Conditions, Measured};
use crate::demo::outcome::Check;
use crate::loads::Class;
use crate::measure::cpu;
use crate::report::{Axis, Plot, Series};
use crate::testbed::{Bed, Hosting, LinkSpec, Options, Pair, Place};
use crate::witness::Witness;
use punctual_host::config::Driver;

/// Faster than the machine: nobody waits for the pace.
const TOLD: BitRate = BitRate(100_000_000_000);
const BYTES: usize = 64;
/// What the baseline's system calls carry: `sendmmsg` takes 32 (the driver's batch).
const BATCH: usize = 32;
const RATIO_MIN: f64 = 1.5;
const OURS: &str = "Punctual";
const PATIENCE: Nanos = Nanos::from_millis(50);
const WARM_UP: Nanos = Nanos::from_millis(100);

#[derive(Clone, Serialize)]
struct Point {
    round: usize,
    world: &'static str,
    sent_per_s: f64,
    messages_per_s: f64,
    cpu_share: f64,
    messages_per_cpu_s: f64,
    /// The time before and after what is measured included.
    total_sent: u64,
    total_received: u64,
}

/// What both ends of a world count.
#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
    stop: AtomicBool,
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let bed = Bed { link: LinkSpec::direct(TOLD), pinned: true };
    let kernel = Pair::create(&bed, conditions)?;
    let sockets = Options { driver: Driver::UDP, ..Options::default() };
    let (mut source, mut sink) = kernel.adapters(&sockets)?;
    let mut pair = Pair::create(&bed, conditions)?;
    let options = Options {
        driver: conditions.driver,
        real_time: conditions.real_time,
        processor: super::FAST_COSTS.into(),
        link: "best_effort_flow_queue = \"1MiB\"\n".into(),
        ..Options::default()
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
    let told_before = told_lost(ends)?;
    let mut points = Vec::new();
    for round in 0..rounds {
        conditions.progress(format_args!("round {} of {rounds}", round + 1));
        let found = measure(
            length,
            |counts| near.settle(Class::Ordinary).and_then(|()| send_batches(source.as_mut(), counts)),
            |counts| far.settle(Class::Ordinary).and_then(|()| take_batches(sink.as_mut(), counts)),
        )?;
        points.push(found.point(round, "kernel"));
        let found = measure(
            length,
            |counts| near.settle(Class::Ordinary).and_then(|()| send(&mut channel, counts)),
            |counts| far.settle(Class::Ordinary).and_then(|()| take(&mut receiver, counts)),
        )?;
        points.push(found.point(round, OURS));
    }
    let totals = points.iter().filter(|point| point.world == OURS);
    let sent: u64 = totals.clone().map(|point| point.total_sent).sum();
    let lost = sent - totals.map(|point| point.total_received).sum::<u64>() - drain(&mut receiver)?;
    let told =
        told_lost(ends)?.checked_sub(told_before).context("a host counts less than before: it began anew")?;
    let mut measured = judge(&points);
    let name = "messages lost that no counter of the hosts tells of".into();
    measured.checks.push(Check::at_most(name, lost.saturating_sub(told) as f64, 0.0));
    measured.notes.push(format!("{lost} of {sent} messages were lost, the hosts' counters tell of {told}"));
    measured.testimony = witness.map(Witness::stop).unwrap_or_default();
    measured.samples = points.len() as u64;
    Ok(measured)
}

/// What waits still at the receiver, once nobody sends.
fn drain(receiver: &mut Receiver) -> anyhow::Result<u64> {
    let mut count = 0;
    loop {
        match receiver.recv_in_place(|_, _| ()) {
            Ok(()) => count += 1,
            Err(RecvError::TimedOut | RecvError::WouldBlock) => return Ok(count),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Packets that the hosts say they have dropped until now: in their drivers, at their edges, on their ways out, or before
/// a receiver.
fn told_lost(ends: [&Endsystem; 2]) -> anyhow::Result<u64> {
    ends.into_iter().map(told_lost_at).sum()
}

fn told_lost_at(endsystem: &Endsystem) -> anyhow::Result<u64> {
    let status = endsystem.status()?;
    let drops = &status.node.drops;
    let edge = drops.no_buffer + drops.over_cap + drops.receiver_full + drops.no_receiver + drops.malformed;
    let queues: u64 = status.node.links.iter().map(|link| link.best_effort_dropped).sum();
    let lost = |link: &DriverStatus| link.overflows + link.send_errors + link.drops.total();
    let driver: u64 = status.engine.links.iter().map(lost).sum();
    Ok(edge + queues + driver)
}

/// What a turn found.
struct Found {
    sent: u64,
    received: u64,
    seconds: f64,
    cpu_s: f64,
    total: (u64, u64),
}

impl Found {
    fn point(&self, round: usize, world: &'static str) -> Point {
        Point {
            round,
            world,
            sent_per_s: self.sent as f64 / self.seconds,
            messages_per_s: self.received as f64 / self.seconds,
            cpu_share: self.cpu_s / self.seconds,
            messages_per_cpu_s: self.received as f64 / self.cpu_s,
            total_sent: self.total.0,
            total_received: self.total.1,
        }
    }
}

/// Runs both ends; counts after they have warmed up.
fn measure(
    length: Nanos,
    send: impl FnOnce(&Counts) -> anyhow::Result<()> + Send,
    take: impl FnOnce(&Counts) -> anyhow::Result<()> + Send,
) -> anyhow::Result<Found> {
    let counts = Counts::default();
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| take(&counts));
        let sender = scope.spawn(|| send(&counts));
        let count = || (counts.sent.load(Ordering::Relaxed), counts.received.load(Ordering::Relaxed));
        let look = || (now(), cpu::Used::now(), count());
        let waited = wait_until(now() + WARM_UP);
        let from = look();
        let waited = waited.and_then(|()| wait_until(now() + length));
        let to = look();
        counts.stop.store(true, Ordering::Relaxed);
        for end in [sender, taker] {
            end.join().unwrap_or_else(|_| Err(anyhow::anyhow!("an end panicked")))?;
        }
        waited?;
        Ok(Found {
            sent: to.2.0 - from.2.0,
            received: to.2.1 - from.2.1,
            seconds: to.0.since(from.0).as_u64() as f64 / 1e9,
            cpu_s: to.1.since(&from.1).as_u64() as f64 / 1e9,
            total: count(),
        })
    })
}

fn send_batches(link: &mut dyn Link, counts: &Counts) -> anyhow::Result<()> {
    while !counts.stop.load(Ordering::Relaxed) {
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

fn take_batches(link: &mut dyn Link, counts: &Counts) -> anyhow::Result<()> {
    let mut received: Vec<Received> = Vec::with_capacity(2 * BATCH);
    let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: PATIENCE.as_u64() as _ };
    while !counts.stop.load(Ordering::Relaxed) {
        let count = link.receive(&mut received, 2 * BATCH)?;
        received.clear();
        counts.received.fetch_add(count as u64, Ordering::Relaxed);
        if count == 0 {
            let descriptors = link.descriptors();
            let mut waiting: Vec<PollFd<'_>> =
                descriptors.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
            poll(&mut waiting, Some(&wait))?;
        }
    }
    Ok(())
}

fn send(channel: &mut Channel, counts: &Counts) -> anyhow::Result<()> {
    let message = [7; BYTES];
    while !counts.stop.load(Ordering::Relaxed) {
        match channel.send(&message) {
            Ok(()) => {
                counts.sent.fetch_add(1, Ordering::Relaxed);
            }
            Err(SendError::TimedOut | SendError::WouldBlock) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn take(receiver: &mut Receiver, counts: &Counts) -> anyhow::Result<()> {
    while !counts.stop.load(Ordering::Relaxed) {
        match receiver.recv_in_place(|_, _| ()) {
            Ok(()) => {
                counts.received.fetch_add(1, Ordering::Relaxed);
            }
            Err(RecvError::TimedOut | RecvError::WouldBlock) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn judge(points: &[Point]) -> Measured {
    let columns = "round, world, sent_per_s, messages_per_s, cpu_share, messages_per_cpu_s";
    let mut measured = Measured::new("round", columns);
    points.iter().for_each(|point| measured.add(point));
    let of = |world: &str| {
        let mut all: Vec<f64> = points
            .iter()
            .filter(|point| point.world == world)
            .map(|point| point.messages_per_cpu_s)
            .collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    let (ours, kernel) = (of(OURS), of("kernel"));
    let name = "messages of 64 B a second and core against sendmmsg and recvmmsg".into();
    measured.checks.push(Check::at_least(name, ours / kernel, RATIO_MIN));
    let shown = |value: f64| format!("{:.0} thousand", value / 1e3);
    measured.compare("messages a second and core (median of rounds)", "-", shown(ours), shown(kernel));
    measured.notes.push(
        "CPU time of both ends, the kernel's network threads counted in; a message that does not arrive counts for nothing"
            .into(),
    );
    measured.plot = Some(plot(points));
    measured
}

fn plot(points: &[Point]) -> Plot {
    let series = ["kernel", OURS].into_iter().enumerate().map(|(colour, world)| {
        Series::new(
            world,
            colour,
            points
                .iter()
                .filter(|point| point.world == world)
                .map(|point| (point.round as f64, point.messages_per_cpu_s / 1e3)),
        )
        .dashed(world == "kernel")
    });
    Plot::new(
        "Messages of 64 B",
        Axis::linear("round"),
        Axis::linear("thousand messages a second and core"),
        series,
    )
}
