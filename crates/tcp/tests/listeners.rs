//! Listeners: half-open connections, cookies, and what is accepted in which order.

mod network;

use network::{Faults, Network, addresses};
use punctual_analysis::{Instant, Nanos};
use punctual_tcp::{Answer, Config, Connection, Flags, Flow, Listener, Secrets, Segment, wire};
use wire::bare;

const START: Instant = Instant(1_000_000_000);

fn flow(port: u16) -> Flow {
    Flow { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], port).into() }
}

fn syn(port: u16, seq: u32) -> Segment {
    Segment { seq, flags: Flags { syn: true, ..Flags::default() }, ..bare(flow(port)) }
}

struct Host {
    listener: Listener,
    secrets: Secrets,
}

impl Host {
    fn new(backlog: usize) -> Self {
        Self { listener: Listener::new(&Config::default(), backlog), secrets: Secrets::new([1; 16]) }
    }

    /// Gives a segment to the listener: whether it opened a connection, and what it answers.
    fn give(&mut self, now: Instant, segment: &Segment) -> (bool, Option<Segment>) {
        self.give_with(true, now, segment)
    }

    /// The same; `has_room`: whether there is room for one more connection.
    fn give_with(&mut self, has_room: bool, now: Instant, segment: &Segment) -> (bool, Option<Segment>) {
        let mut reply = Vec::new();
        let answer = self.listener.input(now, segment, &self.secrets, has_room, &mut reply);
        (matches!(answer, Answer::Opened(_)), wire::parse(&reply).ok())
    }

    /// What the listener sends again at `now`.
    fn sends_again(&mut self, now: Instant) -> Option<Segment> {
        let mut packet = Vec::new();
        self.listener
            .output(now, &self.secrets, &mut packet)
            .then(|| wire::parse(&packet).expect("a segment"))
    }
}

/// The third segment of a handshake that got this answer.
fn third(answer: &Segment) -> Segment {
    let ack = Some(answer.seq.wrapping_add(1));
    Segment { seq: 10, ack, window: 1000, ..bare(flow(answer.flow.local.port())) }
}

/// RFC 9293 3.10.7.4: a SYN that comes again gets the same answer; one with another number begins anew.
#[test]
fn a_repeated_syn_gets_the_same_answer() {
    let mut host = Host::new(4);
    let first = host.give(START, &syn(5000, 9)).1.expect("a SYN-ACK");
    let again = host.give(START + Nanos::from_millis(500), &syn(5000, 9)).1.expect("a SYN-ACK");
    assert_eq!((again.seq, again.ack), (first.seq, first.ack));
    assert_eq!(host.listener.half_open(), 1);
    let other = host.give(START + Nanos::from_millis(900), &syn(5000, 77)).1.expect("a SYN-ACK");
    assert_eq!(other.ack, Some(78));
    assert_ne!(other.seq, first.seq, "RFC 6528: the clock has moved");
    assert_eq!(host.listener.half_open(), 1);
}

/// As many half-open connections as the backlog, and not one more.
#[test]
fn the_backlog_bounds_half_open_connections() {
    for backlog in [0, 1, 3] {
        let mut host = Host::new(backlog);
        for port in 5000..5005 {
            assert!(host.give(START, &syn(port, 9)).1.is_some(), "a full backlog answers by cookies");
        }
        assert_eq!(host.listener.half_open(), backlog);
        host.give_with(false, START, &syn(5005, 9));
        let counts = host.listener.counts();
        assert_eq!((counts.cookies, counts.unanswered), (5 - backlog as u64, 1));
    }
}

/// Where nobody takes connections, no peer is told that its one is open: a new SYN gets no reply until there is room.
#[test]
fn a_syn_without_room_for_its_connection_gets_no_answer() {
    for backlog in [0, 4] {
        let mut host = Host::new(backlog);
        assert_eq!(host.give_with(false, START, &syn(5000, 9)), (false, None));
        assert_eq!((host.listener.half_open(), host.listener.next_deadline()), (0, None));
        let answer = host.give(START + Nanos::from_secs(1), &syn(5000, 9)).1.expect("a SYN-ACK");
        assert_eq!(answer.ack, Some(10));
    }
    // A peer that was answered while there was room is answered again.
    let mut host = Host::new(4);
    let first = host.give(START, &syn(5000, 9)).1.expect("a SYN-ACK");
    let again = host.give_with(false, START + Nanos::from_millis(500), &syn(5000, 9)).1.expect("a SYN-ACK");
    assert_eq!(again.seq, first.seq);
}

/// A peer that has its answer takes the connection for open, and may wait for bytes. If there is no room when its third segment comes,
/// it is asked for that again, also if it was answered by a cookie; then the connection opens.
#[test]
fn a_third_segment_without_room_is_asked_for_again() {
    for is_cookie in [false, true] {
        let mut host = Host::new(1);
        if is_cookie {
            host.give(START, &syn(5001, 9)).1.expect("it takes the only place");
        }
        let stamped = Segment { timestamp: Some((1, 0)), scale: Some(7), sack: true, ..syn(5000, 9) };
        let answer = host.give(START, &stamped).1.expect("a SYN-ACK");
        if is_cookie {
            let reset =
                Segment { flags: Flags { rst: true, ..Flags::default() }, seq: 10, ..bare(flow(5001)) };
            host.give(START, &reset);
        }
        assert_eq!(host.listener.half_open(), usize::from(!is_cookie));
        let (stamp, _) = answer.timestamp.expect("a timestamp");
        let third = Segment { timestamp: Some((1, stamp)), ..third(&answer) };
        assert_eq!(host.give_with(false, START, &third), (false, None), "cookie: {is_cookie}");
        assert_eq!(host.listener.half_open(), 1);
        assert_eq!(host.sends_again(START + Nanos::from_millis(999)), None);
        let again = host.sends_again(START + Nanos::from_secs(1)).expect("a SYN-ACK");
        assert_eq!((again.seq, again.ack), (answer.seq, answer.ack));
        assert!(again.scale.is_some() && again.sack, "the same options");
        let now = START + Nanos::from_millis(1_010);
        assert!(host.give(now, &third).0, "cookie: {is_cookie}");
        assert_eq!(host.listener.half_open(), 0);
    }
}

/// As many cookies are stored so as there is room for half-open connections.
#[test]
fn cookies_that_are_stored_stay_within_the_backlog() {
    let mut host = Host::new(0);
    let answer = host.give(START, &syn(5000, 9)).1.expect("a SYN-ACK");
    assert_eq!(host.give_with(false, START, &third(&answer)), (false, None));
    assert_eq!((host.listener.half_open(), host.listener.next_deadline()), (0, None));
    assert!(host.give(START, &third(&answer)).0, "the cookie is good still");
}

/// RFC 9293 3.10.7.4, first: the third segment is at or after the number that follows the SYN; an older one opens nothing.
#[test]
fn an_old_third_segment_opens_nothing() {
    for (seq, is_opened) in [(8, false), (9, false), (10, true), (11, true)] {
        let mut host = Host::new(4);
        let answer = host.give(START, &syn(5000, 9)).1.expect("a SYN-ACK");
        let ack = Some(answer.seq.wrapping_add(1));
        let third = Segment { seq, ack, window: 1000, ..bare(flow(5000)) };
        assert_eq!(host.give(START, &third).0, is_opened, "{seq}");
    }
}

/// RFC 7323 5.4: the clock of a listener's timestamps counts milliseconds.
#[test]
fn the_clock_of_a_listener_counts_milliseconds() {
    let mut host = Host::new(4);
    let stamped = Segment { timestamp: Some((1, 0)), ..syn(5000, 9) };
    let mut value_at = |seconds| {
        let answer = host.give(START + Nanos::from_secs(seconds), &stamped).1.expect("a SYN-ACK");
        answer.timestamp.expect("both ends use timestamps").0
    };
    let first = value_at(0);
    assert_eq!([1, 4_000].map(|seconds| value_at(seconds).wrapping_sub(first)), [1_000, 4_000_000]);
}

/// RFC 4987 3.6: a cookie has no room for scale and SACK where the peer sends no timestamps, so they are not offered.
#[test]
fn a_cookie_offers_only_what_it_encodes() {
    for (timestamp, has_options) in [(None, false), (Some((1, 0)), true)] {
        let asked = Segment { timestamp, scale: Some(7), sack: true, ..syn(5000, 9) };
        let answer = Host::new(0).give(START, &asked).1.expect("a SYN-ACK");
        assert_eq!((answer.scale.is_some(), answer.sack), (has_options, has_options));
        assert_eq!(answer.timestamp.is_some(), has_options);
        let kept = Host::new(4).give(START, &asked).1.expect("a SYN-ACK");
        assert!(kept.scale.is_some() && kept.sack, "a half-open connection remembers all");
    }
}

/// A cookie is taken for two slots of 64 s, to their very end, also if it is the last that the listener sent.
#[test]
fn a_cookie_is_good_for_two_slots() {
    let begun = Instant(64_000_000_000 * 20);
    for (after, is_opened) in
        [(Nanos::ZERO, true), (Nanos(127_999_999_999), true), (Nanos::from_secs(128), false)]
    {
        let mut host = Host::new(0);
        let answer = host.give(begun, &syn(5000, 9)).1.expect("a SYN-ACK");
        let third =
            Segment { seq: 10, ack: Some(answer.seq.wrapping_add(1)), window: 1000, ..bare(flow(5000)) };
        assert_eq!(host.give(begun + after, &third).0, is_opened, "{after}");
    }
}

/// The connection that was opened first is accepted first.
#[test]
fn connections_are_accepted_in_their_order() {
    let mut network = Network::new(1, Faults::default());
    let [local, remote] = addresses(false);
    network.stacks[1].listen(remote, &Config::default(), 4);
    let mut ports = Vec::new();
    for _ in 0..3 {
        let now = network.now;
        let id = network.stacks[0].connect(now, local.ip(), remote, &Config::default()).expect("a port");
        ports.push(network.at(0, id).flow().local.port());
        network.run(Nanos::from_secs(1), |_| false);
    }
    let accepted = [0; 3].map(|_| {
        let id = network.stacks[1].accept(remote).expect("three wait");
        network.at(1, id).flow().remote.port()
    });
    assert_eq!(accepted[..], ports[..]);
    assert_eq!(network.stacks[1].accept(remote), None);
}

/// A removed connection frees its flow: its port is chosen again when no other is left.
#[test]
fn ports_of_removed_connections_are_free() {
    let mut network = Network::new(1, Faults::default());
    let [local, remote] = addresses(false);
    let config = Config { receive_bytes: 1, send_bytes: 1, ..Config::default() };
    let (now, stack) = (network.now, &mut network.stacks[0]);
    let mut ids = Vec::new();
    while let Ok(id) = stack.connect(now, local.ip(), remote, &config) {
        ids.push(id);
    }
    assert!(ids.len() > 10_000, "{} ports", ids.len());
    let removed = stack.remove(ids[77]).expect("it is there").flow();
    let id = stack.connect(now, local.ip(), remote, &config).expect("one port is free");
    assert_eq!(stack.get(id).expect("it is there").flow(), removed);
    assert!(stack.connect(now, local.ip(), remote, &config).is_err());
}

/// The handshake measures the round trip at the accepting end, too: until the third segment comes, not until the program takes the
/// connection. The end of its first flight is probed for after two round trips of 10 ms, and 200 ms for a single segment.
#[test]
fn the_round_trip_of_a_handshake_does_not_include_the_program() {
    for (accepted_ms, probed_ms) in [(0, 220), (900, 220), (30_000, 220)] {
        let mut host = Host::new(4);
        let syn = Segment { mss: Some(1_460), sack: true, window: 60_000, ..syn(5000, 9) };
        let answer = host.give(START, &syn).1.expect("a SYN-ACK");
        let now = START + Nanos::from_millis(10);
        let third =
            Segment { seq: 10, ack: Some(answer.seq.wrapping_add(1)), window: 60_000, ..bare(flow(5000)) };
        let Answer::Opened(opening) = host.listener.input(now, &third, &host.secrets, true, &mut Vec::new())
        else {
            panic!("it opens")
        };
        let config = Config { is_nodelay: true, ..Config::default() };
        let mut connection = Connection::accept(&opening, &config, &host.secrets, now).expect("a flow");
        let now = now + Nanos::from_millis(accepted_ms);
        let (mut packet, mut reply) = (Vec::new(), Vec::new());
        wire::write(&turned(&third), 64, true, &mut packet);
        assert!(connection.input(now, &mut packet, &mut reply).is_ok());
        assert_eq!(connection.send(&[7; 500]), Ok(500));
        assert!(connection.output(now, &mut packet));
        while connection.output(now, &mut packet) {}
        assert_eq!(connection.next_deadline(now), Some(now + Nanos::from_millis(probed_ms)), "{accepted_ms}");
    }
}

/// As its sender writes it.
fn turned(segment: &Segment) -> Segment {
    Segment { flow: Flow { local: segment.flow.remote, remote: segment.flow.local }, ..*segment }
}
