//! Ends of channels: the reason at each end, and the sink's final report to the source.

use punctual_proto::Nanos;
use punctual_proto::api::{CloseReason, DroppedPackets, Event, OpenRequest, Passed, Receipt, Tally};
use punctual_proto::ids::ChannelId;

use crate::network::{MILLI, Network, SECOND};
use crate::one_way::OneWay;

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
        thrown: DroppedPackets { no_buffer: 1, no_slot: 0, demoted: 0, expired: 0, receiver_full: 0 },
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
fn a_source_that_closes_gets_the_count_of_its_sink() {
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
    // Both directions lose, then one of each link, then one is late.
    let worse = [None, Some(OneWay::Loses(40)), Some(OneWay::IsLate(60 * MILLI))];
    for seed in 0..120 {
        let (mut network, source, _) = open(seed, 3);
        (network.double_percent, network.reorder_percent) = (20, 20);
        match worse[seed as usize / 40] {
            None => network.loss_percent = 20,
            Some(worse) => network.worsen_one_way(worse),
        }
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        network.run(20 * SECOND);
        assert_eq!(network.was_worse_one_way(), seed >= 40, "seed {seed}");
        assert_eq!(end(&network, 0), Some((CloseReason::Local, Some(RECEIPT))), "seed {seed}");
        assert_eq!(network.count(0, |e| matches!(e, Event::Closed { .. })), 1, "seed {seed}");
    }
}

/// Whichever host behind the source crashes before the report has come: the path is lost, within a bounded
/// time.
#[test]
fn path_loss_before_the_final_count_is_reported_as_that() {
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

/// However long its retransmissions may take, and however late a silent neighbour is given up: a source learns within D + 5 s
/// that no hop reports.
#[test]
fn a_source_waits_no_longer_than_five_seconds_beyond_d_for_the_report() {
    let mut network = Network::line(1, 4, |_, config| {
        (config.signalling.retransmit, config.signalling.retransmits_max) = (Nanos::from_secs(1), 8);
        config.signalling.hello_interval = Nanos::from_secs(10);
    });
    let source = network.open(0, 3, 50);
    assert!(network.run_until(20 * SECOND, |n| n.all_in("open")));
    network.crash(3);
    network.close(0, source);
    network.at(0, |s, now, stages| s.drained(source, now, stages));
    network.run(5 * SECOND);
    assert_eq!(end(&network, 0), None, "a report may still come");
    network.run(50 * MILLI + 20 * MILLI);
    assert_eq!(end(&network, 0), Some((CloseReason::PathLost, None)));
}

/// The source, or the sink, of a channel over three links closes it for a reason; the other end gets its counterpart.
fn assert_told(seed: u64, at_source: bool, (here, there): (CloseReason, CloseReason), worse: Option<OneWay>) {
    let (mut network, source, sink) = open(seed, 3);
    worse.into_iter().for_each(|worse| network.worsen_one_way(worse));
    let (index, channel) = if at_source { (0, source) } else { (3, sink) };
    network.close_for(index, channel, here);
    // What is lost is sent again, which takes longer.
    network.run(if worse.is_some() { 20 * SECOND } else { 2 * SECOND });
    assert_eq!(network.was_worse_one_way(), worse.is_some(), "seed {seed}");
    let (to_source, to_sink) = if at_source { (here, there) } else { (there, here) };
    let case = format!("seed {seed}: {here:?} at host {index}, {worse:?}");
    assert_eq!(end(&network, 0), Some((to_source, Some(RECEIPT))), "{case}");
    assert_eq!(end(&network, 3), Some((to_sink, None)), "{case}");
}

#[test]
fn each_end_gets_the_reason_of_the_other_end() {
    let reasons = [
        (CloseReason::Local, CloseReason::Peer),
        (CloseReason::Vanished, CloseReason::PeerVanished),
        (CloseReason::Stopped, CloseReason::PeerStopped),
    ];
    for reasons in reasons {
        for at_source in [true, false] {
            assert_told(1, at_source, reasons, None);
            for seed in 0..6 {
                assert_told(seed, at_source, reasons, Some(OneWay::Loses(40)));
                assert_told(seed, at_source, reasons, Some(OneWay::IsLate(60 * MILLI)));
            }
        }
    }
}

#[test]
fn a_sink_that_closes_a_closing_channel_reports_its_count() {
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
fn a_host_that_stops_notifies_its_neighbours() {
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

/// The forwarder before the crashed host detects it first; those before that one forward the news, though
/// they drain.
#[test]
fn path_loss_while_draining_is_reported_to_the_source_at_once() {
    for hops in 2..=4 {
        let (mut network, source, _) = open_within(hops as u64, hops, 10_000);
        network.crash(hops);
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        // A neighbour's silence takes 5 s; the report would be overdue after 15.
        network.run(7 * SECOND);
        assert_eq!(end(&network, 0), Some((CloseReason::PathLost, None)), "{hops} hops");
    }
}

/// D of an hour: no wait in this test ends because of its time.
const HOUR_MS: u64 = 3_600_000;
const SENT: Tally = Tally { packets: 9, digest: 77 };
const SETTLED: u64 = SECOND;

/// Hosts behind the source are notified of the total that it has sent, each as soon as it has closed.
#[test]
fn each_host_gets_the_count_that_the_source_has_sent() {
    for hops in 1..=5 {
        let (mut network, source, _) = open_within(hops as u64, hops, HOUR_MS);
        network.hosts[0].stages.sent = SENT;
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        network.run(SETTLED);
        for host in &network.hosts[1..] {
            let reported: Vec<_> = host.stages.awaited.iter().map(|(_, sent)| *sent).collect();
            assert_eq!(reported, [SENT], "{hops} hops");
        }
        assert!(network.hosts[0].stages.awaited.is_empty());
    }
}

/// Reports at a host that all packets that it was to await have passed.
fn pass_all(network: &mut Network, index: usize) {
    for (channel, _) in std::mem::take(&mut network.hosts[index].stages.awaited) {
        network.at(index, |s, now, stages| s.drained(channel, now, stages));
    }
}

/// In any order of the hosts: the source is notified, and its user's quota released, when all of them have
/// released the channel and not before; and long before D is over.
#[test]
fn the_end_is_reported_when_no_host_on_the_route_holds_anything() {
    for seed in 0..60 {
        let hops = 2 + seed as usize % 4;
        let (mut network, source, _) = open_within(seed, hops, HOUR_MS);
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        network.run(SETTLED);
        let mut order: Vec<usize> = (1..hops).collect();
        for index in 0..order.len() {
            let other = network.random.below(order.len() as u64) as usize;
            order.swap(index, other);
        }
        // The sink is the last, or ends while others between have not had all of it.
        order.truncate(network.random.below(hops as u64) as usize);
        for host in order.into_iter().chain([hops]) {
            assert_eq!(end(&network, 0), None, "seed {seed}: {host} still holds it");
            pass_all(&mut network, host);
            let until = network.now + SETTLED;
            while end(&network, 0).is_none() && network.step(until) {}
            assert!(end(&network, 0).is_none() || network.nothing_held(), "seed {seed}");
        }
        assert_eq!(end(&network, 0), Some((CloseReason::Local, Some(RECEIPT))), "seed {seed}");
        network.run(SETTLED);
        assert!((0..=hops).all(|host| network.states(host).is_empty()), "seed {seed}");
    }
}

/// A receiver that closes what its source has closed: hosts between need not wait for what it will not take.
#[test]
fn a_sink_that_closes_a_draining_channel_frees_all_hosts_before_the_source_is_notified() {
    for seed in 0..40 {
        let hops = 2 + seed as usize % 4;
        let (mut network, source, sink) = open_within(seed, hops, HOUR_MS);
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        network.run(network.random.clone().below(5 * MILLI));
        network.close_for(hops, sink, CloseReason::Vanished);
        let until = network.now + 10 * SECOND;
        while end(&network, 0).is_none() && network.step(until) {}
        assert_eq!(end(&network, 0), Some((CloseReason::PeerVanished, Some(RECEIPT))), "seed {seed}");
        assert!(network.nothing_held(), "seed {seed}");
    }
}

/// Whichever host crashes, at any step of an end that would take an hour: nothing is held, and the source is
/// notified, within a lease and the time of a neighbour's silence.
#[test]
fn a_crash_at_any_step_of_an_end_frees_everything_within_a_lease() {
    const HOPS: usize = 3;
    let begin = |seed| {
        let (mut network, source, _) = open_within(seed, HOPS, HOUR_MS);
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        network
    };
    let mut worse_one_way = 0;
    for dead in 0..=HOPS {
        for steps in 0..60 {
            let seed = (dead * 100 + steps) as u64;
            let mut network = begin(seed);
            for step in 0..steps {
                let until = network.now + SECOND;
                network.step(until);
                if step % 7 == 6 {
                    pass_all(&mut network, 1 + (steps / 7) % HOPS);
                }
            }
            network.crash(dead);
            // Every third is as before; in the others one direction of the links that are left fails, too.
            if steps % 3 > 0 {
                network.worsen_one_way(OneWay::of(steps as u64 / 3));
            }
            network.run(30 * SECOND);
            worse_one_way += usize::from(network.was_worse_one_way());
            assert!(network.nothing_held(), "seed {seed}: host {dead} died after {steps} steps");
            assert!(dead == 0 || end(&network, 0).is_some(), "seed {seed}: host {dead} after {steps}");
            let left: Vec<_> =
                (0..=HOPS).filter(|host| *host != dead).flat_map(|h| network.states(h)).collect();
            assert!(left.is_empty(), "seed {seed}: {left:?}");
        }
    }
    // Nothing is lost where what is cut comes from the host that has crashed.
    assert!((140..=160).contains(&worse_one_way), "{worse_one_way}");
}

/// DESTROY is lost, and reports of the end: for some seconds no packet passes in one direction of a link.
/// Either the neighbour counts as down, or the end continues where it was.
#[test]
fn an_end_of_which_a_part_is_lost_frees_everything() {
    let mut lost_one_way = 0;
    for seed in 0..60 {
        const HOPS: usize = 3;
        let (mut network, source, _) = open_within(seed, HOPS, HOUR_MS);
        let from = network.random.below(HOPS as u64) as usize;
        let way = if seed % 2 == 0 { (from, from + 1) } else { (from + 1, from) };
        network.lossy.insert(way, 100);
        network.close(0, source);
        network.at(0, |s, now, stages| s.drained(source, now, stages));
        let silent = network.random.below(8 * SECOND);
        for _ in 0..8 {
            network.run(silent / 8);
            (1..=HOPS).for_each(|host| pass_all(&mut network, host));
        }
        assert!(network.worse.keys().all(|lost| *lost == way), "seed {seed}: {:?}", network.worse);
        lost_one_way += usize::from(network.was_worse_one_way());
        network.mend();
        for _ in 0..30 {
            network.run(SECOND);
            (1..=HOPS).for_each(|host| pass_all(&mut network, host));
        }
        assert!(network.nothing_held() && end(&network, 0).is_some(), "seed {seed}");
        assert!((0..=HOPS).all(|host| network.states(host).is_empty()), "seed {seed}");
    }
    assert!(lost_one_way > 50, "{lost_one_way}");
}

/// Where it is unknown whether all has passed, D is the limit, and the quota is held as long as any host of
/// the route holds the channel.
#[test]
fn what_was_lost_is_waited_for_as_long_as_it_may_come() {
    const DEADLINE_MS: u64 = 90_000;
    let (mut network, source, _) = open_within(5, 3, DEADLINE_MS);
    network.close(0, source);
    network.at(0, |s, now, stages| s.drained(source, now, stages));
    network.run((DEADLINE_MS - 1_000) * MILLI);
    let holds = |n: &Network| n.hosts.iter().filter(|host| !host.stages.held.is_empty()).count();
    assert_eq!((end(&network, 0), holds(&network)), (None, 3), "refreshed for longer than a lease");
    while end(&network, 0).is_none() && network.step(u64::MAX) {}
    assert!(network.nothing_held());
    assert_eq!(end(&network, 0), Some((CloseReason::Local, Some(RECEIPT))));
}

/// The channel that was admitted last is ended first if the host has promised too much: a probe holds
/// nothing, and a closing channel ends anyway.
#[test]
fn the_newest_channel_is_the_last_that_holds_something() {
    let mut network = Network::line(1, 2, |_, _| {});
    network.run(SECOND);
    let newest = |n: &Network| n.hosts[0].signalling.as_ref().and_then(|s| s.newest());
    assert_eq!(newest(&network), None);
    let channels = [network.open(0, 1, 50), network.open(0, 1, 50)];
    assert!(network.run_until(SECOND, |n| n.states(0) == ["open", "open"]));
    let probe = OpenRequest { probe: true, ..network.request(1, 50) };
    network.at(0, |s, now, stages| s.open(probe, now, stages)).expect("can be tried");
    assert_eq!(network.states(0), ["open", "open", "probing"]);
    assert_eq!(newest(&network), Some(channels[1]));
    network.close(0, channels[1]);
    assert_eq!(newest(&network), Some(channels[0]));
}

/// A host that does not stop is not quiet while it has a channel, or decides about one.
#[test]
fn a_host_with_something_to_do_is_not_quiet() {
    let quiet = |n: &Network| n.hosts[0].signalling.as_ref().is_some_and(|s| s.is_quiet());
    let mut network = Network::line(1, 2, |_, _| {});
    (network.thinking_max, network.thinker) = (500 * MILLI, Some(0));
    network.run(SECOND);
    assert!(quiet(&network));
    let channel = network.open(0, 1, 50);
    assert!(network.states(0).is_empty() && !quiet(&network), "its stages are asked");
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    network.run(SECOND);
    assert!(!quiet(&network), "it is open");
    network.close(0, channel);
    network.at(0, |s, now, stages| s.drained(channel, now, stages));
    assert_eq!(network.states(0), ["settling"]);
    assert!(!quiet(&network), "its end is told once the sink has said its word");
    assert!(network.run_until(5 * SECOND, quiet));
    assert!(network.states(0).is_empty());
}
