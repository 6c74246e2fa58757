//! A host on the way gives its part of a closing channel back once nothing of it is to come or to leave.

use std::cell::RefCell;
use std::rc::Rc;

use punctual_proto::api::{ChannelCounters, Port};
use punctual_proto::config::Pacing;
use punctual_proto::ids::LinkId;
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{World, line_config};

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const RELAY: usize = 1;

fn at_relay(world: &World) -> Option<ChannelCounters> {
    world.nodes[RELAY].channels().first().map(|channel| channel.counters)
}

/// The adapter has all that it was given and sends nothing. The channel's last packet comes behind its end,
/// and finds no slot: with that, nothing more is to come, although no packet leaves.
#[test]
fn a_last_packet_without_a_slot_ends_its_channel() {
    let mut configs: Vec<_> = (0..3).map(|host| line_config(host, 3, BitRate(40_000_000))).collect();
    configs[RELAY].links[1].pace = Pacing::Completion;
    let mut world = World::of(configs);
    world.completes = true;
    world.run_for(Nanos::from_secs(1));
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(100, rate, 1, MS(40)).expect("in range");
    let open = world.open(0, 2, contract).expect("it fits");
    world.run_for(MS(100));
    world.completes = false;
    let held: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let (last, seen) = (Rc::new(RefCell::new(false)), held.clone());
    let is_last = last.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        let holds = node == 0 && port == Port::Data && *is_last.borrow() && Header::parse(bytes).is_ok();
        if holds {
            seen.borrow_mut().push(bytes.clone());
        }
        !holds
    }));
    let send = |world: &mut World| {
        assert!(open.outbox.send(&[7; 100], world.now), "room");
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(MS(20));
    };
    // Until one is dropped: all slots belong to packets that the adapter has.
    while at_relay(&world).expect("it is open").overflows == 0 {
        send(&mut world);
    }
    let counted = at_relay(&world).expect("it is open");
    assert_eq!((counted.overflows, counted.packets_out), (1, counted.packets_in - 1), "{counted:?}");
    *last.borrow_mut() = true;
    send(&mut world);
    world.nodes[0].close(open.source, world.now).expect("it is open");
    // No longer than a packet may be under way.
    world.run_for(MS(15));
    assert_eq!(at_relay(&world), Some(counted), "one packet is under way");
    let packet = held.borrow_mut().pop().expect("it has left");
    world.inject(RELAY, LinkId(0), Port::Data, &packet);
    world.run_for(MS(5));
    assert_eq!((at_relay(&world), world.nodes[RELAY].status(world.now).channels), (None, 0));
}
