//! After any operations, the accounts of a policy are correct: the number of reservations, their bounds, and
//! their utilisation. A refusal has no effect, and its offer can be held.

use std::collections::BTreeMap;

use punctual_analysis::{
    Admission, AdmissionPolicy, Blocking, Class, Demand, Interference, Nanos, Ppb, Ppm, Refusal,
    RefusalReason, Soft, StageKey, StageModel, Urgency,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const RHO: Ppm = Ppm(30_000);

fn model(rng: &mut SmallRng) -> StageModel {
    let unit = Nanos(rng.random_range(1_000..100_000));
    let blocking = if rng.random_bool(0.5) {
        Blocking::Pipeline(unit)
    } else {
        Blocking::LargestUnit { best_effort: unit }
    };
    let interference = Interference { sigma: Nanos(rng.random_range(0..200_000)), rho: RHO };
    StageModel { blocking, interference, utilisation_limit: Ppm(rng.random_range(500_000..950_000)) }
}

fn demand(rng: &mut SmallRng, soft: bool) -> Demand {
    let period = Nanos(rng.random_range(2_000_000..80_000_000));
    let cost = Nanos(rng.random_range(20_000..2_500_000));
    let unit_cost_max = Nanos(rng.random_range(1_000..200_000)).min(cost);
    let class = if rng.random_bool(0.2) { Class::LowLatency } else { Class::Guaranteed };
    let soft = soft.then(|| Soft {
        mean_period: period * rng.random_range(1..6),
        mean_over: Nanos(rng.random_range(0..100_000_000)),
        jitter: Nanos::ZERO,
        miss_ratio: Ppb::new(1_000_000).expect("a ratio"),
    });
    Demand {
        cost,
        unit_cost_max,
        period,
        release_latency: Nanos(rng.random_range(0..400_000)),
        early: Nanos::ZERO,
        urgency: Urgency::of_period(class, period),
        soft,
    }
}

/// The reserved utilisation, rounded up: each channel's share to a part in 10^12, for a soft channel that of
/// its mean.
fn given_away(held: &BTreeMap<u64, (Demand, Nanos)>, admission: Admission, model: &StageModel) -> Ppm {
    let parts = held.values().map(|(demand, _)| {
        let is_soft =
            admission == Admission::STATISTICAL && demand.unit_cost_max <= model.blocking.by(Nanos::ZERO);
        let period = demand.soft.filter(|_| is_soft).map_or(demand.period, |soft| soft.mean_period);
        (u128::from(demand.cost.0) * 1_000_000_000_000).div_ceil(u128::from(period.0))
    });
    Ppm(parts.sum::<u128>().div_ceil(1_000_000) as u32 + RHO.0)
}

fn agrees(
    policy: &dyn AdmissionPolicy,
    held: &BTreeMap<u64, (Demand, Nanos)>,
    model: &StageModel,
    what: &str,
) {
    let admission = policy.admission();
    assert_eq!((policy.len(), policy.is_empty()), (held.len(), held.is_empty()), "{what}");
    assert_eq!(policy.utilisation(), given_away(held, admission, model), "{what}");
    for key in 0..16 {
        let bound = held.get(&key).map(|(_, bound)| *bound);
        assert_eq!(policy.bound(StageKey(key)), bound, "{what}: {key}");
        let is_soft = held.get(&key).is_some_and(|(demand, _)| {
            let blocks_no_more = demand.unit_cost_max <= model.blocking.by(Nanos::ZERO);
            admission == Admission::STATISTICAL && demand.soft.is_some() && blocks_no_more
        });
        assert_eq!(policy.is_soft(StageKey(key)), is_soft, "{what}: {key}");
    }
}

#[test]
fn a_policy_keeps_its_state_right_across_additions_and_removals() {
    let (mut kept, mut refused) = (0, 0);
    for admission in Admission::ALL {
        for seed in 0..25 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let model = model(&mut rng);
            let mut policy = (admission.build)(model);
            assert_eq!(policy.admission(), admission);
            let mut held = BTreeMap::new();
            for step in 0..60 {
                let what = format!("{admission:?} seed {seed} step {step}");
                let key = rng.random_range(0..16);
                match rng.random_range(0..6) {
                    0 => assert_eq!(policy.release(StageKey(key)), held.remove(&key).is_some(), "{what}"),
                    1 => {
                        let bound = Nanos(rng.random_range(1_000_000..200_000_000));
                        let relaxed = policy.relax(StageKey(key), bound);
                        match held.get_mut(&key) {
                            Some((_, known)) if relaxed.is_ok() => *known = bound,
                            Some(_) => refused += 1,
                            None => assert!(relaxed.is_err() || admission == Admission::FIFO, "{what}"),
                        }
                    }
                    2 => policy.drop_caches(),
                    _ => {
                        let soft = rng.random_bool(0.4);
                        let demand = demand(&mut rng, soft);
                        let bound = Nanos(rng.random_range(1_000_000..200_000_000));
                        match policy.hold(StageKey(key), &demand, bound) {
                            Ok(()) => {
                                held.insert(key, (demand, bound));
                                kept += 1;
                            }
                            Err(_) => refused += 1,
                        }
                    }
                }
                agrees(policy.as_ref(), &held, &model, &what);
            }
            for key in held.keys() {
                assert!(policy.release(StageKey(*key)));
            }
            agrees(policy.as_ref(), &BTreeMap::new(), &model, "all are gone");
        }
    }
    assert!(kept > 1_500 && refused > 300, "{kept} {refused}");
}

/// The parts of an offer add up, and it can be held; and the offer in a refusal is granted, a bound to the
/// nanosecond, a period that is not much longer than necessary.
#[test]
fn offers_are_made_of_their_parts_and_refusals_offer_what_holds() {
    let (mut offered, mut bounds, mut periods) = (0, 0, 0);
    for admission in Admission::ALL.into_iter().filter(|admission| *admission != Admission::FIFO) {
        for seed in 0..40 {
            let mut rng = SmallRng::seed_from_u64(seed ^ 0xf00d);
            let model = model(&mut rng);
            let mut policy = (admission.build)(model);
            for key in 0..30 {
                let what = format!("{admission:?} seed {seed} {key}");
                let demand = demand(&mut rng, false);
                let limit = Nanos(rng.random_range(500_000..60_000_000));
                let explained = policy.explain(&demand, limit);
                match policy.offer(&demand, limit) {
                    Ok(offer) => {
                        let parts = explained.expect("it is offered");
                        let sum = parts.release_latency
                            + parts.blocking
                            + parts.interference
                            + parts.own
                            + parts.others;
                        assert_eq!((sum, parts.own), (offer.bound, demand.cost), "{what}");
                        assert!(offer.bound <= limit, "{what}");
                        let wider = offer.bound + Nanos(rng.random_range(0..30_000_000));
                        policy.hold(StageKey(key), &demand, offer.bound).expect("what was offered holds");
                        // Most are let be later, so that there is room for more.
                        let _ = policy.relax(StageKey(key), wider);
                        offered += 1;
                    }
                    Err(Refusal { reason, bound_possible, period_possible }) => {
                        assert_eq!(explained, None, "{what}");
                        if let RefusalReason::Bound { possible, limit: reported } = reason {
                            assert_eq!(
                                (Some(possible), reported, possible > limit),
                                (bound_possible, limit, true),
                                "{what}"
                            );
                            let granted = policy.offer(&demand, possible).map(|offer| offer.bound);
                            assert_eq!(granted, Ok(possible), "{what}");
                            assert!(policy.offer(&demand, possible - Nanos(1)).is_err(), "{what}");
                            bounds += 1;
                        }
                        let Some(period) = period_possible.filter(|_| admission != Admission::STATISTICAL)
                        else {
                            continue;
                        };
                        let slower = |period| Demand { period, ..demand };
                        assert!(policy.offer(&slower(period), limit).is_ok(), "{what}: {period}");
                        assert!(period >= demand.period, "{what}");
                        periods += 1;
                    }
                }
            }
        }
    }
    assert!(offered > 500 && bounds > 300 && periods > 50, "{offered} {bounds} {periods}");
}

/// Exactly the limit can be reserved, to a millionth.
#[test]
fn a_stage_is_given_away_up_to_its_limit() {
    let limit = Ppm(700_000);
    let stage = StageModel {
        blocking: Blocking::Pipeline(Nanos(1_000)),
        interference: Interference { sigma: Nanos::ZERO, rho: RHO },
        utilisation_limit: limit,
    };
    let of = |cost| Demand {
        cost: Nanos(cost),
        unit_cost_max: Nanos(1),
        period: Nanos(1_000_000),
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::of_period(Class::Guaranteed, Nanos(1_000_000)),
        soft: None,
    };
    let long = Nanos::from_secs(1);
    for admission in Admission::ALL.into_iter().filter(|admission| *admission != Admission::FIFO) {
        let mut policy = (admission.build)(stage);
        policy.hold(StageKey(1), &of(400_000), long).expect("there is room");
        assert_eq!(policy.utilisation(), Ppm(430_000), "{admission:?}");
        let refusal = policy.hold(StageKey(2), &of(270_001), long).expect_err("a millionth more");
        let reason = RefusalReason::Utilisation { wanted_ppm: 700_001, limit_ppm: 700_000 };
        assert_eq!(refusal.reason, reason, "{admission:?}");
        // 0.27 of the stage are left for 270,001 ns.
        assert_eq!(refusal.period_possible, Some(Nanos(1_000_004)), "{admission:?}");
        assert_eq!(policy.hold(StageKey(2), &of(270_000), long), Ok(()), "{admission:?}");
        assert_eq!((policy.utilisation(), policy.len()), (limit, 2));
        let refusal = policy.offer(&of(1), long).expect_err("nothing is left");
        assert_eq!(refusal.period_possible, None, "{admission:?}");
        assert!(policy.release(StageKey(1)));
        assert_eq!(policy.hold(StageKey(3), &of(400_000), long), Ok(()), "{admission:?}");
    }
}

/// A released channel leaves no trace: offers are those of a policy that never held it, also if other
/// channels have units of the same length.
#[test]
fn what_has_gone_changes_no_offer() {
    let (mut offered, mut refused) = (0, 0);
    for admission in [Admission::EDF, Admission::STATISTICAL] {
        for seed in 0..60 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let blocking = Blocking::LargestUnit { best_effort: Nanos(10_000) };
            let model = StageModel { blocking, ..model(&mut rng) };
            let few_units = |rng: &mut SmallRng| {
                let unit = Nanos([50_000, 400_000, 900_000][rng.random_range(0..3)]);
                let plain = demand(rng, false);
                Demand { cost: plain.cost.max(unit), unit_cost_max: unit, ..plain }
            };
            let (mut policy, mut fresh) = ((admission.build)(model), (admission.build)(model));
            let mut held = BTreeMap::new();
            for key in 0..12 {
                let demand = few_units(&mut rng);
                let bound = Nanos(rng.random_range(4_000_000..100_000_000));
                if policy.hold(StageKey(key), &demand, bound).is_ok() {
                    held.insert(key, (demand, bound));
                }
            }
            let gone: Vec<_> = held.keys().copied().filter(|_| rng.random_bool(0.5)).collect();
            for key in gone {
                assert!(policy.release(StageKey(key)) && held.remove(&key).is_some());
            }
            for (key, (demand, bound)) in &held {
                fresh.hold(StageKey(*key), demand, *bound).expect("it was held beside more");
            }
            for _ in 0..8 {
                let demand = few_units(&mut rng);
                let limit = Nanos(rng.random_range(500_000..100_000_000));
                let found = policy.offer(&demand, limit);
                assert_eq!(found, fresh.offer(&demand, limit), "{admission:?} seed {seed}: {demand:?}");
                *if found.is_ok() { &mut offered } else { &mut refused } += 1;
            }
        }
    }
    assert!(offered > 300 && refused > 50, "{offered} {refused}");
}
