//! No admission: every channel is admitted, and nothing is promised. The baseline of experiments; run time
//! FIFO.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use super::share::Share;
use crate::admission::{Admission, Policy, RunPolicy};
use crate::policy::{AdmissionPolicy, Demand, Explanation, Offer, Refusal, StageKey};
use crate::stage::StageModel;
use crate::units::{Nanos, Ppm};

/// No admission.
pub const FIFO: Policy = Policy {
    name: "fifo",
    run: RunPolicy::Fifo,
    counts_early: false,
    has_fixed_order: false,
    bears_changing_share: false,
    build: |model| Box::new(Fifo::new(&model)),
};

/// Admits everything. Its "bounds" are the times of a message on an idle stage.
#[derive(Debug)]
pub struct Fifo {
    interference: Ppm,
    used: Share,
    channels: BTreeMap<StageKey, (Demand, Nanos)>,
}

impl Fifo {
    /// A stage without admission.
    pub fn new(model: &StageModel) -> Self {
        Self { interference: model.interference.rho, used: Share::default(), channels: BTreeMap::new() }
    }
}

impl AdmissionPolicy for Fifo {
    fn offer(&mut self, demand: &Demand, bound_limit: Nanos) -> Result<Offer, Refusal> {
        Ok(Offer { bound: (demand.release_latency + demand.cost).min(bound_limit) })
    }

    fn hold(&mut self, key: StageKey, demand: &Demand, bound: Nanos) -> Result<(), Refusal> {
        self.release(key);
        self.used.add(demand);
        self.channels.insert(key, (*demand, bound));
        Ok(())
    }

    fn relax(&mut self, key: StageKey, bound: Nanos) -> Result<(), Refusal> {
        if let Some(channel) = self.channels.get_mut(&key) {
            channel.1 = bound;
        }
        Ok(())
    }

    fn release(&mut self, key: StageKey) -> bool {
        let Some((demand, _)) = self.channels.remove(&key) else { return false };
        self.used.remove(&demand);
        true
    }

    fn bound(&self, key: StageKey) -> Option<Nanos> {
        self.channels.get(&key).map(|&(_, bound)| bound)
    }

    fn explain(&mut self, demand: &Demand, _bound_limit: Nanos) -> Option<Explanation> {
        let Demand { cost: own, release_latency, .. } = *demand;
        Some(Explanation { release_latency, own, ..Explanation::default() })
    }

    fn drop_caches(&mut self) {}

    fn utilisation(&self) -> Ppm {
        self.used.with_interference(self.interference)
    }

    fn len(&self) -> usize {
        self.channels.len()
    }

    fn admission(&self) -> Admission {
        Admission::FIFO
    }
}
