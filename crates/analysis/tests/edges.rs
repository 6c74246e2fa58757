//! Limits of numbers: rates of zero, unbounded times, shares without channels.

use punctual_analysis::rta::fixed_priority;
use punctual_analysis::sharing::Sharing;
use punctual_analysis::{
    Admission, BitRate, Blocking, Class, Contract, Demand, FlowName, Interference, Nanos, Ppb, Ppm, Rate,
    Soft, StageKey, StageModel, Statistical, Urgency,
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
