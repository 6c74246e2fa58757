//! The state of channels in shared memory equals the status on request: counters at the end of each turn, and
//! a number that changes whenever the rest of the channel's status does. A line h1 - h2 - h3 whose links
//! lose, repeat, delay and reorder, and applications that send too much or do not read.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use punctual_proto::api::{ChannelCounters, ChannelStatus, Port};
use punctual_proto::ids::LinkId;
use punctual_proto::{BitRate, Contract, Delivery, Instant, Late, Nanos, Policing, Ppm, Rate};
use punctual_rig::{Open, Shown, World, pattern};

const RATE: BitRate = BitRate(40_000_000);
const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn contract(bytes: u32) -> Contract {
    Contract::new(bytes, Rate::per_second(200).unwrap(), 2, MS(20)).unwrap()
}

/// One end as its application reads it.
struct End {
    node: usize,
    status: ChannelStatus,
    outdated: u64,
}

/// Both ends of a channel, and the number of changes to the status of one.
struct Reader {
    ends: [End; 2],
    changes: u64,
    counted: ChannelCounters,
}

/// The status without counters and without values that depend on other channels: reserved utilisations.
fn status_and_counters(world: &World, open: &Open, node: usize) -> (ChannelStatus, ChannelCounters) {
    let channel = if node == 0 { open.source } else { open.sink };
    let mut status = world.nodes[node].channel(channel).expect("it lives");
    let counters = std::mem::take(&mut status.counters);
    status.stages.iter_mut().for_each(|stage| stage.utilisation = Ppm(0));
    (status, counters)
}

fn shown(open: &Open, node: usize) -> Shown {
    if node == 0 { open.outbox.shown() } else { open.inbox.shown() }
}

impl Reader {
    fn new(world: &World, open: &Open) -> Self {
        let end = |node| {
            let (status, _) = status_and_counters(world, open, node);
            End { node, status, outdated: shown(open, node).outdated }
        };
        Self { ends: [end(0), end(2)], changes: 0, counted: ChannelCounters::default() }
    }

    /// To be called between turns.
    fn compare(&mut self, world: &World, open: &Open) {
        for End { node, status, outdated } in &mut self.ends {
            let (now, counters) = status_and_counters(world, open, *node);
            let shown = shown(open, *node);
            assert_eq!(shown.counters, counters, "h{} at {:?}", *node + 1, world.now);
            if shown.outdated == *outdated {
                assert_eq!(now, *status, "h{} at {:?}", *node + 1, world.now);
            }
            self.changes += u64::from(now != *status);
            (*status, *outdated) = (now, shown.outdated);
            if *node == 2 {
                self.counted = counters;
            }
        }
    }
}

/// The same numbers in each run.
struct Dice(u64);

impl Dice {
    fn one_in(&mut self, sides: u64) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33).is_multiple_of(sides)
    }
}

/// Packets, and something about each.
type Queue<T> = Rc<RefCell<VecDeque<(T, Vec<u8>)>>>;

/// Of the data packets of `host` one in ten is lost, one in ten is duplicated, one in ten is some
/// milliseconds late.
fn spoil(world: &mut World, host: usize, seed: u64) -> Queue<u64> {
    let again: Queue<u64> = Rc::default();
    let (copies, mut dice) = (again.clone(), Dice(seed));
    world.tap = Some(Box::new(move |node, port, bytes| {
        if node != host || port != Port::Data {
            return true;
        }
        let (lost, twice, later) = (dice.one_in(10), dice.one_in(10), dice.one_in(10));
        if twice || later {
            copies.borrow_mut().push_back((if later { 12 } else { 1 }, bytes.clone()));
        }
        !lost && !later
    }));
    again
}

/// Sends for `rounds` of 5 ms, sometimes too much, and reads sometimes; compares each millisecond.
fn run(world: &mut World, open: &Open, contract: &Contract, rounds: u64, seed: u64) -> Reader {
    let mut reader = Reader::new(world, open);
    let mut dice = Dice(seed ^ 0x5ca1_ab1e);
    let host = seed as usize % 2;
    let again = spoil(world, host, seed);
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let bytes = contract.message_bytes_max as usize;
    for round in 0..rounds {
        let many = if dice.one_in(12) { 6 } else { 1 };
        // The second one finds the link busy.
        for many in [many, 1] {
            open.outbox.push_beyond_room(&pattern(seed, round, bytes - round as usize % 3), many, world.now);
            world.nodes[0].handle_ring(open.source, world.now);
            world.settle();
            reader.compare(world, open);
        }
        if dice.one_in(20) {
            open.outbox.push_beyond_room(&pattern(seed, round, bytes + 1), 1, world.now);
        }
        world.nodes[0].handle_ring(open.source, world.now);
        for _ in 0..5 {
            world.run_for(MS(1));
            reader.compare(world, open);
            let now = world.now;
            waiting.extend(again.borrow_mut().drain(..).map(|(later, bytes)| (now + MS(later), bytes)));
            while waiting.front().is_some_and(|(at, _)| *at <= now) {
                let (_, bytes) = waiting.pop_front().expect("it is there");
                world.inject(host + 1, LinkId(0), Port::Data, &bytes);
                reader.compare(world, open);
            }
        }
        if (round / 40) % 2 == 0 {
            while open.inbox.recv(|_, _| {}) {}
            world.nodes[2].handle_ring(open.sink, world.now);
        }
    }
    world.tap = None;
    reader
}

#[test]
fn counters_at_the_end_of_a_turn_equal_those_of_a_request() {
    let mut all = ChannelCounters::default();
    let mut at_source = ChannelCounters::default();
    for seed in 0..24 {
        let mut contract = contract([200, 1_000, 4_000][seed as usize % 3]);
        contract.policing = [Policing::Delay, Policing::Drop, Policing::Demote][seed as usize / 3 % 3];
        contract.delivery = if seed % 2 == 0 { Delivery::Asap } else { Delivery::AtDeadline };
        contract.late = if seed % 5 == 4 { Late::Drop } else { Late::default() };
        let mut world = World::line(3, RATE);
        let open = world.open(0, 2, contract).expect("it fits");
        world.settle();
        assert!(shown(&open, 0).times > 0 && shown(&open, 2).times > 0, "before anything is counted");
        let reader = run(&mut world, &open, &contract, 160, seed);
        assert!(shown(&open, 0).times > 100 && shown(&open, 2).times > 100, "seed {seed}");
        add(&mut all, &reader.counted);
        add(&mut at_source, &shown(&open, 0).counters);
    }
    println!("{all:?}\n{at_source:?}");
    // The test is meaningful: all of these have happened.
    let seen = [all.lost, all.incomplete, all.overruns, all.misses, all.latency_max.0, all.late_arrivals];
    assert!(seen.iter().all(|count| *count > 0), "{all:?}");
    let ours = [at_source.delayed, at_source.dropped, at_source.demoted, at_source.messages_out];
    assert!(ours.iter().all(|count| *count > 0), "{at_source:?}");
}

fn add(sum: &mut ChannelCounters, more: &ChannelCounters) {
    sum.lost += more.lost;
    sum.incomplete += more.incomplete;
    sum.overruns += more.overruns;
    sum.misses += more.misses;
    sum.late_arrivals += more.late_arrivals;
    sum.delayed += more.delayed;
    sum.dropped += more.dropped;
    sum.demoted += more.demoted;
    sum.messages_out += more.messages_out;
    sum.latency_max = sum.latency_max.max(more.latency_max);
}

/// All packets of h1 arrive 30 ms later for three seconds, HELLOs too: the link breaks its promise, and keeps
/// it again. Other channels are opened and closed meanwhile and do not change this one's status.
#[test]
fn every_change_of_the_counters_is_published() {
    const LATE: Nanos = Nanos::from_millis(30);
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract(200)).expect("it fits");
    let mut reader = Reader::new(&world, &open);
    let step = |world: &mut World, reader: &mut Reader, number: u64| {
        open.outbox.send(&pattern(1, number, 200), world.now);
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(MS(5));
        while open.inbox.recv(|_, _| {}) {}
        reader.compare(world, &open);
    };
    // The receiver's end is open when the first message has come.
    step(&mut world, &mut reader, 0);
    reader.changes = 0;
    for number in 1..400 {
        step(&mut world, &mut reader, number);
        if number == 100 {
            let other = world.open(0, 2, contract(300)).expect("it fits");
            world.nodes[0].close(other.source, world.now).expect("open");
        }
    }
    assert_eq!(reader.changes, 0, "all is well");
    let outdated = [0, 2].map(|node| shown(&open, node).outdated);
    let sent: Queue<Port> = Rc::default();
    let queue = sent.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        if node == 0 {
            queue.borrow_mut().push_back((port, bytes.clone()));
        }
        node != 0
    }));
    let mut waiting: VecDeque<(Instant, Port, Vec<u8>)> = VecDeque::new();
    for number in 0..5_000 {
        if number == 600 {
            world.tap = None;
        }
        step(&mut world, &mut reader, number);
        let at = world.now + LATE;
        waiting.extend(sent.borrow_mut().drain(..).map(|(port, bytes)| (at, port, bytes)));
        while waiting.front().is_some_and(|(at, ..)| *at <= world.now) {
            let (_, port, bytes) = waiting.pop_front().expect("it is there");
            world.inject(1, LinkId(0), port, &bytes);
            reader.compare(&world, &open);
        }
    }
    assert!(reader.changes >= 4, "both ends were told that it broke and that it healed: {}", reader.changes);
    assert!(world.nodes.iter().all(|node| node.status(world.now).broken.is_empty()));
    for (node, before) in [(0, outdated[0]), (2, outdated[1])] {
        let more = shown(&open, node).outdated - before;
        assert!((2..50).contains(&more), "h{}: asked again {more} times in 25 s", node + 1);
    }
}
