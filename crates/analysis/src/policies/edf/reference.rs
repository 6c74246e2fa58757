//! The demand-bound test from first principles, by Quick Processor-demand Analysis (Zhang and Burns 2009).
//!
//! Deliberately independent of the incremental search: each is tested against the other.

use alloc::vec::Vec;

use crate::mutation::{Mutation, active};
use crate::policy::Demand;
use crate::stage::StageModel;
use crate::units::Nanos;

/// Whether EDF keeps every bound of `channels` (demand, bound); `None` if the busy period exceeds `limit`, so
/// that the answer is unknown.
pub fn is_feasible(channels: &[(Demand, Nanos)], model: &StageModel, limit: Nanos) -> Option<bool> {
    if channels.iter().any(|(demand, bound)| bound <= &demand.release_latency) {
        return Some(false);
    }
    // What is due after the busy period is done in time if what is due in it is: a later bound need not be
    // looked at.
    let busy = busy_period(channels, model, limit)?;
    // blocking(t) decreases with t, which QPA does not support, so QPA runs between the decreases.
    let decreases = channels.iter().map(|(demand, bound)| *bound - demand.release_latency);
    let mut edges: Vec<Nanos> = decreases.chain([Nanos::ZERO, busy]).collect();
    edges.sort_unstable();
    Some(edges.windows(2).all(|edge| keeps_between(channels, model, edge[0], edge[1])))
}

/// The demand that must be served by `t`, without blocking and interference.
fn demand_by(channels: &[(Demand, Nanos)], t: Nanos) -> Nanos {
    let due = |&(demand, bound): &(Demand, Nanos)| match (t + demand.release_latency).checked_sub(bound) {
        Some(since) => demand.cost * (since.0 / demand.period.0.max(1) + 1),
        None => Nanos::ZERO,
    };
    channels.iter().map(due).sum()
}

fn blocking_at(channels: &[(Demand, Nanos)], model: &StageModel, t: Nanos) -> Nanos {
    let unit = channels
        .iter()
        .filter(|(demand, bound)| *bound - demand.release_latency > t)
        .map(|(demand, _)| demand.unit_cost_max)
        .max();
    model.blocking.by(unit.unwrap_or_default())
}

/// The last step of demand before `t`.
fn step_before(channels: &[(Demand, Nanos)], t: Nanos) -> Option<Nanos> {
    let last = |&(demand, bound): &(Demand, Nanos)| {
        let first = bound - demand.release_latency;
        let since = t.checked_sub(first + Nanos(1))?;
        Some(first + demand.period * (since.0 / demand.period.0.max(1)))
    };
    channels.iter().filter_map(last).max()
}

/// QPA on [`from`, `to`): whether no step there has more demand than time.
fn keeps_between(channels: &[(Demand, Nanos)], model: &StageModel, from: Nanos, to: Nanos) -> bool {
    let blocking = blocking_at(channels, model, from);
    let mut next = step_before(channels, to);
    while let Some(t) = next.filter(|&t| t >= from) {
        let due = demand_by(channels, t);
        let needed = due + blocking + model.interference.within(t);
        if due > Nanos::ZERO && needed > t {
            return false;
        }
        // From `needed` up to t nothing can fail: no more is needed there.
        next = step_before(channels, needed.min(t));
    }
    true
}

/// L: the least fixed point of blocking + interference(L) + sum of ceil((L + r)/I')·C; blocking belongs in it.
fn busy_period(channels: &[(Demand, Nanos)], model: &StageModel, limit: Nanos) -> Option<Nanos> {
    let unit = channels.iter().map(|(demand, _)| demand.unit_cost_max).max().unwrap_or_default();
    let ignored = active(Mutation::LimitWithoutBlocking);
    let blocking = if ignored { Nanos::ZERO } else { model.blocking.by(unit) };
    let mut busy = Nanos(1);
    loop {
        let work = |(demand, _): &(Demand, Nanos)| {
            demand.cost * (busy + demand.release_latency).div_ceil(demand.period)
        };
        let next = blocking + model.interference.within(busy) + channels.iter().map(work).sum();
        if next <= busy {
            return Some(busy);
        }
        if next > limit {
            return None;
        }
        busy = next;
    }
}
