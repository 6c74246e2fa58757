//! The incremental search against QPA, on random stages, and its edge cases.

use alloc::vec::Vec;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::policies::testing::{random_demand, random_model};

const LIMIT: Nanos = Nanos::from_millis(400);

fn held(policy: &Edf) -> Vec<(Demand, Nanos)> {
    policy.channels.iter().map(|(_, held)| (held.demand(), held.bound)).collect()
}

/// Whether QPA admits the newcomer beside the held ones.
fn by_qpa(policy: &Edf, demand: &Demand, bound: Nanos) -> Option<bool> {
    let mut channels = held(policy);
    channels.push((*demand, bound));
    is_feasible(&channels, &policy.model, Nanos::from_secs(50))
}

#[test]
fn an_offer_is_the_smallest_bound_that_the_demand_bound_test_allows() {
    let (mut admitted, mut refused) = (0, 0);
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut policy = Edf::new(random_model(&mut rng));
        for key in 0..20 {
            let demand = random_demand(&mut rng);
            match policy.offer(&demand, LIMIT) {
                Ok(Offer { bound }) => {
                    assert_eq!(by_qpa(&policy, &demand, bound), Some(true), "seed {seed}, {bound:?}");
                    let less = bound - Nanos(4);
                    assert_ne!(
                        by_qpa(&policy, &demand, less),
                        Some(true),
                        "seed {seed}, {bound:?} is not least"
                    );
                    let wider = bound + Nanos(rng.random_range(0..20_000_000));
                    let bound = if rng.random_bool(0.5) { wider } else { bound };
                    let held = policy.hold(StageKey(key), &demand, bound);
                    assert_eq!(held.is_ok(), by_qpa(&policy_without(&policy, key), &demand, bound).unwrap());
                    admitted += 1;
                }
                Err(Refusal { reason: RefusalReason::Bound { possible, .. }, .. }) => {
                    assert!(possible > LIMIT);
                    refused += 1;
                }
                Err(_) => refused += 1,
            }
            if rng.random_bool(0.2) {
                policy.release(StageKey(rng.random_range(0..20)));
            }
        }
    }
    assert!(admitted > 1_000 && refused > 500, "{admitted} {refused}");
}

fn policy_without(policy: &Edf, key: u64) -> Edf {
    let mut other = Edf::new(policy.model);
    for (key, held) in policy.channels.iter().filter(|(held, _)| held.0 != key) {
        other.insert(*key, &held.demand(), held.bound);
    }
    other
}

#[test]
fn caches_change_no_decision() {
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = random_model(&mut rng);
        let (mut warm, mut cold) = (Edf::new(model), Edf::new(model));
        for key in 0..40 {
            let demand = random_demand(&mut rng);
            cold.drop_caches();
            let limit = Nanos(rng.random_range(20_000_000..400_000_000));
            let offer = warm.offer(&demand, limit);
            assert_eq!(offer, cold.offer(&demand, limit), "seed {seed}, channel {key}");
            cold.drop_caches();
            let bound = offer.map_or(limit, |offer| offer.bound) * rng.random_range(1..4);
            let held = warm.hold(StageKey(key), &demand, bound);
            assert_eq!(held, cold.hold(StageKey(key), &demand, bound), "seed {seed}, channel {key}");
            if rng.random_bool(0.3) {
                let gone = StageKey(rng.random_range(0..40));
                assert_eq!(warm.release(gone), cold.release(gone));
            }
        }
    }
}

/// The horizon of a decision about long periods must not become the horizon of the steps of a short period.
#[test]
fn the_stored_steps_are_bounded_in_every_order_of_arrival() {
    let model = StageModel {
        blocking: crate::Blocking::Pipeline(Nanos::ZERO),
        interference: crate::Interference::default(),
        utilisation_limit: Ppm::ONE,
    };
    let demand = |cost, period| Demand {
        cost: Nanos(cost),
        unit_cost_max: Nanos(cost),
        period: Nanos(period),
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::default(),
        soft: None,
    };
    let hour = 3_600_000_000_000;
    // All of an empty stage; or nearly all of the rest of one, and then a message each microsecond.
    for demands in [&[demand(80_000, 80_000)][..], &[demand(hour / 2, hour), demand(498, 1_000)]] {
        let mut policy = Edf::new(model);
        for (key, demand) in demands.iter().enumerate() {
            let offer = policy.offer(demand, BOUND_MAX).expect("there is room");
            policy.hold(StageKey(key as u64), demand, offer.bound).expect("what was offered holds");
        }
        assert_eq!(policy.len(), demands.len());
        assert!(policy.stairs.len() as u128 <= 2 * STEPS_MAX, "{} steps", policy.stairs.len());
    }
}

fn demand(cost: u64, period: u64, release_latency: u64) -> Demand {
    Demand {
        cost: Nanos(cost),
        unit_cost_max: Nanos(cost),
        period: Nanos(period),
        release_latency: Nanos(release_latency),
        early: Nanos::ZERO,
        urgency: Urgency::default(),
        soft: None,
    }
}

fn model(blocking: u64) -> StageModel {
    StageModel {
        blocking: crate::Blocking::Pipeline(Nanos(blocking)),
        interference: crate::Interference::default(),
        utilisation_limit: Ppm::ONE,
    }
}

/// A message cannot be done when it is released, however short it is: a bound that the release latency uses
/// up is refused.
#[test]
fn no_bound_is_possible_within_the_release_latency() {
    for (cost, blocking) in [(0, 0), (1, 0), (1, 7), (500, 0)] {
        for held in [false, true] {
            let mut policy = Edf::new(model(blocking));
            if held {
                policy.hold(StageKey(0), &demand(10, 1_000, 0), Nanos(900)).expect("it fits");
            }
            let newcomer = demand(cost, 1_000, 300);
            for bound in [0, 299, 300] {
                let refused = policy.hold(StageKey(1), &newcomer, Nanos(bound)).expect_err("no time is left");
                let possible = refused.bound_possible.expect("there is room");
                assert!(possible > Nanos(300), "{possible} for {cost} ns");
                assert!(
                    policy.hold(StageKey(1), &newcomer, possible).is_ok(),
                    "what is said to be possible is"
                );
                policy.release(StageKey(1));
            }
        }
    }
}

/// Beyond the limit no steps are added, however many different channels a stage holds. The channels that are
/// admitted then still fit.
#[test]
fn the_steps_of_very_many_different_channels_are_bounded() {
    let mut policy = Edf::new(model(0));
    let hour = 3_600_000_000_000;
    let channels = 2 * STEPS_MAX as u64 + 10;
    for number in 0..channels {
        policy.insert(StageKey(number), &demand(1, hour, 0), Nanos(1_000_000 + 2 * number));
    }
    let last = 1_000_000 + 2 * channels as i64;
    assert!(policy.extend(last), "all of their first steps");
    let steps = policy.stairs.len();
    assert!(steps as u128 > 2 * STEPS_MAX, "{steps}");
    assert!(!policy.extend(hour as i64) && policy.stairs.len() == steps, "no more");
    let newcomer = demand(1_000, hour, 0);
    let offer = policy.offer(&newcomer, BOUND_MAX).expect("nearly all is free");
    // All others' first messages and its own are done by then.
    assert!(offer.bound.0 >= 1_000 && offer.bound.0 < hour, "{}", offer.bound);
}

/// A channel with zero cost is never late, however long others block; one with a cost is.
#[test]
fn qpa_finds_no_lateness_for_a_demand_of_zero() {
    let feasible = |cost| is_feasible(&[(demand(cost, 1_000, 0), Nanos(100))], &model(150), Nanos(100_000));
    assert_eq!([feasible(0), feasible(1)], [Some(true), Some(false)]);
}

/// The answer of QPA is unknown if the stage may be busy for longer than the limit.
#[test]
fn by_qpa_a_busy_period_beyond_the_limit_has_no_answer() {
    let channels = [(demand(500, 1_000, 0), Nanos(900)), (demand(900, 2_000, 0), Nanos(1_900))];
    // 500 + 900, then one more of the first.
    for (limit, expected) in [(1_899, None), (1_900, Some(true))] {
        assert_eq!(is_feasible(&channels, &model(0), Nanos(limit)), expected, "{limit}");
    }
}
