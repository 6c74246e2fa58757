//! Plans of a processor: the order of flows, their shares, what is schedulable and by how much, and remedies, where costs and
//! periods are a few nanoseconds.

use punctual_analysis::plan::{Flow, Plan, PlanError, Planned, Processor, Remedy, plan, remedy};
use punctual_analysis::policy::PLACES_MAX;
use punctual_analysis::{Blocking, Class, Demand, FlowName, Interference, Nanos, Ppm, StageModel, Urgency};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn processor(beside: &[Demand], best_effort: u64, rho: u32) -> Processor<'_> {
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort: Nanos(best_effort) },
        interference: Interference { sigma: Nanos(0), rho: Ppm(rho) },
        utilisation_limit: Ppm::ONE,
    };
    Processor { model, release_latency: Nanos(0), beside }
}

fn flow(number: usize, cost: u64, period: u64, deadline: u64, after: &[usize]) -> Flow {
    Flow {
        name: FlowName::new(&format!("f{number}")).expect("a name"),
        period: Nanos(period),
        cost: Nanos(cost),
        unit_cost_max: Nanos(1),
        deadline: Nanos(deadline),
        after: after.to_vec(),
    }
}

fn other(cost: u64, period: u64) -> Demand {
    let (cost, period) = (Nanos(cost), Nanos(period));
    Demand {
        cost,
        unit_cost_max: Nanos(1),
        period,
        release_latency: Nanos(0),
        early: Nanos(0),
        urgency: Urgency::of_period(Class::LowLatency, period),
        soft: None,
    }
}

/// The flows that run after `index`, directly or not, and itself.
fn successors(flows: &[Flow], index: usize) -> Vec<usize> {
    let mut found = vec![index];
    while let Some(next) = (0..flows.len())
        .find(|next| !found.contains(next) && flows[*next].after.iter().any(|i| found.contains(i)))
    {
        found.push(next);
    }
    found
}

/// Parts per million, rounded up; a period of nothing counts as a nanosecond.
fn share(cost: u64, period: u64) -> u32 {
    u32::try_from((cost * 1_000_000).div_ceil(if period == 0 { 1 } else { period })).unwrap_or(u32::MAX)
}

/// Flows of random sets: a group is that of the fastest successor, predecessors are first in it, and places are counted from
/// one. Flows hold if each meets its deadline within the limit, up to costs that are the margin times as large.
#[test]
fn a_plan_reports_groups_shares_and_what_holds() {
    let (mut held, mut late, mut full) = (0, 0, 0);
    for seed in 0..600 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let count = rng.random_range(1..5);
        let flows: Vec<Flow> = (0..count)
            .map(|index| {
                let period = [40, 60, 60, 130][rng.random_range(0..4)];
                let after: Vec<usize> = (0..index).filter(|_| rng.random_bool(0.3)).collect();
                flow(index, rng.random_range(1..30), period, rng.random_range(20..=period), &after)
            })
            .collect();
        let beside = [other(rng.random_range(1..9), rng.random_range(0..50))];
        let rho = [0, 50_000][rng.random_range(0..2)];
        let mut processor = processor(&beside[..rng.random_range(0..2)], rng.random_range(0..3), rho);
        let limit = [1_000_000, 600_000][rng.random_range(0..2)];
        processor.model.utilisation_limit = Ppm(limit);
        let found = plan(&flows, processor).expect("it contradicts nothing");
        let what = format!("seed {seed}: {flows:?}");
        for (index, planned) in found.flows.iter().enumerate() {
            let group = successors(&flows, index).into_iter().map(|next| flows[next].period).min();
            assert_eq!(
                (planned.urgency.class, Some(planned.urgency.rate)),
                (Class::Guaranteed, group),
                "{what}"
            );
            assert!(flows[index].after.iter().all(|i| found.flows[*i].priority < planned.priority), "{what}");
            let Flow { cost, period, deadline, .. } = flows[index];
            assert_eq!(planned.utilisation, Ppm(share(cost.0, period.0)), "{what}");
            assert_eq!(
                planned.schedulable,
                planned.response.is_some_and(|response| response <= deadline),
                "{what}"
            );
        }
        let mut order: Vec<&Planned> = found.flows.iter().collect();
        order.sort_by_key(|planned| planned.priority);
        for (number, planned) in order.iter().enumerate() {
            let before =
                order[..number].iter().filter(|other| other.urgency.rate == planned.urgency.rate).count();
            assert_eq!(
                (planned.priority, planned.urgency.place),
                (number as u32, before as u8 + 1),
                "{what}"
            );
            assert!(order[..number].iter().all(|other| other.urgency <= planned.urgency), "{what}");
        }
        let own: u64 = found.flows.iter().map(|planned| u64::from(planned.utilisation.0)).sum();
        let others: u64 = processor.beside.iter().map(|d| u64::from(share(d.cost.0, d.period.0))).sum();
        let used = own + others + u64::from(rho);
        assert_eq!(u64::from(found.utilisation.0), used, "{what}");
        let all_met = found.flows.iter().all(|planned| planned.schedulable);
        assert_eq!(found.schedulable, all_met && used <= limit.into(), "{what}");
        assert_eq!(found.schedulable, found.margin_ppm.is_some_and(|margin| margin >= 1_000_000), "{what}");
        (held, late) = (held + u32::from(found.schedulable), late + u32::from(!all_met));
        full += u32::from(all_met && !found.schedulable);
    }
    assert!(held > 100 && late > 100 && full > 20, "{held} {late} {full}");
}

/// A response that is exactly the deadline is in time, one that is a nanosecond longer is not.
#[test]
fn a_flow_may_take_all_of_its_deadline() {
    for (cost, in_time) in [(999_999, true), (1_000_000, true), (1_000_001, false)] {
        let found = plan(&[flow(0, cost, 4_000_000, 1_000_000, &[])], processor(&[], 0, 0)).expect("valid");
        assert_eq!(found.flows[0].response, Some(Nanos(cost)));
        assert_eq!((found.flows[0].schedulable, found.schedulable), (in_time, in_time), "{cost}");
    }
}

/// Flows that use all of the time never get rid of what blocks them first: within the limit, but never done.
#[test]
fn a_flow_that_is_never_done_is_not_schedulable() {
    let flows = [flow(0, 5_000, 10_000, 10_000, &[]), flow(1, 10_000, 20_000, 20_000, &[])];
    for (best_effort, response) in [(0, Some(Nanos(20_000))), (1, None)] {
        let found = plan(&flows, processor(&[], best_effort, 0)).expect("valid");
        assert_eq!(found.utilisation, Ppm::ONE);
        assert_eq!((found.flows[1].response, found.schedulable), (response, response.is_some()));
    }
}

/// Other work counts as the share of its costs in its periods; a period of nothing is a nanosecond.
#[test]
fn work_beside_counts_to_the_millionth() {
    for (cost, period) in
        [(0, 0), (1, 0), (1, 1), (3, 2), (1, 2), (1, 3), (2, 3), (1, 999_999), (1, 1_000_001), (1, 3_000_000)]
    {
        let beside = [other(cost, period)];
        let found = plan(&[flow(0, 1, 1_000_000, 1_000_000, &[])], processor(&beside, 0, 0)).expect("valid");
        assert_eq!(found.utilisation, Ppm(1 + share(cost, period)), "{cost} {period}");
    }
}

/// A rate group has as many places as have an order of their own. Flows that wait for each other are named by the first of
/// them, whether others can run or not.
#[test]
fn a_group_is_full_at_its_last_place_and_circles_are_named() {
    let many = |count: usize| -> Vec<Flow> { (0..count).map(|n| flow(n, 1, 1_000, 1_000, &[])).collect() };
    let most = usize::from(PLACES_MAX);
    assert_eq!(
        plan(&many(most), processor(&[], 0, 0)).map(|plan| plan.flows[most - 1].urgency.place),
        Ok(PLACES_MAX)
    );
    assert_eq!(plan(&many(most + 1), processor(&[], 0, 0)), Err(PlanError::RateGroup(Nanos(1_000))));
    let name = |afters: [&[usize]; 3]| {
        let flows: Vec<Flow> = (0..3).map(|n| flow(n, 1, 1_000, 1_000, afters[n])).collect();
        plan(&flows, processor(&[], 0, 0)).err()
    };
    let circle = |number: usize| Some(PlanError::Circle(flow(number, 1, 1, 1, &[]).name));
    assert_eq!(name([&[], &[], &[0]]), None);
    assert_eq!(
        [name([&[0], &[], &[]]), name([&[1], &[0], &[]]), name([&[2], &[], &[0]])],
        [0; 3].map(circle)
    );
    assert_eq!(
        [name([&[], &[2], &[1]]), name([&[], &[1], &[]]), name([&[2], &[2], &[2]])],
        [1, 1, 0].map(circle)
    );
    assert_eq!(name([&[], &[0], &[2]]), circle(2));
}

/// One late flow that is answered within its period needs a longer deadline: its response.
#[test]
fn a_single_late_flow_gets_the_deadline_that_it_meets() {
    let remedy_of = |flows: &[Flow], beside: &[Demand]| {
        let processor = processor(beside, 0, 0);
        remedy(flows, &plan(flows, processor).expect("valid"), processor)
    };
    let late = |number, period| flow(number, 60, period, 30, &[]);
    let calm = |number| flow(number, 1, 100, 100, &[]);
    // Alone its response is its cost, which may be all of its period.
    for period in [60, 61, 100] {
        assert_eq!(remedy_of(&[late(0, period)], &[]), Remedy::Deadline(0, Nanos(60)), "{period}");
    }
    // Behind a more urgent nanosecond each 60 ns: 62 of 62.
    assert_eq!(remedy_of(&[late(0, 62)], &[other(1, 60)]), Remedy::Deadline(0, Nanos(62)));
    assert!(!matches!(remedy_of(&[late(0, 61)], &[other(1, 60)]), Remedy::Deadline(..)));
    assert_eq!(remedy_of(&[calm(0), flow(1, 60, 200, 30, &[])], &[]), Remedy::Deadline(1, Nanos(61)));
    assert_eq!(
        remedy_of(&[late(0, 90), flow(1, 1, 100, 100, &[])], &[]),
        Remedy::Deadline(0, Nanos(61)),
        "a unit"
    );
    // Two late ones need more than one deadline.
    for flows in [[late(0, 200), late(1, 300)], [late(0, 300), late(1, 200)]] {
        assert!(!matches!(remedy_of(&flows, &[]), Remedy::Deadline(..)), "{flows:?}");
    }
}

fn with_period(flows: &[Flow], index: usize, period: u64) -> Plan {
    let mut changed = flows.to_vec();
    (changed[index].period, changed[index].deadline) = (Nanos(period), Nanos(period));
    plan(&changed, processor(&[], 0, 0)).expect("valid")
}

/// Otherwise the flow that takes most gets a longer period: close to the shortest that helps, to a 128th of the old one and a
/// nanosecond.
#[test]
fn the_flow_that_takes_most_gets_a_longer_period() {
    let mut found = 0;
    let three_quarters = (100..260).map(|period| (period, period * 3 / 4));
    // 127 ns are the longest period of which a 128th is nothing.
    let exact = (90..120).map(|cost| (127, cost));
    for (largest, (period, cost)) in
        (0..3).flat_map(|largest| three_quarters.clone().chain(exact.clone()).map(move |one| (largest, one)))
    {
        let costs = [0, 1, 2].map(|index| if index == largest { cost } else { period / 6 });
        let flows: Vec<Flow> = (0..3).map(|n| flow(n, costs[n], period, period, &[])).collect();
        let (processor, first) = (processor(&[], 0, 0), with_period(&flows, 0, period));
        if first.schedulable {
            continue;
        }
        let Remedy::Period(index, longer) = remedy(&flows, &first, processor) else { panic!("{flows:?}") };
        assert_eq!(index, largest, "{flows:?}");
        let shorter = longer.0 - (period / 128 + 1);
        assert!(with_period(&flows, index, longer.0).schedulable, "{longer} of {flows:?}");
        assert!(!with_period(&flows, index, shorter).schedulable, "{longer} of {flows:?}");
        found += 1;
    }
    assert!(found > 300, "{found}");
}

/// If no flow's period helps, all costs shrink to the margin; without a margin nothing helps.
#[test]
fn costs_shrink_to_the_margin_if_there_is_one() {
    let flows = [flow(0, 10, 100, 100, &[])];
    let beside = [other(100, 100)];
    let processor = processor(&beside, 0, 0);
    let plan = plan(&flows, processor).expect("valid");
    assert!(!plan.schedulable);
    for (margin_ppm, expected) in [
        (None, Remedy::None),
        (Some(0), Remedy::None),
        (Some(1), Remedy::Costs(1)),
        (Some(2), Remedy::Costs(2)),
        (Some(999_999), Remedy::Costs(999_999)),
    ] {
        assert_eq!(remedy(&flows, &Plan { margin_ppm, ..plan.clone() }, processor), expected);
    }
}
