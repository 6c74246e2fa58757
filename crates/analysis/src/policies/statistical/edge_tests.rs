//! Soft channels at their edges: units as long as best effort's, bounds as short as the latency, spans of
//! zero.

use super::windows::negligible;
use super::*;
use crate::policies::testing::{self, random_demand, random_model};
use crate::stage::{Blocking, Interference};
use crate::statistical::Ppb;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn model(best_effort: u64) -> StageModel {
    StageModel {
        blocking: Blocking::LargestUnit { best_effort: Nanos(best_effort) },
        interference: Interference::default(),
        utilisation_limit: Ppm::ONE,
    }
}

fn soft(mean_period: u64, miss_ratio: u32) -> Soft {
    let miss_ratio = Ppb::new(miss_ratio).expect("a ratio");
    Soft { mean_period: Nanos(mean_period), mean_over: Nanos::ZERO, jitter: Nanos::ZERO, miss_ratio }
}

fn demand(cost: u64, release_latency: u64, soft: Soft) -> Demand {
    let demand = testing::demand(cost, soft.mean_period.0);
    Demand { release_latency: Nanos(release_latency), soft: Some(soft), ..demand }
}

/// What is offered is at most a 256th of the span from the latency to the limit more than what is feasible.
#[test]
fn a_soft_offer_is_the_least_bound_to_a_256th() {
    let (mut offered, mut less) = (0, 0);
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let interference = Interference::default();
        let mut policy = Statistical::new(StageModel { interference, ..random_model(&mut rng) });
        for key in 0..10 {
            let hard = random_demand(&mut rng);
            let unit_cost_max = hard.unit_cost_max.min(policy.model.blocking.by(Nanos::ZERO));
            let terms = Soft { mean_over: Nanos(200_000_000), ..soft(hard.period.0 * 6, 10_000_000) };
            let demand = Demand { soft: Some(terms), unit_cost_max, ..hard };
            let limit = Nanos(rng.random_range(1_000_000..300_000_000));
            let Ok(Offer { bound }) = policy.offer(&demand, limit) else { continue };
            assert!(bound <= limit && bound > demand.release_latency, "seed {seed}, {key}: {bound}");
            let precision = (limit - demand.release_latency).div_ceil(Nanos(256));
            let below = bound - Nanos(precision);
            assert!(policy.hold(StageKey(key), &demand, below).is_err(), "seed {seed}, {key}: {bound}");
            policy.hold(StageKey(key), &demand, bound).expect("it was offered");
            assert!(policy.is_soft(StageKey(key)));
            offered += 1;
            less += u32::from(bound < limit);
        }
    }
    assert!(offered > 200 && less > 150, "{offered} {less}");
}

/// The means of soft channels and the peaks of hard ones together may take what may be reserved, to a
/// millionth. To a soft channel no longer period is offered, since its mean is what counts.
#[test]
fn soft_channels_take_their_mean_of_what_may_be_reserved() {
    let interference = Interference { sigma: Nanos::ZERO, rho: Ppm(30_000) };
    let stage = StageModel { interference, utilisation_limit: Ppm(700_000), ..model(1_000) };
    let long = Nanos::from_secs(1);
    let channel = |cost: u64, is_soft: bool| {
        let plain = demand(cost, 0, soft(1_000_000, 1_000));
        let period = if is_soft { Nanos(500_000) } else { plain.period };
        Demand { unit_cost_max: Nanos(1), period, soft: plain.soft.filter(|_| is_soft), ..plain }
    };
    for (first, second) in [(false, true), (true, false), (true, true)] {
        let mut policy = Statistical::new(stage);
        policy.hold(StageKey(1), &channel(400_000, first), long).expect("there is room");
        assert_eq!(policy.utilisation(), Ppm(430_000));
        // 0.27 of the stage are left for 270,001 ns.
        let period_possible = if second { None } else { Some(Nanos(1_000_004)) };
        let reason = RefusalReason::Utilisation { wanted_ppm: 700_001, limit_ppm: 700_000 };
        let more = Refusal { reason, bound_possible: None, period_possible };
        let newcomer = channel(270_001, second);
        assert_eq!(policy.offer(&newcomer, long), Err(more), "{first} {second}");
        assert_eq!(policy.hold(StageKey(2), &newcomer, long), Err(more), "{first} {second}");
        assert_eq!(policy.hold(StageKey(2), &channel(270_000, second), long), Ok(()), "{first} {second}");
        assert_eq!((policy.utilisation(), policy.len()), (Ppm(700_000), 2));
        for is_soft in [false, true] {
            let nothing = policy.offer(&channel(1, is_soft), long).expect_err("nothing is left");
            assert!(
                matches!(nothing.reason, RefusalReason::Utilisation { .. }),
                "{first} {second} {is_soft}"
            );
            assert_eq!(nothing.period_possible, None, "{first} {second} {is_soft}");
        }
        assert!(policy.release(StageKey(1)));
        assert_eq!(policy.hold(StageKey(3), &channel(400_000, !first), long), Ok(()), "its share is free");
    }
}

/// A channel is soft if its unit blocks no longer than best effort, and hard if it blocks a nanosecond
/// longer.
#[test]
fn a_unit_as_long_as_best_effort_is_soft() {
    for (unit, is_soft) in [(99, true), (100, true), (101, false)] {
        let mut policy = Statistical::new(model(100));
        let demand = demand(unit, 0, soft(100_000, 1_000));
        policy.hold(StageKey(1), &demand, Nanos(50_000)).expect("it is alone");
        assert_eq!(policy.is_soft(StageKey(1)), is_soft, "{unit}");
        assert_eq!((policy.soft.len(), policy.hard.len()), (usize::from(is_soft), usize::from(!is_soft)));
    }
}

/// A message is not done when it is released, however short it is: no such bound is offered or held, and what
/// a refusal says to be possible is more.
#[test]
fn no_soft_bound_is_as_short_as_the_release_latency() {
    for cost in [0, 1, 2] {
        for latency in [0, 300, BOUND_MAX.0 - 1] {
            let mut policy = Statistical::new(model(cost));
            let demand = demand(cost, latency, soft(1_000_000, 1_000));
            for bound in [0, latency / 2, latency] {
                for refusal in [
                    policy.offer(&demand, Nanos(bound)).map(|_| ()).expect_err("no time is left"),
                    policy.hold(StageKey(1), &demand, Nanos(bound)).expect_err("no time is left"),
                ] {
                    let (possible, limit) = (refusal.bound_possible, Nanos(bound));
                    let reason = match possible {
                        Some(possible) => RefusalReason::Bound { possible, limit },
                        None => RefusalReason::Others,
                    };
                    assert_eq!(refusal.reason, reason, "{cost} {latency} {bound}");
                    assert!(possible.is_none_or(|possible| possible.0 > latency), "{cost} {latency} {bound}");
                }
                assert_eq!(policy.len(), 0);
            }
        }
        let mut policy = Statistical::new(model(0));
        let none = demand(0, 300, soft(1_000_000, 1_000));
        assert_eq!(policy.hold(StageKey(1), &none, Nanos(301)), Ok(()), "it takes no time");
    }
}

/// Channels that lack time in one window only miss with the probability of that window. A ratio that equals
/// it is kept.
#[test]
fn a_ratio_that_equals_the_probability_is_kept() {
    // In 1 ns there is no time beside the blocking: it misses for sure. In 2 ns it has its own.
    let model = StageModel { blocking: Blocking::Pipeline(Nanos(1)), ..model(0) };
    let keeps = |bound: u64, miss_ratio: u32| {
        let soft = soft(1_000_000_000, miss_ratio);
        let kind = SoftKind::of(&demand(1, 0, soft), soft, Nanos(bound));
        let mut windows = Windows::new(&model, &Multiset::default(), &Multiset::default());
        windows.add_soft(kind);
        windows.keep_all()
    };
    for bound in [0, 1] {
        assert!(keeps(bound, 1_000_000_000) && !keeps(bound, 999_999_999), "{bound}");
    }
    assert!(keeps(2, 1));
}

/// What may be left out of each window is so little that in all windows together it is a hundredth of the
/// strictest ratio.
#[test]
fn what_is_left_out_of_all_windows_is_a_hundredth_of_the_ratio() {
    for (strictest, windows) in [(1.0, 1), (1.0, 2), (1e-9, 700), (0.25, 64), (3e-5, 123)] {
        let all = negligible(strictest, windows) * windows as f64;
        assert!((all / strictest * 100.0 - 1.0).abs() < 1e-12, "{strictest} {windows}: {all}");
    }
}

/// The longest window counts a mean period of zero as a nanosecond: channels of no cost take nothing, others
/// a share of their cost.
#[test]
fn the_longest_window_takes_a_mean_period_of_zero_for_a_nanosecond() {
    let longest = |cost: u64, mean_period: u64| {
        let soft = soft(mean_period, 1_000);
        let kind = SoftKind::of(&demand(cost, 0, soft), soft, Nanos(100));
        let model = model(40);
        let mut windows = Windows::new(&model, &Multiset::default(), &Multiset::default());
        windows.add_soft(kind);
        windows.longest()
    };
    for mean_period in [0, 1, 2] {
        // The 40 of best effort.
        assert_eq!(longest(0, mean_period), Some(Nanos(41)), "{mean_period}");
    }
    // The whole time; then a half of it, of which a message comes at once.
    assert_eq!([longest(1, 0), longest(1, 1)], [None; 2]);
    assert_eq!(longest(1, 2), Some(Nanos((40 + 1) * 2 + 1)));
}

/// Hard channels send a message each period down to a nanosecond, as which a period of zero counts.
#[test]
fn a_hard_channel_sends_a_message_each_period() {
    for (period, counted) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
        let demand = Demand { period: Nanos(period), ..demand(7, 5, soft(1, 1)) };
        let kind = HardKind::of(&Demand { early: Nanos(4), ..demand });
        for window in 0..30 {
            // Its latency and its being early are 9 ns.
            assert_eq!(
                kind.within(Nanos(window)),
                Nanos(7 * ((window + 9) / counted + 1)),
                "{period} {window}"
            );
        }
    }
}
