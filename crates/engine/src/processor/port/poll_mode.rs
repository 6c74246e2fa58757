//! Interrupt mitigation for best effort: while it arrives in bursts, its ring is polled by the clock.
//!
//! A packet that arrives while its receiver sleeps wakes it. Both sides pay for that: without mitigation,
//! waking took a third of the cost of a stream of 64 B messages to the sender's kernel, and the receiver woke
//! for one or two packets each time. So a poll that finds a burst turns the descriptor of best effort off for
//! [`POLL_INTERVAL`] (Mogul and Ramakrishnan 1997). The first timed poll that finds no burst turns it on
//! again. Descriptors of guaranteed streams stay on. A packet of best effort is seen at most
//! [`POLL_INTERVAL`] later.

use std::io;

use punctual_os::wait::Waiter;
use punctual_proto::{Instant, Nanos};

use super::DrivenLink;

/// Interval between two checks of a ring whose descriptor is off. Each check may wake the application too, so
/// a shorter interval costs more of both. A packet of best effort is late by this much at most.
const POLL_INTERVAL: Nanos = Nanos::from_micros(100);
/// Packets in one poll that count as a burst. A request and its answer are fewer: they never wait.
const BURST_PACKETS: usize = 8;

/// Whether, and until when, the descriptor of best effort is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PollMode(Option<Instant>);

impl PollMode {
    /// Records a check at `at` that brought `packets`. `mute` and `hear` turn the descriptor off and on, and
    /// return whether they succeeded.
    fn polled(
        &mut self,
        packets: usize,
        at: Instant,
        mute: impl FnOnce() -> bool,
        watch_interrupts: impl FnOnce() -> bool,
    ) {
        let is_crowd = packets >= BURST_PACKETS;
        let rests = match self.0 {
            None => is_crowd && mute(),
            Some(_) if is_crowd => true,
            Some(until) if until <= at => !watch_interrupts(),
            Some(_) => return,
        };
        self.0 = rests.then_some(at + POLL_INTERVAL);
    }

    fn is_over(&self, at: Instant) -> bool {
        self.0.is_some_and(|until| until <= at)
    }
}

impl DrivenLink {
    /// A check at `at` brought `packets` in.
    pub fn polled(&mut self, packets: usize, at: Instant, waiter: &Waiter) {
        let mut rest = self.poll_mode;
        rest.polled(packets, at, || self.mute(waiter), || self.watch_interrupts(waiter));
        self.poll_mode = rest;
    }

    /// Lets best effort wake us no more; whether it could.
    fn mute(&self, waiter: &Waiter) -> bool {
        let Some(descriptor) = self.best_effort_descriptor() else { return false };
        // Taken off and not just masked: a masked one still costs the sender's kernel a lock for each packet.
        waiter.unwatch(descriptor);
        true
    }

    /// Lets best effort wake us from now on; whether it does.
    fn watch_interrupts(&self, waiter: &Waiter) -> bool {
        // A driver that was replaced meanwhile has no such descriptor, or one that is watched already.
        let Some(descriptor) = self.best_effort_descriptor() else { return true };
        match waiter.watch(descriptor, self.token()) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::AlreadyExists,
        }
    }

    /// When to check the ring next while its descriptor is off.
    pub const fn rests_until(&self) -> Option<Instant> {
        self.poll_mode.0
    }

    /// The time for a check may have come.
    pub fn end_rest(&mut self, at: Instant) {
        if self.poll_mode.is_over(at) {
            self.readable();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Instant = Instant(1_000_000);
    const END: Instant = Instant(BEGIN.0 + POLL_INTERVAL.0);

    fn never() -> bool {
        panic!("the descriptor is as it should be")
    }

    /// The poll mode after a burst at [`BEGIN`] has muted the descriptor.
    fn resting() -> PollMode {
        let mut rest = PollMode::default();
        rest.polled(BURST_PACKETS, BEGIN, || true, never);
        assert_eq!(rest, PollMode(Some(END)));
        rest
    }

    #[test]
    fn a_crowd_mutes_and_less_does_not() {
        let mut rest = PollMode::default();
        rest.polled(BURST_PACKETS - 1, BEGIN, never, never);
        assert_eq!(rest, PollMode(None));
        let rest = resting();
        assert!(!rest.is_over(Instant(END.0 - 1)));
        assert!(rest.is_over(END));
    }

    #[test]
    fn another_crowd_prolongs() {
        for at in [Instant(BEGIN.0 + 1), END, Instant(END.0 + 1)] {
            let mut rest = resting();
            rest.polled(BURST_PACKETS, at, never, never);
            assert_eq!(rest, PollMode(Some(at + POLL_INTERVAL)));
        }
    }

    #[test]
    fn an_early_small_poll_changes_nothing() {
        for packets in [0, BURST_PACKETS - 1] {
            let mut rest = resting();
            rest.polled(packets, Instant(END.0 - 1), never, never);
            assert_eq!(rest, resting());
        }
    }

    #[test]
    fn after_the_end_interrupts_work_again() {
        for packets in [0, BURST_PACKETS - 1] {
            let mut rest = resting();
            rest.polled(packets, END, never, || true);
            assert_eq!(rest, PollMode(None));
        }
    }

    #[test]
    fn without_interrupts_the_clock_continues_to_poll() {
        let mut rest = resting();
        rest.polled(0, END, never, || false);
        assert_eq!(rest, PollMode(Some(END + POLL_INTERVAL)));
    }

    #[test]
    fn what_cannot_be_muted_does_not_rest() {
        let mut rest = PollMode::default();
        rest.polled(BURST_PACKETS, BEGIN, || false, never);
        assert_eq!(rest, PollMode(None));
    }
}
