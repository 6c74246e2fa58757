//! Enqueue plus dequeue of the link scheduler in steady state: each iteration enqueues one packet and polls one.
//!
//! `cargo bench -p punctual-proto --bench linksched`, in CPU time of the thread. Names are LOAD/CHANNELS; the
//! channels take turns in a random order. `current`: every packet goes to queue 1. `early`: half of them wait
//! in queue 3 first. `mixed`: one in ten is best effort besides. Some 1,000 packets are queued at any time;
//! `backlog` is the worst case, a packet of every channel queued, which no cache holds at a million.

mod cpu_time;

use std::hint::black_box;

use cpu_time::CpuTime;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use punctual_proto::config::{Interference, Pacing};
use punctual_proto::linksched::{BestEffortKey, FlowIndex, Guaranteed, LinkParameters, LinkScheduler};
use punctual_proto::{BitRate, Instant, Nanos, Ppm};

/// Time between packets: an 80 Gbit/s link of small packets.
const STEP_NS: u64 = 100;
/// Packets queued at any time.
const QUEUED: usize = 1_000;
const WIRE_BYTES: u32 = 900;

/// An arrival at a channel, precomputed so that the generator costs one sequential read.
struct Arrival {
    flow: FlowIndex,
    early_ns: u64,
    bound_ns: u64,
}

struct Load {
    scheduler: LinkScheduler<u64>,
    arrivals: Vec<Arrival>,
    next: usize,
    turn: usize,
    now_ns: u64,
    best_effort_every: usize,
}

fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl Load {
    /// `early_percent` of the packets arrive early, every n-th is best effort, about `queued` are queued.
    fn new(channels: usize, queued: usize, early_percent: u64, best_effort_every: usize) -> Self {
        let mut scheduler = LinkScheduler::new(LinkParameters {
            rate: BitRate(1 << 50),
            mtu_wire_bytes: 1_530,
            best_effort_wire_bytes: 1_530,
            pipeline_depth: 2,
            pace: Pacing::Clock,
            interference: Interference::default(),
            best_effort_flow_cap: Ppm::ONE,
            best_effort_cap: Ppm::ONE,
            best_effort_flow_bytes_max: 1 << 20,
            best_effort_flows_max: 4_096,
            best_effort_packets_max: 8_192,
        });
        let (mut seed, span_ns) = (0x9E37_79B9_7F4A_7C15, queued as u64 * STEP_NS);
        let mut arrivals: Vec<Arrival> = (0..channels)
            .map(|_| Arrival {
                flow: scheduler.add_channel(4, Nanos::ZERO),
                early_ns: if xorshift(&mut seed) % 100 < early_percent {
                    xorshift(&mut seed) % (span_ns / 2)
                } else {
                    0
                },
                bound_ns: span_ns / 2 + xorshift(&mut seed) % span_ns,
            })
            .collect();
        for i in (1..channels).rev() {
            arrivals.swap(i, xorshift(&mut seed) as usize % (i + 1));
        }
        let mut load = Self { scheduler, arrivals, next: 0, turn: 0, now_ns: 0, best_effort_every };
        for _ in 0..queued {
            load.enqueue();
        }
        load
    }

    fn enqueue(&mut self) {
        self.now_ns += STEP_NS;
        let now = Instant(self.now_ns);
        self.turn = if self.turn + 1 == self.arrivals.len() { 0 } else { self.turn + 1 };
        let arrival = &self.arrivals[self.turn];
        let packet = self.next as u64;
        self.next += 1;
        let taken = if self.next.is_multiple_of(self.best_effort_every) {
            let key = BestEffortKey(packet % 61);
            self.scheduler.enqueue_best_effort(now, key, WIRE_BYTES, packet).is_ok()
        } else {
            let effective = now + Nanos(arrival.early_ns);
            let deadline = effective + Nanos(arrival.bound_ns);
            let key = Guaranteed { effective, deadline, wire_bytes: WIRE_BYTES };
            self.scheduler.enqueue(now, arrival.flow, key, packet).is_ok()
        };
        black_box(taken);
    }

    fn step(&mut self) {
        self.enqueue();
        black_box(self.scheduler.poll(Instant(self.now_ns)));
    }
}

fn enqueue_and_dequeue(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("linksched");
    for channels in [10_000, 1_000_000] {
        for (name, queued, early_percent, best_effort_every) in [
            ("current", QUEUED, 0, usize::MAX),
            ("early", QUEUED, 50, usize::MAX),
            ("mixed", QUEUED, 50, 10),
            ("backlog", channels, 0, usize::MAX),
        ] {
            let mut load = Load::new(channels, queued, early_percent, best_effort_every);
            group.bench_with_input(BenchmarkId::new(name, channels), &channels, |bencher, _| {
                bencher.iter(|| load.step());
            });
            let sent = load.scheduler.counters();
            let handed_over = sent.guaranteed_packets + sent.best_effort_packets;
            let polls = (load.next - queued) as u64;
            assert!(handed_over * 10 >= polls * 9, "only {handed_over} packets in {polls} polls");
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .with_measurement(CpuTime)
        .warm_up_time(std::time::Duration::from_secs(1))
        .measurement_time(std::time::Duration::from_secs(3));
    targets = enqueue_and_dequeue
}
criterion_main!(benches);
