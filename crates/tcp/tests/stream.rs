//! Streams over wires that lose, reorder, duplicate and corrupt: every byte arrives, once and in order.

mod network;

use network::{Faults, Network, Stream};
use punctual_analysis::{Instant, Nanos};
use punctual_tcp::{Config, Ended, State};

/// Sends `length` bytes in each direction and closes; checks every byte, and that both ends are over at the
/// end.
fn exchange(seed: u64, faults: Faults, is_v6: bool, length: u64, config: &Config) -> Network {
    let mut network = Network::new(seed, faults);
    let ids = network.open(is_v6, config);
    let mut streams = [Stream::new(0, length), Stream::new(1, length)];
    let is_done = network.run(Nanos::from_secs(4 * 3600), |network| {
        for side in 0..2 {
            let connection = network.at(side, ids[side]);
            streams[side].write(connection);
            streams[1 - side].read(connection);
        }
        streams.iter().all(|stream| stream.read == length)
    });
    let read = [streams[0].read, streams[1].read];
    let ended = [0, 1].map(|side| network.at(side, ids[side]).ended());
    assert!(is_done, "seed {seed}, {faults:?}: {read:?} of {length}, {ended:?}");
    let is_over = network.run(Nanos::from_secs(3600), |network| {
        let now = network.now;
        (0..2).all(|side| network.at(side, ids[side]).is_over(now))
    });
    assert!(is_over, "seed {seed}, {faults:?}: {:?}", [0, 1].map(|side| network.at(side, ids[side]).state()));
    network
}

#[test]
fn a_stream_each_way_over_a_good_wire() {
    for is_v6 in [false, true] {
        exchange(1, Faults::default(), is_v6, 300_000, &Config::default());
    }
}

#[test]
fn loss_up_to_30_percent() {
    for (seed, lost) in [(1, 1), (2, 10), (3, 50), (4, 100), (5, 200), (6, 300)] {
        let faults = Faults { lost, ..Faults::default() };
        exchange(seed, faults, seed % 2 == 0, if lost > 100 { 40_000 } else { 200_000 }, &Config::default());
    }
}

#[test]
fn reordering_and_duplication() {
    for seed in 1..6 {
        let faults = Faults { reordered: 200, duplicated: 100, ..Faults::default() };
        exchange(seed, faults, seed % 2 == 0, 200_000, &Config::default());
    }
}

/// A checksum detects a flipped bit, so it counts as a loss.
#[test]
fn corruption() {
    for seed in 1..6 {
        let faults = Faults { corrupted: 50, ..Faults::default() };
        let network = exchange(seed, faults, false, 200_000, &Config::default());
        assert!(network.refused > 0, "nothing was corrupted");
    }
}

/// Seeds of connections that once did not end, or lost bytes, and why.
///
/// | seeds | what happened |
/// |---|---|
/// | 1396, 9340 | bytes that only a shrinking window was told of counted as sent |
/// | 6216 | a FIN was lost, and the window that the peer opened, too |
/// | 10548 | a closed window was probed for nothing, at one moment without end |
/// | 11736, 13828 | a full receiver did not take the FIN |
/// | 22688 | for the third duplicate beside a small window a full segment left: what it had beyond the window counted as sent |
/// | 312603 | a late copy of data acknowledged something that the recovery read, and the machine did not |
/// | 571241 | a FIN was taken for whose last bytes there was no room |
/// | 676304 | a window closed and opened, and data in flight had no timer any more |
const STALLED: [u64; 10] = [1_396, 6_216, 9_340, 10_548, 11_736, 13_828, 22_688, 312_603, 571_241, 676_304];

/// Seeds of the longest test: `make tcp-soak` sets more, by their end or as a range FROM..TO.
#[allow(clippy::disallowed_methods, reason = "the test reads its own configuration")]
fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("PUNCTUAL_TCP_SEEDS").unwrap_or_else(|_| "150".into());
    let number = |text: &str| text.parse().expect("a number of seeds, or a range FROM..TO");
    text.split_once("..").map_or_else(|| 1..number(&text), |(from, to)| number(from)..number(to))
}

#[test]
fn everything_at_once_with_every_kind_of_connection() {
    let mut simulated = Nanos::ZERO;
    for seed in seeds().chain(STALLED) {
        let faults = Faults { lost: (seed % 37) * 8, reordered: 50, duplicated: 50, corrupted: 10 };
        let config = Config {
            has_timestamps: seed % 2 == 0,
            is_nodelay: seed % 3 == 0,
            receive_bytes: [1_000, 20_000, 65_535, 400_000][seed as usize % 4],
            send_bytes: [400_000, 3_000, 70_000][seed as usize % 3],
            mtu_bytes: [576, 1500, 9000][seed as usize % 3],
            // At 29 % loss one of two retransmissions is acknowledged, and after a backoff there is one a
            // minute: a user timeout of 15 minutes ends one of some 10^5 connections, as it must.
            user_timeout: Nanos::from_secs(24 * 3600),
            ..Config::default()
        };
        let network = exchange(seed, faults, seed % 5 == 0, 30_000, &config);
        simulated += network.now.since(Instant(0));
    }
    println!(
        "{} connections in {} simulated hours, every byte in order",
        seeds().count(),
        simulated.as_u64() / 3_600_000_000_000
    );
}

/// RFC 9293 3.6.1: only the end that closed first waits, twice the maximum segment lifetime.
#[test]
fn the_end_that_closes_first_waits_two_segment_lifetimes() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    network.at(0, ids[0]).close();
    assert!(network.run(Nanos::from_secs(1), |network| network.at(1, ids[1]).is_finished()));
    assert!(network.run(Nanos::from_secs(1), |network| network.at(0, ids[0]).state() == State::FinWait2));
    network.at(1, ids[1]).close();
    assert!(network.run(Nanos::from_secs(1), |network| network.at(1, ids[1]).ended() == Some(Ended::Closed)));
    let waits = |network: &mut Network| network.at(0, ids[0]).state() == State::TimeWait;
    assert!(waits(&mut network));
    let start = network.now;
    assert!(network.run(Nanos::from_secs(90), |network| !waits(network)));
    let waited = network.now.since(start);
    assert!(waited >= Nanos::from_millis(59_900) && waited <= Nanos::from_secs(60), "{waited}");
}

/// RFC 9293 3.8.6.1: a window that opens while the update is lost is found by a probe.
#[test]
fn a_closed_window_is_probed() {
    let mut network = Network::new(1, Faults::default());
    let config = Config { receive_bytes: 4_000, ..Config::default() };
    let ids = network.open(false, &config);
    let mut stream = Stream::new(0, 50_000);
    stream.write(network.at(0, ids[0]));
    network.run(Nanos::from_secs(20), |_| false);
    assert_eq!(network.at(1, ids[1]).readable_bytes(), 4_000);
    stream.read(network.at(1, ids[1]));
    // The window update is lost.
    network.faults.lost = 1000;
    network.settle();
    network.faults.lost = 0;
    let is_done = network.run(Nanos::from_secs(100), |network| {
        stream.write(network.at(0, ids[0]));
        stream.read(network.at(1, ids[1]));
        stream.read == 50_000
    });
    assert!(is_done, "{}", stream.read);
}

/// RFC 9293 3.8.3: a peer that vanishes ends the connection, and only if data is unacknowledged.
#[test]
fn a_peer_that_vanishes_ends_the_connection_by_the_user_timeout() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    network.faults.lost = 1000;
    network.run(Nanos::from_secs(3600), |_| false);
    assert_eq!(network.at(0, ids[0]).state(), State::Established, "an idle connection stays");
    assert_eq!(network.at(0, ids[0]).send(b"x"), Ok(1));
    let start = network.now;
    assert!(network.run(Nanos::from_secs(2000), |network| network.at(0, ids[0]).ended().is_some()));
    assert_eq!(network.at(0, ids[0]).ended(), Some(Ended::TimedOut));
    let waited = network.now.since(start);
    assert!(waited >= Nanos::from_secs(900) && waited <= Nanos::from_secs(901), "{waited}");
}

/// RFC 6298 5.5, RFC 9293 3.8.3: where data arrives but no acknowledgement does, the sender repeats its oldest
/// segment, at least once in the largest timeout, until the user timeout ends the connection.
#[test]
fn lost_acknowledgements_end_a_connection_by_the_user_timeout_alone() {
    for hours in [0, 1, 12] {
        let mut network = Network::new(1, Faults::default());
        let user_timeout = Nanos::from_secs(900 + hours * 3600);
        let ids = network.open(false, &Config { user_timeout, ..Config::default() });
        let mut stream = Stream::new(0, 10_000);
        stream.write(network.at(0, ids[0]));
        network.deaf = Some(0);
        let start = network.now;
        let mut last = (network.sent[0], start);
        let has_ended = network.run(user_timeout * 2, |network| {
            if network.sent[0] != last.0 {
                let pause = network.now.since(last.1);
                assert!(pause <= Nanos::from_millis(60_001), "it was silent for {pause}");
                last = (network.sent[0], network.now);
            }
            network.at(0, ids[0]).ended().is_some()
        });
        assert!(has_ended);
        assert_eq!(network.at(0, ids[0]).ended(), Some(Ended::TimedOut));
        let waited = network.now.since(start);
        assert!(waited >= user_timeout && waited <= user_timeout + Nanos::from_secs(1), "{waited}");
    }
}

/// An outage that is shorter than the user timeout delays a stream by at most the largest retransmission timeout.
#[test]
fn a_stream_continues_within_a_minute_after_an_outage() {
    for (outage_s, deaf) in [(10, None), (1_000, None), (5_000, Some(0)), (5_000, Some(1))] {
        let mut network = Network::new(1, Faults::default());
        let user_timeout = Nanos::from_secs(6_000);
        let ids = network.open(false, &Config { user_timeout, mtu_bytes: 576, ..Config::default() });
        let mut stream = Stream::new(0, 200_000);
        stream.write(network.at(0, ids[0]));
        network.run(Nanos::from_millis(30), |_| false);
        network.deaf = deaf;
        network.faults.lost = if deaf.is_none() { 1000 } else { 0 };
        network.run(Nanos::from_secs(outage_s), |_| false);
        (network.deaf, network.faults.lost) = (None, 0);
        let is_done = network.run(Nanos::from_secs(62), |network| {
            stream.write(network.at(0, ids[0]));
            stream.read(network.at(1, ids[1]));
            stream.read == 200_000
        });
        assert!(is_done, "after {outage_s} s, deaf {deaf:?}: {} bytes", stream.read);
    }
}

/// The end of the stream is reported when the peer has closed and everything was read, and not before.
#[test]
fn the_end_of_the_stream_comes_after_its_last_byte() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    assert!(!network.at(1, ids[1]).is_finished());
    assert_eq!(network.at(0, ids[0]).send(b"last"), Ok(4));
    network.at(0, ids[0]).close();
    assert!(network.run(Nanos::from_secs(1), |network| network.at(1, ids[1]).state() == State::CloseWait));
    let connection = network.at(1, ids[1]);
    assert!(!connection.is_finished(), "four bytes are unread");
    assert_eq!(connection.recv(&mut [0; 16]), 4);
    assert!(connection.is_finished());
    assert!(!network.at(0, ids[0]).is_finished(), "the other direction is open (half-close, RFC 9293 3.6)");
}

/// A receiver that has filled its window still takes acknowledgements at the window's end (RFC 9293 3.10.7.4, first): both
/// ends have full windows, and each reads only when its own data has arrived.
#[test]
fn full_windows_in_both_directions_do_not_lock() {
    let mut network = Network::new(1, Faults::default());
    let config = Config { receive_bytes: 3_000, ..Config::default() };
    let ids = network.open(false, &config);
    let mut streams = [Stream::new(0, 9_000), Stream::new(1, 9_000)];
    for side in 0..2 {
        streams[side].write(network.at(side, ids[side]));
    }
    let is_acknowledged = network.run(Nanos::from_secs(10), |network| {
        (0..2).all(|side| network.at(side, ids[side]).unacknowledged_bytes() == 6_000)
    });
    assert!(is_acknowledged, "acknowledgements of what fits arrive although the window is full");
    let is_done = network.run(Nanos::from_secs(100), |network| {
        for side in 0..2 {
            streams[1 - side].read(network.at(side, ids[side]));
            streams[side].write(network.at(side, ids[side]));
        }
        streams.iter().all(|stream| stream.read == 9_000)
    });
    assert!(is_done, "{} and {} bytes", streams[0].read, streams[1].read);
}

/// Both windows are closed, and have been probed, for as long as neither program reads. Whichever reads first gets all that the other
/// writes, though that one reads nothing meanwhile; then the other direction goes on, too. With losses of acknowledgements as well.
#[test]
fn windows_that_were_closed_in_both_directions_open_again() {
    for (seed, lost_percent, closed_secs) in [(1, 0, 1), (2, 0, 30), (3, 0, 200), (4, 200, 10), (5, 200, 60)]
    {
        let mut network = Network::new(seed, Faults::default());
        let config = Config { receive_bytes: 3_000, ..Config::default() };
        let ids = network.open(false, &config);
        network.faults.lost = lost_percent;
        let mut streams = [Stream::new(0, 30_000), Stream::new(1, 30_000)];
        network.run(Nanos::from_secs(closed_secs), |network| {
            for side in 0..2 {
                streams[side].write(network.at(side, ids[side]));
            }
            false
        });
        assert!(streams[0].read == 0 && streams[1].read == 0);
        let reads_one = network.run(Nanos::from_secs(600), |network| {
            for side in 0..2 {
                streams[side].write(network.at(side, ids[side]));
            }
            streams[0].read(network.at(1, ids[1]));
            streams[0].read == 30_000
        });
        assert!(reads_one, "seed {seed}: {} bytes while the other reads nothing", streams[0].read);
        let reads_both = network.run(Nanos::from_secs(600), |network| {
            streams[1].write(network.at(1, ids[1]));
            streams[1].read(network.at(0, ids[0]));
            streams[1].read == 30_000
        });
        assert!(reads_both, "seed {seed}: {} bytes", streams[1].read);
    }
}

/// Whichever ends have closed their directions, what is left of a stream follows the reader, who takes a little every 10 ms: it does not
/// wait for the probes of a window that was closed.
#[test]
fn the_rest_of_a_closed_stream_follows_the_window() {
    for (reader_closes, writer_closes) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut network = Network::new(1, Faults::default());
        let config = Config { receive_bytes: 4_000, ..Config::default() };
        let ids = network.open(false, &config);
        if reader_closes {
            network.at(1, ids[1]).close();
            network.run(Nanos::from_millis(100), |_| false);
        }
        let data: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
        let mut read = Vec::new();
        assert_eq!(network.at(0, ids[0]).send(&data), Ok(data.len()));
        if writer_closes {
            network.at(0, ids[0]).close();
            assert!(
                network.at(0, ids[0]).send(b"more").is_err() && network.at(0, ids[0]).writable_bytes() == 0
            );
        }
        // The window is closed, and was probed.
        network.run(Nanos::from_secs(5), |_| false);
        let begun = network.now;
        while read.len() < data.len() {
            let took = network.now.since(begun);
            assert!(took < Nanos::from_millis(1_500), "{reader_closes} {writer_closes}: {}", read.len());
            let mut part = [0; 500];
            let bytes = network.at(1, ids[1]).recv(&mut part);
            read.extend_from_slice(&part[..bytes]);
            network.run(Nanos::from_millis(10), |_| false);
        }
        assert!(read == data);
        if writer_closes {
            assert!(network.run(Nanos::from_secs(1), |network| network.at(1, ids[1]).is_finished()));
        }
        if reader_closes && writer_closes {
            let is_over =
                |network: &mut Network| network.at(0, ids[0]).ended() == Some(punctual_tcp::Ended::Closed);
            assert!(network.run(Nanos::from_secs(1), is_over));
        }
    }
}

/// RFC 9293 3.8.3: a listener replies to a SYN six times within a minute, then it drops the attempt.
#[test]
fn a_listener_gives_up_after_six_answers() {
    let mut network = Network::new(1, Faults::default());
    let [local, remote] = network::addresses(false);
    network.stacks[1].listen(remote, &Config::default(), 4);
    let now = network.now;
    let client = network.stacks[0].connect(now, local.ip(), remote, &Config::default()).expect("a port");
    let mut syn = Vec::new();
    assert!(network.stacks[0].output(now, &mut syn));
    network.stacks[0].remove(client);
    let mut reply = Vec::new();
    network.stacks[1].input(now, &mut syn, &mut reply).expect("a SYN");
    assert!(!reply.is_empty());
    // Nothing of the listener arrives, so the other host cannot reset the attempt.
    network.faults.lost = 1000;
    let before = network.sent[1];
    network.run(Nanos::from_secs(200), |_| false);
    assert_eq!(network.sent[1] - before, 5);
    assert_eq!(network.stacks[1].next_deadline(network.now), None);
}

/// RFC 6093 3: urgent bytes stay in the stream, and the mark is reported.
#[test]
fn urgent_data_stays_in_the_stream() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    assert_eq!(network.at(0, ids[0]).send(b"abc"), Ok(3));
    assert_eq!(network.at(0, ids[0]).send_urgent(b"!"), Ok(1));
    assert_eq!(network.at(0, ids[0]).send(b"def"), Ok(3));
    assert!(network.run(Nanos::from_secs(2), |network| network.at(1, ids[1]).readable_bytes() == 7));
    let mut bytes = [0; 16];
    let connection = network.at(1, ids[1]);
    assert_eq!(connection.urgent_ahead(), Some(4));
    assert_eq!((connection.recv(&mut bytes), &bytes[..7]), (7, &b"abc!def"[..]));
    assert_eq!(connection.urgent_ahead(), None);
}

#[test]
fn a_reset_ends_the_peer() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    network.at(0, ids[0]).abort();
    assert!(network.run(Nanos::from_secs(1), |network| network.at(1, ids[1]).ended() == Some(Ended::Reset)));
    assert_eq!(network.at(0, ids[0]).ended(), Some(Ended::Aborted));
}

#[test]
fn a_port_without_a_listener_refuses() {
    let mut network = Network::new(1, Faults::default());
    let [local, remote] = network::addresses(false);
    let id = network.stacks[0].connect(network.now, local.ip(), remote, &Config::default()).expect("a port");
    assert!(network.run(Nanos::from_secs(1), |network| network.at(0, id).ended() == Some(Ended::Refused)));
}

/// RFC 4987 3.6: with no backlog at all, every connection is opened by a cookie.
#[test]
fn cookies_open_connections() {
    for has_timestamps in [true, false] {
        let mut network = Network::new(1, Faults::default());
        let [local, remote] = network::addresses(false);
        let config = Config { has_timestamps, ..Config::default() };
        network.stacks[1].listen(remote, &config, 0);
        let client = network.stacks[0].connect(network.now, local.ip(), remote, &config).expect("a port");
        let mut server = None;
        assert!(network.run(Nanos::from_secs(2), |network| {
            server = server.or_else(|| network.stacks[1].accept(remote));
            server.is_some()
        }));
        let mut stream = Stream::new(0, 100_000);
        let is_done = network.run(Nanos::from_secs(20), |network| {
            stream.write(network.at(0, client));
            stream.read(network.at(1, server.expect("accepted")));
            stream.read == 100_000
        });
        assert!(is_done, "timestamps {has_timestamps}: {} bytes", stream.read);
    }
}
