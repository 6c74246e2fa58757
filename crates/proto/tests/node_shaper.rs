//! The kernel's share of a link follows admission: up a second after it is open, down before anything is granted.

mod common;

use common::{TestInbox, TestOutbox, World, line_config, name};
use punctual_proto::ids::{ChannelId, LinkId};
use punctual_proto::node::api::{Event, KernelShare, OpenRequest, RefuseCause, UserId};
use punctual_proto::node::config::{Interference, LinkConfig};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, Rate};

const RATE: BitRate = BitRate(95_000_000);
const LINK: LinkId = LinkId(0);

fn follows(link: &mut LinkConfig) {
    link.interference = Interference { sigma: Nanos::from_micros(500), rho: Ppm(100_000) };
    link.kernel_share_max = Ppm(950_000);
}

fn world() -> World {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
    configs.iter_mut().for_each(|config| config.links.iter_mut().for_each(follows));
    World::of(configs)
}

fn contract(deadline: Nanos) -> Contract {
    Contract::new(200, Rate::per_second(100).expect("a rate"), 1, deadline).expect("a contract")
}

fn share(world: &World) -> KernelShare {
    world.nodes[0].status(world.now).links[0].kernel_share.expect("it follows")
}

/// Lets time pass; shapers answer at once.
fn run(world: &mut World, span: Nanos) -> Vec<BitRate> {
    let (end, mut asked) = (world.now + span, Vec::new());
    while world.now < end {
        world.run_for(Nanos::from_millis(1));
        for host in 0..world.nodes.len() {
            while let Some((link, rate)) = world.nodes[host].poll_shaper() {
                if host == 0 {
                    asked.push(rate);
                }
                let now = world.now;
                world.nodes[host].handle_shaped(link, rate, now);
            }
        }
    }
    asked
}

fn grown() -> World {
    let mut world = world();
    assert_eq!(share(&world).now_bps, share(&world).least_bps);
    assert!(run(&mut world, Nanos::from_millis(990)).is_empty(), "not open for a second yet");
    let asked = run(&mut world, Nanos::from_millis(100));
    assert_eq!(asked, [share(&world).most_bps]);
    assert_eq!(share(&world).now_bps, share(&world).most_bps);
    world
}

fn asks(world: &mut World, contract: Contract) -> ChannelId {
    // A second one finds the listener there.
    let _ = world.nodes[1].listen(name("video"));
    let to = "video@h2".parse().expect("an address");
    let request = OpenRequest { to, contract, user: UserId(7), probe: false, token: None };
    let now = world.now;
    world.nodes[0].open(request, now).expect("it can be tried")
}

/// The other end says yes to all that asks.
fn consent(world: &mut World) {
    while let Some(event) = world.events[1].pop_front() {
        if let Event::Incoming(incoming) = event {
            let inbox = TestInbox::new(incoming.inbox_messages as usize + 4, 200);
            let now = world.now;
            world.nodes[1].consent(incoming.channel, inbox, now).expect("it waits for that");
        }
    }
}

fn is_opened(world: &World, channel: ChannelId) -> bool {
    let opened = |event: &Event| matches!(event, Event::Opened { channel: of, .. } if *of == channel);
    world.events[0].iter().any(opened)
}

/// What the shaper is asked for, once the answer of the other end is back; it does not confirm.
fn awaits_shaper(world: &mut World) -> BitRate {
    for _ in 0..200 {
        world.run_for(Nanos::from_millis(1));
        consent(world);
        if let Some((link, rate)) = world.nodes[0].poll_shaper() {
            assert_eq!(link, LINK);
            return rate;
        }
    }
    panic!("the shaper is asked for nothing");
}

#[test]
fn a_tight_channel_is_granted_once_the_shaper_has_shrunk() {
    let mut world = grown();
    let had = share(&world);
    let channel = asks(&mut world, contract(Nanos::from_millis(10)));
    let asked = awaits_shaper(&mut world);
    assert!(asked < had.now_bps && asked >= had.least_bps, "{asked:?}");
    world.run_for(Nanos::from_millis(100));
    assert!(!is_opened(&world, channel), "the kernel still has more");
    assert_eq!((share(&world).now_bps, share(&world).waiting), (had.now_bps, 1));
    let now = world.now;
    // What nobody asked for confirms nothing.
    world.nodes[0].handle_shaped(LINK, had.least_bps, now);
    world.run_for(Nanos::from_millis(1));
    assert!(!is_opened(&world, channel));
    let now = world.now;
    world.nodes[0].handle_shaped(LINK, asked, now);
    world.run_for(Nanos::from_millis(2));
    assert!(is_opened(&world, channel));
    assert_eq!((share(&world).now_bps, share(&world).waiting), (asked, 0));
    let now = world.now;
    world.nodes[0].close(channel, now).expect("it is open");
    assert!(run(&mut world, Nanos::from_millis(900)).is_empty());
    run(&mut world, Nanos::from_secs(2));
    assert_eq!(share(&world).now_bps, had.now_bps, "the kernel has it again");
}

#[test]
fn a_shaper_that_does_not_shrink_is_a_refusal_with_that_reason() {
    let mut world = grown();
    asks(&mut world, contract(Nanos::from_millis(10)));
    awaits_shaper(&mut world);
    world.run_for(Nanos::from_millis(300));
    let why = world.events[0].iter().find_map(|event| match event {
        Event::Refused { refusal, .. } => Some(refusal.cause.clone()),
        _ => None,
    });
    let Some(RefuseCause::Unsuitable(why)) = why else { panic!("{why:?}") };
    assert!(why.as_str().contains("shaper of kernel traffic"), "{why}");
    assert_eq!(share(&world).waiting, 0);
}

#[test]
fn a_loose_channel_is_granted_at_once() {
    let mut world = grown();
    let channel = asks(&mut world, contract(Nanos::from_secs(1)));
    for _ in 0..100 {
        world.run_for(Nanos::from_millis(1));
        consent(&mut world);
    }
    assert!(is_opened(&world, channel));
    assert_eq!(share(&world).now_bps, share(&world).most_bps);
}

#[test]
fn best_effort_that_waits_has_what_the_kernel_was_lent() {
    let mut world = grown();
    let outbox = TestOutbox::new(64, 1_400);
    let to = "bulk@h2".parse().expect("an address");
    let now = world.now;
    let flow = world.nodes[0].open_best_effort(to, 1_400, outbox.clone(), now).expect("a flow");
    let flood = |world: &mut World, until: Instant| {
        while world.now < until {
            while outbox.send(&[1; 1_400], world.now) {}
            let now = world.now;
            world.nodes[0].handle_outbox(flow, now);
            run(world, Nanos::from_millis(1));
        }
    };
    let until = world.now + Nanos::from_millis(200);
    flood(&mut world, until);
    assert_eq!(share(&world).now_bps, share(&world).least_bps);
    let until = world.now + Nanos::from_secs(3);
    flood(&mut world, until);
    assert_eq!(share(&world).now_bps, share(&world).least_bps, "as long as it waits");
    run(&mut world, Nanos::from_secs(4));
    assert_eq!(share(&world).now_bps, share(&world).most_bps);
}
