//! The order of handlers, in numbers: the parts of a handler's place that count under each order, and that no
//! part overflows into another.

mod common;

use common::handler::PLAIN;
use punctual_analysis::contract::SPAN_MAX;
use punctual_proto::config::RunPolicy;
use punctual_proto::sched::{Activation, Budget, Class, Executor, HandlerId, HandlerParameters, Trigger};
use punctual_proto::{Instant, Nanos};

fn due(deadline: u64) -> Activation {
    Activation { eligible: Instant(0), deadline: Instant(deadline) }
}

/// The order in which handlers run that become ready in the order given, each with its deadline.
fn order(policy: RunPolicy, handlers: &[(HandlerParameters, u64)]) -> Vec<usize> {
    let mut executor = Executor::new(policy);
    let ids: Vec<HandlerId> = handlers.iter().map(|(parameters, _)| executor.add(*parameters)).collect();
    // The last handler that is added is ready first: equal ones are ordered by that, not by their number.
    for (id, (_, deadline)) in ids.iter().zip(handlers).rev() {
        executor.ready(*id, due(*deadline), Instant(0));
    }
    let mut order = Vec::new();
    while let Some(id) = executor.pick(Instant(0)) {
        order.push(ids.iter().position(|other| *other == id).expect("one of ours"));
        executor.idle(id);
        executor.finished(id, 1, Instant(0));
    }
    order
}

/// Whether `first` precedes `second` whichever of them is ready first; `None` if that decides.
fn before(
    policy: RunPolicy,
    first: (HandlerParameters, u64),
    second: (HandlerParameters, u64),
) -> Option<bool> {
    let (one, other) = (order(policy, &[first, second]), order(policy, &[second, first]));
    assert_eq!((one.len(), other.len()), (2, 2));
    (one[0] != other[0]).then_some(one[0] == 0)
}

/// Under `rmdp` the place within a rate group counts up to 63, then the order of becoming ready; a shorter
/// period precedes any place.
#[test]
fn places_count_within_their_rate_group_only() {
    let of = |period: Nanos, place: u8| (HandlerParameters { period, place, ..PLAIN }, 7);
    let rmdp = |first, second| before(RunPolicy::Rmdp, first, second);
    for period in [Nanos(1), Nanos(2), Nanos::from_millis(10), SPAN_MAX - Nanos(1)] {
        for (low, high) in [(0, 1), (1, 2), (31, 32), (61, 62), (62, 63), (0, 255), (62, 255)] {
            assert_eq!(rmdp(of(period, low), of(period, high)), Some(true), "{period} {low} {high}");
            assert_eq!(rmdp(of(period, high), of(period, low)), Some(false), "{period} {high} {low}");
            let longer = period + Nanos(1);
            assert_eq!(rmdp(of(period, high), of(longer, low)), Some(true), "{period} {high} {low}");
        }
        for (one, other) in [(63, 64), (63, 255), (5, 5)] {
            assert_eq!(rmdp(of(period, one), of(period, other)), None, "{period} {one} {other}");
        }
    }
    // Longer than any contract may be is as long as that.
    assert_eq!(rmdp(of(SPAN_MAX, 0), of(SPAN_MAX * 4, 0)), None);
    assert_eq!(rmdp(of(SPAN_MAX - Nanos(1), 255), of(SPAN_MAX * 4, 0)), Some(true));
}

/// Classes come before whatever else: at each end of what counts within them.
#[test]
fn classes_come_before_all_that_counts_within_them() {
    let classes = [
        Class::Signalling,
        Class::LowLatency,
        Class::Guaranteed,
        Class::Soft,
        Class::BestEffort,
        Class::Background,
    ];
    let least = |class| (HandlerParameters { class, ..PLAIN }, 0);
    let most =
        |class| (HandlerParameters { class, level: 255, period: SPAN_MAX, place: 255, ..PLAIN }, u64::MAX);
    for (index, class) in classes.into_iter().enumerate() {
        for other in &classes[index + 1..] {
            let is_channels = |class| matches!(class, Class::LowLatency | Class::Guaranteed | Class::Soft);
            let is_hard = |class| matches!(class, Class::LowLatency | Class::Guaranteed);
            let of = |policy| before(policy, most(class), least(*other));
            assert_eq!(of(RunPolicy::Rmdp), Some(true), "{class:?} {other:?}");
            // Among channels levels and deadlines decide: soft ones are apart under `edf` only.
            let by_level = if is_channels(class) && is_channels(*other) { Some(false) } else { Some(true) };
            assert_eq!(of(RunPolicy::FixedPriority), by_level, "{class:?} {other:?}");
            let by_deadline = if is_hard(class) && is_hard(*other) { Some(false) } else { Some(true) };
            assert_eq!(of(RunPolicy::Edf), by_deadline, "{class:?} {other:?}");
            assert_eq!(of(RunPolicy::Fifo), None, "{class:?} {other:?}: it knows arrivals only");
        }
    }
}

/// Handlers without a channel have no period, place or deadline: signalling and best effort are served first
/// come, first served.
#[test]
fn handlers_without_a_channel_run_first_come_first_served() {
    for class in [Class::Signalling, Class::BestEffort, Class::Background] {
        let of = |nanos: u64| {
            (
                HandlerParameters {
                    class,
                    period: Nanos(nanos),
                    place: nanos as u8,
                    level: nanos as u8,
                    ..PLAIN
                },
                nanos,
            )
        };
        for policy in [RunPolicy::Edf, RunPolicy::Rmdp, RunPolicy::FixedPriority] {
            assert_eq!(before(policy, of(1), of(200)), None, "{policy:?} {class:?}");
        }
    }
    for (policy, class) in [(RunPolicy::Edf, Class::Soft), (RunPolicy::Rmdp, Class::Soft)] {
        let of = |nanos: u64| (HandlerParameters { class, period: Nanos(nanos), ..PLAIN }, nanos);
        assert_eq!(before(policy, of(1), of(200)), Some(true), "{policy:?}");
    }
}

/// A timer's work may begin with the first multiple of its period at or after its arrival, and its period's budget begins there.
#[test]
fn a_timers_work_begins_with_the_first_multiple_of_its_period() {
    for (eligible, begins) in [(0, 0), (1, 100), (99, 100), (100, 100), (101, 200), (250, 300)] {
        let mut executor = Executor::new(RunPolicy::Edf);
        let budget = Some(Budget { packets: 2, period: Nanos(100), deadline: Nanos(60) });
        let timed = executor.add(HandlerParameters { budget, trigger: Trigger::Periodic, ..PLAIN });
        let activation = Activation { eligible: Instant(eligible), deadline: Instant(10_000) };
        executor.ready(timed, activation, Instant(0));
        if begins > 0 {
            assert_eq!(executor.next_timeout(), Some(Instant(begins)), "{eligible}");
            assert_eq!(executor.pick(Instant(begins - 1)), None, "{eligible}");
        }
        // If it is picked late in its period, its budget and deadline are still that period's.
        let late = begins + 70;
        let rival = executor.add(PLAIN);
        executor.ready(
            rival,
            Activation { eligible: Instant(0), deadline: Instant(begins + 61) },
            Instant(late),
        );
        assert_eq!(executor.pick(Instant(late)), Some(timed), "{eligible}: due by {}", begins + 60);
        executor.finished(timed, 2, Instant(late));
        assert_eq!(executor.pick(Instant(late)), Some(rival), "{eligible}: its budget is spent");
        executor.idle(rival);
        executor.finished(rival, 1, Instant(late));
        assert_eq!(executor.pick(Instant(begins + 99)), Some(timed), "{eligible}: in the background");
        assert!(!executor.has_urgent());
        executor.finished(timed, 0, Instant(begins + 99));
        executor.ready(
            rival,
            Activation { eligible: Instant(0), deadline: Instant(begins + 161) },
            Instant(begins + 100),
        );
        assert_eq!(executor.pick(Instant(begins + 100)), Some(timed), "{eligible}: the next period's");
    }
}

/// A budget that the clock refills is whole again a period later, even if nobody calls for its handler; no
/// period is shorter than a nanosecond.
#[test]
fn the_clock_refills_a_budget_after_its_period() {
    for (period, refilled) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
        for now in 0..5 {
            let mut executor = Executor::new(RunPolicy::Edf);
            let budget = Some(Budget { packets: 1, period: Nanos(period), deadline: Nanos(period) });
            let handler = executor.add(HandlerParameters { budget, trigger: Trigger::Refilled, ..PLAIN });
            executor.ready(handler, due(9), Instant(0));
            assert_eq!(executor.pick(Instant(0)), Some(handler));
            executor.finished(handler, 1, Instant(0));
            assert!(executor.yield_request(Instant(now)), "it may run, in the background");
            assert_eq!(executor.has_urgent(), now >= refilled, "{period} {now}");
        }
    }
}

/// A reactive budget's next period begins with the work that arrived a period after what began the last, to the nanosecond.
#[test]
fn a_reactive_budget_is_renewed_by_work_that_arrived_a_period_later() {
    for (arrives, urgent) in [(100, false), (149, false), (150, true), (151, true)] {
        let mut executor = Executor::new(RunPolicy::Edf);
        let budget = Some(Budget { packets: 1, period: Nanos(100), deadline: Nanos(100) });
        let handler = executor.add(HandlerParameters { budget, ..PLAIN });
        let at = |eligible: u64| Activation { eligible: Instant(eligible), deadline: Instant(eligible + 50) };
        executor.ready(handler, at(50), Instant(50));
        assert_eq!(executor.pick(Instant(50)), Some(handler));
        executor.idle(handler);
        executor.finished(handler, 1, Instant(60));
        // The time of the call does not matter, only its arrival.
        executor.ready(handler, at(arrives), Instant(400));
        assert_eq!((executor.has_ready(), executor.has_urgent()), (true, urgent), "{arrives}");
    }
}

/// A handler that is removed, added again or re-keyed has its correct position whatever other handlers there
/// are.
#[test]
fn handlers_run_in_order_however_they_came_and_went() {
    for count in 1..40_u64 {
        let mut executor = Executor::new(RunPolicy::Edf);
        let ids: Vec<HandlerId> = (0..count).map(|_| executor.add(PLAIN)).collect();
        let place = |index: u64, salt: u64| (index * 7 + salt * 5) % 41;
        for salt in [3, 11] {
            for (index, id) in ids.iter().enumerate() {
                executor.ready(*id, due(place(index as u64, salt)), Instant(0));
            }
        }
        for id in ids.iter().step_by(3) {
            executor.idle(*id);
        }
        let mut expected: Vec<(u64, HandlerId)> = ids
            .iter()
            .enumerate()
            .filter(|(index, _)| index % 3 != 0)
            .map(|(index, id)| (place(index as u64, 11), *id))
            .collect();
        expected.sort_unstable();
        for (_, id) in expected {
            assert_eq!(executor.pick(Instant(0)), Some(id), "of {count}");
            executor.remove(id);
        }
        assert_eq!(executor.pick(Instant(0)), None);
    }
}

/// Operations on a handler that does not exist (any more) change nothing; and a handler that is picked while
/// another runs takes its place, unfinished.
#[test]
fn handlers_that_are_gone_change_nothing() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let [kept, gone] = [(); 2].map(|()| executor.add(PLAIN));
    executor.ready(kept, due(9), Instant(0));
    executor.remove(gone);
    for id in [gone, HandlerId(77)] {
        executor.ready(id, due(1), Instant(0));
        executor.idle(id);
        executor.block(id);
        executor.unblock(id, Instant(0));
        executor.finished(id, 1, Instant(0));
        executor.charge_flow(id, Nanos(5), Instant(0));
        executor.remove(id);
        assert_eq!((executor.unit_packets(id), executor.is_running(id)), (1, false));
    }
    assert_eq!(executor.pick(Instant(0)), Some(kept));
    let second = executor.add(PLAIN);
    assert_eq!(second, gone, "its place is somebody else's");
    executor.ready(second, due(5), Instant(0));
    assert!(executor.yield_request(Instant(0)), "more urgent");
    // The first was never reported as finished: it waits again, and continues later.
    assert_eq!(executor.pick(Instant(0)), Some(second));
    executor.idle(second);
    assert_eq!(executor.pick(Instant(0)), Some(kept));
    assert!(!executor.yield_request(Instant(0)));
}

/// A turn of best effort is of one packet at least, even if its quantum is none: what has done nothing yet
/// keeps its turn.
#[test]
fn a_turn_is_of_one_packet_at_least() {
    for (quantum_packets, packets) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
        let mut executor = Executor::new(RunPolicy::Edf);
        let of = HandlerParameters { class: Class::BestEffort, quantum_packets, ..PLAIN };
        let [first, second] = [of; 2].map(|of| executor.add(of));
        [first, second].into_iter().for_each(|id| executor.ready(id, due(1), Instant(0)));
        for _ in 0..packets {
            assert_eq!(executor.pick(Instant(0)), Some(first), "{quantum_packets}");
            executor.finished(first, 0, Instant(0));
            assert_eq!(executor.pick(Instant(0)), Some(first), "{quantum_packets}: it has done nothing");
            executor.finished(first, 1, Instant(0));
        }
        assert_eq!(executor.pick(Instant(0)), Some(second), "{quantum_packets}");
    }
}

/// While more handlers become eligible than are moved at once, the running one must yield: one of them may be
/// more urgent.
#[test]
fn a_running_handler_yields_to_a_crowd_that_is_not_placed_yet() {
    let mut executor = Executor::new(RunPolicy::Edf);
    let first = executor.add(PLAIN);
    executor.ready(first, due(1), Instant(0));
    assert_eq!(executor.pick(Instant(0)), Some(first));
    for _ in 0..3 * punctual_proto::limits::EXECUTOR_MOVES_MAX {
        let late = executor.add(PLAIN);
        executor.ready(late, Activation { eligible: Instant(10), deadline: Instant(100) }, Instant(0));
    }
    assert!(!executor.yield_request(Instant(9)) && executor.yield_request(Instant(10)));
}

/// So many handlers are moved in one call: if there is one more, something more urgent may still wait, and
/// nothing runs yet.
#[test]
fn nothing_runs_until_all_that_are_due_are_placed() {
    const MOST: u64 = punctual_proto::limits::EXECUTOR_MOVES_MAX as u64;
    for (due_at_once, placed) in [(MOST - 1, true), (MOST, true), (MOST + 1, false)] {
        let crowd = || {
            let mut executor = Executor::new(RunPolicy::Edf);
            let running = executor.add(PLAIN);
            executor.ready(running, due(1), Instant(0));
            assert_eq!(executor.pick(Instant(0)), Some(running));
            for number in 0..due_at_once {
                let late = executor.add(PLAIN);
                let deadline = Instant(100 - number);
                executor.ready(late, Activation { eligible: Instant(10), deadline }, Instant(0));
            }
            (executor, running)
        };
        let (mut executor, running) = crowd();
        assert_eq!(executor.yield_request(Instant(10)), !placed, "{due_at_once}");
        let (mut executor, _) = crowd();
        executor.remove(running);
        let last = HandlerId(due_at_once as u32);
        assert_eq!(executor.pick(Instant(10)), placed.then_some(last), "{due_at_once}");
        assert_eq!(
            executor.next_timeout().is_some(),
            !placed,
            "{due_at_once}: it must be picked again at once"
        );
        assert_eq!(executor.pick(Instant(10)), Some(last), "{due_at_once}");
    }
}

/// The baseline policy has neither caps nor shares of flows.
#[test]
fn first_come_first_served_has_no_caps() {
    let share = punctual_proto::Ppm(1);
    for policy in [RunPolicy::Fifo, RunPolicy::Edf] {
        let mut executor = Executor::new(policy).with_caps(share, share).with_flow_cap(share);
        let flow = executor.add(HandlerParameters { class: Class::BestEffort, ..PLAIN });
        executor.charge(flow, Nanos::from_secs(1), Instant(0));
        executor.charge_flow(flow, Nanos::from_secs(1), Instant(0));
        executor.ready(flow, due(1), Instant(0));
        assert_eq!(executor.pick(Instant(0)).is_some(), policy == RunPolicy::Fifo, "{policy:?}");
    }
}
