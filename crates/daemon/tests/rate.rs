//! A link that measures its own drain rate, over a wire of 20 Mbit/s between network namespaces that the test
//! makes (needs root): no channel is admitted before, fitting channels are admitted after, and a plain socket
//! of the test finds the same rate.

mod common;

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use common::network::{Cable, Network};
use common::program::{Program, folder};
use common::text::{HELLO, Text};
use common::{PATIENCE, contract, eventually};
use punctual::{Consent, Endsystem, MeasuredRate, OpenError, RateRefusal, RateStatus, RefuseCause};

const CABLE: Cable = Cable { number: 0, hosts: [0, 1] };
const AUTO: &str = "rate = \"auto\"\nrate_max = \"200Mbit/s\"";
const WIRE: &str = "tbf rate 20mbit burst 16kb latency 50ms";
/// Length of our largest packets from our header on, and of the wire bytes of each by our count. The bucket
/// counts fewer.
const PACKET_BYTES: usize = 1_464;
const WIRE_BYTES: u64 = PACKET_BYTES as u64 + 66;
const BUCKET_BYTES: u64 = PACKET_BYTES as u64 + 42;
const DRAINS_BPS: u64 = 20_000_000 * WIRE_BYTES / BUCKET_BYTES;

/// The daemon of `a` or `b`, which runs on that host of the network; `link`: the driver and the rate.
fn start(network: &Network, folder: &Path, end: usize, host: usize, link: &str) -> Program {
    let name = ["a", "b"][end];
    let socket = folder.join(format!("{name}.sock"));
    let (own, peer) = (CABLE.address(end), CABLE.address(1 - end));
    let link = format!("kernel_traffic = \"exclusive\"\nlocal = \"{own}\"\npeer = \"{peer}\"\n{link}\n");
    let processor = "profile_measure = false";
    let text =
        Text { name, socket: &socket, processor, daemon: "", hello: HELLO, signalling: "", link: &link };
    Program::start_as(folder, text, "--best-effort-host", |line| network.inside(host, line))
}

fn rate_of(host: &Endsystem) -> RateStatus {
    host.status().expect("a status").node.links[0].rate
}

fn cause(refused: Result<punctual::Channel, OpenError>) -> RefuseCause {
    match refused {
        Err(OpenError::Refused { refusal, .. }) => refusal.cause,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was admitted"),
    }
}

/// The true rate is within the stated error.
fn is_the_wire(found: MeasuredRate) {
    let error = found.rate.0 / 1_000_000 * u64::from(found.error.0);
    assert!(found.rate.0.abs_diff(DRAINS_BPS) <= error, "{found:?}");
    assert!(found.error.0 <= 250_000 && !found.at_least, "{found:?}");
}

/// The rate that a plain socket reaches in half a second, after the bucket is empty, in bits of the wire a
/// second.
fn by_hand(network: &Network) -> u64 {
    let bind = |end: usize| network.within(end, || UdpSocket::bind((CABLE.address(end).as_str(), 9_100)));
    let (sender, receiver) = (bind(0).expect("a port"), bind(1).expect("a port"));
    let began = Instant::now();
    let span = Duration::from_millis(700);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let packet = [0; PACKET_BYTES];
            while began.elapsed() < span {
                // The bucket's queue is full most of the time.
                let _ = sender.send_to(&packet, (CABLE.address(1).as_str(), 9_100));
            }
        });
        receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
        let mut buffer = [0; 2_000];
        let mut times = Vec::new();
        while let Ok(bytes) = receiver.recv(&mut buffer) {
            assert_eq!(bytes, PACKET_BYTES);
            times.push(began.elapsed());
        }
        let later = &times[times.len() / 4..];
        let took = later[later.len() - 1] - later[0];
        ((later.len() as u128 - 1) * u128::from(WIRE_BYTES) * 8_000_000_000 / took.as_nanos()) as u64
    })
}

#[test]
fn a_link_finds_its_rate_out_by_itself() {
    let Some(network) = Network::new("rate", 2) else { return };
    network.join(CABLE);
    network.run(0, &format!("tc qdisc replace dev {} root {WIRE}", CABLE.device(0)));
    let folder = folder("rate");
    let on_a = start(&network, &folder, 0, 0, &format!("driver = \"udp\"\n{AUTO}"));
    let a = on_a.connect();
    let early = cause(a.open("cam@b", contract(200, 100, 100)));
    assert_eq!(early, RefuseCause::RateUnknown(RateRefusal::NoNeighbour), "no neighbour has answered");
    let on_b = start(&network, &folder, 1, 1, "driver = \"udp\"\nrate = \"95Mbit/s\"");
    let b = on_b.connect();
    eventually("the link is measured", || rate_of(&a).measured.is_some());
    let rate = rate_of(&a);
    let found = rate.measured.expect("measured");
    let hand = by_hand(&network);
    println!("auto found {found}, by hand {:.1} Mbit/s", hand as f64 / 1e6);
    is_the_wire(found);
    // The rate that the plain socket measured is also that of the bucket, within the accuracy of this
    // machine.
    assert!(hand.abs_diff(DRAINS_BPS) < DRAINS_BPS / 5, "{hand}");
    assert!(
        rate.rate.less(rate.error) <= found.lower_bound() && found.lower_bound().0 <= DRAINS_BPS,
        "{rate:?}"
    );
    // 30 Mbit/s is less than was tried, and more than the wire drains; 6 Mbit/s fits.
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    assert!(matches!(cause(a.open("cam@b", contract(7_500, 500, 200))), RefuseCause::Stage { .. }));
    let channel = a.open("cam@b", contract(7_500, 100, 200)).expect("it fits");
    let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    let refused = a.measure_rate("to-b").expect_err("a channel uses it").to_string();
    assert!(refused.contains("guaranteed channel uses the link"), "{refused}");
    drop((channel, receiver));
    eventually("the channel is gone", || a.channels().expect("channels").is_empty());
    // The other direction has no bucket; its measurement is requested, and shows at least the configured
    // rate.
    eventually("no other measurement runs", || b.measure_rate("to-a").is_ok());
    let back = rate_of(&b).measured.expect("measured");
    println!("back {back}");
    // How much that is depends on what else this machine does.
    assert!(back.at_least && (1_000_000..=95_000_000).contains(&back.rate.0), "{back:?}");
    let unknown = a.measure_rate("to-c").expect_err("no such link").to_string();
    assert!(unknown.contains("to-b"), "{unknown}");
}

/// AF_XDP bypasses the qdiscs of its own host: the wire is between the hosts, a bridge with a bucket.
#[test]
fn a_link_over_xdp_does_so_too() {
    const TO_B: Cable = Cable { number: 1, hosts: [1, 2] };
    let Some(network) = Network::new("ratexdp", 3) else { return };
    network.join(CABLE);
    network.join(TO_B);
    let (near, far) = (CABLE.device(1), TO_B.device(0));
    network.run(1, "ip link add name wire type bridge forward_delay 0");
    for device in [&near, &far, &"wire".to_owned()] {
        network.run(1, &format!("ip address flush dev {device}"));
        network.run(1, &format!("ip link set {device} up"));
    }
    for device in [&near, &far] {
        network.run(1, &format!("ip link set {device} master wire"));
    }
    let on_b = TO_B.device(1);
    network.run(2, &format!("ip address flush dev {on_b}"));
    network.run(2, &format!("ip address add {}/30 dev {on_b}", CABLE.address(1)));
    network.run(1, &format!("tc qdisc replace dev {far} root {WIRE}"));
    let folder = folder("ratexdp");
    let xdp = |device: &str, rate: &str| format!("driver = \"xdp\"\ndevice = \"{device}\"\n{rate}");
    let on_a = start(&network, &folder, 0, 0, &xdp(&CABLE.device(0), AUTO));
    let on_b = start(&network, &folder, 1, 2, &xdp(&on_b, "rate = \"95Mbit/s\""));
    let (a, b) = (on_a.connect(), on_b.connect());
    eventually("the link is measured", || rate_of(&a).measured.is_some());
    let found = rate_of(&a).measured.expect("measured");
    println!("auto found {found} over xdp");
    is_the_wire(found);
    let _listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    assert!(matches!(cause(a.open("cam@b", contract(7_500, 500, 200))), RefuseCause::Stage { .. }));
    a.open("cam@b", contract(7_500, 100, 200)).expect("it fits");
}
