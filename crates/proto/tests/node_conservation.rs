//! Conservation of packets: the counters of hosts for a channel, their links and their drops agree with those
//! of an observer of the wire and of both applications. A line h1 - h2 - h3 whose links lose, repeat, delay
//! and reorder; applications that send too much, too much at once or too long messages, and that do not read
//! for a while.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use punctual_proto::api::{ChannelCounters, DropCounters, NodeStatus, Port};
use punctual_proto::ids::LinkId;
use punctual_proto::signalling::SplitMix64;
use punctual_proto::wire::{Header, Kind};
use punctual_proto::{BitRate, Contract, Delivery, Instant, Nanos, Policing, Rate};
use punctual_rig::{Open, World, line_config, pattern};

const RATE: BitRate = BitRate(40_000_000);
const MS: fn(u64) -> Nanos = Nanos::from_millis;
/// The link that packets come in by.
const LEFT: LinkId = LinkId(0);

/// Counts of an observer of one host's wire to the right.
#[derive(Debug, Default)]
struct Wire {
    sent: u64,
    demoted: u64,
    /// Messages of which the last packet left and was not demoted, and their bytes.
    messages: u64,
    message_bytes: u64,
    /// Bytes of all ports, with the overhead of each packet on the wire.
    data_packets: u64,
    data_wire_bytes: u64,
    /// To both sides.
    signals: u64,
    /// Packets that were sent on to the neighbour; for h1 with its signalling, all of which is sent there.
    arrived: u64,
    arrived_wire_bytes: u64,
    /// Held up, by how much.
    later: VecDeque<(Instant, Vec<u8>)>,
}

type Wires = Rc<RefCell<[Wire; 2]>>;

/// Counts what h1 and h2 send to the right and disturbs it: of ten data packets one is lost, one is
/// duplicated, one is much later.
fn watch(world: &mut World, overhead: u64, seed: u64) -> Wires {
    let wires = Wires::default();
    let (counts, mut random) = (wires.clone(), SplitMix64::new(seed));
    world.tap = Some(Box::new(move |node, port, bytes| {
        let mut counts = counts.borrow_mut();
        let Some(wire) = counts.get_mut(node) else { return true };
        let wire_bytes = bytes.len() as u64 + overhead;
        if port == Port::Signalling {
            wire.signals += 1;
            wire.arrived_wire_bytes += wire_bytes;
            return true;
        }
        let (header, _) = Header::parse(bytes).expect("a packet of ours");
        assert_eq!(header.kind, Kind::Guaranteed);
        wire.data_packets += 1;
        wire.data_wire_bytes += wire_bytes;
        wire.sent += 1;
        wire.demoted += u64::from(header.demoted);
        if !header.demoted && header.fragment + 1 == header.fragments {
            wire.messages += 1;
            wire.message_bytes += u64::from(header.message_bytes);
        }
        let [lost, twice, late] = [(); 3].map(|()| random.below(10) == 0);
        if twice || late {
            wire.later.push_back((Instant(if late { 40 } else { 1 }), bytes.clone()));
        }
        let arrives = !lost && !late;
        wire.arrived += u64::from(arrives);
        wire.arrived_wire_bytes += if arrives { wire_bytes } else { 0 };
        arrives
    }));
    wires
}

/// Lets what was held up arrive, all of a host's at once.
fn bring(world: &mut World, wires: &Wires, overhead: u64, waiting: &mut [VecDeque<(Instant, Vec<u8>)>; 2]) {
    for (host, waiting) in waiting.iter_mut().enumerate() {
        let now = world.now;
        let held: Vec<_> = wires.borrow_mut()[host].later.drain(..).collect();
        waiting.extend(held.into_iter().map(|(after, bytes)| (now + MS(after.0), bytes)));
        while waiting.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = waiting.pop_front().expect("it is there");
            let wire = &mut wires.borrow_mut()[host];
            wire.arrived += 1;
            wire.arrived_wire_bytes += bytes.len() as u64 + overhead;
            let frame = world.pool.frame(&bytes);
            world.nodes[host + 1].handle_frame(LEFT, Port::Data, now, frame, now);
        }
    }
    world.settle();
}

/// Messages that the receiver's application has got.
#[derive(Debug, Default)]
struct Given {
    messages: u64,
    bytes: u64,
    late: [u64; 3],
    latency_max: Nanos,
}

fn read(open: &Open, seed: u64, deadline: Nanos, given: &mut Given) {
    while open.inbox.recv(|bytes, info| {
        assert_eq!(bytes, pattern(seed, 0, bytes.len()), "message {}", info.number);
        given.messages += 1;
        given.bytes += bytes.len() as u64;
        if info.unpromised {
            return;
        }
        let latency = info.delivered.since(info.logical_arrival);
        match info.clock_error {
            None => given.late[2] += 1,
            Some(error) => {
                given.latency_max = given.latency_max.max(latency);
                given.late[0] += u64::from(latency > deadline + error);
                given.late[1] += u64::from(latency <= deadline + error && latency + error > deadline);
            }
        }
    }) {}
}

fn counters(world: &World, node: usize) -> ChannelCounters {
    world.nodes[node].channels()[0].counters
}

/// All packets that a host dropped for lack of room.
fn no_room(drops: &DropCounters) -> u64 {
    drops.no_buffer + drops.no_slot + drops.over_cap
}

struct Run {
    world: World,
    open: Open,
    wires: Wires,
    given: Given,
    /// Messages that the application has put in, those that were too long among them.
    offered: u64,
    too_long: u64,
    overhead: u64,
}

/// Two seconds of that, and one in which all packets under way arrive.
fn run(contract: &Contract, seed: u64) -> Run {
    let config = |index| {
        let mut config = line_config(index, 3, RATE);
        // Little room for what is demoted.
        config.links.iter_mut().for_each(|link| link.best_effort_flow_bytes_max = 9_000);
        config
    };
    let mut world = World::of((0..3).map(config).collect());
    let overhead = u64::from(line_config(0, 3, RATE).links[0].overhead_bytes);
    let wires = watch(&mut world, overhead, seed);
    let open = world.open(0, 2, *contract).expect("it fits");
    let mut random = SplitMix64::new(!seed);
    let (mut offered, mut too_long, mut given) = (0, 0, Given::default());
    let mut waiting = [VecDeque::new(), VecDeque::new()];
    let bytes = contract.message_bytes_max as usize;
    for round in 0..400 {
        if random.below(2) == 0 {
            let copies = if random.below(15) == 0 { 9 } else { 1 };
            open.outbox.push_beyond_room(
                &pattern(seed, 0, bytes - random.below(3) as usize),
                copies,
                world.now,
            );
            offered += copies as u64;
        }
        if random.below(40) == 0 {
            open.outbox.push_beyond_room(&pattern(seed, 0, bytes + 1), 1, world.now);
            (offered, too_long) = (offered + 1, too_long + 1);
        }
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(MS(5));
        bring(&mut world, &wires, overhead, &mut waiting);
        if round / 50 % 2 == 0 {
            read(&open, seed, contract.deadline, &mut given);
            world.nodes[2].handle_ring(open.sink, world.now);
        }
    }
    for _ in 0..1_500 {
        world.run_for(MS(2));
        bring(&mut world, &wires, overhead, &mut waiting);
        read(&open, seed, contract.deadline, &mut given);
        world.nodes[2].handle_ring(open.sink, world.now);
    }
    Run { world, open, wires, given, offered, too_long, overhead }
}

fn check_source(run: &Run, contract: &Contract) -> ChannelCounters {
    let (source, wires) = (counters(&run.world, 0), run.wires.borrow());
    assert_eq!(source.messages_in, run.offered);
    assert_eq!((source.packets_in, source.packets_out), (0, wires[0].sent));
    assert_eq!((source.messages_out, source.bytes_out), (wires[0].messages, wires[0].message_bytes));
    let dropped = match contract.policing {
        Policing::Delay => {
            assert_eq!((source.dropped, source.demoted), (run.too_long, 0));
            source.dropped
        }
        Policing::Drop => source.dropped,
        // A demoted message that found no room is counted as both.
        Policing::Demote => source.demoted + run.too_long,
    };
    assert_eq!(source.messages_in, source.messages_out + dropped, "{source:?}");
    assert!((source.delayed > 0) == (contract.policing == Policing::Delay));
    source
}

fn check_forwarder(run: &Run) -> ChannelCounters {
    let (here, wires) = (counters(&run.world, 1), run.wires.borrow());
    assert_eq!((here.packets_in, here.packets_out), (wires[0].arrived, wires[1].sent));
    let thrown = here.overflows + here.demoted_dropped;
    assert_eq!(here.packets_in, here.packets_out + thrown, "{here:?}");
    assert_eq!(here.demoted, wires[1].demoted + here.demoted_dropped, "{here:?}");
    assert_eq!((here.messages_out, here.bytes_out), (wires[1].messages, wires[1].message_bytes));
    assert_eq!(no_room(&run.world.nodes[1].status(run.world.now).drops), thrown);
    here
}

fn check_sink(run: &Run, contract: &Contract) -> ChannelCounters {
    let (here, given) = (counters(&run.world, 2), &run.given);
    assert_eq!((here.packets_in, here.packets_out), (run.wires.borrow()[1].arrived, 0));
    assert_eq!((here.messages_out, here.bytes_out), (given.messages, given.bytes));
    assert_eq!([here.misses, here.perhaps_late, here.unmeasured], given.late);
    assert_eq!(here.latency_max, given.latency_max);
    let thrown = here.overflows + here.demoted_dropped;
    assert_eq!(no_room(&run.world.nodes[2].status(run.world.now).drops), thrown);
    if contract.packets_max(1_400) == 1 {
        assert_eq!(here.incomplete, 0);
    }
    here
}

/// No packet is left, and each link's counters agree with what was observed on it.
fn check_hosts(run: &Run) {
    let Run { world, wires, overhead, .. } = run;
    assert_eq!(world.pool.free(), 4_096, "every frame is back");
    let wires = wires.borrow();
    let status: Vec<NodeStatus> = world.nodes.iter().map(|node| node.status(world.now)).collect();
    for (host, right) in [(0, 0), (1, 1)] {
        let (link, wire) = (&status[host].links[right], &wires[host]);
        let signals: u64 = status[host].links.iter().map(|link| link.packets_signalling).sum();
        assert_eq!(signals, wire.signals, "h{}", host + 1);
        assert_eq!(link.packets_guaranteed + link.packets_best_effort, wire.data_packets, "h{}", host + 1);
        assert_eq!(link.packets_best_effort, wire.demoted, "h{}", host + 1);
        // Signalling takes its largest packet's place.
        let of_signals = link.wire_bytes - wire.data_wire_bytes;
        let each = of_signals / link.packets_signalling;
        assert_eq!(of_signals % link.packets_signalling, 0, "h{}", host + 1);
        assert!(each > *overhead && each <= 1_500 + overhead, "h{}: {each}", host + 1);
    }
    assert_eq!(status[1].links[0].wire_bytes_in, wires[0].arrived_wire_bytes);
    assert_eq!(status[1].links[0].packets_guaranteed, 0, "nothing goes back");
    for (node, status) in world.nodes.iter().zip(&status) {
        assert_eq!((status.channels, node.channels().len()), (1, 1));
        assert_eq!(status.channels_total, node.channels()[0].counters);
        let wrong: Vec<_> = node.accounts().into_iter().filter(|a| a.counted != a.held).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let drops = DropCounters { no_buffer: 0, no_slot: 0, over_cap: 0, ..status.drops };
        assert_eq!(drops, DropCounters::default(), "nothing for another reason");
    }
}

/// After the channel's end hosts still have its counters, and no other state of it.
fn check_end(run: &mut Run) {
    let counted: Vec<_> = (0..3).map(|node| counters(&run.world, node)).collect();
    run.world.tap = None;
    run.world.nodes[0].close(run.open.source, run.world.now).expect("it is open");
    run.world.run_for(Nanos::from_secs(2));
    for (node, counted) in run.world.nodes.iter().zip(counted) {
        let status = node.status(run.world.now);
        assert_eq!((status.channels, node.channels().len(), status.buffer_bytes), (0, 0, 0));
        assert_eq!(status.channels_total, counted);
        assert!(status.links.iter().all(|link| link.utilisation == status.links[0].utilisation));
    }
}

#[test]
fn what_is_counted_is_what_was_seen() {
    let mut all = ChannelCounters::default();
    for seed in 0..18 {
        let bytes = [200, 1_000, 4_000][seed as usize % 3];
        let mut contract =
            Contract::new(bytes, Rate::per_second(100).expect("a rate"), 2, MS(20)).expect("in range");
        contract.policing = [Policing::Delay, Policing::Drop, Policing::Demote][seed as usize / 3 % 3];
        contract.delivery = if seed % 2 == 0 { Delivery::Asap } else { Delivery::AtDeadline };
        let mut run = run(&contract, seed);
        let [source, here, sink] =
            [check_source(&run, &contract), check_forwarder(&run), check_sink(&run, &contract)];
        check_hosts(&run);
        check_end(&mut run);
        all.dropped += source.dropped;
        all.demoted += source.demoted.min(here.demoted);
        all.overflows += here.overflows;
        all.demoted_dropped += here.demoted_dropped;
        all.overruns += sink.overruns;
        all.misses += sink.misses;
        all.lost += sink.lost;
    }
    println!("{all:?}");
    let seen = [all.dropped, all.demoted, all.demoted_dropped, all.overruns, all.misses, all.lost];
    assert!(seen.iter().all(|count| *count > 0), "nothing holds only because nothing happened: {all:?}");
}

/// A message that waits at its receiver's host for its deadline has come, and is not lost.
#[test]
fn what_waits_for_its_deadline_is_not_lost() {
    let rate = Rate::per_second(100).unwrap();
    let contract = Contract::new(3_000, rate, 2, Nanos::from_millis(60)).unwrap();
    let contract = Contract { delivery: Delivery::AtDeadline, ..contract };
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract).unwrap();
    let (mut held_max, mut received) = (0, 0);
    for step in 0..200 {
        if step % 10 == 0 && step < 100 {
            assert!(open.outbox.send(&pattern(1, step / 10, 3_000), world.now));
            world.nodes[0].handle_ring(open.source, world.now);
        }
        world.run_for(Nanos::from_millis(1));
        while open.inbox.recv(|_, _| {}) {
            received += 1;
        }
        let counters = world.nodes[1].channel(open.sink).expect("it lives").counters;
        held_max = held_max.max(counters.messages_in - counters.messages_out);
        assert_eq!((counters.lost, counters.messages_out), (0, received), "step {step}");
    }
    assert!(received == 10 && held_max > 3, "{received} {held_max}");
}

/// What a source refuses to send takes no number. A receiver that gets everything that was sent counts nothing as lost.
#[test]
fn what_a_source_drops_is_not_lost_on_the_way() {
    let contract = Contract::new(200, Rate::per_second(100).expect("a rate"), 2, MS(20)).expect("in range");
    let contract = Contract { policing: Policing::Drop, ..contract };
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract).expect("it fits");
    let mut random = SplitMix64::new(3);
    let (mut offered, mut numbers) = (0, Vec::new());
    for _ in 0..60 {
        let copies = 1 + random.below(8);
        open.outbox.push_beyond_room(&pattern(1, 0, 200), copies as usize, world.now);
        open.outbox.push_beyond_room(&pattern(1, 0, 201), 1, world.now);
        offered += copies + 1;
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(MS(40));
        while open.inbox.recv(|_, info| numbers.push(info.number)) {}
    }
    let (source, sink) = (counters(&world, 0), counters(&world, 2));
    assert_eq!(numbers, (0..offered - source.dropped).collect::<Vec<_>>());
    assert_eq!((sink.lost, sink.incomplete, source.messages_in), (0, 0, offered));
    assert!(source.dropped > 60, "more than what was too long: {source:?}");
}
