//! What a host counts, one by one, and how much it does in one call.

use alloc::vec::Vec;

use super::super::packet;
use super::*;
use crate::api::RequestError;
use crate::limits::ENDS_MAX;

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

/// Each packet that is not taken is counted once, by its kind: too short, of another version, with a wrong tag, or again.
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

/// Listeners are numbered from 1 on, and their handles are not used again.
#[test]
fn listeners_are_numbered_one_after_the_other() {
    let mut signalling = Signalling::new(&config(0, 2), 7, Instant::ZERO);
    let mut stages = Stages::default();
    for number in 1..10 {
        let listener = signalling.listen(name("port"), Nanos::ZERO);
        assert_eq!(listener, Ok(crate::ids::ListenerId(number)));
        assert_eq!(signalling.listen(name("port"), Nanos::ZERO), Err(RequestError::NameTaken(name("port"))));
        let unlisten = signalling.unlisten(crate::ids::ListenerId(number), Instant::ZERO, &mut stages);
        assert_eq!(unlisten, Ok(()));
        while signalling.has_more() {
            signalling.handle_timeout(Instant::ZERO, &mut stages);
        }
    }
}

/// One call ends so many channels whose time is over, and the next one goes on.
#[test]
fn one_call_ends_a_bounded_number_of_channels() {
    let mut row = Row::met(2);
    row.hosts[1].consents = false;
    // Less than the silence by which a neighbour is lost.
    row.hosts[1].signalling.config.signalling.consent_timeout = Nanos::from_secs(1);
    let opened = 2 * ENDS_MAX + 5;
    for _ in 0..opened {
        row.ask(row.request());
    }
    row.hosts[1].is_mute = true;
    let over = row.now + row.hosts[1].signalling.config.signalling.consent_timeout;
    let Host { signalling, stages, .. } = &mut row.hosts[1];
    for left in [ENDS_MAX + 5, 5, 0, 0] {
        signalling.expire_requests(over);
        assert!(signalling.poll_timeout().is_some_and(|due| left == 0 || due <= over));
        signalling.handle_timeout(over, stages);
        assert_eq!(signalling.channels().count(), left);
    }
}

/// A REFRESH names up to a thousand channels; one call sends those of one, and the rest follows at once.
#[test]
fn channels_are_refreshed_a_thousand_at_a_time() {
    for opened in [999, 1_000, 1_001, 2_000] {
        let mut row = Row::met(2);
        for _ in 0..opened {
            row.ask(row.request());
        }
        row.hosts.iter_mut().for_each(|host| host.events.clear());
        let lease = row.hosts[1].signalling.config.signalling.lease;
        row.now = row.hosts[0].signalling.refreshes.at.expect("it has channels");
        let renewed = |row: &Row| {
            let leased = row.hosts[1].signalling.channels.iter();
            leased.filter(|channel| channel.lease.at() == Some(row.now + lease)).count()
        };
        assert_eq!(renewed(&row), 0);
        for call in 1..=3 {
            row.at(0, |signalling, now, stages| signalling.handle_timeout(now, stages));
            assert_eq!(renewed(&row), opened.min(1_000 * call), "{opened}: {call}");
            // A full one may have more behind it.
            assert_eq!(row.hosts[0].signalling.has_more(), opened >= 1_000 * call, "{opened}: {call}");
        }
    }
}

/// The receiver's ring holds the messages that the stage before the sink may let come together, if each host holds them until
/// their arrival.
#[test]
fn a_ring_behind_hosts_that_hold_messages_counts_with_the_stage_before_it() {
    // Intervals around what the link before the sink takes, 1 ms: those of its processor, 0.1 ms, would need fewer places.
    for per_second in [600, 1_000, 1_700, 3_100] {
        let mut row = Row::met(3);
        row.hosts[2].consents = false;
        let rate = Rate::per_second(per_second).expect("a rate");
        let horizon = punctual_analysis::Horizon::Regulated;
        let contract = Contract { horizon, ..Contract::new(1_000, rate, 3, MILLI * 50).expect("valid") };
        row.ask(OpenRequest { contract, ..row.request() });
        let Some(Event::Incoming(incoming)) = row.hosts[2].events.last() else { panic!("it is asked") };
        let channel = row.hosts[2].signalling.channels.get(incoming.channel).expect("it asks");
        let setup = channel.setup.as_ref().expect("it is being set up");
        let stages = &setup.all_stages;
        assert_eq!((stages.len(), stages[3].kind, stages[3].bound), (5, StageKind::Link, MILLI));
        let interval = contract.policed_interval();
        let behind = (MILLI + stages[4].bound).div_ceil(interval);
        // J: its fixed part, and what clocks drift apart over all bounds before.
        let before = contract.deadline - stages[4].bound;
        let error = setup.arrival_error_fixed + Ppm(200).of(before);
        let messages = behind + error.div_ceil(interval) + 1;
        assert_eq!(u64::from(incoming.inbox_messages), messages, "{per_second}");
    }
}

/// A reason may be 50 characters long, whatever they are; the rest is left out.
#[test]
fn a_reason_for_a_refused_request_is_cut_between_characters() {
    for (chars, arrive) in [(49, 49), (50, 50), (51, 50), (500, 50)] {
        let mut row = Row::met(2);
        let source = Address { port: name("in"), host: name("h1") };
        let asked = row.at(1, |s, now, _| s.request(&source, name("in"), contract(), UserId(3), now));
        asked.expect("can be tried");
        let Some(Event::Requested { token, .. }) = row.hosts[0].events.last() else { panic!("it is asked") };
        let (token, why) = (*token, "\u{1f3a5}".repeat(chars));
        row.at(0, |signalling, now, _| signalling.refuse_request(token, &why, now)).expect("it waits");
        let Some(Event::RequestFailed { refusal, .. }) = row.hosts[1].events.last() else {
            panic!("{chars}")
        };
        let RefuseCause::Receiver(reason) = &refusal.cause else { panic!("{refusal:?}") };
        assert_eq!(reason.as_str(), "\u{1f3a5}".repeat(arrive), "{chars}");
    }
}

/// A host is quiet once no link has a message to send or to be acknowledged, and has signals while any link has a packet.
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
        for link in busy {
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
