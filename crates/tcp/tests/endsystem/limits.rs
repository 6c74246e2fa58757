//! Limits of a connection and a listener are met exactly: as much as they allow, and not one more.

use punctual_analysis::Nanos;
use punctual_proto::memory::Inbox;
use punctual_tcp::endsystem::{Late, RESETS_MAX, Reset};
use punctual_tcp::{Segment, State, wire};

use super::world::*;

/// Each wrong acknowledgement of a SYN is reset, but at most four resets wait for the output handler.
#[test]
fn four_replies_wait_at_most() {
    let mut world = World::new(1, 0, 8);
    world.connect();
    let (now, index) = (world.now, 0);
    let flow = world.status(0).expect("it is there").flow;
    let mut out = Out { packets: Vec::new(), room: 64 };
    world.hosts[0].tcp.output(index, 1, now, &mut out);
    for ack in 0..6 {
        let mut packet = Vec::new();
        let wrong = Segment { seq: 7, ack: Some(ack), ..wire::bare(flow) };
        wire::write_with(&wrong, &[], 64, false, &mut packet);
        let frame = world.pool.frame(&packet);
        assert!(world.hosts[0].tcp.arrived(index, frame, now).is_ok());
    }
    assert_eq!(world.hosts[0].tcp.input(index, 6, now).units, 6);
    let mut out = Out { packets: Vec::new(), room: 64 };
    world.hosts[0].tcp.output(index, 64, now, &mut out);
    let resets = out.packets.iter().filter(|(packet, _)| wire::parse(packet).expect("ours").flags.rst);
    assert_eq!(resets.count(), 4);
}

/// A call of the input handler gives the program four messages at most, and says that there are more.
#[test]
fn a_call_gives_the_program_four_messages_at_most() {
    let mut world = World::new(2, 0, 64);
    world.config.is_nodelay = true;
    world.open();
    let segments = world.send_flight(4_000);
    let now = world.now;
    let given = |world: &World| world.program(1).map(|program| program.inbox.unread());
    assert_eq!(given(&world), Some(0));
    let outcome = world.hosts[1].tcp.input(0, segments, now);
    assert_eq!((outcome.units, outcome.more, given(&world)), (segments, true, Some(4)));
    assert!(world.hosts[1].tcp.input(0, segments, now).delivered);
    assert_eq!(given(&world), Some(8), "4,000 bytes in messages of 512");
}

/// A call of the output handler takes 4,096 bytes of the program for a segment.
#[test]
fn a_segment_takes_a_page_of_the_program_at_most() {
    let mut world = World::new(3, 0, 8);
    world.open();
    let (now, client) = (world.now, world.program(0).cloned().expect("open"));
    for _ in 0..2 {
        assert!(client.outbox.send(&[3; 4_000], now));
    }
    let mut out = Out { packets: Vec::new(), room: 64 };
    assert_eq!(world.hosts[0].tcp.output(0, 1, now, &mut out).units, 1);
    assert_eq!(world.status(0).expect("open").unacknowledged_bytes, 4_096);
}

/// How long a connection without a program lasts: without an answer to its FIN, and without a FIN of the peer.
#[test]
fn a_connection_without_a_program_lasts_as_long_as_it_may() {
    let lasts = |faults: u64| {
        let mut world = World::new(5, 0, 4);
        world.open();
        assert!(!world.run(Nanos::from_secs(1), |_| {}, |_| false), "all acknowledgements are there");
        let (begun, client) = (world.now, world.program(0).cloned().expect("open"));
        world.faults = faults;
        world.hosts[0].tcp.release(client.index, begun);
        let is_over = |world: &World| world.status(0).is_some_and(|it| it.state == State::Closed);
        assert!(world.run(Nanos::from_secs(200), |_| {}, is_over));
        world.now.since(begun)
    };
    assert_eq!(lasts(0), Nanos::from_secs(60), "the peer does not close");
    // The peer is silent for 100 s, one of them before.
    let silent = lasts(1_000);
    assert!(silent > Nanos::from_millis(98_990) && silent <= Nanos::from_secs(99), "{silent}");
}

/// A connection that waits to be adopted keeps eight packets.
#[test]
fn a_first_flight_and_a_fin_wait_for_an_adoption() {
    let mut world = World::new(6, 0, 64);
    world.config.is_nodelay = true;
    world.listen();
    world.connect();
    let is_open = |world: &World| world.status(0).is_some_and(|it| it.state == State::Established);
    assert!(world.run(Nanos::from_secs(1), |world| world.adopts = false, is_open));
    // The packet that has opened it is the first; of the 14 that follow eleven stay.
    for _ in 0..14 {
        world.send_flight(10);
        let mut out = Out { packets: Vec::new(), room: 64 };
        let now = world.now;
        world.hosts[1].tcp.listen_unit(0, 64, now, &mut out);
    }
    world.adopts = true;
    assert!(world.call());
    let index = world.program(1).expect("adopted").index;
    let now = world.now;
    assert_eq!(world.hosts[1].tcp.input(index, 64, now).units, 12);
    assert_eq!(world.status(1).expect("open").dropped, 3, "told");
}

/// As many resets wait for their handler as are allowed.
#[test]
fn resets_beyond_the_limit_are_dropped() {
    let mut late = Late::default();
    assert_eq!(RESETS_MAX, 64);
    for number in 0..RESETS_MAX as u64 + 3 {
        late.reset(Reset { packet: vec![1], address: number });
    }
    let mut world = World::new(7, 0, 4);
    let (now, mut out) = (world.now, Out { packets: Vec::new(), room: 1_000 });
    let (units, served) = late.call(&mut world.hosts[0].tcp, (1_000, now), &mut out, |_| 0);
    assert_eq!((units, served.len(), out.packets.len()), (64, 0, 64));
}
