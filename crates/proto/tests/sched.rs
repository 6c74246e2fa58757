//! The rules of the executor, one by one.

mod common;

use common::handler::PLAIN;
use punctual_proto::config::RunPolicy;
use punctual_proto::limits::{BEST_EFFORT_PAUSE, CPU_CAP_WINDOW, EXECUTOR_MOVES_MAX, PRIORITY_LEVELS};
use punctual_proto::sched::{Activation, Budget, Class, Executor, HandlerId, HandlerParameters, Trigger};
use punctual_proto::{Instant, Nanos, Ppm};

const POLICIES: [RunPolicy; 3] = [RunPolicy::Edf, RunPolicy::FixedPriority, RunPolicy::Fifo];

fn parameters(class: Class) -> HandlerParameters {
    HandlerParameters { class, ..PLAIN }
}

fn at_level(level: u8) -> HandlerParameters {
    HandlerParameters { level, ..parameters(Class::Guaranteed) }
}

fn budgeted(packets: u32, period: u64, trigger: Trigger) -> HandlerParameters {
    let budget = Some(Budget { packets, period: Nanos(period), deadline: Nanos(period) });
    HandlerParameters { budget, trigger, ..parameters(Class::Guaranteed) }
}

fn head(eligible: u64, deadline: u64) -> Activation {
    Activation { eligible: Instant(eligible), deadline: Instant(deadline) }
}

/// Runs one PDU of each pick until nothing is eligible; every handler has one PDU.
fn run_all(executor: &mut Executor, now: u64) -> Vec<HandlerId> {
    let mut order = Vec::new();
    while let Some(id) = executor.pick(Instant(now)) {
        order.push(id);
        executor.idle(id);
        executor.finished(id, 1, Instant(now));
    }
    order
}

/// One PDU of the most urgent handler, which has more of the same.
fn run_one(executor: &mut Executor, now: u64) -> HandlerId {
    let id = executor.pick(Instant(now)).expect("a handler is eligible");
    executor.finished(id, 1, Instant(now));
    id
}

#[test]
fn no_unit_crosses_the_end_of_a_budget() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let plain = executor.add(HandlerParameters { quantum_packets: 8, ..parameters(Class::Guaranteed) });
    let timed = HandlerParameters { quantum_packets: 8, ..budgeted(12, 100, Trigger::Reactive) };
    let timed = executor.add(timed);
    let mut unit = |now: u64| {
        executor.ready(timed, head(now, now + 50), Instant(now));
        assert_eq!(executor.pick(Instant(now)), Some(timed));
        let packets = executor.unit_packets(timed);
        executor.finished(timed, packets, Instant(now));
        packets
    };
    assert_eq!([unit(0), unit(1)], [8, 4], "the budget of the first period");
    assert_eq!([unit(100), unit(101)], [8, 4], "and of the next");
    assert_eq!(executor.unit_packets(plain), 8, "without a budget a quantum");
    assert_eq!(executor.unit_packets(HandlerId(99)), 1);
    let small = executor.add(HandlerParameters { quantum_packets: 8, ..budgeted(3, 100, Trigger::Reactive) });
    assert_eq!(executor.unit_packets(small), 3, "nor does one of a budget that has not begun");
}

#[test]
fn edf_goes_by_the_deadline_of_the_head() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let ids: Vec<HandlerId> = (0..4).map(|_| executor.add(parameters(Class::Guaranteed))).collect();
    for (id, deadline) in ids.iter().zip([40, 10, 30, 20]) {
        executor.ready(*id, head(0, deadline), Instant(5));
    }
    assert_eq!(run_all(&mut executor, 5), [ids[1], ids[3], ids[2], ids[0]]);
}

/// A handler may have been removed, or its id may have gone to another since.
#[test]
fn a_handler_is_soft_while_it_is_there_and_of_that_class() {
    let mut executor = Executor::new(RunPolicy::Edf);
    assert!(!executor.is_soft(HandlerId(0)), "there is none yet");
    let classes = [Class::Guaranteed, Class::Soft, Class::BestEffort, Class::Background];
    let ids = classes.map(|class| executor.add(parameters(class)));
    assert_eq!(ids.map(|id| executor.is_soft(id)), [false, true, false, false]);
    executor.remove(ids[1]);
    assert!(!executor.is_soft(ids[1]) && !executor.is_soft(HandlerId(99)));
    assert_eq!(executor.add(parameters(Class::Guaranteed)), ids[1], "else this tells nothing");
    assert!(!executor.is_soft(ids[1]));
}

#[test]
fn classes_come_before_deadlines() {
    for policy in [RunPolicy::Edf, RunPolicy::FixedPriority] {
        let mut executor = Executor::new(policy);
        let classes = [Class::Background, Class::BestEffort, Class::Guaranteed, Class::Signalling];
        let ids = classes.map(|class| executor.add(parameters(class)));
        for (place, id) in ids.iter().enumerate() {
            executor.ready(*id, head(0, place as u64), Instant(0));
        }
        assert_eq!(run_all(&mut executor, 0), [ids[3], ids[2], ids[1], ids[0]], "{policy:?}");
    }
}

#[test]
fn fixed_priority_goes_by_level_and_first_come_within_one() {
    let mut executor = Executor::new(RunPolicy::FixedPriority);
    let ids = [2, 1, 2, 0].map(|level| executor.add(at_level(level)));
    for id in [ids[2], ids[0], ids[1], ids[3]] {
        executor.ready(id, head(0, 0), Instant(0));
    }
    assert_eq!(run_all(&mut executor, 0), [ids[3], ids[1], ids[2], ids[0]]);
}

#[test]
fn the_thirty_levels_between_are_for_channels_however_large_the_rank() {
    let mut executor = Executor::new(RunPolicy::FixedPriority);
    let best_effort = executor.add(parameters(Class::BestEffort));
    let last = PRIORITY_LEVELS - 3;
    let ranked = [u8::MAX, last, last - 1].map(|level| executor.add(at_level(level)));
    let signalling = executor.add(parameters(Class::Signalling));
    for id in [best_effort, ranked[0], ranked[1], ranked[2], signalling] {
        executor.ready(id, head(0, 0), Instant(0));
    }
    assert_eq!(run_all(&mut executor, 0), [signalling, ranked[2], ranked[0], ranked[1], best_effort]);
}

#[test]
fn fifo_orders_by_arrival_alone() {
    let mut executor = Executor::new(RunPolicy::Fifo);
    let late = executor.add(parameters(Class::Signalling));
    let early = executor.add(parameters(Class::BestEffort));
    executor.ready(late, head(7, 8), Instant(9));
    executor.ready(early, head(3, 99), Instant(9));
    assert_eq!(run_all(&mut executor, 9), [early, late]);
}

#[test]
fn no_handler_runs_before_it_is_eligible() {
    for policy in POLICIES {
        let mut executor = Executor::new(policy);
        let id = executor.add(parameters(Class::Guaranteed));
        executor.ready(id, head(10, 20), Instant(0));
        assert_eq!(executor.pick(Instant(9)), None);
        assert_eq!(executor.next_timeout(), Some(Instant(10)));
        assert!(!executor.has_ready());
        assert_eq!(executor.pick(Instant(10)), Some(id));
        assert_eq!(executor.next_timeout(), None);
    }
}

#[test]
fn an_activation_replaces_the_one_before() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let (moved, other) =
        (executor.add(parameters(Class::Guaranteed)), executor.add(parameters(Class::Guaranteed)));
    executor.ready(moved, head(10, 20), Instant(0));
    executor.ready(other, head(0, 30), Instant(0));
    executor.ready(moved, head(0, 40), Instant(0));
    assert_eq!(executor.next_timeout(), None);
    assert_eq!(run_all(&mut executor, 0), [other, moved]);
    executor.ready(moved, head(0, 40), Instant(0));
    executor.idle(moved);
    assert_eq!(executor.pick(Instant(100)), None);
}

#[test]
fn only_a_more_urgent_handler_requests_a_yield() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let ids = [0; 3].map(|_| executor.add(parameters(Class::Guaranteed)));
    executor.ready(ids[0], head(0, 50), Instant(0));
    assert_eq!(executor.pick(Instant(0)), Some(ids[0]));
    assert!(!executor.yield_request(Instant(0)));
    executor.ready(ids[1], head(0, 60), Instant(0));
    executor.ready(ids[2], head(10, 40), Instant(0));
    assert!(!executor.yield_request(Instant(9)));
    assert!(executor.yield_request(Instant(10)), "an earlier deadline has become eligible");
    executor.finished(ids[0], 1, Instant(10));
    assert_eq!(run_all(&mut executor, 10), [ids[2], ids[0], ids[1]]);
}

#[test]
fn a_pre_empted_handler_keeps_its_place() {
    let mut executor = Executor::new(RunPolicy::FixedPriority);
    let (first, second) = (executor.add(at_level(5)), executor.add(at_level(5)));
    let urgent = executor.add(at_level(1));
    executor.ready(first, head(0, 0), Instant(0));
    executor.ready(second, head(0, 0), Instant(0));
    assert_eq!(executor.pick(Instant(0)), Some(first));
    executor.ready(urgent, head(0, 0), Instant(1));
    assert!(executor.yield_request(Instant(1)));
    executor.finished(first, 1, Instant(1));
    assert_eq!(run_all(&mut executor, 1), [urgent, first, second]);
}

#[test]
fn another_message_goes_to_the_tail_of_its_level() {
    let mut executor = Executor::new(RunPolicy::FixedPriority);
    let (first, second) = (executor.add(at_level(5)), executor.add(at_level(5)));
    executor.ready(first, head(0, 10), Instant(0));
    executor.ready(second, head(0, 10), Instant(0));
    assert_eq!(run_one(&mut executor, 0), first);
    executor.ready(first, head(0, 20), Instant(0));
    assert_eq!(run_all(&mut executor, 0), [second, first]);
}

#[test]
fn out_of_slots_does_not_compete_and_returns_at_the_tail() {
    let mut executor = Executor::new(RunPolicy::FixedPriority);
    let (first, second) = (executor.add(at_level(5)), executor.add(at_level(5)));
    executor.ready(first, head(0, 0), Instant(0));
    executor.ready(second, head(0, 0), Instant(0));
    executor.block(first);
    executor.ready(first, head(0, 0), Instant(0));
    assert_eq!(run_one(&mut executor, 0), second);
    executor.unblock(first, Instant(0));
    executor.unblock(first, Instant(0));
    assert_eq!(run_all(&mut executor, 0), [second, first]);
}

#[test]
fn blocking_the_running_handler_counts_from_its_end() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let id = executor.add(parameters(Class::Guaranteed));
    executor.ready(id, head(0, 5), Instant(0));
    assert_eq!(executor.pick(Instant(0)), Some(id));
    executor.block(id);
    executor.finished(id, 1, Instant(0));
    assert_eq!(executor.pick(Instant(0)), None);
    executor.unblock(id, Instant(0));
    assert_eq!(executor.pick(Instant(0)), Some(id));
}

#[test]
fn best_effort_handlers_take_turns_of_a_quantum() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let flood = executor.add(HandlerParameters { quantum_packets: 2, ..parameters(Class::BestEffort) });
    let other = executor.add(parameters(Class::BestEffort));
    executor.ready(flood, head(0, 0), Instant(0));
    executor.ready(other, head(0, 0), Instant(0));
    let order: Vec<HandlerId> = (0..6).map(|_| run_one(&mut executor, 0)).collect();
    assert_eq!(order, [flood, flood, other, flood, flood, other]);
}

/// A reactive budget waits for later work, which never reaches the head while best effort takes all of the
/// processor.
#[test]
fn the_clock_refills_the_budget_of_what_waits_behind_best_effort() {
    for policy in [RunPolicy::Edf, RunPolicy::FixedPriority, RunPolicy::Rmdp] {
        let mut executor = Executor::new(policy);
        let flooded = HandlerParameters { class: Class::Signalling, ..budgeted(1, 100, Trigger::Refilled) };
        let flooded = executor.add(flooded);
        let greedy = executor.add(parameters(Class::BestEffort));
        executor.ready(flooded, head(0, 100), Instant(0));
        executor.ready(greedy, head(0, 0), Instant(0));
        // A burst that arrived at 0, beside more best effort than there is time.
        let served: Vec<u64> = (0..1_000).filter(|now| run_one(&mut executor, *now) == flooded).collect();
        assert_eq!(served, [0, 100, 200, 300, 400, 500, 600, 700, 800, 900], "{policy:?}");
        executor.idle(greedy);
        assert_eq!([1_001, 1_002, 1_003].map(|now| run_one(&mut executor, now)), [flooded; 3], "{policy:?}");
    }
}

#[test]
fn what_exceeds_a_reactive_budget_runs_in_the_background() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let greedy = executor.add(budgeted(2, 100, Trigger::Reactive));
    let best_effort = executor.add(parameters(Class::BestEffort));
    executor.ready(greedy, head(0, 10), Instant(0));
    executor.ready(best_effort, head(0, 0), Instant(0));
    let order: Vec<HandlerId> = (0..4).map(|_| run_one(&mut executor, 0)).collect();
    assert_eq!(order, [greedy, greedy, best_effort, best_effort]);
    executor.idle(best_effort);
    assert_eq!(run_one(&mut executor, 500), greedy, "in the background when nothing else is there");
    executor.ready(best_effort, head(500, 0), Instant(500));
    assert_eq!(run_one(&mut executor, 500), best_effort, "time alone gives a reactive handler nothing");
    executor.ready(greedy, head(99, 110), Instant(500));
    assert_eq!(run_one(&mut executor, 500), best_effort);
    executor.ready(greedy, head(100, 110), Instant(500));
    assert_eq!(run_one(&mut executor, 500), greedy);
}

#[test]
fn late_work_spends_its_own_period() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let id = executor.add(budgeted(2, 100, Trigger::Reactive));
    let best_effort = executor.add(parameters(Class::BestEffort));
    executor.ready(best_effort, head(0, 0), Instant(0));
    // The first message is served at 95 only; the second, a period after the first, has its budget in full.
    executor.ready(id, head(0, 100), Instant(95));
    for eligible in [0, 100] {
        executor.ready(id, head(eligible, eligible + 100), Instant(100));
        assert_eq!([0; 2].map(|_| run_one(&mut executor, 100)), [id; 2], "message of {eligible}");
    }
    assert_eq!(run_one(&mut executor, 100), best_effort);
}

#[test]
fn a_new_head_set_while_running_is_not_charged_for_the_old_one() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let id = executor.add(budgeted(1, 100, Trigger::Reactive));
    let best_effort = executor.add(parameters(Class::BestEffort));
    executor.ready(best_effort, head(0, 0), Instant(0));
    executor.ready(id, head(0, 100), Instant(100));
    assert_eq!(executor.pick(Instant(100)), Some(id));
    executor.ready(id, head(100, 200), Instant(100));
    executor.finished(id, 1, Instant(100));
    assert_eq!(run_one(&mut executor, 100), id);
}

#[test]
fn a_periodic_handler_starts_with_its_timer_and_gets_its_budget_from_the_clock() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let id = executor.add(budgeted(1, 100, Trigger::Periodic));
    let best_effort = executor.add(parameters(Class::BestEffort));
    executor.ready(id, head(1, 5), Instant(1));
    assert_eq!(executor.pick(Instant(99)), None);
    assert_eq!(executor.next_timeout(), Some(Instant(100)));
    executor.ready(best_effort, head(0, 0), Instant(100));
    assert_eq!(run_one(&mut executor, 100), id);
    assert_eq!(run_one(&mut executor, 199), best_effort, "spent");
    assert_eq!(executor.pick(Instant(200)), Some(id), "the next period");
    assert!(!executor.yield_request(Instant(200)));
}

#[test]
fn a_refilled_budget_makes_the_running_handler_yield() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let id = executor.add(budgeted(1, 100, Trigger::Periodic));
    let best_effort = executor.add(parameters(Class::BestEffort));
    executor.ready(id, head(0, 5), Instant(0));
    executor.ready(best_effort, head(0, 0), Instant(0));
    assert_eq!(run_one(&mut executor, 0), id);
    assert_eq!(executor.pick(Instant(50)), Some(best_effort));
    assert!(!executor.yield_request(Instant(99)));
    assert!(executor.yield_request(Instant(100)));
}

#[test]
fn a_budget_of_nothing_or_a_period_of_nothing_ends_every_call() {
    for (packets, period) in [(0, 0), (0, 10), (1, 0)] {
        let mut executor = Executor::new(RunPolicy::Edf);
        let id = executor.add(budgeted(packets, period, Trigger::Periodic));
        executor.ready(id, head(0, 0), Instant(0));
        for now in [0, 5, 10, 1_000] {
            assert_eq!(run_one(&mut executor, now), id, "{packets} packets in {period}");
        }
    }
}

#[test]
fn removal_works_from_everywhere_and_the_id_is_used_again() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let ids = [0; 4].map(|_| executor.add(parameters(Class::Guaranteed)));
    executor.ready(ids[0], head(0, 1), Instant(0));
    assert_eq!(executor.pick(Instant(0)), Some(ids[0]));
    executor.ready(ids[1], head(0, 2), Instant(0));
    executor.ready(ids[2], head(50, 3), Instant(0));
    executor.block(ids[3]);
    for id in ids {
        executor.remove(id);
        executor.remove(id);
    }
    assert_eq!((executor.pick(Instant(100)), executor.next_timeout()), (None, None));
    let fresh = executor.add(parameters(Class::Guaranteed));
    assert!(ids.contains(&fresh));
    executor.ready(fresh, head(0, 1), Instant(0));
    assert_eq!(run_all(&mut executor, 0), [fresh]);
}

#[test]
fn a_crowd_that_becomes_eligible_at_once_is_moved_in_bounded_steps_before_any_handler_runs() {
    let mut executor = Executor::new(RunPolicy::Edf);
    const CROWD: u32 = 3 * EXECUTOR_MOVES_MAX + 8;
    for place in 0..u64::from(CROWD) {
        let id = executor.add(parameters(Class::Guaranteed));
        executor.ready(id, head(10 + place, 1_000 - place), Instant(0));
    }
    let mut picks = 1;
    let first = loop {
        if let Some(first) = executor.pick(Instant(500)) {
            break first;
        }
        assert!(
            executor.next_timeout().is_some_and(|at| at <= Instant(500)),
            "it must ask to be called again"
        );
        picks += 1;
    };
    assert_eq!((first, picks), (HandlerId(CROWD - 1), CROWD.div_ceil(EXECUTOR_MOVES_MAX)));
}

#[test]
fn rmdp_runs_low_latency_first_then_the_shorter_period() {
    let mut executor = Executor::new(RunPolicy::Rmdp);
    let with = |class, period, place| HandlerParameters { period: Nanos(period), place, ..parameters(class) };
    let slow = executor.add(with(Class::Guaranteed, 40, 0));
    let second = executor.add(with(Class::Guaranteed, 10, 1));
    let first = executor.add(with(Class::Guaranteed, 10, 0));
    let low = executor.add(with(Class::LowLatency, 90, 0));
    let best_effort = executor.add(with(Class::BestEffort, 0, 0));
    for handler in [best_effort, slow, second, first, low] {
        executor.ready(handler, Activation { eligible: Instant(0), deadline: Instant(5) }, Instant(0));
    }
    for expected in [low, first, second, slow, best_effort] {
        assert_eq!(executor.pick(Instant(1)), Some(expected));
        executor.idle(expected);
        executor.finished(expected, 1, Instant(1));
    }
}

#[test]
fn a_timers_work_is_due_by_its_budgets_deadline_and_not_by_its_messages() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let budget = Some(Budget { packets: 1, period: Nanos(100), deadline: Nanos(30) });
    let timed = executor.add(HandlerParameters {
        budget,
        trigger: Trigger::Periodic,
        ..parameters(Class::Guaranteed)
    });
    let other = executor.add(parameters(Class::Guaranteed));
    let head = Activation { eligible: Instant(10), deadline: Instant(500) };
    executor.ready(timed, head, Instant(10));
    assert_eq!((executor.pick(Instant(99)), executor.next_timeout()), (None, Some(Instant(100))));
    executor.ready(other, Activation { eligible: Instant(100), deadline: Instant(131) }, Instant(100));
    assert_eq!(executor.pick(Instant(100)), Some(timed), "due by 130");
    executor.ready(timed, head, Instant(101));
    executor.finished(timed, 1, Instant(101));
    assert_eq!(executor.pick(Instant(101)), Some(other), "the budget is spent");
    executor.finished(other, 0, Instant(102));
    executor.ready(other, Activation { eligible: Instant(200), deadline: Instant(229) }, Instant(200));
    assert_eq!(executor.pick(Instant(200)), Some(other), "the new period's work is due by 230");
}

#[test]
fn caps_hold_best_effort_back_and_never_guaranteed_work() {
    let (ms, us) = (Nanos::from_millis, Nanos::from_micros);
    let done_in = |all: u32, best_effort: u32, class: Class| {
        let mut executor = Executor::new(RunPolicy::Edf).with_caps(Ppm(all), Ppm(best_effort));
        let handler = executor.add(parameters(class));
        let (mut now, mut units) = (Instant(1_000_000_000), 0_u64);
        let end = now + ms(1_000);
        executor.ready(handler, Activation { eligible: now, deadline: now + ms(1) }, now);
        while now < end {
            match executor.pick(now) {
                Some(picked) => {
                    now = now + us(100);
                    units += 1;
                    executor.charge(picked, us(100), now);
                    executor.ready(picked, Activation { eligible: now, deadline: now + ms(1) }, now);
                    executor.finished(picked, 1, now);
                }
                None => {
                    assert!(!executor.has_ready());
                    now = executor.next_timeout().expect("the cap opens again").max(now + Nanos(1));
                }
            }
        }
        units
    };
    assert_eq!(done_in(1_000_000, 1_000_000, Class::BestEffort), 10_000);
    // What a fifth of a window leaves for the begin, and what each decision rounds.
    let window = CPU_CAP_WINDOW.0 / 5 / us(100).0;
    for (all, best_effort) in [(1_000_000, 200_000), (200_000, 1_000_000), (900_000, 200_000)] {
        let units = done_in(all, best_effort, Class::BestEffort);
        assert!((2_000..=2_005 + window).contains(&units), "{units} of 10000 under a cap of a fifth");
        assert_eq!(done_in(all, best_effort, Class::Guaranteed), 10_000);
    }
}

/// A program that was woken has the CPU before best effort: admitted work goes on, and best effort keeps half of the time.
#[test]
fn best_effort_gives_way_for_a_while_and_half_of_the_time_at_most() {
    let us = Nanos::from_micros;
    let begun = Instant(1_000_000_000);
    for policy in POLICIES {
        let mut executor = Executor::new(policy);
        let best_effort = executor.add(parameters(Class::BestEffort));
        let guaranteed = executor.add(parameters(Class::Guaranteed));
        executor.ready(best_effort, head(begun.0, begun.0), begun);
        executor.pause_best_effort(begun);
        if policy == RunPolicy::Fifo {
            assert_eq!(executor.pick(begun), Some(best_effort), "the baseline knows no precedence");
            continue;
        }
        assert_eq!((executor.pick(begun), executor.has_ready()), (None, false));
        assert_eq!(executor.next_timeout(), Some(begun + BEST_EFFORT_PAUSE));
        executor.ready(guaranteed, head(begun.0, begun.0), begun);
        assert_eq!(executor.pick(begun), Some(guaranteed), "admitted work never waits");
        executor.idle(guaranteed);
        executor.finished(guaranteed, 1, begun);
        // Asked at every moment, it gives way for half of the time: a pause and as long a run, a thousand
        // times.
        let mut runs = 0;
        for at in (0..BEST_EFFORT_PAUSE.0 / 1_000 * 2_000).map(|step| begun + us(step)) {
            executor.pause_best_effort(at);
            runs += u32::from(executor.pick(at) == Some(best_effort));
        }
        assert_eq!(runs, 50 * 1_000, "{policy:?}");
    }
}

/// Else a processor that the caps keep idle sleeps through the timer (simulation seed 5607).
#[test]
fn a_spent_budget_is_held_by_the_caps_until_its_next_period_only() {
    let us = Nanos::from_micros;
    let mut executor = Executor::new(RunPolicy::Edf).with_caps(Ppm(950_000), Ppm(1_000));
    let timed = executor.add(budgeted(1, 10_000_000, Trigger::Periodic));
    let began = Instant(1_000_000_000);
    let head = Activation { eligible: began, deadline: began + us(100) };
    executor.ready(timed, head, began);
    assert_eq!(executor.pick(began), Some(timed));
    executor.ready(timed, head, began);
    executor.finished(timed, 1, began);
    // Work beyond its budget runs as best effort, and takes more than best effort's share.
    assert_eq!(executor.pick(began), Some(timed));
    executor.ready(timed, head, began);
    executor.finished(timed, 1, began);
    executor.charge(timed, us(500), began);
    assert_eq!(executor.pick(began), None);
    assert_eq!(executor.next_timeout(), Some(began + us(10_000)));
    assert_eq!(executor.pick(began + us(10_000)), Some(timed));
}

/// Caps that hold nobody back wake nobody.
#[test]
fn a_spent_cap_without_a_handler_that_waits_for_it_is_no_timeout() {
    let us = Nanos::from_micros;
    let mut executor = Executor::new(RunPolicy::Edf).with_caps(Ppm(950_000), Ppm(1_000));
    let handler = executor.add(parameters(Class::BestEffort));
    let channel = executor.add(parameters(Class::Guaranteed));
    let began = Instant(1_000_000_000);
    let head = Activation { eligible: began, deadline: began + us(100) };
    executor.ready(handler, head, began);
    assert_eq!(executor.pick(began), Some(handler));
    executor.charge(handler, us(500), began);
    executor.idle(handler);
    executor.finished(handler, 1, began);
    assert_eq!((executor.pick(began), executor.next_timeout()), (None, None), "nobody has work");
    executor.ready(channel, head, began);
    assert_eq!((executor.has_ready(), executor.next_timeout()), (true, None), "it may run at once");
    executor.idle(channel);
    executor.ready(handler, head, began);
    assert!(!executor.has_ready() && executor.next_timeout().is_some_and(|at| at > began));
}

#[test]
fn what_work_did_not_take_counts_against_no_cap() {
    let us = Nanos::from_micros;
    let mut executor = Executor::new(RunPolicy::Edf).with_caps(Ppm(950_000), Ppm(500_000));
    let handler = executor.add(parameters(Class::BestEffort));
    let (mut now, mut units) = (Instant(1_000_000_000), 0_u64);
    let end = now + Nanos::from_millis(1_000);
    executor.ready(handler, Activation { eligible: now, deadline: now }, now);
    while now < end {
        let Some(picked) = executor.pick(now) else {
            now = executor.next_timeout().expect("the cap opens again").max(now + Nanos(1));
            continue;
        };
        // Ten times cheaper than declared.
        now = now + us(10);
        units += 1;
        executor.charge(picked, us(100), now);
        executor.ready(picked, Activation { eligible: now, deadline: now }, now);
        executor.finished(picked, 1, now);
        executor.refund(us(90), now);
    }
    assert!(
        (50_000..=50_510).contains(&units),
        "{units}: half of the time in units of 10 us, and the window"
    );
}

#[test]
fn what_guaranteed_work_did_not_take_is_no_credit_of_best_effort() {
    let us = Nanos::from_micros;
    let mut executor = Executor::new(RunPolicy::Edf).with_caps(Ppm(950_000), Ppm(100_000));
    let timed = executor.add(budgeted(1, 1_000_000, Trigger::Periodic));
    let flow = executor.add(parameters(Class::BestEffort));
    let mut now = Instant(1_000_000_000);
    let end = now + Nanos::from_millis(1_000);
    let head = |now| Activation { eligible: now, deadline: now };
    executor.ready(flow, head(now), now);
    let mut units = 0_u64;
    while now < end {
        executor.ready(timed, head(now), now);
        let Some(picked) = executor.pick(now) else {
            now = executor.next_timeout().expect("a period begins").max(now + Nanos(1));
            continue;
        };
        now = now + us(100);
        executor.charge(picked, us(100), now);
        if picked == timed {
            // The last of its budget: what exceeds it would be best effort, this was not.
            executor.finished(picked, 1, now);
            executor.idle(picked);
            executor.refund(us(100), now);
        } else {
            units += 1;
            executor.ready(picked, head(now), now);
            executor.finished(picked, 1, now);
        }
    }
    assert!((1_000..=1_013).contains(&units), "{units} units of 100 us under a cap of a tenth");
}

#[test]
fn a_flow_of_best_effort_waits_once_its_share_is_spent_and_no_other_does() {
    let us = Nanos::from_micros;
    let mut executor = Executor::new(RunPolicy::Edf).with_flow_cap(Ppm(100_000));
    let classes = [Class::BestEffort, Class::BestEffort, Class::Guaranteed];
    let ids: Vec<HandlerId> = classes.into_iter().map(|class| executor.add(parameters(class))).collect();
    let mut now = Instant(1_000_000_000);
    let end = now + Nanos::from_millis(1_000);
    let mut units = [0_u64; 3];
    // The guaranteed one has a unit of 100 us every millisecond; the first flow always more, the second 50 us a ms.
    let mut due = [now; 3];
    while now < end {
        for (index, id) in ids.iter().enumerate().filter(|(index, _)| due[*index] <= now) {
            executor.ready(*id, Activation { eligible: due[index], deadline: due[index] + us(500) }, now);
        }
        let Some(picked) = executor.pick(now) else {
            let next = due.iter().copied().filter(|due| *due > now).min().into_iter();
            now = next.chain(executor.next_timeout()).min().expect("something is due").max(now + Nanos(1));
            continue;
        };
        let index = ids.iter().position(|id| *id == picked).expect("one of them");
        let cost = [us(100), us(50), us(100)][index];
        now = now + cost;
        units[index] += 1;
        due[index] = if index == 0 { now } else { due[index] + us(1_000) };
        executor.charge_flow(picked, cost, now);
        executor.idle(picked);
        executor.finished(picked, 1, now);
    }
    // A tenth of 10,000 units and the burst of a window of 10 ms.
    assert!((1_000..=1_012).contains(&units[0]), "{units:?}");
    assert!(units[1] >= 999 && units[2] >= 999, "{units:?}");
}

/// Calls for a handler that is gone, or never existed, do not affect others.
#[test]
fn calls_for_a_removed_handler_change_nothing() {
    for policy in POLICIES {
        let mut executor = Executor::new(policy).with_caps(Ppm::ONE, Ppm(1)).with_flow_cap(Ppm(1));
        let [stays, gone] = [0, 1].map(|_| executor.add(parameters(Class::BestEffort)));
        executor.remove(gone);
        executor.ready(stays, head(0, 10), Instant(0));
        for id in [gone, HandlerId(99)] {
            executor.ready(id, head(0, 1), Instant(0));
            executor.block(id);
            executor.unblock(id, Instant(0));
            executor.charge_flow(id, Nanos(1_000), Instant(0));
            executor.charge(id, Nanos(1_000), Instant(0));
            executor.finished(id, 1, Instant(0));
            executor.idle(id);
            executor.remove(id);
        }
        assert_eq!(run_all(&mut executor, 0), [stays], "{policy:?}");
        assert_eq!(executor.next_timeout(), None, "{policy:?}");
    }
}
