//! A channel over real Nodes: establishment, messages, deadlines, evidence, teardown, hostile packets.

use std::cell::Cell;
use std::rc::Rc;

use punctual_proto::api::{Event, Port, StageKind};
use punctual_proto::config::plan::PlannedFlow;
use punctual_proto::config::{Admission, NodeConfig, RunPolicy};
use punctual_proto::ids::LinkId;
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::signalling::SplitMix64;
use punctual_proto::wire::Header;
use punctual_proto::{
    Activation, BitRate, Contract, Delivery, FlowName, Horizon, Instant, Late, Nanos, Policing, Ppm, Rate,
};
use punctual_rig::{Open, TestInbox, TestOutbox, World, line_config, name, pattern};

const RATE: BitRate = BitRate(40_000_000);

fn contract(bytes: u32, per_second: u64, burst: u32, deadline_ms: u64) -> Contract {
    Contract::new(bytes, Rate::per_second(per_second).unwrap(), burst, Nanos::from_millis(deadline_ms))
        .unwrap()
}

/// Sends `count` messages at the contract's rate and checks that each arrives whole and in time.
fn exchange(world: &mut World, contract: Contract, count: u64, from: usize, to: usize) {
    let open = world.open(from, to, contract).unwrap();
    let bytes = contract.message_bytes_max as usize;
    let mut next = 0;
    let mut received = 0;
    let start = world.now;
    let end = start + contract.interval() * count + contract.deadline + Nanos::from_millis(1);
    while world.now < end {
        if next < count && world.now >= start + contract.interval() * next {
            assert!(
                open.outbox.send(&pattern(1, next, bytes), world.now),
                "the ring has room for a conforming sender"
            );
            world.nodes[from].handle_ring(open.source, world.now);
            next += 1;
        }
        world.run_for(Nanos::from_micros(500));
        while open.inbox.recv(|message, info| {
            assert_eq!(info.number, received);
            assert!(message == pattern(1, received, bytes), "message {received} is altered");
            assert!(!info.demoted);
            let due = start + contract.interval() * received + contract.deadline;
            assert!(info.delivered <= due, "message {received} is late");
            if contract.delivery == Delivery::AtDeadline {
                assert!(info.delivered + Nanos::from_millis(2) >= due, "message {received} is early");
            }
        }) {
            received += 1;
        }
    }
    assert_eq!(received, count);
    let status = world.nodes[to].channel(open.sink).unwrap();
    assert_eq!((status.counters.misses, status.counters.messages_out), (0, count));
    world.nodes[from].close(open.source, world.now).unwrap();
    world.run_for(Nanos::from_secs(2));
    for node in &world.nodes {
        let status = node.status(world.now);
        assert_eq!((status.channels, status.buffer_bytes), (0, 0), "{} keeps something", status.name);
    }
    assert_eq!(world.pool.free(), 4_096, "every frame is back");
}

#[test]
fn messages_cross_one_link_whole_and_in_time() {
    exchange(&mut World::line(2, RATE), contract(20_000, 25, 1, 40), 20, 0, 1);
}

#[test]
fn messages_cross_a_forwarder_both_ways() {
    let mut world = World::line(3, RATE);
    exchange(&mut world, contract(105_000, 25, 1, 80), 10, 0, 2);
    exchange(&mut world, contract(256, 100, 2, 10), 30, 2, 0);
}

#[test]
fn regulated_hops_and_delivery_at_the_deadline() {
    let regulated = Contract { horizon: Horizon::Regulated, ..contract(8_000, 50, 2, 60) };
    exchange(&mut World::line(4, RATE), regulated, 20, 0, 3);
    let at_deadline = Contract { delivery: Delivery::AtDeadline, ..contract(8_000, 50, 2, 60) };
    exchange(&mut World::line(3, RATE), at_deadline, 20, 0, 2);
}

/// After a processor had no time for long, many messages that wait are due at once, and so are some that it has not taken in yet.
#[test]
fn messages_that_wait_for_their_deadline_are_delivered_in_order_however_late_the_processor_is() {
    for seed in 0..20 {
        let mut random = SplitMix64::new(seed);
        let config = |index| {
            let mut config = line_config(index, 2, RATE);
            if seed / 2 % 2 == 1 {
                (config.cpu.run, config.cpu.admission) =
                    (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY);
            }
            config
        };
        let mut world = World::of((0..2).map(config).collect());
        world.short_turns = seed % 2 == 1;
        let contract = Contract { delivery: Delivery::AtDeadline, ..contract(300, 500, 2, 100) };
        let open = world.open(0, 1, contract).unwrap();
        // What comes while the processor has no time may be lost.
        let (mut next, mut late) = (0, 0);
        for sent in 0..1_000 {
            assert!(open.outbox.send(&pattern(1, sent, 300), world.now));
            world.nodes[0].handle_ring(open.source, world.now);
            if random.below(100) == 0 && world.still.is_none() {
                world.still = Some((1, world.now + Nanos(random.below(250_000_000))));
            }
            world.run_for(contract.interval());
            while open.inbox.recv(|_, info| {
                assert!(info.number >= next, "seed {seed}: {} after {next}", info.number);
                next = info.number + 1;
                late += u64::from(info.delivered > info.deadline);
            }) {}
        }
        assert!(next > 500 && late > 0, "seed {seed}: {next} {late}");
    }
}

#[test]
fn excess_is_delayed_dropped_or_demoted() {
    for policing in [Policing::Delay, Policing::Drop, Policing::Demote] {
        let contract = Contract { policing, ..contract(1_000, 10, 2, 50) };
        let mut world = World::line(3, RATE);
        let open = world.open(0, 2, contract).unwrap();
        let mut sent = 0;
        for number in 0..8 {
            sent += u64::from(open.outbox.send(&pattern(2, number, 1_000), world.now));
            world.nodes[0].handle_ring(open.source, world.now);
        }
        world.run_for(Nanos::from_secs(2));
        let (mut in_time, mut demoted) = (0, 0);
        while open.inbox.recv(|_, info| if info.demoted { demoted += 1 } else { in_time += 1 }) {}
        let source = world.nodes[0].channel(open.source).unwrap().counters;
        match policing {
            Policing::Delay => {
                assert!(sent < 8, "the ring fills: the sender would block");
                assert_eq!((in_time, demoted), (sent, 0));
                assert!(source.delayed > 0);
            }
            Policing::Drop => {
                assert_eq!((in_time, demoted, source.dropped), (2, 0, sent - 2));
            }
            Policing::Demote => assert_eq!((in_time, demoted, source.demoted), (2, sent - 2, sent - 2)),
        }
    }
}

#[test]
fn too_much_is_refused_with_an_offer() {
    let mut world = World::line(3, RATE);
    let Err(Event::Refused { refusal, .. }) = world.open(0, 2, contract(105_000, 100, 1, 80)) else {
        panic!("84 Mbit/s fit into 40");
    };
    let offer = refusal.offer.expect("something smaller would fit");
    world.run_for(Nanos::from_secs(1));
    assert_eq!(world.nodes[0].status(world.now).channels, 0);
    let open = world.open(0, 2, offer);
    assert!(open.is_ok(), "the offer holds: {open:?}");
}

#[test]
fn hostile_packets_are_dropped_and_counted_by_reason() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract(500, 10, 2, 50)).unwrap();
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let copy = seen.clone();
    world.tap = Some(Box::new(move |_, port, bytes| {
        if port == Port::Data {
            copy.borrow_mut().push(bytes.clone());
        }
        true
    }));
    assert!(open.outbox.send(&pattern(3, 0, 500), world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(Nanos::from_millis(60));
    let packet = seen.borrow()[0].clone();
    let with = |at: usize, value: u8| {
        let mut bytes = packet.clone();
        bytes[at] = value;
        bytes
    };
    let link = LinkId(0);
    world.inject(1, link, Port::Data, &packet[..40]);
    world.inject(1, link, Port::Data, &with(0, 99));
    world.inject(1, link, Port::Data, &with(8, 77));
    world.inject(1, link, Port::Data, &with(12, !packet[12]));
    world.inject(1, link, Port::Signalling, &[0; 60]);
    let drops = world.nodes[1].status(world.now).drops;
    // Two of another version: one data packet, one signalling packet.
    let counted = (drops.malformed, drops.version, drops.unknown_path, drops.wrong_cookie);
    assert_eq!(counted, (1, 2, 1, 1), "{drops:?}");
    // A repeated packet is not delivered again, and the channel continues.
    world.inject(1, link, Port::Data, &packet);
    world.run_for(Nanos::from_millis(200));
    assert!(open.outbox.send(&pattern(3, 1, 500), world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(Nanos::from_millis(60));
    let mut numbers = Vec::new();
    while open.inbox.recv(|_, info| numbers.push(info.number)) {}
    assert_eq!(numbers, [0, 1]);
}

#[test]
fn a_lost_fragment_costs_its_message_and_nothing_else() {
    let mut world = World::line(3, RATE);
    let contract = contract(10_000, 20, 1, 50);
    let open = world.open(0, 2, contract).unwrap();
    let mut packets = 0;
    world.tap = Some(Box::new(move |from, port, _| {
        packets += u32::from(from == 0 && port == Port::Data);
        !(from == 0 && port == Port::Data && packets == 11)
    }));
    let mut numbers = Vec::new();
    for number in 0..6 {
        assert!(open.outbox.send(&pattern(4, number, 10_000), world.now));
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(contract.interval());
        while open.inbox.recv(|message, info| {
            assert!(message == pattern(4, info.number, 10_000));
            numbers.push(info.number);
        }) {}
    }
    assert_eq!(numbers, [0, 2, 3, 4, 5]);
}

/// A link may lengthen short frames. Bytes behind a packet are not sent beyond the next host, and the packet
/// arrives whole.
#[test]
fn what_is_behind_a_packet_in_its_frame_does_not_go_on() {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract(300, 20, 1, 50)).unwrap();
    let (bulk, sink) = (TestOutbox::new(8, 300), TestInbox::new(8, 300));
    world.nodes[2].bind_best_effort(name("bulk"), 300, sink.clone()).unwrap();
    let to = "bulk@h3".parse().expect("an address");
    let flow = world.nodes[0].open_best_effort(to, 300, bulk.clone(), world.now).expect("a route");
    let lengthened = Rc::new(Cell::new(0));
    let count = lengthened.clone();
    world.tap = Some(Box::new(move |from, port, bytes| {
        if port == Port::Data {
            let (header, _) = Header::parse(bytes).expect("a packet of ours");
            assert_eq!(bytes.len(), HEADER_BYTES + header.payload_bytes as usize, "from h{}", from + 1);
            bytes.extend([0xa5; 40]);
            count.set(count.get() + 1);
        }
        true
    }));
    for number in 0..4 {
        assert!(open.outbox.send(&pattern(5, number, 300), world.now));
        assert!(bulk.send(&pattern(6, number, 300), world.now));
        world.nodes[0].handle_ring(open.source, world.now);
        world.nodes[0].handle_ring(flow, world.now);
        world.run_for(Nanos::from_millis(50));
        assert!(open.inbox.recv(|message, _| assert!(message == pattern(5, number, 300))));
        assert!(sink.recv(|message, _| assert!(message == pattern(6, number, 300))));
    }
    assert_eq!(lengthened.get(), 16);
}

#[test]
fn guaranteed_messages_keep_their_bound_beside_a_flood() {
    let mut world = World::line(3, RATE);
    let flood = TestOutbox::new(64, 60_000);
    let sink = TestInbox::new(64, 60_000);
    world.nodes[2].bind_best_effort(name("bulk"), 60_000, sink.clone()).unwrap();
    let to = "bulk@h3".parse().unwrap();
    let flow = world.nodes[0].open_best_effort(to, 60_000, flood.clone(), world.now).unwrap();
    let message = pattern(5, 0, 60_000);
    let contract = contract(20_000, 50, 1, 30);
    let open = world.open(0, 2, contract).unwrap();
    let (start, mut received, mut bulk_bytes) = (world.now, 0, 0u64);
    let mut sent_at: Vec<Instant> = Vec::new();
    while world.now < start + Nanos::from_secs(2) {
        while flood.send(&message, world.now) {}
        world.nodes[0].handle_ring(flow, world.now);
        if world.now >= start + contract.interval() * sent_at.len() as u64 {
            assert!(open.outbox.send(&pattern(6, sent_at.len() as u64, 20_000), world.now));
            world.nodes[0].handle_ring(open.source, world.now);
            sent_at.push(world.now);
        }
        world.run_for(Nanos::from_micros(250));
        while sink.recv(|bytes, _| bulk_bytes += bytes.len() as u64) {}
        while open.inbox.recv(|_, info| {
            assert!(info.delivered <= sent_at[info.number as usize] + contract.deadline);
            received += 1;
        }) {}
    }
    assert!(received >= 98, "{received}");
    // 40 Mbit/s less 8 for the channel and headers: the rest is for the flood.
    let bulk_bit_rate = bulk_bytes * 8 / 2;
    assert!(bulk_bit_rate > 26_000_000, "best effort got {bulk_bit_rate} bit/s");
}

#[test]
fn cold_units_are_no_risk_and_frequent_overruns_are_reported_once() {
    use punctual_proto::api::{Notice, WorkKind};
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract(1_000, 100, 1, 50)).unwrap();
    let mut notices = 0;
    for number in 0..300 {
        let over = Nanos(u64::from(number >= 150)); // than cold units may take
        world.nodes[0].record_idle(Nanos::from_millis(10));
        assert!(open.outbox.send(&pattern(7, number, 1_000), world.now));
        world.nodes[0].handle_ring(open.source, world.now);
        while let Some(work) = world.nodes[0].begin_work(world.now) {
            let (kind, handler) = (work.kind, work.handler);
            world.nodes[0].finish_work(work, world.now);
            if kind == WorkKind::Send {
                let busy = world.nodes[0].status(world.now).busy;
                let declared = Nanos::from_micros(8);
                world.nodes[0].record_unit(
                    handler,
                    kind,
                    declared + busy.allowed + over,
                    declared,
                    world.now,
                );
            }
        }
        world.run_for(Nanos::from_millis(10));
        while open.inbox.recv(|_, _| ()) {}
        let reported = world.events[0].drain(..).filter(|event| {
            matches!(event, Event::Notice { channel, notice: Notice::ProfileAtRisk } if *channel == open.source)
        });
        notices += reported.count();
    }
    let status = world.nodes[0].status(world.now);
    assert_eq!(status.overruns, 150);
    let send = status.work.iter().find(|path| path.kind == WorkKind::Send).unwrap();
    assert_eq!((send.units, send.first, send.overruns, send.at_risk), (300, 300, 150, true));
    assert_eq!(notices, 1);
}

#[test]
fn a_ring_stuffed_beyond_the_contract_is_drained_in_the_background() {
    use punctual_proto::api::WorkKind;
    // The ring that the node requested is smaller; a hostile application's may hold any message.
    let mut world = World::line(2, RATE);
    let contract = Contract { policing: Policing::Drop, ..contract(100, 10, 2, 50) };
    let open = world.open(0, 1, contract).unwrap();
    for number in 0..3 {
        open.outbox.push_beyond_room(&pattern(8, number, 100), 1_000, world.now);
    }
    world.nodes[0].handle_ring(open.source, world.now);
    let taken = |world: &World| world.nodes[0].channel(open.source).unwrap().counters.messages_in;
    let at_once = taken(&world);
    assert!(at_once < 100, "{at_once} messages in one call");
    let mut units = 0;
    while let Some(work) = world.nodes[0].begin_work(world.now) {
        units += u64::from(work.kind == WorkKind::BestEffort);
        let before = taken(&world);
        world.nodes[0].finish_work(work, world.now);
        assert!(taken(&world) - before < 100, "a unit is bounded");
    }
    assert_eq!(taken(&world), 3_000);
    assert!(units > 30);
}

#[test]
fn budgets_and_timers_carry_their_contracts_and_no_less() {
    let slow = contract(8_000, 50, 2, 120);
    for activation in [
        Activation::LowLatency { interarrival: Nanos::from_millis(20), packets: 6 },
        Activation::Periodic { period: Nanos::from_millis(20), packets: 6 },
        // Two packets a period, three periods a message.
        Activation::Periodic { period: Nanos::from_millis(5), packets: 2 },
    ] {
        exchange(&mut World::line(3, RATE), Contract { activation, ..slow }, 20, 0, 2);
    }
    let activation = Activation::Periodic { period: Nanos::from_millis(20), packets: 5 };
    let refused = World::line(2, RATE).open(0, 1, Contract { activation, ..slow });
    let Err(Event::Refused { refusal, .. }) = refused else { panic!("five packets do not carry six") };
    assert!(refusal.to_string().contains("give at least 6 packets"), "{refusal}");
}

#[test]
fn a_channel_takes_its_planned_flow_over_and_stays_within_it() {
    let name = FlowName::new("camera").unwrap();
    let period_ns = Nanos::from_millis(20);
    let planned = PlannedFlow {
        name,
        period_ns,
        packets: 6,
        cost_ns: Nanos::from_micros(400),
        unit_ns: Nanos::from_micros(200),
        deadline_ns: Nanos::from_millis(10),
        rate_ns: period_ns,
        place: 1,
    };
    let world = |plan: Vec<PlannedFlow>| {
        let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
        for config in &mut configs {
            let cpu = &mut config.cpu;
            (cpu.run, cpu.admission, cpu.plan) = (RunPolicy::Rmdp, Admission::RMDP, plan.clone());
        }
        let mut world = World::of(configs);
        world.settle();
        world
    };
    let flow = Contract { flow: Some(name), ..contract(8_000, 50, 1, 120) };
    exchange(&mut world(vec![planned]), flow, 20, 0, 1);
    let refusal_of = |world: &mut World, contract| match world.open(0, 1, contract) {
        Err(Event::Refused { refusal, .. }) => refusal.to_string(),
        _ => panic!("{contract:?} is not refused"),
    };
    let mut full = world(vec![planned]);
    assert!(full.open(0, 1, flow).is_ok());
    assert!(refusal_of(&mut full, flow).contains("another channel has it"));
    // The sender's processor guarantees the wait for the flow's timer and its deadline, no less.
    let mut urgent = None;
    for deadline_ms in [5, 9, 20, 40, 80] {
        let tight = Contract { deadline: Nanos::from_millis(deadline_ms), ..flow };
        match world(vec![planned]).open(0, 1, tight) {
            Ok(open) => {
                let bound = open.grant.stages[0].bound;
                assert!(bound >= Nanos::from_millis(10) && bound < tight.deadline, "{deadline_ms}: {bound}");
                urgent = Some(deadline_ms);
                break;
            }
            Err(Event::Refused { refusal, .. }) => {
                assert!(refusal.to_string().contains("ms"), "{deadline_ms}: {refusal}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(urgent.is_some_and(|ms| ms > 20), "{urgent:?}");
    let more = Contract { message_bytes_max: 20_000, ..flow };
    assert!(refusal_of(&mut world(vec![planned]), more).contains("give at least 15 packets"));
    let costly = PlannedFlow { cost_ns: Nanos::from_micros(20), ..planned };
    assert!(refusal_of(&mut world(vec![costly]), flow).contains("plan it again"));
    assert!(refusal_of(&mut world(Vec::new()), flow).contains("no flow \"camera\""));
}

/// A line of hosts whose links have one packet outstanding, after `change`.
fn one_outstanding(hosts: usize, change: impl Fn(&mut NodeConfig)) -> World {
    let config = |index| {
        let mut config = line_config(index, hosts, RATE);
        config.links.iter_mut().for_each(|link| link.pipeline_depth = 1);
        change(&mut config);
        config
    };
    World::of((0..hosts).map(config).collect())
}

fn blocking(open: &Open) -> Nanos {
    let link = open.grant.stages.iter().find(|stage| stage.kind == StageKind::Link);
    link.expect("a link on the way").made_of.blocking
}

#[test]
fn smaller_packets_of_others_block_less() {
    let urgent = contract(200, 100, 1, 20);
    let small = |config: &mut NodeConfig| {
        config.links.iter_mut().for_each(|link| link.packet_best_effort_bytes_max = Some(600));
    };
    let alone = |world: &mut World| blocking(&world.open(0, 1, urgent).expect("it fits"));
    let usual = alone(&mut one_outstanding(2, |_| ()));
    let less = alone(&mut one_outstanding(2, small));
    // 1,530 B and a reaction, against signalling's 600 B with a header and a reaction.
    assert!(usual > Nanos::from_micros(400) && less < Nanos::from_micros(250), "{usual} and {less}");
    // Among less urgent channels the largest counts: low-latency ones can be cut smaller than the others.
    let relaxed = Contract {
        activation: Activation::LowLatency { interarrival: Nanos::from_millis(50), packets: 40 },
        ..contract(5_000, 20, 1, 400)
    };
    let beside = |fragment_low_latency_bytes| {
        let mut world = one_outstanding(2, |config| {
            small(config);
            config.fragment_low_latency_bytes = fragment_low_latency_bytes;
        });
        world.open(0, 1, relaxed).expect("it fits");
        alone(&mut world)
    };
    assert_eq!(beside(Some(500)), less);
    assert!(beside(None) > Nanos::from_micros(290), "a packet of 1,400 B blocks longer");
}

#[test]
fn low_latency_channels_are_cut_smaller_and_arrive_whole() {
    let activation = Activation::LowLatency { interarrival: Nanos::from_millis(20), packets: 32 };
    let mut world = one_outstanding(3, |config| config.fragment_low_latency_bytes = Some(256));
    exchange(&mut world, Contract { activation, ..contract(8_000, 50, 2, 120) }, 20, 0, 2);
    exchange(&mut one_outstanding(3, |_| ()), contract(8_000, 50, 2, 120), 20, 0, 2);
}

#[test]
fn best_effort_keeps_to_its_packet_size_on_every_link() {
    let mut world = one_outstanding(3, |config| {
        config.links.iter_mut().for_each(|link| link.packet_best_effort_bytes_max = Some(500));
    });
    let largest = Rc::new(Cell::new(0));
    let seen = largest.clone();
    world.tap = Some(Box::new(move |_, port, bytes| {
        seen.set(seen.get().max(if port == Port::Data { bytes.len() } else { 0 }));
        true
    }));
    assert_eq!(bulk(&mut world, 2, 30), 30);
    assert_eq!(largest.get(), 500);
    // A link of the route with smaller packets: no packet passes, and the forwarder reports the reason.
    let mut world = one_outstanding(3, |config| {
        let bytes = if config.id.0 == 2 { 500 } else { 1_000 };
        config.links.iter_mut().for_each(|link| link.packet_best_effort_bytes_max = Some(bytes));
    });
    assert_eq!(bulk(&mut world, 2, 30), 0);
    assert!(world.nodes[1].status(world.now).drops.too_large >= 30);
    // Packets that may be demoted could not leave.
    let demoting = Contract { policing: Policing::Demote, ..contract(5_000, 10, 1, 100) };
    let Err(Event::Refused { refusal, .. }) = world.open(0, 2, demoting) else { panic!("not refused") };
    assert!(refusal.to_string().contains("choose another policing or smaller fragments"), "{refusal}");
}

/// Offers `messages` of 4,000 B from the first host to host `to`; how many arrive within a second.
fn bulk(world: &mut World, to: usize, messages: u64) -> u64 {
    let outbox = TestOutbox::new(64, 4_000);
    let inbox = TestInbox::new(64, 4_000);
    world.nodes[to].bind_best_effort(name("bulk"), 4_000, inbox.clone()).unwrap();
    let address = format!("bulk@h{}", to + 1).parse().unwrap();
    let flow = world.nodes[0].open_best_effort(address, 4_000, outbox.clone(), world.now).unwrap();
    let (start, mut sent, mut received) = (world.now, 0, 0);
    while world.now < start + Nanos::from_secs(1) {
        while sent < messages && outbox.send(&pattern(7, sent, 4_000), world.now) {
            sent += 1;
        }
        world.nodes[0].handle_ring(flow, world.now);
        world.run_for(Nanos::from_millis(1));
        while inbox.recv(|message, info| assert!(message == pattern(7, info.number, 4_000))) {
            received += 1;
        }
    }
    received
}

#[test]
fn each_flow_of_best_effort_is_held_to_its_share_of_the_processor() {
    let capped = |at: u32| {
        World::of(
            (0..3)
                .map(|index| {
                    let mut config = line_config(index, 3, RATE);
                    if config.id.0 == at {
                        config.cpu.best_effort_flow_cpu_cap = Ppm(1_000);
                    }
                    config
                })
                .collect(),
        )
    };
    let free = bulk(&mut capped(0), 2, 1_000);
    assert!(free > 600, "{free}");
    // A thousandth of a second, and the burst of 10 ms: 11 us a packet at the source, three packets a message.
    let mut at_source = capped(1);
    let slow = bulk(&mut at_source, 2, 1_000);
    assert!((20..400).contains(&slow), "{slow}");
    assert_eq!(at_source.nodes[1].status(at_source.now).drops.over_cap, 0);
    let mut on_the_way = capped(2);
    let few = bulk(&mut on_the_way, 2, 1_000);
    assert!(few < 400, "{few}");
    assert!(on_the_way.nodes[1].status(on_the_way.now).drops.over_cap > 100);
}

#[test]
fn a_soft_channel_drops_what_comes_too_late_where_it_comes_in() {
    for (late, expired) in [(Late::Drop, 3), (Late::Deliver, 0)] {
        let mut world = World::line(3, RATE);
        let soft = Contract { late, ..contract(4_000, 10, 1, 30) };
        let open = world.open(0, 2, soft).unwrap();
        // The slack that honest stages upstream could never leave: later than the deadline.
        world.tap = Some(Box::new(|node, port, bytes| {
            if let (0, Port::Data, Ok((header, _))) = (node, port, Header::parse(bytes)) {
                let slack_ns = if header.message == 1 { -40_000_000 } else { header.slack_ns };
                Header { slack_ns, ..header }.write(bytes);
            }
            true
        }));
        let mut numbers = Vec::new();
        for number in 0..4 {
            assert!(open.outbox.send(&pattern(3, number, 4_000), world.now));
            world.nodes[0].handle_ring(open.source, world.now);
            world.run_for(Nanos::from_millis(150));
            while open.inbox.recv(|_, info| numbers.push((info.number, info.demoted))) {}
        }
        let all = [(0, false), (1, true), (2, false), (3, false)];
        let kept: Vec<_> =
            all.into_iter().filter(|(number, _)| late == Late::Deliver || *number != 1).collect();
        assert_eq!(numbers, kept);
        let channel = world.nodes[1].channels().remove(0);
        assert_eq!(channel.counters.expired, expired);
    }
}

/// A link grants no bound below the time of a full window and the message.
#[test]
fn a_link_is_granted_no_less_than_its_window_and_the_message_take() {
    for (depth, packet, overhead) in [(2, 1_464, 66), (4, 1_464, 66), (3, 3_000, 700)] {
        let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
        for link in configs.iter_mut().flat_map(|config| &mut config.links) {
            (link.pipeline_depth, link.packet_bytes_max, link.overhead_bytes) = (depth, packet, overhead);
        }
        let paced = configs[0].links[0].paced_rate();
        let open = World::of(configs).open(0, 1, contract(1_000, 20, 1, 100)).expect("it fits");
        let window = u64::from(depth * (packet + overhead));
        let link = open.grant.stages.iter().find(|stage| stage.kind == StageKind::Link).expect("a link");
        assert!(link.made_of.blocking >= paced.time_of(window), "{depth} {packet}: {:?}", link.made_of);
        let own = u64::from(1_000 + 64 + overhead);
        assert!(link.offered >= paced.time_of(window + own), "{depth} {packet}: {link:?}");
    }
}

/// Under any admission policy: by default, without other load, a message passes an idle route at once,
/// because each stage may serve it as early as the previous ones were quick; hop-regulated it takes about its
/// deadline.
#[test]
fn an_idle_way_is_quick_under_every_policy_and_slow_where_each_hop_holds() {
    let policies = [
        (RunPolicy::Edf, Admission::EDF, Admission::EDF),
        (RunPolicy::Edf, Admission::D_ORDER, Admission::D_ORDER),
        (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY, Admission::EDF),
        (RunPolicy::Edf, Admission::STATISTICAL, Admission::STATISTICAL),
    ];
    for (run, cpu, on_link) in policies {
        for horizon in [Horizon::Cumulative, Horizon::Regulated] {
            let mut configs: Vec<_> = (0..4).map(|index| line_config(index, 4, RATE)).collect();
            for config in &mut configs {
                (config.cpu.run, config.cpu.admission) = (run, cpu);
                config.links.iter_mut().for_each(|link| link.admission = on_link);
            }
            let mut world = World::of(configs);
            let contract = Contract { horizon, ..contract(1_000, 20, 1, 100) };
            let open = world.open(0, 3, contract).expect("it fits");
            let before: Nanos = open.grant.stages[..6].iter().map(|stage| stage.bound).sum();
            for number in 0..20 {
                let sent = world.now;
                assert!(open.outbox.send(&pattern(1, number, 1_000), sent));
                world.nodes[0].handle_ring(open.source, sent);
                world.run_for(Nanos::from_millis(120));
                let mut took = None;
                assert!(open.inbox.recv(|_, info| took = Some(info.delivered.since(sent))), "{number}");
                let took = took.expect("received");
                match horizon {
                    Horizon::Cumulative => assert!(took < Nanos::from_millis(5), "{cpu:?}: {took}"),
                    Horizon::Regulated => assert!(took * 10 > before * 8, "{cpu:?}: {took} of {before}"),
                }
            }
        }
    }
}
