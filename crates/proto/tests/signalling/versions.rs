//! Neighbours of two versions: detected as such, refused with that reason, and met again once they use the
//! same version.

use punctual_proto::api::{CloseReason, Event, RefuseCause};
use punctual_proto::ids::LinkId;
use punctual_proto::signalling::{NeighbourView, RTCOP_VERSION};

use crate::network::{Network, SECOND};

fn view(network: &Network, host: usize, link: u16) -> NeighbourView {
    let (host, now) = (&network.hosts[host], network.now);
    host.signalling.as_ref().expect("alive").neighbour(LinkId(link), host.local(now))
}

/// Four in a row, of which the third changes its version by a restart.
fn upgraded(seed: u64) -> Network {
    let mut network = Network::line(seed, 4, |_, _| {});
    assert!(network.run_until(5 * SECOND, |n| n.alive(1, 1) && n.alive(2, 1)), "seed {seed}");
    upgrade(&mut network, Some(2));
    network
}

fn upgrade(network: &mut Network, foreign: Option<usize>) {
    network.crash(2);
    network.foreign = foreign;
    network.start(2);
}

fn refused_by_version(event: &Event, node: u32, theirs: u8, ours: u8) -> bool {
    let Event::Refused { refusal, .. } = event else { return false };
    matches!(&refusal.cause, RefuseCause::Version { node: n, theirs: t, ours: o }
        if n.0 == node && *t == theirs && *o == ours)
}

#[test]
fn a_neighbour_of_another_version_is_named_and_does_not_flap() {
    for seed in 0..5 {
        let mut network = upgraded(seed);
        network.run(8 * SECOND);
        let (newer, older) = (RTCOP_VERSION + 1, RTCOP_VERSION - 1);
        for _ in 0..200 {
            network.run(SECOND / 4);
            for (host, link, version) in [(1, 1, newer), (3, 0, newer), (2, 0, older), (2, 1, older)] {
                let seen = view(&network, host, link);
                assert!(!seen.alive, "seed {seed} host {host}");
                assert_eq!(seen.foreign_version, Some(version), "seed {seed} host {host}");
            }
            assert!(network.alive(0, 0) && network.alive(1, 0), "seed {seed}: the others live on");
        }
        assert!(view(&network, 1, 1).packets_foreign > 50, "seed {seed}");
    }
}

#[test]
fn channels_across_it_are_refused_with_that_reason_and_others_live_on() {
    let mut network = upgraded(7);
    network.run(8 * SECOND);
    for (from, to, asked) in [(0, 3, 1), (1, 2, 1), (3, 2, 3), (2, 1, 2)] {
        network.open(from, to, 100);
        network.run(SECOND);
        let last = network.hosts[from].events.last().cloned().expect("an answer");
        let (node, theirs) = match asked {
            2 => (2, RTCOP_VERSION - 1),
            _ => (3, RTCOP_VERSION + 1),
        };
        assert!(refused_by_version(&last, node, theirs, RTCOP_VERSION), "{from} to {to}: {last:?}");
        assert!(network.nothing_held(), "{from} to {to}");
    }
    network.open(0, 1, 100);
    assert!(network.run_until(SECOND, |n| n.states(0) == ["open"] && n.states(1) == ["open"]));
    network.run(60 * SECOND);
    assert_eq!(network.states(1), ["open"]);
}

/// Open channels end once, on both sides; requests before the silence is detected are refused for the
/// version, too.
#[test]
fn a_change_of_version_ends_what_was_open_and_leaves_nothing_half_open() {
    for seed in 0..5 {
        let mut network = Network::line(seed, 4, |_, _| {});
        network.open(0, 3, 100);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
        upgrade(&mut network, Some(2));
        network.run(SECOND / 10);
        network.open(0, 3, 100);
        network.run(30 * SECOND);
        assert!(network.nothing_held(), "seed {seed}");
        let lost = |e: &Event| matches!(e, Event::Closed { reason: CloseReason::PathLost, .. });
        assert_eq!((network.count(0, lost), network.count(3, lost)), (1, 1), "seed {seed}");
        let refused = |e: &Event| refused_by_version(e, 3, RTCOP_VERSION + 1, RTCOP_VERSION);
        assert_eq!(network.count(0, refused), 1, "seed {seed}: {:?}", network.hosts[0].events);
    }
}

#[test]
fn neighbours_that_come_to_speak_the_same_version_meet() {
    let mut network = upgraded(3);
    network.run(20 * SECOND);
    upgrade(&mut network, None);
    assert!(network.run_until(4 * SECOND, |n| n.alive(1, 1) && n.alive(2, 0) && n.alive(3, 0)));
    assert_eq!(view(&network, 1, 1).foreign_version, None);
    network.open(0, 3, 100);
    assert!(network.run_until(2 * SECOND, |n| n.all_in("open")));
}

/// A neighbour that has left is down, whatever version it used.
#[test]
fn a_foreign_neighbour_that_becomes_silent_is_down() {
    let mut network = upgraded(4);
    network.run(20 * SECOND);
    network.crash(2);
    network.run(20 * SECOND);
    assert_eq!((view(&network, 1, 1).alive, view(&network, 1, 1).foreign_version), (false, None));
    network.open(0, 3, 100);
    network.run(10 * SECOND);
    let unreachable = |e: &Event| matches!(e, Event::Refused { refusal, .. } if matches!(refusal.cause, RefuseCause::Unreachable(_)));
    assert!(network.has(0, unreachable), "{:?}", network.hosts[0].events);
}

/// Recordings of a neighbour's packets before its upgrade do not end its state.
#[test]
fn recordings_of_another_version_do_not_end_a_neighbour() {
    let mut network = upgraded(5);
    network.tape = Some(Vec::new());
    network.run(10 * SECOND);
    let tape = network.tape.take().expect("recording");
    upgrade(&mut network, None);
    assert!(network.run_until(4 * SECOND, |n| n.alive(1, 1) && n.alive(2, 0) && n.alive(3, 0)));
    network.open(0, 3, 100);
    assert!(network.run_until(2 * SECOND, |n| n.all_in("open")), "{:?}", network.hosts[0].events);
    for flying in &tape {
        network.deliver(flying);
        network.run(SECOND / 10);
    }
    assert!(network.all_in("open") && network.alive(1, 1));
}
