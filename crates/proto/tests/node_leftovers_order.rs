//! The remains of channels that have ended are freed in the order of their ends: an application whose channel
//! ended first has the messages of its ring back first, however much the others have left.

use punctual_proto::api::CloseReason;
use punctual_proto::limits::LEFTOVERS_MAX;
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{Open, World, pattern};

const BYTES: u32 = 8;

/// Messages of each burst: the last slice of each is not a whole one.
const BURSTS: [u32; 3] = [1_000, 3_000, 500];

fn open(world: &mut World, burst: u32) -> Open {
    let rate = Rate::per_second(10_000).expect("a rate");
    let contract = Contract::new(BYTES, rate, burst, Nanos::from_millis(40)).expect("in range");
    world.open(0, 1, contract).expect("it fits")
}

#[test]
fn what_ended_first_is_freed_first() {
    let mut world = World::line(2, BitRate(100_000_000));
    let opened = BURSTS.map(|burst| open(&mut world, burst));
    for (open, burst) in opened.iter().zip(BURSTS) {
        let mut numbers = 0..u64::from(burst);
        assert!(numbers.all(|n| open.outbox.send(&pattern(1, n, BYTES as usize), world.now)), "room");
        world.nodes[0].handle_ring(open.source, world.now);
    }
    while let Some(work) = world.nodes[0].begin_work(world.now) {
        world.nodes[0].finish_work(work, world.now);
    }
    let free = || opened.each_ref().map(|open| open.outbox.free());
    let before = free();
    for _ in &opened {
        assert!(world.nodes[0].abort_newest(CloseReason::RuntimeRefused, world.now));
    }
    // The newest has ended first. A slice of each is freed with its end.
    let freed = || std::array::from_fn::<_, 3, _>(|n| (free()[n] - before[n]) as u32);
    let mut expected = [LEFTOVERS_MAX; 3];
    assert_eq!(freed(), expected);
    for ended in [2, 1, 0] {
        while expected[ended] < BURSTS[ended] {
            world.nodes[0].handle_timeout(world.now);
            expected[ended] = (expected[ended] + LEFTOVERS_MAX).min(BURSTS[ended]);
            assert_eq!(freed(), expected, "{ended} has its turn");
        }
        // It may take a call to find that nothing is left of it.
        if freed()[ended].is_multiple_of(LEFTOVERS_MAX) {
            world.nodes[0].handle_timeout(world.now);
        }
    }
}
