//! Where something is short: frames of a driver that best effort keeps, the pool that soft channels share, a link's slots while
//! a budget begins anew.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::script::Script;
use common::story::{contract, script};
use punctual_analysis::{Activation, Ppb, Statistical};
use punctual_proto::api::{ChannelCounters, Port};
use punctual_proto::config::{Admission, Pacing};
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, LinkId, NodeId, PathId};
use punctual_proto::limits::{ARRIVALS_AHEAD_MAX, FRAMES_BEST_EFFORT_DIVISOR, FRAMES_MIN};
use punctual_proto::signalling::SplitMix64;
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::{Open, World, line_config, pattern};

const RATE: BitRate = BitRate(40_000_000);
const LEFT: LinkId = LinkId(0);
const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn accounts_hold(world: &World) {
    for node in &world.nodes {
        let wrong: Vec<_> = node.accounts().into_iter().filter(|it| it.counted != it.held).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// A driver passes a packet to its node, whose processor handles it later.
fn arrive(world: &mut World, node: usize, packet: &[u8]) {
    let (frame, now) = (world.pool.frame(packet), world.now);
    world.nodes[node].handle_frame(LEFT, Port::Data, now, frame, now);
}

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
        message_bytes: 1_000,
        slack_ns: 0,
        logical_arrival: Instant(0),
        age: Age::NONE,
        payload_bytes: 1_000,
        clock_error: ClockError::NONE,
        destination: NodeId(3),
    };
    let mut bytes = vec![0; 1_500];
    let begin = header.write(&mut bytes);
    bytes.truncate(begin + 1_000);
    bytes
}

/// Packets that pass keep frames of the driver until the next link has sent them: while they hold all that
/// they may, a flood stays in the driver's ring, though the processor is idle.
#[test]
fn best_effort_is_taken_while_the_next_link_gives_frames_back() {
    let configs = (0..3).map(|index| {
        let mut config = line_config(index, 3, RATE);
        config.links.iter_mut().for_each(|link| link.frames = FRAMES_MIN);
        config
    });
    let mut world = World::of(configs.collect());
    world.settle();
    let most = u64::from(FRAMES_MIN / FRAMES_BEST_EFFORT_DIVISOR);
    for flow in 0..ARRIVALS_AHEAD_MAX as u32 {
        assert!(world.nodes[1].has_best_effort_room(LEFT), "{flow} have come");
        arrive(&mut world, 1, &best_effort(flow));
        world.settle();
    }
    // One or two are on the wire.
    while world.nodes[1].frames_held(LEFT) < most {
        assert!(world.nodes[1].has_best_effort_room(LEFT));
        arrive(&mut world, 1, &best_effort(99));
        world.settle();
    }
    assert!(!world.nodes[1].has_best_effort_room(LEFT), "the frames are with the next link");
    assert_eq!(world.nodes[1].status(world.now).drops.no_buffer, 0);
    arrive(&mut world, 1, &best_effort(100));
    assert_eq!(world.nodes[1].status(world.now).drops.no_buffer, 1);
    world.run_for(MS(1));
    assert!(world.nodes[1].has_best_effort_room(LEFT), "that has sent some");
    accounts_hold(&world);
}

fn hard() -> Contract {
    Contract::new(2_000, Rate::every(MS(40)).expect("a rate"), 1, MS(50)).expect("in range")
}

/// One message in ten at the peak.
fn soft() -> Contract {
    let mean_rate = Rate::every(MS(400)).expect("a rate");
    let miss_ratio = Ppb::new(10_000_000).expect("a ratio");
    let statistical = Some(Statistical { mean_rate, mean_over: MS(1_000), miss_ratio });
    let contract = Contract { statistical, deadline: MS(80), ..hard() };
    contract.validate().expect("in range");
    contract
}

/// The packets of one message of a channel as they leave its source; none arrives.
fn captured(world: &mut World, open: &Open) -> Vec<Vec<u8>> {
    let seen = Rc::<RefCell<Vec<Vec<u8>>>>::default();
    let copy = seen.clone();
    world.tap = Some(Box::new(move |from, port, bytes| {
        let is_taken = from == 0 && port == Port::Data;
        if is_taken {
            copy.borrow_mut().push(bytes.clone());
        }
        !is_taken
    }));
    assert!(open.outbox.send(&pattern(1, 0, 2_000), world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(MS(40));
    world.tap = None;
    seen.take()
}

/// `packet` as one of message `number` that is so early.
fn moved(packet: &[u8], number: u64, early: Nanos) -> Vec<u8> {
    let (header, _) = Header::parse(packet).expect("a packet of ours");
    let mut packet = packet.to_vec();
    Header { message: number, slack_ns: early.0 as i64, ..header }.write(&mut packet);
    packet
}

fn at_relay(world: &World, open: &Open) -> ChannelCounters {
    let path = world.nodes[0].channel(open.source).expect("it is open").path;
    let of = world.nodes[1].channels().into_iter().find(|channel| channel.path == path);
    of.expect("it passes").counters
}

/// Soft channels share a pool of frames that is smaller than all of them may need at once. Channels whose
/// packets arrive when it is empty lose them, and count them; hard ones have frames of their own.
#[test]
fn soft_channels_that_come_together_find_the_pool_empty_and_hard_ones_do_not_care() {
    let config = |index| {
        let mut config = line_config(index, 3, RATE);
        config.cpu.admission = Admission::STATISTICAL;
        config.links.iter_mut().for_each(|link| link.admission = Admission::STATISTICAL);
        config
    };
    let mut world = World::of((0..3).map(config).collect());
    let mut open = vec![world.open(0, 2, hard()).expect("it fits")];
    (0..60).for_each(|_| open.push(world.open(0, 2, soft()).expect("it fits")));
    let packets: Vec<_> = open.iter().map(|open| captured(&mut world, open)).collect();
    // All soft ones together, each with a message that is on time and an early one; the hard one last, while the processor is
    // busy.
    for (number, early) in [(1, Nanos::ZERO), (2, soft().policed_interval())] {
        for packet in packets[1..].iter().flatten() {
            arrive(&mut world, 1, &moved(packet, number, early));
        }
    }
    packets[0].iter().for_each(|packet| arrive(&mut world, 1, &moved(packet, 1, Nanos::ZERO)));
    accounts_hold(&world);
    let counters: Vec<_> = open.iter().map(|open| at_relay(&world, open)).collect();
    assert!(counters.iter().all(|counted| counted.demoted == 0), "{counters:?}");
    let sum = |of: fn(&ChannelCounters) -> u64| counters.iter().map(of).sum::<u64>();
    let (came, lost) = (sum(|counted| counted.packets_in), sum(|counted| counted.overflows));
    let kept = came - lost;
    assert_eq!((counters[0].overflows, world.nodes[1].status(world.now).drops.no_buffer), (0, lost));
    assert!(kept > 10 && lost > 10, "{kept} {lost}");
    assert_eq!(world.nodes[1].frames_held(LEFT), kept);
    world.run_for(MS(500));
    for (open, counted) in open.iter().zip(&counters) {
        let mut arrived = 0;
        while open.inbox.recv(|_, info| assert!(!info.demoted)) {
            arrived += 1;
        }
        // Messages have two packets each.
        assert!(arrived + counted.overflows >= counted.packets_in / 2, "{arrived}: {counted:?}");
    }
    assert_eq!(world.nodes[1].frames_held(LEFT), 0, "the pool is full again");
    accounts_hold(&world);
}

/// Packets of each unit in which a source has served its messages.
fn units(s: &Script) -> Vec<u64> {
    let sends = s.text.lines().filter(|line| line.contains("kind: Send"));
    let packets = sends.map(|line| line.split("packets: ").nth(1)?.split(',').next()?.parse().ok());
    packets.map(|packets| packets.expect("a number")).collect()
}

/// A source has a budget of four packets in 2 ms, and messages of six. Its adapter sends sometimes, and its
/// processor runs sometimes. However many slots are free when a new budget begins, the source waits for those
/// of a whole unit: only the last unit of a message or of a budget is shorter, and everything is sent.
#[test]
fn a_budget_that_begins_anew_waits_for_the_slots_of_a_whole_unit() {
    const MESSAGES: u64 = 20;
    let activation = Activation::Periodic { period: MS(2), packets: 4 };
    let contract = Contract { activation, ..contract(8_000, 100, 4, 60) };
    for seed in 0..10 {
        let mut random = SplitMix64::new(seed);
        let mut s = script(2, |index, config| {
            config.cpu.quantum_packets = 4;
            config.links[0].pace = if index == 0 { Pacing::Completion } else { Pacing::Clock };
        });
        let completes = s.completions.replace(vec![vec![0], vec![0]]);
        s.run(50);
        let channel = s.open(0, 1, contract);
        let said = std::mem::replace(&mut s.completions, completes).expect("it was said")[0][0];
        let mut said = said;
        for round in 0..400 {
            if round < MESSAGES {
                s.send(channel, &[8_000]);
            }
            let until = s.world.now + Nanos(random.below(3_000_000));
            s.world.still = Some((0, until));
            let given = s.world.nodes[0].status(s.world.now).links[0].wire_bytes;
            // It is stopped at first.
            let packets = if round < 80 { 0 } else { random.below(4) };
            let sent = (given - said).min(packets * 1_530);
            said += sent;
            let now = s.world.now;
            s.world.nodes[0].handle_sent(LEFT, sent as u32, now);
            s.world.run_until(until);
            s.flush();
        }
        let units = units(&s);
        assert!(units.iter().all(|packets| [2, 4].contains(packets)), "seed {seed}: {units:?}");
        assert_eq!(units.iter().sum::<u64>(), 6 * MESSAGES, "seed {seed}");
        let counters = s.world.nodes[0].channel(s.source(channel)).expect("it is open").counters;
        assert_eq!((counters.messages_out, counters.dropped), (MESSAGES, 0), "seed {seed}");
        accounts_hold(&s.world);
    }
}
