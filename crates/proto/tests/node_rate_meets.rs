//! What a measurement meets: a neighbour of another life, words of a measurement that was given up, a host that stops, other
//! links that want to be measured, a channel that waits.

mod common;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use common::rate::{TRIED, measured};
use punctual_proto::api::{Event, OpenRequest, Port, RateRefusal, UserId};
use punctual_proto::ids::{Address, Epoch, LinkId};
use punctual_proto::limits::{RATE_ANSWER_TIME, RATE_DRAIN_TIME};
use punctual_proto::node::Node;
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{Slow, World, line_config, name};

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

/// Channels wait no longer than the neighbour's next life takes to say that it is there.
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

/// The neighbour stands still, is asked twice, and answers both: only the answer to what is asked now counts.
#[test]
fn answers_to_what_was_given_up_say_nothing() {
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

/// A DONE that comes when the neighbour has given the measurement up ends nothing, and is not answered.
#[test]
fn a_host_that_stood_still_while_it_filled_the_link_is_done_too_late() {
    let mut world = met(2);
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(MILLI * 100);
    let still = RATE_DRAIN_TIME + Nanos::from_secs(1);
    world.still = Some((0, world.now + still));
    world.run_for(still + MILLI);
    assert!(measured(&mut world, 0).is_err());
    // Both are free for another one, and for channels.
    world.run_for(Nanos::from_secs(2));
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    assert!(measured(&mut world, 0).is_ok());
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

/// What was measured stays known when another measurement fails, and is still what admission counts with.
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
    // The neighbour, which came to say yes too late, waits for as long as a measurement may take.
    world.run_for(RATE_DRAIN_TIME + Nanos::from_secs(1));
    let contract = Contract::new(200, Rate::per_second(200).unwrap(), 1, MILLI * 50).unwrap();
    assert!(world.open(0, 1, contract).is_ok());
}

/// While it measures by itself it does not begin once more, however often the neighbour says that it is there.
#[test]
fn one_that_is_under_way_is_not_begun_again() {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, TRIED)).collect();
    configs[0].links[0].rate_auto = true;
    let mut world = World::of(configs);
    world.slow = Some(Slow::new(0, DRAINS));
    // What fills the link is lost: each attempt finds too little. Then it tries again by itself.
    world.tap = Some(Box::new(|_, port, _| port != Port::Data));
    assert_eq!(measured(&mut world, 0), Err(RateRefusal::TooFew));
    let seen = cookies(&mut world);
    assert!(measured(&mut world, 0).is_ok());
    assert!(seen.borrow().len() <= 4, "attempts of one measurement: {}", seen.borrow().len());
    world.run_for(Nanos::from_secs(3));
    assert_eq!(words(&world), 0, "it is known now");
}

/// The link cannot carry its own signalling at what it drains: it is not used at that rate, and that is said.
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

/// Who waits for a channel does not wait for a better figure.
#[test]
fn a_channel_that_waits_ends_it_with_what_is_known() {
    let attempts = |waits: bool| {
        let mut world = met(2);
        let seen = cookies(&mut world);
        world.slow.as_mut().unwrap().wait_max = MILLI * 2;
        // Each attempt sees a stall, whenever it falls: no figure is good.
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
