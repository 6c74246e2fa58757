//! A measurement fills a link for a third of a second, and with so many bytes at most (`limits::RATE_BYTES_MAX`): of a link of
//! 20 Gbit/s that is less.

use std::cell::RefCell;
use std::rc::Rc;

use punctual_proto::api::Port;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::{HEADER_BYTES, RATE_BYTES_MAX, RATE_TIME};
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Nanos};
use punctual_rig::{World, line_config};

const LINK: LinkId = LinkId(0);
const RATE: BitRate = BitRate(20_000_000_000);
const STEP: Nanos = Nanos::from_micros(20);

/// Two neighbours whose largest packets take `wire_bytes` of the link. All data is lost. Returns the headers
/// of the data packets that the first sends.
fn pair(wire_bytes: u32) -> (World, Rc<RefCell<Vec<Header>>>) {
    let mut configs = [0, 1].map(|index| line_config(index, 2, RATE));
    for config in &mut configs {
        config.links[0].packet_bytes_max = wire_bytes - config.links[0].overhead_bytes;
    }
    let mut world = World::of(configs.into());
    let filled = Rc::new(RefCell::new(Vec::new()));
    let headers = Rc::clone(&filled);
    world.tap = Some(Box::new(move |node, port, bytes| {
        if let (0, Port::Data, Ok((header, payload))) = (node, port, Header::parse(bytes)) {
            let packet_bytes = HEADER_BYTES + header.payload_bytes as usize;
            assert_eq!(bytes.len(), packet_bytes);
            assert!(payload.iter().all(|byte| *byte == 0), "the buffer may hold another application's data");
            headers.borrow_mut().push(header);
        }
        port == Port::Signalling
    }));
    world.run_for(Nanos::from_secs(2));
    (world, filled)
}

/// It sends as many whole packets as fit into the limit: all of it, where their length divides it.
#[test]
fn a_measurement_sends_so_many_bytes_and_then_none() {
    for wire_bytes in [60_066, 1 << 16, (1 << 16) + 1] {
        let (mut world, filled) = pair(wire_bytes);
        world.nodes[0].measure_rate(LINK, world.now).expect("the link is idle");
        while filled.borrow().is_empty() {
            world.run_for(STEP);
        }
        let began = world.now;
        // A link of that rate could send 750 MB.
        world.run_until(began + RATE_TIME / 4 * 3);
        let whole = (RATE_BYTES_MAX / u64::from(wire_bytes)) as usize;
        assert_eq!(filled.borrow().len(), whole, "packets of {wire_bytes} B");
        let nothing_waits =
            |world: &World| !world.nodes[0].best_effort_waits(LINK) && !world.nodes[0].may_transmit(LINK);
        assert!(nothing_waits(&world));
        world.run_until(began + RATE_TIME - STEP);
        assert!(
            filled.borrow().len() == whole && nothing_waits(&world),
            "the rest of the measurement leaves the link free for other traffic"
        );
    }
}

/// Each packet says how many bytes of others the link has carried since the measurement began: the neighbour
/// sees only the filling. Here that is signalling.
#[test]
fn packets_of_a_measurement_tell_what_else_the_link_has_carried() {
    const WIRE_BYTES: u32 = 60_066;
    let (mut world, filled) = pair(WIRE_BYTES);
    world.nodes[0].measure_rate(LINK, world.now).expect("the link is idle");
    let handed = |world: &World| world.nodes[0].status(world.now).links[0].wire_bytes;
    let mut before = handed(&world);
    while filled.borrow().is_empty() {
        before = handed(&world);
        world.run_for(Nanos(100));
    }
    assert_eq!(filled.borrow()[0].slack_ns, 0, "nothing but itself since the begin");
    let others = |world: &World| {
        let own = filled.borrow().len() as u64 * u64::from(WIRE_BYTES);
        (handed(world) - before - own) as i64
    };
    let mut least = 0;
    for _ in 0..2_000 {
        let sent = filled.borrow().len();
        world.run_for(STEP);
        let most = others(&world);
        let told: Vec<_> = filled.borrow()[sent..].iter().map(|header| header.slack_ns).collect();
        assert!(told.iter().all(|bytes| (least..=most).contains(bytes)), "{told:?} of {least} to {most}");
        least = most;
    }
    assert!(least > 0, "there was some");
}
