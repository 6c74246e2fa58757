//! Hosts whose processor had no time for a while.

use punctual_proto::{BitRate, Contract, Horizon, Instant, Nanos, Rate};
use punctual_rig::World;

const RATE: BitRate = BitRate(40_000_000);
const HOLE: Nanos = Nanos::from_millis(300);

/// Late messages of a channel at full rate over three hosts, of which the second has no time for [`HOLE`]: all of them,
/// and those that were sent so long after the hole that it must be over.
fn late(contract: Contract) -> (usize, usize) {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract).expect("room");
    let start = world.now;
    let hole = start + Nanos::from_millis(500);
    // A heap of HOLE / I packets is there at once, and drained within a few of their times on the link.
    let over = hole + HOLE + contract.deadline + contract.interval() * 2 + Nanos::from_millis(50);
    let mut sent: Vec<Instant> = Vec::new();
    let mut due_by: Vec<Option<Instant>> = Vec::new();
    while world.now < start + Nanos::from_secs(3) {
        if world.now >= start + contract.interval() * sent.len() as u64 {
            assert!(open.outbox.send(&[7; 1_000], world.now), "the ring has room for a conforming sender");
            world.nodes[0].handle_ring(open.source, world.now);
            sent.push(world.now);
            due_by.push(None);
        }
        if world.now >= hole && world.now < hole + Nanos::from_micros(500) {
            world.still = Some((1, hole + HOLE));
        }
        world.run_for(Nanos::from_micros(500));
        while open.inbox.recv(|_, info| {
            let number = info.number as usize;
            let in_time = info.delivered <= sent[number] + contract.deadline && !info.demoted;
            due_by[number] = in_time.then_some(info.delivered);
        }) {}
    }
    let due = sent.iter().filter(|at| **at + contract.deadline < world.now);
    let late: Vec<Instant> =
        due.zip(&due_by).filter(|(_, delivered)| delivered.is_none()).map(|(at, _)| *at).collect();
    (late.len(), late.iter().filter(|at| **at >= over).count())
}

/// A hole is felt while it lasts and until its heap is drained, not longer. Where D is no longer than I, the buffers hold
/// more of the heap than the bounds so far would absorb, if it pushed the chain of the forwarder's link ahead.
#[test]
fn the_heap_behind_a_hole_is_drained_and_then_over() {
    for (horizon, deadline_ms) in [
        (Horizon::Cumulative, 40),
        (Horizon::Regulated, 40),
        (Horizon::Cumulative, 8),
        (Horizon::Regulated, 8),
    ] {
        let rate = Rate::per_second(100).expect("a rate");
        let contract = Contract::new(1_000, rate, 1, Nanos::from_millis(deadline_ms)).expect("valid");
        let (late, late_after) = late(Contract { horizon, ..contract });
        let what = format!("{horizon:?}, D of {deadline_ms} ms");
        assert!((20..60).contains(&late), "{what}: {late} messages late: the hole was felt");
        assert_eq!(late_after, 0, "{what}: the hole is over");
    }
}
