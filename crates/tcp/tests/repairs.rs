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
