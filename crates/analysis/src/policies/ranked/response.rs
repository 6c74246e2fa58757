//! The response time of one channel at its place in the order, limited-preemptive and over the whole busy period.

use alloc::vec::Vec;

use crate::contract::SPAN_MAX;
use crate::mutation::{Mutation, active};
use crate::policy::Demand;
use crate::stage::Interference;
use crate::units::Nanos;

/// Most rounds of all searches for one response time; beyond them a channel counts as not schedulable.
const ROUNDS_MAX: u32 = 1 << 15;

/// A channel's traffic, as it delays channels of lower fixed rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) cost: Nanos,
    pub(super) period: Nanos,
    pub(super) jitter: Nanos,
}

impl Traffic {
    /// The most work that it releases in a window of length `window`.
    pub(super) fn within(&self, window: Nanos) -> Nanos {
        self.cost * (window + self.jitter).div_ceil(self.period)
    }
}

/// Number of channels of each kind of traffic that are ahead of a channel.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    kinds: Vec<(Traffic, u32)>,
}

impl Tally {
    /// The index of a kind of traffic; it never changes.
    pub(super) fn kind(&mut self, traffic: &Traffic) -> usize {
        let known = self.kinds.iter().position(|(kind, _)| kind == traffic);
        known.unwrap_or_else(|| {
            // A kind that is no longer used is reused.
            let free = self.kinds.iter().position(|&(_, count)| count == 0);
            let index = free.unwrap_or(self.kinds.len());
            if free.is_none() {
                self.kinds.push((*traffic, 0));
            }
            self.kinds[index].0 = *traffic;
            index
        })
    }

    pub(super) fn traffic(&self, kind: usize) -> &Traffic {
        &self.kinds[kind].0
    }

    pub(super) fn add(&mut self, kind: usize) {
        self.kinds[kind].1 += 1;
    }

    pub(super) fn remove(&mut self, kind: usize) {
        self.kinds[kind].1 -= 1;
    }

    /// A tally with the same kinds of traffic and no channels in them.
    pub(super) fn emptied(&self) -> Self {
        Self { kinds: self.kinds.iter().map(|&(traffic, _)| (traffic, 0)).collect() }
    }

    fn within(&self, window: Nanos) -> Nanos {
        let used = self.kinds.iter().filter(|&&(_, count)| count > 0);
        used.map(|(traffic, count)| traffic.within(window) * u64::from(*count)).sum()
    }
}

/// A channel at a place in the order: the traffic ahead of it and the units that may block it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) demand: &'a Demand,
    /// The channel's own traffic, as it delays others. Its jitter is r, plus the horizon if early work is not
    /// held back.
    pub(super) own: Traffic,
    /// Longest part of the channel's work that nothing preempts.
    pub(super) unit_max: Nanos,
    pub(super) ahead: &'a Tally,
    /// Traffic of a newcomer in addition to the traffic ahead.
    pub(super) newcomer: Option<&'a Traffic>,
    pub(super) blocking: Nanos,
    pub(super) interference: Interference,
}

/// A window that proves a bound: all work that must be done by its end fits into it, with `spare` left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness {
    pub(super) window: Nanos,
    pub(super) spare: Nanos,
    /// The blocking of its computation: never less than the channel's actual blocking.
    pub(super) blocking: Nanos,
}

impl Witness {
    /// Whether it still proves the bound with `newcomer` ahead and blocking of `blocking`.
    pub(super) fn carries(&self, newcomer: Option<&Traffic>, blocking: Nanos) -> bool {
        let wanted = newcomer.map_or(Nanos::ZERO, |traffic| traffic.within(self.window));
        wanted + (blocking - self.blocking) <= self.spare
    }
}

impl Place<'_> {
    /// The part at the end of a message that is not preempted: all of it if it is one unit. A longer message
    /// may end in a unit of any size, so only one tick of it is assumed to be safe.
    fn safe(&self) -> Nanos {
        let single = self.own.cost <= self.unit_max || active(Mutation::MessageLevelCosts);
        if single { self.own.cost - Nanos(1) } else { Nanos::ZERO }
    }

    /// The time of [`Self::safe`], stretched by the interference in it.
    pub(super) fn safe_stretched(&self) -> Nanos {
        let kept = 1_000_000 - u128::from(self.interference.rho.0.min(999_999));
        let stretched = (u128::from(self.safe().0) * 1_000_000).div_ceil(kept);
        Nanos(u64::try_from(stretched).unwrap_or(u64::MAX))
    }

    /// The work, with `jobs` own messages, before the last segment's second tick, if that is at `at`.
    pub(super) fn work(&self, blocking: Nanos, jobs: u64, at: Nanos) -> Nanos {
        blocking + (self.own.cost * jobs - self.safe()) + self.of_others(at)
    }

    fn of_others(&self, at: Nanos) -> Nanos {
        let newcomer = self.newcomer.map_or(Nanos::ZERO, |traffic| traffic.within(at));
        self.interference.within(at) + self.ahead.within(at) + newcomer
    }

    /// R, from the effective arrival; `None` if it is beyond `limit`.
    pub(super) fn response(&self, limit: Nanos) -> Option<Nanos> {
        let Traffic { period, jitter, .. } = self.own;
        let mut rounds = ROUNDS_MAX;
        let (mut worst, mut started, mut jobs) = (Nanos::ZERO, Nanos::ZERO, 0);
        let mut busy = None;
        while jobs == 0 || period * jobs < busy.unwrap_or(Nanos::ZERO) + jitter {
            let most = limit + period * jobs;
            let work = |at| self.work(self.blocking, jobs + 1, at);
            started = fixed_point(started, most, &mut rounds, work)?;
            let finished = started + self.safe_stretched();
            worst = worst.max((finished + jitter) - self.demand_early() - period * jobs);
            if worst > limit {
                return None;
            }
            if busy.is_none() {
                busy = Some(fixed_point(started, SPAN_MAX, &mut rounds, |at| self.work_of_busy_period(at))?);
            }
            jobs += 1;
            if active(Mutation::FirstInstanceOnly) {
                break;
            }
        }
        Some(worst)
    }

    pub(super) fn work_of_busy_period(&self, at: Nanos) -> Nanos {
        self.blocking + self.own.within(at) + self.of_others(at)
    }

    /// The part of its jitter before the effective arrival.
    fn demand_early(&self) -> Nanos {
        self.own.jitter - self.demand.release_latency
    }

    /// A witness for `bound`, if one window proves it.
    pub(super) fn witness(&self, bound: Nanos) -> Option<Witness> {
        self.witness_of_first_message(bound).or_else(|| self.witness_of_busy_period(bound))
    }

    /// A witness by the window of the first message of a busy period. If the longer of the blocking and the
    /// channel's own last segment is taken as blocking, the first message is the worst one, provided that it
    /// is done within a period (Davis et al. 2007, 3.4).
    fn witness_of_first_message(&self, bound: Nanos) -> Option<Witness> {
        let blocking = self.blocking.max(self.safe() + Nanos(1));
        let finish_max = (bound - self.demand.release_latency).min(self.own.period - self.own.jitter);
        let longest = finish_max.checked_sub(self.safe_stretched())?;
        fitting(longest, blocking, |at| self.work(blocking, 1, at))
    }

    /// A witness by the whole busy period: no message of it is done later than its end, nor arrives before
    /// its begin.
    fn witness_of_busy_period(&self, bound: Nanos) -> Option<Witness> {
        let stretch = self.safe_stretched() - self.safe();
        let longest = bound.checked_sub(self.demand.release_latency + stretch)?;
        fitting(longest, self.blocking, |at| self.work_of_busy_period(at))
    }
}

/// The longest window of at most `longest` that holds its work, or the shortest.
fn fitting(longest: Nanos, blocking: Nanos, work: impl Fn(Nanos) -> Nanos) -> Option<Witness> {
    // No work is due in no time: an empty window proves nothing.
    if longest == Nanos::ZERO {
        return None;
    }
    let fits = |window: Nanos| {
        let spare = window.checked_sub(work(window))?;
        Some(Witness { window, spare, blocking })
    };
    fits(longest).or_else(|| fits(fixed_point(Nanos::ZERO, longest, &mut { ROUNDS_MAX }, &work)?))
}

/// The least time from `from` on that holds its work, if it is at most `most` and found within `rounds`.
fn fixed_point(from: Nanos, most: Nanos, rounds: &mut u32, work: impl Fn(Nanos) -> Nanos) -> Option<Nanos> {
    let mut at = from.max(Nanos(1));
    loop {
        *rounds = rounds.checked_sub(1)?;
        let next = work(at);
        if next <= at {
            return Some(at);
        }
        if next > most {
            return None;
        }
        at = next;
    }
}
