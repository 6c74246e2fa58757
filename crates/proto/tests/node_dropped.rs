//! Each packet that a host drops is counted once, by its reason, and nothing else is.

use punctual_proto::api::{DropCounters, Port};
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, LinkId, NodeId, PathId};
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use punctual_proto::{BitRate, Instant, Nanos, Ppm};
use punctual_rig::{TestInbox, World, line_config, name};

const LEFT: LinkId = LinkId(0);
const RELAY: usize = 1;
/// Largest best-effort packet of the link on which the relay sends on.
const PACKET_BYTES_MAX: u32 = 1_000;

/// A line of three hosts. The relay has a hundredth of its processor for each flow.
fn world() -> World {
    let mut configs: Vec<_> = (0..3).map(|host| line_config(host, 3, BitRate(40_000_000))).collect();
    configs[RELAY].links[1].packet_best_effort_bytes_max = Some(PACKET_BYTES_MAX);
    configs[RELAY].cpu.best_effort_flow_cpu_cap = Ppm(10_000);
    let mut world = World::of(configs);
    world.run_for(Nanos::from_secs(1));
    world
}

/// A packet of `flow` to `destination` that has `packet_bytes` with its header.
fn packet(kind: Kind, flow: u32, destination: NodeId, packet_bytes: u32) -> Vec<u8> {
    let payload_bytes = packet_bytes - HEADER_BYTES as u32;
    let header = Header {
        kind,
        demoted: false,
        unpromised: false,
        path: PathId { node: NodeId(1), channel: ChannelNumber(flow), epoch: Epoch(1) },
        cookie: Cookie(7),
        message: 0,
        fragment: 0,
        fragments: 1,
        message_bytes: payload_bytes,
        slack_ns: 0,
        logical_arrival: Instant(0),
        age: Age::NONE,
        payload_bytes,
        clock_error: ClockError::NONE,
        destination,
    };
    let mut bytes = vec![0; packet_bytes as usize];
    header.write(&mut bytes);
    bytes
}

fn drops(world: &World) -> DropCounters {
    world.nodes[RELAY].status(world.now).drops
}

#[test]
fn a_dropped_packet_is_counted_once_by_its_reason() {
    let none = DropCounters::default();
    let onward = packet(Kind::BestEffort, 1, NodeId(3), PACKET_BYTES_MAX);
    let too_large = packet(Kind::BestEffort, 1, NodeId(3), PACKET_BYTES_MAX + 1);
    let to_nobody = packet(Kind::BestEffort, 1, NodeId(2), 200);
    let of_no_channel = packet(Kind::Guaranteed, 1, NodeId(0), 200);
    let cut = onward[..HEADER_BYTES - 1].to_vec();
    for (bytes, expected) in [
        (&onward, none),
        (&too_large, DropCounters { too_large: 3, ..none }),
        (&to_nobody, DropCounters { no_receiver: 3, ..none }),
        (&of_no_channel, DropCounters { unknown_path: 3, ..none }),
        (&cut, DropCounters { malformed: 3, ..none }),
    ] {
        let mut world = world();
        (0..3).for_each(|_| world.inject(RELAY, LEFT, Port::Data, bytes));
        assert_eq!(drops(&world), expected, "{} B", bytes.len());
    }
}

/// A flow that has spent its share of the processor loses what it sends until it has some again; others do
/// not.
#[test]
fn what_a_flow_sends_beyond_its_share_is_counted() {
    let mut world = world();
    let mut taken = 0;
    while drops(&world) == DropCounters::default() {
        assert!(taken < 1_000, "a hundredth of 10 ms is not endless");
        world.inject(RELAY, LEFT, Port::Data, &packet(Kind::BestEffort, 1, NodeId(3), 200));
        taken += 1;
    }
    for more in 0..5 {
        let expected = DropCounters { over_cap: 1 + more, ..DropCounters::default() };
        assert_eq!(drops(&world), expected);
        world.inject(RELAY, LEFT, Port::Data, &packet(Kind::BestEffort, 2, NodeId(3), 200));
        assert_eq!(drops(&world), expected, "another flow has its own share");
        world.inject(RELAY, LEFT, Port::Data, &packet(Kind::BestEffort, 1, NodeId(3), 200));
    }
}

/// A message that comes again is dropped, however long the messages between were: its number is remembered.
#[test]
fn a_message_that_comes_twice_is_delivered_once() {
    let mut world = world();
    let inbox = TestInbox::new(16, 500);
    world.nodes[RELAY].bind_best_effort(name("bulk"), 500, inbox.clone()).expect("free");
    let cookie = Cookie(name("bulk").port_hash());
    for (message, payload) in [(5, 10), (6, 200), (5, 10), (7, 500), (6, 200), (5, 10), (8, 1)] {
        let mut bytes = packet(Kind::BestEffort, 1, NodeId(2), HEADER_BYTES as u32 + payload);
        let (header, _) = Header::parse(&bytes).expect("a packet");
        Header { cookie, message, ..header }.write(&mut bytes);
        world.inject(RELAY, LEFT, Port::Data, &bytes);
    }
    let lengths: Vec<_> = inbox.take_all().iter().map(Vec::len).collect();
    assert_eq!(lengths, [10, 200, 500, 1]);
    assert_eq!(drops(&world), DropCounters::default());
}
