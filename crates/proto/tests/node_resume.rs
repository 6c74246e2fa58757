//! A receiver that sees few messages at once and takes them: it is shown those that waited for that, one in each of its host's
//! turns, and all that came before its channel ended.

mod common;

use common::{Open, World, pattern};
use punctual_proto::{BitRate, Contract, Nanos, Rate};

const RATE: BitRate = BitRate(40_000_000);
const BYTES: u32 = 500;
const BURST: u64 = 12;
const SEEN: usize = 4;

/// A burst has come, of which the application sees the first [`SEEN`].
fn burst() -> (World, Open) {
    let mut world = World::line(2, RATE);
    let rate = Rate::per_second(50).expect("a rate");
    let contract = Contract::new(BYTES, rate, BURST as u32, Nanos::from_millis(400)).expect("in range");
    let open = world.open(0, 1, contract).expect("it fits");
    open.inbox.0.borrow_mut().seen_max = Some(SEEN);
    for number in 0..BURST {
        assert!(open.outbox.send(&pattern(1, number, BYTES as usize), world.now));
    }
    world.nodes[0].handle_outbox(open.source, world.now);
    world.run_for(Nanos::from_millis(500));
    assert_eq!(seen(&open), (SEEN, BURST as usize - SEEN));
    (world, open)
}

/// Messages that the application sees and has not taken, and those that wait for that.
fn seen(open: &Open) -> (usize, usize) {
    let ring = open.inbox.0.borrow();
    (ring.received.len(), ring.unseen.len())
}

/// The application takes all that it sees; their numbers.
fn take(open: &Open) -> Vec<u64> {
    let mut numbers = Vec::new();
    while open.inbox.recv(|bytes, info| {
        assert_eq!(bytes, pattern(1, info.number, BYTES as usize));
        numbers.push(info.number);
    }) {}
    numbers
}

#[test]
fn who_has_taken_some_is_shown_as_many_one_a_turn() {
    let (mut world, open) = burst();
    let mut taken = take(&open);
    let waited = BURST as usize - SEEN;
    // However often it says so.
    for rung in 1..=2 {
        world.nodes[1].handle_outbox(open.sink, world.now);
        assert_eq!(seen(&open), (rung, waited - rung));
        assert!(world.nodes[1].has_leftovers());
    }
    for shown in 3..=SEEN {
        world.nodes[1].handle_timeout(world.now);
        assert_eq!(seen(&open), (shown, waited - shown));
    }
    assert!(!world.nodes[1].has_leftovers(), "it sees as many as it may");
    world.nodes[1].handle_timeout(world.now);
    assert_eq!(seen(&open), (SEEN, waited - SEEN));
    while taken.len() < BURST as usize {
        taken.extend(take(&open));
        world.nodes[1].handle_outbox(open.sink, world.now);
        world.run_for(Nanos::from_millis(1));
    }
    assert_eq!(taken, (0..BURST).collect::<Vec<_>>());
    assert!(!world.nodes[1].has_leftovers(), "nothing waits");
}

#[test]
fn whose_channel_ends_is_shown_all_that_waited() {
    let (mut world, open) = burst();
    let mut taken = take(&open);
    world.nodes[1].handle_outbox(open.sink, world.now);
    assert!(world.nodes[1].has_leftovers(), "more is to be shown when its application vanishes");
    world.nodes[1].abandon(open.sink, world.now).expect("it is open");
    world.run_for(Nanos::from_secs(2));
    taken.extend(take(&open));
    assert_eq!(taken, (0..BURST).collect::<Vec<_>>());
    assert!(world.nodes.iter().all(|node| node.is_quiet() && !node.has_leftovers()));
}
