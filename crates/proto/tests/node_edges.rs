//! What a host says where there is no way, where it leaves, and when it wants to be asked.

mod common;

use common::rate::{TRIED, is_right, measured};
use punctual_proto::api::{OpenRequest, Port, RequestError, UserId};
use punctual_proto::config::KernelTraffic;
use punctual_proto::ids::{Address, LinkId, NodeId};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::{Slow, World, line_config, name};

const RATE: BitRate = BitRate(40_000_000);
const USER: UserId = UserId(7);

fn contract() -> Contract {
    let rate = Rate::per_second(50).expect("a rate");
    Contract::new(500, rate, 1, Nanos::from_millis(100)).expect("in range")
}

/// What the first host says at once about a channel to `host`, and about a request to it for one.
fn answers(world: &mut World, host: &str) -> [Option<RequestError>; 2] {
    let to = Address { port: name("port"), host: name(host) };
    let now = world.now;
    let open = OpenRequest { to: to.clone(), contract: contract(), user: USER, probe: false, token: None };
    let opened = world.nodes[0].open(open, now).err();
    let _ = world.nodes[0].listen(name("reply"));
    [opened, world.nodes[0].request(&to, name("reply"), contract(), USER, now).err()]
}

#[test]
fn a_host_without_a_route_is_told_so_and_neighbours_need_none() {
    let config = |index| {
        let mut config = line_config(index, 3, RATE);
        config.routes.clear();
        config
    };
    let mut world = World::of((0..3).map(config).collect());
    world.run_for(Nanos::from_secs(2));
    let no_route = || Some(RequestError::NoRoute(name("h3")));
    assert_eq!(answers(&mut world, "h3"), [no_route(), no_route()]);
    assert_eq!(answers(&mut world, "h2"), [None, None]);
    let itself = || Some(RequestError::Itself(name("h1")));
    assert_eq!(answers(&mut world, "h1"), [itself(), itself()]);
}

#[test]
fn a_host_that_leaves_begins_nothing() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_secs(2));
    let now = world.now;
    world.nodes[0].shutdown(now);
    assert_eq!(answers(&mut world, "h2"), [Some(RequestError::Exhausted), Some(RequestError::Exhausted)]);
    world.run_for(Nanos::from_secs(2));
    assert!(world.nodes.iter().all(|node| node.channels().is_empty()));
    assert!(world.nodes[0].is_quiet());
}

/// Work that waits is due at once: a host that has taken a packet in wants its processor, and wants it no more when it is done.
#[test]
fn a_host_wants_its_processor_while_work_waits() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_secs(2));
    assert!(world.nodes[1].poll_timeout().is_some_and(|due| due > world.now));
    let (frame, now) = (world.pool.frame(&[0; 80]), world.now);
    world.nodes[1].handle_frame(LinkId(0), Port::Signalling, now, frame, now);
    assert_eq!(world.nodes[1].poll_timeout(), Some(Instant::ZERO));
    world.settle();
    assert!(world.nodes[1].poll_timeout().is_some_and(|due| due > world.now));
}

/// What the driver's host says of others' packets finds causes only: of a link that is not there, or while nothing is late, it
/// changes nothing.
#[test]
fn traffic_of_others_alone_is_no_breach() {
    let mut world = World::line(2, RATE);
    world.run_for(Nanos::from_secs(2));
    for link in [LinkId(0), LinkId(99)] {
        world.nodes[0].handle_foreign_traffic(link, RATE);
    }
    world.run_for(Nanos::from_secs(2));
    assert!(!world.nodes[0].is_looking() && world.nodes[0].status(world.now).broken.is_empty());
}

/// Behind a shaper of ours a link that comes out near its rate may be held there by that: it drains so much at least; far below
/// it is the link.
#[test]
fn a_shaped_link_is_filled_only_well_below_its_shaper() {
    for (drains, at_least) in [(20_000_000, false), (93_000_000, true)] {
        let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, TRIED)).collect();
        configs[0].links[0].kernel_traffic = KernelTraffic::Behind;
        assert_eq!(configs[0].links[0].neighbour, NodeId(2));
        let mut world = World::of(configs);
        world.slow = Some(Slow::new(0, BitRate(drains)));
        world.run_for(Nanos::from_secs(3));
        let now = world.now;
        world.nodes[0].measure_rate(LinkId(0), now).expect("nobody uses it");
        let found = measured(&mut world, 0).expect("it can be measured");
        assert_eq!(found.at_least, at_least, "{drains}: {found:?}");
        assert!(at_least || is_right(found, BitRate(drains)), "{found:?}");
    }
}

/// Packets of another version are counted, each once, at the link that they came in by.
#[test]
fn packets_of_another_version_are_counted_at_their_link() {
    let mut world = World::line(3, RATE);
    for count in 1..4 {
        world.inject(1, LinkId(1), Port::Data, &[200; 100]);
        let status = world.nodes[1].status(world.now);
        let foreign: Vec<_> = status.links.iter().map(|link| link.packets_foreign).collect();
        assert_eq!((foreign, status.drops.version, status.drops.malformed), (vec![0, count], count, 0));
    }
}
