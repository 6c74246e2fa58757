//! The reserved share of a stage, with enough precision for ten thousand small channels.

use crate::policy::{Demand, Refusal, RefusalReason};
use crate::stage::StageModel;
use crate::units::{Nanos, Ppm};

const PARTS_PER_PPM: u128 = 1_000_000;

/// A sum of C/I' in parts per 10^12, each rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Share(u128);

impl Share {
    pub(super) fn of(demand: &Demand) -> Self {
        Self(
            (u128::from(demand.cost.0) * 1_000_000 * PARTS_PER_PPM)
                .div_ceil(u128::from(demand.period.0.max(1))),
        )
    }

    pub(super) fn add(&mut self, demand: &Demand) {
        self.0 += Self::of(demand).0;
    }

    pub(super) fn remove(&mut self, demand: &Demand) {
        self.0 -= Self::of(demand).0;
    }

    pub(super) fn with_interference(self, rho: Ppm) -> Ppm {
        Ppm(u32::try_from(self.0.div_ceil(PARTS_PER_PPM)).unwrap_or(u32::MAX).saturating_add(rho.0))
    }

    /// The share of a stage that is left, in parts per 10^12, after this and `rho`: zero or less means none.
    pub(super) fn left_over(self, rho: Ppm) -> i128 {
        (1_000_000 - i128::from(rho.0)) * PARTS_PER_PPM as i128 - i128::try_from(self.0).unwrap_or(i128::MAX)
    }

    /// Refuses a newcomer that would exceed the share that may be reserved, with the period that would fit.
    pub(super) fn check(self, newcomer: &Demand, model: &StageModel) -> Result<(), Refusal> {
        let wanted = Self(self.0 + Self::of(newcomer).0).with_interference(model.interference.rho);
        if wanted <= model.utilisation_limit {
            return Ok(());
        }
        let reason =
            RefusalReason::Utilisation { wanted_ppm: wanted.0, limit_ppm: model.utilisation_limit.0 };
        Err(Refusal { reason, bound_possible: None, period_possible: self.period_min(newcomer, model) })
    }

    /// The shortest period at which the newcomer's share is free.
    pub(super) fn period_min(self, newcomer: &Demand, model: &StageModel) -> Option<Nanos> {
        let limit =
            u128::from(model.utilisation_limit.0.saturating_sub(model.interference.rho.0)) * PARTS_PER_PPM;
        let free = limit.checked_sub(self.0).filter(|&free| free > 0)?;
        let period = (u128::from(newcomer.cost.0) * 1_000_000 * PARTS_PER_PPM).div_ceil(free);
        u64::try_from(period).ok().map(Nanos)
    }
}
