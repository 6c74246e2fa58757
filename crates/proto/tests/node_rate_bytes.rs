//! A measurement fills a link for a third of a second, and with so many bytes at most (`limits::RATE_BYTES_MAX`): of a link of
//! 20 Gbit/s that is less.

use std::cell::Cell;
use std::rc::Rc;

use punctual_proto::api::Port;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::{RATE_BYTES_MAX, RATE_TIME};
use punctual_proto::{BitRate, Nanos};
use punctual_rig::{World, line_config};

const LINK: LinkId = LinkId(0);
const RATE: BitRate = BitRate(20_000_000_000);
const PACKET_BYTES_MAX: u32 = 60_000;
const STEP: Nanos = Nanos::from_micros(20);

/// Two neighbours with large packets. All data is lost. Returns the counter of its bytes on the wire.
fn pair() -> (World, Rc<Cell<u64>>) {
    let mut configs = [0, 1].map(|index| line_config(index, 2, RATE));
    for config in &mut configs {
        config.links[0].packet_bytes_max = PACKET_BYTES_MAX;
    }
    let overhead_bytes = u64::from(configs[0].links[0].overhead_bytes);
    let mut world = World::of(configs.into());
    let filled = Rc::new(Cell::new(0));
    let counter = Rc::clone(&filled);
    world.tap = Some(Box::new(move |node, port, bytes| {
        if port == Port::Data && node == 0 {
            counter.set(counter.get() + bytes.len() as u64 + overhead_bytes);
        }
        port == Port::Signalling
    }));
    (world, filled)
}

#[test]
fn a_measurement_sends_so_many_bytes_and_then_none() {
    let (mut world, filled) = pair();
    world.run_for(Nanos::from_secs(2));
    world.nodes[0].measure_rate(LINK, world.now).expect("the link is idle");
    while filled.get() == 0 {
        world.run_for(STEP);
    }
    let began = world.now;
    // A link of that rate could send 750 MB.
    world.run_until(began + RATE_TIME / 4 * 3);
    let sent = filled.get();
    assert!(sent <= RATE_BYTES_MAX && sent + 61_000 > RATE_BYTES_MAX, "{sent} B");
    let nothing_waits =
        |world: &World| !world.nodes[0].best_effort_waits(LINK) && !world.nodes[0].may_transmit(LINK);
    assert!(nothing_waits(&world));
    world.run_until(began + RATE_TIME - STEP);
    assert!(
        filled.get() == sent && nothing_waits(&world),
        "the rest of the measurement leaves the link free for other traffic"
    );
}
