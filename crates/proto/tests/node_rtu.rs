//! Programs' handlers on a node's processor (RTU 3, ADR 0051): admitted with a bound that holds, by every policy; served in
//! the order of their classes; within budgets; counted and demoted where they do not keep to what they have declared.

use std::cell::Cell;
use std::rc::Rc;

use punctual_analysis::contract::SPAN_MAX;
use punctual_proto::api::{
    Misconduct, Port, RtuClass, RtuCost, RtuEvent, RtuId, RtuRefusal, RtuTerms, UpcallDone,
};
use punctual_proto::config::{Admission, CpuConfig};
use punctual_proto::limits::{
    RTU_HANDLERS_MAX, RTU_PRIORITIES, RTU_UNITS_MAX, RTU_VIOLATION_SPAN, RTU_VIOLATIONS_MAX, RTUS_DUE_MAX,
};
use punctual_proto::signalling::SplitMix64;
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, Rate};
use punctual_rig::World;
use punctual_rig::handlers::{Bench, broken, cpu};

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const US: fn(u64) -> Nanos = Nanos::from_micros;
const AT: fn(u64) -> Instant = |us| Instant(us * 1_000);

fn terms(class: RtuClass, unit: Nanos) -> RtuTerms {
    RtuTerms { class, deadline: None, quantum: 1, cost: RtuCost { run: US(2), unit } }
}

fn low(interval: Nanos, units: u32) -> RtuClass {
    RtuClass::LowDelay { interval, units, priority: None }
}

/// A handler of every class, and the order in which they run that are all ready at once.
fn order_of(admission: Admission) -> Vec<usize> {
    let mut bench = Bench::new(cpu(admission));
    let classes =
        [RtuClass::BestEffort, RtuClass::periodic(MS(20), 1), RtuClass::periodic(MS(4), 1), low(MS(50), 1)];
    let ids = classes.map(|class| bench.register(terms(class, US(20))).expect("granted"));
    // Before a common begin of their periods.
    for id in ids {
        bench.arrive(id, AT(19_999), 1);
    }
    bench.run_until(AT(30_000));
    assert_eq!(bench.calls.len(), 4);
    bench.calls.iter().map(|call| ids.iter().position(|id| *id == call.id).expect("known")).collect()
}

#[test]
fn classes_go_before_periods_and_periods_before_arrival() {
    for admission in [Admission::RMDP, Admission::EDF, Admission::FIXED_PRIORITY, Admission::D_ORDER] {
        assert_eq!(order_of(admission), [3, 2, 1, 0], "{}", admission.name);
    }
}

/// Best effort takes turns of a quantum, however much of it waits.
#[test]
fn best_effort_handlers_take_turns() {
    for admission in [Admission::RMDP, Admission::EDF, Admission::FIXED_PRIORITY, Admission::D_ORDER] {
        let mut bench = Bench::new(cpu(admission));
        let quantum = |quantum| RtuTerms { quantum, ..terms(RtuClass::BestEffort, US(20)) };
        let ids = [4, 4, 2].map(|units| bench.register(quantum(units)).expect("best effort"));
        ids.iter().for_each(|id| bench.arrive(*id, AT(0), 400));
        for until in (1..=10).map(|n| AT(n * 1_000)) {
            bench.run_until(until);
            let [first, second, third] = ids.map(|id| bench.bodies[&id].done.len());
            let fair = first.abs_diff(second) <= 4 && first.abs_diff(2 * third) <= 4;
            assert!(fair && first > 0, "{}: {first}, {second}, {third} at {until:?}", admission.name);
        }
    }
}

/// Under `rmdp`, while a call runs others become ready: the next is always of the most urgent class that has work.
#[test]
fn rmdp_serves_low_delay_before_guaranteed_before_best_effort() {
    let mut bench = Bench::new(cpu(Admission::RMDP));
    let long = RtuTerms { quantum: 4, ..terms(RtuClass::BestEffort, US(20)) };
    let flood = bench.register(long).expect("best effort");
    let fast = bench.register(terms(RtuClass::periodic(MS(1), 2), US(20))).expect("granted");
    let slow = bench.register(terms(RtuClass::periodic(MS(7), 4), US(50))).expect("granted");
    let quick = bench.register(terms(low(MS(2), 3), US(15))).expect("granted");
    bench.arrive(flood, AT(0), 40_000);
    for n in 0..500 {
        bench.arrive(fast, AT(n * 1_000), 2);
        bench.arrive(slow, AT(n * 7_000 / 7), 1);
        bench.arrive(quick, AT(n * 2_000 + 17), 3);
    }
    bench.run_until(AT(500_000));
    let rank = |id: RtuId| [quick, fast, slow, flood].iter().position(|of| *of == id).expect("known");
    // A PDU of the low-delay handler waits only for the present call.
    for (came, done) in &bench.bodies[&quick].done {
        let ahead =
            bench.calls.iter().filter(|call| call.begun > *came && call.begun < *done && call.id != quick);
        let worse: Vec<_> = ahead.filter(|call| rank(call.id) > 0).collect();
        assert!(worse.is_empty(), "{came:?}..{done:?}: {worse:?}");
    }
    for id in [quick, fast, slow] {
        assert_eq!(broken(&bench.bodies[&id]), None);
        assert_eq!(bench.counters(id).late, 0);
    }
    assert!(bench.counters(flood).units_beyond > 1_000, "the rest is best effort's");
}

/// Under `rmdp` a bound gives no place in the order: handlers that are as urgent as one before, or more so, are granted, too, and all keep
/// their bounds.
#[test]
fn rmdp_grants_low_delay_handlers_one_after_the_other() {
    let mut bench = Bench::new(cpu(Admission::RMDP));
    let of = |interval, priority| RtuClass::LowDelay { interval, units: 2, priority };
    let classes = [of(MS(5), None), of(MS(5), None), of(MS(3), None), of(MS(4), Some(3)), of(MS(4), Some(1))];
    let ids = classes.map(|class| bench.register(terms(class, US(40))).expect("granted"));
    for n in 0..200 {
        ids.iter().for_each(|id| bench.arrive(*id, AT(n * 5_000), 2));
    }
    bench.run_until(AT(1_000_000));
    for (id, class) in ids.into_iter().zip(classes) {
        assert_eq!((broken(&bench.bodies[&id]), bench.counters(id).late), (None, 0), "{class:?}");
        assert_eq!(bench.counters(id).units, 400, "{class:?}");
    }
}

/// What a refusal names can be asked for: a deadline is at most the period.
#[test]
fn no_refusal_names_a_deadline_beyond_the_period() {
    for admission in [Admission::RMDP, Admission::EDF, Admission::FIXED_PRIORITY, Admission::D_ORDER] {
        let mut bench = Bench::new(cpu(admission));
        let first = bench.register(terms(RtuClass::periodic(MS(10), 4), US(800)));
        assert!(first.is_ok(), "{}", admission.name);
        for period in [US(500), MS(1), MS(2), MS(20)] {
            let asked = RtuTerms { deadline: Some(US(400)), ..terms(RtuClass::periodic(period, 1), US(150)) };
            let Err(refusal) = bench.register(asked) else { continue };
            let RtuRefusal::Processor(stage) = refusal else { panic!("{refusal}") };
            let Some(deadline) = stage.bound_possible else { continue };
            assert!(deadline <= period, "{}: {deadline} of {period}", admission.name);
            let granted = bench.register(RtuTerms { deadline: Some(deadline), ..asked });
            assert!(granted.is_ok(), "{}: {deadline} of {period}", admission.name);
        }
    }
}

#[test]
fn a_timed_handler_gets_its_units_in_every_period_and_no_more() {
    for admission in [Admission::RMDP, Admission::EDF, Admission::FIXED_PRIORITY, Admission::D_ORDER] {
        let mut bench = Bench::new(cpu(admission));
        let class = RtuClass::periodic(MS(2), 5);
        let id = bench.register(RtuTerms { quantum: 2, ..terms(class, US(30)) }).expect("granted");
        bench.arrive(id, AT(100), 1_000);
        bench.run_until(AT(100_000));
        assert_eq!(bench.counters(id).units, 49 * 5, "{}", admission.name);
        assert_eq!(bench.counters(id).calls, 49 * 3, "two, two and one: no call crosses the end of a budget");
        assert_eq!(broken(&bench.bodies[&id]), None, "{}", admission.name);
        assert!(bench.calls.iter().all(|call| call.units <= 2));
    }
}

/// It waits neither for a period to begin nor, beyond its budget, for idle time: it waits for its window.
#[test]
fn a_sporadic_guaranteed_handler_serves_what_comes_within_its_budget_at_once() {
    for admission in [Admission::RMDP, Admission::EDF, Admission::FIXED_PRIORITY, Admission::D_ORDER] {
        let mut bench = Bench::new(cpu(admission));
        let class = RtuClass::periodic(MS(2), 2).sporadic();
        let id = bench.register(RtuTerms { quantum: 2, ..terms(class, US(30)) }).expect("granted");
        for at in [100, 700, 900] {
            bench.arrive(id, AT(at), 1);
        }
        bench.run_until(AT(4_000));
        let done: Vec<_> = bench.bodies[&id].done.iter().map(|(_, done)| done.0 / 1_000).collect();
        let [first, second, third] = done[..] else { panic!("{}: {done:?}", admission.name) };
        assert!(first < 200 && second < 800, "{}: {done:?}", admission.name);
        assert!(
            (2_100..2_200).contains(&third),
            "{}: the first one's window is over at 2,100 us: {done:?}",
            admission.name
        );
        assert_eq!(broken(&bench.bodies[&id]), None, "{}", admission.name);
        assert_eq!((bench.counters(id).units, bench.counters(id).units_beyond), (3, 0), "{}", admission.name);
    }
}

#[test]
fn what_exceeds_a_low_delay_budget_runs_in_idle_time_as_best_effort() {
    let mut bench = Bench::new(cpu(Admission::RMDP));
    let greedy = bench.register(terms(low(MS(10), 2), US(20))).expect("granted");
    bench.arrive(greedy, AT(0), 10);
    bench.run_until(AT(5_000));
    let counters = bench.counters(greedy);
    assert_eq!((counters.units, counters.units_beyond), (2, 8), "the processor has nothing else to do");
    let busy = bench.register(terms(RtuClass::periodic(MS(1), 10), US(30))).expect("granted");
    for n in 0..40 {
        bench.arrive(busy, AT(10_000 + n * 1_000), 10);
    }
    bench.arrive(greedy, AT(10_000), 4_000);
    bench.run_until(AT(50_000));
    for id in [greedy, busy] {
        assert_eq!(broken(&bench.bodies[&id]), None);
    }
    assert!(bench.counters(greedy).units_beyond < 2_000, "it waits behind what is promised");
}

/// Handlers that are best effort, and what exceeds a budget, keep to the share of a flow; what is within the budget does not
/// count.
#[test]
fn best_effort_of_a_handler_keeps_to_the_share_of_a_flow() {
    let capped = CpuConfig { best_effort_flow_cpu_cap: Ppm(100_000), ..cpu(Admission::RMDP) };
    let mut bench = Bench::new(capped);
    let classes = [RtuClass::BestEffort, low(MS(10), 2)];
    let ids = classes.map(|class| bench.register(terms(class, US(20))).expect("granted"));
    ids.iter().for_each(|id| bench.arrive(*id, AT(0), 4_000));
    bench.run_until(AT(100_000));
    let [best_effort, promised] = ids.map(|id| bench.counters(id));
    // A tenth of 100 ms, and what a flow may take at once.
    for beyond in [best_effort.units + best_effort.units_beyond, promised.units_beyond] {
        assert!((250..600).contains(&beyond), "{beyond}");
    }
    assert!((18..=22).contains(&promised.units), "{}", promised.units);
}

/// Random sets under every policy: whatever is granted keeps its bound, beside best effort that never ends, where all ask for
/// as much as they may at once or now and then.
#[test]
fn whatever_is_granted_keeps_its_bound() {
    for admission in [Admission::RMDP, Admission::EDF, Admission::FIXED_PRIORITY, Admission::D_ORDER] {
        for seed in 0..60 {
            let granted = run_random(admission, seed);
            assert!(granted > 0, "{} seed {seed}", admission.name);
        }
    }
}

/// PDUs of a window may come one by one, so that each has a call of its own however long a quantum is. Others, whose work is
/// due later, keep their bounds all the same: as many as are granted have work at once.
#[test]
fn units_that_come_one_by_one_leave_others_the_time_that_they_were_granted() {
    for admission in [Admission::RMDP, Admission::EDF, Admission::FIXED_PRIORITY, Admission::D_ORDER] {
        let mut bench = Bench::new(CpuConfig { release_latency: US(10), ..cpu(admission) });
        let eight = RtuTerms { quantum: 8, ..terms(RtuClass::periodic(MS(8), 8).sporadic(), US(1)) };
        let quick = RtuTerms { deadline: Some(MS(1)), ..eight };
        let quick: Vec<_> = (0..5).map(|_| bench.register(quick).expect("granted")).collect();
        let one = terms(RtuClass::periodic(MS(10), 1).sporadic(), US(90));
        let slow = RtuTerms { deadline: Some(MS(5)), ..one };
        let slow: Vec<_> = (0..100).map_while(|_| bench.register(slow).ok()).collect();
        assert!((10..100).contains(&slow.len()), "{}: {}", admission.name, slow.len());
        slow.iter().for_each(|id| bench.arrive(*id, AT(0), 1));
        for (place, id) in (0..).zip(&quick) {
            (0..8).for_each(|n| bench.arrive(*id, AT((5 * n + place) * 100), 1));
        }
        bench.run_until(AT(20_000));
        assert_eq!(bench.calls.len(), slow.len() + 40, "{}: each has a call of its own", admission.name);
        for id in quick.iter().chain(&slow) {
            let found = (broken(&bench.bodies[id]), bench.counters(*id).late);
            assert_eq!(found, (None, 0), "{}", admission.name);
        }
    }
}

fn random_terms(random: &mut SplitMix64, admission: Admission) -> RtuTerms {
    let mut below = |most: u64| random.next() % most;
    let period = US(500 + below(20) * 250);
    let units = 1 + below(6) as u32;
    let priority =
        (admission == Admission::RMDP && below(3) == 0).then(|| below(RTU_PRIORITIES.into()) as u8);
    let class = match below(5) {
        0 | 1 => RtuClass::LowDelay { interval: period, units, priority },
        2 => RtuClass::periodic(period, units),
        3 => RtuClass::periodic(period, units).sporadic(),
        _ => RtuClass::BestEffort,
    };
    let deadline = (below(4) == 0).then(|| Nanos(period.0 - below(period.0 / 2)));
    let cost = RtuCost { run: US(below(4)), unit: US(1 + below(9)) };
    RtuTerms { class, deadline, quantum: 1 + below(8) as u32, cost }
}

fn run_random(admission: Admission, seed: u64) -> usize {
    let mut random = SplitMix64::new(seed);
    let mut bench = Bench::new(cpu(admission));
    let flood =
        bench.register(RtuTerms { quantum: 8, ..terms(RtuClass::BestEffort, US(9)) }).expect("granted");
    bench.arrive(flood, AT(0), 3_000);
    let wished: Vec<_> = (0..40).map(|_| random_terms(&mut random, admission)).collect();
    let ids: Vec<_> = wished.iter().filter_map(|terms| bench.register(*terms).ok()).collect();
    for id in &ids {
        let Some((units, period)) = bench.bodies[id].terms.budget() else { continue };
        let together = random.next().is_multiple_of(2);
        let mut at = if together { 0 } else { random.next() % period.0 };
        while at < 25_000_000 {
            bench.arrive(*id, Instant(at), 1 + (random.next() % u64::from(2 * units)) as u32);
            at += if together { period.0 } else { random.next() % (2 * period.0) };
        }
    }
    bench.run_until(AT(30_000));
    for id in &ids {
        let (body, counters) = (&bench.bodies[id], bench.counters(*id));
        assert_eq!(broken(body), None, "{} seed {seed}: {:?}", admission.name, body.terms);
        assert_eq!((counters.late, counters.overruns), (0, 0), "{} seed {seed}", admission.name);
    }
    let wrong = bench.node.accounts().into_iter().find(|account| account.counted != account.held);
    assert_eq!(wrong, None, "{} seed {seed}", admission.name);
    ids.iter().for_each(|id| bench.node.remove_handler(*id, AT(30_000)));
    bench.node.remove_handler(flood, AT(30_000));
    let places = bench.node.accounts().into_iter().find(|account| account.what == "places of handlers");
    assert_eq!(places.map(|places| (places.counted, places.held)), Some((0, 0)));
    assert_eq!(bench.node.cpu_utilisation(), Bench::new(cpu(admission)).node.cpu_utilisation());
    ids.len()
}

#[test]
fn a_refusal_offers_what_would_be_granted() {
    let mut bench = Bench::new(cpu(Admission::EDF));
    let heavy = terms(RtuClass::periodic(MS(1), 10), US(99));
    let refusal = bench.register(heavy).expect_err("more than there is");
    let RtuRefusal::Processor(offer) = refusal else { panic!("{refusal}") };
    let period = offer.period_possible.expect("a longer period");
    let slower = RtuTerms { class: RtuClass::periodic(period, 10), ..heavy };
    assert!(bench.register(slower).is_ok(), "{period}");
    let call = RtuTerms { quantum: 100, ..terms(low(MS(100), 100), US(10)) };
    let refusal = bench.register(call).expect_err("a long call");
    let RtuRefusal::Call { quantum_possible, .. } = refusal else { panic!("{refusal}") };
    assert!(refusal.to_string().ends_with(&format!("set its quantum to {quantum_possible}")), "{refusal}");
    assert!(bench.register(RtuTerms { quantum: quantum_possible, ..call }).is_ok());
    let next = RtuTerms { quantum: quantum_possible + 1, ..call };
    assert!(matches!(bench.register(next), Err(RtuRefusal::Call { .. })));
}

#[test]
fn what_an_order_cannot_honour_is_refused_in_one_line() {
    let first = RtuClass::LowDelay { interval: MS(10), units: 1, priority: Some(RTU_PRIORITIES - 1) };
    for admission in [Admission::EDF, Admission::FIXED_PRIORITY, Admission::D_ORDER, Admission::STATISTICAL] {
        let mut bench = Bench::new(cpu(admission));
        let refusal = bench.register(terms(first, US(10))).expect_err("no priorities");
        assert!(refusal.to_string().contains("needs the run policy \"rmdp\""), "{refusal}");
        assert!(bench.register(terms(low(MS(10), 1), US(10))).is_ok(), "{}", admission.name);
    }
    let mut bench = Bench::new(cpu(Admission::FIFO));
    let refusal = bench.register(terms(low(MS(10), 1), US(10))).expect_err("no classes");
    assert_eq!(
        refusal.to_string(),
        "the processor serves in the order \"fifo\", which has no classes: set another run policy"
    );
    assert!(bench.register(terms(RtuClass::BestEffort, US(10))).is_ok());
}

#[test]
fn numbers_go_to_their_limits_and_not_beyond() {
    let mut bench = Bench::new(cpu(Admission::RMDP));
    let mut wrong = |terms| matches!(bench.register(terms), Err(RtuRefusal::Range { .. }));
    let base = terms(low(MS(500), 1), US(1));
    let priority = |priority| RtuClass::LowDelay { interval: MS(500), units: 1, priority: Some(priority) };
    assert!(wrong(RtuTerms { class: priority(RTU_PRIORITIES), ..base }));
    assert!(!wrong(RtuTerms { class: priority(RTU_PRIORITIES - 1), ..base }));
    assert!(wrong(RtuTerms { class: low(MS(500), RTU_UNITS_MAX + 1), ..base }));
    assert!(!wrong(RtuTerms { class: low(MS(500), RTU_UNITS_MAX), ..base }));
    assert!(wrong(RtuTerms { class: low(MS(500), 0), ..base }));
    let timed = RtuTerms { class: RtuClass::periodic(MS(500), 4), ..base };
    assert!(wrong(RtuTerms { quantum: RTU_UNITS_MAX + 1, ..timed }));
    assert!(!wrong(RtuTerms { quantum: RTU_UNITS_MAX, ..timed }) && wrong(RtuTerms { quantum: 0, ..timed }));
    assert!(wrong(RtuTerms { class: low(Nanos(999), 1), ..base }));
    assert!(wrong(RtuTerms { cost: RtuCost::default(), ..base }));
    assert!(wrong(RtuTerms { deadline: Some(MS(501)), ..base }));
    assert!(!wrong(RtuTerms { deadline: Some(MS(500)), ..base }));
    assert!(wrong(RtuTerms { deadline: Some(Nanos::ZERO), ..base }));
    let of = |nanos| RtuTerms { cost: RtuCost { run: Nanos::ZERO, unit: Nanos(nanos) }, ..timed };
    let unit = SPAN_MAX.0 / u64::from(timed.quantum);
    assert!(wrong(of(unit + 1)) && !wrong(of(unit)), "the longest call");
}

/// The period in a refusal is granted, and one that is shorter by more than a 64th of it is not.
#[test]
fn an_offered_period_is_at_most_a_sixty_fourth_too_long() {
    for (units, unit) in [(10, US(99)), (7, US(150)), (40, US(61)), (20, US(77))] {
        let every = |period| terms(RtuClass::periodic(period, units), unit);
        let mut bench = Bench::new(cpu(Admission::EDF));
        let refusal = bench.register(every(MS(1))).expect_err("more than there is");
        let RtuRefusal::Processor(offer) = refusal else { panic!("{refusal}") };
        let period = offer.period_possible.expect("a longer period");
        let shorter = Nanos(period.0 - period.0 / 64 - 1);
        assert!(bench.register(every(shorter)).is_err(), "{period} was offered, {shorter} is granted");
        assert!(bench.register(every(period)).is_ok(), "{period}");
    }
}

/// The search for a period doubles the requested one first: a multiple that just suffices is offered as it
/// is.
#[test]
fn a_doubled_period_that_just_suffices_is_offered() {
    for doublings in 1..=4 {
        let period = MS(1 << doublings);
        let granted = |unit: u64, period| {
            let terms = terms(RtuClass::periodic(period, 10), Nanos(unit));
            Bench::new(cpu(Admission::EDF)).register(terms)
        };
        // The most that a unit may cost with this period: a shorter one is not granted.
        let (mut fits, mut exceeds) = (1, period.0);
        while exceeds - fits > 1 {
            let middle = fits.midpoint(exceeds);
            if granted(middle, period).is_ok() { fits = middle } else { exceeds = middle }
        }
        assert!(granted(fits, period - Nanos(100)).is_err(), "{period} is the shortest");
        let refusal = granted(fits, MS(1)).expect_err("more than there is");
        let RtuRefusal::Processor(offer) = refusal else { panic!("{refusal}") };
        assert_eq!(offer.period_possible, Some(period));
    }
}

/// The range in a refusal is the one that is accepted: both ends of it, and nothing beyond.
#[test]
fn a_refused_number_comes_with_the_range_that_is_accepted() {
    let base = terms(RtuClass::periodic(MS(500), 1), US(1));
    let set: [fn(RtuTerms, u64) -> RtuTerms; 5] = [
        |base, count| RtuTerms { quantum: count as u32, ..base },
        |base, count| RtuTerms { class: RtuClass::periodic(MS(500), count as u32), ..base },
        |base, nanos| RtuTerms { class: RtuClass::periodic(Nanos(nanos), 1), ..base },
        |base, nanos| RtuTerms { deadline: Some(Nanos(nanos)), ..base },
        |base, nanos| RtuTerms { cost: RtuCost { run: Nanos::ZERO, unit: Nanos(nanos) }, ..base },
    ];
    let mut bench = Bench::new(cpu(Admission::EDF));
    let mut range = |terms| match bench.register(terms) {
        Err(RtuRefusal::Range { least, most, .. }) => Some((least, most)),
        _ => None,
    };
    for with in set {
        let (least, most) = range(with(base, 0)).expect("0 is no such number");
        assert_eq!([least, most].map(|number| range(with(base, number))), [None; 2], "{least} to {most}");
        assert_eq!([least - 1, most + 1].map(|number| range(with(base, number))), [Some((least, most)); 2]);
    }
}

#[test]
fn handlers_are_bounded_and_each_that_goes_makes_room() {
    let mut bench = Bench::new(cpu(Admission::EDF));
    let base = terms(RtuClass::BestEffort, US(1));
    let ids: Vec<_> = (0..RTU_HANDLERS_MAX).map(|_| bench.register(base).expect("room")).collect();
    assert_eq!(bench.register(base), Err(RtuRefusal::Exhausted));
    bench.node.remove_handler(ids[7], AT(0));
    assert!(bench.register(base).is_ok_and(|id| !ids.contains(&id)), "names are never reused");
    assert_eq!(bench.register(base), Err(RtuRefusal::Exhausted));
}

/// A handler that takes longer than declared, or processes more than it was given.
fn misbehaving(percent: u64, greed: u32) -> (Bench, RtuId, RtuId) {
    let mut bench = Bench::new(cpu(Admission::EDF));
    let bad = bench.register(terms(low(MS(1), 1), US(20))).expect("granted");
    let good = bench.register(terms(RtuClass::periodic(MS(1), 4), US(30))).expect("granted");
    let body = bench.body(bad);
    (body.percent, body.greed) = (percent, greed);
    (bench, bad, good)
}

#[test]
fn overruns_are_counted_then_demoted_and_delay_no_other_handler() {
    let (mut bench, bad, good) = misbehaving(500, 0);
    for n in 0..200 {
        bench.arrive(bad, AT(n * 1_000), 1);
        bench.arrive(good, AT(n * 1_000), 4);
    }
    bench.run_until(AT(200_000));
    assert_eq!(bench.events, [RtuEvent::Demoted(bad, Misconduct::Overrun)]);
    let status = bench.node.handlers().find(|status| status.id == bad).expect("there still");
    assert_eq!((status.bound, status.demoted), (None, Some(Misconduct::Overrun)));
    assert_eq!(status.counters.units, u64::from(RTU_VIOLATIONS_MAX), "each of its calls was an overrun");
    assert!(status.counters.units_beyond > 100 && status.counters.overruns > 100, "{:?}", status.counters);
    assert_eq!(status.counters.took_max, US(110));
    assert_eq!((broken(&bench.bodies[&good]), bench.counters(good).overruns), (None, 0));
    // The node's own paths are not affected.
    let status = bench.node.status(bench.now);
    assert_eq!(status.overruns, 0);
    assert!(status.work.iter().all(|path| path.units == 0), "{:?}", status.work);
    let held = bench.node.accounts().into_iter().find(|account| account.what == "places of handlers");
    assert_eq!(held.map(|held| (held.counted, held.held)), Some((2, 2)), "its place pays for its blocking");
}

#[test]
fn one_that_ignores_yields_is_counted_then_demoted() {
    let (mut bench, bad, _) = misbehaving(100, 1);
    for n in 0..100 {
        bench.arrive(bad, AT(n * 10_000), 2);
    }
    bench.run_until(AT(1_000_000));
    assert_eq!(bench.events, [RtuEvent::Demoted(bad, Misconduct::IgnoredYield)]);
    let counters = bench.counters(bad);
    assert_eq!((counters.yields_ignored, counters.overruns), (100, 0), "{counters:?}");
    assert_eq!(counters.units, 2 * u64::from(RTU_VIOLATIONS_MAX));
}

/// A body that has found nothing to do is judged by the time of one PDU, like its budget is charged: only beyond that does it
/// overrun.
#[test]
fn a_body_that_reports_no_unit_may_take_the_time_of_one() {
    let overruns = |took: Nanos| {
        let mut bench = Bench::new(cpu(Admission::EDF));
        let id = bench.register(terms(low(MS(1), 1), US(20))).expect("granted");
        (0..400).map(|n| AT(n * 1_000)).any(|now| {
            bench.node.make_ready(id, now);
            let work = bench.node.begin_work(now).expect("a call");
            assert_eq!(bench.node.upcall(&work), Some(id));
            bench.node.finish_upcall(&work, UpcallDone { units: 0, more: false, took }, now + took);
            bench.counters(id).overruns > 0
        })
    };
    let one = terms(low(MS(1), 1), US(20)).cost.of(1);
    assert_eq!([overruns(one), overruns(one + US(1))], [false, true]);
}

#[test]
fn misconduct_expires_after_two_spans() {
    let (mut bench, bad, _) = misbehaving(100, 1);
    let gap = RTU_VIOLATION_SPAN.0 / 1_000 / u64::from(RTU_VIOLATIONS_MAX / 2 - 1);
    for n in 0..40 {
        bench.arrive(bad, AT(n * gap), 2);
    }
    bench.run_until(AT(40 * gap));
    assert_eq!((bench.counters(bad).yields_ignored, bench.events.len()), (40, 0));
}

#[test]
fn work_that_arrives_while_the_body_runs_is_not_lost() {
    let mut bench = Bench::new(cpu(Admission::EDF));
    let id = bench.register(terms(low(MS(1), 2), US(20))).expect("granted");
    bench.node.make_ready(id, AT(0));
    let work = bench.node.begin_work(AT(0)).expect("a call");
    bench.node.make_ready(id, AT(10));
    bench.node.finish_work(work, AT(30));
    let again = bench.node.begin_work(AT(30)).expect("called again");
    assert_eq!(bench.node.upcall(&again), Some(id));
    bench.node.finish_work(again, AT(60));
    assert_eq!(bench.node.begin_work(AT(60)), None);
}

#[test]
fn a_handler_that_is_removed_while_its_body_runs_is_gone() {
    let mut bench = Bench::new(cpu(Admission::RMDP));
    let class = RtuClass::periodic(MS(1), 2);
    let ids = [(); 2].map(|()| bench.register(terms(class, US(20))).expect("granted"));
    ids.iter().for_each(|id| bench.node.make_ready(*id, AT(0)));
    let work = bench.node.begin_work(AT(0)).expect("a call");
    bench.node.remove_handler(ids[0], AT(5));
    let newcomer = bench.register(terms(class, US(20))).expect("granted");
    bench.node.make_ready(newcomer, AT(5));
    bench.node.finish_work(work, AT(30));
    assert_eq!(bench.counters(newcomer).calls, 0, "the call was not its own");
    let next = bench.node.begin_work(AT(30)).expect("the other one");
    assert_eq!(bench.node.upcall(&next), Some(ids[1]));
    assert!(bench.node.accounts().iter().all(|account| account.counted == account.held));
}

/// Another thread decides: the reply comes later, and a handler that was removed meanwhile holds nothing.
#[test]
fn a_late_answer_finds_only_those_that_remain() {
    let mut bench = Bench::new(cpu(Admission::EDF));
    bench.node.decide_elsewhere();
    let ids =
        [(); 2].map(|()| bench.node.register_handler(terms(low(MS(1), 2), US(20)), AT(0)).expect("asked"));
    bench.node.make_ready(ids[1], AT(1));
    assert_eq!((bench.node.poll_rtu(), bench.node.begin_work(AT(2))), (None, None));
    let decision = bench.node.poll_decision().expect("questions");
    assert!(bench.node.accounts().iter().all(|account| account.counted == account.held), "meanwhile");
    bench.node.remove_handler(ids[0], AT(3));
    bench.node.handle_decided(decision.decide(|| Instant(0)), AT(5));
    let granted = bench.node.poll_rtu();
    assert!(matches!(granted, Some(RtuEvent::Granted(id, _)) if id == ids[1]), "{granted:?}");
    let work = bench.node.begin_work(AT(6)).expect("it has work since");
    assert_eq!(bench.node.upcall(&work), Some(ids[1]));
    bench.node.finish_work(work, AT(40));
    let decision = bench.node.poll_decision().expect("the place of the first is given back");
    bench.node.handle_decided(decision.decide(|| Instant(0)), AT(50));
    assert!(bench.node.accounts().iter().all(|account| account.counted == account.held));
}

/// Work that comes before the answer counts from the grant on: a long decision does not make a handler late.
#[test]
fn work_before_the_grant_counts_from_the_grant_on() {
    for class in [low(MS(1), 2), RtuClass::periodic(MS(1), 2)] {
        let mut bench = Bench::new(cpu(Admission::EDF));
        bench.node.decide_elsewhere();
        let id = bench.node.register_handler(terms(class, US(20)), AT(0)).expect("asked");
        bench.node.make_ready(id, AT(100));
        let decision = bench.node.poll_decision().expect("a question");
        bench.node.handle_decided(decision.decide(|| Instant(0)), AT(7_500));
        let begins = if class == low(MS(1), 2) { 7_500 } else { 8_000 };
        assert_eq!(bench.node.begin_work(AT(begins - 1)), None, "{class:?}");
        bench.node.handle_timeout(AT(begins));
        let work = bench.node.begin_work(AT(begins)).expect("it has work");
        bench.node.finish_work(work, AT(begins + 30));
        let counters = bench.counters(id);
        assert_eq!((counters.units, counters.late, counters.late_max), (1, 0, Nanos::ZERO), "{class:?}");
    }
}

/// A handler with a timer: it runs once at the time of the last call, not at those that were replaced, and has no work before.
#[test]
fn a_handler_becomes_ready_at_its_time_and_at_no_other() {
    let mut bench = Bench::new(cpu(Admission::EDF));
    let id = bench.register(terms(low(MS(1), 1), US(5))).expect("granted");
    bench.node.make_ready_at(id, Some(AT(3_000)));
    bench.node.make_ready_at(id, Some(AT(9_000)));
    bench.node.make_ready_at(id, Some(AT(5_000)));
    assert_eq!(bench.node.poll_timeout(), Some(AT(5_000)));
    bench.run_until(AT(20_000));
    let begun: Vec<_> = bench.calls.iter().map(|call| call.begun).collect();
    assert_eq!(begun, [AT(5_000)]);
    bench.node.make_ready_at(id, Some(AT(1_000)));
    bench.run_until(AT(21_000));
    assert_eq!(bench.calls.len(), 2, "a time that is past means at once");
    bench.node.make_ready_at(id, Some(AT(25_000)));
    bench.node.make_ready_at(id, None);
    bench.run_until(AT(30_000));
    assert_eq!(bench.calls.len(), 2, "it was taken back");
    bench.node.make_ready_at(id, Some(AT(35_000)));
    bench.node.remove_handler(id, bench.now);
    bench.run_until(AT(40_000));
    assert_eq!(bench.calls.len(), 2, "a handler that is gone has no timer");
    assert!(bench.node.poll_timeout() > Some(AT(40_000)));
}

/// A handler that is refused takes its timer with it.
#[test]
fn a_refused_handler_wakes_nobody() {
    let mut bench = Bench::new(cpu(Admission::EDF));
    bench.node.decide_elsewhere();
    let id = bench.node.register_handler(terms(low(US(300), 1), US(80)), AT(0)).expect("asked");
    bench.node.make_ready_at(id, Some(AT(5_000)));
    let decision = bench.node.poll_decision().expect("a question");
    bench.node.handle_decided(decision.decide(|| Instant(0)), AT(100));
    assert!(matches!(bench.node.poll_rtu(), Some(RtuEvent::Refused(of, _)) if of == id));
    assert_ne!(bench.node.poll_timeout(), Some(AT(5_000)));
}

/// Many timers that expire at once do not make one call of the node long, and none is lost.
#[test]
fn timers_that_expire_together_are_noticed_in_parts() {
    let mut bench = Bench::new(cpu(Admission::EDF));
    let ids: Vec<_> = (0..RTUS_DUE_MAX * 2 + 1)
        .map(|_| bench.register(terms(RtuClass::BestEffort, US(1))).expect("best effort"))
        .collect();
    ids.iter().for_each(|id| bench.node.make_ready_at(*id, Some(AT(100))));
    for expired in [RTUS_DUE_MAX, RTUS_DUE_MAX, 1, 0] {
        bench.node.handle_timeout(AT(100));
        let mut calls = 0;
        while let Some(work) = bench.node.begin_work(AT(100)) {
            bench.node.finish_work(work, AT(100));
            calls += 1;
        }
        assert_eq!(calls, expired);
    }
}

/// What a source sends while a body is called is due from then on, however long the call takes. Nobody can claim more than the
/// release latency without a call, nor when the call is longer ago.
#[test]
fn a_message_that_is_sent_during_a_call_is_due_from_then_on_and_no_other_is_dated_back_further() {
    let call = MS(2);
    let latency = CpuConfig::default().release_latency;
    let mut world = World::line(2, BitRate(40_000_000));
    let contract = Contract::new(100, Rate::per_second(50).expect("a rate"), 1, MS(50)).expect("a contract");
    let open = world.open(0, 1, contract).expect("it fits");
    let terms = terms(RtuClass::periodic(MS(20), 1).sporadic(), call - US(100));
    let id = world.nodes[0].register_handler(terms, world.now).expect("within ranges");
    world.run_for(MS(40));
    let slack_ns = Rc::new(Cell::new(0));
    let seen = Rc::clone(&slack_ns);
    world.tap = Some(Box::new(move |node, port, bytes| {
        if let (0, Port::Data, Ok((header, _))) = (node, port, Header::parse(bytes)) {
            seen.set(header.slack_ns);
        }
        true
    }));
    let mut slack_after = |ended_before: Option<Nanos>, claimed: Nanos| {
        if let Some(pause) = ended_before {
            let node = &mut world.nodes[0];
            node.make_ready(id, world.now);
            let work = node.begin_work(world.now).expect("the handler has work");
            assert_eq!(node.upcall(&work), Some(id));
            world.now = world.now + call;
            let done = UpcallDone { units: 1, more: false, took: call - US(100) };
            world.nodes[0].finish_upcall(&work, done, world.now);
            world.now = world.now + pause;
        }
        assert!(open.outbox.send(&[7; 100], world.now - claimed));
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(MS(60));
        slack_ns.get()
    };
    let now = slack_after(None, Nanos::ZERO);
    // How long before the message is noticed a call has ended, if there was one; how long before it is claimed to be sent; and how
    // long before it counts from.
    for (ended_before, claimed, counts) in [
        (Some(Nanos::ZERO), call - US(500), call - US(500)),
        (Some(Nanos::ZERO), call + latency, call + latency),
        (Some(Nanos::ZERO), call + latency + Nanos(1), call + latency),
        (Some(latency), call + latency, call + latency),
        (Some(latency + Nanos(1)), call, latency),
        (None, call, latency),
        (None, latency, latency),
        (None, latency - Nanos(1), latency - Nanos(1)),
    ] {
        let earlier = now - slack_after(ended_before, claimed);
        assert_eq!(earlier, counts.0 as i64, "{ended_before:?}, {claimed}");
    }
}
