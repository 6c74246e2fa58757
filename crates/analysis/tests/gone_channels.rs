//! What has gone leaves nothing behind that changes a decision.

use punctual_analysis::{
    Admission, Blocking, Class, Demand, Interference, Nanos, Ppb, Ppm, Soft, StageKey, StageModel, Urgency,
};

/// A stage at which many channels have come and gone searches as far as one at which none has.
#[test]
fn channels_that_are_gone_shorten_no_search() {
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort: Nanos::ZERO },
        interference: Interference::default(),
        utilisation_limit: Ppm::ONE,
    };
    let of = |cost: u64, period: u64| {
        let [cost, period] = [cost, period].map(Nanos::from_micros);
        let urgency = Urgency::of_period(Class::Guaranteed, period);
        let (release_latency, early) = (Nanos::ZERO, Nanos::ZERO);
        Demand { cost, unit_cost_max: Nanos(1), period, release_latency, early, urgency, soft: None }
    };
    let limit = Nanos::from_secs(60);
    let base = (of(500, 1_000), Nanos::from_micros(1_000));
    let (mut old, mut fresh) = ((Admission::EDF.build)(model), (Admission::EDF.build)(model));
    for policy in [&mut old, &mut fresh] {
        policy.hold(StageKey(0), &base.0, base.1).expect("alone");
    }
    // The search for it takes in some 10,000 messages.
    old.offer(&of(1_000_000, 2_500_000), limit).expect("it fits");
    for turn in 0..60 {
        let passing = (of(1, 1_000), Nanos::from_micros(700 + turn));
        old.hold(StageKey(1), &passing.0, passing.1).expect("it fits");
        assert!(old.release(StageKey(1)));
    }
    for longer in [of(8_000_000, 20_000_000), of(12_000_000, 30_000_000)] {
        assert_eq!(old.offer(&longer, limit), fresh.offer(&longer, limit), "{longer:?}");
    }
}

/// A stage offers the same whether a channel has come and gone or was never there, even if others have units as long as
/// that channel's.
#[test]
fn channels_that_are_gone_change_no_offer() {
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort: Nanos::from_micros(10) },
        interference: Interference { sigma: Nanos::from_micros(20), rho: Ppm(10_000) },
        utilisation_limit: Ppm::ONE,
    };
    let of = |cost: u64, unit: u64| {
        let (cost, unit_cost_max) = (Nanos::from_micros(cost), Nanos::from_micros(unit));
        let period = Nanos::from_millis(20);
        let urgency = Urgency::of_period(Class::Guaranteed, period);
        let (release_latency, early) = (Nanos::from_micros(30), Nanos::ZERO);
        Demand { cost, unit_cost_max, period, release_latency, early, urgency, soft: None }
    };
    let stays = [(of(400, 400), 3), (of(300, 300), 5)];
    for admission in Admission::ALL {
        for (passing, bound) in
            [(of(400, 400), 9), (of(400, 400), 15), (of(300, 300), 15), (of(900, 600), 15)]
        {
            let (mut old, mut fresh) = ((admission.build)(model), (admission.build)(model));
            for policy in [&mut old, &mut fresh] {
                for (key, (demand, bound)) in (0..).zip(&stays) {
                    policy.hold(StageKey(key), demand, Nanos::from_millis(*bound)).expect("it fits");
                }
            }
            old.hold(StageKey(9), &passing, Nanos::from_millis(bound)).expect("it fits");
            assert!(old.release(StageKey(9)));
            for cost in [100, 1_000, 2_000, 3_000, 5_000, 8_000] {
                let (newcomer, limit) = (of(cost, 100), Nanos::from_millis(18));
                assert_eq!(
                    old.offer(&newcomer, limit),
                    fresh.offer(&newcomer, limit),
                    "{admission:?} {cost}"
                );
            }
        }
    }
}

/// A channel that is held again in other terms leaves nothing of its former ones, even if it was hard and is soft now, or
/// the other way round: the stage offers what it offers where the channel had only the last terms.
#[test]
fn terms_that_were_replaced_change_no_offer() {
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort: Nanos::from_micros(10) },
        interference: Interference { sigma: Nanos::from_micros(20), rho: Ppm(10_000) },
        utilisation_limit: Ppm::ONE,
    };
    let soft = Soft {
        mean_period: Nanos::from_millis(40),
        mean_over: Nanos::from_millis(100),
        jitter: Nanos::ZERO,
        miss_ratio: Ppb::new(10_000_000).expect("above 0"),
    };
    let of = |cost: u64, soft| {
        let period = Nanos::from_millis(20);
        let urgency = Urgency::of_period(Class::Guaranteed, period);
        let (release_latency, early) = (Nanos::from_micros(30), Nanos::ZERO);
        let (cost, unit_cost_max) = (Nanos::from_micros(cost), Nanos::from_micros(10));
        Demand { cost, unit_cost_max, period, release_latency, early, urgency, soft }
    };
    let terms = [
        (of(4_000, None), 6),
        (of(3_000, Some(soft)), 16),
        (of(2_000, None), 9),
        (of(1_000, Some(soft)), 12),
    ];
    for admission in Admission::ALL {
        for (first, last) in terms.iter().flat_map(|first| terms.iter().map(move |last| (first, last))) {
            let (mut old, mut fresh) = ((admission.build)(model), (admission.build)(model));
            let (key, what) = (StageKey(9), format!("{admission:?} {first:?} {last:?}"));
            old.hold(key, &first.0, Nanos::from_millis(first.1)).expect("it fits");
            for policy in [&mut old, &mut fresh] {
                policy.hold(key, &last.0, Nanos::from_millis(last.1)).expect("it fits");
            }
            assert_eq!((old.bound(key), old.len()), (fresh.bound(key), 1), "{what}");
            for cost in [100, 1_000, 2_000, 3_000, 5_000, 8_000] {
                let (newcomer, limit) = (of(cost, None), Nanos::from_millis(18));
                assert_eq!(old.offer(&newcomer, limit), fresh.offer(&newcomer, limit), "{what} {cost}");
            }
        }
    }
}
