//! The rest of a link beside channels, where the kernel's packets are sent after ours: half of it is for best
//! effort.

use punctual_proto::config::{KernelTraffic, LinkConfig};
use punctual_proto::ids::ChannelId;
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{TestInbox, TestOutbox, World, line_config, name, pattern};

const RATE: BitRate = BitRate(40_000_000);

fn world(change: impl Fn(&mut LinkConfig)) -> World {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
    configs.iter_mut().for_each(|config| config.links.iter_mut().for_each(&change));
    World::of(configs)
}

/// A flood from the first host to the second.
struct Flood {
    outbox: TestOutbox,
    inbox: TestInbox,
    flow: ChannelId,
}

impl Flood {
    fn new(world: &mut World) -> Self {
        let (outbox, inbox) = (TestOutbox::new(64, 1_400), TestInbox::new(64, 1_400));
        world.nodes[1].bind_best_effort(name("bulk"), 1_400, inbox.clone()).expect("bound");
        let to = "bulk@h2".parse().expect("an address");
        let flow = world.nodes[0].open_best_effort(to, 1_400, outbox.clone(), world.now).expect("a flow");
        Self { outbox, inbox, flow }
    }

    /// Bits of the wire that best effort takes in a second.
    fn taken(&self, world: &mut World) -> u64 {
        let sent = |world: &World| world.nodes[0].status(world.now).links[0].packets_best_effort;
        let (before, end) = (sent(world), world.now + Nanos::from_secs(1));
        while world.now < end {
            while self.outbox.send(&pattern(1, 0, 1_400), world.now) {}
            world.nodes[0].handle_ring(self.flow, world.now);
            world.run_for(Nanos::from_micros(250));
            while self.inbox.recv(|_, _| {}) {}
        }
        // A full packet with all of its headers.
        (sent(world) - before) * (1_464 + 66) * 8
    }
}

/// Half of the rate that is not reserved, at the paced rate of the link.
fn half(world: &World) -> u64 {
    let given = world.nodes[0].status(world.now).links[0].utilisation;
    RATE.less(line_config(0, 2, RATE).links[0].rate_error).less(given).0 / 2
}

fn near(taken: u64, expected: u64) {
    // A bucket's burst of packets, and one packet.
    let burst = 20 * 1_530 * 8;
    assert!(taken.abs_diff(expected) <= burst + expected / 100, "{taken} bit/s, expected {expected}");
}

#[test]
fn best_effort_leaves_the_kernel_half_of_what_is_not_given_away() {
    let mut world = world(|link| link.kernel_traffic = KernelTraffic::Behind);
    let flood = Flood::new(&mut world);
    let idle = half(&world);
    near(flood.taken(&mut world), idle);
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(20_000, rate, 1, Nanos::from_millis(50)).expect("a contract");
    let open = world.open(0, 1, contract).expect("16 of 40 Mbit/s");
    let beside = half(&world);
    assert!(beside < idle * 2 / 3, "{beside} of {idle}");
    near(flood.taken(&mut world), beside);
    world.nodes[0].close(open.source, world.now).expect("it is open");
    world.run_for(Nanos::from_secs(1));
    near(flood.taken(&mut world), idle);
}

#[test]
fn without_a_shaper_best_effort_takes_what_is_left_and_a_smaller_cap_holds() {
    let mut free = world(|_| {});
    let flood = Flood::new(&mut free);
    let all = half(&free) * 2;
    assert!(flood.taken(&mut free) > all * 9 / 10);
    let mut capped = world(|link| {
        (link.kernel_traffic, link.best_effort_cap) = (KernelTraffic::Behind, punctual_proto::Ppm(100_000));
    });
    let flood = Flood::new(&mut capped);
    near(flood.taken(&mut capped), RATE.0 / 100 * 99 / 10);
}
