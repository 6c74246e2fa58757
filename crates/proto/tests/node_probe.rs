//! A probe returns the result that an open would have, and holds nothing.

use punctual_proto::api::{ChannelRefusal, Event, Grant, OpenRequest, RefuseCause, UserId};
use punctual_proto::ids::Address;
use punctual_proto::signalling::SplitMix64;
use punctual_proto::{BitRate, Contract, Delivery, Horizon, Nanos, Ppm, Rate};
use punctual_rig::{World, line_config, name};

const RATE: BitRate = BitRate(40_000_000);

fn probe(world: &mut World, from: usize, to: usize, contract: Contract) -> Result<Grant, ChannelRefusal> {
    let port = name("port");
    let _ = world.nodes[to].listen(port.clone());
    let to = Address { port, host: name(&format!("h{}", to + 1)) };
    let request = OpenRequest { to, contract, user: UserId(0), probe: true, token: None };
    let asked = world.nodes[from].open(request, world.now).expect("it can be tried");
    for _ in 0..4_000 {
        world.run_for(Nanos::from_millis(1));
        while let Some(event) = world.events[from].pop_front() {
            match event {
                Event::Probed { channel, answer } if channel == asked => return answer,
                _ => {}
            }
        }
    }
    panic!("no answer within four seconds");
}

/// For each host: channels, bytes of buffers, shares of its processor and links.
type Reserved = Vec<(u32, u64, Ppm, Vec<Ppm>)>;

fn reserved(world: &World) -> Reserved {
    let of = |node: &punctual_proto::node::Node<punctual_rig::TestMemory>| {
        let wrong: Vec<_> = node.accounts().into_iter().filter(|a| a.counted != a.held).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let status = node.status(world.now);
        let links = status.links.iter().map(|link| link.utilisation).collect();
        (status.channels, status.buffer_bytes, status.cpu_utilisation, links)
    };
    world.nodes.iter().map(of).collect()
}

fn contract(random: &mut SplitMix64) -> Contract {
    let interval = Nanos::from_millis(4 + random.below(60));
    let deadline = Nanos::from_millis(10 + random.below(300));
    let rate = Rate::every(interval).expect("not zero");
    let bytes = 200 + random.below(25_000) as u32;
    let contract = Contract::new(bytes, rate, 1 + random.below(3) as u32, deadline).expect("in range");
    let horizon = if random.below(2) == 0 { Horizon::Regulated } else { Horizon::Cumulative };
    let delivery = if random.below(3) == 0 { Delivery::AtDeadline } else { Delivery::Asap };
    Contract { horizon, delivery, ..contract }
}

/// Hosts in a row, one of them with few buffers or few frames.
fn short_somewhere(random: &mut SplitMix64) -> World {
    let hosts = 2 + random.below(4) as usize;
    let short = random.below(hosts as u64) as usize;
    let (bytes, frames) = (random.below(3_000_000), random.below(3));
    let config = |index| {
        let mut config = line_config(index, hosts, RATE);
        if index == short {
            config.buffer_bytes_max = 40_000 + bytes;
            config.links.iter_mut().filter(|_| frames == 0).for_each(|link| link.frames = 256);
        }
        config
    };
    World::of((0..hosts).map(config).collect())
}

/// In random states: a probe is accepted if an open a moment later is, with the same bounds and buffers, and
/// refused if it is not, for the same reason at the same host; and nothing is held after it.
#[test]
fn a_probe_gives_the_answer_of_an_open() {
    let (mut yes, mut by_buffers, mut by_stages) = (0, 0, 0);
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let mut world = short_somewhere(&mut random);
        world.run_for(Nanos::from_secs(2));
        let (mut open, last) = (Vec::new(), world.nodes.len() - 1);
        for _ in 0..14 {
            let (from, to) = if random.below(2) == 0 { (0, last) } else { (last, 0) };
            let wanted = contract(&mut random);
            // All channels that were refused or closed before are removed everywhere.
            world.run_for(Nanos::from_secs(1));
            let before = reserved(&world);
            let probed = probe(&mut world, from, to, wanted);
            assert_eq!(reserved(&world), before, "seed {seed}: a probe holds nothing");
            match (probed, world.open(from, to, wanted)) {
                (Ok(probed), Ok(opened)) => {
                    let reported = |grant: &Grant| {
                        let of = |s: &punctual_proto::api::StageGrant| (s.kind, s.bound, s.buffer_bytes);
                        (grant.stages.iter().map(of).collect::<Vec<_>>(), grant.outbox_messages)
                    };
                    assert_eq!(reported(&probed), reported(&opened.grant), "seed {seed}: {wanted:?}");
                    yes += 1;
                    open.push((from, opened.source));
                }
                (Err(no), Err(Event::Refused { refusal, .. })) => {
                    assert_eq!(
                        (no.node, &no.cause),
                        (refusal.node, &refusal.cause),
                        "seed {seed}: {wanted:?}"
                    );
                    match refusal.cause {
                        RefuseCause::Buffers(_) => by_buffers += 1,
                        _ => by_stages += 1,
                    }
                }
                (probed, opened) => panic!("seed {seed}: {wanted:?}: {probed:?}, {opened:?}"),
            }
            // Some channels are closed.
            if random.below(4) == 0 && !open.is_empty() {
                let (host, channel) = open.swap_remove(random.below(open.len() as u64) as usize);
                world.nodes[host].close(channel, world.now).expect("it is open");
            }
        }
    }
    assert!(yes > 100 && by_buffers > 40 && by_stages > 20, "{yes} {by_buffers} {by_stages}");
}

/// The relay of the report: it has no free buffers, but its stages have free capacity. The probe is refused,
/// with its name.
#[test]
fn a_relay_without_buffers_refuses_a_probe() {
    let config = |index| {
        let mut config = line_config(index, 3, RATE);
        if index == 1 {
            config.buffer_bytes_max = 100_000;
        }
        config
    };
    let mut world = World::of((0..3).map(config).collect());
    let deadline = Nanos::from_secs(60);
    let greedy = Contract::new(60_000, Rate::per_second(1).expect("a rate"), 1, deadline).expect("in range");
    let refusal = probe(&mut world, 0, 2, greedy).expect_err("it has no room");
    assert_eq!(refusal.node, punctual_proto::ids::NodeId(2));
    assert!(matches!(refusal.cause, RefuseCause::Buffers(_)), "{refusal:?}");
    let modest = Contract::new(1_000, Rate::per_second(20).expect("a rate"), 1, Nanos::from_millis(100));
    assert!(probe(&mut world, 0, 2, modest.expect("in range")).is_ok());
}
