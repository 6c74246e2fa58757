//! Lost packets of a channel at a stopped host: it counts each of them, reports them when the channel ends,
//! and keeps the counts afterwards.

use punctual_proto::api::{Event, LostAt, LostWhy, Port};
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{Open, World, pattern};

const RATE: BitRate = BitRate(40_000_000);
const BYTES: u32 = 200;

/// A message a millisecond for `millis`; how many the receiver was given meanwhile.
fn stream(world: &mut World, open: &Open, millis: u64) -> u64 {
    let mut received = 0;
    for number in 0..millis {
        open.outbox.send(&pattern(1, number, BYTES as usize), world.now);
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(Nanos::from_millis(1));
        while open.inbox.recv(|_, _| received += 1) {}
    }
    received
}

fn open(world: &mut World) -> Open {
    let contract = Contract::new(BYTES, Rate::per_second(1_100).unwrap(), 1, Nanos::from_millis(20)).unwrap();
    world.open(0, 2, contract).expect("it fits")
}

/// The source closes; returns the reported loss.
fn end(world: &mut World, open: &Open) -> (u64, Option<LostAt>) {
    world.nodes[0].close(open.source, world.now).expect("open");
    world.run_for(Nanos::from_secs(3));
    let receipt = world.events[0].iter().find_map(|event| match event {
        Event::Closed { receipt, .. } => *receipt,
        _ => None,
    });
    let receipt = receipt.expect("the sink's word");
    (receipt.delivered, receipt.lost_at)
}

/// For 150 ms in each 500 the host has no time.
fn standstills(world: &mut World, open: &Open, host: usize) {
    for _ in 0..6 {
        stream(world, open, 350);
        world.still = Some((host, world.now + Nanos::from_millis(150)));
        stream(world, open, 150);
    }
    stream(world, open, 300);
}

#[test]
fn drops_of_a_host_that_was_stopped_count_there() {
    const SENT: u64 = 6 * 500 + 300;
    for host in [1, 2] {
        let mut world = World::line(3, RATE);
        let open = open(&mut world);
        standstills(&mut world, &open, host);
        let (delivered, lost_at) = end(&mut world, &open);
        let lost_at = lost_at.expect("much was lost");
        assert_eq!(open.grant.place(&lost_at.stage), format!("host h{}", host + 1), "{lost_at:?}");
        assert!(lost_at.why.is_some() && SENT - delivered > 300, "{lost_at:?} of {}", SENT - delivered);
        // Its channel has ended, its counters stay; no packet was lost without being counted.
        let status = world.nodes[host].status(world.now);
        assert!(world.nodes[host].channels().is_empty());
        let total = status.channels_total;
        let thrown = total.overflows + total.demoted_dropped + total.overruns;
        assert_eq!((total.packets_in, thrown), (SENT, SENT - delivered), "{total:?}");
        assert_eq!(lost_at.messages, SENT - delivered);
        assert!(status.drops.no_buffer + status.drops.no_slot + status.drops.over_cap >= total.overflows);
        if host == 1 {
            assert_eq!(total.packets_in - total.packets_out, thrown);
        }
    }
}

#[test]
fn uncounted_losses_belong_to_the_link_between() {
    let mut world = World::line(3, RATE);
    let open = open(&mut world);
    let mut data = 0;
    world.tap = Some(Box::new(move |node, port, _| {
        let is_data = node == 1 && port == Port::Data;
        data += u32::from(is_data);
        !(is_data && data % 10 == 0)
    }));
    stream(&mut world, &open, 500);
    let (delivered, lost_at) = end(&mut world, &open);
    let LostAt { stage, messages, why } = lost_at.expect("a tenth was lost");
    assert_eq!((open.grant.place(&stage), messages, why), ("link h2-h3".into(), 50, None::<LostWhy>));
    assert_eq!(delivered, 450);
}
