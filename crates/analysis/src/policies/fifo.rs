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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::testing::{random_demand, random_model};
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    /// What is offered is the time on an idle stage, at most the limit, whatever is held and however much
    /// that takes.
    #[test]
    fn everything_is_admitted_as_on_an_idle_stage() {
        let mut rng = SmallRng::seed_from_u64(1);
        let model = random_model(&mut rng);
        let (mut policy, mut parts) = (Fifo::new(&model), 0);
        for key in 0..40 {
            let demand = random_demand(&mut rng);
            let (release_latency, own) = (demand.release_latency, demand.cost);
            let alone = release_latency + own;
            for limit in [Nanos(1), alone - Nanos(1), alone, alone + Nanos(1), Nanos::MAX] {
                assert_eq!(policy.offer(&demand, limit), Ok(Offer { bound: limit.min(alone) }), "{limit}");
                let parts = Explanation { release_latency, own, ..Explanation::default() };
                assert_eq!(policy.explain(&demand, limit), Some(parts));
            }
            let key = StageKey(key);
            assert_eq!((policy.hold(key, &demand, alone), policy.bound(key)), (Ok(()), Some(alone)));
            // What replaces it is counted once.
            assert_eq!(policy.hold(key, &demand, Nanos(3)), Ok(()));
            assert_eq!((policy.relax(key, Nanos(7)), policy.bound(key)), (Ok(()), Some(Nanos(7))));
            parts += (u128::from(own.0) * 1_000_000_000_000).div_ceil(u128::from(demand.period.0));
            let ppm = parts.div_ceil(1_000_000) as u32 + model.interference.rho.0;
            assert_eq!((policy.len(), policy.utilisation()), (key.0 as usize + 1, Ppm(ppm)));
        }
        assert!(policy.utilisation() > Ppm::ONE);
        assert!(policy.release(StageKey(0)) && !policy.release(StageKey(0)));
        assert_eq!((policy.relax(StageKey(0), Nanos(1)), policy.bound(StageKey(0))), (Ok(()), None));
    }
}
