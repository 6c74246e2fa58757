//! The rules of the fixed orders written out, for tests: a response time by counting the work of each window, a place by trying all of
//! them. It shares no code with the policy but the limits of the levels.

use alloc::vec::Vec;

use super::*;
use crate::stage::{Blocking, Interference};

/// No busy period that ends is longer, in nanoseconds.
const LONGEST: u64 = 1 << 40;

pub(super) type Channel = (Demand, Nanos);

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
pub(super) fn response(
    order: Order,
    model: &StageModel,
    own: &Demand,
    ahead: &[Demand],
    unit: Nanos,
) -> Option<u64> {
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
pub(super) fn response_of(
    order: Order,
    model: &StageModel,
    channels: &[Channel],
    index: usize,
) -> Option<u64> {
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
pub(super) fn others_keep(order: Order, model: &StageModel, channels: &[Channel], spared: usize) -> bool {
    (0..channels.len()).filter(|&index| index != spared).all(|index| {
        response_of(order, model, channels, index).is_some_and(|response| response <= channels[index].1.0)
    })
}

/// The channels with a newcomer at `place`.
pub(super) fn with(channels: &[Channel], place: usize, newcomer: Channel) -> Vec<Channel> {
    let mut all = channels.to_vec();
    all.insert(place, newcomer);
    all
}

/// The place and the least bound of a newcomer, by the rule of the order. Under `d-order` the highest rank
/// that the lower channels bear, by levels the first that its own bound then belongs to and that all bear, by
/// rates the only one.
pub(super) fn offer(
    order: Order,
    model: &StageModel,
    channels: &[Channel],
    demand: &Demand,
) -> Option<(usize, u64)> {
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
pub(super) fn place_for(
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
