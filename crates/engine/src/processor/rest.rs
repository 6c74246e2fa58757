//! Rest from wake-ups for best effort: while it comes in crowds, its ring is looked at by the clock.
//!
//! A packet that finds its receiver asleep wakes it, at the sender's expense and ours: without rest, waking took a
//! third of what a stream of 64 B messages cost the sender's kernel, and the receiver woke for one or two packets each
//! time. So a look that finds a crowd turns the descriptor of best effort off for [`REST`] (interrupt mitigation, Mogul
//! and Ramakrishnan 1997), and the first look by the clock that finds none turns it on again. Other descriptors, of
//! streams that something is promised to, stay as they are; a packet of best effort is seen at most [`REST`] later.

use punctual_proto::{Instant, Nanos};

use super::port::LinkPort;
use crate::os::wait::Waiter;

/// Between two looks at a ring that nobody tells of.
const REST: Nanos = Nanos::from_micros(50);
/// As many packets in one look are a crowd. A request and its answer are none: they never wait.
const CROWD: usize = 8;

/// Whether, and until when, the descriptor of best effort is off.
#[derive(Debug, Default)]
pub(super) struct Rest(Option<Instant>);

impl LinkPort {
    /// A look at `at` brought `packets` in.
    pub(super) fn looked(&mut self, packets: usize, at: Instant, waiter: &Waiter) {
        let is_crowd = packets >= CROWD;
        let Some(until) = self.rest.0 else {
            let deaf = is_crowd && self.best_effort_descriptor().is_some_and(|one| waiter.mute(one).is_ok());
            self.rest.0 = deaf.then_some(at + REST);
            return;
        };
        if is_crowd {
            self.rest.0 = Some(at + REST);
        } else if until <= at {
            // A driver that has none any more was replaced by one whose descriptors are heard.
            let heard =
                self.best_effort_descriptor().is_none_or(|one| waiter.unmute(one, self.token()).is_ok());
            self.rest.0 = (!heard).then_some(at + REST);
        }
    }

    /// When the ring is to be looked at by the clock.
    pub(super) const fn rests_until(&self) -> Option<Instant> {
        self.rest.0
    }

    /// The time for a look may have come.
    pub(super) fn end_rest(&mut self, at: Instant) {
        if self.rest.0.is_some_and(|until| until <= at) {
            self.readable();
        }
    }
}
