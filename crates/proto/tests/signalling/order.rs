//! Events of applications are in the order in which they happened, and compatible hosts send no message that
//! is unexpected.

use punctual_proto::api::Event;
use punctual_proto::ids::ChannelId;

use crate::network::{Network, SECOND};

/// For requests that are refused in one call, without the network, the replies are in order.
#[test]
fn events_come_in_order() {
    let mut network = Network::line(1, 3, |_, _| {});
    network.run(SECOND);
    network.crash(1);
    network.run(10 * SECOND);
    let request = network.request(2, 50);
    let asked: Vec<ChannelId> = network.at(0, |s, now, stages| {
        (0..9).map(|_| s.open(request.clone(), now, stages).expect("it can be tried")).collect()
    });
    network.run(SECOND);
    let refused = network.hosts[0].events.iter().filter_map(|event| match event {
        Event::Refused { channel, .. } => Some(*channel),
        _ => None,
    });
    assert_eq!(refused.collect::<Vec<_>>(), asked);
}

#[test]
fn honest_sessions_are_expected_everywhere() {
    for hops in 1..=4 {
        let mut network = Network::line(hops as u64, hops + 1, |_, _| {});
        for _ in 0..3 {
            let channel = network.open(0, hops, 50);
            assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
            network.run(20 * SECOND);
            network.close(0, channel);
            network.at(0, |s, now, stages| s.drained(channel, now, stages));
            network.run(3 * SECOND);
            network.hosts.iter_mut().for_each(|host| host.events.clear());
        }
        for (index, host) in network.hosts.iter().enumerate() {
            let counters = host.signalling.as_ref().expect("alive").counters();
            let odd = [
                counters.unexpected,
                counters.malformed,
                counters.version,
                counters.unauthenticated,
                counters.retransmissions,
            ];
            assert_eq!(odd, [0; 5], "{hops} hops, host {index}: {counters:?}");
            assert!(counters.packets_sent > 100, "host {index}: {counters:?}");
        }
    }
}
