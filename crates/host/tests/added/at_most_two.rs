//! `edf` with at most two channels.

use alloc::boxed::Box;

use super::not_held;
use crate::admission::{Admission, Policy, RunPolicy};
use crate::policy::{AdmissionPolicy, Demand, Explanation, Offer, Refusal, StageKey};
use crate::units::{Nanos, Ppm};

/// `edf` with at most two channels.
pub const AT_MOST_TWO: Policy = Policy {
    name: "at-most-two",
    run: RunPolicy::Edf,
    counts_early: false,
    has_fixed_order: false,
    bears_changing_share: true,
    build: |model| Box::new(AtMostTwo(super::Edf::new(model))),
};

#[derive(Debug)]
struct AtMostTwo(super::Edf);

impl AtMostTwo {
    fn has_room(&self) -> Result<(), Refusal> {
        if self.0.len() < 2 { Ok(()) } else { Err(not_held()) }
    }
}

impl AdmissionPolicy for AtMostTwo {
    fn offer(&mut self, demand: &Demand, bound_limit: Nanos) -> Result<Offer, Refusal> {
        self.has_room()?;
        self.0.offer(demand, bound_limit)
    }

    fn hold(&mut self, key: StageKey, demand: &Demand, bound: Nanos) -> Result<(), Refusal> {
        if self.0.bound(key).is_none() {
            self.has_room()?;
        }
        self.0.hold(key, demand, bound)
    }

    fn relax(&mut self, key: StageKey, bound: Nanos) -> Result<(), Refusal> {
        self.0.relax(key, bound)
    }

    fn release(&mut self, key: StageKey) -> bool {
        self.0.release(key)
    }

    fn bound(&self, key: StageKey) -> Option<Nanos> {
        self.0.bound(key)
    }

    fn explain(&mut self, demand: &Demand, bound_limit: Nanos) -> Option<Explanation> {
        self.0.explain(demand, bound_limit)
    }

    fn drop_caches(&mut self) {
        self.0.drop_caches();
    }

    fn utilisation(&self) -> Ppm {
        self.0.utilisation()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn admission(&self) -> Admission {
        Admission::AT_MOST_TWO
    }
}
