//! The rate of a link is measured with the neighbour's help (ADR 0030): within its stated error, without
//! effect on channels, and a link that measures itself admits by it. In a line h1 - h2 (- h3) a bottleneck
//! below h1's driver drains at its own rate.

mod common;

use common::rate::{TRIED as CONFIGURED, is_right, measured, wrong};
use punctual_proto::api::{
    Cause, Event, MeasuredRate, OpenRequest, Port, RateRefusal, RefuseCause, RtuClass, RtuCost, RtuRefusal,
    RtuSending, RtuTarget, RtuTerms, UserId,
};
use punctual_proto::ids::{Address, ChannelNumber, LinkId, NodeId, PathId};
use punctual_proto::limits::{RATE_ERROR_GOOD, RATE_TIME};
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, Rate};
use punctual_rig::{Slow, TestOutbox, World, line_config, name};

const DRAINS: BitRate = BitRate(20_000_000);
const LINK: LinkId = LinkId(0);

fn contract() -> Contract {
    Contract::new(200, Rate::per_second(200).unwrap(), 1, Nanos::from_millis(50)).unwrap()
}

fn slow_world(hosts: usize) -> World {
    let mut world = World::line(hosts, CONFIGURED);
    world.slow = Some(Slow::new(0, DRAINS));
    world.run_for(Nanos::from_secs(3));
    world
}

/// `h1` finds its link out by itself; the ceiling is what is configured.
fn auto_world() -> World {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, CONFIGURED)).collect();
    configs[0].links[0].rate_auto = true;
    let mut world = World::of(configs);
    world.slow = Some(Slow::new(0, DRAINS));
    world
}

/// The drain rate of its link that `h1` reports, if it reports the link as slow.
fn slow_link(world: &World) -> Option<BitRate> {
    let broken = world.nodes[0].status(world.now).broken;
    let [broken] = &broken[..] else { return None };
    assert_eq!(broken.name(), "link h1-h2");
    match broken.cause {
        Cause::SlowLink { drains, configured: CONFIGURED } => Some(drains),
        other => panic!("{other:?}"),
    }
}

fn measure(world: &mut World) -> Result<MeasuredRate, RateRefusal> {
    world.nodes[0].measure_rate(LINK, world.now)?;
    measured(world, 0)
}

fn ask(world: &mut World) -> punctual_proto::ids::ChannelId {
    let _ = world.nodes[1].listen(name("port"));
    let to = Address { port: name("port"), host: name("h2") };
    let request = OpenRequest { to, contract: contract(), user: UserId(0), probe: false, token: None };
    world.nodes[0].open(request, world.now).expect("the request can be tried")
}

#[test]
fn a_link_that_drains_slower_than_configured_is_measured_within_its_error() {
    for (burst, drains) in [(0, 20_000_000), (40, 20_000_000), (0, 1_500_000), (0, 60_000_000)] {
        let mut world = slow_world(2);
        let slow = world.slow.as_mut().unwrap();
        (slow.burst, slow.rate) = (Nanos::from_millis(burst), BitRate(drains));
        let measured = measure(&mut world).expect("it can be measured");
        assert!(is_right(measured, BitRate(drains)) && !measured.at_least, "{drains} {burst} {measured:?}");
        assert!(measured.error <= Ppm(if drains > 10_000_000 { 20_000 } else { 60_000 }), "{measured:?}");
        let status = &world.nodes[0].status(world.now).links[0];
        assert_eq!((status.rate.measured, status.rate.rate), (Some(measured), CONFIGURED));
        // The filling was deliberate: nothing is reported as late. But no more may be promised than the link
        // drains.
        world.run_for(Nanos::from_secs(3));
        assert_eq!(slow_link(&world), Some(measured.rate));
        assert_eq!(world.nodes[0].status(world.now).broken[0].late.times, 0);
        assert_eq!(world.nodes[1].status(world.now).links[0].late_signals.times, 0);
    }
}

#[test]
fn a_link_that_this_host_cannot_fill_drains_so_much_at_least() {
    let mut world = slow_world(2);
    world.slow = None;
    let measured = measure(&mut world).expect("it can be measured");
    assert!(measured.at_least && measured.rate.0 > 90_000_000 && measured.rate <= CONFIGURED, "{measured:?}");
    // A ceiling above the configured rate is tried, and the configured rate stays in use.
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, CONFIGURED)).collect();
    configs[0].links[0].rate_ceiling = Some(BitRate(400_000_000));
    let mut world = World::of(configs);
    world.slow = Some(Slow::new(0, BitRate(200_000_000)));
    world.run_for(Nanos::from_secs(3));
    let measured = measure(&mut world).expect("it can be measured");
    assert!(is_right(measured, BitRate(200_000_000)) && !measured.at_least, "{measured:?}");
    assert_eq!(world.nodes[0].status(world.now).links[0].rate.rate, CONFIGURED);
}

/// What a program's handler sends would have its slots in the queue that the measurement fills.
#[test]
fn no_handler_gets_slots_of_a_link_while_it_is_measured() {
    let mut world = slow_world(2);
    let terms = RtuTerms {
        class: RtuClass::periodic(Nanos::from_millis(10), 1),
        deadline: None,
        quantum: 1,
        cost: RtuCost { run: Nanos(1_000), unit: Nanos(1_000) },
    };
    let register = |world: &mut World| {
        let sending = RtuSending {
            to: RtuTarget::Port(Address { port: name("in"), host: name("h2") }),
            packets: 1,
            payload_bytes: 100,
        };
        let now = world.now;
        world.nodes[0].register_sender(terms, &sending, TestOutbox::new(8, 100), now)
    };
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    assert_eq!(register(&mut world), Err(RtuRefusal::Rate(RateRefusal::Busy)));
    measured(&mut world, 0).expect("a rate");
    world.run_for(Nanos::from_secs(1));
    register(&mut world).expect("it is free again");
}

#[test]
fn it_is_refused_while_a_channel_uses_the_link_in_any_role() {
    // Through h2, and in the other direction.
    for (from, to) in [(0, 2), (2, 0)] {
        let mut world = World::line(3, CONFIGURED);
        let open = world.open(from, to, contract()).expect("it fits");
        for (node, link) in [(0, LINK), (1, LINK), (1, LinkId(1)), (2, LINK)] {
            let refused = world.nodes[node].measure_rate(link, world.now);
            assert_eq!(refused, Err(RateRefusal::InUse { channels: 1, there: false }));
        }
        world.nodes[from].close(open.source, world.now).expect("it is open");
        world.run_for(Nanos::from_secs(2));
        assert!(measure(&mut world).is_ok());
    }
}

#[test]
fn a_missing_neighbour_is_reported() {
    let mut world = World::line(2, CONFIGURED);
    world.tap = Some(Box::new(|_, _, _| false));
    world.run_for(Nanos::from_secs(1));
    assert_eq!(world.nodes[0].measure_rate(LINK, world.now), Err(RateRefusal::NoNeighbour));
}

#[test]
fn an_open_during_a_measurement_waits_and_is_not_refused() {
    let mut world = slow_world(2);
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(Nanos::from_millis(100));
    let began = world.now;
    let open = world.open(0, 1, contract()).expect("it is admitted");
    let waited = world.now.since(began);
    assert!(waited > Nanos::from_millis(150) && waited < Nanos::from_millis(700), "{waited}");
    assert!(world.nodes[0].status(world.now).links[0].rate.measured.is_some(), "it was finished");
    // All filler packets have left: nothing is late.
    world.slow = None;
    open.outbox.send(&[7; 200], world.now);
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(Nanos::from_millis(100));
    assert!(open.inbox.recv(|_, info| assert_eq!(info.len, 200)));
    assert_eq!(world.nodes[1].channel(open.sink).unwrap().counters.misses, 0);
}

#[test]
fn one_that_comes_from_the_other_side_waits_too() {
    let mut world = slow_world(2);
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(Nanos::from_millis(100));
    let began = world.now;
    world.open(1, 0, contract()).expect("it is admitted");
    assert!(world.now.since(began) > Nanos::from_millis(150));
}

#[test]
fn closing_a_waiting_channel_notifies_its_application_and_the_measurement_goes_on() {
    let mut world = slow_world(2);
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(Nanos::from_millis(50));
    let channel = ask(&mut world);
    world.run_for(Nanos::from_millis(20));
    world.nodes[0].close(channel, world.now).expect("it waits");
    world.run_for(Nanos::from_millis(20));
    let closed = |event: &Event| matches!(event, Event::Closed { channel: of, .. } if *of == channel);
    assert!(world.events[0].iter().any(closed));
    assert!(is_right(measured(&mut world, 0).expect("it goes on"), DRAINS));
    assert_eq!(world.nodes[0].channels().len(), 0);
}

#[test]
fn a_neighbour_that_goes_away_ends_it_and_lets_others_on() {
    let mut world = slow_world(2);
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(Nanos::from_millis(100));
    let channel = ask(&mut world);
    world.tap = Some(Box::new(|_, _, _| false));
    assert!(measured(&mut world, 0).is_err());
    let refused = |event: &Event| matches!(event, Event::Refused { channel: of, .. } if *of == channel);
    world.run_for(Nanos::from_secs(20));
    assert!(world.events[0].iter().any(refused), "{:?}", world.events[0]);
}

#[test]
fn a_link_that_measures_itself_admits_nothing_before_and_by_the_measured_rate_after() {
    let mut world = auto_world();
    let early = ask(&mut world);
    world.run_for(Nanos::from_millis(1));
    let cause = world.events[0].iter().find_map(|event| match event {
        Event::Refused { channel, refusal } if *channel == early => Some(refusal.cause.clone()),
        _ => None,
    });
    assert_eq!(cause, Some(RefuseCause::RateUnknown(RateRefusal::NoNeighbour)));
    assert!(cause.unwrap().to_string().contains("rate = \"auto\""));
    let found = measured(&mut world, 0).expect("it measures itself");
    assert!(is_right(found, DRAINS), "{found:?}");
    let rate = world.nodes[0].status(world.now).links[0].rate;
    assert!(rate.is_known() && rate.rate == found.rate && rate.rate.less(rate.error) <= DRAINS, "{rate:?}");
    // More than the wire drains, less than the ceiling: 25 Mbit/s.
    let greedy = Contract::new(12_500, Rate::per_second(250).unwrap(), 1, Nanos::from_millis(100)).unwrap();
    let refused = world.open(0, 1, greedy).expect_err("the wire does not carry it");
    let Event::Refused { refusal, .. } = refused else { panic!("{refused:?}") };
    assert!(matches!(refusal.cause, RefuseCause::Stage { .. }), "{refusal}");
    // 15 Mbit/s fits, and is in time on that wire.
    let modest = Contract { rate_max: Rate::per_second(150).unwrap(), ..greedy };
    let open = world.open(0, 1, modest).expect("it fits");
    for number in 0..150u64 {
        open.outbox.send(&[number as u8; 12_500], world.now);
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(Nanos(6_666_667));
        while open.inbox.recv(|_, _| {}) {}
    }
    let counters = world.nodes[1].channel(open.sink).unwrap().counters;
    assert!(counters.messages_out >= 148 && counters.misses == 0, "{counters:?}");
}

/// A measured rate equals a configured one: the same channel gets the same grants of all hosts.
#[test]
fn a_channel_over_a_measured_link_is_as_over_one_that_is_configured_so() {
    // Half a millisecond between messages: a window of large packets at the measured rate is some of them at once.
    let often = Contract::new(64, Rate::per_second(2_000).unwrap(), 1, Nanos::from_millis(60)).unwrap();
    let mut found = auto_world();
    let rate = measured(&mut found, 0).expect("it measures itself");
    let configured = |rate: BitRate, error: Ppm| {
        let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, CONFIGURED)).collect();
        (configs[0].links[0].rate, configs[0].links[0].rate_error) = (rate, error);
        World::of(configs)
    };
    let used = found.nodes[0].status(found.now).links[0].rate;
    assert_eq!(used.rate, rate.rate);
    let of = |mut world: World| {
        let open = world.open(0, 1, often).expect("it fits");
        (open.grant.stages, [0, 1].map(|node: usize| world.nodes[node].status(world.now).buffer_bytes))
    };
    let found = of(found);
    assert_eq!(found, of(configured(used.rate, used.error)));
    assert!(
        found.1[1] > of(configured(CONFIGURED, used.error)).1[1],
        "the rate is in the receiver's buffers"
    );
}

#[test]
fn it_measures_itself_again_in_another_life_of_the_neighbour() {
    let mut world = auto_world();
    let found = measured(&mut world, 0).expect("it measures itself");
    world.slow.as_mut().unwrap().rate = BitRate(40_000_000);
    world.run_for(Nanos::from_secs(3));
    assert_eq!(world.nodes[0].status(world.now).links[0].rate.measured, Some(found), "not of itself");
    let mut config = line_config(1, 2, CONFIGURED);
    config.epoch = punctual_proto::ids::Epoch(2);
    world.restart(1, punctual_proto::node::Node::new(config, 7, world.now).unwrap());
    let again = measured(&mut world, 0).expect("it measures itself again");
    assert!(is_right(again, BitRate(40_000_000)), "{again:?}");
}

#[test]
fn two_neighbours_that_want_to_measure_at_once_do_so_one_after_the_other() {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, CONFIGURED)).collect();
    configs.iter_mut().for_each(|config| config.links[0].rate_auto = true);
    let mut world = World::of(configs);
    world.slow = Some(Slow::new(0, DRAINS));
    world.run_for(Nanos::from_secs(8));
    let rate = |node: usize, now: Instant| world.nodes[node].status(now).links[0].rate;
    let (there, back) = (rate(0, world.now), rate(1, world.now));
    assert!(is_right(there.measured.expect("measured"), DRAINS), "{there:?}");
    assert!(back.measured.is_some_and(|back| back.at_least && back.rate.0 > 90_000_000), "{back:?}");
}

#[test]
fn what_a_link_drains_is_seen_while_it_is_used() {
    let mut world = slow_world(2);
    assert_eq!(world.nodes[0].status(world.now).links[0].rate.observed, None);
    let outbox = TestOutbox::new(1, 1_400);
    let to = Address { port: name("bulk"), host: name("h2") };
    let flow = world.nodes[0].open_best_effort(to, 1_400, outbox.clone(), world.now).expect("a flow");
    for _ in 0..500 {
        outbox.push_beyond_room(&[7; 1_400], 60, world.now);
        world.nodes[0].handle_ring(flow, world.now);
        world.run_for(Nanos::from_millis(10));
    }
    let status = &world.nodes[0].status(world.now).links[0];
    let seen = status.rate.observed.expect("the link was behind");
    assert!(!seen.at_least && is_right(MeasuredRate { error: Ppm(20_000), ..seen }, DRAINS), "{seen:?}");
    assert_eq!((status.rate.rate, status.rate.measured), (CONFIGURED, None));
    // No packets were sent in the other direction.
    assert_eq!(world.nodes[1].status(world.now).links[0].rate.observed, None);
}

#[test]
fn on_every_wire_the_true_rate_is_within_the_stated_error() {
    for seed in 0..300 {
        assert_eq!(wrong(seed), None, "seed {seed}");
    }
}

#[test]
fn other_traffic_on_the_link_is_no_part_of_the_error_that_is_not_stated() {
    // It is in the same queues; with a wire that is not filled, and one that is.
    for drains in [20_000_000, 80_000_000] {
        let mut world = slow_world(2);
        world.slow.as_mut().unwrap().rate = BitRate(drains);
        let outbox = TestOutbox::new(1, 1_400);
        let to = Address { port: name("bulk"), host: name("h2") };
        let flow = world.nodes[0].open_best_effort(to, 1_400, outbox.clone(), world.now).expect("a flow");
        outbox.push_beyond_room(&[7; 1_400], 6_000, world.now);
        world.nodes[0].handle_ring(flow, world.now);
        let found = measure(&mut world).expect("it can be measured");
        assert!(is_right(found, BitRate(drains)), "{drains}: {found:?}");
        assert!(found.rate.0 > drains / 10 * 8, "a half is the other flow's: {found:?}");
    }
}

#[test]
fn a_refresh_of_what_waits_does_not_end_it() {
    let mut configs: Vec<_> = (0..3).map(|index| line_config(index, 3, CONFIGURED)).collect();
    // Refreshed each 100 ms.
    configs.iter_mut().for_each(|config| config.signalling.lease = Nanos::from_millis(500));
    let mut world = World::of(configs);
    world.slow = Some(Slow::new(0, DRAINS));
    world.run_for(Nanos::from_secs(3));
    // h1 fills the link to h2; the CREATE from h3 waits at h2 for it.
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(Nanos::from_millis(20));
    let began = world.now;
    world.open(2, 0, contract()).expect("it is admitted");
    assert!(world.now.since(began) > Nanos::from_millis(250));
}

#[test]
fn a_neighbour_that_never_sends_done_delays_others_by_a_bounded_time() {
    // h1 fills the link to h2 and then sends nothing any more; h3 requests a channel to it meanwhile, and one
    // to h2.
    let mut world = slow_world(3);
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    world.run_for(Nanos::from_millis(100));
    world.tap = Some(Box::new(|node, _, _| node != 0));
    let to = Address { port: name("port"), host: name("h1") };
    let request = OpenRequest { to, contract: contract(), user: UserId(0), probe: false, token: None };
    let waits = world.nodes[2].open(request, world.now).expect("the request can be tried");
    world.open(2, 1, contract()).expect("another link is nobody's business");
    let refused = |world: &World| {
        let is = |event: &Event| matches!(event, Event::Refused { channel, .. } if *channel == waits);
        world.events[2].iter().any(is)
    };
    assert!(!refused(&world));
    world.run_for(Nanos::from_secs(7));
    assert!(refused(&world), "{:?}", world.events[2]);
}

/// A neighbour that requests again has given up its earlier request: requests that wait for that one are
/// served first, and it gets the reply.
#[test]
fn waiters_of_an_abandoned_measurement_are_served_before_the_next() {
    let mut world = slow_world(2);
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    // All replies of h2 are lost for as long as h1 waits for them; h2 continues to wait for the next message.
    world.tap = Some(Box::new(|node, _, _| node == 0));
    world.run_for(Nanos::from_millis(1_900));
    let to = Address { port: name("port"), host: name("h1") };
    world.nodes[0].listen(name("port")).expect("free");
    let request = OpenRequest { to, contract: contract(), user: UserId(0), probe: true, token: None };
    let waits = world.nodes[1].open(request, world.now).expect("the request can be tried");
    assert_eq!(measured(&mut world, 0), Err(RateRefusal::NoAnswer));
    let answered = |world: &World| {
        world.events[1]
            .iter()
            .any(|event| matches!(event, Event::Probed { channel, .. } if *channel == waits))
    };
    assert!(!answered(&world));
    let filled = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = filled.clone();
    world.tap = Some(Box::new(move |_, port, _| {
        count.set(count.get() + u32::from(port == Port::Data));
        true
    }));
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    let began = world.now;
    while !answered(&world) {
        world.run_for(Nanos::from_millis(1));
        assert!(world.now.since(began) < Nanos::from_secs(6), "what was lost is said again by then");
    }
    assert_eq!(filled.get(), 0, "served once the link was filled");
}

/// A sender of other packets with the token of a measurement changes nothing: only filler packets count.
#[test]
fn forged_packets_of_a_measurement_do_not_count() {
    for forged in [(7, 2), (0, 3), (7, 3)] {
        let mut world = slow_world(2);
        let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let copy = seen.clone();
        world.tap = Some(Box::new(move |node, port, bytes| {
            if node == 0 && port == Port::Data && copy.borrow().is_empty() {
                copy.borrow_mut().extend_from_slice(bytes);
            }
            true
        }));
        world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
        world.run_for(Nanos::from_millis(50));
        let mut packet = seen.borrow().clone();
        let (header, _) = Header::parse(&packet).expect("it is being filled");
        assert_eq!(header.path.channel, ChannelNumber(0));
        let (channel, destination) = forged;
        for number in 0..2_000 {
            let path = PathId { channel: ChannelNumber(channel), ..header.path };
            let message = (1 << 30) + number;
            Header { path, message, destination: NodeId(destination), ..header }.write(&mut packet);
            world.inject(1, LINK, Port::Data, &packet);
        }
        let found = measured(&mut world, 0).expect("it goes on");
        assert!(is_right(found, DRAINS) && !found.at_least, "{forged:?}: {found:?}");
        assert!(world.nodes[1].status(world.now).drops.no_receiver >= 2_000, "{forged:?}");
    }
}

/// A measurement after another one has no state of it.
#[test]
fn each_measurement_begins_anew() {
    let mut world = slow_world(2);
    for drains in [20_000_000, 60_000_000, 3_000_000, 40_000_000] {
        world.slow.as_mut().unwrap().rate = BitRate(drains);
        // One that was slow is measured again by itself: that is over.
        world.events[0].clear();
        let found = measure(&mut world).expect("it can be measured");
        assert!(is_right(found, BitRate(drains)), "{drains}: {found:?}");
        world.run_for(Nanos::from_secs(3));
    }
}

/// A wire whose rate varies, more in later attempts: the result of the first attempt counts.
#[test]
fn of_several_attempts_the_best_counts() {
    let measured_beside = |swings_percent: [u64; 4]| {
        let mut world = slow_world(2);
        world.events[0].clear();
        world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
        for swing_percent in swings_percent {
            let until = world.now + RATE_TIME + Nanos::from_millis(60);
            for percent in [100 + swing_percent, 100 - swing_percent].into_iter().cycle() {
                world.slow.as_mut().unwrap().rate = BitRate(DRAINS.0 / 100 * percent);
                world.run_for(Nanos::from_millis(45));
                let word = world.events[0].iter().find_map(|event| match event {
                    Event::Rate { link: LINK, result } => Some(*result),
                    _ => None,
                });
                if let Some(result) = word {
                    return result;
                }
                if world.now >= until {
                    break;
                }
            }
        }
        measured(&mut world, 0)
    };
    let worst = measured_beside([90; 4]).expect("even at times");
    assert!(!is_right(worst, DRAINS), "a wire that is slow for most of the time: {worst:?}");
    let found = measured_beside([20, 90, 90, 90]).expect("the first attempt is even enough");
    assert!(is_right(found, DRAINS) && found.error > RATE_ERROR_GOOD, "others were tried: {found:?}");
}

#[test]
fn links_are_known_by_name() {
    let world = World::line(3, CONFIGURED);
    let node = &world.nodes[1];
    assert_eq!(node.link_named("left"), Ok(LinkId(0)));
    assert_eq!(node.link_named("right"), Ok(LinkId(1)));
    assert_eq!(node.link_named("up"), Err(vec!["left".to_owned(), "right".to_owned()]));
    assert_eq!([0, 1, 2].map(|link| node.link_name(LinkId(link))), ["left", "right", ""]);
}

/// The truth is between the lowest and the highest drain rate, to the bit.
#[test]
fn a_measured_rate_is_a_range() {
    let of = |rate, error| MeasuredRate {
        rate: BitRate(rate),
        error: Ppm(error),
        at_least: false,
        at: Instant(1),
    };
    for (rate, error, surely, at_most) in
        [(20_000_000, 2_500, 19_950_000, 20_050_000), (7, 0, 7, 7), (1_000_000, 1_000_000, 0, 2_000_000)]
    {
        let measured = of(rate, error);
        assert_eq!((measured.lower_bound(), measured.at_most()), (BitRate(surely), BitRate(at_most)));
    }
    assert_eq!(of(u64::MAX, 5).at_most(), BitRate(u64::MAX));
}

/// A link that is found to be slower has less to give away: what its own signalling takes is more of it, and is shown.
#[test]
fn what_is_given_away_counts_of_the_measured_rate() {
    let mut world = auto_world();
    world.settle();
    let used = |world: &World| u64::from(world.nodes[0].status(world.now).links[0].utilisation.0);
    let before = used(&world);
    let found = measured(&mut world, 0).expect("it measures itself");
    let expected = before * CONFIGURED.0 / found.lower_bound().0;
    assert!(used(&world).abs_diff(expected) * 50 < expected, "{before}, then {}: {expected}", used(&world));
}

/// A refusal says why the rate is unknown at present, as the status does.
#[test]
fn a_refusal_says_why_the_last_measurement_failed() {
    let mut world = auto_world();
    // HELLOs pass; what h2 says later is lost, and with it all answers to the measurement.
    world.run_for(Nanos::from_millis(20));
    world.tap = Some(Box::new(|node, _, _| node == 0));
    assert_eq!(measured(&mut world, 0), Err(RateRefusal::NoAnswer));
    let channel = ask(&mut world);
    world.run_for(Nanos::from_millis(1));
    let cause = world.events[0].iter().find_map(|event| match event {
        Event::Refused { channel: of, refusal } if *of == channel => Some(refusal.cause.clone()),
        _ => None,
    });
    assert_eq!(world.nodes[0].status(world.now).links[0].rate.refused, Some(RateRefusal::NoAnswer));
    assert_eq!(cause, Some(RefuseCause::RateUnknown(RateRefusal::NoAnswer)));
}
