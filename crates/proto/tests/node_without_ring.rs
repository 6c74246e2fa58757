//! A channel that was granted, and whose application has not attached its ring: it has nothing to send, and
//! can be closed.

use punctual_proto::api::{CloseReason, Event, OpenRequest, UserId};
use punctual_proto::ids::ChannelId;
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{TestInbox, World, name};

/// A channel from h1 to h2 that is open at both ends, without a ring at its source.
fn granted(world: &mut World) -> ChannelId {
    world.nodes[1].listen(name("port")).expect("free");
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(500, rate, 1, Nanos::from_millis(50)).expect("in range");
    let to = "port@h2".parse().expect("an address");
    let request = OpenRequest { to, contract, user: UserId(0), probe: false, token: None };
    let channel = world.nodes[0].open(request, world.now).expect("it can be tried");
    for _ in 0..200 {
        world.run_for(Nanos::from_millis(1));
        while let Some(event) = world.events[1].pop_front() {
            if let Event::Incoming(incoming) = event {
                let inbox = TestInbox::new(incoming.inbox_messages as usize, 500);
                world.nodes[1].consent(incoming.channel, inbox, world.now).expect("it was asked");
            }
        }
    }
    let opened = |event: &Event| matches!(event, Event::Opened { channel: of, .. } if *of == channel);
    assert!(world.events[0].iter().any(opened));
    channel
}

#[test]
fn a_channel_without_a_ring_has_no_work_and_ends_when_it_is_closed() {
    let mut world = World::line(2, BitRate(40_000_000));
    world.run_for(Nanos::from_secs(1));
    let channel = granted(&mut world);
    let now = world.now;
    assert_eq!(world.nodes[0].handle_ring_within(channel, 32, now), 0);
    assert_eq!(world.nodes[0].begin_work(now), None, "after a doorbell");
    world.nodes[0].close(channel, now).expect("it is open");
    assert_eq!(world.nodes[0].begin_work(now), None, "after its end");
    world.run_for(Nanos::from_millis(50));
    let closed = world.events[0].iter().find_map(|event| match event {
        Event::Closed { channel: of, reason, .. } if *of == channel => Some(*reason),
        _ => None,
    });
    assert_eq!(closed, Some(CloseReason::Local));
    assert!(world.nodes.iter().all(|node| node.is_quiet()));
}
