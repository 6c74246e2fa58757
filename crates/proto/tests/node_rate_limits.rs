//! The limits of a measurement (`limits::RATE_*`), each crossed: a line h1 - h2 whose wire drains at its own rate.

mod common;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use common::rate::{TRIED as CONFIGURED, measured};
use punctual_proto::api::{Event, MeasuredRate, OpenRequest, Port, RateRefusal, UserId};
use punctual_proto::ids::{Address, LinkId};
use punctual_proto::limits::{
    HEADER_BYTES, RATE_AGAIN, RATE_ANSWER_TIME, RATE_ATTEMPTS_MAX, RATE_DRAIN_TIME, RATE_ERROR_GOOD,
    RATE_ERROR_MAX, RATE_FULL_TIMES, RATE_QUEUED_MAX, RATE_STEP, RATE_TIME, RATE_WAITING_MAX,
};
use punctual_proto::wire::{Header, Kind};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::{Slow, World, line_config, name};

const LINK: LinkId = LinkId(0);
const MS: fn(u64) -> Nanos = Nanos::from_millis;

/// The filler packets of h1.
#[derive(Debug, Default)]
struct Filled {
    packets: u64,
    /// The cookies of all attempts.
    cookies: BTreeSet<u32>,
    /// The next packet's number in the attempt.
    number_next: u64,
    /// Signalling of h2 is lost from then on.
    silent: bool,
}

fn watched(drains: BitRate) -> (World, Rc<RefCell<Filled>>) {
    let mut world = World::line(2, CONFIGURED);
    world.slow = Some(Slow::new(0, drains));
    world.run_for(Nanos::from_secs(3));
    let filled = watch(&mut world);
    (world, filled)
}

fn watch(world: &mut World) -> Rc<RefCell<Filled>> {
    let filled = Rc::<RefCell<Filled>>::default();
    let seen = filled.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        let mut filled = seen.borrow_mut();
        if node == 0 && port == Port::Data {
            let (header, _) = Header::parse(bytes).expect("a packet of ours");
            assert_eq!(header.kind, Kind::BestEffort);
            assert!(bytes[HEADER_BYTES..].iter().all(|byte| *byte == 0), "it holds no data");
            filled.packets += 1;
            if filled.cookies.insert(header.cookie.0) {
                filled.number_next = 0;
            }
            assert_eq!(header.message, filled.number_next, "each packet has a number of its own");
            filled.number_next += 1;
        }
        node == 0 || !filled.silent || port == Port::Data
    }));
    filled
}

fn measure(world: &mut World) -> Result<MeasuredRate, RateRefusal> {
    world.events[0].clear();
    world.nodes[0].measure_rate(LINK, world.now)?;
    measured(world, 0)
}

#[test]
fn a_link_is_filled_for_so_long_and_few_packets_wait_meanwhile() {
    let (mut world, filled) = watched(BitRate(90_000_000));
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    let (mut first, mut last, mut before) = (None, None, 0);
    for _ in 0..2_000 {
        world.run_for(Nanos::from_micros(250));
        let packets = filled.borrow().packets;
        if filled.borrow().cookies.len() == 1 && packets > before {
            first = first.or(Some(world.now));
            last = Some(world.now);
        }
        before = packets;
        let waiting = world.nodes[0].accounts().into_iter();
        let most = waiting.filter(|account| account.what == "best-effort packets").map(|it| it.counted).max();
        assert!(most <= Some(u64::from(RATE_QUEUED_MAX)), "{most:?} wait");
    }
    let took = last.zip(first).map(|(last, first)| last.since(first)).expect("it was filled");
    assert!(took + RATE_STEP * 3 > RATE_TIME && took < RATE_TIME + RATE_STEP * 3, "{took}");
}

#[test]
fn a_silent_neighbour_is_given_up_in_time() {
    // It never replies that it counts; it never reports what it has counted.
    for (silent_after, patience) in [(MS(0), RATE_ANSWER_TIME), (MS(100), RATE_TIME + RATE_DRAIN_TIME)] {
        let (mut world, filled) = watched(BitRate(20_000_000));
        filled.borrow_mut().silent = silent_after == MS(0);
        let began = world.now;
        world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
        world.run_for(silent_after);
        filled.borrow_mut().silent = true;
        assert_eq!(measured(&mut world, 0), Err(RateRefusal::NoAnswer));
        let took = world.now.since(began);
        assert!(took + MS(5) > patience && took < patience + MS(60), "{took} of {patience}");
    }
}

#[test]
fn a_link_that_passes_almost_nothing_gives_no_rate() {
    let (mut world, filled) = watched(BitRate(20_000_000));
    // A packet takes a twelfth of a second, and few may wait.
    let slow = world.slow.as_mut().expect("it drains");
    (slow.rate, slow.wait_max) = (BitRate(150_000), MS(300));
    assert_eq!(measure(&mut world), Err(RateRefusal::TooFew));
    assert_eq!(filled.borrow().cookies.len(), usize::from(RATE_ATTEMPTS_MAX));
}

/// A wire that is stopped for longer than it is filled evenly, each time.
#[test]
fn what_is_too_uneven_is_tried_so_often_and_refused() {
    for (stall_ms, is_good) in [(0, true), (60, false)] {
        let (mut world, filled) = watched(BitRate(20_000_000));
        world.events[0].clear();
        world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
        let mut result = None;
        for step in 0..4_000_u64 {
            // Too often for windows to leave it out; a packet that is handed over now leaves up to 100 ms
            // later.
            if step % 90 == 0 {
                let slow = world.slow.as_mut().expect("it drains");
                slow.stall = (world.now + MS(100), world.now + MS(100 + stall_ms));
            }
            world.run_for(MS(1));
            while let Some(event) = world.events[0].pop_front() {
                if let Event::Rate { result: found, .. } = event {
                    result = Some(found);
                }
            }
            if result.is_some() {
                break;
            }
        }
        let attempts = filled.borrow().cookies.len();
        match (is_good, result.expect("it comes to an end")) {
            (true, Ok(found)) => {
                assert!(attempts == 1 && found.error < RATE_ERROR_GOOD, "{attempts} {found:?}")
            }
            (false, Ok(found)) => {
                assert!(found.error <= RATE_ERROR_MAX && found.error > RATE_ERROR_GOOD, "{found:?}");
                assert_eq!(attempts, usize::from(RATE_ATTEMPTS_MAX));
            }
            (false, Err(RateRefusal::Uneven { error })) => {
                assert!(error > RATE_ERROR_MAX, "{error:?}");
                assert_eq!(attempts, usize::from(RATE_ATTEMPTS_MAX));
            }
            (_, other) => panic!("{stall_ms}: {other:?}"),
        }
        assert_eq!(world.nodes[0].status(Instant(0)).links[0].packets_guaranteed, 0);
    }
}

/// A limited number of requests waits here for a link that is being measured; later ones wait at the
/// neighbour, and none is lost.
#[test]
fn the_number_of_waiters_of_a_measurement_is_bounded() {
    let (mut world, _) = watched(BitRate(20_000_000));
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(MS(50));
    let contract = Contract::new(100, Rate::per_second(1).expect("a rate"), 1, MS(900)).expect("in range");
    let to = Address { port: name("nobody"), host: name("h2") };
    let asked = RATE_WAITING_MAX + 9;
    for _ in 0..asked {
        let to = to.clone();
        let request = OpenRequest { to, contract, user: UserId(0), probe: true, token: None };
        world.nodes[0].open(request, world.now).expect("it can be tried");
    }
    world.run_for(MS(20));
    let answered =
        |world: &World| world.events[0].iter().filter(|event| matches!(event, Event::Probed { .. })).count();
    assert_eq!(answered(&world), 0);
    let probing = world.nodes[0].channels().iter().filter(|channel| channel.state == "probing").count();
    assert_eq!(probing, 9, "those have asked the neighbour");
    world.run_for(Nanos::from_secs(60));
    assert_eq!(answered(&world), asked);
}

/// A driver that repeatedly has no room sets the pace: the rate of received packets is all that the link
/// drains from here.
#[test]
fn a_driver_that_is_full_again_and_again_sets_the_pace() {
    for (times, at_least) in [(RATE_FULL_TIMES - 1, true), (RATE_FULL_TIMES, false)] {
        let mut world = World::line(2, CONFIGURED);
        world.run_for(Nanos::from_secs(3));
        world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
        world.run_for(MS(50));
        for _ in 0..times {
            let now = world.now;
            world.nodes[0].handle_full(LINK, now);
            world.run_for(MS(2));
        }
        let found = measured(&mut world, 0).expect("it is even");
        assert_eq!(found.at_least, at_least, "{times} times: {found:?}");
    }
}

/// The neighbour measures another link, and is asked again, but not after each of its packets.
#[test]
fn a_link_that_measures_its_rate_retries_a_busy_neighbour() {
    let configs = (0..3).map(|index| {
        let mut config = line_config(index, 3, CONFIGURED);
        config.signalling.hello_interval = MS(100);
        config.links[0].rate_auto = index == 0;
        config
    });
    let mut world = World::of(configs.collect());
    let mut refused = Vec::new();
    for _ in 0..20_000 {
        // It is always about to measure.
        let now = world.now;
        let _ = world.nodes[1].measure_rate(LinkId(1), now);
        world.run_for(MS(1));
        while let Some(event) = world.events[0].pop_front() {
            if let Event::Rate { result: Err(RateRefusal::Busy), .. } = event {
                refused.push(world.now);
            }
        }
        world.events[1].clear();
    }
    assert!(refused.len() > 5, "{refused:?}");
    let apart: Vec<Nanos> = refused.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    let least = apart.iter().min().expect("several");
    assert!(*least + MS(2) >= RATE_AGAIN && *least <= RATE_AGAIN + MS(250), "{apart:?}");
}
