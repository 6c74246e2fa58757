//! Sources and flows that wait for room in a link's queues continue when there is room, without a further
//! request: each in its turn.

use punctual_proto::config::LinkConfig;
use punctual_proto::ids::{Address, ChannelId};
use punctual_proto::limits::{BEST_EFFORT_FLOWS_MAX, BEST_EFFORT_PACKETS_MAX};
use punctual_proto::{BitRate, Contract, Nanos, Policing, Ppm, Rate};
use punctual_rig::{TestInbox, TestOutbox, World, line_config, name, pattern};

const RATE: BitRate = BitRate(40_000_000);
const BYTES: usize = 1_000;

/// Two hosts whose queue 2 takes three packets of a flow.
fn world() -> World {
    let config = |index| {
        let mut config = line_config(index, 2, RATE);
        config.links.iter_mut().for_each(|link| link.best_effort_flow_bytes_max = 3_500);
        config
    };
    World::of((0..2).map(config).collect())
}

#[test]
fn flows_that_are_notified_once_send_all_that_they_have() {
    const MESSAGES: u64 = 40;
    let mut world = world();
    world.run_for(Nanos::from_secs(2));
    let flows: Vec<(ChannelId, TestOutbox, TestInbox)> = (0..3)
        .map(|number| {
            let (port, inbox) = (format!("bulk{number}"), TestInbox::new(64, BYTES));
            world.nodes[1].bind_best_effort(name(&port), BYTES as u32, inbox.clone()).expect("free");
            let (to, outbox) = (format!("{port}@h2"), TestOutbox::new(64, BYTES));
            let to = to.parse().expect("an address");
            let now = world.now;
            let flow =
                world.nodes[0].open_best_effort(to, BYTES as u32, outbox.clone(), now).expect("a route");
            (flow, outbox, inbox)
        })
        .collect();
    for (flow, outbox, _) in &flows {
        (0..MESSAGES).for_each(|number| assert!(outbox.send(&pattern(flow.0, number, BYTES), world.now)));
        let now = world.now;
        world.nodes[0].handle_ring(*flow, now);
    }
    // Each flow has its part of the total 25 ms from the beginning on.
    world.run_for(Nanos::from_millis(9));
    let so_far: Vec<_> = flows.iter().map(|(.., inbox)| inbox.waiting()).collect();
    assert!(so_far.iter().all(|came| (8..20).contains(came)), "{so_far:?}");
    world.run_for(Nanos::from_millis(40));
    for (flow, outbox, inbox) in &flows {
        let mut number = 0;
        while inbox.recv(|bytes, _| assert_eq!(bytes, pattern(flow.0, number, BYTES))) {
            number += 1;
        }
        assert_eq!((number, outbox.waiting()), (MESSAGES, 0), "{flow:?}");
    }
    assert!(world.nodes[0].accounts().iter().all(|account| account.counted == account.held));
}

#[test]
fn what_is_demoted_waits_for_its_turn_and_is_not_lost() {
    let mut world = world();
    let rate = Rate::per_second(20).expect("a rate");
    let contract = Contract::new(BYTES as u32, rate, 1, Nanos::from_millis(100)).expect("in range");
    let contract = Contract { policing: Policing::Demote, jitter: Some(Nanos::ZERO), ..contract };
    let open = world.open(0, 1, contract).expect("there is room");
    let mut came = 0;
    for round in 0..20 {
        let heap = open.outbox.free().min(3);
        (0..heap).for_each(|_| assert!(open.outbox.send(&pattern(7, round, BYTES), world.now)));
        let now = world.now;
        world.nodes[0].handle_ring(open.source, now);
        world.run_for(Nanos::from_millis(200));
        while open.inbox.recv(|bytes, _| assert_eq!(bytes, pattern(7, round, BYTES))) {
            came += 1;
        }
        let counters = world.nodes[0].channel(open.source).expect("open").counters;
        assert_eq!((counters.messages_in, counters.dropped), (came, 0), "round {round}: all have come");
    }
    let demoted = world.nodes[0].channel(open.source).expect("open").counters.demoted;
    assert!(demoted >= 20, "{demoted}");
}

/// Applications that put in more than their contracts have turns: a ring that has waited longer is served
/// before one that had a turn lately.
#[test]
fn rings_that_hold_too_much_are_drained_in_turn() {
    const COPIES: usize = 300;
    let mut world = World::line(2, RATE);
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(200, rate, 2, Nanos::from_millis(50)).expect("in range");
    let contract = Contract { policing: Policing::Drop, ..contract };
    let open: Vec<_> = (0..3).map(|_| world.open(0, 1, contract).expect("there is room")).collect();
    for channel in &open {
        channel.outbox.push_beyond_room(&[7; 200], COPIES, world.now);
        world.nodes[0].handle_ring(channel.source, world.now);
    }
    let waiting = || open.iter().map(|channel| channel.outbox.waiting()).collect::<Vec<_>>();
    let (mut before, mut portion, mut turns) = (waiting(), 0, Vec::new());
    while let Some(work) = world.nodes[0].begin_work(world.now) {
        world.nodes[0].finish_work(work, world.now);
        let after = waiting();
        for ring in 0..3 {
            portion = portion.max(before[ring] - after[ring]);
            if after[ring] < before[ring] {
                turns.push(ring);
            }
        }
        let (least, most) = (after.iter().min().expect("three"), after.iter().max().expect("three"));
        assert!(most - least <= portion, "{after:?}");
        before = after;
    }
    assert_eq!(waiting(), [0, 0, 0], "all is dropped that is too much");
    assert!(turns.len() >= 9, "{turns:?}");
}

/// A flow to the second host with `messages` of `bytes` in its ring.
fn flow(world: &mut World, messages: usize, bytes: usize) -> ChannelId {
    let outbox = TestOutbox::new(messages, bytes);
    while outbox.send(&vec![7; bytes], world.now) {}
    let (to, now) = ("bulk@h2".parse().expect("an address"), world.now);
    let flow = world.nodes[0].open_best_effort(to, bytes as u32, outbox, now).expect("a route");
    // The processor has its time for it.
    world.run_for(Nanos::from_millis(200));
    flow
}

/// Packets in queue 2 of the first host.
fn queued(world: &World) -> u64 {
    let accounts = world.nodes[0].accounts();
    assert!(accounts.iter().all(|account| account.counted == account.held), "{accounts:?}");
    accounts.iter().find(|account| account.what == "best-effort packets").expect("an account").counted
}

/// Two hosts; flows of the first have all places of its queue 2, so many each, and no further messages. A
/// packet leaves every 17 s or so.
fn full_world() -> (World, Vec<(ChannelId, u64)>) {
    const PACKET: usize = 64;
    let config = |index| {
        let mut config = line_config(index, 2, RATE);
        (config.fragment_bytes, config.cpu.best_effort_cpu_cap) = (PACKET as u32, Ppm::ONE);
        let best_effort = |link: &mut LinkConfig| {
            (link.best_effort_flow_bytes_max, link.best_effort_cap) = (8 << 20, Ppm(2));
        };
        config.links.iter_mut().for_each(best_effort);
        config
    };
    let mut world = World::of((0..2).map(config).collect());
    world.run_for(Nanos::from_secs(2));
    let mut flows = Vec::new();
    // A flow may have half of what is free.
    while queued(&world) < u64::from(BEST_EFFORT_PACKETS_MAX) {
        let free = BEST_EFFORT_PACKETS_MAX as usize - queued(&world) as usize;
        let packets = 1 << (free.ilog2().saturating_sub(1));
        let (messages, before) = (64.min(packets), queued(&world));
        let flow = flow(&mut world, messages, packets / messages * PACKET);
        flows.push((flow, queued(&world) - before));
    }
    (world, flows)
}

/// The flows that have waited longest are closed before there is room: the others get it.
#[test]
fn room_is_not_given_to_closed_flows() {
    let (mut world, _) = full_world();
    let gone: Vec<_> = (0..4).map(|_| flow(&mut world, 1, 64)).collect();
    flow(&mut world, 1, 64);
    for flow in gone {
        world.nodes[0].close(flow, world.now).expect("it is open");
    }
    let sent = |world: &World| world.nodes[0].status(world.now).links[0].packets_best_effort;
    let (full, before) = (queued(&world), sent(&world));
    while sent(&world) == before {
        world.run_for(Nanos::from_millis(1));
    }
    assert_eq!((sent(&world), queued(&world)), (before + 1, full), "another packet has its place");
}

/// Flows that have all places of queue 2 are closed, and no packet leaves: a waiting flow gets a place.
#[test]
fn a_closed_flow_gives_its_room_to_waiters() {
    let (mut world, flows) = full_world();
    flow(&mut world, 1, 64);
    for (flow, _) in flows {
        world.nodes[0].close(flow, world.now).expect("it is open");
    }
    while world.nodes[0].has_leftovers() {
        world.settle();
    }
    world.run_for(Nanos::from_millis(1));
    assert_eq!(queued(&world), 1, "its packet alone is there");
}

/// All places of queue 2 belong to flows that have sent all and have not paid for it, and no packet leaves: a new flow
/// gets the place of the one that was idle longest, without a request by anybody.
#[test]
fn a_new_flow_does_not_wait_until_others_have_paid() {
    let config = |index| {
        let mut config = line_config(index, 2, RATE);
        config.links.iter_mut().for_each(|link| link.best_effort_flow_cap = Ppm(10));
        config.cpu.best_effort_cpu_cap = Ppm::ONE;
        config
    };
    let mut world = World::of((0..2).map(config).collect());
    world.run_for(Nanos::from_secs(2));
    let sent = |world: &World| world.nodes[0].status(world.now).links[0].packets_best_effort;
    let (before, to) = (sent(&world), "bulk@h2".parse::<Address>().expect("an address"));
    let open = |world: &mut World| {
        let outbox = TestOutbox::new(1, 64);
        assert!(outbox.send(&[7; 64], world.now));
        world.nodes[0].open_best_effort(to.clone(), 64, outbox, world.now).expect("a route");
    };
    for _ in 0..BEST_EFFORT_FLOWS_MAX {
        open(&mut world);
    }
    let limit = world.now + Nanos::from_secs(2);
    while sent(&world) < before + u64::from(BEST_EFFORT_FLOWS_MAX) {
        world.run_for(Nanos::from_millis(1));
        assert!(world.now < limit, "{} have left", sent(&world) - before);
    }
    open(&mut world);
    world.run_for(Nanos::from_millis(1));
    assert_eq!(sent(&world) - before, u64::from(BEST_EFFORT_FLOWS_MAX) + 1);
}

/// The same for the demoted packets of a channel, which wait for nothing but room in queue 2.
#[test]
fn a_channel_that_demotes_gets_the_room_that_comes_free() {
    let (mut world, _) = full_world();
    let contract = Contract::new(64, Rate::per_second(20).expect("a rate"), 1, Nanos::from_millis(100));
    let contract =
        Contract { policing: Policing::Demote, jitter: Some(Nanos::ZERO), ..contract.expect("in range") };
    let open = world.open(0, 1, contract).expect("there is room");
    (0..2).for_each(|number| assert!(open.outbox.send(&pattern(7, number, 64), world.now)));
    let now = world.now;
    world.nodes[0].handle_ring(open.source, now);
    world.run_for(Nanos::from_millis(200));
    let counters = world.nodes[0].channel(open.source).expect("open").counters;
    assert_eq!((open.inbox.waiting(), counters.demoted), (1, 1), "one is in the contract");
    let sent = |world: &World| world.nodes[0].status(world.now).links[0].packets_best_effort;
    let (full, before) = (queued(&world), sent(&world));
    while sent(&world) == before {
        world.run_for(Nanos::from_millis(1));
    }
    assert_eq!((sent(&world), queued(&world)), (before + 1, full), "its packet has the place");
}

/// Room that comes free is given to the flow that has waited longest: each of the waiting ones has another
/// number of packets.
#[test]
fn room_is_given_in_the_order_in_which_flows_began_to_wait() {
    let (mut world, flows) = full_world();
    let sizes = [1, 2, 4];
    for packets in sizes {
        flow(&mut world, packets, 64);
    }
    let with_room = flows.into_iter().filter(|(_, packets)| *packets >= 8);
    for ((closed, freed), packets) in with_room.zip(sizes) {
        let before = queued(&world);
        world.nodes[0].close(closed, world.now).expect("it is open");
        world.run_for(Nanos::from_millis(1));
        assert_eq!(queued(&world), before - freed + packets as u64, "the flow with {packets} has its turn");
    }
}
