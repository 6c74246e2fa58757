//! How channels end: for which reason at which end, and the sink's last word to the source.

use punctual_proto::Nanos;
use punctual_proto::ids::ChannelId;
use punctual_proto::node::api::{CloseReason, Event, Passed, Receipt, Thrown};

use crate::network::{MILLI, Network, SECOND};

const RECEIPT: Receipt = Receipt {
    delivered: 7,
    late: 2,
    perhaps_late: 1,
    unmeasured: 3,
    lost: 4,
    lost_at: None,
    received: 7,
    passed: Passed {
        packets_in: 8,
        packets_out: 0,
        messages_out: 7,
        thrown: Thrown { no_buffer: 1, no_slot: 0, demoted: 0, expired: 0, receiver_full: 0 },
    },
    latency_max: Nanos(5),
};

/// An open channel over `hops` links, and its handles at both ends.
fn open(seed: u64, hops: usize) -> (Network, ChannelId, ChannelId) {
    open_within(seed, hops, 50)
}

/// The same with a deadline, for which its hosts drain.
fn open_within(seed: u64, hops: usize, deadline_ms: u64) -> (Network, ChannelId, ChannelId) {
    let mut network = Network::line(seed, hops + 1, |_, _| {});
    network.hosts[hops].stages.receipt = RECEIPT;
    let source = network.open(0, hops, deadline_ms);
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")), "seed {seed}");
    let sink = network.hosts[hops].events.iter().find_map(|event| match event {
        Event::Established { channel } => Some(*channel),
        _ => None,
    });
    (network, source, sink.expect("established"))
}

/// How and with which receipt the channel ended at a host.
fn end(network: &Network, index: usize) -> Option<(CloseReason, Option<Receipt>)> {
    network.hosts[index].events.iter().find_map(|event| match event {
        Event::Closed { reason, receipt, .. } => Some((*reason, *receipt)),
        _ => None,
    })
}

#[test]
fn a_source_that_closes_learns_what_its_sink_has() {
    for hops in 1..=5 {
        let (mut network, source, _) = open(hops as u64, hops);
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        assert_eq!(network.states(0), ["settling"], "{hops} hops");
        assert!(network.hosts[0].stages.held.is_empty(), "it holds nothing while it waits");
        network.run(SECOND);
        assert_eq!(end(&network, 0), Some((CloseReason::Local, Some(RECEIPT))), "{hops} hops");
        assert_eq!(end(&network, hops), Some((CloseReason::Peer, None)), "{hops} hops");
        assert!(network.nothing_held() && network.states(0).is_empty());
    }
}

#[test]
fn the_word_comes_through_loss_doubling_and_reordering() {
    for seed in 0..40 {
        let (mut network, source, _) = open(seed, 3);
        (network.loss_percent, network.double_percent, network.reorder_percent) = (20, 20, 20);
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        network.run(20 * SECOND);
        assert_eq!(end(&network, 0), Some((CloseReason::Local, Some(RECEIPT))), "seed {seed}");
        assert_eq!(network.count(0, |e| matches!(e, Event::Closed { .. })), 1, "seed {seed}");
    }
}

/// Whichever host behind the source dies before the word has come: the path is lost, within a bounded time.
#[test]
fn a_path_that_is_lost_before_the_word_is_told_as_that() {
    for (hops, dead) in [(1, 1), (2, 1), (2, 2), (4, 1), (4, 3), (4, 4)] {
        let (mut network, source, _) = open(hops as u64 * 10 + dead as u64, hops);
        network.crash(dead);
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        network.run(20 * SECOND);
        assert_eq!(end(&network, 0), Some((CloseReason::PathLost, None)), "{dead} of {hops}");
        assert!(network.nothing_held(), "{dead} of {hops}");
        assert!(network.states(0).is_empty(), "{dead} of {hops}");
    }
}

#[test]
fn each_end_is_told_why_the_other_ended() {
    let reasons = [
        (CloseReason::Local, CloseReason::Peer),
        (CloseReason::Vanished, CloseReason::PeerVanished),
        (CloseReason::Stopped, CloseReason::PeerStopped),
    ];
    for (here, there) in reasons {
        let (mut network, source, _) = open(1, 3);
        network.close_for(0, source, here);
        network.run(2 * SECOND);
        assert_eq!(end(&network, 3), Some((there, None)), "{here:?} at the source");
        assert_eq!(end(&network, 0), Some((here, Some(RECEIPT))));

        let (mut network, _, sink) = open(2, 3);
        network.close_for(3, sink, here);
        network.run(2 * SECOND);
        assert_eq!(end(&network, 0), Some((there, Some(RECEIPT))), "{here:?} at the sink");
        assert_eq!(end(&network, 3), Some((here, None)));
    }
}

#[test]
fn a_sink_that_closes_what_is_closing_says_what_it_has() {
    for seed in 0..20 {
        let (mut network, source, sink) = open(seed, 3);
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        network.run(network.random.clone().below(3 * MILLI));
        network.close_for(3, sink, CloseReason::Vanished);
        network.run(SECOND);
        assert_eq!(end(&network, 0), Some((CloseReason::PeerVanished, Some(RECEIPT))), "seed {seed}");
        assert!(network.nothing_held(), "seed {seed}");
    }
}

#[test]
fn a_host_that_stops_says_so() {
    for stopped in 0..4 {
        let (mut network, ..) = open(stopped as u64, 3);
        network.at(stopped, |s, now, stages| s.shutdown(now, stages));
        network.run(5 * SECOND);
        for other in [0, 3].into_iter().filter(|end| *end != stopped) {
            let (reason, _) = end(&network, other).expect("told");
            assert_eq!(reason, CloseReason::PeerStopped, "host {stopped} stops, told to {other}");
        }
    }
}

/// The forwarder before the host that died hears it first; those before that one pass it on, though they drain.
#[test]
fn a_path_that_is_lost_while_it_drains_is_told_to_the_source_at_once() {
    for hops in 2..=4 {
        let (mut network, source, _) = open_within(hops as u64, hops, 10_000);
        network.crash(hops);
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        // A neighbour's silence takes 5 s, the word would be overdue after 15.
        network.run(7 * SECOND);
        assert_eq!(end(&network, 0), Some((CloseReason::PathLost, None)), "{hops} hops");
    }
}
