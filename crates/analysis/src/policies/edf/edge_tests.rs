//! Numbers at the edges: spans of zero and of a nanosecond, unbounded spans, shares that leave nothing.

use super::*;
use crate::policies::testing::demand;
use crate::stage::{Blocking, Interference};

fn model(blocking: Blocking) -> StageModel {
    StageModel { blocking, interference: Interference::default(), utilisation_limit: Ppm::ONE }
}

/// What stands for never is longer than any span, and four of them still have a sum. A horizon without steps
/// is as long.
#[test]
fn what_stands_for_never_can_be_summed() {
    for span in [0, 1, 3_600_000_000_000, (1 << 60) - 1, 1 << 60] {
        assert_eq!(signed(Nanos(span)), span as i64);
    }
    let never = signed(Nanos::MAX);
    assert_eq!(signed(Nanos((1 << 60) + 1)), never);
    assert!(never > 4 * signed(BOUND_MAX) && never.checked_mul(4).is_some());
    assert_eq!(Edf::new(model(Blocking::Pipeline(Nanos::ZERO))).horizon_max(), never);
}

/// The rate of steps is the sum of one each period, rounded up for each kind of channel, in 10^12 ns. Periods
/// of zero count as a nanosecond.
#[test]
fn the_rate_of_steps_is_one_each_period() {
    let periods =
        [0, 1, 2, 3, 999, 1_000_000_000_000 - 1, 1_000_000_000_000, 1_000_000_000_000 + 1, u64::MAX];
    let mut policy = Edf::new(model(Blocking::Pipeline(Nanos::ZERO)));
    let mut sum = 0;
    for (key, period) in (0..).zip(periods) {
        policy.insert(StageKey(2 * key), &demand(0, period), Nanos(1));
        // The least number of which `period` is no less than 10^12.
        let (rate, counted) = (policy.step_rate - sum, u128::from(period.max(1)));
        let is_least = rate * counted >= 1_000_000_000_000 && (rate - 1) * counted < 1_000_000_000_000;
        assert!(is_least, "{period}: {rate}");
        sum = policy.step_rate;
        policy.insert(StageKey(2 * key + 1), &demand(0, period), Nanos(1));
        assert_eq!(policy.step_rate, sum, "{period}: a kind counts once");
    }
}

/// The longest horizon is that of the largest number of steps: so many periods of the only channel.
#[test]
fn the_longest_horizon_is_that_of_the_largest_number_of_steps() {
    // 10^12 ns are whole numbers of these, so that no rate is rounded.
    for period in [1, 2, 1_000, 1_000_000, 500_000_000_000, 1_000_000_000_000] {
        let mut policy = Edf::new(model(Blocking::Pipeline(Nanos::ZERO)));
        policy.insert(StageKey(1), &demand(0, period), Nanos(1));
        assert_eq!(policy.horizon_max() as u128, STEPS_MAX * u128::from(period), "{period}");
    }
}

/// A line beyond the steps that allows just their bound is enough: no further steps are stored for it.
#[test]
fn a_line_that_allows_the_bound_of_the_steps_is_enough() {
    let mut policy = Edf::new(model(Blocking::Pipeline(Nanos::ZERO)));
    assert!(policy.extend(1_000));
    let horizon = policy.stairs.horizon;
    // It takes all of an empty stage: at each time is due what there was time for.
    assert_eq!(policy.offer(&demand(10, 10), BOUND_MAX), Ok(Offer { bound: Nanos(10) }));
    assert_eq!(policy.stairs.horizon, horizon);
}

/// Where the steps may reach no further, the line decides: with as much as the steps ask for, or little more,
/// behind the latency.
#[test]
fn where_the_steps_end_the_line_decides() {
    for latency in [0, 300, 5_000] {
        let mut policy = Edf::new(model(Blocking::Pipeline(Nanos::ZERO)));
        // A step each nanosecond, so that they end soon.
        policy.insert(StageKey(1), &demand(0, 1), Nanos(1));
        policy.insert(StageKey(2), &demand(1_000, 1_000_000), Nanos(1_100));
        let newcomer = Demand { release_latency: Nanos(latency), ..demand(999, 1_000) };
        let bound = policy.offer(&newcomer, BOUND_MAX).expect("its share is free").bound.0;
        assert_eq!(policy.stairs.horizon, policy.horizon_max());
        // With the other's message it is done after 1,999 ns. Up to the next one of that, in which a
        // nanosecond of each period is spare, it never has to wait longer. The line lies above the steps by a
        // few nanoseconds.
        let least = 1_000 + 999 + latency;
        assert!((least..least + 5).contains(&bound), "{bound} with {latency}");
    }
}

/// The excess of a channel over its mean is C·(I' + r - d)/I', rounded up, and nothing where d is longer.
#[test]
fn the_excess_of_a_channel_is_that_of_the_formula() {
    for (cost, period, late, bound) in [
        (1, 0, 5, 3),
        (1, 0, 5, 5),
        (1, 1, 5, 3),
        (1, 1, 2, 3),
        (7, 2, 0, 1),
        (7, 10, 3, 13),
        (7, 10, 3, 12),
        (7, 10, 3, 14),
        (1, 1_000, 999, 1_000),
    ] {
        let demand = Demand { release_latency: Nanos(late), ..demand(cost, period) };
        let excess = i128::from((period + late).saturating_sub(bound) * cost);
        let (counted, found) = (i128::from(period.max(1)), offset_of(&demand, Nanos(bound)));
        assert!(
            found * counted >= excess && (found - 1) * counted < excess,
            "{cost} {period} {late} {bound}"
        );
    }
}

/// A cost of zero counts as a nanosecond and a period of zero as well: together they take all of a stage,
/// which no channel beside them bears.
#[test]
fn spans_of_zero_count_as_a_nanosecond() {
    let offer = |is_alone: bool, cost, period| {
        let mut policy = Edf::new(model(Blocking::Pipeline(Nanos(5))));
        if !is_alone {
            policy.hold(StageKey(1), &demand(1, 10), Nanos(9)).expect("it is alone");
        }
        policy.offer(&demand(cost, period), BOUND_MAX).map(|offer| offer.bound.0).ok()
    };
    // Behind 5 of blocking: by d + k·I' are due k + 1, and by 9, 19, ... one more of the other.
    for period in [0, 1, 2, 1_000] {
        assert_eq!([offer(true, 0, period), offer(true, 1, period)], [Some(6); 2], "each {period}");
        let beside = offer(false, 0, period);
        // What lacks grows by a nanosecond in each period of the other, so that no bound of a few of them is
        // enough.
        let expected = if period > 1 { beside == Some(6) } else { beside.is_none_or(|bound| bound > 1_000) };
        assert!(expected, "each {period}: {beside:?}");
    }
    assert_eq!([offer(true, 2, 4), offer(true, 3, 4)], [Some(7), Some(8)]);
}

/// A message of no cost has no time where interference takes all of it.
#[test]
fn where_interference_takes_all_nothing_is_offered() {
    let interference = Interference { sigma: Nanos::ZERO, rho: Ppm(1_000_000) };
    let mut policy = Edf::new(StageModel { interference, ..model(Blocking::Pipeline(Nanos::ZERO)) });
    assert!(policy.offer(&demand(0, 1_000), BOUND_MAX).is_err());
    assert!(policy.hold(StageKey(1), &demand(0, 1_000), BOUND_MAX).is_err());
}

/// QPA takes periods of zero for a nanosecond, too: channels of no cost are never late, whatever their
/// period.
#[test]
fn by_qpa_channels_of_no_cost_may_have_any_period() {
    let model = model(Blocking::Pipeline(Nanos(20)));
    for period in [0, 1, 2, 1_000] {
        for bound in [1, 10, 100] {
            let channels = [(demand(0, period), Nanos(bound)), (demand(30, 100), Nanos(60))];
            assert_eq!(is_feasible(&channels, &model, Nanos(10_000)), Some(true), "{period} {bound}");
            let tight = [channels[0], (demand(30, 100), Nanos(49))];
            assert_eq!(is_feasible(&tight, &model, Nanos(10_000)), Some(false), "{period} {bound}");
        }
    }
}

/// Units of others that block for long are counted where the steps may end: else a search, whose horizon
/// moves by a quarter at a time, would give up before it has got there.
#[test]
fn a_long_unit_of_others_does_not_exhaust_a_search() {
    let second = 1_000_000_000;
    let mut policy = Edf::new(model(Blocking::LargestUnit { best_effort: Nanos::ZERO }));
    policy
        .hold(StageKey(1), &demand(2 * second, 1_000 * second), Nanos(1_000 * second))
        .expect("it is alone");
    policy.drop_caches();
    // By d is due its nanosecond behind the unit of two seconds, by each second nanosecond one more.
    let least = Nanos(2 * second + 1);
    assert_eq!(policy.offer(&demand(1, 2), BOUND_MAX), Ok(Offer { bound: least }));
    // From 2 ns a quarter at a time: more rounds than a search has.
    let quarters =
        core::iter::successors(Some(2), |at| Some(at + at / 4 + 1)).take_while(|at| *at < 2 * second);
    assert!(quarters.count() > ROUNDS_MAX as usize);
}

/// Interference is rounded to whole nanoseconds: a bound that is enough just before the next step of the others is offered, not that
/// step. By first principles 9 ns are enough here, and 8 are not.
#[test]
fn an_offer_may_be_ready_just_before_the_next_step() {
    let interference = Interference { sigma: Nanos::ZERO, rho: Ppm(100_000) };
    let blocking = Blocking::LargestUnit { best_effort: Nanos::ZERO };
    let mut policy = Edf::new(StageModel { interference, ..model(blocking) });
    policy.hold(StageKey(1), &demand(1, 4), Nanos(6)).expect("it is alone");
    policy.drop_caches();
    let newcomer = Demand { unit_cost_max: Nanos(1), ..demand(7, 16) };
    assert_eq!(policy.offer(&newcomer, BOUND_MAX), Ok(Offer { bound: Nanos(9) }));
}
