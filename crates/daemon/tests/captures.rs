//! Who may capture packets, and what a capture does to the daemon. Network namespaces; needs root.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use common::eventually;
use common::network::{Cable, Network};
use common::program::{Program, folder, with_flows};
use common::users::as_user;
use punctual::capture::{Capture, Kind, Wish};
use punctual::tcp::Qos;
use punctual::{Endsystem, Error};

const CABLE: Cable = Cable { number: 0, hosts: [0, 1] };
const PATIENCE: Duration = Duration::from_secs(30);
/// A user with the right.
const USER: u32 = 47_110;
/// One without.
const OTHER: u32 = 47_111;
const WISH: Wish = Wish { link: None, ends: None, port: None, packet_bytes: 2_048, packets: 256 };

fn start(network: &Network, folder: &Path) -> Program {
    with_flows(network, folder, CABLE, &format!("capture_users = [{USER}]"))
}

fn connect_as(user: u32, folder: &Path) -> Endsystem {
    as_user(user, || Endsystem::connect_to(folder.join("a.sock")).expect("the daemon")).expect("root")
}

fn kernels() -> SocketAddr {
    SocketAddr::new(CABLE.address(1).parse().expect("an address"), 8_080)
}

/// Sends `bytes` over a connection of the host's own, and reads one byte back. Returns the ends.
fn send(network: &Network, program: &Endsystem, bytes: usize) -> [SocketAddr; 2] {
    let listener = network.within(1, || TcpListener::bind(kernels())).expect("a listener");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = listener.accept().expect("a connection").0;
            stream.set_read_timeout(Some(PATIENCE)).expect("a time");
            stream.read_exact(&mut vec![0; bytes]).expect("the bytes");
            stream.write_all(&[1]).expect("written");
        });
        let mut stream = program.connect_tcp(kernels(), Qos::BestEffort).expect("granted");
        stream.write_all(&vec![7; bytes]).expect("written");
        stream.set_read_timeout(Some(PATIENCE));
        stream.read_exact(&mut [0]).expect("the answer");
        [stream.local_addr(), stream.peer_addr()]
    })
}

/// Packets in each direction until none comes for a moment.
fn read(capture: &mut Capture) -> [u64; 2] {
    let mut counts = [0; 2];
    while let Some(is_sent) =
        capture.next(Duration::from_millis(300), |packet| packet.is_sent).expect("packets")
    {
        counts[usize::from(is_sent)] += 1;
    }
    counts
}

#[test]
fn only_named_users_capture_and_one_at_a_time() {
    let Some(network) = Network::new("capt", 2) else { return };
    network.join(CABLE);
    let folder = folder("capt");
    let daemon = start(&network, &folder);
    let [user, other] = [USER, OTHER].map(|user| connect_as(user, &folder));
    let root = daemon.connect();
    let error = other.capture(WISH).expect_err("no right").to_string();
    assert!(error.contains("may not capture") && error.contains("capture_users"), "{error}");
    for wrong in [
        Wish { packet_bytes: 63, ..WISH },
        Wish { packets: 0, ..WISH },
        Wish { link: Some("none".into()), ..WISH },
    ] {
        let error = user.capture(wrong).expect_err("out of range");
        assert!(matches!(error, Error::Daemon(_)), "{error}");
    }
    let capture = user.capture(WISH).expect("a right");
    let error = root.capture(WISH).expect_err("one runs").to_string();
    assert!(error.contains("one at a time"), "{error}");
    // It goes with its program, and gives everything back.
    drop((capture, user));
    eventually("the place is free", || root.capture(WISH).is_ok());
    eventually("nothing is left", || {
        let status = root.status().expect("a status");
        let held: u64 = status.users.iter().map(|user| user.channels + user.buffer_bytes).sum();
        held == 0 && status.audit.is_some_and(|audit| audit.wrong.is_empty())
    });
    drop(daemon);
}

/// Whoever does not read loses packets of the capture alone, and learns how many.
#[test]
fn a_capture_that_is_not_read_loses_packets_and_delays_nothing() {
    let Some(network) = Network::new("captl", 2) else { return };
    network.join(CABLE);
    let folder = folder("captl");
    let daemon = start(&network, &folder);
    let root = daemon.connect();
    let mut all = root.capture(Wish { port: Some(8_080), packets: 4_096, ..WISH }).expect("root may");
    send(&network, &root, 200_000);
    let [came, sent] = read(&mut all);
    assert!(sent > 200_000 / 1_460 && came > 1, "{sent} sent, {came} came");
    assert_eq!(all.lost(), 0);
    drop(all);
    let wish = Wish { port: Some(8_080), packets: 4, packet_bytes: 64, ..WISH };
    let mut few = None;
    eventually("the first has ended", || {
        few = root.capture(wish.clone()).ok();
        few.is_some()
    });
    let mut few = few.expect("a capture");
    send(&network, &root, 200_000);
    // As many as the ring has places, and some of the connection's end, which goes on meanwhile.
    let seen: u64 = read(&mut few).iter().sum();
    assert!((4..20).contains(&seen), "{seen}");
    // The first packet after the gap shows it.
    send(&network, &root, 1);
    let mut first = None;
    let taken = few.next(PATIENCE, |packet| {
        first = Some((packet.kind, packet.bytes.len(), packet.bytes_whole));
    });
    taken.expect("packets").expect("one came");
    let (kind, bytes, whole) = first.expect("one came");
    assert!(kind == Kind::Ip && bytes <= 64 && whole >= 40, "{kind:?} {bytes} {whole}");
    assert!(few.lost() > 200_000 / 1_460, "{}", few.lost());
    drop(daemon);
}
