//! How long the processor waits, and what wakes it.

use punctual_os::now;
use punctual_proto::ids::ChannelId;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::{Instant, Nanos};

use super::port::DrivenLink;
use super::spin::Waited;
use super::{Processor, Turn};

/// How soon to check again for events that no descriptor reports: a completion, a full driver, a lock, a pool
/// of frames.
const RETRY: Nanos = Nanos::from_micros(50);
/// A wake-up later than this is counted.
const LATE: Nanos = Nanos::from_millis(1);
/// Token of the command queue's doorbell; links and channels have theirs below (see `wake_up`).
pub(super) const COMMANDS: u64 = 1 << 63;
/// Token of the doorbell of the queue whose commands wait for messages.
pub(super) const BACKGROUND: u64 = COMMANDS + 1;
/// Tokens of channels; their numbers stay below 2^62.
pub(super) const CHANNELS: u64 = 1 << 62;

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// When the next turn is due: `None` means when something comes in.
    pub(super) fn next_turn(&self, turn: Turn, at: Instant) -> Option<Instant> {
        if turn.more {
            return Some(at);
        }
        let retry = turn.retry.then_some(at + RETRY);
        let wanted = self.node.poll_timeout();
        // The node was due, and the turn did no work: only waiting can help.
        let stalled = !turn.progress && wanted.is_some_and(|wanted| wanted <= at);
        if stalled {
            self.shared.counters().stalls.add(1);
        }
        let wanted = if stalled { Some(at + RETRY) } else { wanted };
        let rests = self.ports.iter().filter_map(DrivenLink::rests_until).min();
        let others =
            [rests, self.programs.doorbells.next_unmute(), self.timing.standstill.due(), self.stop.at];
        [retry, wanted].into_iter().chain(others).flatten().min()
    }

    /// Checks the descriptors without waiting; returns whether one is ready.
    pub(super) fn look(&mut self, at: Instant) -> bool {
        self.ready(Some(Nanos::ZERO), at).is_some()
    }

    /// Waits for descriptors for at most `span` and records which are ready; `None` if none is, else the time
    /// at which that was found.
    pub(super) fn ready(&mut self, span: Option<Nanos>, at: Instant) -> Option<Instant> {
        let ready = match self.waiter.wait(span) {
            Ok(ready) => ready,
            Err(error) => panic!("epoll failed on descriptors of our own: {error}"),
        };
        let woken = if span == Some(Nanos::ZERO) || ready == 0 { at } else { now() };
        for n in 0..ready {
            if let Some(token) = self.waiter.token(n) {
                self.wake_up(token, woken);
            }
        }
        (ready > 0).then_some(woken)
    }

    /// Sleeps until something comes in or `until`; the time, and when it woke.
    pub(super) fn sleep(&mut self, until: Option<Instant>, at: Instant) -> Waited {
        let found = self.ready(until.map(|until| until.since(at)), at);
        let woken = now();
        self.shared.counters().wakes.add(1);
        // After a standstill other descriptors are ready too, but the timer was late nevertheless.
        if let Some(until) = until.filter(|until| *until <= woken) {
            let late = woken.since(until);
            self.shared.counters().wake_late_ns_max.max(late.0);
            self.shared.counters().late_wakes.add(u64::from(late > LATE));
            self.node.record_wake(late, woken);
            // One report is enough for one standstill.
            self.timing.standstill.seen(woken);
        }
        Waited { idle_until: found.unwrap_or(woken), at: woken }
    }

    pub(super) fn wake_up(&mut self, token: u64, at: Instant) {
        match token {
            COMMANDS => self.orders.are_waiting = true,
            BACKGROUND => self.orders.background.may_wait = true,
            token if token & CHANNELS != 0 => {
                self.programs.doorbells.rung(ChannelId(token & !CHANNELS), at, &self.waiter);
            }
            token => {
                if let Some(port) = self.ports.get_mut(token as usize) {
                    port.readable();
                }
            }
        }
    }
}
