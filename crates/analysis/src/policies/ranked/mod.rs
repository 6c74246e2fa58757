//! `d-order`, `fixed-priority` and `rmdp`: admission by response times in a fixed order of the channels.
//!
//! `d-order` (Kandlur, Shin, Ferrari 1994; HARTS 3.2): run time EDF; the newcomer takes the highest rank that
//! leaves every lower channel within its bound, and its own bound is its response time there. EDF can serve
//! any demand that a fixed order can serve in time, so `edf` admits whatever this admits. `fixed-priority`:
//! run time by 30 levels of bounds, see [`level`]; early messages are jitter. `rmdp` (RTU 3): run time by
//! class, then by the shorter period, see [`Urgency`](crate::policy::Urgency); early messages are jitter.
//!
//! Response times are the criterion. Each channel stores a [`Witness`] of its bound, so that a newcomer costs
//! one division per channel. Response times are computed only if the witness does not cover the newcomer.

mod levels;
#[cfg(test)]
mod place_tests;
mod rates;
mod response;
mod scan;
#[cfg(test)]
mod small_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod written_out;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

pub use levels::{LEVELS, level};
pub use rates::response_times;

use levels::level_floor;
use response::{Place, Tally, Traffic, Witness};

use super::nearest::{BOUND_MAX, period_possible};
use super::share::Share;
use crate::admission::{Admission, Policy, RunPolicy};
use crate::policy::{AdmissionPolicy, Demand, Explanation, Offer, Refusal, RefusalReason, StageKey};
use crate::stage::StageModel;
use crate::units::{Nanos, Ppm};

/// The papers' D_order.
pub const D_ORDER: Policy = Policy {
    name: "d-order",
    run: RunPolicy::Edf,
    counts_early: false,
    has_fixed_order: false,
    bears_changing_share: true,
    build: |model| Box::new(Ranked::d_order(model)),
};

/// Response times by levels.
pub const FIXED_PRIORITY: Policy = Policy {
    name: "fixed-priority",
    run: RunPolicy::FixedPriority,
    counts_early: true,
    has_fixed_order: true,
    bears_changing_share: false,
    build: |model| Box::new(Ranked::fixed_priority(model)),
};

/// Response times by class and period.
pub const RMDP: Policy = Policy {
    name: "rmdp",
    run: RunPolicy::Rmdp,
    counts_early: true,
    has_fixed_order: true,
    bears_changing_share: false,
    build: |model| Box::new(Ranked::rmdp(model)),
};

/// Criterion of the order of the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Each channel has a rank of its own.
    Ranks,
    /// By [`level`]; channels of one level delay each other.
    Levels,
    /// By [`Urgency`](crate::policy::Urgency); channels of one urgency delay each other.
    Rates,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: StageKey,
    demand: Demand,
    kind: usize,
    bound: Nanos,
    witness: Option<Witness>,
}

/// A place for a newcomer.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Index at which the newcomer is inserted; the entries before it are ahead of it.
    end: usize,
    /// Index up to which entries are more urgent than the newcomer, so that it may block them.
    urgent: usize,
}

/// A policy with a fixed order (see the module).
#[derive(Debug)]
pub struct Ranked {
    model: StageModel,
    order: Order,
    /// The most urgent first.
    entries: Vec<Entry>,
    kinds: Tally,
    used: Share,
}

impl Ranked {
    /// An empty stage under `d-order`.
    pub fn d_order(model: StageModel) -> Self {
        Self::new(model, Order::Ranks)
    }

    /// An empty stage under `fixed-priority`.
    pub fn fixed_priority(model: StageModel) -> Self {
        Self::new(model, Order::Levels)
    }

    /// An empty stage under `rmdp`.
    pub fn rmdp(model: StageModel) -> Self {
        Self::new(model, Order::Rates)
    }

    fn new(model: StageModel, order: Order) -> Self {
        Self { model, order, entries: Vec::new(), kinds: Tally::default(), used: Share::default() }
    }

    fn traffic(&self, demand: &Demand) -> Traffic {
        let early = if self.order == Order::Ranks { Nanos::ZERO } else { demand.early };
        Traffic {
            cost: demand.cost.max(Nanos(1)),
            period: demand.period.max(Nanos(1)),
            jitter: demand.release_latency + early,
        }
    }

    /// The entries of the same level or rate as entry `index`, including it.
    fn peers(&self, index: usize) -> Range<usize> {
        match self.order {
            Order::Ranks => index..index + 1,
            Order::Levels => self.at_level(level(self.entries[index].bound)),
            Order::Rates => self.at_rate(self.entries[index].demand.urgency),
        }
    }

    fn at_level(&self, wanted: u8) -> Range<usize> {
        let start = self.entries.partition_point(|entry| level(entry.bound) < wanted);
        start..self.entries.partition_point(|entry| level(entry.bound) <= wanted)
    }

    /// The largest unit from `index` on.
    fn unit_from(&self, index: usize) -> Nanos {
        self.entries[index..].iter().map(|entry| entry.demand.unit_cost_max).max().unwrap_or_default()
    }

    fn place<'a>(&self, demand: &'a Demand, ahead: &'a Tally, blocking: Nanos) -> Place<'a> {
        let (own, interference) = (self.traffic(demand), self.model.interference);
        // A unit longer than the largest blocking is preempted somewhere, whatever unit is assumed.
        let unit_max = demand.unit_cost_max.min(self.model.blocking.by(demand.unit_cost_max));
        Place { demand, own, unit_max, ahead, newcomer: None, blocking, interference }
    }

    /// A newcomer's response time in a slot, if it is at most `limit`.
    fn response_in(&self, demand: &Demand, slot: Slot, limit: Nanos) -> Option<Nanos> {
        let ahead = self.ahead_of(slot.end);
        let blocking = self.model.blocking.by(self.unit_from(slot.end));
        self.place(demand, &ahead, blocking).response(limit)
    }

    /// The slot with the smallest bound for a newcomer, and that bound.
    fn best_slot(&mut self, demand: &Demand) -> Option<(Slot, Nanos)> {
        let newcomer = self.traffic(demand);
        let from = self.tolerated_from(&newcomer);
        let (slot, bound) = match self.order {
            Order::Ranks => {
                let slot = Slot { end: from, urgent: from };
                (slot, self.response_in(demand, slot, BOUND_MAX)?)
            }
            Order::Levels => self.best_level(demand, from)?,
            Order::Rates => {
                let slot = self.slot_at_rate(demand, from)?;
                (slot, self.response_in(demand, slot, BOUND_MAX)?)
            }
        };
        self.tolerate_unit(demand.unit_cost_max, slot).then_some((slot, bound))
    }

    fn best_level(&self, demand: &Demand, from: usize) -> Option<(Slot, Nanos)> {
        let highest = match self.entries[..from].last() {
            Some(intolerant) => level(intolerant.bound) + 1,
            None => 0,
        };
        (highest..LEVELS).find_map(|wanted| {
            let peers = self.at_level(wanted);
            let slot = Slot { end: peers.end, urgent: peers.start };
            let bound = self.response_in(demand, slot, BOUND_MAX)?.max(level_floor(wanted));
            (level(bound) == wanted).then_some((slot, bound))
        })
    }

    /// A slot in which a channel keeps `bound` and all others keep theirs. `d-order` prefers the order of the
    /// bounds.
    fn slot_for(&mut self, demand: &Demand, bound: Nanos, in_place: Option<usize>) -> Option<Slot> {
        let newcomer = self.traffic(demand);
        let from = self.tolerated_from(&newcomer);
        let candidates = match self.order {
            Order::Ranks => {
                let sorted =
                    self.entries.iter().rposition(|entry| entry.bound <= bound).map_or(0, |last| last + 1);
                [Some(sorted.max(from)), in_place.filter(|&place| place >= from), Some(from)]
                    .map(|place| place.map(|place| Slot { end: place, urgent: place }))
            }
            Order::Levels => {
                let peers = self.at_level(level(bound));
                let fits = peers.start >= from;
                [fits.then_some(Slot { end: peers.end, urgent: peers.start }), None, None]
            }
            Order::Rates => [self.slot_at_rate(demand, from), None, None],
        };
        candidates.into_iter().flatten().find(|&slot| {
            self.response_in(demand, slot, bound).is_some() && self.tolerate_unit(demand.unit_cost_max, slot)
        })
    }

    fn insert(&mut self, key: StageKey, demand: &Demand, bound: Nanos, slot: Slot) {
        let traffic = self.traffic(demand);
        let kind = self.kinds.kind(&traffic);
        self.kinds.add(kind);
        self.used.add(demand);
        for entry in &mut self.entries[slot.urgent..] {
            // A witness that no longer holds is searched again when it is needed.
            entry.witness = entry.witness.and_then(|witness| {
                let spare = witness.spare.checked_sub(traffic.within(witness.window))?;
                Some(Witness { spare, ..witness })
            });
        }
        let blocking = self.model.blocking.by(demand.unit_cost_max);
        for entry in &mut self.entries[..slot.urgent] {
            entry.witness = entry.witness.and_then(|witness| {
                let spare = witness.spare.checked_sub(blocking - witness.blocking)?;
                Some(Witness { spare, blocking: witness.blocking.max(blocking), ..witness })
            });
        }
        self.entries.insert(slot.end, Entry { key, demand: *demand, kind, bound, witness: None });
    }

    fn find(&self, key: StageKey) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key == key)
    }

    fn remove(&mut self, index: usize) -> Entry {
        let urgent = self.peers(index).start;
        let gone = self.entries.remove(index);
        let traffic = *self.kinds.traffic(gone.kind);
        self.kinds.remove(gone.kind);
        self.used.remove(&gone.demand);
        for entry in &mut self.entries[urgent..] {
            if let Some(witness) = &mut entry.witness {
                witness.spare += traffic.within(witness.window);
            }
        }
        gone
    }

    /// Inserts a channel, in place of `old` if there is one, or leaves everything as it was.
    fn put(
        &mut self,
        key: StageKey,
        demand: &Demand,
        bound: Nanos,
        old: Option<usize>,
    ) -> Result<(), Refusal> {
        let gone = old.map(|index| (self.peers(index).start, index, self.remove(index)));
        let slot = self.used.check(demand, &self.model).and_then(|()| {
            let bound = bound.min(BOUND_MAX);
            self.slot_for(demand, bound, old).ok_or_else(|| {
                let possible = self.best_slot(demand).map(|(_, possible)| possible);
                refuse(possible, bound)
            })
        });
        match (slot, gone) {
            (Ok(slot), _) => {
                self.insert(key, demand, bound, slot);
                Ok(())
            }
            (Err(refusal), Some((urgent, end, gone))) => {
                self.insert(key, &gone.demand, gone.bound, Slot { end, urgent });
                Err(refusal)
            }
            (Err(refusal), None) => Err(refusal),
        }
    }

    fn offer_within(&mut self, demand: &Demand, limit: Nanos) -> Result<(Slot, Nanos), Refusal> {
        self.used.check(demand, &self.model)?;
        match self.best_slot(demand) {
            Some((slot, bound)) if bound <= limit.min(BOUND_MAX) => Ok((slot, bound)),
            best => Err(refuse(best.map(|(_, bound)| bound), limit)),
        }
    }
}

fn refuse(possible: Option<Nanos>, limit: Nanos) -> Refusal {
    let reason = match possible {
        Some(possible) if possible > limit => RefusalReason::Bound { possible, limit },
        _ => RefusalReason::Others,
    };
    Refusal { reason, bound_possible: possible, period_possible: None }
}

impl AdmissionPolicy for Ranked {
    fn offer(&mut self, demand: &Demand, bound_limit: Nanos) -> Result<Offer, Refusal> {
        self.offer_within(demand, bound_limit).map(|(_, bound)| Offer { bound }).map_err(|refusal| Refusal {
            period_possible: period_possible(demand, self.used.period_min(demand, &self.model), |slower| {
                self.offer_within(slower, bound_limit).is_ok()
            }),
            ..refusal
        })
    }

    fn hold(&mut self, key: StageKey, demand: &Demand, bound: Nanos) -> Result<(), Refusal> {
        let old = self.find(key);
        self.put(key, demand, bound, old)
    }

    fn relax(&mut self, key: StageKey, bound: Nanos) -> Result<(), Refusal> {
        let index = self.find(key).ok_or_else(super::not_held)?;
        let demand = self.entries[index].demand;
        self.put(key, &demand, bound, Some(index))
    }

    fn release(&mut self, key: StageKey) -> bool {
        self.find(key).map(|index| self.remove(index)).is_some()
    }

    fn bound(&self, key: StageKey) -> Option<Nanos> {
        self.find(key).map(|index| self.entries[index].bound)
    }

    fn explain(&mut self, demand: &Demand, bound_limit: Nanos) -> Option<Explanation> {
        let (slot, bound) = self.offer_within(demand, bound_limit).ok()?;
        let within = bound - demand.release_latency;
        let blocking = self.model.blocking.by(self.unit_from(slot.end));
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

    fn rank(&self, key: StageKey) -> Option<usize> {
        let index = self.find(key)?;
        match self.order {
            Order::Ranks => Some(index),
            Order::Levels => Some(usize::from(level(self.entries[index].bound))),
            // Class and period determine it.
            Order::Rates => None,
        }
    }

    fn drop_caches(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.witness = None);
    }

    fn utilisation(&self) -> Ppm {
        self.used.with_interference(self.model.interference.rho)
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn admission(&self) -> Admission {
        match self.order {
            Order::Ranks => Admission::D_ORDER,
            Order::Levels => Admission::FIXED_PRIORITY,
            Order::Rates => Admission::RMDP,
        }
    }
}
