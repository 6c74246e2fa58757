//! The executor's cycle in steady state: pick, yield request, new head, finished.
//!
//! `cargo bench -p punctual-proto --bench sched`, in CPU time of the thread. Every handler has work; each message is one PDU, the next is
//! a period later, so that every handler waits, becomes eligible and runs in turn.

mod cpu_time;

use std::hint::black_box;

use cpu_time::CpuTime;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use punctual_proto::config::RunPolicy;
use punctual_proto::sched::{Activation, Budget, Class, Executor, HandlerParameters, Trigger};
use punctual_proto::{Instant, Nanos};

/// Time of a PDU.
const STEP_NS: u64 = 1_000;

struct Load {
    executor: Executor,
    /// By handler: effective arrival of its head.
    eligible: Vec<Instant>,
    period: Nanos,
    now: Instant,
    picked: u64,
    steps: u64,
}

impl Load {
    fn new(policy: RunPolicy, handlers: u64) -> Self {
        let (mut executor, period) = (Executor::new(policy), Nanos(handlers * STEP_NS));
        let mut eligible = Vec::new();
        for handler in 0..handlers {
            let id = executor.add(HandlerParameters {
                period,
                place: 0,
                class: Class::Guaranteed,
                level: (handler % 30) as u8,
                quantum_packets: 1,
                budget: Some(Budget { packets: 1, period, deadline: period }),
                trigger: Trigger::Reactive,
            });
            let arrival = Instant(handler * 7_919 % handlers * STEP_NS);
            executor.ready(id, Activation { eligible: arrival, deadline: arrival + period }, Instant::ZERO);
            eligible.push(arrival);
        }
        Self { executor, eligible, period, now: Instant::ZERO, picked: 0, steps: 0 }
    }

    fn step(&mut self) {
        self.steps += 1;
        self.now = self.now + Nanos(STEP_NS);
        let Some(id) = self.executor.pick(self.now) else { return };
        self.picked += 1;
        black_box(self.executor.yield_request(self.now));
        let eligible = &mut self.eligible[id.0 as usize];
        *eligible = *eligible + self.period;
        let activation = Activation { eligible: *eligible, deadline: *eligible + self.period };
        self.executor.ready(id, activation, self.now);
        self.executor.finished(id, 1, self.now);
    }
}

fn cycle(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("executor");
    for (name, policy) in [("edf", RunPolicy::Edf), ("fixed-priority", RunPolicy::FixedPriority)] {
        for handlers in [100, 10_000] {
            let mut load = Load::new(policy, handlers);
            group.bench_with_input(BenchmarkId::new(name, handlers), &handlers, |bencher, _| {
                bencher.iter(|| load.step());
            });
            assert!(
                load.picked * 10 >= load.steps * 9,
                "picked {} times in {} steps",
                load.picked,
                load.steps
            );
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .with_measurement(CpuTime)
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = cycle
}
criterion_main!(benches);
