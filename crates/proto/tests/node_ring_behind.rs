//! A ring that holds more than a call takes is the tail of its channel's queue: each message that is begun
//! makes room for others.

use punctual_proto::api::WorkKind;
use punctual_proto::limits::{RING_MESSAGES_BEHIND, RING_MESSAGES_MAX};
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{Open, TestOutbox, World, line_config, pattern};

/// Two hosts and a channel between them for messages of 100 bytes, with this burst.
fn world_with(burst: u32) -> (World, Open) {
    let mut world = World::line(2, BitRate(100_000_000));
    let rate = Rate::per_second(20).expect("a rate");
    let contract = Contract::new(100, rate, burst, Nanos::from_millis(500)).expect("in range");
    let open = world.open(0, 1, contract).expect("it fits");
    (world, open)
}

/// A source makes one packet in a unit, and its messages have one, two or three. The units that begin a
/// message take others out of the ring, and no other unit does.
#[test]
fn the_unit_that_begins_a_message_takes_others_out_of_the_ring() {
    const FRAGMENT: usize = 1_400;
    for fragments in 1..=3 {
        let mut configs: Vec<_> = (0..2).map(|host| line_config(host, 2, BitRate(100_000_000))).collect();
        configs[0].cpu.quantum_packets = 1;
        let mut world = World::of(configs);
        let (bytes, rate) = (fragments * FRAGMENT, Rate::per_second(20).expect("a rate"));
        let contract = Contract::new(bytes as u32, rate, 100, Nanos::from_millis(500)).expect("in range");
        let open = world.open(0, 1, contract).expect("it fits");
        (0..100).for_each(|number| assert!(open.outbox.send(&pattern(1, number, bytes), world.now)));
        world.nodes[0].handle_ring(open.source, world.now);
        let taken = |world: &World| world.nodes[0].channel(open.source).expect("open").counters.messages_in;
        let mut expected = u64::from(RING_MESSAGES_MAX);
        assert_eq!(taken(&world), expected, "a doorbell");
        for fragment in 0..fragments {
            let work = world.nodes[0].begin_work(world.now).expect("the first message is due");
            assert_eq!((work.kind, work.packets), (WorkKind::Send, 1));
            assert_eq!((work.bytes, work.message_edge), (FRAGMENT as u32, fragment == 0));
            world.nodes[0].finish_work(work, world.now);
            expected += if fragment == 0 { RING_MESSAGES_BEHIND.into() } else { 0 };
            assert_eq!(taken(&world), expected, "fragment {fragment} of {fragments}");
        }
    }
}

/// A message that comes right behind a check that has found the ring empty waits for its doorbell. Nothing
/// looks into the ring before: neither the background, nor the unit that begins the message before.
#[test]
fn a_message_right_behind_a_check_waits_for_its_doorbell() {
    let (mut world, open) = world_with(2);
    let taken = |world: &World| world.nodes[0].channel(open.source).expect("open").counters.messages_in;
    assert!(open.outbox.send(&pattern(1, 0, 100), world.now));
    open.outbox.send_behind_check(&pattern(1, 1, 100), world.now);
    world.nodes[0].handle_ring(open.source, world.now);
    assert_eq!((taken(&world), open.outbox.waiting()), (1, 1), "it came after the check");
    let work = world.nodes[0].begin_work(world.now).expect("the first message is due");
    assert_eq!(work.kind, WorkKind::Send);
    world.nodes[0].finish_work(work, world.now);
    assert_eq!(taken(&world), 1, "with the message before");
    assert_eq!(world.nodes[0].begin_work(world.now), None, "in the background");
    world.nodes[0].handle_ring(open.source, world.now);
    assert_eq!((taken(&world), open.outbox.waiting()), (2, 0), "its doorbell");
}

/// A ring that a call has emptied with the last message of its share holds no rest: the next doorbell takes
/// as many messages as any, and not the few that are taken while others wait.
#[test]
fn a_ring_that_was_emptied_by_its_share_holds_no_rest() {
    let (mut world, open) = world_with(100);
    let now = world.now;
    assert!(open.outbox.send(&pattern(1, 0, 100), now));
    assert_eq!(world.nodes[0].handle_ring_within(open.source, 1, now), 1);
    for number in 1..=u64::from(RING_MESSAGES_MAX) {
        assert!(open.outbox.send(&pattern(1, number, 100), now));
    }
    assert_eq!(world.nodes[0].handle_ring_within(open.source, RING_MESSAGES_MAX, now), RING_MESSAGES_MAX);
}

/// A call takes no more out of a flow's ring than its share, and says how many.
#[test]
fn a_call_takes_its_share_of_a_flows_ring() {
    let mut world = World::line(2, BitRate(100_000_000));
    world.run_for(Nanos::from_secs(1));
    let outbox = TestOutbox::new(60, 100);
    let (to, now) = ("bulk@h2".parse().expect("an address"), world.now);
    let flow = world.nodes[0].open_best_effort(to, 100, outbox.clone(), now).expect("a route");
    (0..60).for_each(|number| assert!(outbox.send(&pattern(1, number, 100), now)));
    let mut left = 60;
    for share in [0, 1, 3, 2, RING_MESSAGES_MAX, 100] {
        let taken = share.min(RING_MESSAGES_MAX).min(left);
        assert_eq!(world.nodes[0].handle_ring_within(flow, share, now), taken, "a share of {share}");
        left -= taken;
        assert_eq!(outbox.waiting(), left as usize);
    }
}
