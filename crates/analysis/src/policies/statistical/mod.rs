//! `statistical`: soft channels, by the probability that they miss, beside hard ones that keep their full
//! guarantee.
//!
//! Run time: soft channels by deadline among themselves, behind all hard channels. So soft channels delay a
//! hard channel as best effort does, by one unit, and a hard channel is admitted by `edf` as if they did not
//! exist. A channel whose unit blocks longer than best effort may is admitted and served as a hard one.
//!
//! A soft channel has the rest: the time of a window t that blocking, interference and all hard messages that
//! may arrive in it do not take. Its message misses only if in some window that ends at its deadline the soft
//! messages that are due in it take longer than that time. Arrivals of independent sources are bounded by
//! their peaks and have declared means, so Chernoff's bound gives the probability window by window, and the
//! union bound adds them up; where even the peaks fit, it is zero. Windows grow in steps of 1/16, each with
//! the most work and the least time.

#[cfg(test)]
mod edge_tests;
mod windows;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use super::edf::Edf;
use super::nearest::BOUND_MAX;
use super::share::Share;
use crate::admission::{Admission, Policy, RunPolicy};
use crate::multiset::Multiset;
use crate::policy::{AdmissionPolicy, Demand, Explanation, Offer, Refusal, RefusalReason, StageKey};
use crate::stage::StageModel;
use crate::statistical::Soft;
use crate::units::{Nanos, Ppm};

use windows::{HardKind, SoftKind, Windows};

/// `edf` for hard channels, probabilities for soft ones.
pub const STATISTICAL: Policy = Policy {
    name: "statistical",
    run: RunPolicy::Edf,
    counts_early: true,
    has_fixed_order: false,
    bears_changing_share: false,
    build: |model| Box::new(Statistical::new(model)),
};

/// Most kinds of soft channels of a stage: bounds the work of a decision. A channel of a further kind is
/// refused.
const KINDS_MAX: usize = 256;
/// Bisections for the smallest bound of a soft channel: to a 256th of the span that contains it.
const HALVINGS: u32 = 8;

/// The policy `statistical` (see the module).
#[derive(Debug)]
pub struct Statistical {
    model: StageModel,
    hard: Edf,
    /// Hard channels by the time that they take from soft ones.
    hard_kinds: Multiset<HardKind>,
    hard_demands: BTreeMap<StageKey, Demand>,
    soft: BTreeMap<StageKey, (Demand, Nanos)>,
    soft_kinds: Multiset<SoftKind>,
    /// Share of the stage that all channels use: peak rates of hard channels, mean rates of soft ones.
    used: Share,
}

impl Statistical {
    /// An empty stage.
    pub fn new(model: StageModel) -> Self {
        Self {
            model,
            hard: Edf::new(model),
            hard_kinds: Multiset::default(),
            hard_demands: BTreeMap::new(),
            soft: BTreeMap::new(),
            soft_kinds: Multiset::default(),
            used: Share::default(),
        }
    }

    /// The terms that make a demand soft here; `None` if it is hard.
    fn soft_of(&self, demand: &Demand) -> Option<Soft> {
        demand.soft.filter(|_| demand.unit_cost_max <= self.model.blocking.by(Nanos::ZERO))
    }

    /// The demand that counts against the share that may be reserved.
    fn mean_of(&self, demand: &Demand) -> Demand {
        let period = self.soft_of(demand).map_or(demand.period, |soft| soft.mean_period);
        Demand { period, ..*demand }
    }

    fn insert(&mut self, key: StageKey, demand: &Demand, bound: Nanos) {
        self.used.add(&self.mean_of(demand));
        if let Some(soft) = self.soft_of(demand) {
            self.soft_kinds.add(SoftKind::of(demand, soft, bound));
            self.soft.insert(key, (*demand, bound));
        } else {
            self.hard_kinds.add(HardKind::of(demand));
            self.hard_demands.insert(key, *demand);
        }
    }

    /// Removes a channel here; `hard` keeps its own entry.
    fn forget(&mut self, key: StageKey) -> Option<(Demand, Nanos)> {
        if let Some((demand, bound)) = self.soft.remove(&key) {
            self.used.remove(&self.mean_of(&demand));
            if let Some(soft) = demand.soft {
                self.soft_kinds.remove(SoftKind::of(&demand, soft, bound));
            }
            return Some((demand, bound));
        }
        let demand = self.hard_demands.remove(&key)?;
        let bound = self.hard.bound(key)?;
        self.used.remove(&demand);
        self.hard_kinds.remove(HardKind::of(&demand));
        Some((demand, bound))
    }

    /// Whether every soft channel keeps its miss ratio beside a newcomer.
    fn soft_keep(&self, newcomer: &Demand, bound: Nanos) -> bool {
        let soft = self.soft_of(newcomer);
        if soft.is_none() && self.soft_kinds.is_empty() {
            return true;
        }
        let mut windows = Windows::new(&self.model, &self.hard_kinds, &self.soft_kinds);
        match soft {
            // A message takes at least a nanosecond.
            Some(_) if bound <= newcomer.release_latency => return false,
            Some(soft) => {
                let kind = SoftKind::of(newcomer, soft, bound);
                if self.soft_kinds.kinds() >= KINDS_MAX && !self.soft_kinds.contains(&kind) {
                    return false;
                }
                windows.add_soft(kind);
            }
            None => windows.add_hard(HardKind::of(newcomer)),
        }
        windows.keep_all()
    }

    /// The smallest bound of a soft newcomer, at most `limit`.
    fn smallest_soft(&self, demand: &Demand, limit: Nanos) -> Option<Nanos> {
        if !self.soft_keep(demand, limit) {
            return None;
        }
        let (mut breaks, mut keeps) = (demand.release_latency.min(limit), limit);
        for _ in 0..HALVINGS {
            let middle = Nanos(breaks.0 + (keeps.0 - breaks.0) / 2);
            if self.soft_keep(demand, middle) { keeps = middle } else { breaks = middle }
        }
        Some(keeps)
    }

    fn check_share(&self, demand: &Demand) -> Result<(), Refusal> {
        self.used.check(&self.mean_of(demand), &self.model).map_err(|refusal| {
            // The period that would fit is one of the mean rate, which is no offer for the peak.
            let period_possible = refusal.period_possible.filter(|_| self.soft_of(demand).is_none());
            Refusal { period_possible, ..refusal }
        })
    }

    fn offer_soft(&self, demand: &Demand, limit: Nanos) -> Result<Offer, Refusal> {
        self.check_share(demand)?;
        let limit = limit.min(BOUND_MAX);
        if let Some(bound) = self.smallest_soft(demand, limit) {
            return Ok(Offer { bound });
        }
        let possible = self.smallest_soft(demand, BOUND_MAX);
        let reason = match possible {
            Some(possible) => RefusalReason::Bound { possible, limit },
            None => RefusalReason::Others,
        };
        Err(Refusal { reason, bound_possible: possible, period_possible: None })
    }

    fn hold_hard(&mut self, key: StageKey, demand: &Demand, bound: Nanos) -> Result<(), Refusal> {
        self.check_share(demand)?;
        if !self.soft_keep(demand, bound) {
            return Err(others());
        }
        self.hard.hold(key, demand, bound)
    }

    fn hold_soft(&self, demand: &Demand, bound: Nanos) -> Result<(), Refusal> {
        self.check_share(demand)?;
        if self.soft_keep(demand, bound) {
            return Ok(());
        }
        let possible = self.smallest_soft(demand, BOUND_MAX);
        let reason = match possible {
            Some(possible) if possible > bound => RefusalReason::Bound { possible, limit: bound },
            _ => RefusalReason::Others,
        };
        Err(Refusal { reason, bound_possible: possible, period_possible: None })
    }
}

fn others() -> Refusal {
    Refusal { reason: RefusalReason::Others, bound_possible: None, period_possible: None }
}

impl AdmissionPolicy for Statistical {
    fn offer(&mut self, demand: &Demand, bound_limit: Nanos) -> Result<Offer, Refusal> {
        if self.soft_of(demand).is_some() {
            return self.offer_soft(demand, bound_limit);
        }
        self.check_share(demand)?;
        let offer = self.hard.offer(demand, bound_limit)?;
        if self.soft_keep(demand, offer.bound) { Ok(offer) } else { Err(others()) }
    }

    fn hold(&mut self, key: StageKey, demand: &Demand, bound: Nanos) -> Result<(), Refusal> {
        let old = self.forget(key);
        let was_hard = self.hard.bound(key).is_some();
        let held = match self.soft_of(demand) {
            Some(_) => self.hold_soft(demand, bound),
            None => self.hold_hard(key, demand, bound),
        };
        match (&held, old) {
            (Ok(()), _) => {
                if was_hard && self.soft_of(demand).is_some() {
                    self.hard.release(key);
                }
                self.insert(key, demand, bound);
            }
            (Err(_), Some((demand, bound))) => self.insert(key, &demand, bound),
            (Err(_), None) => {}
        }
        held
    }

    fn relax(&mut self, key: StageKey, bound: Nanos) -> Result<(), Refusal> {
        let held =
            self.soft.get(&key).map(|&(demand, _)| demand).or_else(|| self.hard_demands.get(&key).copied());
        match held {
            Some(demand) => self.hold(key, &demand, bound),
            None => Err(super::not_held()),
        }
    }

    fn release(&mut self, key: StageKey) -> bool {
        let held = self.forget(key).is_some();
        self.hard.release(key);
        held
    }

    fn bound(&self, key: StageKey) -> Option<Nanos> {
        self.soft.get(&key).map(|&(_, bound)| bound).or_else(|| self.hard.bound(key))
    }

    fn explain(&mut self, demand: &Demand, bound_limit: Nanos) -> Option<Explanation> {
        if self.soft_of(demand).is_none() {
            return self.hard.explain(demand, bound_limit);
        }
        let Offer { bound } = self.offer_soft(demand, bound_limit).ok()?;
        let within = bound - demand.release_latency;
        let blocking = self.model.blocking.by(Nanos::ZERO);
        let interference = self.model.interference.within(within);
        Some(Explanation {
            release_latency: demand.release_latency,
            blocking,
            interference,
            own: demand.cost,
            others: within - demand.cost - blocking - interference,
        })
    }

    fn is_soft(&self, key: StageKey) -> bool {
        self.soft.contains_key(&key)
    }

    fn drop_caches(&mut self) {
        self.hard.drop_caches();
    }

    fn utilisation(&self) -> Ppm {
        self.used.with_interference(self.model.interference.rho)
    }

    fn len(&self) -> usize {
        self.soft.len() + self.hard_demands.len()
    }

    fn admission(&self) -> Admission {
        Admission::STATISTICAL
    }
}
