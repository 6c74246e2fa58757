//! What a host counts, one by one.

use alloc::vec::Vec;

use super::super::packet;
use super::*;
use crate::limits::ANSWERS_WAITING_MAX;

/// The next packet of a host to its first neighbour, which is not delivered.
fn packet_of(row: &mut Row, index: usize) -> Vec<u8> {
    let (link, now, mut out) = (row.link(index, index == 0), row.now, [0; 1_400]);
    let signalling = &mut row.hosts[index].signalling;
    let before = signalling.counters().packets_sent;
    let len = signalling.poll_signal(link, now, now, &mut out).expect("it has one");
    assert_eq!(signalling.counters().packets_sent, before + 1);
    out[..len].to_vec()
}

/// Another version in a packet, with the tag of a member of the domain.
fn of_version(bytes: &[u8], version: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[0] = version;
    let signed = bytes.len() - packet::TAG_BYTES;
    let tag = packet::tag(&[0; 32], &bytes[..signed]);
    bytes[signed..].copy_from_slice(&tag);
    bytes
}

/// Each packet that is not taken is counted once, by its kind: too short, of another version, with a wrong
/// tag, or again.
#[test]
fn each_packet_that_is_not_taken_is_counted_once() {
    let mut row = Row::met(2);
    let path = lies::a_path();
    let link = row.link(1, false);
    row.hosts[1].signalling.queue_message(link, &message::Message::Confirm { path });
    let good = packet_of(&mut row, 1);
    let foreign = of_version(&good, RTCOP_VERSION + 1);
    let mut stranger = foreign.clone();
    *stranger.last_mut().expect("a tag") ^= 1;
    let mut broken = good.clone();
    *broken.last_mut().expect("a tag") ^= 1;
    let counted = |row: &Row| {
        let counters = row.hosts[0].signalling.counters();
        [
            counters.malformed,
            counters.version,
            counters.unauthenticated,
            counters.replayed,
            counters.unexpected,
        ]
    };
    let mut expected = counted(&row);
    assert_eq!(expected, [0; 5]);
    // The CONFIRM is about no channel: the packet is taken, the message unexpected.
    for (bytes, kind) in [
        (&good, 4),
        (&good, 3),
        (&good, 3),
        (&foreign, 1),
        (&stranger, 1),
        (&broken, 2),
        (&broken, 2),
        (&good[..9].to_vec(), 0),
        (&Vec::new(), 0),
        (&foreign, 1),
    ] {
        let (link, now) = (row.link(0, true), row.now);
        let Host { signalling, stages, .. } = &mut row.hosts[0];
        signalling.handle_signal(link, now, now, bytes, stages);
        expected[kind] += 1;
        assert_eq!(counted(&row), expected, "{} bytes, kind {kind}", bytes.len());
    }
    let view = row.hosts[0].signalling.neighbour(row.link(0, true), row.now);
    assert_eq!((view.unauthenticated, view.packets_foreign, view.lives), (2, 2, 1));
}

/// A packet that is sent again counts as sent, and as sent again.
#[test]
fn repetitions_are_counted() {
    let mut row = Row::met(2);
    let path = lies::a_path();
    let (link, mut out) = (row.link(1, false), [0; 1_400]);
    let signalling = &mut row.hosts[1].signalling;
    signalling.queue_message(link, &message::Message::Confirm { path });
    let before = signalling.counters();
    // At 0, 100 and 300 ms; no HELLO is due meanwhile.
    for (times, millis) in [(0, 0), (1, 100), (2, 300)] {
        let now = row.now + MILLI * millis;
        signalling.links.peers[0].handle_timeout(false, now);
        let mut packets = 0;
        while signalling.poll_signal(link, now, now, &mut out).is_some() {
            packets += 1;
        }
        let counters = signalling.counters();
        assert!(packets >= 1);
        assert_eq!(counters.retransmissions - before.retransmissions, times);
    }
}

/// A host is quiet once no link has a message to send or to be acknowledged, and has signals while any link
/// has a packet.
#[test]
fn a_host_is_quiet_only_if_all_its_links_are() {
    let path = lies::a_path();
    let nowhere = LinkId(9);
    for busy in [None, Some(LinkId(0)), Some(LinkId(1))] {
        let mut row = Row::met(3);
        let signalling = &mut row.hosts[1].signalling;
        assert!(signalling.is_quiet() && !signalling.has_signals());
        busy.into_iter().for_each(|link| signalling.queue_message(link, &message::Message::Confirm { path }));
        assert_eq!((signalling.is_quiet(), signalling.has_signals()), (busy.is_none(), busy.is_some()));
        for link in [LinkId(0), LinkId(1), nowhere] {
            assert_eq!(signalling.has_signal(link), busy == Some(link), "{link:?}");
        }
        // It is sent, and not acknowledged.
        let (now, mut out) = (row.now, [0; 1_400]);
        if let Some(link) = busy {
            while signalling.poll_signal(link, now, now, &mut out).is_some() {}
        }
        assert_eq!((signalling.is_quiet(), signalling.has_signals()), (busy.is_none(), false));
        let source = super::super::source_turns::Source { node: NodeId(2), user: UserId(1) };
        assert_eq!(
            [LinkId(0), LinkId(1), nowhere].map(|link| signalling.takes(link, source)),
            [true, true, false]
        );
        assert_eq!(
            [LinkId(0), LinkId(1), nowhere].map(|link| signalling.has_room(link)),
            [true, true, false]
        );
    }
}

/// Channels that use a link are those that are there and those that are being decided, in either direction.
#[test]
fn channels_on_a_link_are_counted_with_those_that_are_decided() {
    let mut row = Row::met(3);
    let counts = |row: &Row, index: usize| {
        [LinkId(0), LinkId(1), LinkId(9)].map(|link| row.hosts[index].signalling.channels_on(link))
    };
    for opened in 1..=3 {
        row.ask(row.request());
        assert_eq!((counts(&row, 0), counts(&row, 1)), ([opened, 0, 0], [opened, opened, 0]));
    }
    row.hosts[1].stages.thinks = true;
    for thinking in 1..=2 {
        row.ask(row.request());
        assert_eq!(counts(&row, 1), [3 + thinking, 3 + thinking, 0]);
        assert_eq!((counts(&row, 0), counts(&row, 2)), ([3 + thinking, 0, 0], [3, 0, 0]));
    }
}

/// Replies that were dropped because too many of one user's wait are requests without an answer.
#[test]
fn dropped_replies_count_as_unanswered() {
    use super::super::source_turns::Source;
    let mut row = Row::met(3);
    let signalling = &mut row.hosts[1].signalling;
    let source = Source { node: NodeId(1), user: UserId(7) };
    let (path, user) = (lies::a_path(), UserId(7));
    let refusal = signalling.refusal(RefuseCause::Exhausted);
    for more in [700, 30] {
        // Of both links together.
        for link in [LinkId(0), LinkId(1)] {
            for _ in 0..ANSWERS_WAITING_MAX + more {
                let answer = Err(refusal.clone());
                let route = lies::route(&[3, 2, 1], 2);
                let message = message::Message::Probed { path, route, user, answer };
                signalling.answer(Some(link), source, &message);
            }
        }
        let dropped: u64 = signalling.links.peers.iter().map(peer::Peer::answers_dropped).sum();
        assert!(dropped > 0);
        assert_eq!(signalling.counters().unanswered, dropped);
    }
}
