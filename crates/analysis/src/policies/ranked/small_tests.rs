//! The three orders in stages of a few ticks, where each tick counts, against their rules written out.

use alloc::vec::Vec;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::policy::{Class, Urgency};
use crate::stage::{Blocking, Interference};

/// No busy period that ends is longer, in nanoseconds.
const LONGEST: u64 = 1 << 40;

const LIMIT: Nanos = Nanos(1_000_000);

type Channel = (Demand, Nanos);

/// The work in front of a message, and the least time that holds it.
fn least(work: impl Fn(u64) -> u64) -> Option<u64> {
    let mut at = 1;
    for _ in 0..20_000 {
        match work(at) {
            more if more <= at => return Some(at),
            more if more > LONGEST => return None,
            more => at = more,
        }
    }
    None
}

/// The response time of `own` behind `ahead`, with `unit` as the largest unit of the others.
fn response(order: Order, model: &StageModel, own: &Demand, ahead: &[Demand], unit: Nanos) -> Option<u64> {
    let early = |demand: &Demand| if order == Order::Ranks { 0 } else { demand.early.0 };
    let jitter = |demand: &Demand| demand.release_latency.0 + early(demand);
    let blocking_by = |unit: u64| match model.blocking {
        Blocking::LargestUnit { best_effort } => best_effort.0.max(unit),
        Blocking::Pipeline(span) => span.0,
    };
    let unit_max = own.unit_cost_max.0.min(blocking_by(own.unit_cost_max.0));
    let (cost, safe) = (own.cost.0, if own.cost.0 <= unit_max { own.cost.0 - 1 } else { 0 });
    let Interference { sigma, rho } = model.interference;
    let of = |demand: &Demand, at: u64| demand.cost.0 * (at + jitter(demand)).div_ceil(demand.period.0);
    let work = |at: u64| {
        let interference = sigma.0 + (at * u64::from(rho.0)).div_ceil(1_000_000);
        blocking_by(unit.0) + interference + ahead.iter().map(|other| of(other, at)).sum::<u64>()
    };
    let busy = least(|at| work(at) + of(own, at))?;
    let stretched = (safe * 1_000_000).div_ceil(1_000_000 - u64::from(rho.0));
    (1..=(busy + jitter(own)).div_ceil(own.period.0)).try_fold(0, |worst: u64, number| {
        let begun = least(|at| work(at) + number * cost - safe)?;
        Some(
            worst
                .max((begun + stretched + own.release_latency.0).saturating_sub((number - 1) * own.period.0)),
        )
    })
}

/// The response time of the channel at `index`; each channel has its place in the order.
fn response_of(order: Order, model: &StageModel, channels: &[Channel], index: usize) -> Option<u64> {
    let own = &channels[index];
    let is_ahead = |&(other, (demand, bound)): &(usize, &Channel)| match order {
        Order::Ranks => other < index,
        Order::Levels => other != index && level(*bound) <= level(own.1),
        Order::Rates => other != index && demand.urgency <= own.0.urgency,
    };
    let is_behind = |&(other, _): &(usize, &Channel)| other != index;
    let ahead: Vec<_> =
        channels.iter().enumerate().filter(is_ahead).map(|(_, (demand, _))| *demand).collect();
    let behind = channels.iter().enumerate().filter(is_behind).filter(|entry| !is_ahead(entry));
    let unit = behind.map(|(_, (demand, _))| demand.unit_cost_max).max().unwrap_or_default();
    response(order, model, &own.0, &ahead, unit)
}

/// Whether all but the one at `spared` keep their bounds.
fn others_keep(order: Order, model: &StageModel, channels: &[Channel], spared: usize) -> bool {
    (0..channels.len()).filter(|&index| index != spared).all(|index| {
        response_of(order, model, channels, index).is_some_and(|response| response <= channels[index].1.0)
    })
}

/// The channels with a newcomer at `place`.
fn with(channels: &[Channel], place: usize, newcomer: Channel) -> Vec<Channel> {
    let mut all = channels.to_vec();
    all.insert(place, newcomer);
    all
}

/// The place and the least bound of a newcomer, by the rule of the order. Under `d-order` the highest rank
/// that the lower channels bear, by levels the first that its own bound then belongs to and that all bear, by
/// rates the only one.
fn offer(order: Order, model: &StageModel, channels: &[Channel], demand: &Demand) -> Option<(usize, u64)> {
    let at = |place: usize, assumed: Nanos| {
        let all = with(channels, place, (*demand, assumed));
        (response_of(order, model, &all, place), others_keep(order, model, &all, place))
    };
    match order {
        Order::Ranks => {
            let lower_keep = |&place: &usize| {
                let all = with(channels, place, (*demand, Nanos::MAX));
                (place + 1..all.len()).all(|index| {
                    response_of(order, model, &all, index).is_some_and(|found| found <= all[index].1.0)
                })
            };
            let highest = (0..=channels.len()).find(lower_keep)?;
            let (bound, keep) = at(highest, Nanos::MAX);
            bound.filter(|_| keep).map(|bound| (highest, bound))
        }
        Order::Levels => (0..LEVELS).find_map(|wanted| {
            let floor = level_floor(wanted);
            let place = channels.iter().filter(|(_, bound)| level(*bound) <= wanted).count();
            let bound = at(place, floor).0?.max(floor.0);
            (level(Nanos(bound)) == wanted && at(place, Nanos(bound)).1).then_some((place, bound))
        }),
        Order::Rates => {
            let place = channels.iter().filter(|(other, _)| other.urgency <= demand.urgency).count();
            let (bound, keep) = at(place, Nanos::MAX);
            bound.filter(|_| keep).map(|bound| (place, bound))
        }
    }
}

/// The place of a newcomer that is to have `bound`. `d-order` prefers the order of the bounds, then the place
/// that it had before.
fn place_for(
    order: Order,
    model: &StageModel,
    channels: &[Channel],
    newcomer: Channel,
    had: Option<usize>,
) -> Option<usize> {
    let keep = |&place: &usize| others_keep(order, model, &with(channels, place, newcomer), usize::MAX);
    let count = |is_ahead: &dyn Fn(&Channel) -> bool| channels.iter().filter(|other| is_ahead(other)).count();
    match order {
        Order::Ranks => {
            let sorted = channels.iter().rposition(|other| other.1 <= newcomer.1).map_or(0, |last| last + 1);
            // The first place from there on that those below bear, or the one before, or any.
            (sorted..=channels.len())
                .find(|place| {
                    let all = with(channels, *place, newcomer);
                    (place + 1..all.len()).all(|index| {
                        response_of(order, model, &all, index).is_some_and(|found| found <= all[index].1.0)
                    })
                })
                .filter(|place| keep(place))
                .or_else(|| had.filter(keep))
                .or_else(|| (0..=channels.len()).find(keep))
        }
        Order::Levels => Some(count(&|other| level(other.1) <= level(newcomer.1))).filter(keep),
        Order::Rates => Some(count(&|other| other.0.urgency <= newcomer.0.urgency)).filter(keep),
    }
}

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
