//! Properties of every policy: explanations add up, the order of requests does not decide which channels fit,
//! and the reported utilisation is the sum of the reservations.

use punctual_analysis::{
    Admission, AdmissionPolicy, Blocking, Class, Demand, Interference, Nanos, Ppb, Ppm, Soft, StageKey,
    StageModel, Urgency, policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// All but `fifo`, which admits every channel.
const NAMES: [&str; 5] = ["edf", "d-order", "fixed-priority", "rmdp", "statistical"];
const LIMIT: Nanos = Nanos::from_millis(400);

fn model(rng: &mut SmallRng) -> StageModel {
    StageModel {
        blocking: Blocking::LargestUnit { best_effort: Nanos(rng.random_range(100_000..400_000)) },
        interference: Interference {
            sigma: Nanos(rng.random_range(0..300_000)),
            rho: Ppm(rng.random_range(0..50_000)),
        },
        utilisation_limit: Ppm(950_000),
    }
}

fn hard(rng: &mut SmallRng) -> Demand {
    let period = Nanos(rng.random_range(4..60) * 1_000_000);
    let cost = Nanos(rng.random_range(50_000..=period.0 / 12));
    Demand {
        cost,
        unit_cost_max: cost.min(Nanos(90_000)),
        period,
        release_latency: Nanos(rng.random_range(0..600_000)),
        early: Nanos::ZERO,
        urgency: Urgency::of_period(Class::Guaranteed, period),
        soft: None,
    }
}

/// A soft channel with one of few very different miss ratios.
fn soft(rng: &mut SmallRng) -> Demand {
    let demand = hard(rng);
    let mean_period = demand.period * rng.random_range(2..8);
    let miss_ratio = Ppb::new([100_000_000, 1_000_000, 1_000][rng.random_range(0..3)]).expect("a ratio");
    let (mean_over, jitter) = (demand.period * rng.random_range(4..40), Nanos::ZERO);
    Demand { soft: Some(Soft { mean_period, mean_over, jitter, miss_ratio }), ..demand }
}

fn any(rng: &mut SmallRng) -> Demand {
    if rng.random_bool(0.6) { soft(rng) } else { hard(rng) }
}

#[test]
fn the_parts_of_an_explanation_add_up_to_the_bound() {
    let mut explained = 0;
    for (seed, name) in (0..40).flat_map(|seed| NAMES.map(|name| (seed, name))) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = model(&mut rng);
        let mut policy = policy_by_name(name, model).expect("it is one");
        for key in 0..12 {
            let demand = any(&mut rng);
            let offer = policy.offer(&demand, LIMIT);
            let explanation = policy.explain(&demand, LIMIT);
            if let (Ok(offer), Some(why)) = (&offer, explanation) {
                let sum = why.release_latency + why.blocking + why.interference + why.own + why.others;
                assert_eq!(sum, offer.bound, "{name}, seed {seed}: {why:?}");
                assert_eq!((why.release_latency, why.own), (demand.release_latency, demand.cost), "{name}");
                assert!(why.blocking >= model.blocking.by(Nanos::ZERO), "{name}: {why:?}");
                let within = offer.bound - demand.release_latency;
                assert_eq!(why.interference, model.interference.within(within), "{name}: {why:?}");
                explained += 1;
            }
            if let Ok(offer) = offer {
                policy.hold(StageKey(key), &demand, offer.bound).expect("what is offered holds");
            }
        }
    }
    assert!(explained > 1_000, "{explained}");
}

/// A channel that does not follow in the order, but has the same rate or level, delays by its messages. It is no blocking.
#[test]
fn blocking_is_explained_by_units_of_less_urgent_channels() {
    let us = Nanos::from_micros;
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort: us(10) },
        interference: Interference::default(),
        utilisation_limit: Ppm(950_000),
    };
    let channel = |cost: u64, unit: u64, period_ms: u64| {
        let (unit_cost_max, period) = (us(unit), Nanos::from_millis(period_ms));
        let urgency = Urgency::of_period(Class::Guaranteed, period);
        let (release_latency, early) = (Nanos::ZERO, Nanos::ZERO);
        Demand { cost: us(cost), unit_cost_max, period, release_latency, early, urgency, soft: None }
    };
    for name in ["fixed-priority", "rmdp"] {
        let mut policy = policy_by_name(name, model).expect("it is one");
        let newcomer = channel(900, 5, 20);
        let blocking = |policy: &mut dyn AdmissionPolicy| {
            policy.explain(&newcomer, LIMIT).map(|parts| (parts.blocking, parts.others))
        };
        policy.hold(StageKey(1), &channel(100, 100, 20), us(1_040)).expect("it is alone");
        assert_eq!(blocking(policy.as_mut()), Some((us(10), us(100))), "{name}: beside a peer");
        policy.hold(StageKey(2), &channel(20, 20, 40), us(9_000)).expect("it fits");
        assert_eq!(blocking(policy.as_mut()), Some((us(20), us(100))), "{name}: ahead of another");
    }
}

/// A message in pieces is longer than its largest unit by a nanosecond at least, and never shorter than it was.
#[test]
fn a_message_in_pieces_is_more_than_one_unit() {
    for (cost, unit) in (0..6).flat_map(|cost| (0..6).map(move |unit| (cost, unit))) {
        let whole =
            Demand { cost: Nanos(cost), unit_cost_max: Nanos(unit), ..hard(&mut SmallRng::seed_from_u64(1)) };
        let expected = Demand { cost: Nanos(if cost > unit { cost } else { unit + 1 }), ..whole };
        assert_eq!(whole.in_pieces(), expected, "{cost} {unit}");
    }
}

/// Policies are the same if their names are. Each is empty until it holds a channel, and again when that is released.
#[test]
fn a_policy_is_empty_while_it_holds_nothing() {
    for (index, admission) in Admission::ALL.into_iter().enumerate() {
        let same: Vec<_> = Admission::ALL.into_iter().map(|other| other == admission).collect();
        assert!(same.iter().enumerate().all(|(other, same)| *same == (other == index)), "{admission:?}");
        let mut policy = (admission.build)(model(&mut SmallRng::seed_from_u64(2)));
        let channel = hard(&mut SmallRng::seed_from_u64(3));
        assert_eq!((policy.is_empty(), policy.len()), (true, 0), "{admission:?}");
        policy.hold(StageKey(1), &channel, LIMIT).expect("it is alone");
        assert_eq!((policy.is_empty(), policy.len()), (false, 1), "{admission:?}");
        assert!(!policy.is_soft(StageKey(1)), "{admission:?}: all of its messages are promised");
        assert!(policy.release(StageKey(1)) && policy.is_empty(), "{admission:?}");
    }
}

/// Whether all of these can be held, one after the other.
fn all_fit(policy: &mut dyn AdmissionPolicy, channels: &[(Demand, Nanos)]) -> bool {
    let fits = |(key, (demand, bound)): (usize, &(Demand, Nanos))| {
        policy.hold(StageKey(1_000 + key as u64), demand, *bound).is_ok()
    };
    let fit = channels.iter().enumerate().all(fits);
    for key in 0..channels.len() {
        policy.release(StageKey(1_000 + key as u64));
    }
    fit
}

/// Channels of given bounds fit together or not, whatever the order of admission; under `d-order` a rank
/// depends on the history.
#[test]
fn the_order_of_admission_does_not_decide_whether_all_fit() {
    let (mut yes, mut no) = (0, 0);
    for (seed, name) in (0..60).flat_map(|seed| ["edf", "fixed-priority", "statistical"].map(|n| (seed, n))) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut policy = policy_by_name(name, model(&mut rng)).expect("it is one");
        for key in 0..rng.random_range(0..14) {
            let demand = any(&mut rng);
            if let Ok(offer) = policy.offer(&demand, LIMIT) {
                let bound = offer.bound + Nanos(rng.random_range(0..30_000_000));
                let _ = policy.hold(StageKey(key), &demand, bound);
            }
        }
        for _ in 0..12 {
            let draw = |rng: &mut SmallRng| (any(rng), Nanos(rng.random_range(2_000_000..60_000_000)));
            let [a, b, c] = [(); 3].map(|()| draw(&mut rng));
            let orders = [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]];
            let fit = orders.map(|order| all_fit(policy.as_mut(), &order));
            assert!(fit == [fit[0]; 6], "{name}, seed {seed}: {fit:?} of {:?}", orders[0]);
            (yes, no) = (yes + u32::from(fit[0]), no + u32::from(!fit[0]));
        }
    }
    assert!(yes > 300 && no > 300, "{yes} {no}");
}

#[test]
fn what_is_given_away_is_the_sum_of_what_is_held() {
    for name in NAMES {
        let interference = Interference { sigma: Nanos::ZERO, rho: Ppm(10_000) };
        let blocking = Blocking::Pipeline(Nanos(1_000));
        let model = StageModel { blocking, interference, utilisation_limit: Ppm(960_000) };
        let mut policy = policy_by_name(name, model).expect("it is one");
        let mut rng = SmallRng::seed_from_u64(5);
        let share = |parts: u64| {
            let period = Nanos::from_millis(100);
            let cost = Nanos(period.0 / 1_000 * parts);
            Demand {
                cost,
                unit_cost_max: Nanos(1_000),
                period,
                release_latency: Nanos(0),
                ..hard(&mut SmallRng::seed_from_u64(1))
            }
        };
        let mut held = Vec::new();
        for key in 0..200 {
            let parts = rng.random_range(1..100);
            let taken: u64 = held.iter().map(|(_, parts)| parts).sum();
            let holds = policy.hold(StageKey(key), &share(parts), Nanos::from_secs(5)).is_ok();
            assert_eq!(holds, taken + parts <= 950, "{name}: {parts} beside {taken} of a thousand");
            if holds {
                held.push((StageKey(key), parts));
            }
            if rng.random_bool(0.3) && !held.is_empty() {
                let (gone, _) = held.swap_remove(rng.random_range(0..held.len()));
                assert!(policy.release(gone) && !policy.release(gone));
            }
            let taken: u64 = held.iter().map(|(_, parts)| parts).sum();
            assert_eq!(policy.utilisation(), Ppm(10_000 + 1_000 * taken as u32), "{name}");
            assert_eq!(policy.len(), held.len());
        }
    }
}

/// A bound that the release latency alone uses up is infeasible, whatever other channels there are.
#[test]
fn one_bound_without_time_makes_a_set_infeasible() {
    let mut rng = SmallRng::seed_from_u64(9);
    let model = model(&mut rng);
    let roomy = (hard(&mut rng), Nanos::from_millis(300));
    let feasible = |channels: &[(Demand, Nanos)]| {
        punctual_analysis::policies::edf::is_feasible(channels, &model, Nanos::from_secs(10))
    };
    assert_eq!(feasible(&[roomy, roomy]), Some(true));
    for bound in [0, 399, 400] {
        let late = Demand { cost: Nanos(1), release_latency: Nanos(400), ..roomy.0 };
        assert_eq!(feasible(&[roomy, (late, Nanos(bound))]), Some(false), "{bound}");
    }
}

/// A request with exactly the offered bound is accepted; one with a nanosecond less is refused with the same
/// offer.
#[test]
fn an_offer_is_within_a_limit_that_equals_it() {
    let mut offered = 0;
    for (seed, name) in (0..30).flat_map(|seed| NAMES.map(|name| (seed, name))) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut policy = policy_by_name(name, model(&mut rng)).expect("it is one");
        for key in 0..10 {
            let demand = hard(&mut rng);
            let Ok(offer) = policy.offer(&demand, LIMIT) else { continue };
            assert_eq!(policy.offer(&demand, offer.bound), Ok(offer), "{name}, seed {seed}");
            let refused = policy.offer(&demand, offer.bound - Nanos(1)).expect_err("it is the smallest");
            assert_eq!(refused.bound_possible, Some(offer.bound), "{name}, seed {seed}");
            policy.hold(StageKey(key), &demand, offer.bound).expect("what is offered holds");
            offered += 1;
        }
    }
    assert!(offered > 1_000, "{offered}");
}
