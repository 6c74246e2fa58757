//! Ranks and levels against the response times of [`crate::rta`], and d-order against EDF.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::policies::Edf;
use crate::policies::testing::{random_demand, random_model};
use crate::policy::Urgency;
use crate::rta::{Task, fixed_priority};
use crate::stage::{Blocking, Interference};

const LIMIT: Nanos = Nanos::from_millis(400);

fn as_task(demand: &Demand, jitter: Nanos, model: &StageModel) -> Task {
    let unit_max = demand.unit_cost_max.min(model.blocking.by(demand.unit_cost_max));
    let single = demand.cost <= unit_max;
    Task {
        cost: demand.cost,
        period: demand.period,
        deadline: Nanos::MAX,
        jitter,
        segment_max: demand.unit_cost_max,
        segment_last: if single { demand.cost } else { Nanos(1) },
    }
}

/// The response time at `index` of `demands`.
fn response(demands: &[Demand], index: usize, model: &StageModel) -> Option<Nanos> {
    let tasks: Vec<Task> =
        demands[..=index].iter().map(|demand| as_task(demand, Nanos::ZERO, model)).collect();
    let unit = demands[index + 1..].iter().map(|demand| demand.unit_cost_max).max().unwrap_or_default();
    fixed_priority::response_time(&tasks, model.blocking.by(unit)).unwrap()
}

/// Whether all channels keep their bounds with `demand` inserted at `index`.
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
            // Without release latency, "from release" and "from the effective arrival" are the same.
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

/// The response time of `of`, which has no jitter, among `others` if it is at level `wanted`.
fn response_at_level(
    of: &Demand,
    wanted: u8,
    others: &[(Demand, Nanos)],
    model: &StageModel,
) -> Option<Nanos> {
    let is_ahead = |&(_, bound): &(Demand, Nanos)| level(bound) <= wanted;
    let ahead = others.iter().filter(|&other| is_ahead(other));
    let mut tasks: Vec<Task> =
        ahead.map(|(demand, _)| as_task(demand, demand.release_latency + demand.early, model)).collect();
    tasks.push(as_task(of, Nanos::ZERO, model));
    let behind = others.iter().filter(|&other| !is_ahead(other));
    let unit = behind.map(|(demand, _)| demand.unit_cost_max).max().unwrap_or_default();
    fixed_priority::response_time(&tasks, model.blocking.by(unit)).unwrap()
}

/// The bound at the first level in which the newcomer and all others keep their bounds, found by trial.
fn bound_by_trial(held: &[(Demand, Nanos)], newcomer: &Demand, model: &StageModel) -> Option<Nanos> {
    (0..LEVELS).find_map(|wanted| {
        let bound = response_at_level(newcomer, wanted, held, model)?.max(level_floor(wanted));
        let keeps = |index: usize| {
            let mut others = held.to_vec();
            let (demand, promised) = others.remove(index);
            others.push((*newcomer, bound));
            let response = response_at_level(&demand, level(promised), &others, model);
            response.is_some_and(|response| response <= promised)
        };
        (level(bound) == wanted && (0..held.len()).all(keeps)).then_some(bound)
    })
}

fn held(policy: &Ranked) -> Vec<(Demand, Nanos)> {
    policy.entries.iter().map(|entry| (entry.demand, entry.bound)).collect()
}

#[test]
fn fixed_priority_offers_the_first_level_that_all_channels_tolerate() {
    let (mut admitted, mut refused, mut not_on_top) = (0, 0, 0);
    for seed in 0..150 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = StageModel { interference: Interference::default(), ..random_model(&mut rng) };
        let mut policy = Ranked::fixed_priority(model);
        for key in 0..14 {
            let demand =
                Demand { release_latency: Nanos::ZERO, early: Nanos::ZERO, ..random_demand(&mut rng) };
            let expected = bound_by_trial(&held(&policy), &demand, &model);
            match policy.offer(&demand, LIMIT) {
                Ok(Offer { bound }) => {
                    assert_eq!(Some(bound), expected, "seed {seed}, channel {key}");
                    let wider = bound + Nanos(rng.random_range(0..20_000_000));
                    let is_held = rng.random_bool(0.5) && policy.hold(StageKey(key), &demand, wider).is_ok();
                    if !is_held {
                        policy.hold(StageKey(key), &demand, bound).unwrap();
                    }
                    let rank = policy.rank(StageKey(key)).unwrap();
                    assert_eq!(rank, usize::from(level(policy.bound(StageKey(key)).unwrap())));
                    admitted += 1;
                    not_on_top += u32::from(rank > usize::from(level(policy.entries[0].bound)));
                }
                Err(Refusal { reason: RefusalReason::Utilisation { .. }, .. }) => {}
                Err(refusal) => {
                    assert_eq!(refusal.bound_possible, expected, "seed {seed}, channel {key}");
                    assert!(expected.is_none_or(|bound| bound > LIMIT), "seed {seed}, channel {key}");
                    refused += 1;
                }
            }
            if rng.random_bool(0.2) {
                policy.release(StageKey(rng.random_range(0..14)));
            }
        }
    }
    assert!(admitted > 800 && refused > 50 && not_on_top > 300, "{admitted} {refused} {not_on_top}");
}

#[test]
fn fixed_priority_admits_exactly_what_all_channels_tolerate() {
    let (mut yes, mut no) = (0, 0);
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = StageModel { interference: Interference::default(), ..random_model(&mut rng) };
        let mut policy = Ranked::fixed_priority(model);
        for key in 0..14 {
            let demand =
                Demand { release_latency: Nanos::ZERO, early: Nanos::ZERO, ..random_demand(&mut rng) };
            let bound = Nanos(rng.random_range(1_000_000..80_000_000));
            let mut all = held(&policy);
            all.push((demand, bound));
            let keeps = (0..all.len()).all(|index| {
                let mut others = all.clone();
                let (demand, bound) = others.remove(index);
                let response = response_at_level(&demand, level(bound), &others, &model);
                response.is_some_and(|response| response <= bound)
            });
            match policy.hold(StageKey(key), &demand, bound) {
                Ok(()) => yes += u32::from(keeps),
                Err(Refusal { reason: RefusalReason::Utilisation { .. }, .. }) => continue,
                Err(_) => no += u32::from(!keeps),
            }
            assert_eq!(policy.bound(StageKey(key)).is_some(), keeps, "seed {seed}, channel {key}");
        }
    }
    assert!(yes > 500 && no > 200, "{yes} {no}");
}

/// Messages that may be served early can come in bursts: for others that is jitter.
#[test]
fn early_messages_of_others_are_jitter_under_fixed_priority() {
    let mut later = 0;
    for seed in 0..150 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = StageModel { interference: Interference::default(), ..random_model(&mut rng) };
        let mut policy = Ranked::fixed_priority(model);
        for key in 0..6 {
            let demand = random_demand(&mut rng);
            if let Ok(Offer { bound }) = policy.offer(&demand, LIMIT) {
                policy.hold(StageKey(key), &demand, bound).unwrap();
            }
        }
        let own = Demand { release_latency: Nanos::ZERO, early: Nanos::ZERO, ..random_demand(&mut rng) };
        let Ok(Offer { bound }) = policy.offer(&own, LIMIT) else { continue };
        let response = |others: &[(Demand, Nanos)]| response_at_level(&own, level(bound), others, &model);
        let mut others = held(&policy);
        let floor = level_floor(level(bound));
        assert_eq!(response(&others).map(|response| response.max(floor)), Some(bound), "seed {seed}");
        others.iter_mut().for_each(|(demand, _)| demand.early = Nanos::ZERO);
        later += u32::from(response(&others) < Some(bound));
    }
    assert!(later > 50, "{later}");
}

#[test]
fn what_d_order_holds_edf_would_hold_too() {
    for seed in 0..600 {
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

/// A stage with its caches decides like a stage that drops them before every decision.
#[test]
fn caches_change_no_decision() {
    let (mut admitted, mut refused) = (0, 0);
    for (seed, order) in (0..40).flat_map(|seed| [(seed, Order::Ranks), (seed, Order::Levels)]) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = random_model(&mut rng);
        let (mut warm, mut cold) = (Ranked::new(model, order), Ranked::new(model, order));
        for key in 0..40 {
            // Small enough for many, and of few kinds, so that bounds are longer than periods.
            let kind = random_demand(&mut SmallRng::seed_from_u64(rng.random_range(0..5)));
            let cost = kind.cost / 3 + Nanos(1);
            let demand = Demand { cost, unit_cost_max: kind.unit_cost_max.min(cost), ..kind };
            cold.drop_caches();
            let limit = Nanos(rng.random_range(20_000_000..400_000_000));
            let offer = warm.offer(&demand, limit);
            assert_eq!(offer, cold.offer(&demand, limit), "seed {seed}, {order:?}, channel {key}");
            admitted += u32::from(offer.is_ok());
            refused += u32::from(offer.is_err());
            cold.drop_caches();
            let bound = offer.map_or(limit, |offer| offer.bound) * rng.random_range(1..4);
            let held = warm.hold(StageKey(key), &demand, bound);
            assert_eq!(held, cold.hold(StageKey(key), &demand, bound), "seed {seed}, {order:?}, {key}");
            let other = StageKey(rng.random_range(0..40));
            if rng.random_bool(0.2) {
                assert_eq!(warm.release(other), cold.release(other));
            } else if let Some(bound) = warm.bound(other) {
                cold.drop_caches();
                let moved = Nanos(bound.0 / 100 * rng.random_range(70..150));
                let relaxed = warm.relax(other, moved);
                assert_eq!(relaxed, cold.relax(other, moved), "seed {seed}, {order:?}, {key}");
            }
        }
    }
    assert!(admitted > 800 && refused > 800, "{admitted} {refused}");
}

/// Caches are memory: without them no window is stored, and decisions are as before.
#[test]
fn dropped_caches_hold_nothing() {
    let mut rng = SmallRng::seed_from_u64(5);
    let mut policy = Ranked::d_order(random_model(&mut rng));
    for key in 0..10 {
        let demand = random_demand(&mut rng);
        if let Ok(Offer { bound }) = policy.offer(&demand, LIMIT) {
            policy.hold(StageKey(key), &demand, bound * 2).expect("more than was offered");
        }
    }
    let demand = random_demand(&mut rng);
    let before = policy.offer(&demand, LIMIT);
    assert!(policy.entries.iter().any(|entry| entry.witness.is_some()));
    policy.drop_caches();
    assert!(policy.entries.iter().all(|entry| entry.witness.is_none()));
    assert_eq!(policy.offer(&demand, LIMIT), before);
}

/// Whatever channels come and go: a stored window has just so much time to spare as if it were computed anew,
/// with no less blocking than there is. If it had less, response times would be computed for nothing.
#[test]
fn a_stored_window_has_the_time_to_spare_that_is_left_in_it() {
    let (mut checked, mut blocked, mut gone) = (0, 0, 0);
    for (seed, order) in
        (0..40).flat_map(|seed| [Order::Ranks, Order::Levels, Order::Rates].map(|order| (seed, order)))
    {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut policy = Ranked::new(random_model(&mut rng), order);
        for key in 0..30 {
            let kind = random_demand(&mut SmallRng::seed_from_u64(rng.random_range(0..9)));
            let cost = kind.cost / 3 + Nanos(1);
            let demand = Demand { cost, unit_cost_max: kind.unit_cost_max.min(cost), ..kind };
            if let Ok(Offer { bound }) = policy.offer(&demand, LIMIT) {
                let _ = policy.hold(StageKey(key), &demand, bound * rng.random_range(1..5));
            }
            if rng.random_bool(0.2) {
                gone += u32::from(policy.release(StageKey(rng.random_range(0..30))));
            }
            for index in 0..policy.len() {
                let Entry { demand, kind, witness: Some(stored), .. } = policy.entries[index] else {
                    continue;
                };
                let end = policy.peers(index).end;
                let mut ahead = policy.ahead_of(end);
                ahead.remove(kind);
                let blocking = policy.model.blocking.by(policy.unit_from(end));
                let place = policy.place(&demand, &ahead, stored.blocking);
                // A window is that of a first message or that of a busy period.
                let spare =
                    [place.work(stored.blocking, 1, stored.window), place.work_of_busy_period(stored.window)]
                        .map(|work| stored.window.checked_sub(work));
                assert!(spare.contains(&Some(stored.spare)), "seed {seed}, {order:?}: {stored:?}, {spare:?}");
                assert!(stored.blocking >= blocking, "seed {seed}, {order:?}: {stored:?}, {blocking}");
                checked += 1;
                blocked += u32::from(stored.blocking > policy.model.blocking.by(Nanos::ZERO));
            }
        }
    }
    assert!(checked > 10_000 && blocked > 3_000 && gone > 150, "{checked} {blocked} {gone}");
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
fn ranks_can_be_requested() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut policy = Ranked::d_order(StageModel { utilisation_limit: Ppm::ONE, ..random_model(&mut rng) });
    let demand = |cost| Demand {
        cost: Nanos(cost),
        unit_cost_max: Nanos(1_000),
        period: Nanos::from_millis(50),
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::default(),
        soft: None,
    };
    policy.hold(StageKey(1), &demand(10_000), Nanos::from_millis(40)).unwrap();
    policy.hold(StageKey(2), &demand(20_000), Nanos::from_millis(20)).unwrap();
    assert_eq!((policy.rank(StageKey(2)), policy.rank(StageKey(1))), (Some(0), Some(1)));
    policy.relax(StageKey(2), Nanos::from_millis(45)).unwrap();
    assert_eq!((policy.rank(StageKey(2)), policy.rank(StageKey(1))), (Some(1), Some(0)));
    assert_eq!(policy.rank(StageKey(3)), None);
}

/// A window that proves a bound proves what the response time says, to the nanosecond: in places of a few nanoseconds each
/// tick counts.
#[test]
fn a_witness_proves_no_more_than_the_response_time() {
    let (mut proven, mut refuted) = (0, 0);
    let mut rng = SmallRng::seed_from_u64(11);
    for round in 0..60_000 {
        let traffic = |rng: &mut SmallRng| Traffic {
            cost: Nanos(rng.random_range(1..4)),
            period: Nanos(rng.random_range(4..16)),
            jitter: Nanos(rng.random_range(0..4)),
        };
        let mut ahead = Tally::default();
        for _ in 0..rng.random_range(0..3) {
            let kind = ahead.kind(&traffic(&mut rng));
            ahead.add(kind);
        }
        let own = Traffic { cost: Nanos(rng.random_range(1..7)), ..traffic(&mut rng) };
        let release_latency = Nanos(rng.random_range(0..=own.jitter.0));
        let demand = Demand {
            cost: own.cost,
            unit_cost_max: own.cost,
            period: own.period,
            release_latency,
            early: own.jitter - release_latency,
            urgency: Urgency::default(),
            soft: None,
        };
        let rho = crate::units::Ppm(if rng.random_bool(0.3) { 100_000 } else { 0 });
        let place = Place {
            demand: &demand,
            own,
            unit_max: Nanos(rng.random_range(1..8)),
            ahead: &ahead,
            newcomer: None,
            blocking: Nanos(rng.random_range(0..5)),
            interference: Interference { sigma: Nanos(rng.random_range(0..3)), rho },
        };
        let bound = Nanos(rng.random_range(1..40));
        match (place.witness(bound), place.response(bound)) {
            (Some(_), response) => {
                assert!(response.is_some(), "round {round}: {place:?} in {bound:?}");
                proven += 1;
            }
            (None, response) => refuted += u32::from(response.is_none()),
        }
    }
    assert!(proven > 5_000 && refuted > 5_000, "{proven} {refuted}");
}

/// A busy period that grows by a nanosecond a round is given up.
#[test]
fn a_response_that_is_found_in_no_number_of_rounds_counts_as_none() {
    let mut ahead = Tally::default();
    let kind = ahead.kind(&Traffic { cost: Nanos(1), period: Nanos(1), jitter: Nanos::ZERO });
    ahead.add(kind);
    let own = Traffic { cost: Nanos(1), period: Nanos(1_000), jitter: Nanos::ZERO };
    let demand = Demand {
        cost: own.cost,
        unit_cost_max: own.cost,
        period: own.period,
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::default(),
        soft: None,
    };
    let interference = Interference::default();
    let place = Place {
        demand: &demand,
        own,
        unit_max: own.cost,
        ahead: &ahead,
        newcomer: None,
        blocking: Nanos(1),
        interference,
    };
    assert_eq!(place.response(crate::contract::SPAN_MAX), None);
}

/// The search for a message goes on where that for the one before has ended: a busy period of thousands of messages is decided
/// within the rounds that all of them have.
#[test]
fn a_busy_period_of_thousands_of_messages_is_decided() {
    let demand = |cost: u64| Demand {
        cost: Nanos::from_micros(cost),
        unit_cost_max: Nanos::from_micros(cost),
        period: Nanos::from_micros(100),
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::default(),
        soft: None,
    };
    let blocking = Blocking::LargestUnit { best_effort: Nanos::from_millis(25) };
    let model = StageModel { blocking, interference: Interference::default(), utilisation_limit: Ppm::ONE };
    // After the blocking, a twentieth of the time is left to catch up: half a second, in which 5,000 messages come.
    let demands = [demand(55), demand(40)];
    let mut policy = Ranked::d_order(model);
    for (key, demand) in demands.iter().enumerate() {
        let (slot, bound) = policy.offer_within(demand, LIMIT).expect("its response time is found");
        assert_eq!((slot.end, Some(bound)), (key, response(&demands[..=key], key, &model)));
        policy.hold(StageKey(key as u64), demand, bound).expect("as offered");
    }
}
