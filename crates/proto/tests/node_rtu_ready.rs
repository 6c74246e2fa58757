//! Since when a program's handler has had work.

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
