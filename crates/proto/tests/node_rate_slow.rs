//! A link that was slow, as a measurement or its use has shown: what it promises, and when it counts as healed.

mod common;

use common::rate::{TRIED as CONFIGURED, is_right, measured};
use punctual_proto::api::{Cause, MeasuredRate, RateRefusal};
use punctual_proto::ids::{Address, Epoch, LinkId};
use punctual_proto::limits::RATE_PROOF_AGAIN;
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{Slow, TestOutbox, World, line_config, name};

const DRAINS: BitRate = BitRate(20_000_000);
const LINK: LinkId = LinkId(0);

fn contract() -> Contract {
    Contract::new(200, Rate::per_second(200).unwrap(), 1, Nanos::from_millis(50)).unwrap()
}

fn slow_world() -> World {
    let mut world = World::line(2, CONFIGURED);
    world.slow = Some(Slow::new(0, DRAINS));
    world.run_for(Nanos::from_secs(3));
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

#[test]
fn a_link_that_was_measured_slow_promises_nothing_until_a_measurement_finds_it_whole() {
    let mut world = slow_world();
    measure(&mut world).expect("it can be measured");
    let open = world.open(0, 1, contract()).expect("degraded, as the operator chose");
    let state = world.nodes[0].channel(open.source).expect("it is open");
    assert!(!state.broken.is_empty(), "{state:?}");
    world.nodes[0].close(open.source, world.now).expect("it is open");
    world.run_for(Nanos::from_secs(200));
    assert!(slow_link(&world).is_some(), "time alone heals nothing");
    world.slow = None;
    world.run_for(RATE_PROOF_AGAIN + Nanos::from_secs(5));
    assert_eq!(slow_link(&world), None, "it is measured once a minute while nobody uses it");
    let open = world.open(0, 1, contract()).expect("it fits");
    assert!(world.nodes[0].channel(open.source).expect("it is open").broken.is_empty());
}

/// A link that carries more than its measured drain rate is measured again at once, not in the next minute.
#[test]
fn a_link_that_was_measured_slow_and_carries_more_is_measured_anew() {
    let mut world = slow_world();
    measure(&mut world).expect("it can be measured");
    // It measures once more by itself, and then not for a minute.
    world.run_for(Nanos::from_secs(5));
    let found = world.nodes[0].status(world.now).links[0].rate.measured.expect("it was measured");
    assert_eq!(slow_link(&world), Some(found.rate));
    world.slow = None;
    let outbox = TestOutbox::new(1, 1_400);
    let to = Address { port: name("bulk"), host: name("h2") };
    let flow = world.nodes[0].open_best_effort(to, 1_400, outbox.clone(), world.now).expect("a flow");
    let began = world.now;
    while slow_link(&world).is_some() {
        assert!(world.now.since(began) < Nanos::from_secs(5), "best effort takes all that it carries");
        outbox.push_beyond_room(&[7; 1_400], 60, world.now);
        world.nodes[0].handle_ring(flow, world.now);
        world.run_for(Nanos::from_millis(10));
    }
    let measured = world.nodes[0].status(world.now).links[0].rate.measured.expect("anew");
    assert!(measured.at > began && measured.at_least && measured.rate.0 > 90_000_000, "{measured:?}");
}

#[test]
fn a_link_that_was_slow_in_use_is_measured_before_it_counts_as_healed() {
    let mut world = slow_world();
    // Twice what the link drains.
    let wide = Contract::new(1_000, Rate::per_second(5_000).unwrap(), 1, Nanos::from_millis(50)).unwrap();
    let open = world.open(0, 1, wide).expect("it fits what is configured");
    for _ in 0..30_000 {
        open.outbox.send(&[7; 1_000], world.now);
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(Nanos::from_micros(200));
        while open.inbox.recv(|_, _| {}) {}
    }
    slow_link(&world).expect("it breaks its promise");
    world.nodes[0].close(open.source, world.now).expect("it is open");
    let measured = |world: &World| world.nodes[0].status(world.now).links[0].rate.measured;
    let mut times = Vec::new();
    for _ in 0..8_000 {
        world.run_for(Nanos::from_millis(20));
        assert!(slow_link(&world).is_some(), "before it is measured, meanwhile and afterwards");
        times.extend(measured(&world).map(|measured| measured.at));
        times.dedup();
    }
    // One measurement may take a little longer than the next.
    let least = RATE_PROOF_AGAIN - Nanos::from_secs(5);
    let is_apart = times.windows(2).all(|pair| pair[1].since(pair[0]) >= least);
    assert!(times.len() > 2 && is_apart, "once a minute, from the first one on: {times:?}");
    let measured = measured(&world).expect("by itself");
    assert!(is_right(measured, DRAINS), "{measured:?}");
    let slow = slow_link(&world).expect("an idle link is late for nobody, and slow");
    assert!(slow.0.abs_diff(DRAINS.0) < DRAINS.0 / 100, "{slow:?}");
    world.slow = None;
    world.run_for(Nanos::from_secs(65));
    assert_eq!(slow_link(&world), None);
}

/// A link that is whole again while channels use it needs no measurement to count as healed. None is tried,
/// so that none is put off for a minute: if its neighbour restarts, a link that measures itself is measured
/// at once.
#[test]
fn a_link_that_heals_in_use_is_measured_at_once_in_the_next_life_of_its_neighbour() {
    for channels in [1, 2] {
        let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, CONFIGURED)).collect();
        configs[0].links[0].rate_auto = true;
        let mut world = World::of(configs);
        let found = measured(&mut world, 0).expect("it measures itself");
        assert!(found.at_least && found.rate.0 > 90_000_000, "{found:?}");
        world.slow = Some(Slow::new(0, DRAINS));
        // Together twice what the link drains.
        let wide = Rate::per_second(5_000 / channels).unwrap();
        let wide = Contract::new(1_000, wide, 1, Nanos::from_millis(50)).unwrap();
        let open: Vec<_> = (0..channels).map(|_| world.open(0, 1, wide).expect("it fits")).collect();
        let is_broken = |world: &World| {
            let broken = world.nodes[0].status(world.now).broken;
            broken.iter().any(|broken| matches!(broken.cause, Cause::SlowLink { .. }))
        };
        let began = world.now;
        while !is_broken(&world) {
            assert!(world.now.since(began) < Nanos::from_secs(10), "it breaks its promise");
            for open in &open {
                open.outbox.send(&[7; 1_000], world.now);
                world.nodes[0].handle_ring(open.source, world.now);
            }
            world.run_for(Nanos::from_micros(200) * channels);
            open.iter().for_each(|open| while open.inbox.recv(|_, _| {}) {});
        }
        world.slow = None;
        while is_broken(&world) {
            assert!(world.now.since(began) < Nanos::from_secs(60), "it heals");
            world.run_for(Nanos::from_millis(100));
        }
        assert!(open.iter().all(|open| world.nodes[0].channel(open.source).is_some()), "they are in use");
        let mut config = line_config(1, 2, CONFIGURED);
        config.epoch = Epoch(2);
        world.restart(1, Node::new(config, 2, world.now).expect("a configuration"));
        let again = measured(&mut world, 0).expect("it measures itself again");
        assert!(again.at > found.at && again.at_least && again.rate.0 > 90_000_000, "{again:?}");
    }
}

/// A link that measures itself is measured in each life of its neighbour. Each time it is tried at the configured rate: what was
/// found before, however often, is no limit.
#[test]
fn a_link_that_was_slow_in_many_lives_of_its_neighbour_is_found_whole_in_the_next() {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, CONFIGURED)).collect();
    configs[0].links[0].rate_auto = true;
    let mut world = World::of(configs);
    world.slow = Some(Slow::new(0, DRAINS));
    let found = measured(&mut world, 0).expect("it measures itself");
    assert!(is_right(found, DRAINS), "{found:?}");
    for life in 2..=5 {
        if life == 5 {
            world.slow = None;
        }
        let mut config = line_config(1, 2, CONFIGURED);
        config.epoch = Epoch(life);
        world.restart(1, Node::new(config, life, world.now).expect("a configuration"));
        let found = measured(&mut world, 0).expect("it measures itself again");
        match life {
            5 => assert!(found.at_least && found.rate.0 > 90_000_000, "{found:?}"),
            _ => assert!(is_right(found, DRAINS), "{found:?}"),
        }
    }
    // 40 Mbit/s: twice what it drained before.
    let wide = Contract::new(10_000, Rate::per_second(500).unwrap(), 1, Nanos::from_millis(100)).unwrap();
    world.open(0, 1, wide).expect("the link has this rate");
}
