//! What the sender does beside the machine (ADR 0052): the first flight of ten segments, holes that selective acknowledgements
//! show, and probes of the end of a flight.

mod network;

use network::{Faults, Network, Stream};
use punctual_analysis::{Instant, Nanos};
use punctual_tcp::{Config, ConnectionId, Segment, Setting, State};

const FULL: u16 = 1_448;

fn open(config: &Config) -> (Network, [ConnectionId; 2]) {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, config);
    (network, ids)
}

/// The data segments that host 0 makes now: number of the first byte, and bytes.
fn data(network: &mut Network) -> Vec<Segment> {
    network.segments(0).into_iter().filter(|segment| segment.payload_bytes > 0).collect()
}

fn sizes(segments: &[Segment]) -> Vec<u16> {
    segments.iter().map(|segment| segment.payload_bytes).collect()
}

/// RFC 6928: ten full segments leave at once, and no eleventh. With long segments it is what fits into 14,600 bytes.
#[test]
fn the_first_flight_has_ten_segments() {
    for (mtu_bytes, flight) in [(1_500, vec![FULL; 10]), (4_052, vec![4_000, 4_000, 4_000, 2_600])] {
        let (mut network, ids) = open(&Config { mtu_bytes, is_nodelay: true, ..Config::default() });
        network.at(0, ids[0]).send(&[7; 50_000]).expect("room");
        let segments = data(&mut network);
        assert_eq!(sizes(&segments), flight, "{mtu_bytes}");
        let (first, last) = (segments[0], segments[segments.len() - 1]);
        let bytes = flight.iter().map(|bytes| u32::from(*bytes)).sum::<u32>();
        assert_eq!(last.end().wrapping_sub(first.seq), bytes, "one behind the other");
    }
}

/// The window of the peer and Nagle's rule bound it as everything else. The last segment is marked.
#[test]
fn the_first_flight_heeds_the_window_and_nagle() {
    let (mut network, ids) = open(&Config { receive_bytes: 5_000, ..Config::default() });
    network.at(0, ids[0]).send(&[7; 50_000]).expect("room");
    assert_eq!(sizes(&data(&mut network)), [FULL, FULL, FULL], "5,000 bytes, and Nagle keeps the rest");
    let (mut network, ids) = open(&Config::default());
    network.at(0, ids[0]).send(&[7; 2_000 + 3 * 1_448]).expect("room");
    assert_eq!(sizes(&data(&mut network)), [FULL; 4], "less than a full segment waits");
    let (mut network, ids) = open(&Config { is_nodelay: true, ..Config::default() });
    network.at(0, ids[0]).send(&[7; 100 + 3 * 1_448]).expect("room");
    let segments = data(&mut network);
    assert_eq!(sizes(&segments), [FULL, FULL, FULL, 100]);
    assert_eq!(segments.map_psh(), [false, false, false, true]);
}

trait Psh {
    fn map_psh(&self) -> Vec<bool>;
}

impl Psh for Vec<Segment> {
    fn map_psh(&self) -> Vec<bool> {
        self.iter().map(|segment| segment.flags.psh).collect()
    }
}

/// What left ahead does not leave again when the machine comes to it: 14,480 bytes and the end of the stream take a round trip
/// each way, and every segment leaves once.
#[test]
fn a_short_answer_takes_one_round_trip_and_no_segment_twice() {
    for bytes in [1_000, 5_000, 14_480, 20_000] {
        let (mut network, ids) = open(&Config { is_nodelay: true, ..Config::default() });
        let (began, mut stream) = (network.now, Stream::new(0, bytes));
        stream.write(network.at(0, ids[0]));
        let is_done = network.run(Nanos::from_secs(5), |network| {
            stream.write(network.at(0, ids[0]));
            stream.read(network.at(1, ids[1]));
            stream.read == bytes && network.at(1, ids[1]).state() == State::CloseWait
        });
        assert!(is_done, "{bytes}");
        let most = if bytes <= 14_480 { 16 } else { 26 };
        let took = network.now.since(began);
        assert!(took <= Nanos::from_millis(most), "{bytes} bytes took {took}, one way is 5 ms");
        assert_eq!(network.at(0, ids[0]).resent(), 0, "{bytes}");
    }
}

/// RFC 5961 3.2: a reset before what its receiver expects next is ignored. So it has the number behind all that left, also what left
/// beside the machine.
#[test]
fn a_reset_has_the_number_behind_all_that_left() {
    for bytes in [0, 500, 5_000, 50_000] {
        let (mut network, ids) = open(&Config { is_nodelay: true, ..Config::default() });
        assert_eq!(network.at(0, ids[0]).send(&vec![7; bytes]), Ok(bytes));
        let end = data(&mut network).last().map(Segment::end);
        network.at(0, ids[0]).abort();
        let resets: Vec<_> = network.segments(0).into_iter().filter(|segment| segment.flags.rst).collect();
        assert_eq!(resets.len(), 1, "{bytes}");
        assert_eq!(end.unwrap_or(resets[0].seq), resets[0].seq, "{bytes}");
    }
}

/// RFC 9293 3.8.4: a keep-alive leaves after the idle time, and not when it is switched on.
#[test]
fn a_keep_alive_waits_for_the_idle_time() {
    let (mut network, ids) = open(&Config::default());
    network.run(Nanos::from_secs(1), |_| false);
    network.at(0, ids[0]).set(Setting::KeepAlive(Some(Nanos::from_secs(5))));
    assert_eq!(network.segments(0), []);
    network.at(0, ids[0]).send(b"x").expect("room");
    network.run(Nanos::from_millis(4_900), |_| false);
    let sent = network.sent[0];
    network.run(Nanos::from_secs(12), |_| false);
    assert!((2..=3).contains(&(network.sent[0] - sent)), "{}", network.sent[0] - sent);
}

/// Bytes that leave before the machine has made that first one do not cost a later one.
#[test]
fn a_keep_alive_behind_data_waits_no_longer() {
    let (mut network, ids) = open(&Config::default());
    network.run(Nanos::from_secs(1), |_| false);
    network.at(0, ids[0]).set(Setting::KeepAlive(Some(Nanos::from_secs(5))));
    network.at(0, ids[0]).send(b"x").expect("room");
    network.run(Nanos::from_millis(4_900), |_| false);
    let sent = network.sent[0];
    network.run(Nanos::from_secs(1), |_| false);
    assert_eq!(network.sent[0] - sent, 1);
}

/// RFC 5681 3.1: where a SYN was lost, the first flight is small.
#[test]
fn a_lost_syn_makes_the_first_flight_small() {
    let mut network = Network::new(1, Faults::default());
    network.deaf = Some(1);
    let [local, remote] = network::addresses(false);
    let config = Config::default();
    network.stacks[1].listen(remote, &config, 4);
    let id = network.stacks[0].connect(network.now, local.ip(), remote, &config).expect("a port");
    assert!(!network.run(Nanos::from_millis(500), |_| false));
    network.deaf = None;
    assert!(network.run(Nanos::from_secs(3), |network| network.at(0, id).state() == State::Established));
    network.at(0, id).send(&[7; 50_000]).expect("room");
    let bytes: u32 = sizes(&data(&mut network)).iter().map(|bytes| u32::from(*bytes)).sum();
    assert!(bytes <= 2_048, "{bytes}");
}

/// Sends 40 segments over a wire that loses those of these numbers once; how long it takes, and how many leave again.
fn with_losses(lost: &[u64], nth: u64) -> (Nanos, u64) {
    let (mut network, ids) = open(&Config::default());
    // A window of some twenty segments.
    let mut stream = Stream::new(0, 400_000);
    network.run(Nanos::from_secs(5), |network| {
        stream.write(network.at(0, ids[0]));
        stream.read(network.at(1, ids[1]));
        stream.read >= nth * u64::from(FULL)
    });
    let (began, before) = (network.now, network.at(0, ids[0]).resent());
    network.lose_next = lost.iter().map(|number| number + network.sent[0]).collect();
    let is_done = network.run(Nanos::from_secs(30), |network| {
        stream.write(network.at(0, ids[0]));
        stream.read(network.at(1, ids[1]));
        stream.read == 400_000
    });
    assert!(is_done);
    (network.now.since(began), network.at(0, ids[0]).resent() - before)
}

/// Five losses in one window: each further one costs a round trip of 10 ms at most, because this peer tells of one hole at a time,
/// and no timeout comes.
#[test]
fn several_losses_of_a_window_are_repaired_without_a_timeout() {
    let (_, again) = with_losses(&[], 100);
    assert_eq!(again, 0);
    let (one, again) = with_losses(&[3], 100);
    assert_eq!(again, 1);
    let (five, again) = with_losses(&[3, 5, 7, 9, 11], 100);
    assert_eq!(again, 5, "what was lost leaves again, and nothing else");
    assert!(five <= one + Nanos::from_millis(40), "{five}, with one loss {one}");
}

/// Warms a connection up, so that its round-trip time is known, and gives host 0 `bytes` more while host 1 is deaf.
fn tail(bytes: usize) -> (Network, [ConnectionId; 2], Instant) {
    let (mut network, ids) = open(&Config { is_nodelay: true, ..Config::default() });
    network.at(0, ids[0]).send(&[7; 100_000]).expect("room");
    network.run(Nanos::from_millis(400), |network| {
        while network.at(1, ids[1]).recv(&mut [0; 4_096]) > 0 {}
        false
    });
    assert_eq!(network.at(0, ids[0]).unacknowledged_bytes(), 0);
    network.deaf = Some(1);
    network.at(0, ids[0]).send(&vec![7; bytes]).expect("room");
    network.settle();
    network.deaf = None;
    let now = network.now;
    (network, ids, now)
}

/// RFC 8985 7: the last segments of a flight are lost. A probe repairs that long before the timeout of a second: after two round
/// trips, and 200 ms more for a single segment, which the peer might have acknowledged late.
#[test]
fn a_lost_tail_is_repaired_before_the_timeout() {
    for (bytes, least, most) in [(500, 200, 260), (2 * 1_448, 19, 60)] {
        let (mut network, ids, began) = tail(bytes);
        let is_done =
            network.run(Nanos::from_secs(10), |network| network.at(0, ids[0]).unacknowledged_bytes() == 0);
        assert!(is_done, "{bytes}");
        let took = network.now.since(began);
        let range = Nanos::from_millis(least)..Nanos::from_millis(most);
        assert!(range.contains(&took), "{bytes} bytes: {took}");
        assert!(network.at(0, ids[0]).resent() <= 3);
    }
}

/// Warms a connection up whose packets take `delay` one way, and loses what it sends then, `bytes`. What leaves first again: when, and
/// whether it is the end of those bytes, as a probe, or their beginning, as after a timeout.
fn repaired(delay: Nanos, bytes: usize) -> (Nanos, bool) {
    let mut network = Network::new(1, Faults::default());
    network.delay = delay;
    let ids = network.open(false, &Config { is_nodelay: true, ..Config::default() });
    // Samples without an acknowledgement that waited: each flight has two segments.
    for _ in 0..100 {
        network.at(0, ids[0]).send(&[7; 2 * FULL as usize]).expect("room");
        let is_over = network.run(Nanos::from_secs(5), |network| {
            while network.at(1, ids[1]).recv(&mut [0; 4_096]) > 0 {}
            network.at(0, ids[0]).unacknowledged_bytes() == 0
        });
        assert!(is_over);
    }
    network.at(0, ids[0]).send(&vec![7; bytes]).expect("room");
    let (begun, sent) = (network.now, data(&mut network));
    let mut again = Vec::new();
    while again.is_empty() {
        assert!(network.step(begun + Nanos::from_secs(5)));
        again = data(&mut network);
    }
    let is_end = again[0].end() == sent[sent.len() - 1].end();
    (network.now.since(begun), is_end)
}

/// RFC 8985 7.2: a probe leaves after two round trips; not before 10 ms, and 200 ms later for a single segment. Where the timeout of
/// a second comes first, there is none.
#[test]
fn a_probe_leaves_when_it_may() {
    let two = 2 * FULL as usize;
    assert_eq!(repaired(Nanos::from_millis(1), two), (Nanos::from_millis(10), true));
    let (pair, is_end) = repaired(Nanos::from_millis(20), two);
    assert!(is_end && pair >= Nanos::from_millis(80) && pair < Nanos::from_millis(81), "{pair}");
    let (single, _) = repaired(Nanos::from_millis(20), 500);
    assert_eq!(single, pair + Nanos::from_millis(200));
    assert!(repaired(Nanos::from_millis(249), two).1, "2 · 498 ms");
    assert!(!repaired(Nanos::from_millis(251), two).1, "2 · 502 ms");
}

/// The probe that repaired a loss makes the window smaller, as a loss must (RFC 8985 7.4.2): less leaves at once than before.
#[test]
fn a_loss_that_a_probe_repairs_shrinks_the_window() {
    let flight = |is_lost: bool| {
        let (mut network, ids, _) = tail(500);
        let is_acknowledged = |network: &mut Network| network.at(0, ids[0]).unacknowledged_bytes() == 0;
        if !is_lost {
            // The same bytes, of which none is lost.
            network = open(&Config { is_nodelay: true, ..Config::default() }).0;
            network.at(0, ids[0]).send(&[7; 100_000]).expect("room");
            network.run(Nanos::from_millis(400), |network| {
                while network.at(1, ids[1]).recv(&mut [0; 4_096]) > 0 {}
                false
            });
            network.at(0, ids[0]).send(&[7; 500]).expect("room");
        }
        assert!(network.run(Nanos::from_secs(3), is_acknowledged));
        // The acknowledgement of more than the probe shows that it has repaired something.
        for _ in 0..2 {
            network.at(0, ids[0]).send(&[7; 100]).expect("room");
            assert!(network.run(Nanos::from_secs(1), is_acknowledged));
        }
        network.at(0, ids[0]).send(&[7; 150_000]).expect("room");
        sizes(&data(&mut network)).iter().map(|bytes| u32::from(*bytes)).sum::<u32>()
    };
    let (lost, whole) = (flight(true), flight(false));
    assert!(lost > 0 && lost * 10 <= whole * 8, "{lost} bytes, {whole} without loss");
}
