//! Kernel traffic beside a link on its device, between network namespaces that the test makes (needs root):
//! it is sent behind ours if the daemon shapes it, reported if there should be none, and degrades a channel
//! if nothing is configured.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::network::{Cable, Network};
use common::program::{Program, folder};
use common::text::{HELLO, Text};
use common::witness::may_be_real_time;
use common::{PATIENCE, contract, eventually, meet};
use punctual::{Channel, Consent, DriverStatus, Endsystem, Receiver};
use punctual_host::config::parse;
use rustix::process::Signal;

const CABLE: Cable = Cable { number: 0, hosts: [0, 1] };
/// Port of the kernel's traffic.
const PORT: u16 = 9_000;
const MESSAGES: usize = 1_500;

fn text<R>(folder: &Path, end: usize, keys: &str, work: impl FnOnce(Text<'_>) -> R) -> R {
    let name = ["a", "b"][end];
    let socket = folder.join(format!("{name}.sock"));
    let (own, peer) = (CABLE.address(end), CABLE.address(1 - end));
    let link = format!(
        "driver = \"udp\"\nlocal = \"{own}\"\npeer = \"{peer}\"\nrate = \"95Mbit/s\"\nprediction_error = \"20ms\"\n{keys}"
    );
    let processor = "profile_measure = false";
    work(Text { name, socket: &socket, processor, daemon: "", hello: HELLO, signalling: "", link: &link })
}

fn start(network: &Network, folder: &Path, end: usize, keys: &str) -> Program {
    let log = log_of(folder, end);
    let line = |line: &str| format!("{} 2>{}", network.inside(end, line), log.display());
    text(folder, end, keys, |text| Program::start_as(folder, text, "", line))
}

/// Path of a host's log.
fn log_of(folder: &Path, end: usize) -> PathBuf {
    folder.join(["a.log", "b.log"][end])
}

/// Two hosts whose daemons run in the real-time class: they are not degraded for that reason.
fn hosts(tag: &str) -> Option<Network> {
    let network = Network::new(tag, 2)?;
    network.join(CABLE);
    may_be_real_time().then_some(network)
}

fn open(a: &Endsystem, b: &Endsystem) -> (Channel, Receiver) {
    meet([a, b]);
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let channel = a.open("cam@b", contract(200, 1_000, 100)).expect("a channel");
    (channel, listener.accept_timeout(PATIENCE).expect("no error").expect("a channel"))
}

/// Kernel TCP from the first host to the second until `over`; counts what arrives.
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
            let mut stream = TcpStream::connect((CABLE.address(1).as_str(), PORT)).expect("to connect");
            let block = vec![7; 1 << 18];
            while !over.load(Ordering::Relaxed) {
                stream.write_all(&block).expect("it is taken");
            }
        });
    });
}

/// Own stamps inside the messages, by the clock that both ends have; the times that they took, sorted.
fn latencies(channel: &mut Channel, receiver: &mut Receiver) -> Vec<Duration> {
    let origin = Instant::now();
    let now = || u64::try_from(origin.elapsed().as_nanos()).expect("no centuries");
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        let received = scope.spawn(move || {
            let mut buffer = [0; 200];
            let mut took = Vec::with_capacity(MESSAGES);
            while took.len() < MESSAGES
                && let Ok(info) = receiver.recv_timeout(&mut buffer, PATIENCE)
            {
                assert_eq!(info.len as usize, buffer.len());
                let sent = u64::from_ne_bytes(buffer[..8].try_into().expect("eight bytes"));
                took.push(Duration::from_nanos(now().saturating_sub(sent)));
            }
            took
        });
        let mut message = [0; 200];
        for number in 0..MESSAGES {
            // The sender's pace, with room to its contract.
            let at = Duration::from_micros(1_250) * number as u32;
            std::thread::sleep(at.saturating_sub(origin.elapsed()));
            message[..8].copy_from_slice(&now().to_ne_bytes());
            channel.send(&message).expect("it is taken");
        }
        received.join().expect("no panic")
    });
    took.sort_unstable();
    took
}

/// Packets and bytes that one class of the shaper has sent.
fn class(network: &Network, class: &str) -> (u64, u64) {
    let shown = network.run(0, &format!("tc -s class show dev {}", CABLE.device(0)));
    let mut lines = shown.lines().skip_while(|line| !line.starts_with(&format!("class htb {class} ")));
    // " Sent 4711 bytes 42 pkt (dropped 0, ...".
    let counted = lines.nth(1).unwrap_or_else(|| panic!("{class} in {shown}"));
    let numbers: Vec<u64> = counted.split(' ').filter_map(|word| word.parse().ok()).collect();
    (numbers[1], numbers[0])
}

#[test]
fn the_kernels_packets_go_behind_ours_and_have_the_rest() {
    let Some(network) = hosts("behind") else { return };
    let folder = folder("behind");
    let before = network.photograph(CABLE, 0);
    let shaped = "kernel_traffic = \"shaped\"\n";
    let (on_a, on_b) = (start(&network, &folder, 0, shaped), start(&network, &folder, 1, shaped));
    let (a, b) = (on_a.connect(), on_b.connect());
    let (mut channel, mut receiver) = open(&a, &b);
    assert!(channel.grant().expect("of a channel").degraded_why().is_empty());
    let (over, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
    let (took, rate) = std::thread::scope(|scope| {
        scope.spawn(|| bulk(&network, &over, &arrived));
        eventually("the kernel's queue is full", || arrived.load(Ordering::Relaxed) > 4_000_000);
        let (from, began) = (arrived.load(Ordering::Relaxed), Instant::now());
        let took = latencies(&mut channel, &mut receiver);
        let rate =
            (arrived.load(Ordering::Relaxed) - from) as f64 * 8.0 / 1e6 / began.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        (took, rate)
    });
    let at = |permille: usize| took[(took.len() * permille / 1_000).min(took.len() - 1)];
    println!(
        "kernel TCP {rate:.1} Mbit/s of payload; {} messages, p50 {:?}, p99 {:?}, longest {:?}",
        took.len(),
        at(500),
        at(990),
        at(1_000)
    );
    assert_eq!(took.len(), MESSAGES, "none was lost");
    // If our packets waited behind the kernel's queue, half of them would wait for some 50 ms.
    assert!(at(500) < Duration::from_millis(5), "{:?}", at(500));
    let [first, others] = ["7076:1", "7076:2"].map(|of| class(&network, of));
    assert!(first.0 as usize >= MESSAGES && first.1 < others.1, "{first:?} {others:?}");
    assert!(others.1 > arrived.load(Ordering::Relaxed), "headers too: {others:?}");
    let facts = a.status().expect("status").engine.links[0].facts.clone();
    assert!(facts.get("qdisc").is_some_and(|qdisc| qdisc.contains("ours first")), "{facts:?}");
    drop((channel, receiver, a, b));
    assert!(on_a.stop(Signal::TERM).success() && on_b.stop(Signal::TERM).success());
    assert_eq!(network.photograph(CABLE, 0), before);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn other_traffic_on_an_exclusive_device_is_reported_and_unbounded_links_are_degraded() {
    let Some(network) = hosts("foreign") else { return };
    let folder = folder("foreign");
    let (on_a, on_b) =
        (start(&network, &folder, 0, "kernel_traffic = \"exclusive\"\n"), start(&network, &folder, 1, ""));
    let (a, b) = (on_a.connect(), on_b.connect());
    let (mut channel, mut receiver) = open(&a, &b);
    assert!(channel.grant().expect("of a channel").degraded_by().is_empty());
    let back = a.listen("back", |_| Consent::Accept).expect("a listener");
    let other = b.open("back@a", contract(200, 10, 100)).expect("a channel");
    assert_eq!(
        other.grant().expect("of a channel").degraded_why(),
        ["b: kernel traffic beside a link is not bounded"]
    );
    drop(back);
    // The warnings at the start.
    let warned = [0, 1].map(|end| {
        let printed = std::fs::read_to_string(log_of(&folder, end)).expect("a log");
        printed.matches("is degraded: nothing bounds the kernel's traffic on its device").count()
    });
    assert_eq!(warned, [0, 1]);

    let link = || a.status().expect("status").engine.links[0].clone();
    let is_foreign = |link: &DriverStatus| link.mode.contains("foreign");
    // Our own messages do not count as foreign traffic.
    latencies(&mut channel, &mut receiver);
    eventually("it was compared", || link().foreign_bps.is_some());
    let quiet = link();
    assert!(!is_foreign(&quiet) && quiet.foreign_bps.is_some_and(|bps| bps < 95_000), "{quiet:?}");
    let flooding = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            network.within(0, || {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
                while flooding.load(Ordering::Relaxed) {
                    // The port has no receiver: the ICMP errors that come back are no errors of this test.
                    let _ = socket.send_to(&[0; 1_400], (CABLE.address(1).as_str(), PORT));
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        });
        eventually("foreign traffic is reported", || is_foreign(&link()));
        let reported = link();
        assert!(reported.foreign_bps.is_some_and(|bps| bps > 1_000_000), "{reported:?}");
        assert!(reported.mode.contains(&CABLE.device(0)), "{reported:?}");
        flooding.store(false, Ordering::Relaxed);
    });
    eventually("it is over", || !is_foreign(&link()));
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn links_that_the_routes_lead_to_one_device_are_refused_with_the_fix() {
    let Some(network) = Network::new("shared", 2) else { return };
    network.join(CABLE);
    network.run(0, &format!("ip address add 10.97.0.1/24 dev {}", CABLE.device(0)));
    let folder = folder("shared");
    let second = "kernel_traffic = \"exclusive\"\n[[host]]\nname = \"c\"\nid = 3\n[[link]]\nname = \"to-c\"\nneighbour = \"c\"\n\
                  driver = \"udp\"\nlocal = \"10.97.0.1\"\npeer = \"10.97.0.2\"\nrate = \"1Mbit/s\"\n";
    let opened = text(&folder, 0, second, |text| {
        let config = parse(&text.to_toml(), Path::new("test.toml")).expect("nothing that a file shows");
        network.within(0, || config.open_links().map(drop))
    });
    let error = opened.expect_err("they share it").to_string();
    assert!(
        error.contains("\"to-c\"") && error.contains(&CABLE.device(0)) && error.contains("device_rate"),
        "{error}"
    );
    std::fs::remove_dir_all(folder).expect("removed");
}
