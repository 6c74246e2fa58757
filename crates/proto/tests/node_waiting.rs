//! Who waits for room in a link's queues goes on when there is room, though nobody asks again: each that waits, in its turn.

use punctual_proto::ids::ChannelId;
use punctual_proto::{BitRate, Contract, Nanos, Policing, Rate};
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
fn flows_that_are_told_of_once_send_all_that_they_have() {
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
        world.nodes[0].handle_outbox(*flow, now);
    }
    // Of 25 ms that all of them take, each has its part from the beginning on.
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
        world.nodes[0].handle_outbox(open.source, now);
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

/// Applications that put in more than their contracts say have turns: a ring that has waited longer goes before one that had
/// one lately.
#[test]
fn rings_that_hold_too_much_are_drained_in_turn() {
    const COPIES: usize = 300;
    let mut world = World::line(2, RATE);
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(200, rate, 2, Nanos::from_millis(50)).expect("in range");
    let contract = Contract { policing: Policing::Drop, ..contract };
    let open: Vec<_> = (0..3).map(|_| world.open(0, 1, contract).expect("there is room")).collect();
    for channel in &open {
        channel.outbox.stuff(&[7; 200], COPIES, world.now);
        world.nodes[0].handle_outbox(channel.source, world.now);
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
