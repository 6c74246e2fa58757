//! Messages that are queued or under way when an end closes still arrive; a stopping host is limited by its
//! grace.

use std::cell::RefCell;
use std::rc::Rc;

use punctual_proto::api::{CloseReason, Event, Port, Receipt};
use punctual_proto::ids::LinkId;
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Delivery, Late, Nanos, Policing, Rate};
use punctual_rig::{Open, TestOutbox, World, pattern};

const RATE: BitRate = BitRate(40_000_000);
const BYTES: u32 = 1_000;

fn contract(per_second: u64, burst: u32, deadline_ms: u64) -> Contract {
    Contract::new(BYTES, Rate::per_second(per_second).unwrap(), burst, Nanos::from_millis(deadline_ms))
        .unwrap()
}

/// Puts `count` messages into the ring at once.
fn send(world: &mut World, open: &Open, count: u64) {
    for number in 0..count {
        assert!(
            open.outbox.send(&pattern(1, number, BYTES as usize), world.now),
            "{number}: the ring is full"
        );
    }
    world.nodes[0].handle_ring(open.source, world.now);
}

/// Lets the receiver read for `span`; how many messages it was given.
fn read(world: &mut World, open: &Open, span: Nanos) -> u64 {
    let (until, mut received) = (world.now + span, 0);
    while world.now < until {
        world.run_for(Nanos::from_millis(1));
        while open.inbox.recv(|message, info| {
            assert!(message == pattern(1, info.number, BYTES as usize));
            received += 1;
        }) {}
    }
    received
}

/// Numbers of delivered, certainly late and lost messages; `None` without the sink's report.
type TalliesAtEnd = Option<(u64, u64, u64)>;

/// A receipt of messages that were neither surely late nor lost.
fn all_in_time(delivered: u64) -> TalliesAtEnd {
    Some((delivered, 0, 0))
}

/// The reason of the end at the source, and the sink's report: delivered, late, lost.
fn ended(world: &World, open: &Open) -> Option<(CloseReason, TalliesAtEnd)> {
    let reported = |receipt: Receipt| (receipt.delivered, receipt.late, receipt.lost);
    world.events[0].iter().find_map(|event| match event {
        Event::Closed { channel, reason, receipt } if *channel == open.source => {
            Some((*reason, receipt.map(reported)))
        }
        _ => None,
    })
}

#[test]
fn a_burst_that_waits_for_itself_is_sent_after_its_sender_has_closed() {
    let mut world = World::line(3, RATE);
    let contract = contract(25, 50, 80);
    let open = world.open(0, 2, contract).unwrap();
    send(&mut world, &open, 50);
    world.nodes[0].close(open.source, world.now).unwrap();
    let needed = contract.interval() * 49 + contract.deadline;
    assert_eq!(read(&mut world, &open, needed), 50, "the last one counts 49 intervals later");
    world.run_for(contract.deadline + Nanos::from_millis(20));
    let receipt = all_in_time(50);
    assert_eq!(ended(&world, &open), Some((CloseReason::Local, receipt)));
    assert!(world.nodes.iter().all(|node| node.is_quiet()));
}

#[test]
fn what_is_held_for_its_deadline_is_handed_over_after_its_sender_has_closed() {
    let mut world = World::line(3, RATE);
    let contract = Contract { delivery: Delivery::AtDeadline, ..contract(50, 20, 2_000) };
    let open = world.open(0, 2, contract).unwrap();
    send(&mut world, &open, 20);
    let early = read(&mut world, &open, contract.interval() * 19 + Nanos::from_millis(5));
    assert_eq!(early, 0, "all are held");
    world.nodes[0].close(open.source, world.now).unwrap();
    assert_eq!(read(&mut world, &open, contract.deadline), 20);
    world.run_for(Nanos::from_millis(100));
    let receipt = all_in_time(20);
    assert_eq!(ended(&world, &open), Some((CloseReason::Local, receipt)));
}

/// Also what was closing before it stopped.
#[test]
fn a_host_that_stops_takes_its_grace_and_no_longer() {
    for closes in [false, true] {
        let mut world = World::line(3, RATE);
        let open = world.open(0, 2, contract(25, 50, 80)).unwrap();
        send(&mut world, &open, 50);
        if closes {
            world.nodes[0].close(open.source, world.now).unwrap();
        }
        world.nodes[0].shutdown(world.now);
        let received = read(&mut world, &open, Nanos::from_millis(520));
        assert!((12..=14).contains(&received), "{received} messages in 500 ms");
        assert!(world.nodes[0].is_quiet());
        world.run_for(Nanos::from_millis(100));
        assert!(world.nodes.iter().all(|node| node.is_quiet()), "told behind it");
    }
}

#[test]
fn demoted_messages_and_a_full_ring_are_sent_after_their_sender_has_closed() {
    let mut world = World::line(3, RATE);
    // The ring has room for all that may be under way in D.
    let contract = Contract { policing: Policing::Demote, ..contract(100, 2, 2_000) };
    let open = world.open(0, 2, contract).unwrap();
    for number in 0..60 {
        assert!(open.outbox.send(&pattern(1, number, BYTES as usize), world.now));
    }
    world.nodes[0].close(open.source, world.now).unwrap();
    assert_eq!(read(&mut world, &open, Nanos::from_millis(200)), 60);
    world.run_for(contract.deadline);
    let receipt = all_in_time(60);
    assert_eq!(ended(&world, &open), Some((CloseReason::Local, receipt)));
}

/// The receiver's host is stopped while all packets of a channel arrive, its end included: packets that wait
/// there as best effort are served after guaranteed ones, and before the channel is removed.
#[test]
fn demoted_messages_that_wait_behind_the_end_at_their_receiver_are_delivered() {
    for short_turns in [false, true] {
        deliver_behind_the_end(short_turns);
    }
}

fn deliver_behind_the_end(short_turns: bool) {
    let mut world = World::line(2, RATE);
    world.short_turns = short_turns;
    let contract = Contract { policing: Policing::Demote, ..contract(100, 2, 500) };
    let open = world.open(0, 1, contract).unwrap();
    world.settle();
    // More than a burst of two: the others travel as best effort.
    for number in 0..8 {
        assert!(open.outbox.send(&pattern(1, number, BYTES as usize), world.now));
    }
    world.still = Some((1, world.now + Nanos::from_millis(300)));
    world.nodes[0].close(open.source, world.now).unwrap();
    assert_eq!(read(&mut world, &open, Nanos::from_secs(1)), 8);
    assert_eq!(ended(&world, &open), Some((CloseReason::Local, all_in_time(8))));
}

/// Whatever closes it again: its application, then the host.
#[test]
fn a_drained_end_is_notified_once() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract(50, 1, 40)).unwrap();
    world.settle();
    world.nodes[0].close(open.source, world.now).unwrap();
    world.nodes[0].shutdown(world.now);
    world.run_for(Nanos::from_secs(1));
    let closed = |event: &&Event| matches!(event, Event::Closed { channel, .. } if *channel == open.source);
    assert_eq!(world.events[0].iter().filter(closed).count(), 1);
    assert!(world.nodes.iter().all(|node| node.is_quiet()));
}

/// A source waits for its sink's report after it has released its whole reservation.
#[test]
fn no_channel_is_shown_without_what_it_has_done() {
    let mut world = World::line(2, RATE);
    let contract = Contract { delivery: Delivery::AtDeadline, ..contract(50, 3, 400) };
    let open = world.open(0, 1, contract).unwrap();
    send(&mut world, &open, 3);
    assert_eq!(read(&mut world, &open, Nanos::from_millis(100)), 0, "they are held for their deadlines");
    world.nodes[0].close(open.source, world.now).unwrap();
    let mut waited = 0;
    while ended(&world, &open).is_none() {
        for channel in world.nodes[0].channels() {
            assert!(channel.counters.messages_out == 3 && !channel.stages.is_empty(), "{channel:?}");
        }
        waited += 1;
        world.run_for(Nanos::from_millis(1));
    }
    assert!(waited > 250 && !world.nodes[0].channels().iter().any(|c| c.channel == open.source));
}

#[test]
fn the_source_learns_where_messages_were_lost() {
    for (from, place) in [(0, "h1-h2"), (1, "h2-h3")] {
        let mut world = World::line(3, RATE);
        let open = world.open(0, 2, contract(50, 20, 2_000)).unwrap();
        let mut packets = 0;
        world.tap = Some(Box::new(move |node, port, _| {
            let is_data = node == from && port == Port::Data;
            packets += u32::from(is_data);
            // The last one, too: no later packet shows that it is missing.
            !(is_data && [3, 9, 10, 20].contains(&packets))
        }));
        send(&mut world, &open, 20);
        assert_eq!(read(&mut world, &open, Nanos::from_secs(1)), 16);
        world.nodes[0].close(open.source, world.now).unwrap();
        world.run_for(Nanos::from_secs(3));
        let receipt = world.events[0].iter().find_map(|event| match event {
            Event::Closed { receipt, .. } => *receipt,
            _ => None,
        });
        let Receipt { delivered, late, lost_at, .. } = receipt.expect("the sink's word");
        let lost_at = lost_at.map(|lost| (open.grant.place(&lost.stage), lost.messages));
        assert_eq!((delivered, late, lost_at), (16, 0, Some((format!("link {place}"), 4))));
    }
}

/// The last packet comes behind its channel's end, and so late that it is dropped: nothing more is to come.
#[test]
fn a_channel_ends_with_a_last_packet_that_is_dropped() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, Contract { late: Late::Drop, ..contract(50, 2, 2_000) }).unwrap();
    let held = Rc::new(RefCell::new(Vec::new()));
    let back = held.clone();
    world.tap = Some(Box::new(move |node, port, bytes| match (node, port, Header::parse(bytes)) {
        (0, Port::Data, Ok((header, _))) if header.message == 1 => {
            Header { slack_ns: -4_000_000_000, ..header }.write(bytes);
            held.borrow_mut().push(bytes.clone());
            false
        }
        _ => true,
    }));
    send(&mut world, &open, 2);
    world.nodes[0].close(open.source, world.now).unwrap();
    assert_eq!(read(&mut world, &open, Nanos::from_millis(200)), 1);
    assert_eq!(world.nodes[1].status(world.now).channels, 1, "one packet is under way");
    let late = back.borrow_mut().pop().expect("it has left");
    world.inject(1, LinkId(0), Port::Data, &late);
    world.run_for(Nanos::from_millis(200));
    let (reason, tallies) = ended(&world, &open).expect("nothing is under way any more");
    let delivered_and_late = tallies.map(|(delivered, late, _)| (delivered, late));
    assert_eq!((reason, delivered_and_late), (CloseReason::Local, Some((1, 0))));
    assert!(world.nodes.iter().all(|node| node.is_quiet()));
}

/// A host that has nothing but a flow of best effort must not be stopped as if it had nothing.
#[test]
fn a_host_with_a_flow_of_best_effort_alone_is_not_quiet() {
    let mut world = World::line(2, RATE);
    let to = "log@h2".parse().expect("an address");
    let flow = world.nodes[0].open_best_effort(to, BYTES, TestOutbox::new(4, BYTES as usize), world.now);
    world.run_for(Nanos::from_secs(1));
    assert!(!world.nodes[0].is_quiet() && world.nodes[1].is_quiet());
    world.nodes[0].close(flow.expect("a route"), world.now).expect("it is open");
    world.run_for(Nanos::from_secs(1));
    assert!(world.nodes[0].is_quiet());
}

/// Channels whose last message has left in the same moment end in the order in which that was noticed, at
/// either end.
#[test]
fn channels_that_end_together_end_in_turn() {
    let mut world = World::line(2, RATE);
    let opened: Vec<_> = (0..4).map(|_| world.open(0, 1, contract(50, 1, 40)).unwrap()).collect();
    world.run_for(Nanos::from_millis(200));
    let order = [2, 0, 3, 1];
    order.iter().for_each(|which: &usize| world.nodes[0].close(opened[*which].source, world.now).unwrap());
    world.run_for(Nanos::from_secs(1));
    let ended = |host: usize| -> Vec<_> {
        let closed = |event: &Event| match event {
            Event::Closed { channel, .. } => Some(*channel),
            _ => None,
        };
        world.events[host].iter().filter_map(closed).collect()
    };
    assert_eq!(ended(0), order.map(|which| opened[which].source));
    assert_eq!(ended(1), order.map(|which| opened[which].sink));
}
