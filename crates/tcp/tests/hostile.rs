//! Invalid and hostile segments and ICMP errors: none causes a panic, none that is forged off the path ends a
//! connection, and the stream continues intact.

mod network;

use network::{Faults, Network, Random, Stream};
use punctual_analysis::Nanos;
use punctual_tcp::{Config, ConnectionId, Ended, Flags, Flow, Segment, State, wire};
use wire::bare;

/// The last packet that `from` sent, as its peer parses it: so the forger has all numbers.
fn peek(network: &mut Network, host: usize, id: ConnectionId) -> Segment {
    assert_eq!(network.at(1 - host, id).send(b"x"), Ok(1));
    let (now, mut packet) = (network.now, Vec::new());
    assert!(network.stacks[1 - host].output(now, &mut packet));
    wire::parse(&packet).expect("our own segment")
}

fn inject(network: &mut Network, host: usize, segment: &Segment) -> Option<Segment> {
    inject_with(network, host, segment, &[])
}

fn inject_with(network: &mut Network, host: usize, segment: &Segment, payload: &[u8]) -> Option<Segment> {
    let (mut packet, mut reply) = (Vec::new(), Vec::new());
    wire::write_with(segment, payload, 64, false, &mut packet);
    let now = network.now;
    network.stacks[host].input(now, &mut packet, &mut reply).expect("well-formed");
    (!reply.is_empty()).then(|| wire::parse(&reply).expect("our own segment"))
}

/// RFC 5961 3.2, 4.2, 5.2: challenge ACKs, on a connection that is open, and a reset with the exact number.
#[test]
fn forged_resets_and_syns_are_challenged() {
    let mut network = Network::new(1, Faults::default());
    let config = Config { has_timestamps: false, ..Config::default() };
    let ids = network.open(false, &config);
    network.run(Nanos::from_secs(1), |_| false);
    let next = peek(&mut network, 1, ids[0]);
    let rst = Segment { flags: Flags { rst: true, ..Flags::default() }, ..bare(next.flow) };
    let answer =
        inject(&mut network, 1, &Segment { seq: next.seq.wrapping_add(1), ..rst }).expect("a challenge");
    assert_eq!((answer.ack, answer.flags), (Some(next.seq), Flags::default()));
    assert_eq!(inject(&mut network, 1, &Segment { seq: next.seq.wrapping_sub(1), ..rst }), None);
    let syn = Segment { flags: Flags { syn: true, ..Flags::default() }, seq: 12345, ..bare(next.flow) };
    assert_eq!(inject(&mut network, 1, &syn).and_then(|answer| answer.ack), Some(next.seq));
    let far =
        Segment { seq: next.seq, ack: next.ack.map(|ack| ack.wrapping_add(1)), window: 9, ..bare(next.flow) };
    assert!(inject(&mut network, 1, &far).is_some());
    assert_eq!(network.at(1, ids[1]).state(), State::Established);
    assert_eq!(inject(&mut network, 1, &Segment { seq: next.seq, ..rst }), None);
    assert_eq!(network.at(1, ids[1]).ended(), Some(Ended::Reset));
}

/// RFC 5961 7: an attacker gets ten replies in five seconds.
#[test]
fn challenges_are_limited() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    let next = peek(&mut network, 1, ids[0]);
    let syn = Segment {
        flags: Flags { syn: true, ..Flags::default() },
        timestamp: next.timestamp,
        ..bare(next.flow)
    };
    let answers =
        (0..100).filter(|seq| inject(&mut network, 1, &Segment { seq: *seq, ..syn }).is_some()).count();
    assert_eq!(answers, 10);
}

/// A flood of SYNs costs no more memory than the backlog, and honest clients can still connect.
#[test]
fn a_flood_of_syns_locks_no_client_out() {
    let mut network = Network::new(1, Faults::default());
    let [_, remote] = network::addresses(false);
    network.stacks[1].listen(remote, &Config::default(), 16);
    for n in 0..10_000u32 {
        let source = ([198, 51, (n >> 8) as u8, n as u8 | 1], 1024 + (n % 50_000) as u16).into();
        let flow = Flow { local: remote, remote: source };
        let syn = Segment { flags: Flags { syn: true, ..Flags::default() }, seq: n, ..bare(flow) };
        assert!(inject(&mut network, 1, &syn).is_some_and(|answer| answer.flags.syn));
    }
    network.open(false, &Config::default());
}

/// RFC 9293 3.10.7.2 does not specify the case of a full queue. As on Linux the SYN of a further connection gets no answer, and it
/// opens once there is room. One whose SYN was answered before the queue was full opens then, too, although it has sent nothing.
#[test]
fn a_full_accept_queue_delays_a_connection_and_loses_none() {
    for together in [false, true] {
        let mut network = Network::new(1, Faults::default());
        let [local, remote] = network::addresses(false);
        network.stacks[1].listen(remote, &Config::default(), 1);
        let clients = [0, 1].map(|_| {
            let now = network.now;
            let client =
                network.stacks[0].connect(now, local.ip(), remote, &Config::default()).expect("a port");
            if !together {
                network.run(Nanos::from_millis(100), |_| false);
            }
            client
        });
        network.run(Nanos::from_millis(100), |_| false);
        let states = clients.map(|client| network.at(0, client).state());
        let second = if together { State::Established } else { State::SynSent };
        assert_eq!(states, [State::Established, second]);
        let first = network.stacks[1].accept(remote).expect("the first connection");
        assert_eq!(network.stacks[1].accept(remote), None, "there is room for one");
        let mut second = None;
        assert!(network.run(Nanos::from_secs(3), |network| {
            second = second.or_else(|| network.stacks[1].accept(remote));
            second.is_some()
        }));
        let ends = [first, second.expect("it is there")];
        for (client, end) in clients.into_iter().zip(ends) {
            assert_eq!(network.at(1, end).send(b"hello"), Ok(5));
            assert!(network.run(Nanos::from_secs(1), |network| network.at(0, client).readable_bytes() == 5));
        }
    }
}

/// A well-formed segment whose numbers are near those of the connection.
fn forged(random: &mut Random, base: &Segment) -> Segment {
    let near = |random: &mut Random, n: u32| match random.below(4) {
        0 => n,
        1 => n.wrapping_add(random.below(5) as u32).wrapping_sub(2),
        2 => n.wrapping_add(random.below(600_000) as u32).wrapping_sub(300_000),
        _ => random.next() as u32,
    };
    let kind = random.below(10);
    let flags =
        Flags { syn: kind == 0, fin: kind == 1 || kind == 2, rst: kind == 3, psh: random.below(2) == 0 };
    let timestamp =
        base.timestamp.map(|(value, echo)| (near(random, value), echo)).filter(|_| random.below(8) > 0);
    Segment {
        seq: near(random, base.seq),
        ack: Some(near(random, base.ack.unwrap_or(0))).filter(|_| random.below(8) > 0),
        flags,
        window: random.next() as u16,
        mss: (random.below(4) == 0).then(|| random.next() as u16),
        scale: (random.below(4) == 0).then(|| random.next() as u8 % 15),
        timestamp,
        ..bare(base.flow)
    }
}

/// A host off the path knows the flow and guesses the numbers. Segments without data that are outside of the window change nothing,
/// whatever acknowledgement, window and timestamp they carry: both directions go on at once.
#[test]
fn segments_outside_of_the_window_stop_no_stream() {
    let offsets =
        [(-(1 << 29), -30_000), (-1, 0), (-300_000, -1), (300_000, 0), (1 << 30, -30_000), (1 << 30, 0)];
    for (has_timestamps, clock) in [(true, 1), (true, 1 << 30), (false, 0)] {
        for window in [0, 1, u16::MAX] {
            let mut network = Network::new(2, Faults::default());
            let ids = network.open(false, &Config { has_timestamps, ..Config::default() });
            network.run(Nanos::from_secs(1), |_| false);
            let base = peek(&mut network, 1, ids[0]);
            let moved = |number: u32, by: i32| number.wrapping_add_signed(by);
            for (seq, ack) in offsets {
                let forged = Segment {
                    seq: moved(base.seq, seq),
                    ack: base.ack.map(|number| moved(number, ack)),
                    window,
                    timestamp: base.timestamp.map(|(value, echo)| (moved(value, clock), echo)),
                    flags: Flags::default(),
                    ..base
                };
                inject(&mut network, 1, &forged);
            }
            let mut streams = [Stream::new(0, 50_000), Stream::new(1, 50_000)];
            // The byte by which the numbers were learned.
            assert!(network.run(Nanos::from_secs(2), |network| network.at(1, ids[1]).readable_bytes() > 0));
            assert_eq!(network.at(1, ids[1]).recv(&mut [0; 1]), 1);
            let is_done = network.run(Nanos::from_secs(3), |network| {
                for side in 0..2 {
                    streams[side].write(network.at(side, ids[side]));
                    streams[side].read(network.at(1 - side, ids[1 - side]));
                }
                streams.iter().all(|stream| stream.read == 50_000)
            });
            let read = streams.map(|stream| stream.read);
            assert!(is_done, "{has_timestamps} {clock} {window}: {read:?}");
        }
    }
}

/// A late duplicate is answered, although its acknowledgement is old, too: the answer to the first one may have been lost.
#[test]
fn a_late_duplicate_is_answered() {
    let mut network = Network::new(3, Faults::default());
    let ids = network.open(false, &Config { has_timestamps: false, ..Config::default() });
    assert_eq!(network.at(0, ids[0]).send(&[7; 1_000]), Ok(1_000));
    assert_eq!(network.at(1, ids[1]).send(&[8; 10]), Ok(10));
    network.run(Nanos::from_secs(2), |_| false);
    assert_eq!(network.at(0, ids[0]).unacknowledged_bytes(), 0);
    let next = peek(&mut network, 0, ids[1]);
    let old = Segment {
        seq: next.seq.wrapping_sub(10),
        ack: next.ack.map(|ack| ack.wrapping_sub(500)),
        flags: Flags::default(),
        ..next
    };
    let answer = inject_with(&mut network, 0, &old, &[8; 10]).expect("an answer");
    assert_eq!(answer.ack, Some(next.seq));
}

/// In every state, with every field near its expected value and far from it: no panic, and no endless loop.
#[test]
fn no_segment_panics() {
    for seed in 1..400 {
        let mut network = Network::new(seed, Faults { lost: 50, corrupted: 100, ..Faults::default() });
        let config = Config {
            has_timestamps: seed % 2 == 0,
            receive_bytes: [3_000, 200_000][seed as usize % 2],
            ..Config::default()
        };
        let ids = network.open(seed % 3 == 0, &config);
        let mut random = Random::new(seed);
        let base = peek(&mut network, 1, ids[0]);
        for _ in 0..100 {
            let segment = forged(&mut random, &base);
            let payload = vec![0; [0, 1, 536, 1460, 9000][random.below(5) as usize]];
            inject_with(&mut network, 1, &segment, &payload);
            if let Some(connection) = network.stacks[1].get(ids[1]) {
                match random.below(12) {
                    0 => drop(connection.send(&[7; 5000])),
                    1 => drop(connection.recv(&mut [0; 3000])),
                    2 if random.below(20) == 0 => connection.close(),
                    _ => (),
                }
            }
            network.run(Nanos::from_millis(random.below(700)), |_| false);
        }
    }
}

/// Bytes that are no packet at all, and packets cut at every length.
#[test]
fn no_bytes_panic() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    let base = peek(&mut network, 1, ids[0]);
    let (mut packet, mut reply) = (Vec::new(), Vec::new());
    wire::write(&base, 64, false, &mut packet);
    let mut random = Random::new(1);
    for _ in 0..200_000 {
        let mut bytes = packet[..random.below(packet.len() as u64 + 1) as usize].to_vec();
        for _ in 0..random.below(4) {
            if !bytes.is_empty() {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = [random.next() as u8, 1, 6, 58, 0x45, 0x60][random.below(6) as usize];
            }
        }
        let now = network.now;
        let _ = network.stacks[1].input(now, &mut bytes, &mut reply);
    }
    let mut stream = Stream::new(1, 10_000);
    stream.write(network.at(1, ids[1]));
    assert!(stream.sent > 0, "the connection is unharmed");
}

/// The ICMP error of a router about `quoted`, a packet that `flow`'s local end sent.
fn icmp_error(is_v6: bool, kind: u8, code: u8, mtu: u16, quoted: &[u8]) -> Vec<u8> {
    let mut icmp = vec![kind, code, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    icmp.extend(&quoted[..quoted.len().min(if is_v6 { 48 } else { 28 })]);
    let mut packet = quoted[..if is_v6 { 40 } else { 20 }].to_vec();
    if is_v6 {
        packet[4..6].copy_from_slice(&(icmp.len() as u16).to_be_bytes());
        packet[6] = 58;
        let mut pseudo = quoted[8..40].to_vec();
        pseudo.extend((icmp.len() as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, 58]);
        // To the local end, from any sender: the addresses are exchanged, and their sum stays the same.
        let (source, destination) = (quoted[8..24].to_vec(), quoted[24..40].to_vec());
        packet[8..24].copy_from_slice(&destination);
        packet[24..40].copy_from_slice(&source);
        pseudo.extend(&icmp);
        icmp[2..4].copy_from_slice(&sum(&pseudo).to_be_bytes());
    } else {
        packet[2..4].copy_from_slice(&(20 + icmp.len() as u16).to_be_bytes());
        packet[9] = 1;
        let (source, destination) = (quoted[12..16].to_vec(), quoted[16..20].to_vec());
        packet[12..16].copy_from_slice(&destination);
        packet[16..20].copy_from_slice(&source);
        packet[10..12].fill(0);
        let header = sum(&packet);
        packet[10..12].copy_from_slice(&header.to_be_bytes());
        let whole = sum(&icmp);
        icmp[2..4].copy_from_slice(&whole.to_be_bytes());
    }
    packet.extend(icmp);
    packet
}

/// The checksum of RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | two.get(1).map_or(0, |low| u32::from(*low)));
    let total: u32 = words.sum();
    let folded = (total & 0xffff) + (total >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// A packet of data that the first stack sent and that is in flight.
fn in_flight(network: &mut Network, id: ConnectionId) -> Vec<u8> {
    assert_eq!(network.at(0, id).send(&[1; 4000]), Ok(4000));
    let (now, mut packet) = (network.now, Vec::new());
    assert!(network.stacks[0].output(now, &mut packet));
    packet
}

/// RFC 1191, RFC 8201: a router's report is applied; RFC 5927 4.1: only if the quoted segment is in flight.
#[test]
fn a_router_reports_that_a_packet_is_too_big() {
    for is_v6 in [false, true] {
        let mut network = Network::new(1, Faults::default());
        let ids = network.open(is_v6, &Config::default());
        network.run(Nanos::from_secs(1), |_| false);
        let quoted = in_flight(&mut network, ids[0]);
        let (kind, code) = if is_v6 { (2, 0) } else { (3, 4) };
        let (now, mut reply) = (network.now, Vec::new());
        let mut forged = quoted.clone();
        let seq = if is_v6 { 44 } else { 24 };
        forged[seq] ^= 0x40;
        let mut error = icmp_error(is_v6, kind, code, 1300, &forged);
        assert!(network.stacks[0].input(now, &mut error, &mut reply).is_ok());
        assert_eq!(network.at(0, ids[0]).path_mtu_bytes(), 1500, "a forged error changed something");
        let mut error = icmp_error(is_v6, kind, code, 1300, &quoted);
        assert!(network.stacks[0].input(now, &mut error, &mut reply).is_ok());
        assert_eq!(network.at(0, ids[0]).path_mtu_bytes(), 1300);
        network.carries_bytes = 1300;
        let is_there =
            network.run(Nanos::from_millis(100), |network| network.at(1, ids[1]).readable_bytes() == 4000);
        assert!(is_there, "without a timeout");
    }
}

/// RFC 9293 3.10.5: of what was to be sent again nothing leaves after an abort but its reset.
#[test]
fn an_abort_comes_before_what_is_sent_again() {
    for is_aborted in [false, true] {
        let mut network = Network::new(1, Faults::default());
        let ids = network.open(false, &Config::default());
        network.run(Nanos::from_secs(1), |_| false);
        let quoted = in_flight(&mut network, ids[0]);
        let (now, mut reply) = (network.now, Vec::new());
        while network.stacks[0].output(now, &mut reply) {}
        let mut error = icmp_error(false, 3, 4, 1300, &quoted);
        assert!(network.stacks[0].input(now, &mut error, &mut reply).is_ok());
        assert_eq!(network.stacks[0].next_deadline(now), Some(now));
        if is_aborted {
            network.at(0, ids[0]).abort();
        }
        let sent = network.segments(0);
        let kinds: Vec<_> = sent.iter().map(|segment| (segment.flags.rst, segment.payload_bytes)).collect();
        let again = 1300 - 20 - 20 - 12;
        assert_eq!(kinds, if is_aborted { [(true, 0)] } else { [(false, again)] });
    }
}

/// RFC 792, RFC 4443: what each kind of error means.
#[test]
fn kinds_of_errors_are_distinguished() {
    use punctual_tcp::Trouble::{TooBig, Transient, Unreachable};
    let v4 = [
        (3, 0, Some(Transient)),
        (3, 2, Some(Unreachable)),
        (3, 3, Some(Unreachable)),
        (3, 4, Some(TooBig(1400))),
        (11, 0, Some(Transient)),
        (12, 0, Some(Transient)),
        (0, 3, None),
        (5, 0, None),
    ];
    let v6 = [
        (1, 0, Some(Transient)),
        (1, 1, Some(Unreachable)),
        (1, 4, Some(Unreachable)),
        (2, 0, Some(TooBig(1400))),
        (3, 0, Some(Transient)),
        (4, 1, Some(Transient)),
        (0, 1, None),
        (128, 0, None),
    ];
    for (is_v6, kinds) in [(false, v4), (true, v6)] {
        let mut network = Network::new(1, Faults::default());
        let ids = network.open(is_v6, &Config::default());
        let quoted = in_flight(&mut network, ids[0]);
        for (kind, code, trouble) in kinds {
            let quote = punctual_tcp::icmp::parse(&icmp_error(is_v6, kind, code, 1400, &quoted));
            assert_eq!(quote.map(|quote| quote.trouble), trouble, "{is_v6} {kind} {code}");
        }
    }
}

/// RFC 5927 5.2: no ICMP error ends a connection that is open; RFC 9293 3.9.2.2: one ends an attempt to connect.
#[test]
fn a_port_that_is_unreachable_ends_only_an_attempt() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    network.run(Nanos::from_secs(1), |_| false);
    let quoted = in_flight(&mut network, ids[0]);
    let (now, mut reply, mut packet) = (network.now, Vec::new(), Vec::new());
    let mut error = icmp_error(false, 3, 3, 0, &quoted);
    assert!(network.stacks[0].input(now, &mut error, &mut reply).is_ok());
    assert_eq!(network.at(0, ids[0]).state(), State::Established);
    network.run(Nanos::from_secs(2), |_| false);
    let [local, remote] = network::addresses(false);
    let now = network.now;
    let id = network.stacks[0].connect(now, local.ip(), remote, &Config::default()).expect("a port");
    while network.stacks[0].output(now, &mut packet) && !wire::parse(&packet).expect("ours").flags.syn {}
    let mut error = icmp_error(false, 3, 3, 0, &packet);
    assert!(network.stacks[0].input(now, &mut error, &mut reply).is_ok());
    assert_eq!(network.at(0, id).ended(), Some(Ended::Unreachable));
}

/// RFC 5461 4.1: a host that a router cannot reach now, or may not, ends an attempt to connect when its SYN was sent again and has met
/// the same. No such error ends a connection that is open.
#[test]
fn a_host_that_stays_unreachable_ends_an_attempt_after_the_second_syn() {
    for code in [0, 1, 13] {
        let mut network = Network::new(1, Faults::default());
        let [local, remote] = network::addresses(false);
        let begun = network.now;
        let id = network.stacks[0].connect(begun, local.ip(), remote, &Config::default()).expect("a port");
        let (mut reply, mut syn) = (Vec::new(), Vec::new());
        for (again_ms, ended) in [(0, None), (1_100, Some(Ended::Unreachable))] {
            let now = begun + Nanos::from_millis(again_ms);
            assert!(network.stacks[0].output(now, &mut syn) && wire::parse(&syn).expect("ours").flags.syn);
            let mut error = icmp_error(false, 3, code, 0, &syn);
            assert!(network.stacks[0].input(now, &mut error, &mut reply).is_ok());
            assert_eq!(network.at(0, id).ended(), ended, "code {code} after {again_ms} ms");
        }
        let mut network = Network::new(1, Faults::default());
        let ids = network.open(false, &Config::default());
        network.run(Nanos::from_secs(1), |_| false);
        let quoted = in_flight(&mut network, ids[0]);
        let now = network.now;
        for _ in 0..3 {
            let mut error = icmp_error(false, 3, code, 0, &quoted);
            assert!(network.stacks[0].input(now, &mut error, &mut reply).is_ok());
        }
        assert_eq!(network.at(0, ids[0]).state(), State::Established);
    }
}
