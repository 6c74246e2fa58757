//! Limits of a node, each exceeded: the documented number is accepted, the next one is refused or dropped and
//! counted, and the previous ones continue.

use punctual_proto::api::{
    OpenRequest, Port, RequestError, RtuClass, RtuCost, RtuSending, RtuTarget, RtuTerms, UserId,
};
use punctual_proto::config::{Admission, LinkConfig, NodeConfig, Pacing, RouteConfig};
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, LinkId, Name, NodeId, PathId};
use punctual_proto::limits::*;
use punctual_proto::linksched::{BestEffortKey, Guaranteed, LinkParameters, LinkScheduler};
use punctual_proto::node::Node;
use punctual_proto::signalling::RTCOP_VERSION;
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, Rate};
use punctual_rig::handlers::cpu;
use punctual_rig::{TestInbox, TestMemory, TestOutbox, World, line_config, name, pattern};

const RATE: BitRate = BitRate(40_000_000);
const LEFT: LinkId = LinkId(0);

/// A best-effort packet from the first host of three, by `flow`, fragment `index` of `count`.
fn packet(flow: u32, to: NodeId, port: Cookie, (index, count): (u16, u16), message: u64) -> Vec<u8> {
    let header = Header {
        kind: Kind::BestEffort,
        demoted: false,
        unpromised: false,
        path: PathId { node: NodeId(1), channel: ChannelNumber(flow), epoch: Epoch(1) },
        cookie: port,
        message,
        fragment: index,
        fragments: count,
        message_bytes: 100 * u32::from(count),
        slack_ns: 0,
        logical_arrival: Instant(0),
        age: Age::NONE,
        payload_bytes: 100,
        clock_error: ClockError::NONE,
        destination: to,
    };
    let mut bytes = vec![0; 1_500];
    let begin = header.write(&mut bytes);
    bytes.truncate(begin + 100);
    bytes
}

fn arrive(world: &mut World, node: usize, port: Port, bytes: &[u8]) {
    let (frame, now) = (world.pool.frame(bytes), world.now);
    world.nodes[node].handle_frame(LEFT, port, now, frame, now);
}

fn accounts_hold(world: &World) {
    for node in &world.nodes {
        let wrong: Vec<_> = node.accounts().into_iter().filter(|a| a.counted != a.held).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

fn counted(world: &World, node: usize, what: &str) -> u64 {
    let accounts = world.nodes[node].accounts();
    accounts.iter().find(|account| account.what == what).expect("it is counted").counted
}

#[test]
fn one_path_of_best_effort_and_all_of_them_wait_in_bounded_numbers() {
    let mut world = World::line(3, RATE);
    world.settle();
    const WAITING: &str = "best effort before its handler";
    let of_path = u64::from(ARRIVALS_OF_PATH_MAX);
    for _ in 0..of_path + 5 {
        arrive(&mut world, 1, Port::Data, &packet(1, NodeId(3), Cookie(0), (0, 1), 0));
    }
    assert_eq!(counted(&world, 1, WAITING), of_path);
    for flow in 2..2 + ARRIVALS_PACKETS_MAX as u32 {
        arrive(&mut world, 1, Port::Data, &packet(flow, NodeId(3), Cookie(0), (0, 1), 0));
    }
    assert_eq!(counted(&world, 1, WAITING), ARRIVALS_PACKETS_MAX as u64);
    assert_eq!(world.nodes[1].status(world.now).drops.no_buffer, 5 + of_path);
    assert_eq!(world.nodes[1].frames_held(LEFT), ARRIVALS_PACKETS_MAX as u64);
    accounts_hold(&world);
    world.run_for(Nanos::from_secs(3));
    assert_eq!((counted(&world, 1, WAITING), world.nodes[1].frames_held(LEFT)), (0, 0));
    assert!(world.nodes[1].has_best_effort_room(LEFT));
}

#[test]
fn signalling_that_waits_for_the_processor_is_bounded() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_millis(10));
    for _ in 0..SIGNALS_WAITING_MAX + 7 {
        arrive(&mut world, 1, Port::Signalling, &[7; 100]);
    }
    assert_eq!(world.nodes[1].frames_held(LEFT), SIGNALS_WAITING_MAX as u64);
    assert_eq!(world.nodes[1].status(world.now).drops.no_buffer, 7);
    world.run_for(Nanos::from_secs(1));
    assert_eq!(world.nodes[1].frames_held(LEFT), 0);
    assert!(world.nodes[1].status(world.now).links[0].alive, "the neighbour is heard all the same");
}

/// Packets of a neighbour are handled in the order in which they came: its replies refer to what it sent before.
#[test]
fn signalling_is_handled_in_the_order_of_its_arrival() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_millis(10));
    let counted = |world: &World| {
        let drops = world.nodes[1].status(world.now).drops;
        (drops.malformed, drops.unauthenticated)
    };
    let before = counted(&world);
    // Too short to be a packet, and one without a valid signature.
    let mut forged = [0; 100];
    forged[0] = RTCOP_VERSION;
    for packet in [&[7; 3][..], &forged, &forged, &[7; 3]] {
        arrive(&mut world, 1, Port::Signalling, packet);
    }
    let (mut seen, mut now) = (vec![before], world.now);
    for _ in 0..1_000 {
        if let Some(work) = world.nodes[1].begin_work(now) {
            world.nodes[1].finish_work(work, now);
        }
        let counts = counted(&world);
        if seen.last() != Some(&counts) {
            seen.push(counts);
        }
        now = now + Nanos::from_millis(1);
    }
    let after = |malformed, unauthenticated| (before.0 + malformed, before.1 + unauthenticated);
    assert_eq!(seen, [before, after(1, 0), after(1, 1), after(1, 2), after(2, 2)]);
}

/// More senders, and more messages of each, than a port reassembles at once: the oldest are dropped, and
/// every slot is freed.
#[test]
fn a_port_puts_a_bounded_number_of_messages_together() {
    let mut world = World::line(2, RATE);
    let slots = 400;
    let inbox = TestInbox::new(slots, 1_000);
    world.nodes[1].bind_best_effort(name("bulk"), 1_000, inbox.clone()).expect("free");
    let port = Cookie(name("bulk").port_hash());
    let senders = BEST_EFFORT_SENDERS_MAX as u32 + 4;
    for sender in 1..=senders {
        for message in 0..u64::from(BEST_EFFORT_MESSAGES_MAX) + 3 {
            arrive(&mut world, 1, Port::Data, &packet(sender, NodeId(2), port, (0, 2), message));
        }
        world.run_for(Nanos::from_millis(1));
    }
    let begun = slots - inbox.free();
    assert_eq!(begun, BEST_EFFORT_SENDERS_MAX * BEST_EFFORT_MESSAGES_MAX as usize);
    // The newest of the last sender is still present; the first sender's are not.
    let last = u64::from(BEST_EFFORT_MESSAGES_MAX) + 2;
    for sender in [senders, 1] {
        arrive(&mut world, 1, Port::Data, &packet(sender, NodeId(2), port, (1, 2), last));
    }
    world.run_for(Nanos::from_millis(10));
    assert!(inbox.recv(|bytes, _| assert_eq!(bytes.len(), 200)) && !inbox.recv(|_, _| ()));
    accounts_hold(&world);
}

/// The sender that has been idle longest makes room for a new one: a sender that goes on keeps what it has begun.
#[test]
fn a_message_that_keeps_coming_is_completed_among_many_other_senders() {
    let mut world = World::line(2, RATE);
    let fragments = 3 * BEST_EFFORT_SENDERS_MAX as u16;
    let bytes = 100 * u32::from(fragments);
    let inbox = TestInbox::new(400, bytes as usize);
    world.nodes[1].bind_best_effort(name("bulk"), bytes, inbox.clone()).expect("free");
    let port = Cookie(name("bulk").port_hash());
    for fragment in 0..fragments {
        arrive(&mut world, 1, Port::Data, &packet(1, NodeId(2), port, (fragment, fragments), 0));
        world.run_for(Nanos::from_millis(1));
        arrive(&mut world, 1, Port::Data, &packet(2 + u32::from(fragment), NodeId(2), port, (0, 2), 0));
        world.run_for(Nanos::from_millis(1));
    }
    assert!(inbox.recv(|message, _| assert_eq!(message.len(), bytes as usize)), "it is complete");
    accounts_hold(&world);
}

/// All places of a port's senders are in use. Of those, a new sender replaces the one that has been idle longest, and no other.
#[test]
fn a_new_sender_replaces_the_one_that_has_been_idle_longest() {
    let senders = BEST_EFFORT_SENDERS_MAX as u32;
    for idle in [1, 2, senders / 2, senders] {
        let mut world = World::line(2, RATE);
        let inbox = TestInbox::new(400, 300);
        world.nodes[1].bind_best_effort(name("bulk"), 300, inbox.clone()).expect("free");
        let port = Cookie(name("bulk").port_hash());
        let mut send = |sender: u32, fragment: u16| {
            arrive(&mut world, 1, Port::Data, &packet(sender, NodeId(2), port, (fragment, 3), 0));
            world.run_for(Nanos::from_millis(1));
        };
        (1..=senders).for_each(|sender| send(sender, 0));
        (1..=senders).filter(|sender| *sender != idle).for_each(|sender| send(sender, 1));
        (0..3).for_each(|fragment| send(senders + 1, fragment));
        (1..=senders).filter(|sender| *sender != idle).for_each(|sender| send(sender, 2));
        (1..3).for_each(|fragment| send(idle, fragment));
        let whole = std::iter::from_fn(|| inbox.recv(|_, _| ()).then_some(())).count();
        assert_eq!(whole, senders as usize, "all but the idle one, {idle}, and the new one");
    }
}

/// A packet that has been taken for a port is counted as one without a receiver if the port closes before the packet is handled.
#[test]
fn a_packet_for_a_port_that_closes_meanwhile_has_no_receiver() {
    let mut world = World::line(2, RATE);
    world.settle();
    let inbox = TestInbox::new(4, 100);
    let channel = world.nodes[1].bind_best_effort(name("bulk"), 100, inbox.clone()).expect("free");
    let port = Cookie(name("bulk").port_hash());
    for number in 0..3 {
        arrive(&mut world, 1, Port::Data, &packet(1, NodeId(2), port, (0, 1), number));
    }
    world.nodes[1].close(channel, world.now).expect("it is open");
    world.settle();
    assert_eq!(world.nodes[1].status(world.now).drops.no_receiver, 3);
    assert!(!inbox.recv(|_, _| ()));
    accounts_hold(&world);
}

/// All flows of a link's queue for best effort are in use. A handler that needs another one waits, and is called when there is
/// one, although no packet of its own leaves.
#[test]
fn a_handler_that_finds_all_flows_in_use_is_called_when_one_is_free() {
    let mut configs: Vec<_> = (0..3).map(|host| line_config(host, 3, RATE)).collect();
    configs[1].links[1].pace = Pacing::Completion;
    configs[1].cpu = cpu(Admission::EDF);
    let mut world = World::of(configs);
    world.settle();
    for flow in 1..=BEST_EFFORT_FLOWS_MAX / 2 {
        arrive(&mut world, 1, Port::Data, &packet(flow, NodeId(3), Cookie(0), (0, 1), 0));
        world.run_for(Nanos::from_micros(10));
    }
    let terms = RtuTerms {
        class: RtuClass::BestEffort,
        deadline: None,
        quantum: 1,
        cost: RtuCost { run: Nanos(1_000), unit: Nanos(1_000) },
    };
    let to = RtuTarget::Port("bulk@h3".parse().expect("an address"));
    let sending = RtuSending { to, packets: 1, payload_bytes: 100 };
    let packets_of = |world: &World, id| {
        let status = world.nodes[1].handlers().find(|status| status.id == id).expect("a handler");
        status.sent.expect("it sends").packets_beyond
    };
    let waits = (0..BEST_EFFORT_FLOWS_MAX).find_map(|_| {
        let outbox = TestOutbox::new(1, 100);
        assert!(outbox.send(&[7; 100], world.now));
        let id = world.nodes[1].register_sender(terms, &sending, outbox, world.now).expect("best effort");
        while world.nodes[1].poll_rtu().is_some() {}
        world.nodes[1].make_ready(id, world.now);
        world.settle();
        world.run_for(Nanos::from_micros(50));
        world.settle();
        (packets_of(&world, id) == 0).then_some(id)
    });
    let waits = waits.expect("flows are bounded");
    let accounts = world.nodes[1].accounts();
    let queued = accounts.iter().filter(|account| account.what == "best-effort packets");
    let queued: u64 = queued.map(|account| account.counted).sum();
    assert_eq!(queued, BEST_EFFORT_FLOWS_MAX.into(), "each flow has a packet");
    for _ in 0..4 {
        world.nodes[1].handle_sent(LinkId(1), 1_500, world.now);
        world.run_for(Nanos::from_millis(1));
    }
    assert_eq!(packets_of(&world, waits), 1);
}

/// Packets that cannot be sent are skipped, up to a number that bounds the work of a call. A packet behind
/// one fewer is found by the same call, a packet behind that many by the next.
#[test]
fn a_call_for_a_packet_skips_a_bounded_number_of_others() {
    const SKIPS_MAX: usize = 64;
    let mut configs: Vec<_> = (0..3).map(|host| line_config(host, 3, RATE)).collect();
    configs[1].links[1].pace = Pacing::Completion;
    let mut world = World::of(configs);
    world.settle();
    let queued = |world: &World| {
        let accounts = world.nodes[1].accounts();
        let queued = accounts.iter().filter(|account| account.what == "best-effort packets");
        queued.map(|account| account.counted).sum::<u64>() as usize
    };
    let mut flow = 0;
    let mut pass = |world: &mut World, payload_bytes: u32| {
        flow += 1;
        let bytes = packet(flow, NodeId(3), Cookie(0), (0, 1), 0);
        let (header, _) = Header::parse(&bytes).expect("a packet of ours");
        let mut bytes = vec![0; HEADER_BYTES + payload_bytes as usize];
        Header { payload_bytes, message_bytes: payload_bytes, ..header }.write(&mut bytes);
        arrive(world, 1, Port::Data, &bytes);
        world.run_for(Nanos::from_micros(10));
    };
    // Nothing that is sent counts as sent, so that soon all others wait.
    while queued(&world) == 0 {
        pass(&mut world, 500);
    }
    for others in [SKIPS_MAX - 2, SKIPS_MAX] {
        (0..others).for_each(|_| pass(&mut world, 500));
        pass(&mut world, 100);
    }
    assert_eq!(queued(&world), 2 * SKIPS_MAX + 1);
    // The link now takes packets of 100 bytes at most.
    let mut out = [0; HEADER_BYTES + 100];
    let mut call = |world: &mut World| {
        world.nodes[1].handle_sent(LinkId(1), 1 << 20, world.now);
        let before = queued(world);
        let sent = world.nodes[1].poll_transmit(LinkId(1), world.now, &mut out).is_some();
        (sent, before - queued(world))
    };
    assert_eq!(call(&mut world), (true, SKIPS_MAX), "the last that is looked at");
    assert_eq!(call(&mut world), (false, SKIPS_MAX), "there is more");
    assert_eq!(call(&mut world), (true, 1));
    accounts_hold(&world);
}

#[test]
fn a_flow_of_best_effort_keeps_a_bounded_number_of_messages() {
    let mut world = World::line(2, RATE);
    let most = BEST_EFFORT_OUTGOING_MAX as usize;
    let outbox = TestOutbox::new(2 * most, 60_000);
    let to = "bulk@h2".parse().expect("an address");
    let flow = world.nodes[0].open_best_effort(to, 60_000, outbox.clone(), world.now).expect("a route");
    while outbox.send(&pattern(1, 0, 60_000), world.now) {}
    for _ in 0..3 {
        world.nodes[0].handle_ring(flow, world.now);
    }
    assert_eq!(counted(&world, 0, "messages on their way out"), u64::from(BEST_EFFORT_OUTGOING_MAX));
    assert_eq!(outbox.waiting(), most, "the rest stays in the ring");
    world.run_for(Nanos::from_secs(5));
    assert_eq!(counted(&world, 0, "messages on their way out"), 0);
    assert_eq!(outbox.waiting(), 0);
}

fn scheduler(depth: u32, mtu: u32) -> LinkScheduler<u32> {
    let link = LinkConfig {
        pipeline_depth: depth,
        pace: Pacing::Completion,
        ..LinkConfig::new("l", NodeId(2), RATE)
    };
    let parameters =
        LinkParameters { mtu_wire_bytes: mtu, best_effort_wire_bytes: mtu, ..LinkParameters::of(&link) };
    LinkScheduler::new(parameters)
}

#[test]
fn packets_in_flight_are_bounded_however_small_they_are() {
    let mut link = scheduler(PIPELINE_DEPTH_MAX, 65_000);
    let most = IN_FLIGHT_PACKETS_MAX as u32;
    let flow = link.add_channel(2 * most, Nanos::ZERO);
    let now = Instant(1);
    for number in 0..most + 100 {
        let key = Guaranteed { effective: now, deadline: now, wire_bytes: 100 };
        link.enqueue(now, flow, key, number).expect("a slot");
    }
    let sent = std::iter::from_fn(|| link.poll(now)).count() as u32;
    assert_eq!(sent, most);
    link.complete(100 * 30, now);
    assert_eq!(std::iter::from_fn(|| link.poll(now)).count(), 30);
    link.complete(100 * most, now);
    assert_eq!(std::iter::from_fn(|| link.poll(now)).count(), 70);
    assert_eq!(link.occupancy(flow).slots_used, 70);
}

#[test]
fn flows_and_packets_of_best_effort_are_bounded_and_what_is_idle_makes_room() {
    let mut link = scheduler(2, 1_000);
    let now = Instant(1);
    let put = |link: &mut LinkScheduler<u32>, flow: u32| {
        link.enqueue_best_effort(now, BestEffortKey(flow.into()), 500, flow).is_ok()
    };
    assert!((0..BEST_EFFORT_FLOWS_MAX).all(|flow| put(&mut link, flow)));
    assert!(!put(&mut link, BEST_EFFORT_FLOWS_MAX), "all have something queued");
    // A flow may have as many queued as are free: the last place stays free.
    let more =
        (0..BEST_EFFORT_PACKETS_MAX).filter(|number| put(&mut link, number % BEST_EFFORT_FLOWS_MAX)).count();
    let queued = BEST_EFFORT_FLOWS_MAX + more as u32;
    assert!(queued <= BEST_EFFORT_PACKETS_MAX && queued + 8 > BEST_EFFORT_PACKETS_MAX, "{queued} are queued");
    let mut sent = 0;
    while let Some(scheduled) = link.poll(now) {
        link.complete(scheduled.wire_bytes, now);
        sent += 1;
    }
    assert_eq!((sent, link.accounts()[1]), (queued, [0, 0]));
    assert!(put(&mut link, BEST_EFFORT_FLOWS_MAX), "they are idle now");
}

/// More channels than one call moves become current at once: none is served before all are moved, then they
/// are served by deadline.
#[test]
fn a_crowd_that_becomes_current_goes_by_deadline() {
    let mut link = scheduler(2, 1_000);
    let channels = 3 * LINK_MOVES_MAX;
    // The last to be moved are the most urgent.
    let due = |number: u32| u64::from(channels - number);
    for number in 0..channels {
        let flow = link.add_channel(1, Nanos::ZERO);
        let key =
            Guaranteed { effective: Instant(100), deadline: Instant(1_000 + due(number)), wire_bytes: 500 };
        link.enqueue(Instant(1), flow, key, number).expect("a slot");
    }
    let (mut order, mut calls) = (Vec::new(), 0);
    while order.len() < channels as usize {
        calls += 1;
        assert!(calls < 10 * channels, "{} of {channels} went", order.len());
        if let Some(scheduled) = link.poll(Instant(100)) {
            link.complete(scheduled.wire_bytes, Instant(100));
            order.push(scheduled.packet);
        }
    }
    assert!(order.is_sorted_by_key(|number| due(*number)), "{order:?}");
}

/// As many channels as one call moves become current at once: that call serves the first of them.
#[test]
fn a_crowd_that_one_call_moves_is_served_by_that_call() {
    for behind in [None, Some(200)] {
        let mut link = scheduler(2, 1_000);
        let mut put = |number: u32, effective: u64| {
            let flow = link.add_channel(1, Nanos::ZERO);
            let key = Guaranteed {
                effective: Instant(effective),
                deadline: Instant(1_000 - u64::from(number)),
                wire_bytes: 500,
            };
            link.enqueue(Instant(1), flow, key, number).expect("a slot");
        };
        (0..LINK_MOVES_MAX).for_each(|number| put(number, 100));
        // Another channel is not due yet.
        behind.into_iter().for_each(|effective| put(LINK_MOVES_MAX, effective));
        let first = link.poll(Instant(100)).map(|scheduled| scheduled.packet);
        assert_eq!(first, Some(LINK_MOVES_MAX - 1), "the earliest deadline, {behind:?}");
    }
}

/// What is current when it is queued needs no move: one call serves the first of any number.
#[test]
fn a_crowd_that_is_current_already_is_served_by_one_call() {
    let mut link = scheduler(2, 1_000);
    let now = Instant(100);
    for number in 0..=LINK_MOVES_MAX {
        let flow = link.add_channel(1, Nanos::ZERO);
        let deadline = Instant(1_000 - u64::from(number));
        link.enqueue(now, flow, Guaranteed { effective: now, deadline, wire_bytes: 500 }, number)
            .expect("a slot");
    }
    assert_eq!(link.poll(now).map(|scheduled| scheduled.packet), Some(LINK_MOVES_MAX));
}

fn refuses(change: impl FnOnce(&mut NodeConfig)) -> bool {
    let mut config = line_config(1, 3, RATE);
    change(&mut config);
    Node::<TestMemory>::new(config, 1, Instant(1)).is_err()
}

/// A host with so many neighbours.
fn crowded(links: usize) -> NodeConfig {
    let mut config = line_config(0, 1, RATE);
    let other = |index: usize| NodeId(index as u32 + 2);
    config.directory.extend((0..links).map(|index| (name(&format!("n{index}")), other(index))));
    config.links.extend((0..links).map(|index| LinkConfig::new(&format!("l{index}"), other(index), RATE)));
    config
}

#[test]
fn a_configuration_may_go_to_each_limit_and_not_beyond() {
    type Set = fn(&mut NodeConfig, u64);
    let ranges: [(u64, u64, Set); 5] = [
        (FRAGMENT_BYTES_MIN.into(), u64::MAX, |c, value| c.fragment_bytes = value as u32),
        (0, CLOCK_TOLERANCE_PPM_MAX.into(), |c, value| c.clock_tolerance = Ppm(value as u32)),
        (1, PIPELINE_DEPTH_MAX.into(), |c, value| {
            // Signalling waits for all that is in the adapter.
            (c.links[0].rate, c.links[0].pipeline_depth) = (BitRate(10_000_000_000), value as u32);
        }),
        (FRAMES_MIN.into(), u64::MAX, |c, value| c.links[0].frames = value as u32),
        (BEST_EFFORT_PACKET_BYTES_MIN.into(), u64::MAX, |c, value| {
            c.links[0].packet_best_effort_bytes_max = Some(value as u32);
        }),
    ];
    for (index, (least, most, set)) in ranges.into_iter().enumerate() {
        assert!(!refuses(|c| set(c, least)), "range {index} from {least}");
        assert!(least == 0 || refuses(|c| set(c, least - 1)), "range {index} below {least}");
        if most < u64::MAX {
            assert!(!refuses(|c| set(c, most)) && refuses(|c| set(c, most + 1)), "range {index} to {most}");
        }
    }
    let large = |bytes: u32| {
        refuses(|c| {
            c.fragment_bytes = bytes;
            c.links
                .iter_mut()
                .for_each(|link| (link.rate, link.packet_bytes_max) = (BitRate(10_000_000_000), 65_507));
        })
    };
    assert!(!large(FRAGMENT_BYTES_MAX) && large(FRAGMENT_BYTES_MAX + 1));
    let node = |config| Node::<TestMemory>::new(config, 1, Instant(1));
    assert!(node(crowded(LINKS_MAX)).is_ok() && node(crowded(LINKS_MAX + 1)).is_err());
    let long = |nodes: usize| {
        let mut config = crowded(LINKS_MAX);
        config.routes.push(RouteConfig { via: (2..nodes as u32 + 1).map(NodeId).collect() });
        node(config).is_ok()
    };
    assert!(long(ROUTE_NODES_MAX) && !long(ROUTE_NODES_MAX + 1));
    assert!(
        Name::new(&"n".repeat(NAME_BYTES_MAX)).is_ok() && Name::new(&"n".repeat(NAME_BYTES_MAX + 1)).is_err()
    );
}

#[test]
fn listeners_are_bounded_and_each_that_closes_makes_room() {
    let mut world = World::line(2, RATE);
    let node = &mut world.nodes[0];
    let port = |number: usize| name(&format!("p{number}"));
    let first = node.listen(port(0)).expect("room");
    for number in 1..LISTENERS_MAX {
        node.listen(port(number)).expect("room");
    }
    assert_eq!(node.listen(port(LISTENERS_MAX)).err(), Some(RequestError::Exhausted));
    node.unlisten(first, world.now).expect("it listens");
    assert!(node.listen(port(LISTENERS_MAX)).is_ok() && node.listen(port(LISTENERS_MAX + 1)).is_err());
}

/// More flows than a link's queue has places, each with a message: those without a place wait for one, and
/// all are sent.
#[test]
fn flows_beyond_the_limit_wait_for_a_place_and_go() {
    let mut world = World::line(2, BitRate(20_000_000));
    let flows = BEST_EFFORT_FLOWS_MAX as usize + 40;
    let inbox = TestInbox::new(flows, 100);
    world.nodes[1].bind_best_effort(name("bulk"), 100, inbox.clone()).expect("free");
    let mut open = Vec::new();
    for _ in 0..flows {
        let outbox = TestOutbox::new(1, 100);
        let to = "bulk@h2".parse().expect("an address");
        let flow = world.nodes[0].open_best_effort(to, 100, outbox.clone(), world.now).expect("a route");
        open.push((flow, outbox));
    }
    let (known, beyond) = open.split_at(BEST_EFFORT_FLOWS_MAX as usize);
    for flows in [known, beyond] {
        for (flow, outbox) in flows {
            assert!(outbox.send(&[7; 100], world.now));
            world.nodes[0].handle_ring(*flow, world.now);
        }
        // All messages of the first ones are in the queue, of which little leaves at once.
        world.settle();
    }
    let mut received = 0;
    for _ in 0..40 {
        world.run_for(Nanos::from_millis(20));
        while inbox.recv(|_, _| received += 1) {}
    }
    assert_eq!(received, flows);
    accounts_hold(&world);
}

/// A sender that continues with packets of another size begins anew, as one sender: its messages in progress
/// are given up.
#[test]
fn a_sender_that_cuts_in_another_size_is_still_one() {
    let mut world = World::line(2, RATE);
    let inbox = TestInbox::new(40, 1_000);
    world.nodes[1].bind_best_effort(name("bulk"), 1_000, inbox.clone()).expect("free");
    let port = Cookie(name("bulk").port_hash());
    let cut = |size: u32, index: u16, message: u64| {
        let bytes = packet(7, NodeId(2), port, (index, 2), message);
        let (header, _) = Header::parse(&bytes).expect("a packet of ours");
        let mut bytes = vec![0; 1_500];
        let header = Header { payload_bytes: size, message_bytes: 2 * size, ..header };
        let begin = header.write(&mut bytes);
        bytes.truncate(begin + size as usize);
        bytes
    };
    for message in 0..200 {
        let size = if message % 2 == 0 { 100 } else { 120 };
        // One that is never completed, and one that is.
        arrive(&mut world, 1, Port::Data, &cut(size, 0, 2 * message));
        for index in 0..2 {
            arrive(&mut world, 1, Port::Data, &cut(size, index, 2 * message + 1));
        }
        world.run_for(Nanos::from_millis(1));
        assert!(inbox.recv(|bytes, _| assert_eq!(bytes.len(), 2 * size as usize)), "message {message}");
        assert!(!inbox.recv(|_, _| ()));
        assert!(inbox.free() >= 39, "at most one is in progress");
    }
    accounts_hold(&world);
}

/// Best effort may hold one part of a link's frames, so that other packets find free ones.
#[test]
fn best_effort_holds_its_part_of_a_links_frames_and_no_more() {
    let configs = (0..3).map(|index| {
        let mut config = line_config(index, 3, RATE);
        config.links.iter_mut().for_each(|link| link.frames = FRAMES_MIN + 144);
        config
    });
    let mut world = World::of(configs.collect());
    world.settle();
    let part = u64::from((FRAMES_MIN + 144) / FRAMES_BEST_EFFORT_DIVISOR);
    for flow in 0..part as u32 + 9 {
        arrive(&mut world, 1, Port::Data, &packet(flow, NodeId(3), Cookie(0), (0, 1), 0));
    }
    assert_eq!(world.nodes[1].frames_held(LEFT), part);
    assert_eq!(world.nodes[1].status(world.now).drops.no_buffer, 9);
    accounts_hold(&world);
}

/// Questions of admission that another thread answers are taken a few at a time.
#[test]
fn few_questions_are_decided_together() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_secs(3));
    world.nodes[0].decide_elsewhere();
    let contract = Contract::new(100, Rate::per_second(1).expect("a rate"), 1, Nanos::from_millis(900));
    let contract = contract.expect("in range");
    for _ in 0..2 * DECISIONS_AT_ONCE_MAX + 1 {
        let to = "nobody@h2".parse().expect("an address");
        let request = OpenRequest { to, contract, user: UserId(0), probe: true, token: None };
        world.nodes[0].open(request, world.now).expect("it can be tried");
    }
    let mut together = Vec::new();
    while let Some(decision) = world.nodes[0].poll_decision() {
        assert!(world.nodes[0].poll_decision().is_none(), "the policies are away");
        let decided = decision.decide(|| Instant(0));
        together.push(decided.took().len());
        world.nodes[0].handle_decided(decided, world.now);
        if together.len() == 3 {
            break;
        }
    }
    assert_eq!(together, [DECISIONS_AT_ONCE_MAX, DECISIONS_AT_ONCE_MAX, 1]);
    accounts_hold(&world);
}

#[test]
fn a_packet_of_the_default_size_fits_and_a_byte_more_does_not() {
    assert!(!refuses(|c| c.fragment_bytes = FRAGMENT_BYTES_DEFAULT));
    assert!(refuses(|c| c.fragment_bytes = FRAGMENT_BYTES_DEFAULT + 1));
    assert_eq!(LinkConfig::new("l", NodeId(2), RATE).frames, FRAMES_DEFAULT);
}
