//! A link that is far: a thread carries every frame between its two ports, after a fixed time, and loses some of them. (Not every
//! kernel has `netem`.)

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_analysis::{Instant, Nanos};
use punctual_os::clock::now;
use punctual_os::frames::FrameSocket;
use punctual_os::namespaces::Namespace;
use punctual_proto::signalling::SplitMix64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::echo::STOP_CHECK_INTERVAL;
use crate::loads::{Background, Class, Place};

/// Frames that may be on their way in one direction; others are lost. More than a window of the experiments holds.
const FRAMES_MAX: usize = 1 << 14;
/// Longest frame that is carried whole.
const FRAME_BYTES_MAX: usize = 9_216;

/// What a far link does to each frame of either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// How long a frame takes.
    pub delay: Nanos,
    /// Frames of a million that are lost.
    pub lost_ppm: u32,
    /// Decides which ones.
    pub seed: u64,
}

/// The thread of a far link. It ends when dropped.
pub struct Forwarder(#[expect(dead_code, reason = "dropping it ends the thread")] Background<()>);

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").finish_non_exhaustive()
    }
}

impl Forwarder {
    /// Carries frames between the ports of link `index` in `wire`, which are up.
    ///
    /// # Errors
    /// If a port or the thread is refused.
    pub fn start(wire: &Namespace, index: usize, distance: Distance) -> io::Result<Self> {
        let open = |port: &str| wire.within(|| FrameSocket::open(&format!("{port}{index}")));
        let ports = [open("l")?, open("r")?];
        let place = Place { namespace: Some(wire.path()), cpu: None };
        let work = move |stop: &AtomicBool| carry(&ports, distance, stop);
        Ok(Self(Background::start(&place, "far-link", Class::RealTime, work)?))
    }
}

/// Frames in one direction.
struct Way {
    dice: SplitMix64,
    distance: Distance,
    /// Each with the time when it arrives.
    under_way: VecDeque<(Instant, Box<[u8]>)>,
}

impl Way {
    const fn new(distance: Distance, direction: u64) -> Self {
        Self { dice: SplitMix64::new(distance.seed ^ direction), distance, under_way: VecDeque::new() }
    }

    /// Takes a frame that has come at `at`, or loses it.
    fn take(&mut self, frame: &[u8], at: Instant) {
        let is_lost = self.dice.below(1_000_000) < u64::from(self.distance.lost_ppm);
        if !is_lost && self.under_way.len() < FRAMES_MAX {
            self.under_way.push_back((at + self.distance.delay, frame.into()));
        }
    }

    /// The next frame that has arrived by `at`.
    fn arrived(&mut self, at: Instant) -> Option<Box<[u8]>> {
        let &(due, _) = self.under_way.front()?;
        if due > at {
            return None;
        }
        self.under_way.pop_front().map(|(_, frame)| frame)
    }
}

fn carry(ports: &[FrameSocket; 2], distance: Distance, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut ways = [Way::new(distance, 0), Way::new(distance, 1)];
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    while !stop.load(Ordering::Relaxed) {
        for (from, way) in ways.iter_mut().enumerate() {
            while let Some(count) = ports[from].receive(&mut buffer)? {
                way.take(&buffer[..count], now());
            }
            while let Some(frame) = way.arrived(now()) {
                // A device whose queue is full loses the frame, as a wire's does.
                ports[1 - from].send(&frame)?;
            }
        }
        let next = ways.iter().filter_map(|way| way.under_way.front()).map(|(due, _)| *due).min();
        let at = now();
        let patience =
            next.map_or(STOP_CHECK_INTERVAL, |due| due.since(at.min(due)).min(STOP_CHECK_INTERVAL));
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.0.min(999_999_999) as _ };
        let mut readable = ports.each_ref().map(|port| PollFd::new(port, PollFlags::IN));
        match poll(&mut readable, Some(&patience)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISTANCE: Distance = Distance { delay: Nanos::from_millis(5), lost_ppm: 100_000, seed: 7 };

    #[test]
    fn frames_arrive_in_order_after_their_time_but_for_the_lost_ones() {
        let mut way = Way::new(DISTANCE, 0);
        for number in 0..1_000_u32 {
            way.take(&number.to_le_bytes(), Instant(u64::from(number)));
        }
        let delay = DISTANCE.delay.0;
        assert!(way.arrived(Instant(delay - 1)).is_none(), "none is early");
        let mut arrived = Vec::new();
        for at in 0..1_000 {
            arrived.extend(way.arrived(Instant(delay + at)).map(|frame| (at, frame)));
        }
        assert!((850..=950).contains(&arrived.len()), "{} of 1,000", arrived.len());
        for (at, frame) in arrived {
            assert_eq!(*frame, u32::try_from(at).expect("small").to_le_bytes(), "each at its own time");
        }
    }

    #[test]
    fn a_link_without_end_does_not_take_all_memory() {
        let mut way = Way::new(Distance { lost_ppm: 0, ..DISTANCE }, 1);
        for _ in 0..FRAMES_MAX + 10 {
            way.take(&[0; 60], Instant(0));
        }
        assert_eq!(way.under_way.len(), FRAMES_MAX);
    }
}
