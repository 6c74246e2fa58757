//! Single rules of the RFCs at the packets themselves, for what whole streams do not show.

mod network;

use network::{Faults, Network, Stream, addresses};
use punctual_analysis::Nanos;
use punctual_tcp::{
    Config, ConnectionId, Ended, Flags, Flow, Listener, Malformed, Secrets, Segment, Setting, State, wire,
};

/// All packets that a host has to send now.
fn packets(network: &mut Network, host: usize) -> Vec<Vec<u8>> {
    let (now, mut packet, mut all) = (network.now, Vec::new(), Vec::new());
    while network.stacks[host].output(now, &mut packet) {
        all.push(packet.clone());
    }
    all
}

fn segments(network: &mut Network, host: usize) -> Vec<Segment> {
    packets(network, host).iter().map(|packet| wire::parse(packet).expect("our own segment")).collect()
}

/// Gives a packet to a host; what it answers.
fn give(network: &mut Network, host: usize, packet: &[u8]) -> Option<Segment> {
    let (now, mut packet, mut reply) = (network.now, packet.to_vec(), Vec::new());
    network.stacks[host].input(now, &mut packet, &mut reply).expect("well-formed");
    (!reply.is_empty()).then(|| wire::parse(&reply).expect("our own segment"))
}

fn written(segment: &Segment) -> Vec<u8> {
    let mut packet = Vec::new();
    wire::write(segment, 64, true, &mut packet);
    packet
}

/// The segment as its receiver writes it back: `write` sends from local to remote.
fn turned(segment: &Segment) -> Segment {
    Segment { flow: Flow { local: segment.flow.remote, remote: segment.flow.local }, ..*segment }
}

fn connect(network: &mut Network, config: &Config) -> (ConnectionId, Segment) {
    let [local, remote] = addresses(false);
    let now = network.now;
    let id = network.stacks[0].connect(now, local.ip(), remote, config).expect("a port");
    let syn = segments(network, 0).pop().expect("a SYN");
    (id, syn)
}

/// RFC 1122 3.2.1.3, RFC 9293 3.9.2: no connection with these ends.
#[test]
fn addresses_that_no_host_has_are_refused() {
    let (good, port_0) = ("10.0.0.1:80", "10.0.0.1:0");
    let v4 = ["0.0.0.0:9", "0.1.2.3:9", "224.0.0.1:9", "255.255.255.255:9", port_0];
    for (one, other) in v4.map(|bad| (good, bad)).into_iter().chain([("[fd00::1]:80", "[ff02::1]:9")]) {
        let [one, other] = [one, other].map(|text| text.parse().expect("an address"));
        for (local, remote) in [(one, other), (other, one)] {
            let segment = Segment { seq: 1, ..wire::bare(Flow { local, remote }) };
            assert_eq!(wire::parse(&written(&segment)), Err(Malformed::Address), "{local} {remote}");
        }
    }
    let flow = Flow { local: good.parse().expect("an address"), remote: "10.0.0.2:9".parse().expect("one") };
    assert!(wire::parse(&written(&wire::bare(flow))).is_ok());
}

/// RFC 5961 3.2 in SYN-RECEIVED: only the reset with the next number ends the attempt.
#[test]
fn a_half_open_connection_ends_by_the_exact_reset_alone() {
    let secrets = Secrets::new([1; 16]);
    let now = punctual_analysis::Instant(1_000_000_000);
    let flow = Flow { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 5000).into() };
    let syn = Segment { seq: 100, flags: Flags { syn: true, ..Flags::default() }, ..wire::bare(flow) };
    let mut reply = Vec::new();
    let half_open_after = |seq, reply: &mut Vec<u8>| {
        let mut listener = Listener::new(&Config::default(), 4);
        listener.input(now, &syn, &secrets, true, reply);
        assert_eq!(listener.half_open(), 1);
        let reset = Segment { seq, flags: Flags { rst: true, ..Flags::default() }, ..wire::bare(flow) };
        listener.input(now, &reset, &secrets, true, reply);
        assert!(reply.is_empty(), "a reset is never answered");
        listener.half_open()
    };
    assert_eq!([100, 101, 102].map(|seq| half_open_after(seq, &mut reply)), [1, 0, 1]);
}

/// The SYN-ACK of the attempt that began first is sent again first.
#[test]
fn half_open_connections_have_timers_of_their_own() {
    let secrets = Secrets::new([1; 16]);
    let at = |ms: u64| punctual_analysis::Instant(1_000_000_000 + ms * 1_000_000);
    let mut listener = Listener::new(&Config::default(), 4);
    let (mut reply, mut packet) = (Vec::new(), Vec::new());
    for (ms, port) in [(0, 5000), (400, 5001)] {
        let flow = Flow { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], port).into() };
        let syn = Segment { seq: 9, flags: Flags { syn: true, ..Flags::default() }, ..wire::bare(flow) };
        listener.input(at(ms), &syn, &secrets, true, &mut reply);
        let answer = wire::parse(&reply).expect("our own segment");
        assert_eq!(answer.timestamp, None, "a SYN without timestamps is answered without (RFC 7323 3.2)");
    }
    assert_eq!(listener.next_deadline(), Some(at(1_000)));
    assert!(!listener.output(at(999), &secrets, &mut packet) && packet.is_empty());
    for (ms, port) in [(1_000, 5000), (1_400, 5001)] {
        assert!(listener.output(at(ms), &secrets, &mut packet));
        assert_eq!(wire::parse(&packet).expect("ours").flow.local.port(), port);
        assert!(!listener.output(at(ms), &secrets, &mut packet) && packet.is_empty());
    }
}

/// RFC 6298 5.5: the wait doubles from one SYN-ACK to the next; after the sixth the attempt is forgotten.
#[test]
fn a_listener_waits_twice_as_long_each_time() {
    let secrets = Secrets::new([1; 16]);
    let start = punctual_analysis::Instant(1_000_000_000);
    let flow = Flow { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 5000).into() };
    let syn = Segment { seq: 9, flags: Flags { syn: true, ..Flags::default() }, ..wire::bare(flow) };
    let mut listener = Listener::new(&Config::default(), 4);
    let (mut packet, mut waits) = (Vec::new(), Vec::new());
    listener.input(start, &syn, &secrets, true, &mut packet);
    let mut last = start;
    while let Some(due) = listener.next_deadline() {
        waits.push(due.since(last).as_u64() / 1_000_000_000);
        last = due;
        listener.output(due, &secrets, &mut packet);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32]);
    assert_eq!(listener.half_open(), 0);
}

/// RFC 9293 3.10.4: closing an attempt ends it; RFC 9293 3.10.2: what is sent before it is open waits in the program.
#[test]
fn an_attempt_takes_no_bytes_and_may_be_closed() {
    let mut network = Network::new(1, Faults::default());
    let (id, _) = connect(&mut network, &Config::default());
    assert_eq!(network.at(0, id).send(b"early"), Ok(0));
    assert_eq!(network.at(0, id).writable_bytes(), 0);
    network.at(0, id).close();
    assert_eq!(network.at(0, id).ended(), Some(Ended::Closed));
}

/// How much fits is what `send` takes.
#[test]
fn writable_bytes_are_those_that_fit() {
    let mut network = Network::new(1, Faults::default());
    let config = Config { send_bytes: 5_000, ..Config::default() };
    let ids = network.open(false, &config);
    assert_eq!(network.at(0, ids[0]).writable_bytes(), 5_000);
    assert_eq!(network.at(0, ids[0]).send(&[0; 3_000]), Ok(3_000));
    assert_eq!(network.at(0, ids[0]).writable_bytes(), 2_000);
    assert_eq!(network.at(0, ids[0]).send(&[0; 3_000]), Ok(2_000));
    assert_eq!(network.at(0, ids[0]).writable_bytes(), 0);
}

/// A connection has two ends of one IP version that hosts may have.
#[test]
fn no_connection_begins_between_ends_that_no_host_has() {
    let mut network = Network::new(1, Faults::default());
    let config = Config::default();
    for (local, remote) in [
        ("10.0.0.1", "[fd00::2]:80"),
        ("fd00::1", "10.0.0.2:80"),
        ("10.0.0.1", "10.0.0.2:0"),
        ("0.0.0.0", "10.0.0.2:80"),
        ("0.1.2.3", "10.0.0.2:80"),
        ("224.0.0.1", "10.0.0.2:80"),
        ("255.255.255.255", "10.0.0.2:80"),
        ("ff02::1", "[fd00::2]:80"),
        ("10.0.0.1", "224.0.0.1:80"),
    ] {
        let (from, to) = (local.parse().expect("an address"), remote.parse().expect("an address"));
        let now = network.now;
        assert!(network.stacks[0].connect(now, from, to, &config).is_err(), "{local} to {remote}");
    }
}

/// RFC 4987 3.6: what a cookie remembers by the timestamp is what the SYN offered: the scale and the segment size.
#[test]
fn a_cookie_encodes_the_scale() {
    let mut network = Network::new(1, Faults::default());
    let [_, remote] = addresses(false);
    let config = Config { receive_bytes: 1 << 20, send_bytes: 1 << 20, ..Config::default() };
    network.stacks[1].listen(remote, &config, 0);
    // Each flow has an offset of its own in the timestamps, so several are tried.
    for _ in 0..4 {
        fill_through_a_cookie(&mut network, &config);
    }
}

fn fill_through_a_cookie(network: &mut Network, config: &Config) {
    let [local, remote] = addresses(false);
    let now = network.now;
    let client = network.stacks[0].connect(now, local.ip(), remote, config).expect("a port");
    let mut server = None;
    assert!(network.run(Nanos::from_secs(2), |network| {
        server = server.or_else(|| network.stacks[1].accept(remote));
        server.is_some()
    }));
    let server = server.expect("accepted");
    // More than an unscaled window holds is in flight at once only with the scale.
    assert!(network.at(1, server).send(&vec![0; 1 << 20]).is_ok());
    let mut most = 0;
    network.run(Nanos::from_secs(20), |network| {
        most = most.max(network.at(0, client).readable_bytes());
        most == 1 << 20
    });
    assert_eq!(most, 1 << 20);
}

/// RFC 9293 3.10.7.3: in SYN-SENT a reset counts only with the acknowledgement of the SYN.
#[test]
fn an_attempt_ends_by_a_reset_that_acknowledges_its_syn() {
    for (ack, is_refused) in [(None, false), (Some(0), false), (Some(1), true)] {
        let mut network = Network::new(1, Faults::default());
        let (id, syn) = connect(&mut network, &Config::default());
        let ack = ack.map(|more: u32| syn.seq.wrapping_add(more));
        let reset = Segment { ack, flags: Flags { rst: true, ..Flags::default() }, ..wire::bare(syn.flow) };
        give(&mut network, 0, &written(&reset));
        assert_eq!(network.at(0, id).ended(), is_refused.then_some(Ended::Refused), "{ack:?}");
    }
}

/// RFC 9293 3.8.3: an attempt ends after three minutes, also where established connections may wait for longer.
#[test]
fn an_attempt_ends_after_three_minutes() {
    let mut network = Network::new(1, Faults { lost: 1000, ..Faults::default() });
    let start = network.now;
    let (id, _) = connect(&mut network, &Config::default());
    assert!(network.run(Nanos::from_secs(2_000), |network| network.at(0, id).ended().is_some()));
    let waited = network.now.since(start);
    assert!(waited >= Nanos::from_secs(180) && waited <= Nanos::from_secs(181), "{waited}");
    assert_eq!(network.at(0, id).ended(), Some(Ended::TimedOut));
}

/// RFC 9293 3.7.4: a small segment waits while another is unacknowledged, unless the program asked for no delay.
#[test]
fn nagle_holds_a_second_small_segment_back() {
    for is_nodelay in [false, true] {
        let mut network = Network::new(1, Faults::default());
        let config = Config { is_nodelay, ..Config::default() };
        let ids = network.open(false, &config);
        network.run(Nanos::from_secs(1), |_| false);
        for bytes in [b"one", b"two"] {
            assert_eq!(network.at(0, ids[0]).send(bytes), Ok(3));
            let sent = segments(&mut network, 0).len();
            assert_eq!(sent, usize::from(is_nodelay || bytes == b"one"), "no delay: {is_nodelay}");
        }
    }
}

/// The hop limit of the settings is in every packet, that of the SYN too.
#[test]
fn the_hop_limit_is_that_of_the_settings() {
    let mut network = Network::new(1, Faults::default());
    let config = Config { hop_limit: 7, ..Config::default() };
    let ids = network.open(false, &config);
    assert_eq!(network.at(0, ids[0]).send(b"x"), Ok(1));
    assert!(packets(&mut network, 0).iter().all(|packet| packet[8] == 7));
    let [local, remote] = addresses(false);
    let now = network.now;
    network.stacks[0].connect(now, local.ip(), remote, &config).expect("a port");
    let syn = packets(&mut network, 0).pop().expect("a SYN");
    let answer = {
        let mut reply = Vec::new();
        network.stacks[1].input(now, &mut syn.clone(), &mut reply).expect("a SYN");
        reply
    };
    assert_eq!((syn[8], answer[8]), (7, 7));
}

/// What a program changes while the connection exists holds from the next segment on.
#[test]
fn settings_change_at_run_time() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    network.run(Nanos::from_secs(1), |_| false);
    let send = |network: &mut Network, bytes: &[u8]| {
        assert_eq!(network.at(0, ids[0]).send(bytes), Ok(bytes.len()));
        packets(network, 0)
    };
    assert_eq!(send(&mut network, b"one").len(), 1);
    assert_eq!(send(&mut network, b"two").len(), 0, "Nagle holds it back");
    network.at(0, ids[0]).set(Setting::NoDelay(true));
    network.at(0, ids[0]).set(Setting::HopLimit(9));
    let sent = packets(&mut network, 0);
    assert_eq!((sent.len(), sent[0][8]), (1, 9));
    network.at(0, ids[0]).set(Setting::HopLimit(0));
    assert_eq!(send(&mut network, b"three")[0][8], 64);
    // None of the three is at the peer: each leaves again, by its timer, and counts.
    let resent = |network: &mut Network| network.at(0, ids[0]).resent();
    assert_eq!(resent(&mut network), 0);
    let windows = network.at(0, ids[0]).windows();
    assert!(windows.iter().all(|bytes| *bytes > 60_000), "{windows:?}");
    network.run(Nanos::from_secs(5), |_| false);
    assert!(resent(&mut network) >= 1);
    assert_eq!(network.at(0, ids[0]).unacknowledged_bytes(), 0);
}

/// RFC 9293 3.8.4 and 3.8.3: a keep-alive that is asked for later, and a user timeout that is shortened, hold.
#[test]
fn a_peer_that_is_gone_is_noticed_as_late_as_the_program_wants() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    network.run(Nanos::from_secs(1), |_| false);
    network.at(0, ids[0]).set(Setting::KeepAlive(Some(Nanos(1))));
    assert_eq!(network.at(0, ids[0]).config().keep_alive, Some(Nanos::from_millis(100)), "not a flood");
    network.at(0, ids[0]).set(Setting::KeepAlive(Some(Nanos::from_secs(2))));
    network.at(0, ids[0]).set(Setting::UserTimeout(Nanos::from_secs(10)));
    let began = network.now;
    // The peer's packets are lost from now on.
    while network.at(0, ids[0]).ended().is_none() && network.now.since(began) < Nanos::from_secs(60) {
        network.now = network.now + Nanos::from_millis(500);
        packets(&mut network, 0);
    }
    assert_eq!(network.at(0, ids[0]).ended(), Some(Ended::TimedOut));
    let took = network.now.since(began);
    assert!((Nanos::from_secs(2)..Nanos::from_secs(20)).contains(&took), "{took}");
}

/// RFC 9293 3.10.7.1: a segment to a connection that was removed, or that is over, is reset.
#[test]
fn segments_of_removed_connections_are_reset() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    network.run(Nanos::from_secs(1), |_| false);
    assert_eq!(network.at(0, ids[0]).send(b"x"), Ok(1));
    let packet = packets(&mut network, 0).pop().expect("a segment");
    network.stacks[1].remove(ids[1]);
    let [_, remote] = addresses(false);
    network.stacks[1].listen(remote, &Config::default(), 0);
    let (now, mut reply) = (network.now, Vec::new());
    network.stacks[1].input(now, &mut packet.clone(), &mut reply).expect("well-formed");
    assert_eq!(reply[8], 64, "RFC 1122 3.2.1.7: the default time to live");
    let answer = wire::parse(&reply).expect("a reset");
    let sent = wire::parse(&packet).expect("ours");
    assert!(answer.flags.rst);
    assert_eq!(Some(answer.seq), sent.ack);
    assert_eq!(network.stacks[1].ids().count(), 0);
}

/// RFC 1191 3, 6.3: after a router's report no packet is larger; ten minutes later the device's size is tried.
#[test]
fn packets_follow_the_path_down_and_up() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    network.run(Nanos::from_secs(1), |_| false);
    let longest = |network: &mut Network| {
        assert!(network.at(0, ids[0]).send(&[1; 5000]).is_ok());
        let all = packets(network, 0);
        let longest = all.iter().map(Vec::len).max();
        all.iter().for_each(|packet| network.carry(1, packet));
        network.run(Nanos::from_secs(5), |network| network.at(0, ids[0]).unacknowledged_bytes() == 0);
        network.at(1, ids[1]).recv(&mut [0; 8192]);
        longest
    };
    assert_eq!(longest(&mut network), Some(1500));
    assert_eq!(network.at(0, ids[0]).send(b"x"), Ok(1));
    let quoted = segments(&mut network, 0).pop().expect("a segment in flight");
    let quote = |flow, seq| punctual_tcp::Quote { flow, seq, trouble: punctual_tcp::Trouble::TooBig(1000) };
    let (now, ours) = (network.now, turned(&quoted).flow);
    let other = Flow { local: ours.local, remote: ([192, 0, 2, 99], 80).into() };
    assert!(!network.at(0, ids[0]).icmp(now, &quote(other, quoted.seq)), "an error about another flow");
    assert!(network.at(0, ids[0]).icmp(now, &quote(ours, quoted.seq)));
    network.run(Nanos::from_secs(5), |_| false);
    assert_eq!(longest(&mut network), Some(1000));
    network.run(Nanos::from_secs(580), |_| false);
    assert_eq!(longest(&mut network), Some(1000));
    network.run(Nanos::from_secs(20), |_| false);
    assert_eq!(longest(&mut network), Some(1500));
}

/// RFC 9293 3.10.5: a connection that its program aborts is over when its one reset has left.
#[test]
fn an_aborted_connection_is_over_after_its_reset() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    let now = network.now;
    assert!(!network.at(0, ids[0]).is_over(now), "it is open and has nothing to do");
    network.at(0, ids[0]).abort();
    assert!(!network.at(0, ids[0]).is_over(now));
    let sent = segments(&mut network, 0);
    assert!(sent.len() == 1 && sent[0].flags.rst, "{sent:?}");
    assert!(network.at(0, ids[0]).is_over(now));
    assert_eq!(network.at(0, ids[0]).state(), State::Closed);
}

/// RFC 6056 3.3.4: ports to one destination follow each other, and none that is taken is given again.
#[test]
fn ports_to_one_destination_differ() {
    let mut network = Network::new(1, Faults { lost: 1000, ..Faults::default() });
    let ports: Vec<_> =
        (0..1_000).map(|_| connect(&mut network, &Config::default()).1.flow.remote.port()).collect();
    let next = ports.windows(2).filter(|two| two[1] == two[0] + 1).count();
    assert!(next >= 998, "{next} of 999 follow the one before");
    let distinct: std::collections::BTreeSet<_> = ports.iter().collect();
    assert_eq!(distinct.len(), 1_000);
    assert_eq!(network.stacks[0].ids().count(), 1_000, "each has a name of its own");
}

/// Half of what a challenge shows: the same window edge as before, in the scaled field (RFC 9293 3.10.7.4, RFC 7323 2.3).
#[test]
fn a_challenge_shows_the_window_that_was_shown() {
    let mut network = Network::new(1, Faults::default());
    let config = Config { receive_bytes: 400_000, ..Config::default() };
    let ids = network.open(false, &config);
    assert_eq!(network.at(1, ids[1]).send(b"x"), Ok(1));
    let shown = segments(&mut network, 1).pop().expect("a segment");
    let syn = Segment {
        flags: Flags { syn: true, ..Flags::default() },
        seq: 5,
        timestamp: shown.timestamp.map(|(value, echo)| (echo.wrapping_add(1), value)),
        ..wire::bare(Flow { local: shown.flow.local, remote: shown.flow.remote })
    };
    let challenge = give(&mut network, 1, &written(&syn)).expect("a challenge");
    assert_eq!((challenge.ack, challenge.window), (shown.ack, shown.window));
    assert!(shown.window > 40_000, "scaled by 3: {}", shown.window);
}

/// RFC 9293 3.10.7.3: the window of our SYN counts until the first acknowledgement, whatever numbers the peer has chosen. A second SYN-ACK
/// is answered with it, and data right behind the SYN-ACK is taken up to it.
#[test]
fn the_window_of_a_syn_counts_until_the_first_acknowledgement() {
    for irs in [9, 0x7fff_fff0, 0x8000_0000, u32::MAX - 5] {
        for (receive_bytes, window, shift) in [(1_000, 1_000, 0), (400_000, 65_535, 3)] {
            let mut network = Network::new(1, Faults::default());
            let (id, syn) = connect(&mut network, &Config { receive_bytes, ..Config::default() });
            assert_eq!((u32::from(syn.window), syn.scale), (window, Some(shift)));
            let flags = Flags { syn: true, ..Flags::default() };
            let answer = turned(&Segment {
                seq: irs,
                ack: Some(syn.seq.wrapping_add(1)),
                window: 4_000,
                flags,
                ..syn
            });
            assert_eq!(network.give(0, &answer, &[]), None);
            let again = network.give(0, &answer, &[]).expect("a challenge");
            assert_eq!(u32::from(again.window), window >> shift, "irs {irs}");
            let seq = irs.wrapping_add(1);
            let data =
                Segment { seq, flags: Flags::default(), mss: None, scale: None, sack: false, ..answer };
            for (bytes, taken) in [(1_001, window > 1_000), (1_000, true)] {
                let before = network.at(0, id).readable_bytes();
                network.give(0, &data, &vec![7; bytes]);
                let came = network.at(0, id).readable_bytes() > before;
                assert!(came == taken || before > 0, "irs {irs}, {bytes} bytes of {window}");
            }
        }
    }
}

/// RFC 9293 3.8.6.1: a connection whose peer keeps its window closed and answers the probes stays open, however long that lasts. One
/// whose peer is silent ends after the user timeout.
#[test]
fn a_closed_window_is_no_silence() {
    let config = Config { receive_bytes: 20_000, user_timeout: Nanos::from_secs(100), ..Config::default() };
    for closes in [false, true] {
        let mut network = Network::new(7, Faults::default());
        let ids = network.open(false, &config);
        let mut stream = Stream::new(0, 100_000);
        if closes {
            stream.write(network.at(0, ids[0]));
        } else {
            assert_eq!(network.at(0, ids[0]).send(&[7; 100_000]), Ok(100_000));
        }
        network.run(Nanos::from_secs(4_000), |_| false);
        assert_eq!(network.at(0, ids[0]).ended(), None, "{closes}");
        assert!(network.at(0, ids[0]).unacknowledged_bytes() > 0, "{closes}");
        let mut read = 0;
        let is_done = network.run(Nanos::from_secs(100), |network| {
            read += network.at(1, ids[1]).recv(&mut [0; 9_000]);
            read == 100_000
        });
        assert!(is_done, "{closes}: {read}");
    }
}

/// A FIN counts also where it comes again behind data that is here already: not every peer cuts that off. The segments come in any
/// order, and the FIN comes at first behind a gap.
#[test]
fn a_fin_behind_old_data_ends_the_stream() {
    for orders in [
        [(3, true), (0, false), (3, true)],
        [(0, false), (3, false), (3, true)],
        [(3, false), (0, false), (0, true)],
    ] {
        let mut network = Network::new(9, Faults::default());
        let ids = network.open(false, &Config { has_timestamps: false, ..Config::default() });
        network.run(Nanos::from_secs(1), |_| false);
        assert_eq!(network.at(1, ids[1]).send(b"x"), Ok(1));
        let base = network.segments(1).pop().expect("a segment");
        let next = base.seq;
        let whole = b"abcdef";
        let mut last = None;
        for (at, fin) in orders {
            let payload = if fin { &whole[at..] } else { &whole[at..at + 3] };
            let flags = Flags { fin, ..Flags::default() };
            let segment = Segment { seq: next.wrapping_add(at as u32), flags, ..base };
            network.give(0, &segment, payload);
            last = Some(segment);
        }
        let mut read = [0; 9];
        assert_eq!(network.at(0, ids[0]).recv(&mut read), 6, "{orders:?}");
        assert_eq!(&read[..6], whole);
        assert!(network.at(0, ids[0]).is_finished(), "{orders:?}");
        // Once more: it is acknowledged.
        let answer = network.give(0, &last.expect("one"), &whole[orders[2].0..]);
        let acked =
            network.segments(0).into_iter().chain(answer).filter_map(|segment| segment.ack).next_back();
        assert_eq!(acked, Some(next.wrapping_add(7)), "{orders:?}");
    }
}

/// The user timeout counts from the last answer.
#[test]
fn a_peer_that_falls_silent_behind_a_closed_window_loses_the_connection() {
    let user_timeout = Nanos::from_secs(100);
    let config = Config { receive_bytes: 20_000, user_timeout, ..Config::default() };
    let mut network = Network::new(8, Faults::default());
    let ids = network.open(false, &config);
    assert_eq!(network.at(0, ids[0]).send(&[7; 100_000]), Ok(100_000));
    network.run(Nanos::from_secs(1_000), |_| false);
    // It reads some, so that the machine has an acknowledgement again, and then nothing for as long as before.
    let mut read = 0;
    assert!(network.run(Nanos::from_secs(100), |network| {
        read += network.at(1, ids[1]).recv(&mut [0; 9_000]);
        read >= 30_000
    }));
    network.run(Nanos::from_secs(1_000), |_| false);
    network.faults.lost = 1_000;
    let begun = network.now;
    // A probe each minute: the last answer came a minute ago at most.
    assert!(network.run(Nanos::from_secs(200), |network| network.at(0, ids[0]).ended().is_some()));
    let took = network.now.since(begun);
    assert!((Nanos::from_secs(40)..=user_timeout).contains(&took), "{took}");
    assert_eq!(network.at(0, ids[0]).ended(), Some(Ended::TimedOut));
}
