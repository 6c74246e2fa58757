//! Single fields and timers of an open connection.

mod network;

use network::{Faults, Network, addresses};
use punctual_analysis::Nanos;
use punctual_tcp::{Config, Connection, ConnectionId, Ended, Flags, Flow, Received, Secrets, Segment, wire};
use wire::bare;

/// An open connection at rest.
fn open(config: &Config) -> (Network, [ConnectionId; 2]) {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, config);
    network.run(Nanos::from_secs(1), |_| false);
    (network, ids)
}

/// RFC 9293 3.8.6.3: a single segment is acknowledged after the configured delay, not earlier.
#[test]
fn an_acknowledgement_waits_for_the_configured_delay() {
    for delay_ms in [100, 250] {
        let ack_delay = Nanos::from_millis(delay_ms);
        let (mut network, ids) = open(&Config { ack_delay, ..Config::default() });
        assert_eq!(network.at(1, ids[1]).send(b"x"), Ok(1));
        let sent = network.segments(1).pop().expect("a segment");
        assert_eq!(network.give(0, &sent, b"x"), None);
        let (start, due) = (network.now, network.now + ack_delay);
        assert_eq!(network.at(0, ids[0]).next_deadline(start), Some(due));
        network.now = punctual_analysis::Instant(due.0 - 1_000);
        assert_eq!(network.segments(0), []);
        network.now = due;
        let acks: Vec<_> = network.segments(0).iter().map(|segment| segment.ack).collect();
        assert_eq!(acks, [Some(sent.seq.wrapping_add(1))]);
    }
}

/// RFC 7323 3.2: the echo of a segment without an acknowledgement is zero.
#[test]
fn a_syn_echoes_zero() {
    let mut network = Network::new(1, Faults::default());
    let [local, remote] = addresses(false);
    let now = network.now;
    network.stacks[0].connect(now, local.ip(), remote, &Config::default()).expect("a port");
    let syn = network.segments(0).pop().expect("a SYN");
    assert_eq!(syn.timestamp.map(|(_, echo)| echo), Some(0));
}

/// RFC 7323 5.4: the clock of the timestamps counts milliseconds, and begins elsewhere for each flow.
#[test]
fn the_clock_of_the_timestamps_counts_milliseconds() {
    let (mut network, ids) = open(&Config::default());
    let mut value_after = |seconds| {
        network.now = network.now + Nanos::from_secs(seconds);
        assert_eq!(network.at(0, ids[0]).send(b"x"), Ok(1));
        let sent = network.segments(0).pop().expect("a segment");
        sent.timestamp.expect("both ends use timestamps").0
    };
    let first = value_after(0);
    assert_eq!(value_after(800).wrapping_sub(first), 800_000);
    let mut values = std::collections::BTreeSet::new();
    let [local, remote] = addresses(false);
    for _ in 0..8 {
        let now = network.now;
        network.stacks[0].connect(now, local.ip(), remote, &Config::default()).expect("a port");
    }
    values.extend(network.segments(0).iter().filter_map(|syn| syn.timestamp));
    assert!(values.len() >= 8, "{values:?}");
}

/// Port 1 is a port as all others from 1 on (RFC 6335 6).
#[test]
fn ports_begin_at_1() {
    for (local, remote, is_port) in [(1, 9, true), (9, 1, true), (0, 9, false), (9, 0, false)] {
        let flow = Flow { local: ([10, 0, 0, 1], local).into(), remote: ([10, 0, 0, 2], remote).into() };
        let now = punctual_analysis::Instant(1_000_000_000);
        let connection = Connection::connect(flow, &Config::default(), &Secrets::new([1; 16]), now);
        assert_eq!(connection.is_some(), is_port, "{local} {remote}");
    }
}

/// Sets the urgent pointer of a packet over IPv4 without options, and its checksum by the difference (RFC 1624 3).
fn mark_urgent(packet: &mut [u8], pointer: u16) {
    let word = |packet: &[u8], at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let (flags_at, sum_at, pointer_at) = (20 + 12, 20 + 16, 20 + 18);
    let flags = word(packet, flags_at) | 0x20;
    let mut sum = u32::from(!word(packet, sum_at));
    for (at, new) in [(flags_at, flags), (pointer_at, pointer)] {
        sum += u32::from(!word(packet, at)) + u32::from(new);
        packet[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[sum_at..sum_at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// RFC 9293 3.10.7.4, sixth: a segment outside the window, on either side, marks nothing as urgent.
#[test]
fn urgent_pointers_outside_the_window_mark_nothing() {
    for (offset, ahead) in
        [(0, Some(50)), (0_u32.wrapping_sub(10), None), (262_144 + 10_000, None), (0x4000_0000, None)]
    {
        let (mut network, ids) = open(&Config { has_timestamps: false, ..Config::default() });
        assert_eq!(network.at(1, ids[1]).send(b"x"), Ok(1));
        let base = network.segments(1).pop().expect("a segment");
        let bare = Segment { seq: base.seq.wrapping_add(offset), flags: Flags::default(), ..base };
        let (mut packet, mut reply) = (Vec::new(), Vec::new());
        wire::write(&bare, 64, false, &mut packet);
        mark_urgent(&mut packet, 50);
        assert_eq!(wire::parse(&packet).expect("well-formed").urgent, Some(50));
        let now = network.now;
        network.stacks[0].input(now, &mut packet, &mut reply).expect("well-formed");
        assert_eq!(network.at(0, ids[0]).urgent_ahead(), ahead, "{offset}");
    }
}

/// Nothing of an ended connection leaves, also where the caller's buffer still holds an earlier packet.
#[test]
fn an_ended_connection_leaves_no_packet() {
    let (mut network, ids) = open(&Config::default());
    network.at(0, ids[0]).abort();
    assert_eq!(network.segments(0).len(), 1);
    let (now, mut packet) = (network.now, vec![1, 2, 3]);
    assert!(!network.at(0, ids[0]).output(now, &mut packet));
    assert_eq!(packet, []);
}

/// RFC 9293 3.10.7.4, first: a peer that has filled the window acknowledges from its end, while its first segment is missing.
#[test]
fn an_acknowledgement_from_the_end_of_a_full_window_counts() {
    let (mut network, ids) = open(&Config { receive_bytes: 3_000, ..Config::default() });
    assert_eq!(network.at(0, ids[0]).send(b"data"), Ok(4));
    let sent = network.segments(0).pop().expect("a segment");
    let flow = Flow { local: sent.flow.remote, remote: sent.flow.local };
    let next = sent.ack.expect("one");
    let ack = Segment {
        seq: next.wrapping_add(u32::from(sent.window)),
        ack: Some(sent.seq.wrapping_add(4)),
        window: 3_000,
        timestamp: sent.timestamp.map(|(value, echo)| (echo, value)),
        ..bare(flow)
    };
    assert_eq!(network.at(0, ids[0]).unacknowledged_bytes(), 4);
    assert_eq!(network.give(0, &ack, &[]), None);
    assert_eq!(network.at(0, ids[0]).unacknowledged_bytes(), 0);
}

/// RFC 9293 3.8.3: `output` alone ends a connection by the user timeout; no call for its deadline is needed.
#[test]
fn output_alone_ends_a_connection_in_time() {
    let (mut network, ids) = open(&Config::default());
    assert_eq!(network.at(0, ids[0]).send(b"x"), Ok(1));
    let start = network.now;
    for seconds in [0, 1, 100, 890] {
        network.now = start + Nanos::from_secs(seconds);
        network.segments(0);
        assert_eq!(network.at(0, ids[0]).ended(), None, "{seconds} s");
    }
    network.now = start + Nanos::from_secs(901);
    network.segments(0);
    assert_eq!(network.at(0, ids[0]).ended(), Some(Ended::TimedOut));
}

/// What the caller left in its buffer for the reply is never sent.
#[test]
fn a_reply_holds_nothing_of_an_earlier_one() {
    let flow = Flow { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 5000).into() };
    let now = punctual_analysis::Instant(1_000_000_000);
    let mut connection =
        Connection::connect(flow, &Config::default(), &Secrets::new([1; 16]), now).expect("usable addresses");
    let stray = Flow { remote: ([10, 0, 0, 3], 5000).into(), ..flow };
    for (flow, received) in [(stray, Received::ForNobody), (flow, Received::Dropped)] {
        let segment = Segment { flags: Flags { rst: true, ..Flags::default() }, ..bare(flow) };
        let (mut packet, mut reply) = (Vec::new(), vec![1, 2, 3]);
        wire::write(&segment, 64, false, &mut packet);
        assert_eq!(connection.input(now, &mut packet, &mut reply), Ok(received));
        assert_eq!(reply, []);
    }
}
