//! The static scheduling service: rate groups and priorities of periodic flows on one processor (RTU 3; TAO's
//! scheduling service; Liu and Layland 1973).
//!
//! A flow that other flows run after shares the rate group of the fastest of them, in a place before them: it
//! is served first whenever both have work, whatever their periods are. Response times are those of `rmdp`'s
//! admission, so that a processor under `rmdp` admits what a plan reports as schedulable.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::activation::FlowName;
use crate::policies::ranked::response_times;
use crate::policy::{Class, Demand, PLACES_MAX, Urgency};
use crate::stage::StageModel;
use crate::units::{Nanos, Ppm};

/// Largest factor of all costs in the search for the margin.
const FACTOR_MAX: u64 = 1_000;
/// Longest period that is suggested, in multiples of the flow's own.
const STRETCH_MAX: u64 = 64;

/// The data of one flow on one processor that a plan needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Name of the flow.
    pub name: FlowName,
    /// Time between two expiries of the flow's timer.
    pub period: Nanos,
    /// Processor time that the packets of one period cost.
    pub cost: Nanos,
    /// Longest part of `cost` that nothing preempts.
    pub unit_cost_max: Nanos,
    /// Time after the timer by which a period's packets must be processed; at most the period.
    pub deadline: Nanos,
    /// Flows, by index, whose work of the same time is served first.
    pub after: Vec<usize>,
}

/// The result of a plan for one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// The rate group and the place in it.
    pub urgency: Urgency,
    /// Priority of the flow among the processor's flows; 0 is the most urgent.
    pub priority: u32,
    /// Share of the processor that the flow takes.
    pub utilisation: Ppm,
    /// Worst-case response time, counted from the timer; `None` if it is unbounded.
    pub response: Option<Nanos>,
    /// Whether the response time is within the deadline.
    pub schedulable: bool,
}

/// A plan for one processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The result for each flow, in the order in which the flows were given.
    pub flows: Vec<Planned>,
    /// Share of the processor that all flows and other work together take.
    pub utilisation: Ppm,
    /// Whether every flow meets its deadline within the utilisation that may be reserved.
    pub schedulable: bool,
    /// The factor by which all costs may grow (below 1: must shrink), in millionths, the largest that holds.
    /// `None` if the plan would fail even without any cost.
    pub margin_ppm: Option<u64>,
}

/// Flows that cannot be planned at all.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// Flows that run after each other, in a cycle.
    #[error("flow \"{0}\" runs after itself: remove one \"after\" from the circle")]
    Circle(FlowName),
    /// More flows in a rate group than it has places.
    #[error("more than {PLACES_MAX} flows in the rate group of {0}: use more periods or fewer flows")]
    RateGroup(Nanos),
    /// A deadline beyond the period.
    #[error("flow \"{name}\": deadline {deadline} is not within its period {period}: shorten it")]
    Deadline {
        /// Name of the flow.
        name: FlowName,
        /// Deadline of the flow.
        deadline: Nanos,
        /// Period of the flow.
        period: Nanos,
    },
    /// A value of zero.
    #[error("flow \"{0}\": period, cost and deadline must be more than 0")]
    Zero(FlowName),
}

/// A change that makes a plan schedulable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// This flow with a deadline of its response time.
    Deadline(usize, Nanos),
    /// This flow with a longer period.
    Period(usize, Nanos),
    /// All costs times this many millionths.
    Costs(u64),
    /// No change that was tried helps: the processor has no time to reserve.
    None,
}

/// The model of a processor for a plan.
#[derive(Clone, Copy, Debug)]
pub struct Processor<'a> {
    /// Blocking, interference, and the utilisation that may be reserved.
    pub model: StageModel,
    /// Longest time from a timer's expiry until the processor handles it.
    pub release_latency: Nanos,
    /// Other work of the processor (signalling).
    pub beside: &'a [Demand],
}

/// Plans `flows` on a processor.
///
/// # Errors
/// If they contradict themselves.
pub fn plan(flows: &[Flow], processor: Processor<'_>) -> Result<Plan, PlanError> {
    check(flows)?;
    let order = order(flows)?;
    let set = Set { flows, processor, urgencies: urgencies(flows, &order)? };
    let demands = set.demands(1_000_000);
    let responses = response_times(processor.model, &demands);
    let mut priorities = alloc::vec![0; flows.len()];
    for (priority, &(_, index)) in order.iter().enumerate() {
        priorities[index] = priority as u32;
    }
    let planned = |index: usize| Planned {
        urgency: set.urgencies[index],
        priority: priorities[index],
        utilisation: share(&demands[index]),
        response: responses[index],
        schedulable: responses[index].is_some_and(|response| response <= flows[index].deadline),
    };
    Ok(Plan {
        flows: (0..flows.len()).map(planned).collect(),
        utilisation: set.utilisation(&demands),
        schedulable: set.holds(1_000_000),
        margin_ppm: set.margin(),
    })
}

/// The remedy for a plan that is not schedulable: the smallest change of one flow, else of all costs.
pub fn remedy(flows: &[Flow], plan: &Plan, processor: Processor<'_>) -> Remedy {
    let late = |index: &usize| !plan.flows[*index].schedulable;
    if let Some(index) = (0..flows.len()).find(late)
        && let Some(response) = plan.flows[index].response
        && response <= flows[index].period
        && (0..flows.len()).filter(late).count() == 1
    {
        return Remedy::Deadline(index, response);
    }
    let holds = |index: usize, period: Nanos| {
        let mut changed = flows.to_vec();
        changed[index].deadline = Nanos(
            (u128::from(changed[index].deadline.0) * u128::from(period.0) / u128::from(flows[index].period.0))
                as u64,
        );
        changed[index].period = period;
        self::plan(&changed, processor).is_ok_and(|plan| plan.schedulable)
    };
    let largest = (0..flows.len()).max_by_key(|&index| plan.flows[index].utilisation);
    if let Some(index) = largest.filter(|&index| holds(index, flows[index].period * STRETCH_MAX)) {
        let (mut short, mut long) = (flows[index].period, flows[index].period * STRETCH_MAX);
        // Search to within a 128th of the period.
        while long.0 - short.0 > flows[index].period.0 / 128 + 1 {
            let middle = Nanos(short.0 + (long.0 - short.0) / 2);
            if holds(index, middle) { long = middle } else { short = middle }
        }
        return Remedy::Period(index, long);
    }
    plan.margin_ppm.filter(|&factor| factor > 0).map_or(Remedy::None, Remedy::Costs)
}

fn check(flows: &[Flow]) -> Result<(), PlanError> {
    for flow in flows {
        if flow.period == Nanos::ZERO || flow.cost == Nanos::ZERO || flow.deadline == Nanos::ZERO {
            return Err(PlanError::Zero(flow.name));
        }
        if flow.deadline > flow.period {
            let Flow { name, deadline, period, .. } = *flow;
            return Err(PlanError::Deadline { name, deadline, period });
        }
    }
    Ok(())
}

/// Flows by rate group, predecessors first within one, else as they were given: the group's period and the flow.
fn order(flows: &[Flow]) -> Result<Vec<(Nanos, usize)>, PlanError> {
    // Predecessors first: each round takes those whose predecessors are all taken.
    let mut sorted: Vec<usize> = Vec::with_capacity(flows.len());
    while sorted.len() < flows.len() {
        let free = |index: &usize| {
            !sorted.contains(index) && flows[*index].after.iter().all(|before| sorted.contains(before))
        };
        let next: Vec<usize> = (0..flows.len()).filter(free).collect();
        if next.is_empty() {
            let stuck = (0..flows.len()).find(|index| !sorted.contains(index)).unwrap_or_default();
            return Err(PlanError::Circle(flows[stuck].name));
        }
        sorted.extend(next);
    }
    // Successors first: a flow is in the rate group of the fastest flow that runs after it.
    let mut groups: Vec<Nanos> = flows.iter().map(|flow| flow.period).collect();
    for &index in sorted.iter().rev() {
        for &before in &flows[index].after {
            groups[before] = groups[before].min(groups[index]);
        }
    }
    let mut order: Vec<(Nanos, usize)> = sorted.into_iter().map(|index| (groups[index], index)).collect();
    order.sort_by_key(|&(group, _)| group);
    Ok(order)
}

/// Places within each rate group, from 1 on: unplanned work precedes them.
fn urgencies(flows: &[Flow], order: &[(Nanos, usize)]) -> Result<Vec<Urgency>, PlanError> {
    let mut urgencies = alloc::vec![Urgency::default(); flows.len()];
    let mut last = (Nanos::ZERO, 0);
    for &(rate, index) in order {
        let place = if last.0 == rate { last.1 + 1 } else { 1 };
        if place > PLACES_MAX {
            return Err(PlanError::RateGroup(rate));
        }
        last = (rate, place);
        urgencies[index] = Urgency { class: Class::Guaranteed, rate, place };
    }
    Ok(urgencies)
}

fn share(demand: &Demand) -> Ppm {
    let ppm = (u128::from(demand.cost.0) * 1_000_000).div_ceil(u128::from(demand.period.0.max(1)));
    Ppm(u32::try_from(ppm).unwrap_or(u32::MAX))
}

struct Set<'a> {
    flows: &'a [Flow],
    processor: Processor<'a>,
    urgencies: Vec<Urgency>,
}

impl Set<'_> {
    /// The demands of the flows with all costs times `factor_ppm` millionths, then the other work.
    fn demands(&self, factor_ppm: u64) -> Vec<Demand> {
        let scaled = |cost: Nanos| {
            let ns = (u128::from(cost.0) * u128::from(factor_ppm)).div_ceil(1_000_000);
            Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
        };
        let of = |(flow, urgency): (&Flow, &Urgency)| Demand {
            cost: scaled(flow.cost),
            unit_cost_max: scaled(flow.unit_cost_max.min(flow.cost)),
            period: flow.period,
            release_latency: self.processor.release_latency,
            early: Nanos::ZERO,
            urgency: *urgency,
            soft: None,
        };
        self.flows.iter().zip(&self.urgencies).map(of).chain(self.processor.beside.iter().copied()).collect()
    }

    fn utilisation(&self, demands: &[Demand]) -> Ppm {
        let sum = demands.iter().fold(0_u32, |sum, demand| sum.saturating_add(share(demand).0));
        Ppm(sum.saturating_add(self.processor.model.interference.rho.0))
    }

    fn holds(&self, factor_ppm: u64) -> bool {
        let demands = self.demands(factor_ppm);
        let met = |(response, flow): (Option<Nanos>, &Flow)| {
            response.is_some_and(|response| response <= flow.deadline)
        };
        self.utilisation(&demands) <= self.processor.model.utilisation_limit
            && response_times(self.processor.model, &demands).into_iter().zip(self.flows).all(met)
    }

    /// Response times grow with costs, so bisection finds the margin.
    fn margin(&self) -> Option<u64> {
        if !self.holds(0) {
            return None;
        }
        let (mut fits, mut breaks) = (0, FACTOR_MAX * 1_000_000);
        while breaks - fits > 1 {
            let middle = fits + (breaks - fits) / 2;
            if self.holds(middle) { fits = middle } else { breaks = middle }
        }
        Some(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::{Blocking, Interference};

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn processor() -> Processor<'static> {
        let model = StageModel {
            blocking: Blocking::LargestUnit { best_effort: Nanos::ZERO },
            interference: Interference::default(),
            utilisation_limit: Ppm::ONE,
        };
        Processor { model, release_latency: Nanos::ZERO, beside: &[] }
    }

    /// Preemptible every microsecond.
    fn flow(name: &str, cost_us: u64, period_ms: u64, after: &[usize]) -> Flow {
        let (cost, period) = (Nanos::from_micros(cost_us), MS(period_ms));
        Flow {
            name: FlowName::new(name).unwrap(),
            period,
            cost,
            unit_cost_max: Nanos::from_micros(1),
            deadline: period,
            after: after.to_vec(),
        }
    }

    fn planned(flows: &[Flow]) -> Plan {
        plan(flows, processor()).unwrap()
    }

    #[test]
    fn shorter_periods_go_first_and_response_times_add_up() {
        let plan = planned(&[flow("c", 3_000, 20, &[]), flow("a", 1_000, 5, &[]), flow("b", 2_000, 10, &[])]);
        let priorities: Vec<_> = plan.flows.iter().map(|flow| flow.priority).collect();
        assert_eq!(priorities, [2, 0, 1]);
        // 3 + 1 + 2 + 1 (a again at 5), with a microsecond of a less urgent unit.
        let expected = [7_000, 1_001, 3_001].map(|us| Some(Nanos::from_micros(us)));
        let found: Vec<_> = plan.flows.iter().map(|flow| flow.response).collect();
        assert_eq!(found, expected);
        assert!(plan.schedulable && plan.utilisation == Ppm(550_000));
    }

    /// A flow that the fastest flow of a chain waits for is as urgent as that one, however far before it, and
    /// precedes slower flows.
    #[test]
    fn a_chain_runs_in_its_order_at_the_rate_of_its_fastest() {
        let plan = planned(&[
            flow("d", 100, 10, &[]),
            flow("a", 100, 20, &[]),
            flow("b", 100, 20, &[1]),
            flow("c", 100, 5, &[2]),
        ]);
        let priorities: Vec<_> = plan.flows.iter().map(|flow| flow.priority).collect();
        assert_eq!(priorities, [3, 0, 1, 2]);
    }

    /// Liu and Layland: harmonic periods can use the whole processor, others cannot.
    #[test]
    fn the_margin_is_the_edge() {
        let harmonic = planned(&[flow("a", 2_000, 10, &[]), flow("b", 6_000, 20, &[])]);
        assert_eq!(harmonic.flows[1].utilisation, Ppm(300_000));
        let margin = harmonic.margin_ppm.unwrap();
        assert!((1_998_000..=2_000_000).contains(&margin), "{margin}");
        let over = planned(&[flow("a", 5_000, 10, &[]), flow("b", 7_500, 14, &[])]);
        assert!(!over.schedulable && over.margin_ppm.unwrap() < 1_000_000);
        let flows = [flow("a", 5_000, 10, &[]), flow("b", 7_500, 14, &[])];
        let scaled = |factor: u64| {
            let mut flows = flows.to_vec();
            for flow in &mut flows {
                flow.cost = Nanos((flow.cost.0 * factor).div_ceil(1_000_000));
                flow.unit_cost_max = Nanos((flow.unit_cost_max.0 * factor).div_ceil(1_000_000));
            }
            planned(&flows).schedulable
        };
        let margin = over.margin_ppm.unwrap();
        assert!(scaled(margin) && !scaled(margin + 2));
    }

    /// All costs grow by the margin, those of the units that block others too.
    #[test]
    fn the_margin_counts_what_growing_units_block() {
        let urgent = Flow { deadline: MS(4), ..flow("a", 2_000, 10, &[]) };
        let long = Flow { unit_cost_max: Nanos::from_micros(1_500), ..flow("b", 4_000, 40, &[]) };
        // The urgent one takes 2 ms behind a unit of 1.5 ms: 3.5 ms of its 4.
        let margin = planned(&[urgent, long]).margin_ppm.unwrap();
        assert!((1_142_850..=1_142_860).contains(&margin), "{margin}");
    }

    /// Costs that fit even at the largest factor have that margin.
    #[test]
    fn the_margin_ends_at_the_largest_factor() {
        for (cost_us, margin) in [(10, FACTOR_MAX * 1_000_000 - 1), (20, 500 * 1_000_000)] {
            assert_eq!(planned(&[flow("a", cost_us, 10, &[])]).margin_ppm, Some(margin), "{cost_us} us");
        }
    }

    /// Flows that fit at no cost, but not at any, have the margin 0. With a processor that lacks time for its
    /// other work already they have none.
    #[test]
    fn a_set_without_room_for_any_cost_has_the_margin_zero() {
        let other = |cost| Demand {
            cost: Nanos::from_micros(cost),
            unit_cost_max: Nanos::from_micros(1),
            period: MS(1),
            release_latency: Nanos::ZERO,
            early: Nanos::ZERO,
            urgency: Urgency::default(),
            soft: None,
        };
        for (cost_us, margin_ppm) in [(500, Some(0)), (501, None)] {
            let beside = [other(cost_us)];
            let model = StageModel { utilisation_limit: Ppm(500_000), ..processor().model };
            let processor = Processor { model, beside: &beside, ..processor() };
            let plan = plan(&[flow("a", 1_000, 10, &[])], processor).unwrap();
            assert_eq!(plan.margin_ppm, margin_ppm, "{cost_us} us");
        }
    }

    #[test]
    fn what_others_run_after_goes_before_them_whatever_its_period() {
        // slow <- fast: the slow one joins the fast one's group, in front.
        let plan = planned(&[
            flow("fast", 1_000, 7, &[1]),
            flow("slow", 1_000, 20, &[]),
            flow("other", 1_000, 10, &[]),
            flow("twin", 1_000, 10, &[2]),
        ]);
        let place = |index: usize| (plan.flows[index].urgency.rate, plan.flows[index].urgency.place);
        assert_eq!([place(1), place(0)], [(MS(7), 1), (MS(7), 2)]);
        assert_eq!([place(2), place(3)], [(MS(10), 1), (MS(10), 2)]);
        for (index, before) in [(0, 1), (3, 2)] {
            assert!(plan.flows[before].priority < plan.flows[index].priority);
        }
    }

    #[test]
    fn what_is_answered_too_late_or_never_is_not_schedulable() {
        let full = planned(&[flow("a", 6_000, 10, &[]), flow("b", 10_000, 20, &[])]);
        assert_eq!(full.flows[1].response, None, "it waits for ever");
        assert_eq!([full.flows[0].schedulable, full.flows[1].schedulable], [true, false]);
        let tight = [flow("a", 2_000, 10, &[]), Flow { deadline: MS(5), ..flow("b", 4_000, 20, &[]) }];
        assert!(!planned(&tight).flows[1].schedulable);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let circle = [flow("a", 1, 5, &[1]), flow("b", 1, 5, &[0])];
        assert!(matches!(plan(&circle, processor()), Err(PlanError::Circle(_))));
        let late = [Flow { deadline: MS(9), ..flow("a", 1, 5, &[]) }];
        assert!(matches!(plan(&late, processor()), Err(PlanError::Deadline { .. })));
        let whole = flow("a", 1, 5, &[]);
        let zero = Nanos::ZERO;
        for none in [
            Flow { cost: zero, ..whole.clone() },
            Flow { period: zero, ..whole.clone() },
            Flow { deadline: zero, ..whole.clone() },
        ] {
            let refused = plan(&[whole.clone(), none.clone()], processor());
            assert!(matches!(refused, Err(PlanError::Zero(name)) if name == none.name), "{none:?}");
        }
        let many: Vec<_> = (0..64).map(|n| flow(&alloc::format!("f{n}"), 1, 5, &[])).collect();
        assert!(matches!(plan(&many, processor()), Err(PlanError::RateGroup(_))));
    }

    #[test]
    fn a_remedy_makes_the_plan_schedulable() {
        let tight = [flow("a", 2_000, 10, &[]), Flow { deadline: MS(5), ..flow("b", 4_000, 20, &[]) }];
        let found = planned(&tight);
        assert_eq!(
            remedy(&tight, &found, processor()),
            Remedy::Deadline(1, found.flows[1].response.unwrap())
        );
        let full = [flow("a", 6_000, 10, &[]), flow("b", 10_000, 20, &[])];
        let Remedy::Period(index, period) = remedy(&full, &planned(&full), processor()) else {
            panic!("a longer period helps")
        };
        let mut slower = full.to_vec();
        (slower[index].period, slower[index].deadline) = (period, period);
        assert!(planned(&slower).schedulable && period < full[index].period * 2);
    }

    /// Periods of a few nanoseconds: the search for a longer one ends, with a sufficient one.
    #[test]
    fn a_remedy_of_the_shortest_periods_is_found() {
        let short = |name, cost, period| Flow {
            cost: Nanos(cost),
            period: Nanos(period),
            deadline: Nanos(period),
            unit_cost_max: Nanos(1),
            ..flow(name, 1, 5, &[])
        };
        let full = [short("a", 60, 100), short("b", 60, 100)];
        let plan = plan(&full, processor()).expect("it contradicts nothing");
        assert!(!plan.schedulable);
        let Remedy::Period(index, period) = remedy(&full, &plan, processor()) else { panic!("longer helps") };
        let with = |period: Nanos| {
            let mut slower = full.to_vec();
            (slower[index].period, slower[index].deadline) = (period, period);
            super::plan(&slower, processor()).expect("it contradicts nothing").schedulable
        };
        assert!(with(period) && !with(period - Nanos(1)), "{period}");
    }

    /// The period of a remedy exceeds the shortest that helps by at most a 128th of the old one and a nanosecond.
    #[test]
    fn a_remedy_is_close_to_the_shortest_period_that_helps() {
        let mut found = 0;
        for (first, second, period) in
            (40..90).flat_map(|n| [(n, 70, 100), (n, 95, 100), (n * 10, 700, 1_000)])
        {
            let flow = |name, cost| Flow {
                cost: Nanos(cost),
                period: Nanos(period),
                deadline: Nanos(period),
                unit_cost_max: Nanos(1),
                ..flow(name, 1, 5, &[])
            };
            let full = [flow("a", first), flow("b", second)];
            let Remedy::Period(index, longer) = remedy(&full, &planned(&full), processor()) else { continue };
            let with = |period: Nanos| {
                let mut slower = full.to_vec();
                (slower[index].period, slower[index].deadline) = (period, period);
                planned(&slower).schedulable
            };
            let shorter = longer - Nanos(period / 128 + 1);
            assert!(with(longer) && !with(shorter), "{longer} for {full:?}");
            found += 1;
        }
        assert!(found > 100, "{found}");
    }
}
