//! Channels whose deadlines fall on the same instants: the demand of all of them counts there.

use punctual_analysis::{
    Blocking, Class, Demand, Interference, Nanos, Ppm, StageKey, StageModel, Urgency, policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const MODEL: StageModel = StageModel {
    blocking: Blocking::LargestUnit { best_effort: Nanos(1) },
    interference: Interference { sigma: Nanos::ZERO, rho: Ppm(0) },
    utilisation_limit: Ppm::ONE,
};
/// All times are multiples of it, so that steps fall together.
const STEP_NS: u64 = 1_000_000;
const STEPS: u64 = 128;

fn demand(cost: u64, period: u64) -> Demand {
    let period = Nanos(period * STEP_NS);
    Demand {
        cost: Nanos(cost),
        unit_cost_max: Nanos(1),
        period,
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::of_period(Class::Guaranteed, period),
        soft: None,
    }
}

/// The demand of `held` by `at`, and a unit of any less urgent channel.
fn needed(held: &[(Demand, Nanos)], at: u64) -> u64 {
    let of = |(demand, bound): &(Demand, Nanos)| match at.checked_sub(bound.0) {
        Some(beyond) => (beyond / demand.period.0 + 1) * demand.cost.0,
        None => 0,
    };
    held.iter().map(of).sum::<u64>() + 1
}

#[test]
fn what_edf_holds_meets_every_deadline_where_many_fall_together() {
    let (mut holds, mut refusals) = (0, 0);
    for seed in 0..400 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut policy = policy_by_name("edf", MODEL).expect("is there");
        let mut held = Vec::new();
        for key in 0..12 {
            let period = 1 << rng.random_range(1..6);
            let bound = Nanos(rng.random_range(1..=period) * STEP_NS);
            let demand = demand(rng.random_range(1..=period * STEP_NS / 4), period);
            let fits = |held: &[_]| (1..=STEPS).all(|step| needed(held, step * STEP_NS) <= step * STEP_NS);
            held.push((demand, bound));
            if policy.hold(StageKey(key), &demand, bound).is_ok() {
                assert!(fits(&held), "seed {seed}: {held:?}");
                holds += 1;
            } else {
                held.pop();
                refusals += 1;
            }
        }
    }
    assert!(holds > 1_000 && refusals > 1_000, "{holds} and {refusals}");
}
