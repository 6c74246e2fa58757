//! Channels that are refused somewhere on their route, by a stage in the forward phase or for lack of buffers
//! in the reverse one, when the hops behind have relaxed their bounds already: afterwards all reservations
//! are as before.

use punctual_proto::api::{Event, RefuseCause};
use punctual_proto::signalling::SplitMix64;
use punctual_proto::{BitRate, Contract, Horizon, Nanos, Ppm, Rate};
use punctual_rig::{World, line_config};

const RATE: BitRate = BitRate(40_000_000);

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
    Contract { horizon, ..contract }
}

/// Hosts in a row, one of them with few buffers.
fn short_of_buffers(random: &mut SplitMix64) -> World {
    let hosts = 3 + random.below(3) as usize;
    let (short, bytes, frames) =
        (random.below(hosts as u64) as usize, random.below(3_000_000), random.below(3));
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

#[test]
fn a_refusal_in_either_phase_leaves_everything_as_it_was() {
    let (mut by_buffers, mut by_stages, mut opened) = (0, 0, 0);
    for seed in 0..25 {
        let mut random = SplitMix64::new(seed);
        let mut world = short_of_buffers(&mut random);
        world.run_for(Nanos::from_secs(2));
        let empty = reserved(&world);
        let (mut open, last) = (Vec::new(), world.nodes.len() - 1);
        for _ in 0..12 {
            let before = reserved(&world);
            let (from, to) = if random.below(2) == 0 { (0, last) } else { (last, 0) };
            match world.open(from, to, contract(&mut random)) {
                Ok(channel) => open.push((from, channel.source)),
                Err(Event::Refused { refusal, .. }) => {
                    match refusal.cause {
                        RefuseCause::Buffers(_) => by_buffers += 1,
                        _ => by_stages += 1,
                    }
                    world.run_for(Nanos::from_millis(500));
                    assert_eq!(reserved(&world), before, "seed {seed}: {refusal}");
                }
                Err(other) => panic!("seed {seed}: {other:?}"),
            }
        }
        opened += open.len();
        for (host, channel) in open {
            world.nodes[host].close(channel, world.now).expect("it is open");
        }
        world.run_for(Nanos::from_secs(3));
        assert_eq!(reserved(&world), empty, "seed {seed}");
    }
    let tried = (by_buffers, by_stages, opened);
    assert!(by_buffers > 20 && by_stages > 10 && opened > 60, "{tried:?}");
}
