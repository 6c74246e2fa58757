//! The three orders in stages of a few ticks, where each tick counts, against their rules written out.

use alloc::vec::Vec;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::written_out::{Channel, offer, place_for, response_of, with};
use super::*;
use crate::policy::{Class, Urgency};
use crate::stage::{Blocking, Interference};

const LIMIT: Nanos = Nanos(1_000_000);

/// A stage and demands of a few ticks. By levels a tick is longer, because the levels begin with 64 us.
struct Ticks(u64);

impl Ticks {
    fn span(&self, rng: &mut SmallRng, ticks: core::ops::Range<u64>) -> Nanos {
        Nanos(rng.random_range(ticks) * self.0)
    }

    fn model(&self, rng: &mut SmallRng) -> StageModel {
        let blocking = match rng.random_bool(0.6) {
            true => Blocking::LargestUnit { best_effort: self.span(rng, 0..4) },
            false => Blocking::Pipeline(self.span(rng, 0..5)),
        };
        let rho = Ppm(if rng.random_bool(0.3) { 100_000 } else { 0 });
        let interference = Interference { sigma: self.span(rng, 0..3), rho };
        StageModel { blocking, interference, utilisation_limit: Ppm(900_000) }
    }

    fn demand(&self, rng: &mut SmallRng) -> Demand {
        let cost = self.span(rng, 1..6);
        let period = self.span(rng, 8..28);
        let class = if rng.random_bool(0.2) { Class::LowLatency } else { Class::Guaranteed };
        Demand {
            cost,
            unit_cost_max: self.span(rng, 1..6).min(cost),
            period,
            release_latency: self.span(rng, 0..5),
            early: self.span(rng, 0..6),
            urgency: Urgency::of_period(class, period),
            soft: None,
        }
    }
}

fn channels_of(policy: &Ranked) -> Vec<Channel> {
    policy.entries.iter().map(|entry| (entry.demand, entry.bound)).collect()
}

fn keys_of(policy: &Ranked) -> Vec<StageKey> {
    policy.entries.iter().map(|entry| entry.key).collect()
}

/// A stage of a few ticks whose channels come, move and go.
struct Walk {
    order: Order,
    ticks: Ticks,
    model: StageModel,
    policy: Ranked,
}

impl Walk {
    fn new(order: Order, rng: &mut SmallRng) -> Self {
        let ticks = Ticks(if order == Order::Levels { 9_000 } else { 1 });
        let model = ticks.model(rng);
        Self { order, ticks, model, policy: Ranked::new(model, order) }
    }

    /// Asks for an offer, which is what the rules say; whether there was one. `None`: the share alone refuses.
    fn ask(&mut self, demand: &Demand, limit: Nanos, what: &str) -> Option<bool> {
        let known = channels_of(&self.policy);
        let found = self.policy.offer(demand, limit);
        let explained = self.policy.explain(demand, limit);
        if let Err(Refusal { reason: RefusalReason::Utilisation { .. }, .. }) = found {
            return None;
        }
        match (found, offer(self.order, &self.model, &known, demand)) {
            (Ok(Offer { bound }), Some((place, least))) => {
                assert_eq!(bound.0, least, "{what}");
                assert!(bound <= limit, "{what}");
                let why = explained.expect("it is offered");
                let behind = known[place..].iter().map(|(demand, _)| demand.unit_cost_max).max();
                assert_eq!(why.blocking, self.model.blocking.by(behind.unwrap_or_default()), "{what}");
                Some(true)
            }
            (Err(refusal), Some((_, least))) => {
                let possible = Nanos(least);
                assert!(possible > limit && explained.is_none(), "{what}");
                assert_eq!(refusal.reason, RefusalReason::Bound { possible, limit }, "{what}");
                assert_eq!(refusal.bound_possible, Some(possible), "{what}");
                Some(false)
            }
            (Err(refusal), None) => {
                let others = (refusal.reason, refusal.bound_possible);
                assert_eq!(others, (RefusalReason::Others, None), "{what}");
                Some(false)
            }
            (found, expected) => panic!("{what}: {found:?}, {expected:?}"),
        }
    }

    /// Holds a channel at `bound`, in place of the one with this key, or moves that one's bound: `demand` is `None` then. Whether it is
    /// held, and whether its place is another one; `None`: the share alone refuses.
    fn hold(
        &mut self,
        key: StageKey,
        demand: Option<Demand>,
        bound: Nanos,
        what: &str,
    ) -> Option<(bool, bool)> {
        let (known, keys, had) = (channels_of(&self.policy), keys_of(&self.policy), self.policy.find(key));
        let moves = demand.is_none();
        let demand = demand.unwrap_or_else(|| self.policy.entries[had.expect("it is there")].demand);
        let mut without = known.clone();
        if let Some(place) = had {
            without.remove(place);
        }
        let place = place_for(self.order, &self.model, &without, (demand, bound), had);
        let done = if moves { self.policy.relax(key, bound) } else { self.policy.hold(key, &demand, bound) };
        if let Err(refusal) = done {
            assert_eq!((channels_of(&self.policy), keys_of(&self.policy)), (known, keys), "{what}");
            if matches!(refusal.reason, RefusalReason::Utilisation { .. }) {
                return None;
            }
            assert_eq!(place, None, "{what}: {refusal:?}");
            return Some((false, false));
        }
        let place = place.unwrap_or_else(|| panic!("{what}: it breaks a bound"));
        assert_eq!(channels_of(&self.policy), with(&without, place, (demand, bound)), "{what}");
        assert_eq!(self.policy.entries[place].key, key, "{what}");
        let rank = match self.order {
            Order::Ranks => Some(place),
            Order::Levels => Some(usize::from(level(bound))),
            Order::Rates => None,
        };
        assert_eq!(self.policy.rank(key), rank, "{what}");
        Some((true, moves && had != Some(place)))
    }
}

/// Whatever channels come, move and go: what is offered, granted and refused, at which place, and what is
/// said about it, is what the rules say.
#[test]
fn in_stages_of_a_few_ticks_the_orders_follow_their_rules() {
    let (mut offered, mut refused, mut held, mut not_held, mut moved) = (0, 0, 0, 0, 0);
    for (seed, order) in
        (0..150).flat_map(|seed| [Order::Ranks, Order::Levels, Order::Rates].map(|order| (seed, order)))
    {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut walk = Walk::new(order, &mut rng);
        for step in 0..12 {
            let what = alloc::format!("{order:?}, seed {seed}, step {step}");
            let (demand, key) = (walk.ticks.demand(&mut rng), StageKey(rng.random_range(0..6)));
            let limit = walk.ticks.span(&mut rng, 1..60);
            let Some(is_offered) = walk.ask(&demand, limit, &what) else { continue };
            (offered, refused) = (offered + u32::from(is_offered), refused + u32::from(!is_offered));
            let moves = walk.policy.find(key).is_some() && rng.random_bool(0.6);
            let bound = walk.ticks.span(&mut rng, 1..70);
            let newcomer = (!moves).then_some(demand);
            let Some((is_held, is_moved)) = walk.hold(key, newcomer, bound, &what) else { continue };
            (held, not_held) = (held + u32::from(is_held), not_held + u32::from(!is_held));
            moved += u32::from(is_moved);
        }
    }
    assert!(offered > 2_000 && refused > 700, "{offered} {refused}");
    assert!(held > 1_000 && not_held > 500 && moved > 50, "{held} {not_held} {moved}");
}

/// All together on one stage have the response times of their classes and periods, those of one urgency
/// behind each other.
#[test]
fn response_times_of_rates_are_those_of_channels_that_are_all_there() {
    let (mut bounded, mut unbounded, mut peers) = (0, 0, 0);
    for seed in 0..400 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let ticks = Ticks(1);
        let model = ticks.model(&mut rng);
        let mut demands: Vec<_> = (0..rng.random_range(0..7)).map(|_| ticks.demand(&mut rng)).collect();
        // Longer periods, of few lengths.
        demands.iter_mut().for_each(|demand| {
            demand.period = Nanos(demand.period.0 / 8 * 15);
            demand.urgency = Urgency::of_period(Class::Guaranteed, demand.period);
        });
        let channels: Vec<Channel> = demands.iter().map(|demand| (*demand, Nanos::MAX)).collect();
        let found = response_times(model, &demands);
        assert_eq!(found.len(), demands.len());
        for (index, found) in found.iter().enumerate() {
            let expected = response_of(Order::Rates, &model, &channels, index);
            assert_eq!(found.map(|found| found.0), expected, "seed {seed}, {index}");
            *if found.is_some() { &mut bounded } else { &mut unbounded } += 1;
            let is_peer = |other: &&Demand| other.urgency == demands[index].urgency;
            peers += u32::from(demands.iter().filter(is_peer).count() > 1);
        }
    }
    assert!(bounded > 500 && unbounded > 50 && peers > 200, "{bounded} {unbounded} {peers}");
}

/// A cost of zero counts as a nanosecond and a period of zero, too: together they take all, as a nanosecond
/// in each does.
#[test]
fn spans_of_zero_count_as_a_nanosecond() {
    let model = |blocking: u64| StageModel {
        blocking: Blocking::Pipeline(Nanos(blocking)),
        interference: Interference::default(),
        utilisation_limit: Ppm::ONE,
    };
    let demand = |cost: u64, period: u64| Demand {
        cost: Nanos(cost),
        unit_cost_max: Nanos(1),
        period: Nanos(period),
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::of_period(Class::Guaranteed, Nanos(period)),
        soft: None,
    };
    for order in [Order::Ranks, Order::Levels, Order::Rates] {
        for cost in [0, 1] {
            let bound = Ranked::new(model(5), order).offer(&demand(cost, 1_000), LIMIT);
            assert_eq!(bound, Ok(Offer { bound: Nanos(5 + 1) }), "{order:?} {cost}");
        }
        for period in [0, 1] {
            let mut policy = Ranked::new(model(0), order);
            let all = demand(0, period);
            assert_eq!(policy.offer(&all, LIMIT), Ok(Offer { bound: Nanos(1) }), "{order:?} {period}");
            policy.hold(StageKey(1), &all, Nanos(1)).expect("it is alone");
            assert!(policy.offer(&demand(0, 1_000), LIMIT).is_err(), "{order:?} {period}: nothing is left");
        }
        // Each second nanosecond is left.
        let mut policy = Ranked::new(model(0), order);
        policy.hold(StageKey(1), &demand(0, 2), Nanos(1)).expect("it is alone");
        // By levels not on the first one, where it would delay the other.
        let bound = if order == Order::Levels { level_floor(1) } else { Nanos(2) };
        assert_eq!(policy.offer(&demand(0, 1_000), LIMIT), Ok(Offer { bound }), "{order:?}");
    }
}
