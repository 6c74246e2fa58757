//! Where something is short: frames of a driver that best effort keeps, the pool that soft channels share, a link's slots while
//! a budget begins anew.

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use common::script::Script;
use common::story::{contract, script};
use punctual_analysis::{Activation, Ppb, Statistical};
use punctual_proto::api::{ChannelCounters, CloseReason, Port, WorkKind};
use punctual_proto::config::{Admission, Pacing};
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, LinkId, NodeId, PathId};
use punctual_proto::limits::{ARRIVALS_AHEAD_MAX, FRAMES_BEST_EFFORT_DIVISOR, FRAMES_MIN};
use punctual_proto::signalling::SplitMix64;
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Policing, Rate};
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
        let taken = std::mem::replace(&mut s.completions, completes).expect("it was said")[0][0];
        let mut taken = taken;
        for round in 0..400 {
            if round < MESSAGES {
                s.send(channel, &[8_000]);
            }
            let until = s.world.now + Nanos(random.below(3_000_000));
            s.world.still = Some((0, until));
            let given = s.world.nodes[0].status(s.world.now).links[0].wire_bytes;
            // It is stopped at first.
            let packets = if round < 80 { 0 } else { random.below(4) };
            let sent = (given - taken).min(packets * 1_530);
            taken += sent;
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

/// Data packets of the first host, which do not arrive by themselves.
fn capture(world: &mut World) -> Rc<RefCell<Vec<Vec<u8>>>> {
    let captured = Rc::new(RefCell::new(Vec::new()));
    let seen = captured.clone();
    world.tap = Some(Box::new(move |node, port, packet| {
        let is_seen = node == 0 && port == Port::Data && Header::parse(packet).is_ok();
        if is_seen {
            seen.borrow_mut().push(packet.clone());
        }
        !is_seen
    }));
    captured
}

fn sends(world: &mut World, open: &Open, messages: usize, bytes: usize) {
    // More than the ring has room for.
    open.outbox.push_beyond_room(&pattern(1, 0, bytes), messages, world.now);
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(MS(100));
}

/// Two messages wait for a processor: each is a unit of its own, which is charged for one message. The counters are shown
/// once a turn, however many units it has.
#[test]
fn a_unit_has_packets_of_one_message() {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
    configs[1].cpu.quantum_packets = 8;
    let mut world = World::of(configs);
    let open = world.open(0, 1, contract(2_000, 200, 4, 60)).expect("it fits");
    let captured = capture(&mut world);
    sends(&mut world, &open, 2, 2_000);
    world.tap = None;
    let packets = captured.take();
    assert_eq!(packets.len(), 4);
    packets.iter().for_each(|packet| arrive(&mut world, 1, packet));
    world.nodes[1].show_counters();
    let shown = open.inbox.shown().times;
    for _ in 0..2 {
        let work = world.nodes[1].begin_work(world.now).expect("packets wait");
        assert_eq!((work.packets, work.message_edge), (2, true));
        world.nodes[1].finish_work(work, world.now);
    }
    assert_eq!((world.nodes[1].begin_work(world.now), open.inbox.waiting()), (None, 2));
    world.nodes[1].show_counters();
    assert_eq!(open.inbox.shown().times, shown + 1);
}

/// Demoted packets of a channel that ends while they wait: at the sink they are counted as of no channel, on the way they
/// go on as best effort.
#[test]
fn demoted_packets_outlive_their_channel_as_best_effort() {
    for hosts in [2, 3] {
        let mut world = World::line(hosts, RATE);
        let demotes = Contract { policing: Policing::Demote, ..contract(500, 20, 1, 60) };
        let open = world.open(0, hosts - 1, demotes).expect("it fits");
        let captured = capture(&mut world);
        sends(&mut world, &open, 4, 500);
        let packets = captured.take();
        let demoted: Vec<_> =
            packets.into_iter().filter(|packet| Header::parse(packet).unwrap().0.demoted).collect();
        assert!(!demoted.is_empty());
        demoted.iter().for_each(|packet| arrive(&mut world, 1, packet));
        let now = world.now;
        if hosts == 3 {
            // They are queued at the link out.
            while let Some(work) = world.nodes[1].begin_work(now) {
                world.nodes[1].finish_work(work, now);
            }
        }
        assert!(world.nodes[1].abort_newest(CloseReason::RuntimeRefused, now));
        accounts_hold(&world);
        world.run_for(MS(10));
        accounts_hold(&world);
        let status = world.nodes[1].status(world.now);
        if hosts == 3 {
            assert_eq!(status.links[1].packets_best_effort, demoted.len() as u64);
        } else {
            assert_eq!((status.drops.unknown_path, open.inbox.waiting()), (demoted.len() as u64, 0));
        }
        assert_eq!(world.nodes[1].frames_held(LEFT), 0);
    }
}

/// An adapter that does not send, and two channels that send more than their contracts: what is demoted waits for room, in its
/// order; what has no place at the source is dropped and counted.
#[test]
fn demoted_messages_wait_for_room_or_are_counted() {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
    configs[0].links[0].pace = Pacing::Completion;
    let mut world = World::of(configs);
    world.completes = true;
    let demotes = Contract { policing: Policing::Demote, ..contract(1_000, 20, 1, 60) };
    let open = [(); 2].map(|()| world.open(0, 1, demotes).expect("it fits"));
    world.completes = false;
    let given = world.nodes[0].status(world.now).links[0].wire_bytes;
    for number in 0..400_u64 {
        for open in &open {
            open.outbox.push_beyond_room(&pattern(1, number, 1_000), 1, world.now);
            world.nodes[0].handle_ring(open.source, world.now);
        }
        world.run_for(Nanos::from_micros(100));
    }
    accounts_hold(&world);
    let counters = |world: &World| {
        open.each_ref().map(|open| world.nodes[0].channel(open.source).expect("it is open").counters)
    };
    let stopped = counters(&world);
    assert!(stopped.iter().all(|of| of.dropped > 0 && of.demoted > 64), "{stopped:?}");
    world.completes = true;
    let owed = world.nodes[0].status(world.now).links[0].wire_bytes - given;
    world.nodes[0].handle_sent(LEFT, owed as u32, world.now);
    world.run_for(Nanos::from_secs(10));
    accounts_hold(&world);
    for (open, of) in open.iter().zip(counters(&world)) {
        assert_eq!(of.messages_in, of.packets_out + of.dropped, "{of:?}");
        assert_eq!(open.outbox.waiting(), 0);
    }
}

/// Does the work of the first host at `now`, then hands its packets to the adapter. Returns the number of units of sources;
/// `under_way` gets each packet's bytes on the wire and its channel, if it is of one.
fn serve(world: &mut World, now: Instant, under_way: &mut VecDeque<(u32, Option<PathId>)>) -> usize {
    let (node, mut sources, mut out) = (&mut world.nodes[0], 0, [0; 2_000]);
    node.handle_timeout(now);
    loop {
        while let Some(work) = node.begin_work(now) {
            sources += usize::from(work.kind == WorkKind::Send);
            node.finish_work(work, now);
        }
        let Some(sent) = node.poll_transmit(LEFT, now, &mut out) else { return sources };
        let path = (sent.port == Port::Data).then(|| Header::parse(&out).expect("a packet").0.path);
        under_way.push_back((sent.wire_bytes, path));
    }
}

/// Two channels wait for slots of a link whose adapter has stopped. The slot of a packet that has left belongs to its channel,
/// which uses it at once, whichever channel has waited longer.
#[test]
fn a_slot_that_becomes_free_is_used_by_its_channel_at_once() {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
    configs[0].links[0].pace = Pacing::Completion;
    configs[0].links[0].pipeline_depth = 4;
    let mut world = World::of(configs);
    world.completes = true;
    let open = [60, 90].map(|deadline| world.open(0, 1, contract(200, 200, 40, deadline)).expect("it fits"));
    let (mut now, mut under_way) = (world.now, VecDeque::new());
    for open in &open {
        open.outbox.push_beyond_room(&pattern(1, 0, 200), 400, now);
    }
    for _ in 0..100 {
        now = now + MS(5);
        open.iter().for_each(|open| world.nodes[0].handle_ring(open.source, now));
        serve(&mut world, now, &mut under_way);
    }
    assert!(open.iter().all(|open| open.outbox.waiting() > 0), "both wait for slots");
    let mut left = BTreeMap::new();
    for _ in 0..60 {
        let (wire_bytes, path) = under_way.pop_front().expect("the link is busy");
        world.nodes[0].handle_sent(LEFT, wire_bytes, now);
        let served = serve(&mut world, now, &mut under_way);
        if let Some(path) = path {
            *left.entry(path.channel).or_insert(0) += 1;
            assert_eq!(served, 1, "{left:?}");
        }
    }
    assert!(left.len() == 2 && left.values().all(|times| *times > 2), "{left:?}");
}

/// A ring holds more than was taken out of it, and its channel has nothing to serve meanwhile: what was taken has left or was
/// dropped. A message that is noticed late then counts from the time at which it is noticed, as in any ring. By its own time it
/// would be far behind its deadline, and before everything else.
#[test]
fn a_message_behind_what_was_not_taken_is_no_more_urgent_for_that() {
    let dropping =
        Contract { policing: Policing::Drop, jitter: Some(Nanos::ZERO), ..contract(200, 200, 1, 60) };
    for others in [0, 20] {
        let mut world = World::line(2, RATE);
        let open = world.open(0, 1, dropping).expect("it fits");
        let (begun, mut sent) = (world.now, Vec::new());
        // One conforms. Of the others some are dropped at once, some when it is served, and some are left: the background does not run.
        open.outbox.push_beyond_room(&pattern(1, 0, 200), 1 + others, begun);
        world.nodes[0].handle_ring(open.source, begun);
        let work = world.nodes[0].begin_work(begun).expect("a message");
        assert_eq!(work.kind, WorkKind::Send);
        world.nodes[0].finish_work(work, begun);
        assert_eq!(open.outbox.waiting() > 0, others > 0);
        let noticed = begun + MS(300);
        open.outbox.push_beyond_room(&pattern(1, 1, 200), 1, begun + MS(100));
        world.nodes[0].handle_ring(open.source, noticed);
        let (node, mut out) = (&mut world.nodes[0], [0; 2_000]);
        while let Some(work) = node.begin_work(noticed) {
            node.finish_work(work, noticed);
        }
        while let Some(transmit) = node.poll_transmit(LEFT, noticed + MS(1), &mut out) {
            if transmit.port == Port::Data {
                let (header, _) = Header::parse(&out).expect("a packet");
                sent.push((header.message, header.slack_ns > 0));
            }
        }
        assert_eq!(sent, [(0, false), (1, true)], "{others} others");
    }
}
