//! What is sent again may be lost, too (ADR 0052): probes of a repair leave long before the timeout of a second, and twice as late
//! each time.

mod network;

use network::{Faults, Network, Stream};
use punctual_analysis::{Instant, Nanos};
use punctual_tcp::{Config, ConnectionId};

const BYTES: u64 = 400_000;

/// A stream of which 150,000 bytes have arrived, with a window of some twenty segments.
fn under_way() -> (Network, [ConnectionId; 2], Stream) {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config::default());
    let mut stream = Stream::new(0, BYTES);
    assert!(go_on(&mut network, ids, &mut stream, 150_000, Nanos::from_secs(5)));
    (network, ids, stream)
}

/// Sends on until `bytes` have arrived; whether they have within that time.
fn go_on(
    network: &mut Network,
    ids: [ConnectionId; 2],
    stream: &mut Stream,
    bytes: u64,
    within: Nanos,
) -> bool {
    network.run(within, |network| {
        stream.write(network.at(0, ids[0]));
        stream.read(network.at(1, ids[1]));
        stream.read >= bytes
    })
}

/// Loses the third packet from now on, and of what leaves again because of it the first `repairs_lost`. How long the stream takes, and
/// how many segments leave again.
fn with_repairs_lost(repairs_lost: usize) -> (Nanos, u64) {
    let (mut network, ids, mut stream) = under_way();
    let (began, before) = (network.now, network.at(0, ids[0]).resent());
    network.lose_next = vec![network.sent[0] + 3];
    let mut again = before;
    let is_done = network.run(Nanos::from_secs(30), |network| {
        stream.write(network.at(0, ids[0]));
        stream.read(network.at(1, ids[1]));
        // The wire has the segment that left last: it is taken off again.
        let resent = network.at(0, ids[0]).resent();
        if resent > again && resent - before <= repairs_lost as u64 {
            network.drop_last();
        }
        again = resent;
        stream.read == BYTES
    });
    assert!(is_done);
    (network.now.since(began), network.at(0, ids[0]).resent() - before)
}

/// A round trip is 10 ms. The first lost repair costs two of them, the next ones twice the time of the one before.
#[test]
fn a_lost_repair_costs_no_timeout() {
    let (whole, again) = with_repairs_lost(0);
    assert_eq!(again, 1);
    for (lost, most_ms) in [(1, 45), (2, 90), (3, 180), (4, 350)] {
        let (took, again) = with_repairs_lost(lost);
        assert!(
            took <= whole + Nanos::from_millis(most_ms),
            "{lost} repairs lost: {took}, none lost: {whole}"
        );
        assert!(again <= lost as u64 + 2, "{lost} repairs lost, {again} segments left again");
    }
}

/// Nothing arrives for a while, in the middle of a flight. Behind the timeout of the machine, after a second, probes leave at ever
/// longer distances: so data goes on soon, where the machine alone would wait until 3, 7 or 15 s are over.
#[test]
fn data_goes_on_soon_after_an_outage() {
    for (outage_ms, most_ms) in [(1_100, 100), (1_500, 600), (2_900, 1_300), (6_500, 3_000)] {
        let (mut network, ids, mut stream) = under_way();
        network.deaf = Some(1);
        assert!(!go_on(&mut network, ids, &mut stream, BYTES, Nanos::from_millis(outage_ms)));
        network.deaf = None;
        let (began, arrived) = (network.now, stream.read);
        assert!(go_on(&mut network, ids, &mut stream, arrived + 1, Nanos::from_secs(60)));
        let took = network.now.since(began);
        assert!(took <= Nanos::from_millis(most_ms), "{outage_ms} ms of outage: {took}");
        assert!(go_on(&mut network, ids, &mut stream, BYTES, Nanos::from_secs(60)));
    }
}

/// A peer that stays silent costs few packets: the distances double, and end with a minute.
#[test]
fn probes_to_a_silent_peer_become_rare() {
    let (mut network, ids, mut stream) = under_way();
    network.deaf = Some(1);
    go_on(&mut network, ids, &mut stream, BYTES, Nanos::from_secs(2));
    let mut sent = network.sent[0];
    let mut most = [14, 6, 5, 4].into_iter();
    for span_s in [4, 8, 16, 32] {
        go_on(&mut network, ids, &mut stream, BYTES, Nanos::from_secs(span_s));
        let more = network.sent[0] - sent;
        assert!(more <= most.next().expect("a bound"), "{more} packets in {span_s} s");
        sent = network.sent[0];
    }
    assert!(network.now > Instant(60_000_000_000));
}

/// A stream of 4 MB over a path with these faults; how many packets host 0 sent, and how many segments left again.
fn over(faults: Faults) -> (u64, u64) {
    let mut network = Network::new(7, Faults::default());
    let ids =
        network.open(false, &Config { receive_bytes: 1 << 20, send_bytes: 1 << 20, ..Config::default() });
    (network.faults, network.byte_ns) = (faults, 8);
    let (before, mut stream) = (network.sent[0], Stream::new(0, 4_000_000));
    let mut resent = 0;
    let is_done = network.run(Nanos::from_secs(60), |network| {
        stream.write(network.at(0, ids[0]));
        stream.read(network.at(1, ids[1]));
        resent = network.at(0, ids[0]).resent();
        stream.read == 4_000_000
    });
    assert!(is_done, "{faults:?}");
    (network.sent[0] - before, resent)
}

/// RFC 6675: a packet that is overtaken by three others counts as lost. What the peer gets a moment later does not.
#[test]
fn packets_that_come_late_cost_one_repair_each_and_no_flight() {
    let (packets, again) = over(Faults { reordered: 2, ..Faults::default() });
    assert!(
        again * 1_000 <= 4 * packets,
        "2 of 1,000 packets late: {again} segments of {packets} left again"
    );
}

/// RFC 9293 3.8.6.2.1: the congestion window ends within a segment, and the segment leaves whole.
#[test]
fn a_full_stream_has_full_segments() {
    let (packets, again) = over(Faults { lost: 10, ..Faults::default() });
    let full = 4_000_000_u64.div_ceil(1_448);
    assert!(
        packets - again <= full + full / 20,
        "{packets} packets, {again} of them again, for {full} full segments"
    );
}

/// RFC 6675 2: what acknowledges something new selectively is a duplicate acknowledgement, although it carries data or changes the
/// window. Data goes both ways all the time, and one segment is lost: what is behind it waits for a round trip and three segments.
#[test]
fn a_loss_is_seen_in_acknowledgements_that_carry_data() {
    let mut network = Network::new(1, Faults::default());
    let ids = network.open(false, &Config { is_nodelay: true, ..Config::default() });
    let (mut longest, mut arrived_at) = (Nanos::ZERO, network.now);
    for turn in 0..400 {
        if turn == 100 {
            network.lose_next = vec![network.sent[0] + 1];
        }
        for (host, id) in ids.into_iter().enumerate() {
            assert_eq!(network.at(host, id).send(&[7; 300]), Ok(300));
        }
        network.run(Nanos::from_millis(1), |network| {
            network.at(0, ids[0]).recv(&mut [0; 16_384]);
            if network.at(1, ids[1]).recv(&mut [0; 16_384]) > 0 {
                longest = longest.max(network.now.since(arrived_at));
                arrived_at = network.now;
            }
            false
        });
    }
    assert_eq!(network.at(0, ids[0]).resent(), 1);
    assert!(longest <= Nanos::from_millis(15), "{longest} without data");
}
