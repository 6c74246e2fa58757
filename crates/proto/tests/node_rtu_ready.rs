//! Since when a program's handler has had work, and when the node wants to be called for it.

use punctual_proto::api::{RtuClass, RtuCost, RtuTerms};
use punctual_proto::config::Admission;
use punctual_proto::{Instant, Nanos};
use punctual_rig::handlers::{Bench, cpu};

const US: fn(u64) -> Nanos = Nanos::from_micros;
const AT: fn(u64) -> Instant = |us| Instant(us * 1_000);

/// A handler that becomes ready several times while its body runs has work since the first time: that is when its next
/// data unit is released, and its lateness counts from there.
#[test]
fn work_that_comes_several_times_while_the_body_runs_has_waited_since_the_first() {
    for admission in [Admission::EDF, Admission::RMDP, Admission::FIXED_PRIORITY] {
        for times in [&[10][..], &[10, 25], &[10, 15, 20, 29]] {
            let mut bench = Bench::new(cpu(admission));
            let class = RtuClass::LowDelay { interval: US(10_000), units: 4, priority: None };
            let cost = RtuCost { run: US(2), unit: US(20) };
            let id = bench.register(RtuTerms { class, deadline: None, quantum: 1, cost }).expect("granted");
            let bound = bench.bodies[&id].grant.bound.expect("within its budget");
            bench.node.make_ready(id, AT(0));
            let work = bench.node.begin_work(AT(0)).expect("a call");
            times.iter().for_each(|at| bench.node.make_ready(id, AT(*at)));
            bench.node.finish_work(work, AT(30));
            assert_eq!(bench.counters(id).late, 0, "the first call");
            let again = bench.node.begin_work(AT(30)).expect("called again");
            bench.node.finish_work(again, AT(10) + bound + US(5));
            let counters = bench.counters(id);
            assert_eq!((counters.late, counters.late_max), (1, US(5)), "{admission:?}: ready at {times:?}");
        }
    }
}

/// A timer that was set later may expire earlier: the node wants to be called at the first, whoever has it.
#[test]
fn each_timer_expires_at_its_own_time() {
    let mut bench = Bench::new(cpu(Admission::EDF));
    let cost = RtuCost { run: US(2), unit: US(20) };
    let terms = RtuTerms { class: RtuClass::BestEffort, deadline: None, quantum: 1, cost };
    let ids = [9_000, 3_000, 6_000].map(|at| {
        let id = bench.register(terms).expect("granted");
        bench.node.make_ready_at(id, Some(AT(at)));
        id
    });
    for (at, id) in [(3_000, ids[1]), (6_000, ids[2]), (9_000, ids[0])] {
        assert_eq!(bench.node.poll_timeout(), Some(AT(at)));
        let early = Instant(AT(at).0 - 1);
        bench.node.handle_timeout(early);
        assert_eq!(bench.node.begin_work(early), None, "not before {at}");
        bench.node.handle_timeout(AT(at));
        let work = bench.node.begin_work(AT(at)).expect("it has work now");
        assert_eq!(bench.node.upcall(&work), Some(id));
        bench.node.finish_work(work, AT(at) + cost.of(1));
    }
}
