//! A host's replies without a route, its choice of the link, and its timeouts.

mod common;

use common::rate::{TRIED, is_right, measured};
use std::collections::HashSet;

use punctual_proto::api::{CloseReason, Event, Notice, OpenRequest, Port, RequestError, UserId, WorkKind};
use punctual_proto::config::KernelTraffic;
use punctual_proto::ids::{Address, ChannelId, HandlerId, LinkId, NodeId};
use punctual_proto::limits::FRAGMENTS_MAX;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::{Slow, TestInbox, TestOutbox, World, line_config, name, pattern};

const RATE: BitRate = BitRate(40_000_000);
const USER: UserId = UserId(7);

fn contract() -> Contract {
    let rate = Rate::per_second(50).expect("a rate");
    Contract::new(500, rate, 1, Nanos::from_millis(100)).expect("in range")
}

/// The first host's immediate errors for a channel to `host`, and for a request to it for one.
fn answers(world: &mut World, host: &str) -> [Option<RequestError>; 2] {
    let to = Address { port: name("port"), host: name(host) };
    let now = world.now;
    let open = OpenRequest { to: to.clone(), contract: contract(), user: USER, probe: false, token: None };
    let opened = world.nodes[0].open(open, now).err();
    let _ = world.nodes[0].listen(name("reply"));
    [opened, world.nodes[0].request(&to, name("reply"), contract(), USER, now).err()]
}

#[test]
fn a_host_without_a_route_gets_that_error_and_neighbours_need_none() {
    let config = |index| {
        let mut config = line_config(index, 3, RATE);
        config.routes.clear();
        config
    };
    let mut world = World::of((0..3).map(config).collect());
    world.run_for(Nanos::from_secs(2));
    let no_route = || Some(RequestError::NoRoute(name("h3")));
    assert_eq!(answers(&mut world, "h3"), [no_route(), no_route()]);
    assert_eq!(answers(&mut world, "h2"), [None, None]);
    let itself = || Some(RequestError::Itself(name("h1")));
    assert_eq!(answers(&mut world, "h1"), [itself(), itself()]);
}

#[test]
fn a_host_that_leaves_begins_nothing() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_secs(2));
    let now = world.now;
    world.nodes[0].shutdown(now);
    assert_eq!(answers(&mut world, "h2"), [Some(RequestError::Exhausted), Some(RequestError::Exhausted)]);
    world.run_for(Nanos::from_secs(2));
    assert!(world.nodes.iter().all(|node| node.channels().is_empty()));
    assert!(world.nodes[0].is_quiet());
}

/// Waiting work is due at once: a host that has received a packet needs its processor, until the work is
/// done.
#[test]
fn a_host_wants_its_processor_while_work_waits() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_secs(2));
    assert!(world.nodes[1].poll_timeout().is_some_and(|due| due > world.now));
    let (frame, now) = (world.pool.frame(&[0; 80]), world.now);
    world.nodes[1].handle_frame(LinkId(0), Port::Signalling, now, frame, now);
    assert_eq!(world.nodes[1].poll_timeout(), Some(Instant::ZERO));
    world.settle();
    assert!(world.nodes[1].poll_timeout().is_some_and(|due| due > world.now));
}

/// So is a signal that waits for one of a host's links, while the other ones have none.
#[test]
fn a_host_wants_its_processor_while_a_signal_waits_for_any_link() {
    for first in [0, 1] {
        let mut world = World::line(3, RATE);
        // Both neighbours are to be greeted.
        let (node, now) = (&mut world.nodes[1], world.now + Nanos::from_secs(2));
        node.handle_timeout(now);
        let mut out = [0; 2_048];
        for link in [first, 1 - first] {
            assert!(node.may_transmit(LinkId(link)), "{link}");
            assert_eq!(node.poll_timeout(), Some(Instant::ZERO), "{link}");
            while node.poll_transmit(LinkId(link), now, &mut out).is_some() {}
        }
        assert!(node.poll_timeout().is_some_and(|due| due > Instant::ZERO));
    }
}

/// The driver's report of other traffic is used only to find causes: for a link that does not exist, or while
/// nothing is late, it changes nothing.
#[test]
fn traffic_of_others_alone_is_no_breach() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_secs(2));
    for link in [LinkId(0), LinkId(99)] {
        world.nodes[0].handle_foreign_traffic(link, RATE);
    }
    world.run_for(Nanos::from_secs(2));
    assert!(!world.nodes[0].is_looking() && world.nodes[0].status(world.now).broken.is_empty());
}

/// Behind a shaper of ours, a measured rate near the shaper's may be the shaper's: the link drains at least
/// that much; a rate far below it is the link's.
#[test]
fn a_shaped_link_is_filled_only_well_below_its_shaper() {
    for (drains, at_least) in [(20_000_000, false), (93_000_000, true)] {
        let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, TRIED)).collect();
        configs[0].links[0].kernel_traffic = KernelTraffic::Behind;
        assert_eq!(configs[0].links[0].neighbour, NodeId(2));
        let mut world = World::of(configs);
        world.slow = Some(Slow::new(0, BitRate(drains)));
        world.run_for(Nanos::from_secs(3));
        let now = world.now;
        world.nodes[0].measure_rate(LinkId(0), now).expect("nobody uses it");
        let found = measured(&mut world, 0).expect("it can be measured");
        assert_eq!(found.at_least, at_least, "{drains}: {found:?}");
        assert!(at_least || is_right(found, BitRate(drains)), "{found:?}");
    }
}

/// Packets of another version are counted, each once, at their incoming link.
#[test]
fn packets_of_another_version_are_counted_at_their_link() {
    let mut world = World::line(3, RATE);
    for count in 1..4 {
        world.inject(1, LinkId(1), Port::Data, &[200; 100]);
        let status = world.nodes[1].status(world.now);
        let foreign: Vec<_> = status.links.iter().map(|link| link.packets_foreign).collect();
        assert_eq!((foreign, status.drops.version, status.drops.malformed), (vec![0, count], count, 0));
    }
}

/// A flow of best effort from the first host to `port` at the second, with messages of 100 B in a ring of eight.
fn flow(world: &mut World, port: &str) -> (ChannelId, TestOutbox) {
    let (to, outbox) = (Address { port: name(port), host: name("h2") }, TestOutbox::new(8, 200));
    let flow = world.nodes[0].open_best_effort(to, 100, outbox.clone(), world.now).expect("a route");
    (flow, outbox)
}

/// The handler of a flow may be removed before its unit is finished, and its id reused: the unit then has no
/// effect on either.
#[test]
fn a_unit_of_a_removed_handler_does_nothing_for_the_next_holder_of_its_id() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_secs(2));
    let now = world.now;
    let begin = |world: &mut World, port| {
        let (flow, outbox) = flow(world, port);
        assert!(outbox.send(&[7; 100], now));
        world.nodes[0].handle_ring(flow, now);
        (flow, outbox)
    };
    let (gone, _) = begin(&mut world, "first");
    let stale = world.nodes[0].begin_work(now).expect("a message waits");
    world.nodes[0].close(gone, now).expect("it is open");
    begin(&mut world, "second");
    let handler = stale.handler;
    world.nodes[0].finish_work(stale, now);
    assert!(!world.nodes[0].best_effort_waits(LinkId(0)), "nothing was made");
    let own = world.nodes[0].begin_work(now).expect("its message still waits");
    assert_eq!(own.handler, handler, "the id is given again");
    world.nodes[0].finish_work(own, now);
    assert!(world.nodes[0].best_effort_waits(LinkId(0)), "and now is made");
}

/// Messages that a flow cannot send are counted one by one; a size that could never be sent is refused when
/// the flow is opened.
#[test]
fn messages_that_are_too_long_for_their_flow_are_counted() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_secs(2));
    let inbox = TestInbox::new(8, 200);
    world.nodes[1].bind_best_effort(name("bulk"), 200, inbox.clone()).expect("free");
    let (flow, outbox) = flow(&mut world, "bulk");
    for bytes in [100, 101, 99, 200, 100] {
        assert!(outbox.send(&pattern(1, bytes as u64, bytes), world.now));
    }
    world.nodes[0].handle_ring(flow, world.now);
    world.run_for(Nanos::from_millis(100));
    let mut came = Vec::new();
    while inbox.recv(|bytes, _| came.push(bytes.len())) {}
    assert_eq!((came, world.nodes[0].status(world.now).drops.too_large), (vec![100, 99, 100], 2));
    assert_eq!(outbox.free(), 8, "slots of what is thrown away are free");

    let fragment = line_config(0, 2, RATE).fragment_bytes;
    let mut open = |bytes| {
        let to = Address { port: name("bulk"), host: name("h2") };
        world.nodes[0].open_best_effort(to, bytes, TestOutbox::new(1, 1), world.now).map(|_| ())
    };
    let bytes_max = fragment * FRAGMENTS_MAX;
    assert_eq!(open(bytes_max), Ok(()));
    let bytes = bytes_max + 1;
    assert_eq!(open(bytes), Err(RequestError::TooLong { bytes, bytes_max }));
}

/// A port whose messages are empty takes those, one after the other, and counts all others as too large.
#[test]
fn a_port_for_empty_messages_takes_them_and_no_others() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_secs(2));
    let inbox = TestInbox::new(8, 1);
    world.nodes[1].bind_best_effort(name("bulk"), 0, inbox.clone()).expect("free");
    let (flow, outbox) = flow(&mut world, "bulk");
    for bytes in [0, 1, 0, 100, 0] {
        assert!(outbox.send(&pattern(1, 0, bytes), world.now));
    }
    world.nodes[0].handle_ring(flow, world.now);
    world.run_for(Nanos::from_millis(100));
    let mut came = Vec::new();
    while inbox.recv(|bytes, _| came.push(bytes.len())) {}
    let drops = world.nodes[1].status(world.now).drops;
    assert_eq!((came, drops.too_large, drops.malformed), (vec![0, 0, 0], 2, 0));
}

/// However many notices are unread: each channel gives each of its own, once.
#[test]
fn no_notice_is_lost_while_none_is_read() {
    const CHANNELS: usize = 520;
    let mut world = World::line(2, BitRate(1_000_000_000));
    world.run_for(Nanos::from_secs(2));
    let contract = Contract::new(10, Rate::per_second(1).expect("a rate"), 1, Nanos::from_secs(1));
    let contract = contract.expect("in range");
    let open: Vec<_> = (0..CHANNELS).map(|_| world.open(0, 1, contract).expect("there is room")).collect();
    let now = world.now;
    for channel in &open {
        channel.outbox.push_beyond_room(&[7; 11], 2, now);
        world.nodes[0].handle_ring(channel.source, now);
    }
    // Units that take far more than they may, of all handlers: the first ones count as accidents.
    for handler in (0..10 + CHANNELS as u32).cycle().take(30 * CHANNELS) {
        let (took, declared) = (Nanos::from_millis(50), Nanos::from_micros(1));
        world.nodes[0].record_unit(HandlerId(handler), WorkKind::Send, took, declared, now);
    }
    let mut reported = Vec::new();
    while let Some(event) = world.nodes[0].poll_event() {
        if let Event::Notice { channel, notice } = event {
            reported.push((channel, notice));
        }
    }
    let all: HashSet<_> = reported.iter().copied().collect();
    assert_eq!((reported.len(), all.len()), (2 * CHANNELS, 2 * CHANNELS));
    let of = |channel, notice| all.contains(&(channel, notice));
    assert!(open.iter().all(|c| of(c.source, Notice::Policed) && of(c.source, Notice::ProfileAtRisk)));
    // In the order in which they were given: all of the first kind came before all of the second.
    let given = |notice| open.iter().map(move |channel| (channel.source, notice));
    assert!(reported.iter().copied().take(CHANNELS).eq(given(Notice::Policed)));
    assert!(reported.iter().skip(CHANNELS).all(|(_, notice)| *notice == Notice::ProfileAtRisk));
}

/// Only incoming channels are found by their path: a path that starts here is not found, whatever packet
/// names it.
#[test]
fn the_path_of_a_source_is_no_incoming_one() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract()).expect("there is room");
    let path = world.nodes[0].channel(open.source).expect("it is open").path;
    let now = world.now;
    world.nodes[0].abort_path(path, CloseReason::FilterRefused, now);
    world.run_for(Nanos::from_secs(1));
    assert_eq!(world.nodes[0].channel(open.source).expect("it is open").state, "open");
    let now = world.now;
    world.nodes[1].abort_path(path, CloseReason::FilterRefused, now);
    world.run_for(Nanos::from_secs(1));
    assert!(world.nodes.iter().all(|node| node.channels().is_empty()), "that of its sink is");
}
