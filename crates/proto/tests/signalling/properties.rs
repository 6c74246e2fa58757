//! Invariants of a conversation over any medium: each check takes a seed and describes a violation, if there
//! is one. The mutation check uses the same checks.

use std::collections::BTreeMap;

use punctual_analysis::Nanos;
use punctual_proto::api::Event;
use punctual_proto::limits::HELLOS_MISSED_MAX;

use crate::network::{MILLI, Network, Random, SECOND};

/// I of the channels of these networks.
const INTERVAL: u64 = 20 * MILLI;

fn closed(event: &Event) -> bool {
    matches!(event, Event::Closed { .. })
}

/// By host: the upper limit of the bounds before it, and J, of the channels that were made final there, in their order.
fn errors(network: &Network) -> Vec<Vec<(u64, u64)>> {
    let hosts = network.hosts.len();
    let mut before: BTreeMap<usize, u64> = BTreeMap::new();
    let mut reported = vec![Vec::new(); hosts];
    for (index, host) in network.hosts.iter().enumerate() {
        for (order, (_, terms, stages)) in host.stages.committed.iter().enumerate() {
            let bounds: Vec<Nanos> = stages.iter().map(|stage| stage.bound).collect();
            let upstream = before.entry(order).or_default();
            reported[index].push((*upstream, terms.arrival_error(&bounds).0));
            *upstream += bounds.iter().map(|bound| bound.0).sum::<u64>();
        }
    }
    reported
}

/// Two channels over the same hosts, one with bounds of some intervals before its last hop, one with up to thousands:
/// while a message is on its way the clocks part, and J must grow by what they may part more.
pub fn error_without_drift(seed: u64) -> Option<String> {
    let mut random = Random(seed);
    let (hosts, modest) = (2 + random.below(4) as usize, random.below(2) == 1);
    let mut network = Network::line(seed, hosts, |_, _| {});
    network.hosts.iter_mut().for_each(|host| host.stages.modest = modest);
    network.run(SECOND);
    let deadlines_ms = [50, 3_000 + random.below(60_000)];
    for deadline_ms in deadlines_ms {
        network.open(0, hosts - 1, deadline_ms);
        network.run(SECOND);
    }
    let tolerance = u64::from(network.hosts[0].config.clock_tolerance.0);
    let mut widest = 0;
    for (index, reported) in errors(&network).into_iter().enumerate() {
        let [(near, small), (far, large)] = reported[..] else {
            return Some(format!("host {index} has {} channels of 2", reported.len()));
        };
        widest = widest.max(far);
        // Two clocks, each off by its tolerance.
        let parted = (far - near) * 2 * tolerance / 1_000_000;
        if large - small + 1 < parted {
            return Some(format!("host {index}: J grows by {} ns, clocks part by {parted}", large - small));
        }
    }
    (widest < 39 * INTERVAL).then(|| format!("the longest way takes {widest} ns only"))
}

/// Two to four hosts in a row, and a channel through all of them.
fn line_with_a_channel(seed: u64, random: &mut Random) -> (usize, Network) {
    let hosts = 2 + random.below(3) as usize;
    let mut network = Network::line(seed, hosts, |_, _| {});
    network.run(SECOND);
    network.open(0, hosts - 1, 100);
    network.run(SECOND);
    (hosts, network)
}

/// One direction of one link loses all packets for longer or shorter than a neighbour may be silent. However
/// either end has reacted: soon after it is over both agree on the open channels, and a new channel opens at
/// once, either way.
pub fn one_way_silence(seed: u64) -> Option<String> {
    let mut random = Random(seed ^ 0x0e0a);
    let (hosts, mut network) = line_with_a_channel(seed, &mut random);
    let at = random.below(hosts as u64 - 1) as usize;
    let deaf = if random.below(2) == 0 { (at, at + 1) } else { (at + 1, at) };
    network.lossy.insert(deaf, 100);
    network.run((1 + random.below(HELLOS_MISSED_MAX * 3)) * SECOND + random.below(SECOND));
    network.lossy.clear();
    network.run(5 * SECOND);
    let kept = network.states(0).len();
    let agree = |n: &Network, count| (0..hosts).all(|host| n.states(host) == vec!["open"; count]);
    if !agree(&network, kept) {
        let states: Vec<_> = (0..hosts).map(|host| network.states(host)).collect();
        return Some(format!("after a silence from {deaf:?} the hosts know {states:?}"));
    }
    for (from, to) in [(0, hosts - 1), (hosts - 1, 0)] {
        network.open(from, to, 100);
    }
    let opened = network.run_until(2 * SECOND, |n| agree(n, kept + 2));
    (!opened).then(|| format!("after a silence from {deaf:?} nothing opens between hosts that are alive"))
}

/// A medium that loses all packets for two seconds of the five for which a neighbour may be silent ends
/// nothing, even if messages were under way just then; these arrive afterwards.
pub fn short_outage(seed: u64) -> Option<String> {
    let mut random = Random(seed ^ 0x0074);
    let (hosts, mut network) = line_with_a_channel(seed, &mut random);
    if !network.all_in("open") {
        return Some("a channel does not open on a good medium".into());
    }
    // All of it, or one direction of one link.
    match random.below(3) {
        0 => network.loss_percent = 100,
        way => {
            let at = random.below(hosts as u64 - 1) as usize;
            network.lossy.insert(if way == 1 { (at, at + 1) } else { (at + 1, at) }, 100);
        }
    }
    network.open(0, hosts - 1, 100);
    network.open(hosts - 1, 0, 100);
    network.run(2 * SECOND);
    (network.loss_percent, network.lossy) = (0, BTreeMap::new());
    network.run(6 * SECOND);
    let ended: usize = (0..hosts).map(|host| network.count(host, closed)).sum();
    let states: Vec<_> = (0..hosts).map(|host| network.states(host)).collect();
    let all = states.iter().all(|states| *states == ["open"; 3]);
    (ended > 0 || !all).then(|| format!("an outage of 2 s ends {ended} channels, left are {states:?}"))
}

/// More channels over one link than one REFRESH can name: all stay open for three leases and more.
pub fn many_refreshed(seed: u64) -> Option<String> {
    let mut random = Random(seed ^ 0x3a9e);
    let count = 1_001 + random.below(100) as usize;
    let hosts = 2 + random.below(2) as usize;
    let mut network = Network::line(seed, hosts, |_, config| {
        config.signalling.packets_per_second = 10_000;
    });
    network.rarely = true;
    network.run(SECOND);
    for _ in 0..count {
        network.open(0, hosts - 1, 100);
        network.run(2 * MILLI);
    }
    network.run(70 * SECOND);
    (0..hosts).for_each(|host| network.check(host));
    let left: Vec<_> = (0..hosts).map(|host| network.states(host).len()).collect();
    let ended: usize = (0..hosts).map(|host| network.count(host, closed)).sum();
    let lives = left.iter().all(|left| *left == count) && ended == 0;
    (!lives).then(|| format!("of {count} channels {left:?} are left after 70 s, {ended} ends were told"))
}

fn holds(seeds: std::ops::Range<u64>, property: fn(u64) -> Option<String>) {
    for seed in seeds {
        assert_eq!(property(seed), None, "seed {seed}");
    }
}

#[test]
fn the_error_of_arrivals_grows_with_the_bounds_before() {
    holds(0..40, error_without_drift);
}

#[test]
fn a_silence_in_one_direction_leaves_no_misunderstanding() {
    holds(0..60, one_way_silence);
}

#[test]
fn an_outage_within_a_neighbours_patience_ends_nothing() {
    holds(0..40, short_outage);
}

#[test]
fn every_channel_of_a_crowded_link_is_refreshed() {
    holds(0..1, many_refreshed);
}
