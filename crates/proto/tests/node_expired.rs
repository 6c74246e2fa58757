//! A packet of a channel that drops late ones is dropped when it cannot keep its deadline any more, and not
//! before.

use std::cell::RefCell;
use std::rc::Rc;

use punctual_proto::api::{FilterChange, Port};
use punctual_proto::ids::LinkId;
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Late, Nanos, Rate};
use punctual_rig::World;

const SINK: usize = 1;

/// The least slack is told to the driver with the channel's filter. A driver that does not classify lets the
/// host find it.
#[test]
fn a_packet_with_the_least_slack_is_kept() {
    let mut world = World::line(2, BitRate(40_000_000));
    world.run_for(Nanos::from_secs(1));
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(200, rate, 1, Nanos::from_millis(30)).expect("in range");
    let open = world.open(0, SINK, Contract { late: Late::Drop, ..contract }).expect("it fits");
    let changes = std::iter::from_fn(|| world.nodes[SINK].poll_filter());
    let least = changes.filter_map(|(_, change)| match change {
        FilterChange::Set(filter) => filter.slack_ns_min,
        _ => None,
    });
    let least = least.last().expect("its driver learns of it");
    let held: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let seen = held.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        let is_data = node == 0 && port == Port::Data;
        if is_data {
            seen.borrow_mut().push(bytes.clone());
        }
        !is_data
    }));
    assert!(open.outbox.send(&[7; 200], world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(Nanos::from_millis(20));
    let mut packet = held.borrow_mut().pop().expect("it has left");
    let (header, _) = Header::parse(&packet).expect("a packet");
    for (slack_ns, expired) in [(least + 1, 0), (least, 0), (least - 1, 1), (least - 2, 2)] {
        Header { slack_ns, ..header }.write(&mut packet);
        world.inject(SINK, LinkId(0), Port::Data, &packet);
        let counters = world.nodes[SINK].channel(open.sink).expect("it is open").counters;
        assert_eq!(counters.expired, expired, "{slack_ns} of {least}");
    }
}
