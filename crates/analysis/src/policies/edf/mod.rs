//! `edf`: the demand-bound test, incremental.
//!
//! For every t: interference(t) + sum of max(0, floor((t + r - d)/I') + 1)·C + blocking(t) <= t. The demand
//! of the held channels is stored as a [`Staircase`]; a decision is one pass over its relevant blocks.
//! [`is_feasible`] is the same test from first principles, by QPA.

mod blocking;
#[cfg(test)]
mod edge_tests;
mod reference;
mod search;
mod staircase;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use blocking::BlockingCurve;
use search::{Newcomer, NoBound, Search, Tail, div_up};
use staircase::{Series, Staircase};

pub use reference::is_feasible;

use super::nearest::{BOUND_MAX, period_possible};
use super::share::Share;
use crate::admission::{Admission, Policy, RunPolicy};
use crate::mutation::{Mutation, active};
use crate::ordered::Ordered;
use crate::policy::{AdmissionPolicy, Demand, Explanation, Offer, Refusal, RefusalReason, StageKey, Urgency};
use crate::stage::StageModel;
use crate::units::{Nanos, Ppm};

/// The demand-bound test.
pub const EDF: Policy = Policy {
    name: "edf",
    run: RunPolicy::Edf,
    counts_early: false,
    has_fixed_order: false,
    bears_changing_share: true,
    build: |model| Box::new(Edf::new(model)),
};

/// Most steps of the staircase: bounds the worst decision. Beyond it the line above the demand decides, which
/// only refuses some channels that the exact test would admit.
const STEPS_MAX: u128 = 1 << 17;
/// Limit of rounds that move the horizon or the newcomer's own blocking, after which a search gives up.
const ROUNDS_MAX: u32 = 64;

/// Nanoseconds as a signed number such that sums of a few of them cannot overflow.
fn signed(span: Nanos) -> i64 {
    span.0.min(1 << 60) as i64
}

/// The part of a channel's demand that EDF uses, and its bound. Channels with equal values share one and
/// count as one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    cost: Nanos,
    unit_cost_max: Nanos,
    period: Nanos,
    release_latency: Nanos,
    bound: Nanos,
}

impl Held {
    fn new(demand: &Demand, bound: Nanos) -> Self {
        let Demand { cost, unit_cost_max, period, release_latency, .. } = *demand;
        Self { cost, unit_cost_max, period, release_latency, bound }
    }

    /// The demand as far as EDF uses it.
    fn demand(&self) -> Demand {
        let Self { cost, unit_cost_max, period, release_latency, .. } = *self;
        let (early, urgency) = (Nanos::ZERO, Urgency::default());
        Demand { cost, unit_cost_max, period, release_latency, early, urgency, soft: None }
    }
}

/// The policy `edf` (see the module).
#[derive(Debug)]
pub struct Edf {
    model: StageModel,
    channels: Ordered<StageKey, Arc<Held>>,
    /// The distinct values of [`Held`]; each is referenced by its channels and by this set.
    groups: BTreeSet<Arc<Held>>,
    used: Share,
    /// Sum over the channels of C·max(0, I' + r - d)/I': the largest excess of demand over its mean.
    offset: i128,
    /// Steps per 10^12 ns of all groups.
    step_rate: u128,
    blocking: BlockingCurve,
    stairs: Staircase,
}

impl Edf {
    /// An empty stage.
    pub fn new(model: StageModel) -> Self {
        Self {
            model,
            channels: Ordered::default(),
            groups: BTreeSet::new(),
            used: Share::default(),
            offset: 0,
            step_rate: 0,
            blocking: BlockingCurve::new(model.blocking),
            stairs: Staircase::new(model.interference),
        }
    }

    fn insert(&mut self, key: StageKey, demand: &Demand, bound: Nanos) {
        let series = series_of(demand, bound);
        let held = Held::new(demand, bound);
        let held = self.groups.get(&held).cloned().unwrap_or_else(|| {
            let fresh = Arc::new(held);
            self.step_rate += steps_per_1000s(demand);
            self.groups.insert(fresh.clone());
            fresh
        });
        // The channel's steps up to there may be more than those of all others together.
        if self.stairs.horizon > self.horizon_max() {
            self.stairs.clear();
        }
        self.stairs.add(&series);
        self.blocking.add(demand.unit_cost_max, bound - demand.release_latency);
        self.used.add(demand);
        self.offset += offset_of(demand, bound);
        self.channels.insert(key, held);
    }

    fn remove(&mut self, key: StageKey) -> Option<(Demand, Nanos)> {
        let held = self.channels.remove(&key)?;
        let (demand, bound) = (held.demand(), held.bound);
        if channels_of(&held) <= 1 {
            self.groups.remove(&held);
            self.step_rate -= steps_per_1000s(&demand);
        }
        self.stairs.remove(&series_of(&demand, bound));
        self.blocking.remove(demand.unit_cost_max, bound - demand.release_latency);
        self.used.remove(&demand);
        self.offset -= offset_of(&demand, bound);
        Some((demand, bound))
    }

    /// The smallest bound for a newcomer that keeps the bounds of all held channels.
    fn smallest(&mut self, demand: &Demand) -> Result<Nanos, NoBound> {
        let mut assumed = Nanos::ZERO;
        for _ in 0..ROUNDS_MAX {
            let bound = self.smallest_blocking_until(demand, assumed)?;
            if bound <= assumed || !self.blocking.depends_on_units() {
                return Ok(bound);
            }
            assumed = bound;
        }
        Err(NoBound::Horizon)
    }

    /// The smallest bound for a newcomer that blocks others as if its bound were `assumed`.
    fn smallest_blocking_until(&mut self, demand: &Demand, assumed: Nanos) -> Result<Nanos, NoBound> {
        let newcomer = Newcomer {
            cost: signed(demand.cost).max(1),
            period: signed(demand.period).max(1),
            blocking: self.blocking.by(demand.unit_cost_max),
            blocks_until: signed(assumed - demand.release_latency),
        };
        let rho = self.model.interference.rho;
        let tail = Tail {
            offset: self.offset + i128::from(self.model.interference.sigma.0),
            free_share: self.used.left_over(rho),
        };
        for _ in 0..ROUNDS_MAX {
            let (stairs, blocking) = (&self.stairs, &self.blocking);
            let search = Search { stairs, blocking, tail, rho_ppm: rho.0, newcomer };
            let steps = search.by_steps()?;
            let beyond = search.by_tail();
            if beyond.is_ok_and(|beyond| beyond <= steps) {
                return Ok(Nanos(steps as u64) + demand.release_latency);
            }
            let wanted = tail.horizon_for(&newcomer, steps, search.blocking_max());
            if !self.extend(wanted.unwrap_or(i64::MAX)) {
                return beyond.map(|beyond| Nanos(beyond.max(steps) as u64) + demand.release_latency);
            }
        }
        Err(NoBound::Horizon)
    }

    /// The longest horizon, in nanoseconds: as far as [`STEPS_MAX`] steps of the held channels reach.
    fn horizon_max(&self) -> i64 {
        let reach = (STEPS_MAX * 1_000_000_000_000).checked_div(self.step_rate).unwrap_or(u128::MAX);
        reach.min(1 << 60) as i64
    }

    /// Moves the horizon to `wanted`, at least by a quarter, or as far as the steps allow; `false` if it
    /// cannot move further.
    fn extend(&mut self, wanted: i64) -> bool {
        let cap = self.horizon_max();
        let wanted = wanted.max(self.stairs.horizon);
        let target = wanted.saturating_add(wanted / 4 + 1).min(cap);
        if target <= self.stairs.horizon || self.stairs.len() as u128 >= 2 * STEPS_MAX {
            return false;
        }
        let all = self.groups.iter().map(series_of_group);
        self.stairs.extend(target, all);
        true
    }

    fn test(&mut self, demand: &Demand, bound: Nanos) -> Result<(), Refusal> {
        self.used.check(demand, &self.model)?;
        let refusal = |reason, possible| Refusal { reason, bound_possible: possible, period_possible: None };
        // A possible bound is more than the release latency, because a message takes at least a nanosecond.
        if self.smallest_blocking_until(demand, bound.min(BOUND_MAX)).is_ok_and(|possible| possible <= bound)
        {
            return Ok(());
        }
        // With a longer bound the newcomer's unit blocks more of the others.
        match self.smallest(demand) {
            Ok(possible) => Err(refusal(RefusalReason::Bound { possible, limit: bound }, Some(possible))),
            Err(_) => Err(refusal(RefusalReason::Others, None)),
        }
    }

    /// The smallest bound within `limit`, without a search for alternatives.
    fn offer_within(&mut self, demand: &Demand, limit: Nanos) -> Result<Nanos, Refusal> {
        self.used.check(demand, &self.model)?;
        let refusal = |reason, possible| Refusal { reason, bound_possible: possible, period_possible: None };
        match self.smallest(demand) {
            Ok(possible) if possible <= limit.min(BOUND_MAX) => Ok(possible),
            Ok(possible) => Err(refusal(RefusalReason::Bound { possible, limit }, Some(possible))),
            Err(_) => Err(refusal(RefusalReason::Others, None)),
        }
    }
}

fn series_of(demand: &Demand, bound: Nanos) -> Series {
    Series {
        first: signed(bound - demand.release_latency),
        period: signed(demand.period),
        cost: signed(demand.cost),
        channels: 1,
    }
}

/// Number of channels that hold it: one reference less, which is the set's.
fn channels_of(held: &Arc<Held>) -> u32 {
    (Arc::strong_count(held) - 1) as u32
}

fn series_of_group(held: &Arc<Held>) -> Series {
    Series { channels: channels_of(held), ..series_of(&held.demand(), held.bound) }
}

fn steps_per_1000s(demand: &Demand) -> u128 {
    1_000_000_000_000_u128.div_ceil(u128::from(demand.period.0.max(1)))
}

fn offset_of(demand: &Demand, bound: Nanos) -> i128 {
    let ignored = active(Mutation::TailWithoutReleaseLatency);
    let late = if ignored { Nanos::ZERO } else { demand.release_latency };
    let ahead = (demand.period + late) - bound;
    let offset = i128::from(signed(demand.cost)) * i128::from(signed(ahead));
    div_up(offset, i128::from(demand.period.0.max(1)))
}

impl AdmissionPolicy for Edf {
    fn offer(&mut self, demand: &Demand, bound_limit: Nanos) -> Result<Offer, Refusal> {
        self.offer_within(demand, bound_limit).map(|bound| Offer { bound }).map_err(|refusal| Refusal {
            period_possible: period_possible(demand, self.used.period_min(demand, &self.model), |slower| {
                self.offer_within(slower, bound_limit).is_ok()
            }),
            ..refusal
        })
    }

    fn hold(&mut self, key: StageKey, demand: &Demand, bound: Nanos) -> Result<(), Refusal> {
        let old = self.remove(key);
        let tested = self.test(demand, bound);
        match (&tested, old) {
            (Ok(()), _) => self.insert(key, demand, bound),
            (Err(_), Some((demand, bound))) => self.insert(key, &demand, bound),
            (Err(_), None) => {}
        }
        tested
    }

    fn relax(&mut self, key: StageKey, bound: Nanos) -> Result<(), Refusal> {
        match self.channels.get(&key).map(|held| **held) {
            Some(held) => self.hold(key, &held.demand(), bound),
            None => Err(super::not_held()),
        }
    }

    fn release(&mut self, key: StageKey) -> bool {
        self.remove(key).is_some()
    }

    fn bound(&self, key: StageKey) -> Option<Nanos> {
        self.channels.get(&key).map(|held| held.bound)
    }

    fn explain(&mut self, demand: &Demand, bound_limit: Nanos) -> Option<Explanation> {
        let bound = self.offer_within(demand, bound_limit).ok()?;
        let within = bound - demand.release_latency;
        let at = signed(within);
        // The newcomer's own unit blocks no other message by the time at which the newcomer is due itself.
        let blocking = Nanos(self.blocking.at(at).max(0) as u64);
        let interference = self.model.interference.within(within);
        let others = within - demand.cost - blocking - interference;
        Some(Explanation {
            release_latency: demand.release_latency,
            blocking,
            interference,
            own: demand.cost,
            others,
        })
    }

    fn drop_caches(&mut self) {
        self.stairs.clear();
    }

    fn utilisation(&self) -> Ppm {
        self.used.with_interference(self.model.interference.rho)
    }

    fn len(&self) -> usize {
        self.channels.len()
    }

    fn admission(&self) -> Admission {
        Admission::EDF
    }
}
