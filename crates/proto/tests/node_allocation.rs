//! Memory: no heap allocation for a message on its way through source, forwarder and sink,
//! and an idle channel costs little.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use punctual_proto::api::{Event, Notice, OpenRequest, Port, RtuClass, RtuCost, RtuTerms, UserId};
use punctual_proto::config::Admission;
use punctual_proto::ids::{ChannelNumber, Cookie, LinkId, NodeId, PathId};
use punctual_proto::limits::{BEST_EFFORT_SENDERS_MAX, HEADER_BYTES};
use punctual_proto::node::Node;
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use punctual_proto::{BitRate, Contract, Delivery, Instant, Nanos, Rate};
use punctual_rig::handlers::{Bench, cpu};
use punctual_rig::{TestInbox, TestMemory, TestOutbox, World, name, pattern};

struct Counting;

static COUNTED: AtomicU64 = AtomicU64::new(0);
static IN_USE_BYTES: AtomicI64 = AtomicI64::new(0);
static COUNTING: AtomicBool = AtomicBool::new(false);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            COUNTED.fetch_add(1, Ordering::Relaxed);
        }
        IN_USE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends `messages` and counts the allocations of all three nodes meanwhile.
fn allocations(
    world: &mut World,
    open: &punctual_rig::Open,
    contract: Contract,
    messages: u64,
    send: &[u8],
) -> u64 {
    COUNTED.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    let mut received = 0;
    for _ in 0..messages {
        assert!(open.outbox.send(send, world.now));
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(contract.interval());
        while open.inbox.recv(|_, _| received += 1) {}
    }
    COUNTING.store(false, Ordering::Relaxed);
    assert!(received >= messages - 1);
    COUNTED.load(Ordering::Relaxed)
}

/// The tests share the counters.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Bytes that an idle channel may cost at one host, its reserved buffers (rings, packets) apart.
const IDLE_CHANNEL_BYTES_MAX: i64 = 1_536;

/// What the applications' rings of one channel take, which the test makes and not the nodes.
fn ring_bytes(open: &punctual_rig::Open, contract: Contract) -> i64 {
    let bytes = contract.message_bytes_max as usize;
    let before = IN_USE_BYTES.load(Ordering::Relaxed);
    let messages = open.inbox.free();
    let rings =
        (TestInbox::new(messages, bytes), TestOutbox::new(open.grant.outbox_messages as usize, bytes));
    let taken = IN_USE_BYTES.load(Ordering::Relaxed) - before;
    drop(rings);
    taken
}

#[test]
fn an_idle_channel_costs_little() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (hosts, channels) = (3, 100);
    let mut world = World::line(hosts, BitRate(1_000_000_000));
    world.audit = None;
    let contract = Contract::new(64, Rate::per_second(10).unwrap(), 1, Nanos::from_millis(50)).unwrap();
    let mut open: Vec<_> = (0..20).map(|_| world.open(0, 2, contract).unwrap()).collect();
    let before = IN_USE_BYTES.load(Ordering::Relaxed);
    open.extend((0..channels).map(|_| world.open(0, 2, contract).unwrap()));
    let in_use = IN_USE_BYTES.load(Ordering::Relaxed) - before;
    let each = (in_use - channels * ring_bytes(&open[0], contract)) / (channels * hosts as i64);
    println!("an idle channel costs {each} B at each host, the applications' rings apart");
    assert!(each <= IDLE_CHANNEL_BYTES_MAX, "{each} B");
}

#[test]
fn a_message_on_its_way_allocates_nothing() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut world = World::line(3, BitRate(400_000_000));
    world.audit = None;
    let deadline = Nanos::from_millis(8);
    let contract = Contract::new(10_000, Rate::per_second(200).unwrap(), 2, deadline).unwrap();
    let open = world.open(0, 2, contract).unwrap();
    let send = pattern(1, 1, 10_000);
    allocations(&mut world, &open, contract, 50, &send);
    // HELLOs and refreshes are not messages on their way: the quietest of three stretches of 100 ms counts.
    let quietest = (0..5).map(|_| allocations(&mut world, &open, contract, 20, &send)).min().unwrap();
    assert_eq!(quietest, 0);
}

/// However many notices nobody reads: room for them was made when their channels opened.
#[test]
fn a_notice_allocates_nothing() {
    const CHANNELS: usize = 12;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut world = World::line(3, BitRate(400_000_000));
    world.audit = None;
    let contract = Contract::new(100, Rate::per_second(10).unwrap(), 1, Nanos::from_millis(50)).unwrap();
    let open: Vec<_> = (0..CHANNELS).map(|_| world.open(0, 2, contract).unwrap()).collect();
    for open in &open {
        allocations(&mut world, open, contract, 2, &[1; 100]);
        open.outbox.push_beyond_room(&[2; 100], 6, world.now);
    }
    COUNTED.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    for open in &open {
        world.nodes[0].handle_ring(open.source, world.now);
    }
    COUNTING.store(false, Ordering::Relaxed);
    assert_eq!(COUNTED.load(Ordering::Relaxed), 0);
    let events = std::iter::from_fn(|| world.nodes[0].poll_event());
    let policed = events.filter(|event| matches!(event, Event::Notice { notice: Notice::Policed, .. }));
    assert_eq!(policed.count(), CHANNELS);
}

/// A packet of a channel, as it comes to the receiver's host.
fn a_packet_of(world: &mut World, open: &punctual_rig::Open) -> Vec<u8> {
    let packet = Rc::new(RefCell::new(Vec::new()));
    let seen = packet.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        if (node, port) == (0, Port::Data) {
            seen.borrow_mut().clone_from(bytes);
        }
        true
    }));
    assert!(open.outbox.send(&[1; 100], world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(Nanos::from_millis(20));
    packet.take()
}

/// A source that does not wait sends packets before the receiver has its ring: there is nothing to show counters in, and no
/// room was made for that. A world is the same each time, so that a packet of the first is one of the second's channel.
#[test]
fn packets_before_the_receivers_ring_allocate_nothing() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let contract = Contract::new(100, Rate::per_second(10).unwrap(), 1, Nanos::from_millis(50)).unwrap();
    let mut first = World::line(2, BitRate(400_000_000));
    let open = first.open(0, 1, contract).unwrap();
    let packet = a_packet_of(&mut first, &open);
    let mut world = World::line(2, BitRate(400_000_000));
    world.nodes[1].listen(name("port")).unwrap();
    let to = "port@h2".parse().unwrap();
    let request = OpenRequest { to, contract, user: UserId(0), probe: false, token: None };
    world.nodes[0].open(request, world.now).unwrap();
    let is_asked = |world: &World| world.events[1].iter().any(|event| matches!(event, Event::Incoming(_)));
    while !is_asked(&world) {
        world.run_for(Nanos::from_millis(1));
    }
    let (now, node) = (world.now, &mut world.nodes[1]);
    let mut send = |count: u32| {
        for _ in 0..count {
            node.handle_frame(LinkId(0), Port::Data, now, world.pool.frame(&packet), now);
            while let Some(work) = node.begin_work(now) {
                node.finish_work(work, now);
            }
        }
    };
    send(20);
    COUNTED.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    send(100);
    COUNTING.store(false, Ordering::Relaxed);
    assert_eq!(COUNTED.load(Ordering::Relaxed), 0);
    let counters = node.channel(open.sink).expect("it waits for consent").counters;
    assert!(counters.packets_in > 0, "{counters:?}");
}

/// Memory that one more channel takes at all hosts, and memory that the nodes report for it, without the
/// applications' rings.
fn taken_and_declared(world: &mut World, contract: Contract) -> (i64, i64) {
    let before = IN_USE_BYTES.load(Ordering::Relaxed);
    let open = world.open(0, 2, contract).expect("admitted");
    let taken = IN_USE_BYTES.load(Ordering::Relaxed) - before - ring_bytes(&open, contract);
    let declared =
        [(0, open.source), (2, open.sink)].map(|(node, channel)| world.nodes[node].room_bytes(channel));
    let relayed = world.nodes[1].channels_after(None, usize::MAX).channels;
    let relayed = relayed.last().map_or(0, |status| world.nodes[1].room_bytes(status.channel));
    println!("{contract:?}: {taken} B; told {declared:?} and {relayed} at the relay");
    (taken, (declared.into_iter().sum::<u64>() + relayed) as i64)
}

/// The reported memory is no less than the real one. Room comes in runs of 1,024 places, which channels
/// share.
#[test]
fn the_memory_that_a_node_declares_for_a_channel_is_what_it_takes() {
    /// Runs of four slabs, and what every channel has.
    const BESIDE_MAX: i64 = 4 * 1_024 * 320 + 3 * IDLE_CHANNEL_BYTES_MAX;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let contract = |bytes, rate, burst, deadline_ms| {
        let rate = Rate::per_second(rate).expect("a rate");
        Contract::new(bytes, rate, burst, Nanos::from_millis(deadline_ms)).expect("a contract")
    };
    let punctual = Contract { delivery: Delivery::AtDeadline, ..contract(8, 1_000, 1, 1_000) };
    // The greatest burst; as many small messages under way as frames allow; messages of many packets; held to the deadline.
    for wanted in
        [contract(8, 10, 65_536, 900), contract(8, 1_000, 1, 1_500), contract(60_000, 10, 4, 900), punctual]
    {
        let mut world = World::line(3, BitRate(1_000_000_000));
        world.audit = None;
        let small = world.open(0, 2, contract(8, 1, 1, 50)).expect("admitted");
        let (taken, declared) = taken_and_declared(&mut world, wanted);
        assert!(taken <= declared + BESIDE_MAX, "{wanted:?} takes {taken} B, of which {declared} are told");
        drop(small);
    }
}

/// A best-effort packet of `flow` with a part of `payload` bytes of a message.
fn best_effort(flow: u32, message_bytes: u32, payload_bytes: u32) -> Vec<u8> {
    let header = Header {
        kind: Kind::BestEffort,
        demoted: false,
        unpromised: false,
        path: PathId { node: NodeId(1), channel: ChannelNumber(flow), ..PathId::default() },
        cookie: Cookie(name("bulk").port_hash()),
        message: 0,
        fragment: 0,
        fragments: message_bytes.div_ceil(payload_bytes) as u16,
        message_bytes,
        slack_ns: 0,
        logical_arrival: Instant(0),
        age: Age::NONE,
        payload_bytes,
        clock_error: ClockError::NONE,
        destination: NodeId(2),
    };
    let mut bytes = vec![0; HEADER_BYTES + payload_bytes as usize];
    header.write(&mut bytes);
    bytes
}

/// A forger on the link invents flows, whose messages have one byte, or very many fragments, or are too long.
/// Sixteen senders of 30 KB each were kept for a port of 60,000 B, on the processor and in no user's quota.
#[test]
fn a_port_takes_no_more_memory_than_its_node_declares_for_any_senders() {
    const BYTES: u32 = 60_000;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut world = World::line(2, BitRate(1_000_000_000));
    world.run_for(Nanos::from_secs(2));
    let inbox = TestInbox::new(4, BYTES as usize);
    let before = IN_USE_BYTES.load(Ordering::Relaxed);
    world.nodes[1].bind_best_effort(name("bulk"), BYTES, inbox.clone()).expect("free");
    let mut flow = 0;
    for (message_bytes, payload_bytes) in [(1, 1), (BYTES, 64), (BYTES, 2), (BYTES + 1, 1_000)] {
        for _ in 0..3 * BEST_EFFORT_SENDERS_MAX {
            flow += 1;
            world.inject(1, LinkId(0), Port::Data, &best_effort(flow, message_bytes, payload_bytes));
            world.run_for(Nanos::from_micros(20));
            while inbox.recv(|_, _| ()) {}
        }
    }
    let (taken, declared) =
        (IN_USE_BYTES.load(Ordering::Relaxed) - before, Node::<TestMemory>::port_room_bytes(BYTES) as i64);
    let drops = world.nodes[1].status(world.now).drops;
    println!("{taken} B taken, {declared} told, {drops:?}");
    // Those of 2 bytes a fragment; those that are too long.
    assert_eq!((drops.malformed, drops.too_large), (48, 48));
    assert!(declared <= 32 << 10, "{declared} B");
    // Beside it tables of paths and shares.
    assert!(taken <= declared + (16 << 10), "{taken} B, of which {declared} are told");
}

/// Handlers that send come and go: what they take is free afterwards.
#[test]
fn handlers_that_are_gone_take_no_memory() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut bench = Bench::with_link(cpu(Admission::EDF), BitRate(100_000_000));
    let class = RtuClass::LowDelay { interval: Nanos::from_millis(10), units: 2, priority: None };
    let cost = RtuCost { run: Nanos::from_micros(2), unit: Nanos::from_micros(5) };
    let terms = RtuTerms { class, deadline: None, quantum: 1, cost };
    let mut in_use = Vec::new();
    for turn in 0..400 {
        let id = bench.register_sender(terms, 2, 200).expect("granted");
        bench.bodies.remove(&id);
        bench.node.remove_handler(id, bench.now);
        let next = bench.now + Nanos::from_millis(1);
        bench.run_until(next);
        if turn % 100 == 99 {
            in_use.push(IN_USE_BYTES.load(Ordering::Relaxed));
        }
    }
    // HELLOs and rare events beside: far less than the room of the handlers that have gone.
    assert!(in_use[3] - in_use[0] < 100_000, "{in_use:?}");
}
