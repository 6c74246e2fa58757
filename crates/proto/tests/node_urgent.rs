//! The work that precedes best effort on a processor; of signalling, only the part within its budget, one
//! packet an interval. Signalling beyond that waits behind best effort until the next interval, and does not
//! keep packets in a driver's ring.

use punctual_proto::api::{Port, WorkKind};
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, LinkId, NodeId, PathId};
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use punctual_proto::{BitRate, Instant, Nanos, Rate};
use punctual_rig::{World, line_config};

const RATE: BitRate = BitRate(40_000_000);
const LEFT: LinkId = LinkId(0);
const FORWARDER: usize = 1;

/// A best-effort packet from the first host of three to the last.
fn best_effort(flow: u32) -> Vec<u8> {
    let header = Header {
        kind: Kind::BestEffort,
        demoted: false,
        unpromised: false,
        path: PathId { node: NodeId(1), channel: ChannelNumber(flow), epoch: Epoch(1) },
        cookie: Cookie(0),
        message: 0,
        fragment: 0,
        fragments: 1,
        message_bytes: 100,
        slack_ns: 0,
        logical_arrival: Instant(0),
        age: Age::NONE,
        payload_bytes: 100,
        clock_error: ClockError::NONE,
        destination: NodeId(3),
    };
    let mut bytes = vec![0; 1_500];
    let begin = header.write(&mut bytes);
    bytes.truncate(begin + 100);
    bytes
}

fn arrive(world: &mut World, port: Port, bytes: &[u8]) {
    let (frame, now) = (world.pool.frame(bytes), world.now);
    world.nodes[FORWARDER].handle_frame(LEFT, port, now, frame, now);
}

/// One unit of the forwarder's processor: what it does.
fn unit(world: &mut World) -> Option<WorkKind> {
    let (node, now) = (&mut world.nodes[FORWARDER], world.now);
    let work = node.begin_work(now)?;
    let kind = work.kind;
    node.finish_work(work, now);
    Some(kind)
}

/// Hosts whose neighbours are silent: the forwarder's signalling has its whole budget.
fn quiet() -> (World, Nanos) {
    let mut world = World::line(3, RATE);
    world.tap = Some(Box::new(|_, port, _| port != Port::Signalling));
    world.run_for(Nanos::from_secs(1));
    let packets_per_second = line_config(FORWARDER, 3, RATE).signalling.packets_per_second;
    let interval = Rate::per_second(packets_per_second.into()).expect("a rate").policed_interval();
    assert!(world.nodes[FORWARDER].has_best_effort_room(LEFT) && unit(&mut world).is_none());
    (world, interval)
}

#[test]
fn signalling_within_its_budget_goes_first_and_what_exceeds_it_waits_for_an_interval() {
    let (mut world, interval) = quiet();
    let mut flow = 0;
    for round in 0..5 {
        // A driver may have handed out best effort a moment before.
        arrive(&mut world, Port::Data, &best_effort(flow + 1));
        for _ in 0..2 {
            arrive(&mut world, Port::Signalling, &[7; 100]);
        }
        assert!(
            !world.nodes[FORWARDER].has_best_effort_room(LEFT),
            "round {round}: a packet within the budget"
        );
        assert_eq!(unit(&mut world), Some(WorkKind::Signalling), "round {round}: it is ahead of best effort");
        assert!(
            world.nodes[FORWARDER].has_best_effort_room(LEFT),
            "round {round}: the rest is beyond the budget"
        );
        for more in 2..5 {
            arrive(&mut world, Port::Data, &best_effort(flow + more));
        }
        flow += 4;
        for nth in 0..4 {
            let kind = unit(&mut world).expect("best effort waits");
            assert_ne!(kind, WorkKind::Signalling, "round {round}: {nth} packets of best effort were first");
        }
        // More best effort than the processor takes until then: the next interval's packet does not wait for it.
        for _ in 0..8 {
            flow += 1;
            arrive(&mut world, Port::Data, &best_effort(flow));
        }
        world.now = world.now + interval;
        assert_eq!(unit(&mut world), Some(WorkKind::Signalling), "round {round}: an interval later");
        world.now = world.now + interval;
        while unit(&mut world).is_some() {}
    }
    // No neighbour was given up because of that: everything was served and has left.
    let status = world.nodes[FORWARDER].status(world.now);
    assert_eq!((status.drops.no_buffer, status.drops.over_cap, status.drops.no_receiver), (0, 0, 0));
    let passed = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = passed.clone();
    world.tap = Some(Box::new(move |node, port, _| {
        count.set(count.get() + u32::from(node == FORWARDER && port == Port::Data));
        port != Port::Signalling
    }));
    world.run_for(Nanos::from_secs(1));
    assert_eq!((passed.get(), world.nodes[FORWARDER].frames_held(LEFT)), (flow, 0));
}

/// While only such signalling waits, it is served at once: its budget holds it behind other work only.
#[test]
fn signalling_beyond_its_budget_is_served_if_no_other_handler_waits() {
    let (mut world, _) = quiet();
    for _ in 0..10 {
        arrive(&mut world, Port::Signalling, &[7; 100]);
    }
    let mut served = 0;
    while let Some(kind) = unit(&mut world) {
        assert_eq!(kind, WorkKind::Signalling);
        served += 1;
    }
    assert_eq!((served, world.nodes[FORWARDER].frames_held(LEFT)), (10, 0));
}
