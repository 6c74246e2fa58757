//! TIME-WAIT (RFC 9293 3.6.1, 3.10.7.4; RFC 1337; RFC 6191) and other ends of a connection.

mod network;

use network::{Faults, Network};
use punctual_analysis::Nanos;
use punctual_tcp::{Config, ConnectionId, Ended, Flags, Flow, Segment, State, wire};
use wire::bare;

/// A connection whose first host waits in TIME-WAIT, and the last segment that came from its peer: its `seq` is the next
/// number, its timestamp the latest.
fn waiting(config: &Config) -> (Network, ConnectionId, Segment) {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, config);
    network.at(0, ids[0]).close();
    assert!(network.run(Nanos::from_secs(1), |network| network.at(1, ids[1]).is_finished()));
    network.at(1, ids[1]).close();
    let fin = network.segments(1).into_iter().find(|segment| segment.flags.fin).expect("a FIN");
    let acked = network.give(0, &fin, &[]).expect("an acknowledgement");
    assert_eq!(network.at(0, ids[0]).state(), State::TimeWait);
    let last = Segment { seq: acked.ack.expect("one"), ack: Some(acked.seq), ..bare(fin.flow) };
    (network, ids[0], Segment { timestamp: fin.timestamp, ..last })
}

fn syn(last: &Segment) -> Segment {
    Segment { flags: Flags { syn: true, ..Flags::default() }, ack: None, ..*last }
}

fn later(last: &Segment, milliseconds: u32) -> Option<(u32, u32)> {
    last.timestamp.map(|(value, echo)| (value.wrapping_add(milliseconds), echo))
}

/// RFC 6191 2: a SYN takes the flow over if its timestamp is newer, or its number is beyond what was received.
#[test]
fn a_newer_syn_takes_over() {
    let (_, _, last) = waiting(&Config::default());
    let old = last.seq.wrapping_sub(5);
    for (what, syn, is_over) in [
        ("newer timestamp", Segment { seq: old, timestamp: later(&last, 1), ..syn(&last) }, true),
        ("same timestamp", Segment { seq: old, ..syn(&last) }, false),
        (
            "older timestamp",
            Segment { seq: last.seq.wrapping_add(9), timestamp: later(&last, u32::MAX), ..syn(&last) },
            false,
        ),
        ("newer number", Segment { seq: last.seq.wrapping_add(1), ..syn(&last) }, true),
        ("the same number", syn(&last), false),
        ("no timestamp", Segment { seq: old, timestamp: None, ..syn(&last) }, false),
        (
            "no timestamp, newer",
            Segment { seq: last.seq.wrapping_add(1), timestamp: None, ..syn(&last) },
            true,
        ),
        (
            "a SYN-ACK",
            Segment {
                seq: last.seq.wrapping_add(1),
                ack: last.ack,
                timestamp: later(&last, 1),
                ..syn(&last)
            },
            false,
        ),
        (
            "no SYN",
            Segment { seq: last.seq.wrapping_add(1), ack: None, timestamp: later(&last, 1), ..last },
            false,
        ),
    ] {
        let (mut network, id, _) = waiting(&Config::default());
        let answer = network.give(0, &syn, &[]);
        assert_eq!(network.at(0, id).ended(), is_over.then_some(Ended::Closed), "{what}");
        let now = network.now;
        assert_eq!(network.at(0, id).is_over(now), is_over, "{what}: nothing of it is left");
        assert_eq!(
            answer.expect("a challenge, or a reset: there is no listener").flags.rst,
            is_over,
            "{what}"
        );
    }
}

/// A connection that has given its buffers back answers every late segment as one that has them, waits as long, and is over by
/// the same segments.
#[test]
fn late_segments_are_answered_without_buffers() {
    let flags = |set: fn(&mut Flags)| {
        let mut flags = Flags::default();
        set(&mut flags);
        flags
    };
    let kinds = [
        flags(|_| ()),
        flags(|flags| flags.fin = true),
        flags(|flags| flags.syn = true),
        flags(|flags| flags.rst = true),
    ];
    let numbers = [0, 1, u32::MAX, 1_000, 0_u32.wrapping_sub(1_000)];
    for (kind, more, data) in kinds
        .into_iter()
        .flat_map(|kind| numbers.map(|more| (kind, more)))
        .flat_map(|(kind, more)| [&[][..], &[7; 9]].map(|data| (kind, more, data)))
    {
        for later_by in [0, 5, u32::MAX] {
            let outcomes = [false, true].map(|rests| {
                let (mut network, id, last) = waiting(&Config::default());
                if rests {
                    network.at(0, id).rest();
                }
                assert_eq!(network.at(0, id).rests(), rests);
                let ack = last.ack.filter(|_| !kind.syn);
                let seq = last.seq.wrapping_add(more);
                let segment = Segment { flags: kind, seq, ack, timestamp: later(&last, later_by), ..last };
                network.now = network.now + Nanos::from_secs(20);
                let answer = network.give(0, &segment, data);
                let now = network.now;
                let due = network.stacks[0].next_deadline(now);
                let windows = network.at(0, id).windows();
                let connection = network.at(0, id);
                (answer, due, windows, connection.state(), connection.ended(), connection.is_over(now))
            });
            assert_eq!(outcomes[0], outcomes[1], "{kind:?}, {more}, {} B, {later_by}", data.len());
        }
    }
}

/// Only in TIME-WAIT, and only when everything was read, does a connection need no buffers.
#[test]
fn buffers_stay_until_nothing_can_be_in_them() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    network.at(0, ids[0]).rest();
    assert!(!network.at(0, ids[0]).rests(), "established");
    network.at(0, ids[0]).close();
    assert!(network.run(Nanos::from_secs(1), |network| network.at(1, ids[1]).is_finished()));
    network.at(0, ids[0]).rest();
    assert!(!network.at(0, ids[0]).rests(), "FIN-WAIT-2");
    assert_eq!(network.at(1, ids[1]).send(&[7; 100]), Ok(100));
    network.at(1, ids[1]).close();
    assert!(network.run(Nanos::from_secs(1), |network| network.at(0, ids[0]).state() == State::TimeWait));
    network.at(0, ids[0]).rest();
    assert!(!network.at(0, ids[0]).rests(), "unread");
    let mut bytes = [0; 200];
    assert_eq!(network.at(0, ids[0]).recv(&mut bytes), 100);
    network.at(0, ids[0]).rest();
    assert!(network.at(0, ids[0]).rests());
    assert_eq!(network.at(0, ids[0]).recv(&mut bytes), 0);
    network.at(0, ids[0]).abort();
    let now = network.now;
    assert!(network.at(0, ids[0]).is_over(now), "and it can be ended");
}

/// RFC 6191 2: without timestamps in the connection the number alone decides.
#[test]
fn without_timestamps_the_number_decides() {
    for (more, is_over) in [(u32::MAX - 4, false), (1, true)] {
        let (mut network, id, last) = waiting(&Config { has_timestamps: false, ..Config::default() });
        let syn =
            Segment { seq: last.seq.wrapping_add(more), timestamp: Some((u32::MAX / 3, 0)), ..syn(&last) };
        network.give(0, &syn, &[]);
        assert_eq!(network.at(0, id).ended(), is_over.then_some(Ended::Closed), "{more}");
    }
}

/// RFC 1337: no reset ends TIME-WAIT, not the one with the exact number either.
#[test]
fn no_reset_ends_time_wait() {
    let (mut network, id, last) = waiting(&Config::default());
    let rst = Segment { flags: Flags { rst: true, ..Flags::default() }, ..last };
    assert_eq!(network.give(0, &rst, &[]), None);
    assert_eq!(network.at(0, id).state(), State::TimeWait);
}

/// RFC 9293 3.5.1, figure 9: a peer that has begun anew sends an older SYN, and resets the old connection when it is answered. That
/// reset ends TIME-WAIT, if it is the exact one, and the SYN that comes again finds the flow free.
#[test]
fn the_reset_of_a_peer_that_has_begun_anew_ends_time_wait() {
    for (more, is_over) in [(0, true), (1, false), (u32::MAX, false)] {
        let (mut network, id, last) = waiting(&Config::default());
        let older = Segment { timestamp: later(&last, u32::MAX - 999), ..syn(&last) };
        let answer = network.give(0, &older, &[]).expect("an acknowledgement");
        assert_eq!((answer.flags, answer.ack), (Flags::default(), Some(last.seq)));
        assert_eq!(network.at(0, id).state(), State::TimeWait);
        let rst = Flags { rst: true, ..Flags::default() };
        let seq = last.seq.wrapping_add(more);
        let reset = Segment { flags: rst, seq, ack: None, timestamp: None, ..last };
        assert_eq!(network.give(0, &reset, &[]), None);
        assert_eq!(network.at(0, id).ended(), is_over.then_some(Ended::Closed), "{more}");
    }
}

/// RFC 9293 3.10.7.4: a FIN that comes again is acknowledged, and the wait begins anew. A bare acknowledgement at the
/// next number asks for nothing.
#[test]
fn a_repeated_fin_begins_the_wait_anew() {
    let (mut network, id, last) = waiting(&Config::default());
    let start = network.now;
    assert_eq!(network.stacks[0].next_deadline(start), Some(start + Nanos::from_secs(60)));
    network.now = start + Nanos::from_secs(40);
    assert_eq!(network.give(0, &last, &[]), None);
    assert_eq!(network.stacks[0].next_deadline(network.now), Some(start + Nanos::from_secs(60)));
    let fin =
        Segment { seq: last.seq.wrapping_sub(1), flags: Flags { fin: true, ..Flags::default() }, ..last };
    let answer = network.give(0, &fin, &[]).expect("an acknowledgement");
    assert_eq!(answer.ack, Some(last.seq));
    assert_eq!(network.stacks[0].next_deadline(network.now), Some(start + Nanos::from_secs(100)));
    assert_eq!(network.at(0, id).state(), State::TimeWait);
    // A FIN with another number is not the peer's: who guesses ports cannot keep a connection in this state.
    network.now = start + Nanos::from_secs(50);
    for other in [1, 1 << 20, 1 << 31, u32::MAX - 5] {
        let forged = Segment { seq: fin.seq.wrapping_add(other), ..fin };
        network.give(0, &forged, &[]);
        assert_eq!(network.stacks[0].next_deadline(network.now), Some(start + Nanos::from_secs(100)));
    }
}

/// RFC 9293 3.10.5: what is aborted in TIME-WAIT is over at once, without a reset: the peer has closed.
#[test]
fn an_abort_ends_time_wait_at_once() {
    let (mut network, id, _) = waiting(&Config::default());
    let now = network.now;
    network.at(0, id).abort();
    assert!(network.at(0, id).is_over(now));
    assert_eq!(network.segments(0), []);
}

/// A connection over channels that are gone waits for nothing, and it ended in order: both ends had closed.
#[test]
fn a_connection_that_is_lost_in_time_wait_is_over_at_once() {
    let (mut network, id, _) = waiting(&Config::default());
    let now = network.now;
    assert!(!network.at(0, id).is_over(now));
    network.at(0, id).lost();
    assert!(network.at(0, id).is_over(now));
    assert_eq!(network.at(0, id).ended(), Some(Ended::Closed));
}

/// RFC 9293 3.10.5: what is aborted in SYN-SENT is over at once: its SYN does not leave again.
#[test]
fn an_abort_ends_an_attempt_at_once() {
    let mut network = Network::new(1, Faults { lost: 1000, ..Faults::default() });
    let [local, remote] = network::addresses(false);
    let now = network.now;
    let id = network.stacks[0].connect(now, local.ip(), remote, &Config::default()).expect("a port");
    assert_eq!(network.segments(0).len(), 1);
    network.at(0, id).abort();
    assert!(network.at(0, id).is_over(now));
    network.run(Nanos::from_secs(200), |_| false);
    assert_eq!(network.sent, [0, 0]);
}

/// The stack's timer is that of the connection that needs it first.
#[test]
fn the_first_deadline_of_all_connections_counts() {
    let (mut network, _, last) = waiting(&Config::default());
    let now = network.now;
    let Flow { local, remote } = last.flow;
    network.stacks[0].connect(now, local.ip(), remote, &Config::default()).expect("a port");
    network.segments(0);
    assert_eq!(network.stacks[0].next_deadline(now), Some(now + Nanos::from_secs(1)), "the SYN's");
}

/// A listener's timers count with those of the connections.
#[test]
fn the_deadline_of_a_listener_counts() {
    let (mut network, _, last) = waiting(&Config::default());
    let now = network.now;
    network.stacks[0].listen(last.flow.local, &Config::default(), 4);
    let flow = Flow { remote: ([192, 0, 2, 77], 5000).into(), ..last.flow };
    let asked = Segment { seq: 9, flags: Flags { syn: true, ..Flags::default() }, ..bare(flow) };
    assert!(network.give(0, &asked, &[]).is_some());
    assert_eq!(
        network.stacks[0].next_deadline(now),
        Some(now + Nanos::from_secs(1)),
        "not the 60 s of TIME-WAIT"
    );
}

/// The program reads what a connection received after its flow has gone to another one, and removing the old one leaves
/// the new one its flow.
#[test]
fn an_old_connection_does_not_take_the_flow_of_a_new_one_away() {
    let (mut network, old, last) = waiting(&Config::default());
    network.stacks[0].listen(last.flow.local, &Config::default(), 4);
    let syn = Segment {
        seq: last.seq.wrapping_add(1_000),
        timestamp: later(&last, 1),
        window: 1_000,
        ..syn(&last)
    };
    let answer = network.give(0, &syn, &[]).expect("a SYN-ACK of the listener");
    let ack = Some(answer.seq.wrapping_add(1));
    let third = Segment { seq: syn.seq.wrapping_add(1), ack, flags: Flags::default(), ..syn };
    network.give(0, &third, &[]);
    let new = network.stacks[0].accept(last.flow.local).expect("it is open");
    assert!(network.stacks[0].remove(old).is_some());
    network.give(0, &Segment { payload_bytes: 5, ..third }, b"hello");
    assert_eq!(network.at(0, new).readable_bytes(), 5);
}
