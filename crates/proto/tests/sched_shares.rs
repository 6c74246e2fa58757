//! Until when best effort waits that has spent its share of the processor: its own, that of all best effort,
//! or that of all work.

mod common;

use common::handler::PLAIN;
use punctual_proto::config::RunPolicy;
use punctual_proto::limits::CPU_CAP_WINDOW;
use punctual_proto::sched::{Activation, Budget, Class, Executor, HandlerId, HandlerParameters, Trigger};
use punctual_proto::{Instant, Nanos, Ppm};

const NOW: Instant = Instant(1_000_000_000);
/// A tenth of the time.
const SHARE: Ppm = Ppm(100_000);

const FLOW: HandlerParameters = HandlerParameters { class: Class::BestEffort, ..PLAIN };

const HEAD: Activation = Activation { eligible: NOW, deadline: NOW };

/// Runs the handler, which has more to do then.
fn run(executor: &mut Executor, id: HandlerId, cost: Nanos) {
    assert_eq!(executor.pick(NOW), Some(id));
    executor.charge_flow(id, cost, NOW);
    executor.finished(id, 1, NOW);
}

/// The flow runs from `at` on and not before, and that is what the executor wakes for.
fn assert_waits_until(executor: &mut Executor, id: HandlerId, at: Instant) {
    assert_eq!(executor.next_timeout(), Some(at));
    assert_eq!((executor.pick(at - Nanos(1)), executor.next_timeout()), (None, Some(at)));
    assert_eq!(executor.pick(at), Some(id));
}

/// A tenth of the time earns a cost in ten times as long. A flow may be ahead of that by a window.
#[test]
fn a_flow_waits_until_its_share_has_earned_all_but_a_window() {
    let window = CPU_CAP_WINDOW.0 / 10;
    for cost in [0, 1, window - 1, window, window + 1, window * 2, window * 7] {
        let mut executor = Executor::new(RunPolicy::Edf).with_flow_cap(SHARE);
        let flow = executor.add(FLOW);
        executor.ready(flow, HEAD, NOW);
        run(&mut executor, flow, Nanos(cost));
        match cost.checked_sub(window).filter(|ahead| *ahead > 0) {
            None => assert_eq!(executor.pick(NOW), Some(flow), "{cost}"),
            Some(ahead) => assert_waits_until(&mut executor, flow, NOW + Nanos(ahead * 10)),
        }
    }
}

/// A cap holds best effort back as long, whichever of the two caps it is; a cap of the whole time is none.
#[test]
fn best_effort_waits_until_a_cap_has_earned_all_but_a_window() {
    let window = CPU_CAP_WINDOW.0 / 10;
    for (all, best_effort) in [(SHARE, Ppm::ONE), (Ppm::ONE, SHARE), (SHARE, SHARE), (Ppm::ONE, Ppm::ONE)] {
        for cost in [window, window + 1, window * 3, CPU_CAP_WINDOW.0 * 2] {
            let mut executor =
                Executor::new(RunPolicy::Edf).with_caps(all, best_effort).with_flow_cap(Ppm::ONE);
            let flow = executor.add(FLOW);
            executor.ready(flow, HEAD, NOW);
            run(&mut executor, flow, Nanos(cost));
            executor.charge(flow, Nanos(cost), NOW);
            let is_free = cost == window || all.min(best_effort) == Ppm::ONE;
            assert_eq!(executor.has_ready(), is_free, "{cost} {all:?} {best_effort:?}");
            match cost - window {
                _ if is_free => assert_eq!(executor.pick(NOW), Some(flow), "{cost} {all:?} {best_effort:?}"),
                ahead => assert_waits_until(&mut executor, flow, NOW + Nanos(ahead * 10)),
            }
        }
    }
}

/// Work beyond a budget waits for the share only until the clock renews the budget, whichever is sooner.
#[test]
fn what_is_beyond_a_budget_waits_for_the_share_or_for_the_next_period() {
    // The share has earned it after another window.
    let cost = Nanos(CPU_CAP_WINDOW.0 / 10 * 2);
    for trigger in [Trigger::Refilled, Trigger::Periodic] {
        let window = CPU_CAP_WINDOW;
        for period in [Nanos(4_000_000), window, window + Nanos(1), window * 3 + Nanos(1), window * 4] {
            let mut executor = Executor::new(RunPolicy::Edf).with_flow_cap(SHARE);
            let budget = Some(Budget { packets: 1, period, deadline: period });
            let class = Class::Guaranteed;
            let id = executor.add(HandlerParameters { class, budget, trigger, ..FLOW });
            // Periods of a timer are multiples of it.
            let phase = if trigger == Trigger::Periodic { NOW.0 % period.0 } else { 0 };
            let renewed = NOW + period - Nanos(phase);
            executor.ready(id, Activation { eligible: Instant(0), deadline: NOW }, NOW);
            run(&mut executor, id, Nanos::ZERO);
            // The second unit is beyond the budget: it is charged to the flow.
            run(&mut executor, id, cost);
            let earned = NOW + CPU_CAP_WINDOW;
            assert_waits_until(&mut executor, id, renewed.min(earned));
            // A new budget is served at the class of its handler again.
            executor.finished(id, 0, renewed.min(earned));
            assert_eq!(executor.has_urgent(), renewed <= earned, "{trigger:?} {period}");
        }
    }
}
