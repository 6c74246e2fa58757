//! The doorbells of the applications' outgoing rings: owns the list of those that have rung, and the
//! allowances.
//!
//! An application may ring as often as it likes without a cost to others. A ring of a channel's doorbell is
//! handled at once as often as the contract has messages ([`Allowance`]). Rings beyond that, and all rings of
//! best-effort flows, count in one allowance of the user, however many doorbells it has: all users together
//! have one ring each [`ALL_SPACING`] and [`AT_ONCE`] at once, and each user has an equal share of that. A
//! doorbell without a share left is muted (the kernel stops reporting it) until its turn comes. Doorbells are
//! watched edge-triggered and never read, so watching one again reports a ring that came while it was muted.
//! So no ring is lost. Rings that a contract allows are handled at once whatever the user's other doorbells
//! do.
//!
//! Doorbells without a payer (those of root, the daemon's own user, or an embedding program) have an
//! allowance each, and are unmuted after [`SPACING`].
//!
//! No function here waits for an application. `epoll_ctl` locks the list of waiters at the daemon's end of a
//! doorbell, and only the daemon can wait there (`punctual_ipc::wake`). The thread that had the doorbell
//! watched closes it.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use punctual_os::wait::Waiter;
use punctual_proto::api::UserId;
use punctual_proto::ids::ChannelId;
use punctual_proto::{Contract, Instant, Nanos};
use punctual_trial::{Defence, holds};

use super::waiting::CHANNELS;

/// Interval between two checks of a ring without a payer whose application rings too often. It is part of the
/// processor's release latency.
pub(super) const SPACING: Nanos = Nanos::from_micros(100);
/// Interval between two rings of all users together that no contract allows: some 3 % of a CPU, which is
/// interference.
const ALL_SPACING: Nanos = Nanos::from_micros(250);
/// Rings beyond contracts that are handled at once, of all users together; one of each user if there are more
/// users.
const AT_ONCE: u32 = 32;

/// Doorbells that are muted because their user has no share left are unmuted together, at multiples of this
/// span: one wake-up for each of them would cost five times as much.
const TOGETHER: Nanos = Nanos::from_millis(4);

/// How many rings of a doorbell are handled at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// The doorbell's own allowance; `None`: it has none.
    own: Option<RingRate>,
    /// User whose share pays for rings beyond that.
    payer: Option<UserId>,
}

/// `burst` rings, and one more each `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingRate {
    burst: u32,
    interval: Nanos,
}

impl Allowance {
    /// A conforming sender rings at most once per message. If one ring is handled late, the next one may
    /// follow soon after it: therefore one more.
    pub fn of(contract: Option<&Contract>, payer: Option<UserId>) -> Self {
        let payer = payer.filter(|_| holds(Defence::DoorbellAllowance));
        let of = |c: &Contract| RingRate { burst: c.burst_messages_max, interval: c.policed_interval() };
        let own = match (contract.map(of), payer) {
            (Some(rate), Some(_)) => Some(RingRate { burst: rate.burst.saturating_add(1), ..rate }),
            (None, Some(_)) => None,
            (Some(rate), None) => Some(RingRate { interval: rate.interval.min(SPACING), ..rate }),
            (None, None) => Some(RingRate { burst: 1, interval: SPACING }),
        };
        Self { own, payer }
    }

    /// The program of a handler with a budget of `units` every `period` rings twice for each of its calls at most: when there
    /// is work, and when the call is done. Admission has counted that.
    pub fn of_calls(units: u32, period: Nanos, payer: Option<UserId>) -> Self {
        let rings = units.saturating_mul(2).max(1);
        let own = RingRate { burst: rings.saturating_add(1), interval: period / u64::from(rings) };
        Self { own: Some(own), payer: payer.filter(|_| holds(Defence::DoorbellAllowance)) }
    }
}

/// When all that a rate allows is there again (GCRA's theoretical arrival time).
#[derive(Clone, Copy, Debug, Default)]
struct NextArrival(Instant);

impl NextArrival {
    /// Time from which on one more ring is allowed.
    fn next(self, rate: RingRate) -> Instant {
        let early = rate.interval * u64::from(rate.burst.saturating_sub(1));
        Instant(self.0.0.saturating_sub(early.0))
    }

    /// Records that a ring was handled at this time.
    fn take(&mut self, rate: RingRate, at: Instant) {
        self.0 = self.0.max(at) + rate.interval;
    }
}

#[derive(Debug, Default)]
pub(super) struct Doorbells {
    watched: HashMap<ChannelId, Watched>,
    /// Users who have any, with how many.
    payers: HashMap<UserId, (NextArrival, usize)>,
    /// Grows to the number of rings that one wake-up can report, then never again.
    rung: Vec<ChannelId>,
    /// Muted doorbells with the time at which they are unmuted. Has room for all watched doorbells.
    muted: BinaryHeap<Reverse<(Instant, ChannelId)>>,
}

#[derive(Debug)]
struct Watched {
    doorbell: Arc<OwnedFd>,
    allowance: Allowance,
    rest: NextArrival,
    /// True if the doorbell is muted, and its next ring was charged already.
    has_paid: bool,
}

impl Doorbells {
    pub fn watch(
        &mut self,
        channel: ChannelId,
        doorbell: Arc<OwnedFd>,
        allowance: Allowance,
        waiter: &Waiter,
    ) -> io::Result<()> {
        waiter.watch(doorbell.as_fd(), CHANNELS | channel.0)?;
        if let Some(payer) = allowance.payer {
            self.payers.entry(payer).or_default().1 += 1;
        }
        let watched = Watched { doorbell, allowance, rest: NextArrival::default(), has_paid: false };
        self.watched.insert(channel, watched);
        self.muted.reserve(self.watched.len());
        Ok(())
    }

    pub fn unwatch(&mut self, channel: ChannelId, waiter: &Waiter) {
        let Some(watched) = self.watched.remove(&channel) else { return };
        waiter.unwatch(watched.doorbell.as_fd());
        let Some(payer) = watched.allowance.payer else { return };
        if let Entry::Occupied(mut held) = self.payers.entry(payer) {
            held.get_mut().1 -= 1;
            if held.get().1 == 0 {
                held.remove();
            }
        }
    }

    /// Each user's share of the allowance of all users.
    fn share(&self) -> RingRate {
        let users = u32::try_from(self.payers.len()).unwrap_or(u32::MAX).max(1);
        RingRate { burst: (AT_ONCE / users).max(1), interval: ALL_SPACING * u64::from(users) }
    }

    /// The kernel reports that a doorbell rang.
    pub fn rung(&mut self, channel: ChannelId, at: Instant, waiter: &Waiter) {
        let share = self.share();
        let Some(watched) = self.watched.get_mut(&channel) else { return };
        let due = if std::mem::take(&mut watched.has_paid) {
            at
        } else {
            let payer = watched.allowance.payer.and_then(|payer| self.payers.get_mut(&payer));
            watched.take(payer.map(|(rest, _)| rest), share, at)
        };
        if due <= at {
            self.rung.push(channel);
        } else {
            waiter.unwatch(watched.doorbell.as_fd());
            self.muted.push(Reverse((due, channel)));
        }
    }

    /// Unmutes the doorbells whose time has come.
    pub fn unmute(&mut self, at: Instant, waiter: &Waiter) {
        while self.next_unmute().is_some_and(|due| due <= at) {
            let Some(Reverse((_, channel))) = self.muted.pop() else { return };
            let Some(watched) = self.watched.get(&channel) else { continue };
            match waiter.watch(watched.doorbell.as_fd(), CHANNELS | channel.0) {
                Ok(()) => {}
                // The channel got another doorbell meanwhile.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // The kernel has no memory now: check the ring as if it had rung, and try again.
                Err(_) => {
                    self.rung.push(channel);
                    return self.muted.push(Reverse((at + SPACING, channel)));
                }
            }
        }
    }

    /// When the next muted doorbell is unmuted.
    pub fn next_unmute(&self) -> Option<Instant> {
        self.muted.peek().map(|Reverse((due, _))| *due)
    }

    /// The next channel whose doorbell rang and is still watched.
    pub fn next_rung(&mut self) -> Option<ChannelId> {
        while let Some(channel) = self.rung.pop() {
            if self.watched.contains_key(&channel) {
                return Some(channel);
            }
        }
        None
    }
}

/// Time at which a doorbell is unmuted, together with others of the same few milliseconds.
fn together(due: Instant) -> Instant {
    Instant(due.0.div_ceil(TOGETHER.0) * TOGETHER.0)
}

impl Watched {
    /// Charges a ring to the first allowance that can pay for it: the doorbell's own, or that of its `payer`,
    /// who has `share`. Returns when the ring is handled: now, or later.
    fn take(&mut self, payer: Option<&mut NextArrival>, share: RingRate, at: Instant) -> Instant {
        let own = self.allowance.own.map(|rate| (self.rest.next(rate), rate));
        let (due, rest, rate) = match (own, payer) {
            (Some((due, rate)), None) if due <= at => (due, &mut self.rest, rate),
            // The doorbell is unmuted soon, and its next ring is then charged again.
            (_, None) => return at + SPACING,
            (Some((due, rate)), Some(payer)) if due <= at || due <= payer.next(share) => {
                (due, &mut self.rest, rate)
            }
            (_, Some(payer)) => (payer.next(share), payer, share),
        };
        let due = due.max(at);
        rest.take(rate, due);
        let due = if due > at && rate == share { together(due) } else { due };
        self.has_paid = due > at;
        due
    }
}

#[cfg(test)]
mod tests;
