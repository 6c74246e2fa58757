//! Interactions of a measurement: a neighbour's restart, messages of a measurement that was given up, a host
//! that stops, other links with due measurements, a waiting channel.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use common::rate::{TRIED, measured};
use punctual_proto::api::{Event, LinkChange, OpenRequest, Port, RateRefusal, RefuseCause, UserId};
use punctual_proto::config::LinkConfig;
use punctual_proto::ids::{Address, ChannelNumber, Epoch, LinkId};
use punctual_proto::limits::{BEST_EFFORT_PACKETS_MAX, RATE_ANSWER_TIME, RATE_DRAIN_TIME, RATE_TIME};
use punctual_proto::node::Node;
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, Rate};
use punctual_rig::{Slow, TestOutbox, World, line_config, name};

const DRAINS: BitRate = BitRate(20_000_000);
const LINK: LinkId = LinkId(0);
const MILLI: Nanos = Nanos::from_millis(1);

fn met(hosts: usize) -> World {
    let mut world = World::line(hosts, TRIED);
    world.slow = Some(Slow::new(0, DRAINS));
    world.run_for(Nanos::from_secs(3));
    world
}

/// The names of the measurements whose packets h1 has sent.
fn cookies(world: &mut World) -> Rc<RefCell<BTreeSet<u32>>> {
    let seen = Rc::<RefCell<BTreeSet<u32>>>::default();
    let noted = seen.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        if node == 0 && port == Port::Data {
            noted.borrow_mut().insert(Header::parse(bytes).expect("a packet of ours").0.cookie.0);
        }
        true
    }));
    seen
}

fn words(world: &World) -> usize {
    world.events[0].iter().filter(|event| matches!(event, Event::Rate { .. })).count()
}

/// Channels wait no longer than the neighbour takes to restart.
#[test]
fn another_life_of_the_neighbour_ends_it() {
    let mut world = met(2);
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(MILLI * 100);
    let config = line_config(1, 2, TRIED);
    world.restart(
        1,
        Node::new(punctual_proto::config::NodeConfig { epoch: Epoch(2), ..config }, 7, world.now).unwrap(),
    );
    let began = world.now;
    assert_eq!(measured(&mut world, 0), Err(RateRefusal::NoNeighbour));
    assert!(world.now.since(began) < RATE_ANSWER_TIME, "{:?}", world.now.since(began));
    world.run_for(Nanos::from_secs(2));
    world.nodes[0].measure_rate(LINK, world.now).expect("the link is open again");
    assert!(measured(&mut world, 0).is_ok());
}

/// The neighbour is stopped, is asked twice, and replies to both: only the reply to the present request
/// counts.
#[test]
fn answers_to_an_abandoned_measurement_are_ignored() {
    for stops in [false, true] {
        let mut world = met(2);
        let seen = cookies(&mut world);
        world.still = Some((1, world.now + RATE_ANSWER_TIME + MILLI * 50));
        world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
        assert_eq!(measured(&mut world, 0), Err(RateRefusal::NoAnswer));
        world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
        if stops {
            world.nodes[1].shutdown(world.now);
        }
        let again = measured(&mut world, 0);
        match stops {
            true => {
                assert_eq!((again, seen.borrow().len()), (Err(RateRefusal::Busy), 0), "it begins nothing new")
            }
            false => assert!(again.is_ok() && seen.borrow().len() == 1, "{again:?}"),
        }
        assert_eq!(words(&world), 0, "one word each");
    }
}

/// A DONE that arrives after the neighbour has given the measurement up ends nothing, and gets no reply.
#[test]
fn done_comes_too_late() {
    let mut world = met(2);
    // DONE and its retransmissions are lost until the next one is too late; neighbours are not silent for
    // that long.
    let lost = [world.now + MILLI * 250, world.now + RATE_DRAIN_TIME - MILLI * 1_250];
    let (clock, sent_count) = (Rc::<Cell<Instant>>::default(), Rc::<Cell<u32>>::default());
    let (now, count) = (clock.clone(), sent_count.clone());
    world.tap = Some(Box::new(move |node, port, _| {
        count.set(count.get() + u32::from(port == Port::Signalling));
        node == 1 || port == Port::Data || now.get() < lost[0] || now.get() > lost[1]
    }));
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    let began = world.now;
    let repeated = |world: &World| world.nodes[0].status(world.now).retransmissions;
    let (before, mut sent_before) = (repeated(&world), 0);
    while repeated(&world) < before + 6 {
        sent_before = sent_count.get();
        clock.set(world.now);
        world.run_for(MILLI);
    }
    assert_eq!(words(&world), 1, "no answer");
    assert!(world.now.since(began) > RATE_TIME + RATE_DRAIN_TIME, "the neighbour has given it up");
    world.run_for(MILLI * 100);
    assert_eq!(sent_count.get() - sent_before, 2, "DONE, and that it was heard");
    let is_down = |event: &Event| matches!(event, Event::Link { change: LinkChange::Down, .. });
    assert!(!world.events.iter().flatten().any(is_down), "the link was there all the time");
    // Both are free for another one, and for channels.
    assert_free(&mut world);
}

/// If a host is stopped for longer than the neighbour waits, the neighbour gives it up, and the measurement
/// with it.
#[test]
fn a_host_that_stopped_while_it_filled_the_link_has_no_result() {
    let mut world = met(2);
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(MILLI * 100);
    let still = RATE_DRAIN_TIME + Nanos::from_secs(1);
    world.still = Some((0, world.now + still));
    world.run_for(still + MILLI);
    assert_eq!(measured(&mut world, 0), Err(RateRefusal::NoNeighbour));
    world.run_for(Nanos::from_secs(2));
    assert_free(&mut world);
}

/// The link can be measured, and used by a channel.
fn assert_free(world: &mut World) {
    world.events[0].clear();
    world.tap = None;
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    assert!(measured(world, 0).is_ok());
    let contract = Contract::new(200, Rate::per_second(200).unwrap(), 1, MILLI * 50).unwrap();
    assert!(world.open(0, 1, contract).is_ok());
}

/// A host measures one link at a time: both of one between find their rates, one after the other.
#[test]
fn a_host_between_two_links_finds_both_rates() {
    let mut configs: Vec<_> = (0..3).map(|index| line_config(index, 3, TRIED)).collect();
    configs[1].links.iter_mut().for_each(|link| link.rate_auto = true);
    let mut world = World::of(configs);
    world.slow = Some(Slow::new(1, DRAINS));
    world.run_for(Nanos::from_secs(12));
    let links = world.nodes[1].status(world.now).links;
    let known: Vec<_> = links.iter().map(|link| link.rate.measured.expect("it is measured")).collect();
    assert!(known[0].rate > BitRate(60_000_000) && known[0].at_least, "{known:?}");
    assert!(known[1].rate.0.abs_diff(DRAINS.0) < DRAINS.0 / 20, "{known:?}");
}

#[test]
fn a_host_that_stops_measures_no_link_by_itself() {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, TRIED)).collect();
    configs[0].links[0].rate_auto = true;
    let mut world = World::of(configs);
    let seen = cookies(&mut world);
    world.nodes[0].shutdown(world.now);
    world.run_for(Nanos::from_secs(5));
    let rate = &world.nodes[0].status(world.now).links[0].rate;
    assert_eq!((rate.measured, rate.refused, seen.borrow().len(), words(&world)), (None, None, 0, 0));
}

/// What waits for a link is refused when the host stops, wherever it came from: nobody waits for the
/// measurement, or for an answer that does not come any more.
#[test]
fn a_host_that_stops_refuses_what_waits_for_its_link() {
    let mut world = met(3);
    let (node, link) = (1, LinkId(1));
    world.nodes[node].measure_rate(link, world.now).expect("nobody uses it");
    world.run_for(MILLI * 50);
    let contract = Contract::new(200, Rate::per_second(200).unwrap(), 1, MILLI * 50).unwrap();
    let ask = |world: &mut World, from: usize| {
        let to = Address { port: name("port"), host: name("h3") };
        let request = OpenRequest { to, contract, user: UserId(0), probe: false, token: None };
        world.nodes[from].open(request, world.now).expect("it can be tried")
    };
    // One that passes through, and one that starts here.
    let asked = [0, 1].map(|from| (from, ask(&mut world, from)));
    world.run_for(MILLI * 20);
    let refused = |world: &World| {
        asked.map(|(from, id)| {
            world.events[from].iter().find_map(|event| match event {
                Event::Refused { channel, refusal } if *channel == id => Some(refusal.cause.clone()),
                _ => None,
            })
        })
    };
    assert_eq!(refused(&world), [None, None], "they wait");
    world.nodes[node].shutdown(world.now);
    world.run_for(MILLI * 10);
    let rate = world.nodes[node].status(world.now).links[1].rate;
    assert_eq!((rate.measured, rate.refused), (None, None), "it still is under way");
    assert_eq!(refused(&world), [const { Some(RefuseCause::Exhausted) }; 2]);
}

/// A measured rate stays when another measurement fails, and admission still uses it.
#[test]
fn a_measurement_that_fails_takes_nothing_back() {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, TRIED)).collect();
    configs[0].links[0].rate_auto = true;
    let mut world = World::of(configs);
    world.slow = Some(Slow::new(0, DRAINS));
    let found = measured(&mut world, 0).expect("it measures itself");
    world.still = Some((1, world.now + RATE_ANSWER_TIME + MILLI * 50));
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    assert_eq!(measured(&mut world, 0), Err(RateRefusal::NoAnswer));
    let rate = &world.nodes[0].status(world.now).links[0].rate;
    assert_eq!(
        (rate.measured, rate.refused, rate.rate),
        (Some(found), Some(RateRefusal::NoAnswer), found.rate)
    );
    // The neighbour, whose permission came too late, waits for as long as a measurement may take.
    world.run_for(RATE_DRAIN_TIME + Nanos::from_secs(1));
    let contract = Contract::new(200, Rate::per_second(200).unwrap(), 1, MILLI * 50).unwrap();
    assert!(world.open(0, 1, contract).is_ok());
}

/// While a link measures itself, it does not begin another measurement, however many HELLOs of the neighbour
/// arrive.
#[test]
fn one_that_is_under_way_is_not_begun_again() {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, TRIED)).collect();
    configs[0].links[0].rate_auto = true;
    let mut world = World::of(configs);
    world.slow = Some(Slow::new(0, DRAINS));
    // Filler packets are lost: each attempt receives too few. Then the host tries again by itself.
    world.tap = Some(Box::new(|_, port, _| port != Port::Data));
    assert_eq!(measured(&mut world, 0), Err(RateRefusal::TooFew));
    let seen = cookies(&mut world);
    assert!(measured(&mut world, 0).is_ok());
    assert!(seen.borrow().len() <= 4, "attempts of one measurement: {}", seen.borrow().len());
    world.run_for(Nanos::from_secs(3));
    assert_eq!(words(&world), 0, "it is known now");
}

/// The link cannot carry its own signalling at its drain rate: that rate is not used, and this is reported.
#[test]
fn a_link_that_cannot_carry_its_signalling_has_no_rate() {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, TRIED)).collect();
    configs[0].links[0].rate_auto = true;
    configs[0].signalling.packets_per_second = 1_000;
    let mut world = World::of(configs);
    world.slow = Some(Slow::new(0, BitRate(6_000_000)));
    assert_eq!(measured(&mut world, 0), Err(RateRefusal::TooSlow));
    let rate = &world.nodes[0].status(world.now).links[0].rate;
    assert_eq!((rate.measured, rate.rate), (None, TRIED));
}

/// A waiting channel is not delayed for a smaller error.
#[test]
fn a_channel_that_waits_ends_it_with_what_is_known() {
    let attempts = |waits: bool| {
        let mut world = met(2);
        let seen = cookies(&mut world);
        world.slow.as_mut().unwrap().wait_max = MILLI * 2;
        // Each attempt has a stall, at some time: no result is good.
        world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
        let began = world.now;
        if waits {
            let _ = world.nodes[1].listen(name("port"));
            let to = Address { port: name("port"), host: name("h2") };
            let contract = Contract::new(200, Rate::per_second(200).unwrap(), 1, MILLI * 50).unwrap();
            let request = OpenRequest { to, contract, user: UserId(0), probe: true, token: None };
            world.nodes[0].open(request, world.now).expect("the request can be tried");
        }
        while words(&world) == 0 && world.now.since(began) < Nanos::from_secs(10) {
            let from = world.now + MILLI * 4;
            world.slow.as_mut().unwrap().stall = (from, from + MILLI * 10);
            world.run_for(MILLI * 40);
        }
        let seen = seen.borrow().len();
        (seen, words(&world))
    };
    let (patient, waiting) = (attempts(false), attempts(true));
    assert_eq!((patient.1, waiting), (1, (1, 1)), "one attempt where somebody waits");
    assert!(patient.0 > 1, "{patient:?}");
}

/// Others have all places of queue 2 when the measurement begins: it fills the link as soon as they leave some.
#[test]
fn a_measurement_gets_its_places_in_a_full_queue() {
    let config = |index| {
        let mut config = line_config(index, 2, TRIED);
        (config.fragment_bytes, config.cpu.best_effort_cpu_cap) = (64, Ppm::ONE);
        let best_effort = |link: &mut LinkConfig| {
            (link.best_effort_flow_bytes_max, link.best_effort_cap) = (8 << 20, Ppm(1));
        };
        config.links.iter_mut().for_each(best_effort);
        config
    };
    let mut world = World::of((0..2).map(config).collect());
    world.run_for(Nanos::from_secs(3));
    // Each flow takes half of the places that are free.
    for number in 0..16 {
        let outbox = TestOutbox::new(64, 8_320);
        while outbox.send(&[7; 8_320], world.now) {}
        let to = format!("bulk{number}@h2").parse().expect("an address");
        world.nodes[0].open_best_effort(to, 8_320, outbox, world.now).expect("a route");
        world.run_for(MILLI * 200);
    }
    let accounts = world.nodes[0].accounts();
    let queued = accounts.iter().find(|account| account.what == "best-effort packets").expect("an account");
    assert_eq!(queued.counted, u64::from(BEST_EFFORT_PACKETS_MAX));
    let fills = Rc::<Cell<u32>>::default();
    let seen = fills.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        if node == 0 && port == Port::Data {
            let is_filler =
                Header::parse(bytes).expect("a packet of ours").0.path.channel == ChannelNumber(0);
            seen.set(seen.get() + u32::from(is_filler));
        }
        true
    }));
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(RATE_TIME);
    assert!(fills.get() > 100, "{} packets to measure with", fills.get());
    assert_eq!(world.nodes[0].status(world.now).links[0].best_effort_dropped, 0, "and takes nobody's");
}
