//! Stages and demands for the policies' tests.

use rand::Rng;
use rand::rngs::SmallRng;

use crate::policy::{Class, Demand, Urgency};
use crate::stage::{Blocking, Interference, StageModel};
use crate::units::{Nanos, Ppm};

pub(super) fn random_model(rng: &mut SmallRng) -> StageModel {
    let blocking = if rng.random_bool(0.5) {
        Blocking::LargestUnit { best_effort: Nanos(rng.random_range(0..600_000)) }
    } else {
        Blocking::Pipeline(Nanos(rng.random_range(0..1_000_000)))
    };
    let interference = if rng.random_bool(0.5) {
        Interference::default()
    } else {
        Interference { sigma: Nanos(rng.random_range(0..500_000)), rho: Ppm(rng.random_range(0..100_000)) }
    };
    StageModel { blocking, interference, utilisation_limit: Ppm(rng.random_range(700_000..=980_000)) }
}

/// Messages of one unit each, of no urgency.
pub(super) fn demand(cost: u64, period: u64) -> Demand {
    Demand {
        cost: Nanos(cost),
        unit_cost_max: Nanos(cost),
        period: Nanos(period),
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::default(),
        soft: None,
    }
}

/// Half of them zero, most of the rest that of a wake-up, some up to nine tenths of the period.
pub(super) fn random_latency(rng: &mut SmallRng, period: Nanos) -> Nanos {
    match rng.random_range(0..8) {
        0..4 => Nanos::ZERO,
        4..6 => Nanos(rng.random_range(0..500_000)),
        _ => Nanos(rng.random_range(0..period.0 / 10 * 9)),
    }
}

/// Whole units and a rest: from 5 to 80 ms, up to some 15 % of the stage each.
pub(super) fn random_demand(rng: &mut SmallRng) -> Demand {
    let period = Nanos(rng.random_range(5..=80) * 1_000_000);
    let cost = Nanos(rng.random_range(10_000..=period.0 / 7));
    let unit_cost_max = Nanos(rng.random_range(10_000..=1_200_000)).min(cost);
    let release_latency = random_latency(rng, period);
    let early = if rng.random_bool(0.5) { Nanos(rng.random_range(0..20_000_000)) } else { Nanos::ZERO };
    Demand {
        cost,
        unit_cost_max,
        period,
        release_latency,
        early,
        urgency: Urgency::of_period(Class::Guaranteed, period),
        soft: None,
    }
}
