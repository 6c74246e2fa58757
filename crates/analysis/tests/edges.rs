//! Limits of numbers: rates of zero, unbounded times, shares without channels.

use punctual_analysis::path::{PathStage, end_to_end, leftover, leftover_shares};
use punctual_analysis::rta::fixed_priority;
use punctual_analysis::sharing::Sharing;
use punctual_analysis::{
    Activation, Admission, BitRate, Blocking, Class, Contract, Demand, FlowName, Interference, Nanos, Ppb,
    Ppm, Rate, Soft, StageKey, StageModel, Statistical, Urgency,
};

#[test]
fn rates_and_times_end_where_they_must() {
    assert_eq!(
        (Rate::per_second(0), Rate::per_second(1_000_000_001), Rate::every(Nanos::ZERO)),
        (None, None, None)
    );
    assert_eq!(Rate::per_second(1_000_000_000).map(Rate::interval), Some(Nanos(1)));
    assert_eq!(Rate::every(Nanos(128)).map(Rate::policed_interval), Some(Nanos(127)));
    assert_eq!(Rate::every(Nanos(127)).map(Rate::policed_interval), Some(Nanos(127)));
    assert_eq!(BitRate(0).time_of(1), Nanos::MAX);
    assert_eq!((BitRate(8).time_of(3), BitRate(7).time_of(1)), (Nanos::from_secs(3), Nanos(1_142_857_143)));
    assert_eq!(BitRate(1).time_of(u64::MAX), Nanos::MAX);
    assert_eq!([0, 250_000, 1_000_000, 9_000_000].map(|error| BitRate(8).less(Ppm(error)).0), [8, 6, 0, 0]);
}

#[test]
fn no_sharers_have_no_shares_and_no_work_takes_no_time() {
    for sharing in Sharing::ALL {
        assert_eq!(sharing.of_last(Nanos(9), &[]), Nanos::ZERO);
    }
    assert_eq!(fixed_priority::response_time(&[], Nanos(5)), Ok(None));
}

/// A soft channel cannot be a flow of a plan, because its bound is no promise.
#[test]
fn a_soft_channel_is_no_flow_of_a_plan() {
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(1_000, rate, 1, Nanos::from_millis(50)).expect("valid");
    let mean_rate = Rate::per_second(10).expect("a rate");
    let miss_ratio = Ppb::new(1_000).expect("a ratio");
    let statistical = Some(Statistical { mean_rate, mean_over: Nanos::from_secs(1), miss_ratio });
    let soft = Contract { statistical, ..contract };
    assert!(soft.validate().is_ok());
    let flow = Some(FlowName::new("film").expect("a name"));
    assert!(
        Contract { flow, ..contract }.validate().is_ok() && Contract { flow, ..soft }.validate().is_err()
    );
}

fn demand(cost: Nanos, period: Nanos, soft: Option<Soft>) -> Demand {
    Demand {
        cost,
        unit_cost_max: Nanos(1),
        period,
        release_latency: Nanos::from_millis(2),
        early: Nanos::ZERO,
        urgency: Urgency::of_period(Class::Guaranteed, period),
        soft,
    }
}

fn empty_stage() -> StageModel {
    let interference = Interference { sigma: Nanos::ZERO, rho: Ppm(0) };
    StageModel { blocking: Blocking::Pipeline(Nanos(10)), interference, utilisation_limit: Ppm::ONE }
}

/// A bound that ends before the message is there is no bound, however empty the stage.
#[test]
fn no_bound_is_as_short_as_the_release_latency() {
    for admission in Admission::ALL.into_iter().filter(|admission| *admission != Admission::FIFO) {
        let mut policy = (admission.build)(empty_stage());
        let channel = demand(Nanos(1), Nanos::from_millis(20), None);
        for bound in [Nanos(0), Nanos::from_millis(1), Nanos::from_millis(2)] {
            assert!(policy.hold(StageKey(1), &channel, bound).is_err(), "{admission:?} {bound}");
        }
        assert!(policy.hold(StageKey(1), &channel, Nanos::from_millis(3)).is_ok(), "{admission:?}");
    }
}

/// Soft channels of more kinds than the limit are refused; another channel of a known kind is not.
#[test]
fn soft_channels_are_of_a_bounded_number_of_kinds() {
    let mut policy = (Admission::STATISTICAL.build)(empty_stage());
    let soft = |mean_over| Soft {
        mean_period: Nanos::from_secs(10),
        mean_over: Nanos(mean_over),
        jitter: Nanos::ZERO,
        miss_ratio: Ppb::new(100_000_000).expect("a ratio"),
    };
    let channel = |kind: u64| demand(Nanos(100), Nanos::from_secs(1), Some(soft(1_000 + kind)));
    let bound = Nanos::from_millis(400);
    let held =
        (0..300).take_while(|kind| policy.hold(StageKey(*kind), &channel(*kind), bound).is_ok()).count();
    assert_eq!(held, 256);
    assert_eq!(policy.hold(StageKey(1_000), &channel(7), bound), Ok(()), "a kind that is known");
    assert!(policy.hold(StageKey(1_001), &channel(999), bound).is_err());
    policy.release(StageKey(3));
    assert_eq!(policy.hold(StageKey(1_001), &channel(999), bound), Ok(()), "its place is free");
}

/// A share of a ratio is that part of it, rounded down, and never nothing.
#[test]
fn ratios_are_shared_equally() {
    for parts in [1_u32, 2, 7, 1_000, 999_999_999, 1_000_000_000] {
        for shares in [0_u32, 1, 2, 3, 7, 1_000_000, u32::MAX] {
            let shared = Ppb::new(parts).expect("not zero").share(shares).parts();
            assert_eq!(shared, (parts / shares.max(1)).max(1), "{parts} for {shares}");
        }
    }
}

/// How processors serve a contract, written out: a span holds ceil(T/I') messages; a timer that is faster than the messages may
/// spread one over as many periods as fit between two of them, and its packets wait for the timer once for each.
#[test]
fn budgets_and_waits_of_a_service_are_those_of_the_formula() {
    // Rates are policed to spans that are rounded up, the spans of budgets are rounded down.
    let policed = |span: u64| i128::from(span - span / 128);
    let budgeted = |span: u64| i128::from(span - span.div_ceil(128));
    let (mut carried, mut refused) = (0, 0);
    for interval in [1_000_u64, 1_001, 40_000, 1_000_000] {
        for bytes in [1_u32, 100, 101, 350, 1_000] {
            let rate = Rate::every(Nanos(interval)).expect("a rate");
            let contract = Contract::new(bytes, rate, 1, Nanos::from_secs(1)).expect("in range");
            let (own, between) = (i128::from(bytes.div_ceil(100)), policed(interval));
            let spans = [0, 1, 2, 127, 128, interval / 7, interval / 3, interval / 2, interval - 1, interval];
            for span in spans.into_iter().chain([interval + 1, interval + 8, 2 * interval, 9 * interval]) {
                let period = budgeted(span).max(1);
                let messages = ((period + between - 1) / between).max(1);
                for packets in [0_u32, 1, 2, 3, 4, 7, 10, 20, 40, 90, 91] {
                    for timed in [false, true] {
                        let (mut needed, mut timers) = (own * messages, i128::from(timed));
                        if timed && messages == 1 {
                            let most = (between / period).max(1);
                            needed = (own + most - 1) / most;
                            timers = (own + i128::from(packets.max(1)) - 1) / i128::from(packets.max(1));
                        }
                        let activation = match timed {
                            true => Activation::Periodic { period: Nanos(span), packets },
                            false => Activation::LowLatency { interarrival: Nanos(span), packets },
                        };
                        let service = Contract { activation, ..contract }.service(100);
                        let what = format!("{interval} {bytes} {activation:?}");
                        assert_eq!(service.is_ok(), i128::from(packets) >= needed, "{what}");
                        let Ok(service) = service else {
                            refused += 1;
                            continue;
                        };
                        let of = |nanos: Nanos| i128::from(nanos.0);
                        assert_eq!(
                            (service.packets, i128::from(service.messages)),
                            (packets, messages),
                            "{what}"
                        );
                        assert_eq!(
                            (of(service.period), of(service.wait)),
                            (period, period * timers),
                            "{what}"
                        );
                        carried += 1;
                    }
                }
            }
        }
    }
    assert!(carried > 1_000 && refused > 1_000, "{carried} {refused}");
}

/// What is left of a deadline can be added to the bounds, and hardly a nanosecond more: none at all where clocks do not drift.
#[test]
fn what_is_left_of_a_deadline_is_all_that_fits() {
    let stage =
        |bound: u64, propagation: u64| PathStage { bound: Nanos(bound), propagation_max: Nanos(propagation) };
    for rho in [0_u32, 1, 200, 3_800, 500_000] {
        for stages in [vec![stage(0, 0)], vec![stage(1_000, 7), stage(999, 0)], vec![stage(1_234_567, 89); 5]]
        {
            let total = |more: u64| {
                let mut longer = stages.clone();
                longer[0].bound += Nanos(more);
                end_to_end(&longer, Ppm(rho))
            };
            assert_eq!(
                leftover(&stages, Ppm(rho), total(0) - Nanos(1)).filter(|_| total(0) > Nanos::ZERO),
                None
            );
            for spare in [0, 1, 2, 3, 10, 999, 1_000_000, 40_000_000] {
                let deadline = total(0) + Nanos(spare);
                let left = leftover(&stages, Ppm(rho), deadline).expect("they fit");
                assert!(total(left.0) <= deadline, "{rho} {stages:?} {spare}");
                assert!(total(left.0 + 3) > deadline, "{rho} {stages:?} {spare}: {left:?} is too little");
                assert!(rho > 0 || total(left.0) == deadline, "{stages:?} {spare}");
                // spare/(1 + rho), and a nanosecond less for the rounding of the drift.
                let grown = u128::from(spare) * 1_000_000 / u128::from(1_000_000 + rho);
                assert_eq!(u128::from(left.0), grown.saturating_sub((rho > 0).into()), "{rho} {spare}");
            }
        }
    }
}

/// Shares are in proportion to weights, rounded down, and even where nothing weighs.
#[test]
fn what_is_left_is_shared_by_weight() {
    let shares = |leftover: u64, weights: &[u64]| -> Vec<u64> {
        leftover_shares(Nanos(leftover), weights).into_iter().map(|share| share.0).collect()
    };
    assert_eq!((shares(10, &[]), shares(10, &[0]), shares(11, &[0, 0])), (vec![], vec![10], vec![5, 5]));
    assert_eq!(
        (shares(10, &[3]), shares(10, &[1, 3]), shares(100, &[0, 1, 9])),
        (vec![10], vec![2, 7], vec![0, 10, 90])
    );
    assert_eq!(shares(u64::MAX, &[u64::MAX, u64::MAX]), [u64::MAX / 2; 2]);
}
