//! The incremental search against QPA, on random stages, and its edge cases.

use alloc::vec::Vec;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::search::Interval;
use super::*;
use crate::policies::testing::{self, random_demand, random_model};
use crate::stage::{Blocking, Interference};

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
                    let less = bound - Nanos(1);
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

/// Holding a channel and offering it a bound are one decision: what is held is no shorter than the offer, whatever its unit blocks then,
/// and a refusal names the bound of the offer, or none where there is none.
#[test]
fn a_refusal_names_the_bound_that_would_be_offered() {
    let (mut granted, mut too_short, mut never) = (0, 0, 0);
    for seed in 0..4_000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let blocking = Blocking::LargestUnit { best_effort: Nanos(rng.random_range(0..3)) };
        let interference = Interference::default();
        let mut policy = Edf::new(StageModel { blocking, interference, utilisation_limit: Ppm::ONE });
        for key in 0..4 {
            let cost = rng.random_range(1..20);
            let unit_cost_max = Nanos(rng.random_range(1..=cost));
            let demand = Demand { unit_cost_max, ..testing::demand(cost, rng.random_range(20..100)) };
            let bound = Nanos(rng.random_range(1..80));
            let offered = policy.offer(&demand, BOUND_MAX).map(|offer| offer.bound);
            match (offered, policy.hold(StageKey(key), &demand, bound)) {
                (Ok(offered), Ok(())) if offered <= bound => granted += 1,
                (Ok(offered), Err(refusal)) if offered > bound => {
                    assert_eq!(refusal.bound_possible, Some(offered), "seed {seed}");
                    too_short += 1;
                }
                (Err(_), Err(refusal)) => {
                    assert_eq!(refusal.bound_possible, None, "seed {seed}");
                    never += 1;
                }
                (offered, held) => panic!("seed {seed}: {offered:?}, {bound:?}: {held:?}"),
            }
        }
    }
    assert!(granted > 3_000 && too_short > 2_000 && never > 1_000, "{granted} {too_short} {never}");
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
    let demand = testing::demand;
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
    Demand { release_latency: Nanos(release_latency), ..testing::demand(cost, period) }
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

/// The least bound is the time in which interference leaves as much as the message takes, however little it
/// leaves: a nanosecond of each millisecond, or ten.
#[test]
fn what_interference_leaves_is_waited_for() {
    for (left, cost) in [(1, 1), (1, 3), (2, 1), (3, 2), (10, 7)] {
        let interference = Interference { sigma: Nanos::ZERO, rho: Ppm(1_000_000 - left) };
        let mut policy = Edf::new(StageModel { interference, ..model(0) });
        let newcomer = demand(cost, 1_000_000_000_000, 300);
        let least = Nanos(300 + (cost * 1_000_000).div_ceil(left.into()));
        assert_eq!(policy.offer(&newcomer, LIMIT), Ok(Offer { bound: least }), "{cost} of {left}");
        let by_qpa = [least - Nanos(1), least].map(|bound| by_qpa(&policy, &newcomer, bound));
        assert_eq!(by_qpa, [Some(false), Some(true)], "{cost} of {left}");
        assert!(policy.hold(StageKey(1), &newcomer, least - Nanos(1)).is_err(), "{cost} of {left}");
        assert_eq!(policy.hold(StageKey(1), &newcomer, least), Ok(()), "{cost} of {left}");
    }
}

/// Up to the limit steps are added and beyond it none, however many different channels a stage holds. The
/// channels that are admitted then still fit.
#[test]
fn the_steps_of_very_many_different_channels_are_bounded() {
    let limit = 2 * STEPS_MAX as u64;
    let hour = 3_600_000_000_000;
    // With the one at 0 just the limit.
    let channels = limit - 1;
    let first = |number: u64| 1_000_000 + 2 * number;
    let mut policy = Edf::new(model(0));
    for number in 0..channels {
        policy.insert(StageKey(number), &demand(1, hour, 0), Nanos(first(number)));
    }
    // A horizon is longer than is wanted by a quarter and a nanosecond.
    let reach = |policy: &mut Edf, horizon: u64| policy.extend((horizon as i64 - 1) * 4 / 5);
    assert!(reach(&mut policy, first(limit / 2 + 9)));
    let steps = policy.stairs.len() as u64;
    assert!((limit / 2 + 1..limit / 2 + 20).contains(&steps), "{steps}");
    assert!(reach(&mut policy, first(channels)), "that was not the limit");
    assert_eq!(policy.stairs.len() as u64, limit);
    assert!(policy.stairs.horizon < policy.horizon_max(), "it is no matter of the horizon");
    assert!(!policy.extend(hour as i64) && policy.stairs.len() as u64 == limit, "no more");
    let newcomer = demand(1_000, hour, 0);
    let offer = policy.offer(&newcomer, BOUND_MAX).expect("nearly all is free");
    // All others' first messages and its own are done by then.
    assert!(offer.bound.0 >= 1_000 && offer.bound.0 < hour, "{}", offer.bound);
    // One channel less is below the limit.
    assert!(policy.release(StageKey(0)) && policy.extend(0));
}

/// The horizon reaches as far as the limit of steps, and no further, whatever the periods of the channels:
/// the shortest there is, equal ones, which share steps, and different ones.
#[test]
fn the_longest_horizon_has_no_more_steps_than_the_limit() {
    for periods in [&[1][..], &[2], &[3, 3, 3], &[1, 2, 3, 7], &[1_000, 999, 1_000, 64], &[1 << 30]] {
        let mut policy = Edf::new(model(0));
        let mut distinct = periods.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        for (key, period) in (0..).zip(periods) {
            policy.insert(StageKey(key), &demand(0, *period, 0), Nanos(*period));
        }
        let steps = |until: u64| -> u64 { distinct.iter().map(|period| until / period).sum() };
        let longest = policy.horizon_max() as u64;
        assert!(u128::from(steps(longest)) <= STEPS_MAX, "{periods:?}: {longest}");
        let slightly_longer = longest + longest / 1_000 + distinct.iter().max().unwrap();
        assert!(u128::from(steps(slightly_longer)) >= STEPS_MAX, "{periods:?}: {longest}");
    }
}

/// A horizon moves beyond what is wanted by a quarter, so that it seldom moves, and by no more, because steps
/// cost memory and time; and never beyond the longest, which few rounds reach from anywhere.
#[test]
fn a_horizon_moves_by_a_quarter_more_than_is_wanted() {
    let mut policy = Edf::new(model(0));
    policy.insert(StageKey(0), &demand(1, 1_000, 0), Nanos(1_000));
    for wanted in [0, 1_000, 5_000, 10, 1_000_000] {
        let asked = policy.stairs.horizon.max(wanted);
        assert!(policy.extend(wanted));
        // And a nanosecond, so that it moves from 0, too.
        assert_eq!(policy.stairs.horizon, asked + asked / 4 + 1, "{wanted}");
    }
    assert!(policy.extend(i64::MAX));
    assert_eq!(policy.stairs.horizon, policy.horizon_max());
    assert!(!policy.extend(i64::MAX), "it is the longest");
    for wanted in [0, 1, 4, 1_000, 1_003, 4_000_000_000] {
        let mut policy = Edf::new(model(0));
        policy.insert(StageKey(0), &demand(1, 1_000_000, 0), Nanos(900_000));
        let cap = policy.horizon_max();
        let (mut before, mut least, mut rounds) = (0, wanted, 0);
        while policy.extend(least) {
            let now = policy.stairs.horizon;
            assert!(now > before && now <= cap, "{now} after {before}");
            assert!(now >= (least + least / 4).min(cap), "{now} after {before} for {least}");
            // The next is wanted no further away.
            (before, least, rounds) = (now, now, rounds + 1);
        }
        assert_eq!(policy.stairs.horizon, cap, "{wanted}");
        // It is some 2^37 ns.
        assert!(rounds < 120, "{rounds} for {wanted}");
    }
}

/// A channel with zero cost is never late, however long others block; one with a cost is.
#[test]
fn qpa_finds_no_lateness_for_a_demand_of_zero() {
    let feasible = |cost| is_feasible(&[(demand(cost, 1_000, 0), Nanos(100))], &model(150), Nanos(100_000));
    assert_eq!([feasible(0), feasible(1)], [Some(true), Some(false)]);
}

/// A bound that the release latency uses up is never kept: not by a message of no cost, and not where the
/// busy period is too long for any other answer.
#[test]
fn by_qpa_no_bound_is_kept_within_the_release_latency() {
    for (cost, blocking) in [(0, 0), (1, 0), (0, 7), (1, 7)] {
        let feasible =
            |bound, limit| is_feasible(&[(demand(cost, 1_000, 300), bound)], &model(blocking), Nanos(limit));
        for bound in [0, 299, 300] {
            for limit in [0, 100_000] {
                assert_eq!(feasible(Nanos(bound), limit), Some(false), "{bound} for {cost} ns");
                // Nor beside one that has time.
                let both = [(demand(5, 1_000, 0), Nanos(900)), (demand(cost, 1_000, 300), Nanos(bound))];
                let kept = is_feasible(&both, &model(blocking), Nanos(limit));
                assert_eq!(kept, Some(false), "{bound} for {cost} ns beside another");
            }
        }
        let least = Nanos(301 + if cost > 0 { blocking } else { 0 });
        assert_eq!(feasible(least, 100_000), Some(true), "{least} for {cost} ns");
    }
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

/// What a stage keeps of the channels that it holds is what it would keep if they alone had ever been held, and nothing when
/// all are gone.
#[test]
fn sums_are_those_of_the_channels_that_are_held() {
    let sums = |edf: &Edf| {
        let blocking: Vec<i64> = (0..500).map(|step| edf.blocking.at(step * 1_000_000)).collect();
        (edf.offset, edf.step_rate, edf.groups.len(), edf.used, blocking)
    };
    let (mut with_offset, mut with_equal) = (0, 0);
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut policy = Edf::new(random_model(&mut rng));
        for round in 0..120 {
            let key = StageKey(rng.random_range(0..12));
            match rng.random_range(0..4) {
                0 => {
                    policy.release(key);
                }
                1 if policy.bound(key).is_some() => {
                    let wider = policy.bound(key).unwrap_or_default() + Nanos(rng.random_range(0..9_000_000));
                    policy.relax(key, wider).expect("more time is always borne");
                }
                _ => {
                    // Some are equal in all that counts.
                    let kind = rng.random_range(0..6);
                    let demand = random_demand(&mut SmallRng::seed_from_u64(kind));
                    if let Ok(Offer { bound }) = policy.offer(&demand, LIMIT) {
                        let wider = Nanos(bound.0.next_multiple_of(50_000_000));
                        policy.hold(key, &demand, wider).expect("more than was offered");
                    }
                }
            }
            let mut fresh = Edf::new(policy.model);
            for (key, held) in policy.channels.iter() {
                fresh.insert(*key, &held.demand(), held.bound);
            }
            assert_eq!(sums(&policy), sums(&fresh), "seed {seed}, round {round}");
            with_offset += u32::from(policy.offset != 0);
            with_equal += u32::from(policy.groups.len() < policy.len());
        }
        (0..12).for_each(|key| {
            policy.release(StageKey(key));
        });
        assert_eq!(sums(&policy), sums(&Edf::new(policy.model)), "seed {seed}");
    }
    assert!(with_offset > 500 && with_equal > 500, "{with_offset} {with_equal}");
}

/// Caches are memory: without them a stage keeps no steps, and decides as before.
#[test]
fn dropped_caches_hold_nothing() {
    let mut rng = SmallRng::seed_from_u64(5);
    let mut policy = Edf::new(random_model(&mut rng));
    let empty = policy.stairs.len();
    for key in 0..10 {
        let demand = random_demand(&mut rng);
        if let Ok(Offer { bound }) = policy.offer(&demand, LIMIT) {
            policy.hold(StageKey(key), &demand, bound).expect("it was offered");
        }
    }
    let demand = random_demand(&mut rng);
    let before = policy.offer(&demand, LIMIT).map(|offer| offer.bound).ok();
    assert!(policy.stairs.len() > empty && policy.stairs.horizon > 0);
    policy.drop_caches();
    assert_eq!((policy.stairs.len(), policy.stairs.horizon), (empty, 0));
    assert_eq!(policy.offer(&demand, LIMIT).map(|offer| offer.bound).ok(), before);
}

/// A staircase holds the steps of the series that were added and not removed, with their sums, however many there are at one
/// time: compared with a map from times to demand.
#[test]
fn a_staircase_is_the_sum_of_its_series() {
    const HORIZON: i64 = 30_000;
    let (mut steps_max, mut blocks_max) = (0, 0);
    for seed in 0..12 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let interference =
            Interference { sigma: Nanos(rng.random_range(0..50)), rho: Ppm(100_000 * (seed as u32 % 3)) };
        let mut stairs = Staircase::new(interference);
        stairs.horizon = HORIZON;
        let mut held: Vec<Series> = Vec::new();
        for round in 0..60 {
            if held.len() > 12 || (!held.is_empty() && rng.random_bool(0.3)) {
                stairs.remove(&held.swap_remove(rng.random_range(0..held.len())));
            } else {
                let period = rng.random_range(40..3_000);
                let latest = if rng.random_bool(0.3) { 2 } else { 4_000 };
                let first = rng.random_range(1..=latest);
                let series =
                    Series { first, period, cost: rng.random_range(1..9), channels: rng.random_range(1..5) };
                stairs.add(&series);
                held.push(series);
            }
            let mut demand = alloc::collections::BTreeMap::from([(0, 0)]);
            for series in &held {
                let mut at = series.first;
                while at <= HORIZON {
                    *demand.entry(at).or_insert(0) += series.cost * i64::from(series.channels);
                    at += series.period;
                }
            }
            let free = |at: i64| {
                let taken = (i128::from(at) * i128::from(interference.rho.0) + 999_999) / 1_000_000;
                at - interference.sigma.0 as i64 - taken as i64
            };
            let expected = demand.iter().map(|(at, added)| (*at, free(*at), *added));
            let steps = stairs.blocks.iter().flat_map(|block| &block.steps);
            assert!(
                steps.map(|step| (step.at, step.free, step.added)).eq(expected),
                "seed {seed}, round {round}"
            );
            assert_eq!(stairs.len(), demand.len(), "seed {seed}, round {round}");
            for block in &stairs.blocks {
                let sums = block.steps.iter().scan(0, |sum, step| {
                    *sum += step.added;
                    Some((*sum, step.free - *sum))
                });
                let (added, margins): (Vec<_>, Vec<_>) = sums.unzip();
                assert_eq!(Some(&block.added), added.last(), "seed {seed}, round {round}");
                assert_eq!(Some(&block.margin), margins.iter().min(), "seed {seed}, round {round}");
            }
            (steps_max, blocks_max) = (steps_max.max(stairs.len()), blocks_max.max(stairs.blocks.len()));
        }
        // A horizon that moves out brings the same steps, also of several equal channels, and they are
        // removed alike.
        let mut moved = Staircase::new(interference);
        [HORIZON / 3, HORIZON].into_iter().for_each(|horizon| moved.extend(horizon, held.iter().copied()));
        let steps = [&stairs, &moved].map(|stairs| {
            let steps = stairs.blocks.iter().flat_map(|block| &block.steps);
            steps.map(|step| (step.at, step.free, step.added)).collect::<Vec<_>>()
        });
        assert_eq!(steps[0], steps[1], "seed {seed}");
        for series in held.drain(..) {
            stairs.remove(&series);
            moved.remove(&series);
            assert_eq!(stairs.len(), moved.len(), "seed {seed}");
        }
        assert_eq!([stairs.len(), moved.len()], [1; 2], "seed {seed}");
    }
    assert!(steps_max > 600 && blocks_max > 2, "{steps_max} {blocks_max}");
}

/// The demand-bound test written out, time by time up to `until`: where something is due, it fits.
fn every_time_fits(channels: &[(Demand, Nanos)], model: &StageModel, until: u64) -> bool {
    let late = channels.iter().any(|(demand, bound)| *bound <= demand.release_latency);
    !late
        && (0..=until).map(Nanos).all(|at| {
            let (mut due, mut unit) = (0, 0);
            for (demand, bound) in channels {
                let since = (at.0 + demand.release_latency.0).checked_sub(bound.0);
                due += since.map_or(0, |since| demand.cost.0 * (since / demand.period.0 + 1));
                unit = unit.max(since.map_or(demand.unit_cost_max.0, |_| 0));
            }
            let blocking = match model.blocking {
                crate::Blocking::LargestUnit { best_effort } => best_effort.0.max(unit),
                crate::Blocking::Pipeline(span) => span.0,
            };
            let Interference { sigma, rho } = model.interference;
            let interference = sigma.0 + (at.0 * u64::from(rho.0)).div_ceil(1_000_000);
            due == 0 || due + blocking + interference <= at.0
        })
}

/// A stage and demands of a few nanoseconds each.
fn tiny_model(rng: &mut SmallRng) -> StageModel {
    let blocking = match rng.random_bool(0.5) {
        true => crate::Blocking::LargestUnit { best_effort: Nanos(rng.random_range(0..4)) },
        false => crate::Blocking::Pipeline(Nanos(rng.random_range(0..5))),
    };
    let rho = Ppm(if rng.random_bool(0.3) { 100_000 } else { 0 });
    let interference = Interference { sigma: Nanos(rng.random_range(0..3)), rho };
    StageModel { blocking, interference, utilisation_limit: Ppm(900_000) }
}

fn tiny_demand(rng: &mut SmallRng) -> Demand {
    let cost = rng.random_range(1..6);
    let period = rng.random_range(6..24);
    let unit_cost_max = Nanos(rng.random_range(1..=cost));
    Demand { unit_cost_max, ..demand(cost, period, rng.random_range(0..7)) }
}

/// The intervals of a search are the whole time up to the horizon, without gaps and overlaps. In none of them
/// does change what is due or what blocks: a unit of others, or one of the newcomer, which has an end of its
/// own.
#[test]
fn a_search_looks_at_each_time_once_with_what_is_due_and_what_blocks_then() {
    let (mut own_end, mut own_end_at_a_step) = (0, 0);
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut policy = Edf::new(tiny_model(&mut rng));
        for key in 0..4 {
            policy.insert(StageKey(key), &tiny_demand(&mut rng), Nanos(rng.random_range(8..60)));
        }
        policy.extend(rng.random_range(1..2_000));
        let Edf { stairs, blocking, .. } = &policy;
        let newcomer = Newcomer {
            cost: 1,
            period: 1,
            blocking: blocking.by(Nanos(rng.random_range(0..7))),
            blocks_until: rng.random_range(-3..60),
        };
        let search =
            Search { stairs, blocking, tail: Tail { offset: 0, free_share: 0 }, rho_ppm: 0, newcomer };
        let ends = stairs.blocks.iter().skip(1).map(|block| block.first()).chain([stairs.horizon]);
        let (mut intervals, mut before) = (Vec::new(), 0);
        for (index, end) in ends.enumerate() {
            let mut of_block = Vec::new();
            let each = |interval: &Interval| {
                of_block.push(*interval);
                Ok::<(), NoBound>(())
            };
            search.intervals(index, end, before, each).expect("none is refused");
            intervals.extend(of_block.iter().rev().copied());
            before += stairs.blocks[index].added;
        }
        let bounds = intervals.iter().map(|interval| (interval.start, interval.end));
        let starts = intervals.iter().map(|interval| interval.start).chain([stairs.horizon]);
        assert!(bounds.eq(starts.clone().zip(starts.skip(1))), "seed {seed}: gaps or overlaps");
        let steps: Vec<_> = stairs.blocks.iter().flat_map(|block| &block.steps).collect();
        for interval in &intervals {
            let Interval { start, end, free, demand, .. } = *interval;
            // What is due at the horizon itself must fit, too.
            assert!(start < end || start == stairs.horizon, "seed {seed}: {interval:?}");
            let due =
                |at: i64| steps.iter().take_while(|step| step.at <= at).map(|step| step.added).sum::<i64>();
            let own = |at: i64| if at < newcomer.blocks_until { newcomer.blocking } else { 0 };
            for at in [start, start.max(end - 1)] {
                let blocks = blocking.at(at).max(own(at));
                assert_eq!(
                    (demand, interval.blocking),
                    (due(at), blocks),
                    "seed {seed}: {interval:?} at {at}"
                );
            }
            assert_eq!(free, stairs.free(start), "seed {seed}: {interval:?}");
        }
        let at_a_step = steps.iter().any(|step| step.at == newcomer.blocks_until);
        own_end += u32::from(intervals.iter().any(|interval| interval.start == newcomer.blocks_until));
        own_end_at_a_step += u32::from(at_a_step);
    }
    assert!(own_end > 100 && own_end_at_a_step > 25, "{own_end} {own_end_at_a_step}");
}

/// In stages of a few nanoseconds each tick counts: what is offered is the least bound that fits at every time, QPA says the
/// same of each bound, and the parts of an explanation add up to it.
#[test]
fn in_stages_of_a_few_nanoseconds_the_offer_is_the_least_bound_that_fits() {
    const LIMIT: Nanos = Nanos(90);
    let (mut offered, mut refused, mut doubtful) = (0, 0, 0);
    for seed in 0..1_500 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut policy = Edf::new(tiny_model(&mut rng));
        for key in 0..5 {
            let demand = tiny_demand(&mut rng);
            let offer = match policy.offer(&demand, LIMIT) {
                Err(Refusal { reason: RefusalReason::Utilisation { .. }, .. }) => continue,
                offer => offer.map(|offer| offer.bound).ok(),
            };
            let mut channels = held(&policy);
            channels.push((demand, Nanos::ZERO));
            let mut fits = |bound| {
                channels.last_mut().expect("just added").1 = Nanos(bound);
                let fits = every_time_fits(&channels, &policy.model, 1_500);
                let by_qpa = is_feasible(&channels, &policy.model, Nanos(1_500));
                assert!(by_qpa.is_none_or(|by_qpa| by_qpa == fits), "seed {seed}, {channels:?}");
                doubtful += u32::from(by_qpa.is_none());
                fits
            };
            let least = (0..=LIMIT.0).find(|&bound| fits(bound)).map(Nanos);
            // A share of the time is rounded to whole nanoseconds: the offer may be one more.
            let rounded = u64::from(policy.model.interference.rho > Ppm(0));
            let [found, wanted] = [offer, least].map(|bound| bound.map_or(LIMIT.0 + 1, |bound| bound.0));
            assert!(
                (wanted..=wanted + rounded).contains(&found),
                "seed {seed}: {offer:?}, {least:?}, {demand:?}"
            );
            let Some(bound) = offer else {
                refused += 1;
                continue;
            };
            let explained = policy.explain(&demand, LIMIT).expect("it is offered");
            let Explanation { release_latency, blocking, interference, own, others } = explained;
            assert_eq!(release_latency + blocking + interference + own + others, bound, "seed {seed}");
            assert_eq!((release_latency, own), (demand.release_latency, demand.cost));
            offered += 1;
            let wider = bound + Nanos(rng.random_range(0..20));
            policy.hold(StageKey(key), &demand, wider).expect("more than was offered");
        }
    }
    assert!(offered > 3_000 && refused > 20 && doubtful == 0, "{offered} {refused} {doubtful}");
}
