//! Keys for drivers to recognise a neighbour's packets: the key is valid for all packets that it sends in
//! this life, and for no others.

use std::collections::BTreeSet;

use punctual_proto::ids::LinkId;
use punctual_proto::signalling::SealKey;

use crate::network::{Flying, Network, SECOND};

/// The key that host `index` sent to its driver last; `None` if there is no new one.
fn reported(network: &mut Network, index: usize) -> Option<SealKey> {
    network
        .at(index, |signalling, _, _| std::iter::from_fn(|| signalling.poll_seal()).last())
        .map(|(_, key)| key)
}

/// Packets that are sent to host `index` in the next two seconds, with a channel opened and closed.
fn sent_to(network: &mut Network, index: usize) -> Vec<Flying> {
    network.tape = Some(Vec::new());
    let channel = network.open(0, 1, 50);
    assert!(network.run_until(SECOND, |n| n.all_in("open")));
    network.close(0, channel);
    network.run(SECOND);
    let tape = network.tape.take().expect("recording");
    tape.into_iter().filter(|flying| flying.to == index).collect()
}

/// Every packet fits the key, each under a number of its own.
fn all_fit(key: SealKey, packets: &[Flying]) {
    let numbers: Option<BTreeSet<u64>> = packets.iter().map(|flying| key.number_of(&flying.bytes)).collect();
    assert_eq!(numbers.expect("all are sealed").len(), packets.len());
    assert!(packets.len() > 5, "only {}", packets.len());
}

fn none_fits(key: SealKey, packets: &[Flying]) {
    assert!(packets.iter().all(|flying| key.number_of(&flying.bytes).is_none()));
}

#[test]
fn drivers_know_all_that_the_neighbour_sends_in_this_life() {
    for seed in 0..5 {
        let mut network = Network::line(seed, 2, |_, _| {});
        assert!(network.run_until(5 * SECOND, |n| n.alive(0, 0) && n.alive(1, 0)), "seed {seed}");
        let [of_1, of_0] = [0, 1].map(|index| reported(&mut network, index).expect("a key"));
        let first = sent_to(&mut network, 1);
        all_fit(of_0, &first);
        none_fits(of_1, &first);
        assert_eq!([0, 1].map(|index| reported(&mut network, index)), [None, None], "the life is the same");

        // Both give each other up: new sessions, new keys. A recording of the old one does not fit.
        network.loss_percent = 100;
        network.run(10 * SECOND);
        network.loss_percent = 0;
        assert!(network.run_until(10 * SECOND, |n| n.alive(0, 0) && n.alive(1, 0)), "seed {seed}");
        let again = reported(&mut network, 1).expect("a new key");
        let second = sent_to(&mut network, 1);
        all_fit(again, &second);
        none_fits(again, &first);
        none_fits(of_0, &second);

        // One restarts: the other one gets the new life's key.
        network.crash(0);
        network.start(0);
        assert!(network.run_until(10 * SECOND, |n| n.alive(0, 0) && n.alive(1, 0)), "seed {seed}");
        network.run(3 * SECOND);
        let third = reported(&mut network, 1).expect("a new key");
        all_fit(third, &sent_to(&mut network, 1));
        none_fits(third, &second);
    }
}

/// An authentic packet for another host, or from another one, is not from that link's neighbour to this node.
#[test]
fn packets_of_others_are_nobodys_here() {
    let mut network = Network::line(3, 3, |_, _| {});
    network.tape = Some(Vec::new());
    network.run(3 * SECOND);
    let tape = network.tape.take().expect("it was recorded");
    let unauthenticated = |network: &Network, host: usize| {
        network.hosts[host].signalling.as_ref().expect("alive").counters().unauthenticated
    };
    // From h2 to h1, brought to h3 on its link to h2; and from h3 to h2, brought to h2 on its link to h1.
    let towards = |to: usize, link: LinkId| -> Vec<_> {
        tape.iter().filter(|packet| (packet.to, packet.link) == (to, link)).cloned().collect()
    };
    for (misled, to) in [(towards(0, LinkId(0)), 2), (towards(1, LinkId(1)), 1)] {
        assert!(misled.len() > 5);
        let before = unauthenticated(&network, to);
        for packet in &misled {
            network.deliver(&Flying { to, link: LinkId(0), ..packet.clone() });
        }
        assert_eq!(unauthenticated(&network, to) - before, misled.len() as u64);
    }
}
