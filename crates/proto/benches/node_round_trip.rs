//! A round trip of 64 B between two bare nodes: both ways through source, link scheduler, demultiplexing and sink.
//!
//! `cargo bench -p punctual-proto --bench node_round_trip`, in CPU time of the thread. No driver, no clock, no thread:
//! what is left is protocol processing, and the test rig that carries the packets. For instructions:
//! `PUNCTUAL_ROUND_TRIPS=1100 valgrind --tool=callgrind target/release/deps/node_round_trip-* --bench`, less those of 100.

mod cpu_time;

use std::hint::black_box;

use cpu_time::CpuTime;
use criterion::{Criterion, criterion_group, criterion_main};
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{Open, World};

const BYTES: usize = 64;
/// For one way; beyond the test world's propagation.
const WAY: Nanos = Nanos::from_micros(60);

/// Two hosts, and a channel in each direction.
struct Pair {
    world: World,
    there: Open,
    back: Open,
}

impl Pair {
    fn new() -> Self {
        let mut world = World::line(2, BitRate(10_000_000_000));
        world.audit = None;
        world.run_for(Nanos::from_millis(500));
        let rate = Rate::every(WAY + WAY).expect("not zero");
        let contract =
            Contract::new(BYTES as u32, rate, 2, Nanos::from_millis(10)).expect("constants within range");
        let there = world.open(0, 1, contract).expect("an idle link takes it");
        let back = world.open(1, 0, contract).expect("an idle link takes it");
        Self { world, there, back }
    }

    /// Whether the reply came.
    fn round_trip(&mut self) -> bool {
        let Self { world, there, back } = self;
        for (node, way) in [(0, there), (1, back)] {
            way.outbox.send(&[7; BYTES], world.now);
            world.nodes[node].handle_ring(way.source, world.now);
            world.run_for(WAY);
            if !way.inbox.recv(|bytes, _| assert_eq!(bytes.len(), BYTES)) {
                return false;
            }
        }
        true
    }
}

fn round_trips(criterion: &mut Criterion<CpuTime>) {
    let mut pair = Pair::new();
    #[expect(clippy::disallowed_methods, reason = "a bench has no arguments of its own")]
    let times = std::env::var("PUNCTUAL_ROUND_TRIPS");
    if let Some(times) = times.ok().and_then(|times| times.parse().ok()) {
        return (0..times).for_each(|_: u32| assert!(pair.round_trip()));
    }
    criterion.bench_function("round trip", |bencher| {
        bencher.iter(|| assert!(black_box(pair.round_trip())));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = round_trips
}
criterion_main!(benches);
