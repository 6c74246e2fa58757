//! The kernel's share of an xdp link follows admission, between network namespaces that the test makes (needs
//! root): nearly all of a wire of 95 Mbit/s beside loose channels, less before a tight channel is granted,
//! and all again once that is closed.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::network::{Cable, Network, driver};
use common::program::{Program, folder};
use common::text::{HELLO, Text};
use common::witness::may_be_real_time;
use common::{PATIENCE, contract, eventually, meet};
use punctual::{Channel, Consent, Endsystem, Listener, Receiver};
use rustix::net::sockopt::set_tcp_congestion;
use rustix::process::Signal;

/// Cables from `a` (0) and `b` (1) to the switch between them.
const CABLES: [Cable; 2] = [Cable { number: 0, hosts: [0, 2] }, Cable { number: 1, hosts: [1, 2] }];
const ADDRESSES: [&str; 2] = ["10.98.0.1", "10.98.0.3"];
/// Port of the kernel's traffic.
const PORT: u16 = 9_000;
const RATE_BPS: f64 = 95e6;
const MESSAGES: usize = 1_500;
/// The part of the wire that a channel's contract takes: 500 messages a second of 330 B.
const MESSAGE_BPS: f64 = 500.0 * 330.0 * 8.0;

/// Two hosts and a switch between them whose port to `b` drains at 95 Mbit/s, in FIFO order.
fn network() -> Option<Network> {
    let network = Network::new("follows", 3)?;
    CABLES.iter().for_each(|cable| network.join(*cable));
    for (host, cable) in CABLES.iter().enumerate() {
        let (own, far) = (cable.device(0), cable.device(1));
        network.run(host, &format!("ip address flush dev {own}"));
        network.run(host, &format!("ip address add {}/29 dev {own}", ADDRESSES[host]));
        network.run(2, &format!("ip address flush dev {far}"));
    }
    let [first, second] = CABLES.map(|cable| cable.device(1));
    network.run(2, "ip link add bridge0 type bridge");
    for device in ["bridge0", &first, &second] {
        if device != "bridge0" {
            network.run(2, &format!("ip link set {device} master bridge0"));
        }
        network.run(2, &format!("ip link set {device} up"));
    }
    let wire = "tbf rate 95mbit burst 3200 limit 2000000 overhead 24 mpu 84";
    network.run(2, &format!("tc qdisc replace dev {second} root {wire}"));
    may_be_real_time().then_some(network)
}

fn start(network: &Network, folder: &Path, host: usize) -> Program {
    let name = ["a", "b"][host];
    let socket = folder.join(format!("{name}.sock"));
    let (own, peer, device) = (ADDRESSES[host], ADDRESSES[1 - host], CABLES[host].device(0));
    let link = format!(
        "driver = \"xdp\"\nxdp_mode = \"generic\"\ndevice = \"{device}\"\nlocal = \"{own}\"\npeer = \"{peer}\"\n\
         rate = \"95Mbit/s\"\nkernel_rate = \"10%\"\nprediction_error = \"20ms\"\n"
    );
    let processor = "profile_measure = false";
    let text =
        Text { name, socket: &socket, processor, daemon: "", hello: HELLO, signalling: "", link: &link };
    Program::start_as(folder, text, "", |line| network.inside(host, line))
}

/// The rate at which the kernel may send to the other end, in bits of the wire a second.
fn kernel_bps(host: &Endsystem) -> f64 {
    let share = host.status().expect("status").node.links[0].kernel_share.expect("it follows");
    share.now_bps.0 as f64
}

/// Bits of the wire that left by the switch's port to `b`: with what Ethernet adds to each packet.
fn drained(network: &Network) -> f64 {
    let device = CABLES[1].device(1);
    let shown = network.run(2, &format!("tc -s qdisc show dev {device}"));
    let sent = shown.lines().find(|line| line.trim_start().starts_with("Sent")).expect("counters");
    let sent: Vec<f64> = sent.split(' ').filter_map(|word| word.parse().ok()).collect();
    (sent[0] + 24.0 * sent[1]) * 8.0
}

/// Kernel TCP from `a` to `b` until `over`; counts what arrives.
fn bulk(network: &Network, over: &AtomicBool, arrived: &AtomicU64) {
    let listener = network.within(1, || TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a port"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a stream");
            let mut buffer = vec![0; 1 << 18];
            while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                arrived.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        });
        network.within(0, || {
            let mut stream = TcpStream::connect((ADDRESSES[1], PORT)).expect("to connect");
            // Other algorithms, such as bbr, leave a part of the shaper's rate unused, to measure.
            set_tcp_congestion(&stream, "cubic").expect("every kernel has it");
            let block = vec![7; 1 << 16];
            while !over.load(Ordering::Relaxed) {
                stream.write_all(&block).expect("it is taken");
            }
        });
    });
}

fn open(a: &Endsystem, listener: &Listener, deadline_ms: u64) -> (Channel, Receiver) {
    let channel = a.open("cam@b", contract(200, 500, deadline_ms)).expect("a channel");
    (channel, listener.accept_timeout(PATIENCE).expect("no error").expect("a channel"))
}

/// Own stamps inside the messages, by the clock that both ends have; the times that they took, sorted.
fn latencies(channel: &mut Channel, receiver: &mut Receiver) -> Vec<Duration> {
    let origin = Instant::now();
    let now = || u64::try_from(origin.elapsed().as_nanos()).expect("no centuries");
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        let received = scope.spawn(move || {
            let mut buffer = [0; 200];
            let mut took = Vec::with_capacity(MESSAGES);
            while took.len() < MESSAGES && receiver.recv_timeout(&mut buffer, PATIENCE).is_ok() {
                let sent = u64::from_ne_bytes(buffer[..8].try_into().expect("eight bytes"));
                took.push(Duration::from_nanos(now().saturating_sub(sent)));
            }
            took
        });
        let mut message = [0; 200];
        for number in 0..MESSAGES {
            let at = Duration::from_micros(2_500) * number as u32;
            std::thread::sleep(at.saturating_sub(origin.elapsed()));
            message[..8].copy_from_slice(&now().to_ne_bytes());
            channel.send(&message).expect("it is taken");
        }
        received.join().expect("no panic")
    });
    took.sort_unstable();
    took
}

/// Sends over a channel for some seconds; returns the rate on the wire meanwhile, in bits a second, and
/// quantiles of the latency.
fn measure(network: &Network, (channel, receiver): (&mut Channel, &mut Receiver)) -> (f64, [Duration; 3]) {
    let (from, began) = (drained(network), Instant::now());
    let took = latencies(channel, receiver);
    let rate = (drained(network) - from) / began.elapsed().as_secs_f64();
    assert_eq!(took.len(), MESSAGES, "none was lost");
    let at = |permille: usize| took[(took.len() * permille / 1_000).min(took.len() - 1)];
    (rate, [at(500), at(990), at(1_000)])
}

/// Sets the flag however the test ends: else the sending thread would never end.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_kernel_has_what_is_not_admitted_and_gives_it_back_before_a_grant() {
    let Some(network) = network() else { return };
    if driver() != "xdp" {
        return;
    }
    let folder = folder("follows");
    let before = network.photograph(CABLES[0], 0);
    let (on_a, on_b) = (start(&network, &folder, 0), start(&network, &folder, 1));
    let (a, b) = (on_a.connect(), on_b.connect());
    meet([&a, &b]);
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let (mut loose, mut from_loose) = open(&a, &listener, 200);
    let most = || kernel_bps(&a) > 0.9 * RATE_BPS;
    eventually("the kernel has what is not admitted", most);

    let (over, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| bulk(&network, &over, &arrived));
        let _over = Over(&over);
        eventually("kernel TCP is up to speed", || arrived.load(Ordering::Relaxed) > 8_000_000);
        let (carried, took) = measure(&network, (&mut loose, &mut from_loose));
        let kernels = carried - MESSAGE_BPS * 0.8;
        // Signalling's too is given away: fifty packets of 1,466 B a second at most.
        let rest = RATE_BPS - MESSAGE_BPS - 50.0 * 1_466.0 * 8.0;
        println!(
            "loose: kernel {:.1} of {:.1} Mbit/s, may {:.1}; took {took:?}",
            kernels / 1e6,
            rest / 1e6,
            kernel_bps(&a) / 1e6
        );
        assert!(kernels >= 0.9 * rest, "{:.1} Mbit/s", kernels / 1e6);
        assert!(took[1] < Duration::from_millis(200), "{took:?}");

        let had = kernel_bps(&a);
        let (mut tight, mut from_tight) = open(&a, &listener, 8);
        let has = kernel_bps(&a);
        assert!(has < 0.9 * had, "it shrank before the grant: {has} of {had} bit/s");
        let (carried, took) = measure(&network, (&mut tight, &mut from_tight));
        println!("tight: wire {:.1}, kernel may {:.1} Mbit/s; took {took:?}", carried / 1e6, has / 1e6);
        assert!(carried <= 1.02 * has + RATE_BPS / 20.0, "{:.1} Mbit/s", carried / 1e6);
        assert!(took[0] < Duration::from_millis(8), "{took:?}");
        drop((tight, from_tight));
        eventually("it has that again", most);
    });
    drop((loose, from_loose, listener, a, b));
    assert!(on_a.stop(Signal::TERM).success() && on_b.stop(Signal::TERM).success());
    assert_eq!(network.photograph(CABLES[0], 0), before);
    std::fs::remove_dir_all(folder).expect("removed");
}
