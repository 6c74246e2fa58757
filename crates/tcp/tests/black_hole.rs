//! Routers that drop large packets without an error (RFC 4821 7.7), and what must not be taken for one.

mod network;

use network::{Faults, Network, Stream};
use punctual_analysis::Nanos;
use punctual_tcp::{Config, ConnectionId};

/// A connection and the stream that one of its ends sends.
struct World {
    network: Network,
    ids: [ConnectionId; 2],
    stream: Stream,
}

impl World {
    /// Host `from` sends 400,000 bytes.
    fn new(mut network: Network, is_v6: bool, from: usize, config: &Config) -> Self {
        let ids = network.open(is_v6, config);
        Self { network, ids, stream: Stream::new(from, 400_000) }
    }

    /// Goes on until `bytes` have arrived; how long that takes.
    fn until(&mut self, bytes: u64) -> Nanos {
        let Self { network, ids, stream } = self;
        let (began, from) = (network.now, stream.side);
        let is_done = network.run(Nanos::from_secs(120), |network| {
            stream.write(network.at(from, ids[from]));
            stream.read(network.at(1 - from, ids[1 - from]));
            stream.read >= bytes
        });
        assert!(is_done, "{} bytes, MTU {}", stream.read, network.at(from, ids[from]).path_mtu_bytes());
        network.now.since(began)
    }

    /// The size of packets that the sender believes the path carries.
    fn mtu_bytes(&mut self) -> u16 {
        let from = self.stream.side;
        self.network.at(from, self.ids[from]).path_mtu_bytes()
    }
}

/// The path is narrow from the first segment on, or becomes so. The size is the next one of RFC 1191 7.1 that passes. One timeout of a
/// second shows the loss. Six short segments at most pass in place of full ones: three show the hole, and one each further size. Each
/// takes seven round trips of 10 ms. Either end may be the one that sends: both measure the round trip by the handshake.
#[test]
fn a_black_hole_is_passed() {
    for (is_v6, from) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        for (carries_bytes, size) in [(1_300, 1_280), (1_400, 1_400), (1_280, 1_280)] {
            for first_bytes in [0, 150_000] {
                let mut world =
                    World::new(Network::new(1, Faults::default()), is_v6, from, &Config::default());
                world.until(first_bytes);
                world.network.carries_bytes = carries_bytes;
                let arrived = world.stream.read;
                let took = world.until(arrived + 50_000);
                let case = format!("v6 {is_v6}, host {from}, {carries_bytes} bytes after {first_bytes}");
                println!("{case}: {took}");
                assert_eq!(world.mtu_bytes(), size, "{case}");
                assert!(took <= Nanos::from_millis(1_700), "{case}: {took}");
                world.until(400_000);
            }
        }
    }
}

/// The path carries no more than IPv4 requires.
#[test]
fn the_narrowest_path_is_passed() {
    let mut world = World::new(Network::new(1, Faults::default()), false, 0, &Config::default());
    world.network.carries_bytes = 576;
    let took = world.until(100_000);
    println!("{took}");
    assert_eq!(world.mtu_bytes(), 576);
    assert!(took <= Nanos::from_secs(2), "{took}");
}

/// A SYN that was lost measures no round trip, and a narrow path none either: short segments leave between the timeouts.
#[test]
fn a_black_hole_is_passed_without_a_measured_round_trip() {
    for has_timestamps in [false, true] {
        let mut network = Network::new(1, Faults::default());
        network.lose_next = vec![1];
        let mut world = World::new(network, false, 0, &Config { has_timestamps, ..Config::default() });
        world.network.carries_bytes = 1_300;
        let took = world.until(100_000);
        println!("timestamps {has_timestamps}: {took}");
        assert_eq!(world.mtu_bytes(), 1_280);
        assert!(took <= Nanos::from_secs(12), "{took}");
    }
}

/// Messages that need one packet each, longer than the path carries and shorter than a full one. Small ones pass in between, and say
/// nothing about large ones.
#[test]
fn a_black_hole_is_passed_by_messages_of_one_packet() {
    for bytes in [1_300, 1_400, 1_448, 2_000] {
        for has_small in [false, true] {
            let config = Config { is_nodelay: true, ..Config::default() };
            let mut world = World::new(Network::new(1, Faults::default()), false, 0, &config);
            world.network.carries_bytes = 1_300;
            let (mut took, World { mut network, ids, .. }) = (Vec::new(), world);
            for _ in 0..8 {
                let parts = if has_small { vec![200, bytes, 200] } else { vec![bytes] };
                let (begun, all): (_, usize) = (network.now, parts.iter().sum());
                let (mut read, mut sent) = (0, 0);
                for part in parts {
                    assert_eq!(network.at(0, ids[0]).send(&vec![7; part]), Ok(part));
                    sent += part;
                    let came = network.run(Nanos::from_secs(60), |network| {
                        read += network.at(1, ids[1]).recv(&mut [0; 4_096]);
                        read == sent
                    });
                    assert!(came, "{bytes}: {read} of {all}");
                }
                network.run(Nanos::from_millis(300), |_| false);
                took.push(network.now.since(begun) - Nanos::from_millis(300));
            }
            println!("{bytes} bytes, small ones {has_small}: {took:?}");
            assert_eq!(network.at(0, ids[0]).path_mtu_bytes(), 1_280, "{bytes}, {took:?}");
            assert!(took[7] <= Nanos::from_millis(50), "{bytes}, {took:?}");
        }
    }
}

/// A peer that takes less than a full segment at a time, as between devices of large packets: the path is found as well.
#[test]
fn a_black_hole_is_passed_beside_a_small_window() {
    for receive_bytes in [3_000, 5_000] {
        let config = Config { receive_bytes, mtu_bytes: 9_000, ..Config::default() };
        let mut world = World::new(Network::new(1, Faults::default()), false, 0, &config);
        world.network.carries_bytes = 1_500;
        let took = world.until(50_000);
        println!("window of {receive_bytes} bytes: {took}, MTU {}", world.mtu_bytes());
        assert!(took <= Nanos::from_secs(15), "window of {receive_bytes} bytes: {took}");
    }
}

/// What is lost in an outage, and at random, shows nothing about sizes.
#[test]
fn an_outage_and_losses_are_no_black_hole() {
    for outage_ms in [900, 1_300, 2_500, 3_500, 7_500, 15_500, 31_000] {
        let mut world = World::new(Network::new(1, Faults::default()), false, 0, &Config::default());
        world.until(150_000);
        world.network.deaf = Some(1);
        world.network.run(Nanos::from_millis(outage_ms), |_| false);
        world.network.deaf = None;
        world.until(400_000);
        assert_eq!(world.mtu_bytes(), 1_500, "{outage_ms} ms");
    }
    for seed in 1..=20 {
        let network = Network::new(seed, Faults { lost: 100, ..Faults::default() });
        let mut world = World::new(network, false, 0, &Config::default());
        world.until(400_000);
        assert_eq!(world.mtu_bytes(), 1_500, "seed {seed}");
    }
}
