//! The work of one call is bounded, whatever an application has put into its ring or left behind: a burst of
//! 65,536 messages is taken, served and freed one slice at a time, its own messages keep their bounds, and
//! other work runs between.

use std::cell::RefCell;
use std::rc::Rc;

use punctual_proto::api::{CloseReason, Port, WorkKind};
use punctual_proto::config::NodeConfig;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::{
    ENDS_MAX, HEADER_BYTES, LEFTOVERS_MAX, RING_MESSAGES_BEHIND, RING_MESSAGES_MAX,
};
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Delivery, Nanos, Policing, Ppm, Rate};
use punctual_rig::{Open, TestOutbox, World, line_config, pattern};

const RATE: BitRate = BitRate(100_000_000);
const BYTES: u32 = 8;
const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn contract(per_second: u64, burst: u32, deadline: Nanos) -> Contract {
    Contract::new(BYTES, Rate::per_second(per_second).expect("a rate"), burst, deadline).expect("in range")
}

/// Two hosts; `change` is made to the first one's configuration.
fn world(change: impl Fn(&mut NodeConfig)) -> World {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
    change(&mut configs[0]);
    World::of(configs)
}

fn fill(open: &Open, messages: u64, world: &World) {
    assert!((0..messages).all(|n| open.outbox.send(&pattern(1, n, BYTES as usize), world.now)), "it fits");
}

fn taken(world: &World, open: &Open) -> u64 {
    world.nodes[0].channel(open.source).expect("it is open").counters.messages_in
}

/// All messages of a burst that was sent at once arrive, each by its own deadline; those that waited in the ring, too.
fn arrives_in_time(world: &mut World, open: &Open, contract: Contract, messages: u64) {
    let begun = world.now;
    let mut next = 0;
    while next < messages {
        world.run_for(contract.interval() * 8);
        while open.inbox.recv(|message, info| {
            assert_eq!((info.number, message), (next, &pattern(1, next, BYTES as usize)[..]));
            let due = begun + contract.interval() * next + contract.deadline;
            assert!(info.delivered <= due && !info.demoted, "message {next}: {info:?}, due {due:?}");
            next += 1;
        }) {}
        assert!(world.now.since(begun) < contract.interval() * (messages + 512) + contract.deadline);
    }
    let counters = |node: usize, end| world.nodes[node].channel(end).expect("open").counters;
    let (source, sink) = (counters(0, open.source), counters(1, open.sink));
    assert_eq!((source.delayed, source.dropped, sink.misses, sink.messages_out), (0, 0, 0, messages));
}

#[test]
fn the_greatest_burst_is_taken_in_slices_and_keeps_its_bounds() {
    const BURST: u32 = 65_536;
    let mut world = world(|_| {});
    let contract = contract(20_000, BURST, MS(40));
    let open = world.open(0, 1, contract).expect("it fits");
    fill(&open, u64::from(BURST), &world);
    world.nodes[0].handle_ring(open.source, world.now);
    assert_eq!(taken(&world, &open), u64::from(RING_MESSAGES_MAX), "of a doorbell");
    world.nodes[0].handle_ring(open.source, world.now);
    let more = u64::from(RING_MESSAGES_BEHIND);
    assert_eq!(taken(&world, &open), u64::from(RING_MESSAGES_MAX) + more, "it is known that there are more");
    let mut in_background = 0;
    while let Some(work) = world.nodes[0].begin_work(world.now) {
        let (before, kind) = (taken(&world, &open), work.kind);
        world.nodes[0].finish_work(work, world.now);
        let took = taken(&world, &open) - before;
        let most = if kind == WorkKind::Send { RING_MESSAGES_BEHIND } else { RING_MESSAGES_MAX };
        assert!(took <= u64::from(most), "{took} messages in a unit of {kind:?}");
        in_background += took * u64::from(kind == WorkKind::BestEffort);
    }
    // The largest share that best effort may take of the processor at once.
    assert!(in_background > 10_000 && taken(&world, &open) < in_background + 100, "{in_background}");
    arrives_in_time(&mut world, &open, contract, u64::from(BURST));
}

/// Small portions are for rings that are known to hold more. A ring whose last message was taken is not one of them.
#[test]
fn a_doorbell_after_the_last_message_was_taken_takes_a_whole_portion() {
    for (limit, expected) in [(8, 10), (9, 10), (7, u64::from(RING_MESSAGES_BEHIND))] {
        let mut world = world(|_| {});
        let open = world.open(0, 1, contract(1_000, 64, MS(100))).expect("it fits");
        fill(&open, 8, &world);
        let first = world.nodes[0].handle_ring_within(open.source, limit, world.now);
        assert_eq!(first, limit.min(8));
        fill(&open, 10, &world);
        world.nodes[0].handle_ring(open.source, world.now);
        assert_eq!(taken(&world, &open) - u64::from(first), expected, "after {first} of 8");
    }
}

/// Best effort gets no time of the processor here, so the background has one unit in seconds.
#[test]
fn a_burst_keeps_its_bounds_where_the_background_has_no_time() {
    for (per_second, deadline) in [(1_000, MS(20)), (10_000, MS(100))] {
        let mut world = world(|config| config.cpu.best_effort_cpu_cap = Ppm(1));
        let contract = contract(per_second, 4_000, deadline);
        let open = world.open(0, 1, contract).expect("it fits");
        fill(&open, 4_000, &world);
        world.nodes[0].handle_ring(open.source, world.now);
        world.settle();
        let at_once = taken(&world, &open);
        assert!(at_once < 1_000, "{at_once}: the background had no time");
        arrives_in_time(&mut world, &open, contract, 4_000);
    }
}

/// Two bursts, of which the second arrives while the ring holds the rest of the first, and single messages.
#[test]
fn what_comes_behind_a_rest_keeps_its_bounds() {
    let mut world = world(|config| config.cpu.best_effort_cpu_cap = Ppm(1));
    let contract = contract(2_000, 1_000, MS(30));
    let open = world.open(0, 1, contract).expect("it fits");
    let (mut sent, mut next) = (Vec::new(), 0);
    for step in 0..4_000_u64 {
        let more = match step {
            0 => 400,
            100 => 500,
            _ => u64::from(step % 4 == 0),
        };
        for _ in 0..more {
            assert!(open.outbox.send(&pattern(1, sent.len() as u64, BYTES as usize), world.now));
            sent.push(world.now);
            world.nodes[0].handle_ring(open.source, world.now);
        }
        world.run_for(Nanos::from_micros(500));
        while open.inbox.recv(|_, info| {
            assert_eq!(info.number, next, "in order");
            // l(i) = max(l(i-1) + I, t(i)), and no message of these is beyond the contract.
            let logical =
                sent[..=next as usize].iter().fold(None, |before: Option<punctual_proto::Instant>, at| {
                    Some(before.map_or(*at, |before| (before + contract.interval()).max(*at)))
                });
            let due = logical.expect("sent") + contract.deadline;
            assert!(info.delivered <= due, "message {next} came at {:?}, due {due:?}", info.delivered);
            next += 1;
        }) {}
        if next == sent.len() as u64 && step > 1_000 {
            break;
        }
    }
    assert_eq!(next, sent.len() as u64);
    let counters = world.nodes[0].channel(open.source).expect("open").counters;
    assert_eq!((counters.delayed, counters.dropped), (0, 0));
}

#[test]
fn an_urgent_message_that_is_rung_behind_a_full_ring_goes_first() {
    let mut world = world(|_| {});
    let great = world.open(0, 1, contract(10_000, 65_536, MS(100))).expect("it fits");
    let urgent = world.open(0, 1, contract(100, 1, MS(2))).expect("it fits");
    fill(&great, 65_536, &world);
    fill(&urgent, 1, &world);
    world.nodes[0].handle_ring(great.source, world.now);
    world.nodes[0].handle_ring(urgent.source, world.now);
    assert_eq!(taken(&world, &great), u64::from(RING_MESSAGES_MAX), "before it is known of");
    let work = world.nodes[0].begin_work(world.now).expect("work");
    world.nodes[0].finish_work(work, world.now);
    let path = world.nodes[0].channel(urgent.source).expect("open").path;
    let mut out = [0; 1_500];
    let sent = world.nodes[0].poll_transmit(LinkId(0), world.now, &mut out).expect("a packet");
    let len = sent.packet.copy_to(&mut out);
    assert!(len >= HEADER_BYTES);
    assert_eq!(Header::parse(&out[..len]).expect("ours").0.path, path);
}

/// Where many have rung, each gives what its share is, and its first one in any case.
#[test]
fn rings_that_have_rung_together_share_what_is_taken_at_once() {
    let mut world = world(|_| {});
    let opened: Vec<_> =
        (0..6).map(|_| world.open(0, 1, contract(100, 200, MS(500))).expect("fits")).collect();
    opened.iter().for_each(|open| fill(open, 200, &world));
    let now = world.now;
    for (open, share) in opened.iter().zip([u32::MAX, RING_MESSAGES_MAX, 20, 3, RING_MESSAGES_BEHIND, 1]) {
        let took = world.nodes[0].handle_ring_within(open.source, share, now);
        assert_eq!(took, share.min(RING_MESSAGES_MAX));
        assert_eq!(taken(&world, open), u64::from(took));
    }
    world.run_for(Nanos::from_secs(3));
    assert!(opened.iter().all(|open| taken(&world, open) == 200 && open.outbox.free() >= 200));
}

/// A sender that breaks its contract has the rest of it dropped in the background, and what keeps it arrives.
#[test]
fn what_breaks_the_contract_is_dropped_in_slices() {
    let mut world = world(|_| {});
    let contract = Contract { policing: Policing::Drop, ..contract(100, 4, MS(50)) };
    let open = world.open(0, 1, contract).expect("it fits");
    open.outbox.push_beyond_room(&pattern(1, 0, BYTES as usize), 5_000, world.now);
    world.nodes[0].handle_ring(open.source, world.now);
    assert!(taken(&world, &open) <= u64::from(RING_MESSAGES_MAX));
    while let Some(work) = world.nodes[0].begin_work(world.now) {
        let before = taken(&world, &open);
        world.nodes[0].finish_work(work, world.now);
        assert!(taken(&world, &open) - before <= u64::from(RING_MESSAGES_MAX));
    }
    world.run_for(Nanos::from_secs(1));
    let counters = world.nodes[0].channel(open.source).expect("open").counters;
    // A burst, and what the jitter allowance lets through.
    assert_eq!((counters.messages_in, counters.dropped, counters.messages_out), (5_000, 4_995, 5));
}

fn free(outbox: &TestOutbox) -> u64 {
    outbox.free() as u64
}

fn accounts_hold(world: &World) {
    for node in &world.nodes {
        let wrong: Vec<_> = node.accounts().into_iter().filter(|a| a.counted != a.held).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// A channel that ends at once while its whole burst waits here.
#[test]
fn what_a_burst_leaves_behind_is_given_back_in_slices() {
    const BURST: u32 = 20_000;
    let mut world = world(|_| {});
    let open = world.open(0, 1, contract(10_000, BURST, MS(40))).expect("it fits");
    fill(&open, u64::from(BURST), &world);
    world.nodes[0].handle_ring(open.source, world.now);
    while let Some(work) = world.nodes[0].begin_work(world.now) {
        world.nodes[0].finish_work(work, world.now);
    }
    assert_eq!(open.outbox.waiting(), 0, "the node has all of it");
    let before = free(&open.outbox);
    assert!(world.nodes[0].abort_newest(CloseReason::RuntimeRefused, world.now));
    assert!(free(&open.outbox) - before <= u64::from(LEFTOVERS_MAX), "at the end itself");
    assert!(world.nodes[0].channel(open.source).is_none(), "nobody finds it");
    accounts_hold(&world);
    let mut calls = 0;
    while world.nodes[0].has_leftovers() {
        let before = free(&open.outbox);
        assert!(world.nodes[0].poll_timeout().is_some_and(|due| due <= world.now), "it wants to go on");
        world.nodes[0].handle_timeout(world.now);
        assert!(free(&open.outbox) - before <= u64::from(LEFTOVERS_MAX));
        accounts_hold(&world);
        calls += 1;
    }
    assert!((u64::from(BURST / LEFTOVERS_MAX)..2_000).contains(&calls), "{calls}");
    assert!(free(&open.outbox) >= u64::from(BURST), "all of it is back");
    // The next one has its room.
    let next = world.open(0, 1, contract(10_000, BURST, MS(40))).expect("it fits");
    fill(&next, 100, &world);
    world.nodes[0].handle_ring(next.source, world.now);
    world.run_for(MS(100));
    assert_eq!(next.inbox.waiting(), 100);
}

/// Many channels whose last message has left at the same time.
#[test]
fn channels_that_end_together_end_in_slices() {
    let mut world = world(|_| {});
    let opened: Vec<_> =
        (0..100).map(|_| world.open(0, 1, contract(10, 1, MS(500))).expect("fits")).collect();
    let now = world.now;
    opened.iter().for_each(|open| world.nodes[0].close(open.source, now).expect("it is open"));
    let mut before = world.nodes[0].status(now).channels;
    assert!(world.nodes[0].has_leftovers() && before == 100);
    while world.nodes[0].has_leftovers() {
        world.nodes[0].handle_timeout(now);
        let after = world.nodes[0].status(now).channels;
        assert!((before - after) as usize <= ENDS_MAX, "{before}, then {after}");
        before = after;
    }
    world.run_for(Nanos::from_secs(8));
    accounts_hold(&world);
    assert_eq!(world.nodes[0].status(world.now).channels, 0);
}

/// A ring that is drained in the background when its channel ends stays as it is, and others' go on.
#[test]
fn a_channel_that_ends_while_its_ring_is_drained_leaves_the_rest_in_it() {
    const MESSAGES: u64 = 1_000;
    let mut world = world(|_| {});
    let contract = Contract { policing: Policing::Drop, ..contract(100, 4, Nanos::from_millis(50)) };
    let [stays, ends] = [0, 1].map(|_| world.open(0, 1, contract).expect("it fits"));
    for open in [&ends, &stays] {
        open.outbox.push_beyond_room(&pattern(1, 0, BYTES as usize), MESSAGES as usize, world.now);
        world.nodes[0].handle_ring(open.source, world.now);
    }
    let at_once = MESSAGES as usize - ends.outbox.waiting();
    assert!((1..100).contains(&at_once), "{at_once}");
    assert!(world.nodes[0].abort_newest(CloseReason::RuntimeRefused, world.now));
    world.run_for(Nanos::from_secs(1));
    assert_eq!(ends.outbox.waiting(), MESSAGES as usize - at_once);
    assert_eq!((taken(&world, &stays), stays.outbox.waiting()), (MESSAGES, 0));
    accounts_hold(&world);
}

/// What waits at a sink when its channel ends there.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Remains {
    /// Packets that the processor has not served.
    Packets,
    /// Messages that wait for their deadline.
    Held,
    /// Messages of which a packet is missing.
    Incomplete,
}

/// A sink that ends while `remains` wait there, and the packets that its processor has not served.
fn ending_sink(remains: Remains) -> (World, Open) {
    const MESSAGES: u64 = 2_000;
    let mut world = world(|_| {});
    let bytes = if remains == Remains::Incomplete { 2_000 } else { BYTES };
    let rate = Rate::per_second(if remains == Remains::Packets { 10_000 } else { 1_000 }).expect("a rate");
    let contract = Contract::new(bytes, rate, 2_000, MS(350)).expect("in range");
    let delivery = if remains == Remains::Held { Delivery::AtDeadline } else { contract.delivery };
    let open = world.open(0, 1, Contract { delivery, ..contract }).expect("it fits");
    let kept = Rc::new(RefCell::new(Vec::new()));
    let seen = kept.clone();
    world.tap = Some(Box::new(move |node, port, packet| match Header::parse(packet) {
        Ok((header, _)) if node == 0 && port == Port::Data => match remains {
            Remains::Packets => {
                seen.borrow_mut().push(packet.clone());
                false
            }
            Remains::Held => true,
            Remains::Incomplete => header.fragment == 0,
        },
        _ => true,
    }));
    for number in 0..MESSAGES {
        assert!(open.outbox.send(&pattern(1, number, bytes as usize), world.now));
        world.nodes[0].handle_ring(open.source, world.now);
    }
    let mut received = Vec::new();
    for _ in 0..250 {
        world.run_for(MS(1));
        received.extend(kept.take().into_iter().map(|packet| (world.now, packet)));
    }
    for (at, packet) in received {
        let (frame, now) = (world.pool.frame(&packet), world.now);
        world.nodes[1].handle_frame(LinkId(0), Port::Data, at, frame, now);
    }
    (world, open)
}

#[test]
fn what_waits_at_a_sink_that_ends_is_given_back_in_slices() {
    for remains in [Remains::Packets, Remains::Held, Remains::Incomplete] {
        let (mut world, open) = ending_sink(remains);
        let free = |world: &World| (world.pool.free(), open.inbox.free());
        let mut before = free(&world);
        assert!(world.nodes[1].abort_newest(CloseReason::RuntimeRefused, world.now));
        let (mut calls, mut frames, mut slots) = (0, 0, 0);
        loop {
            let now = free(&world);
            let given = (now.0 - before.0, now.1 - before.1);
            assert!(given.0.max(given.1) <= LEFTOVERS_MAX as usize, "{remains:?}: {given:?}");
            (frames, slots, before) = (frames + given.0, slots + given.1, now);
            accounts_hold(&world);
            if !world.nodes[1].has_leftovers() {
                break;
            }
            world.nodes[1].handle_timeout(world.now);
            calls += 1;
        }
        let waited = if remains == Remains::Packets { frames > 1_024 } else { slots > 128 };
        assert!(waited && calls > 2, "{remains:?}: {frames} frames, {slots} slots, {calls} calls");
        // What was demoted is best effort, which is served like any other.
        world.run_for(MS(10));
        assert_eq!(world.nodes[1].frames_held(LinkId(0)), 0);
    }
}
