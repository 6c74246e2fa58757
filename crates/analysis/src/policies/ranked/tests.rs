//! Ranks and levels against the response times of [`crate::rta`], and d-order against EDF.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::policies::Edf;
use crate::policies::testing::{random_demand, random_model};
use crate::rta::{Task, fixed_priority};
use crate::stage::Interference;

const LIMIT: Nanos = Nanos::from_millis(400);

fn as_task(demand: &Demand) -> Task {
    let single = demand.cost <= demand.unit_cost_max;
    Task {
        cost: demand.cost,
        period: demand.period,
        deadline: Nanos::MAX,
        jitter: Nanos::ZERO,
        segment_max: demand.unit_cost_max,
        segment_last: if single { demand.cost } else { Nanos(1) },
    }
}

/// The response time at `index` of `demands`.
fn response(demands: &[Demand], index: usize, model: &StageModel) -> Option<Nanos> {
    let tasks: Vec<Task> = demands[..=index].iter().map(as_task).collect();
    let unit = demands[index + 1..].iter().map(|demand| demand.unit_cost_max).max().unwrap_or_default();
    fixed_priority::response_time(&tasks, model.blocking.by(unit)).unwrap()
}

/// Whether everybody keeps its bound with `demand` inserted at `index`.
fn all_keep(policy: &Ranked, demand: &Demand, bound: Nanos, index: usize) -> bool {
    let mut demands: Vec<_> = policy.entries.iter().map(|entry| entry.demand).collect();
    let mut bounds: Vec<_> = policy.entries.iter().map(|entry| entry.bound).collect();
    demands.insert(index, *demand);
    bounds.insert(index, bound);
    (0..demands.len()).all(|k| response(&demands, k, &policy.model).is_some_and(|found| found <= bounds[k]))
}

#[test]
fn d_order_offers_the_response_time_at_the_highest_rank_that_the_lower_ones_bear() {
    let (mut admitted, mut not_on_top) = (0, 0);
    for seed in 0..150 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = StageModel { interference: Interference::default(), ..random_model(&mut rng) };
        let mut policy = Ranked::d_order(model);
        for key in 0..14 {
            // Without release latency "from release" and "from the effective arrival" are one.
            let demand = Demand { release_latency: Nanos::ZERO, ..random_demand(&mut rng) };
            let Ok((slot, bound)) = policy.offer_within(&demand, LIMIT) else { continue };
            assert!(all_keep(&policy, &demand, bound, slot.end), "seed {seed}");
            assert!(!all_keep(&policy, &demand, bound - Nanos(1), slot.end), "seed {seed}: not least");
            assert!((0..slot.end).all(|higher| !all_keep(&policy, &demand, LIMIT, higher)), "seed {seed}");
            not_on_top += u32::from(slot.end > 0);
            let bound = if rng.random_bool(0.5) { bound } else { bound * rng.random_range(1..4) };
            policy.hold(StageKey(key), &demand, bound).unwrap();
            admitted += 1;
            if rng.random_bool(0.2) {
                policy.release(StageKey(rng.random_range(0..14)));
            }
            if rng.random_bool(0.3) {
                let key = StageKey(rng.random_range(0..14));
                let wider = policy.bound(key).map(|bound| bound + Nanos(rng.random_range(0..30_000_000)));
                if let Some(wider) = wider {
                    policy.relax(key, wider).expect("more time is always borne in place");
                }
            }
        }
    }
    assert!(admitted > 800 && not_on_top > 300, "{admitted} {not_on_top}");
}

#[test]
fn what_d_order_holds_edf_would_hold_too() {
    for seed in 0..150 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = random_model(&mut rng);
        let (mut policy, mut edf) = (Ranked::d_order(model), Edf::new(model));
        for key in 0..16 {
            let demand = random_demand(&mut rng);
            let Ok(Offer { bound }) = policy.offer(&demand, LIMIT) else { continue };
            let smallest = edf.offer(&demand, bound).expect("edf admits what d-order admits");
            assert!(smallest.bound <= bound, "seed {seed}");
            policy.hold(StageKey(key), &demand, bound).unwrap();
            edf.hold(StageKey(key), &demand, bound).expect("edf holds what d-order holds");
            let gone = StageKey(rng.random_range(0..40));
            assert_eq!(policy.release(gone), edf.release(gone));
        }
    }
}

#[test]
fn caches_change_no_decision() {
    for order in [Order::Ranks, Order::Levels] {
        let mut rng = SmallRng::seed_from_u64(11);
        let model = random_model(&mut rng);
        let (mut warm, mut cold) = (Ranked::new(model, order), Ranked::new(model, order));
        for key in 0..60 {
            let demand = random_demand(&mut rng);
            cold.drop_caches();
            let offer = warm.offer(&demand, LIMIT);
            assert_eq!(offer, cold.offer(&demand, LIMIT));
            if let Ok(Offer { bound }) = offer {
                warm.hold(StageKey(key), &demand, bound).unwrap();
                cold.hold(StageKey(key), &demand, bound).unwrap();
            }
            if rng.random_bool(0.3) {
                let gone = StageKey(rng.random_range(0..60));
                assert_eq!(warm.release(gone), cold.release(gone));
            }
        }
    }
}

#[test]
fn levels_are_half_octaves_and_cover_everything() {
    assert_eq!(level(Nanos::ZERO), 0);
    assert_eq!(level(Nanos::from_micros(64)), 0);
    assert_eq!(level(Nanos::MAX), LEVELS - 1);
    for wanted in 1..LEVELS {
        assert_eq!(level(level_floor(wanted)), wanted);
        assert_eq!(level(level_floor(wanted) - Nanos(1)), wanted - 1);
    }
    assert!(level(Nanos::from_millis(8)) < level(Nanos::from_millis(12)));
}

#[test]
fn ranks_can_be_asked_for() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut policy = Ranked::d_order(StageModel { utilisation_limit: Ppm::ONE, ..random_model(&mut rng) });
    let demand = |cost| Demand {
        cost: Nanos(cost),
        unit_cost_max: Nanos(1_000),
        period: Nanos::from_millis(50),
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
    };
    policy.hold(StageKey(1), &demand(10_000), Nanos::from_millis(40)).unwrap();
    policy.hold(StageKey(2), &demand(20_000), Nanos::from_millis(20)).unwrap();
    assert_eq!((policy.rank(StageKey(2)), policy.rank(StageKey(1))), (Some(0), Some(1)));
    policy.relax(StageKey(2), Nanos::from_millis(45)).unwrap();
    assert_eq!((policy.rank(StageKey(2)), policy.rank(StageKey(1))), (Some(1), Some(0)));
    assert_eq!(policy.rank(StageKey(3)), None);
}
