//! TCP of a host's own for programs of other processes: every byte to and from kernels, rights and quotas of users, programs
//! that die, and hosts that are as before. Network namespaces; needs root.

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::census::holdings;
use common::eventually;
use common::network::{Cable, Network};
use common::program::{Program, folder, link_with_flows, with_flows, with_link};
use common::users::as_user;
use punctual::rtu::Class as RtuClass;
use punctual::tcp::{Ended, Qos, State, TcpError};
use punctual::{BitRate, Endsystem, Nanos, UserId};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Signal;

const CABLE: Cable = Cable { number: 0, hosts: [0, 1] };
/// Names the folder of the daemon's socket to [`victim`].
const VICTIM: &str = "PUNCTUAL_TEST_VICTIM";
const PATIENCE: Duration = Duration::from_secs(30);
const LOW_DELAY: Qos = Qos::LowDelay { interval: Nanos::from_millis(10), units: 8, priority: None };
/// A user with rights.
const USER: u32 = 47_110;
/// Flows of the daemon's link.
const FLOWS_MAX: usize = 16;
/// One without.
const OTHER: u32 = 47_111;

const RIGHTS: &str = r#"
[[daemon.tcp]]
user = 47110
connect = ["10.98.0.2:8000-8099"]
listen = ["10.98.0.1:9000"]
"#;

/// What a connection counts in TIME-WAIT, in which it has neither rings nor buffers.
const RESTING_BYTES: u64 = 32 << 10;

/// A daemon on `a`.
fn start(network: &Network, folder: &Path, daemon: &str) -> Program {
    with_flows(network, folder, CABLE, &format!("{daemon}\n{RIGHTS}"))
}

fn connect_as(user: u32, folder: &Path) -> Endsystem {
    as_user(user, || Endsystem::connect_to(folder.join("a.sock")).expect("the daemon")).expect("root")
}

fn at(end: usize, port: u16) -> SocketAddr {
    SocketAddr::new(CABLE.address(end).parse().expect("an address"), port)
}

fn bytes(side: u8, count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 11 + at / 253) as u8 ^ side).collect()
}

/// Writes as side `side`, closes this direction, and reads what the other side writes.
fn exchange<S: Read + Send>(side: u8, count: usize, mut reader: S, writer: impl FnOnce(&[u8]) + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| writer(&bytes(side, count)));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).expect("the other side's bytes");
        assert!(read == bytes(1 - side, count), "{} bytes of {count}", read.len());
    });
}

fn kernels_side(stream: &TcpStream, count: usize) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time");
    exchange(1, count, stream, |bytes| {
        (&mut &*stream).write_all(bytes).expect("written");
        stream.shutdown(Shutdown::Write).expect("to close");
    });
}

/// A program's side: one thread that does not wait for either direction.
fn programs_side(stream: &mut punctual::tcp::TcpStream, count: usize) {
    let (out, mut sent, mut read) = (bytes(0, count), 0, Vec::new());
    stream.set_nonblocking(true);
    let until = std::time::Instant::now() + PATIENCE;
    let (mut is_over, mut buffer) = (false, vec![0; 9_000]);
    while !(is_over && sent == count) {
        assert!(std::time::Instant::now() < until, "{sent} sent, {} read: {:?}", read.len(), stream.status());
        let mut is_idle = true;
        if sent < count {
            match stream.write(&out[sent..]) {
                Ok(bytes) => (sent, is_idle) = (sent + bytes, false),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            if sent == count {
                stream.shutdown(Shutdown::Write).expect("to close");
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) => is_over = true,
            Ok(bytes) => {
                read.extend_from_slice(&buffer[..bytes]);
                is_idle = false;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        if is_idle {
            std::thread::yield_now();
        }
    }
    assert!(read == bytes(1, count), "{} bytes of {count}", read.len());
}

/// Checks that the daemon holds nothing for a user any more, and that its counts agree.
fn is_clean(endsystem: &Endsystem) {
    eventually("everything is given back", || {
        let status = endsystem.status().expect("a status");
        let connections = endsystem.tcp_connections().expect("a list");
        let wrong = status.audit.map(|audit| audit.wrong).unwrap_or_default();
        let are_over = connections.iter().all(|connection| connection.state == State::TimeWait);
        // Connections that this host has closed first count until their TIME-WAIT is over.
        let count = connections.len() as u64;
        let channels: u64 = status.users.iter().map(|user| user.channels).sum();
        let bytes: u64 = status.users.iter().map(|user| user.buffer_bytes).sum();
        // Only the handler for late segments is there.
        let is_even = wrong.is_empty() && status.handlers.len() == 1;
        is_even && are_over && channels == count && bytes == count * RESTING_BYTES
    });
}

#[test]
fn programs_connect_in_every_class_and_every_byte_arrives() {
    let Some(network) = Network::new("tcp", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcp");
    let before = network.photograph(CABLE, 0);
    let daemon = start(&network, &folder, "");
    let root = daemon.connect();
    let user = connect_as(USER, &folder);
    let listener = network.within(1, || TcpListener::bind(at(1, 8_080))).expect("a listener");
    let guaranteed = Qos::Guaranteed { rate: BitRate(20_000_000), period: Nanos::from_millis(5) };
    for (program, qos) in [(&root, LOW_DELAY), (&user, guaranteed), (&user, Qos::BestEffort)] {
        std::thread::scope(|scope| {
            let server = scope.spawn(|| kernels_side(&listener.accept().expect("a connection").0, 300_000));
            let mut stream = program.connect_tcp(at(1, 8_080), qos).expect("granted");
            assert_eq!((stream.peer_addr(), stream.local_addr().ip()), (at(1, 8_080), at(0, 0).ip()));
            let status = stream.status().expect("the daemon").expect("open");
            let is_open = matches!(status.state, State::Established | State::CloseWait);
            assert!(is_open && status.ended.is_none(), "{status:?}");
            let listed = root.tcp_connections().expect("a list");
            assert!(
                listed.iter().any(|it| it.local == stream.local_addr() && it.peer == at(1, 8_080)),
                "{listed:?}"
            );
            programs_side(&mut stream, 300_000);
            server.join().expect("the kernel's side");
        });
    }
    drop((user, root));
    assert!(daemon.stop(Signal::TERM).success());
    assert_eq!(network.photograph(CABLE, 0), before, "the host is as before");
}

#[test]
fn a_listener_opens_connections_for_a_program() {
    let Some(network) = Network::new("tcpl", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpl");
    let daemon = start(&network, &folder, "");
    let user = connect_as(USER, &folder);
    let root = daemon.connect();
    let listener = user.bind_tcp(at(0, 9_000), LOW_DELAY, 4).expect("granted");
    let listed = root.tcp_listeners().expect("a list");
    let [listed] = &listed[..] else { panic!("one listener: {listed:?}") };
    assert_eq!((listed.user.0, listed.local, listed.backlog), (USER, at(0, 9_000), 4));
    assert!(matches!(listed.class, RtuClass::LowDelay { .. }), "{listed:?}");
    assert_eq!((listed.half_open, listed.waiting, listed.unanswered), (0, 0, 0));
    // As many as may wait do; one more gets no reply, and all of that is listed.
    let connect = |within_ms| {
        let within = Duration::from_millis(within_ms);
        network.within(1, || TcpStream::connect_timeout(&at(0, 9_000), within))
    };
    let crowd: Vec<_> = (0..4).map(|_| connect(10_000).expect("to connect")).collect();
    eventually("four wait", || root.tcp_listeners().expect("a list")[0].waiting == 4);
    assert_eq!(connect(100).expect_err("nobody takes it").kind(), ErrorKind::TimedOut);
    let listed = root.tcp_listeners().expect("a list");
    assert!(listed[0].unanswered > 0 && listed[0].half_open == 0, "{listed:?}");
    for stream in crowd {
        drop(stream);
        drop(listener.accept().expect("a connection"));
    }
    assert!(listener.accept_timeout(Duration::from_millis(1)).expect("no error").is_none());
    for _ in 0..2 {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let stream = network.within(1, || TcpStream::connect(at(0, 9_000))).expect("to connect");
                kernels_side(&stream, 300_000);
            });
            let mut stream = listener.accept().expect("a connection");
            programs_side(&mut stream, 300_000);
            client.join().expect("the kernel's side");
        });
    }
    drop(listener);
    eventually("its port refuses connections", || {
        let error = network.within(1, || TcpStream::connect(at(0, 9_000))).err();
        error.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    eventually("it is listed no more", || root.tcp_listeners().expect("a list").is_empty());
    drop(root.bind_tcp(at(0, 443), Qos::BestEffort, 1).expect("root may use a port below 1024"));
    drop(daemon);
}

/// Connections come over the link whose device has the listener's address, whichever link is configured first.
#[test]
fn a_listener_is_at_the_link_of_its_address() {
    let Some(network) = Network::new("tcp2", 3) else { return };
    let second = Cable { number: 1, hosts: [0, 2] };
    network.join(CABLE);
    network.join(second);
    // A device that has no link.
    network.run(0, "ip link add spare0 type veth peer name spare1");
    network.run(0, "ip address add 10.97.0.1/32 dev spare0");
    let folder = folder("tcp2");
    let link = link_with_flows(second);
    let more = format!(
        r#"
        [[host]]
        name = "c"
        id = 3
        [[link]]
        name = "to-c"
        neighbour = "c"
        prediction_error = "500ms"
        {link}
        "#
    );
    let daemon = start(&network, &folder, &more);
    let root = daemon.connect();
    for (host, cable) in [(2, second), (1, CABLE)] {
        let local = SocketAddr::new(cable.address(0).parse().expect("an address"), 9_000);
        let listener = root.bind_tcp(local, LOW_DELAY, 4).expect("granted");
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let stream = network.within(host, || TcpStream::connect(local)).expect("to connect");
                kernels_side(&stream, 30_000);
            });
            let mut stream = listener.accept().expect("a connection");
            programs_side(&mut stream, 30_000);
            client.join().expect("the kernel's side");
        });
    }
    for (address, device) in [("127.0.0.1", "lo"), ("10.97.0.1", "spare0")] {
        let local = SocketAddr::new(address.parse().expect("an address"), 9_000);
        let line = punctual::one_line(&root.bind_tcp(local, LOW_DELAY, 4).err().expect("no link is there"));
        assert!(line.contains(&format!("has {address} (it is on {device})")), "{line}");
    }
    drop(daemon);
}

/// More than the thread that begins them takes at a time. None has an answer before all have asked.
#[test]
fn many_connections_at_once_all_open() {
    const COUNT: usize = 48;
    let Some(network) = Network::new("tcpm", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpm");
    let daemon = with_link(&network, &folder, &link_with_flows(CABLE).replace("= 16", "= 64"), "");
    let root = daemon.connect();
    let listener = network.within(1, || TcpListener::bind(at(1, 8_080))).expect("a listener");
    let blackhole = format!("blackhole {}/32", at(0, 0).ip());
    network.run(1, &format!("ip route add {blackhole}"));
    std::thread::scope(|scope| {
        let opens: Vec<_> =
            (0..COUNT).map(|_| scope.spawn(|| root.connect_tcp(at(1, 8_080), Qos::BestEffort))).collect();
        let waits = |it: &punctual::tcp::ConnectionStatus| it.state == State::SynSent;
        eventually("all wait for an answer", || {
            root.tcp_connections().expect("a list").iter().filter(|it| waits(it)).count() == COUNT
        });
        network.run(1, &format!("ip route del {blackhole}"));
        let streams: Vec<_> = opens.into_iter().map(|open| open.join().expect("no panic")).collect();
        let refused: Vec<_> = streams.iter().filter_map(|stream| stream.as_ref().err()).collect();
        assert!(refused.is_empty(), "{refused:?}");
        let kernels: Vec<_> = (0..COUNT).map(|_| listener.accept().expect("a connection")).collect();
        drop((streams, kernels));
    });
    drop(daemon);
}

/// A connection of the kernel with a local port of the test's choice. A program that another test starts at this moment has a copy of
/// the last socket of that port until it begins, which keeps that connection.
fn from_port(local: SocketAddr, peer: SocketAddr) -> TcpStream {
    let mut stream = None;
    eventually("the port is free", || {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true).expect("an option");
        rustix::net::bind(&socket, &local).expect("the port is free");
        match rustix::net::connect(&socket, &peer) {
            Err(Errno::ADDRNOTAVAIL) => false,
            connected => {
                connected.expect("to connect");
                stream = Some(TcpStream::from(socket));
                true
            }
        }
    });
    stream.expect("it is connected")
}

/// Segments that the kernel of `b` has sent again, SYNs too.
fn sent_again(network: &Network) -> u64 {
    let counters =
        network.within(1, || std::fs::read_to_string("/proc/thread-self/net/snmp").expect("/proc"));
    let mut lines = counters.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.split(' ').position(|name| name == "RetransSegs").expect("the counter");
    values.split(' ').nth(at).and_then(|value| value.parse().ok()).expect("a number")
}

/// This host closes first and is in TIME-WAIT; a newer SYN of the same peer begins a new connection (RFC 9293 3.10.7.4, RFC 6191).
#[test]
fn a_peer_uses_its_port_again_while_this_host_is_in_time_wait() {
    let Some(network) = Network::new("tcpw", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpw");
    let daemon = start(&network, &folder, "");
    let user = connect_as(USER, &folder);
    let listener = user.bind_tcp(at(0, 9_000), LOW_DELAY, 4).expect("granted");
    let peer = at(1, 40_000);
    let states = || {
        let connections = user.tcp_connections().expect("a list");
        connections.iter().filter(|it| it.peer == peer).map(|it| it.state).collect::<Vec<_>>()
    };
    for turn in 0..3_u8 {
        let mut kernel = network.within(1, || from_port(peer, at(0, 9_000)));
        let mut stream = listener.accept().expect("a connection");
        assert_eq!((stream.peer_addr(), states()), (peer, vec![State::Established]), "turn {turn}");
        stream.write_all(&[turn]).expect("written");
        stream.shutdown(Shutdown::Write).expect("to close");
        let mut read = Vec::new();
        kernel.read_to_end(&mut read).expect("the byte and the end");
        assert_eq!(read, [turn]);
        drop(kernel);
        assert_eq!(stream.read(&mut [0]).expect("no error"), 0, "the end");
        drop(stream);
        eventually("it is in TIME-WAIT", || states() == [State::TimeWait]);
    }
    assert_eq!(sent_again(&network), 0, "each SYN was answered");
    drop(daemon);
}

/// A SYN that comes right behind the reset of the connection before it.
#[test]
fn a_peer_uses_its_port_again_right_behind_its_reset() {
    let Some(network) = Network::new("tcpq", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpq");
    let daemon = start(&network, &folder, "");
    let user = connect_as(USER, &folder);
    let listener = user.bind_tcp(at(0, 9_000), Qos::BestEffort, 16).expect("granted");
    for turn in 0..50_u8 {
        let mut kernel = network.within(1, || from_port(at(1, 40_000), at(0, 9_000)));
        kernel.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut stream = listener.accept().expect("a connection");
        stream.write_all(&[turn]).expect("written");
        let mut read = [0];
        kernel.read_exact(&mut read).expect("the byte");
        assert_eq!(read, [turn]);
        rustix::net::sockopt::set_socket_linger(&kernel, Some(Duration::ZERO)).expect("an option");
        // Its reset, and the next SYN without a pause.
        drop(kernel);
    }
    assert_eq!(sent_again(&network), 0, "each SYN was answered");
    drop(daemon);
}

/// This host closes first, again and again. Connections in TIME-WAIT count in their user's quota, and take flows: the oldest give way
/// to new ones of the user, and to those of others where all flows are taken.
#[test]
fn connections_in_time_wait_give_way() {
    let Some(network) = Network::new("tcpg", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpg");
    let daemon = start(&network, &folder, "channels_per_user_max = 24");
    let [root, user] = [daemon.connect(), connect_as(USER, &folder)];
    let listener = network.within(1, || TcpListener::bind(at(1, 8_080))).expect("a listener");
    let in_time_wait = |of: u32| {
        let connections = root.tcp_connections().expect("a list");
        let of_user = connections.iter().filter(|it| it.user == UserId(of) && it.state == State::TimeWait);
        of_user.count()
    };
    let opens = |program: &Endsystem, of: u32| {
        let mut stream = program.connect_tcp(at(1, 8_080), Qos::BestEffort).expect("another gives way");
        let mut kernel = listener.accept().expect("a connection").0;
        let before = in_time_wait(of);
        stream.shutdown(Shutdown::Write).expect("to close");
        assert_eq!(kernel.read(&mut [0]).expect("no error"), 0, "the end");
        drop(kernel);
        assert_eq!(stream.read(&mut [0]).expect("no error"), 0, "the end");
        drop(stream);
        eventually("it is in TIME-WAIT", || in_time_wait(of) > before);
    };
    // Beyond the flows; then beyond the quota, too, which holds twelve connections and all that they count in TIME-WAIT.
    (0..2 * FLOWS_MAX).for_each(|_| opens(&user, USER));
    assert_eq!(in_time_wait(USER), FLOWS_MAX);
    opens(&root, 0);
    assert_eq!((in_time_wait(USER), in_time_wait(0)), (FLOWS_MAX - 1, 1));
    eventually("what gave way counts no more", || {
        let status = root.status().expect("a status");
        let of_user = status.users.iter().find(|it| it.user == UserId(USER));
        of_user.is_some_and(|it| it.channels == FLOWS_MAX as u64 - 1)
    });
    let wrong = root.status().expect("a status").audit.map(|audit| audit.wrong);
    assert_eq!(wrong, Some(Vec::new()));
    drop(daemon);
}

/// The same within a quota that is smaller than the flows.
#[test]
fn connections_in_time_wait_give_way_within_a_quota() {
    let Some(network) = Network::new("tcpk", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpk");
    let daemon = start(&network, &folder, "channels_per_user_max = 4");
    let user = connect_as(USER, &folder);
    let listener = network.within(1, || TcpListener::bind(at(1, 8_080))).expect("a listener");
    let are_in_time_wait =
        || user.tcp_connections().expect("a list").iter().all(|it| it.state == State::TimeWait);
    for turn in 1..=20 {
        let mut stream = user.connect_tcp(at(1, 8_080), Qos::BestEffort).expect("another gives way");
        let mut kernel = listener.accept().expect("a connection").0;
        stream.shutdown(Shutdown::Write).expect("to close");
        assert_eq!(kernel.read(&mut [0]).expect("no error"), 0, "the end");
        drop(kernel);
        assert_eq!(stream.read(&mut [0]).expect("no error"), 0, "the end");
        drop(stream);
        eventually("it is in TIME-WAIT", are_in_time_wait);
        assert_eq!(user.tcp_connections().expect("a list").len(), turn.min(4));
    }
    let line = |error: Option<TcpError>| punctual::one_line(&error.expect("an error"));
    let open: Vec<_> =
        (0..4).map(|_| user.connect_tcp(at(1, 8_080), Qos::BestEffort).expect("granted")).collect();
    let line = line(user.connect_tcp(at(1, 8_080), Qos::BestEffort).err());
    assert!(line.contains("4 of 4 channels"), "open ones give no way: {line}");
    drop((open, daemon));
}

/// Nothing else happens at the daemon, which could remind it of what the listener held.
#[test]
fn a_listener_that_ends_gives_back_what_it_held_at_once() {
    let Some(network) = Network::new("tcpb", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpb");
    let daemon = start(&network, &folder, "");
    let root = daemon.connect();
    let user = connect_as(USER, &folder);
    for _ in 0..2 {
        drop(user.bind_tcp(at(0, 9_000), LOW_DELAY, 4).expect("granted"));
        is_clean(&root);
    }
    drop(daemon);
}

/// The first segments of a connection wait for the next hop's address. Its handler was called again and again meanwhile: the processor
/// had no time for ordinary threads for a second.
#[test]
fn a_next_hop_that_does_not_answer_keeps_no_processor_busy() {
    let Some(network) = Network::new("tcph", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcph");
    let daemon = start(&network, &folder, "");
    let [root, other] = [daemon.connect(), daemon.connect()];
    network.run(1, &format!("ip address del {}/30 dev {}", CABLE.address(1), CABLE.device(1)));
    network.run(0, &format!("ip neighbour flush dev {}", CABLE.device(0)));
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| other.connect_tcp(at(1, 8_080), Qos::BestEffort).map(drop));
        let counted = || {
            let status = root.status().expect("a status");
            let counters = status.handlers.iter().map(|it| it.handler.counters);
            counters.fold((0, 0), |(calls, units), it| (calls + it.calls, units + it.units + it.units_beyond))
        };
        eventually("its first segment waits no longer", || counted().1 > 0);
        let (calls, units) = counted();
        println!("{calls} calls for {units} segments");
        // One in each of the 1,000 ms.
        assert!(calls <= 2_000, "{calls} calls for {units} segments");
        // As soon as a kernel would say so.
        let error = connecting.join().expect("no panic").expect_err("nobody is there");
        assert!(matches!(error, TcpError::Peer { why: Ended::Unreachable, .. }), "{error}");
    });
}

/// A user without a right or without quota is refused with one line, and takes nothing from others.
#[test]
fn rights_and_quotas_of_users_hold() {
    let Some(network) = Network::new("tcpr", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpr");
    let daemon = start(&network, &folder, "channels_per_user_max = 2");
    let [user, other] = [USER, OTHER].map(|user| connect_as(user, &folder));
    let listener = network.within(1, || TcpListener::bind(at(1, 8_080))).expect("a listener");
    let line = |error: Option<TcpError>| punctual::one_line(&error.expect("an error"));
    for (program, port) in [(&other, 8_080), (&user, 7_999), (&user, 8_100)] {
        let line = line(program.connect_tcp(at(1, port), Qos::BestEffort).err());
        assert!(line.contains("may not connect") && line.contains("[[daemon.tcp]]"), "{line}");
    }
    for (program, port) in [(&other, 9_000), (&user, 9_001)] {
        let line = line(program.bind_tcp(at(0, port), Qos::BestEffort, 1).err());
        assert!(line.contains("may not listen") && line.contains("[[daemon.tcp]]"), "{line}");
    }
    // Sockets for both versions of IP have this form of an IPv4 address.
    let mapped = |port| match at(1, port).ip() {
        IpAddr::V4(address) => SocketAddr::new(address.to_ipv6_mapped().into(), port),
        IpAddr::V6(_) => unreachable!("the cable has IPv4"),
    };
    let refused = line(user.connect_tcp(mapped(7_999), Qos::BestEffort).err());
    assert!(refused.contains(&format!("may not connect to {}", at(1, 7_999))), "{refused}");
    let refused = user.connect_tcp(mapped(8_081), Qos::BestEffort).err().expect("no listener there");
    assert!(matches!(refused, TcpError::Peer { why: Ended::Refused, .. }), "{refused}");
    let streams: Vec<_> =
        (0..2).map(|_| user.connect_tcp(at(1, 8_080), Qos::BestEffort).expect("granted")).collect();
    let line = line(user.connect_tcp(at(1, 8_080), Qos::BestEffort).err());
    assert!(line.contains("2 of 2 channels"), "{line}");
    let root = daemon.connect();
    drop(root.connect_tcp(at(1, 8_080), Qos::BestEffort).expect("root has quotas of its own"));
    // The server closes first, so that no TIME-WAIT is here.
    let kernels: Vec<TcpStream> = (0..3).map(|_| listener.accept().expect("a connection").0).collect();
    drop(kernels);
    drop(streams);
    is_clean(&root);
    drop(daemon);
}

/// The program that [`a_program_that_dies_leaves_nothing`] kills: runs only as that test starts it.
#[test]
fn victim() {
    let Some(folder) = std::env::var_os(VICTIM) else { return };
    let reads = std::env::var_os("READS").is_some();
    let program = connect_as(USER, Path::new(&folder));
    if std::env::var_os("OPENS").is_some() {
        drop(program.connect_tcp(at(1, 8_080), LOW_DELAY));
        return;
    }
    let _ours = program.bind_tcp(at(0, 9_000), LOW_DELAY, 1).expect("granted");
    let mut stream = program.connect_tcp(at(1, 8_080), LOW_DELAY).expect("granted");
    if reads {
        stream.read_exact(&mut [0; 7]).expect("the request");
        stream.write_all(b"answer").expect("written");
        stream.wait_sent(PATIENCE).expect("sent");
    }
    println!("READY");
    std::thread::sleep(PATIENCE);
}

/// A program that is killed: its connections end, its peers see it, and its user has everything back.
#[test]
fn a_program_that_dies_leaves_nothing() {
    let Some(network) = Network::new("tcpd", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpd");
    let daemon = start(&network, &folder, "");
    let root = daemon.connect();
    let listener = network.within(1, || TcpListener::bind(at(1, 8_080))).expect("a listener");
    for reads in [true, false] {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "victim", "--nocapture"]).env(VICTIM, &*folder).stdout(Stdio::piped());
        if reads {
            command.env("READS", "1");
        }
        let mut victim = command.spawn().expect("a program");
        let mut kernels = listener.accept().expect("a connection").0;
        kernels.set_read_timeout(Some(PATIENCE)).expect("a time");
        kernels.write_all(b"request").expect("written");
        let lines = BufReader::new(victim.stdout.take().expect("piped")).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("READY")), "the program has ended");
        victim.kill().expect("killed");
        victim.wait().expect("gone");
        let mut rest = Vec::new();
        let read = kernels.read_to_end(&mut rest);
        if reads {
            read.expect("the end");
            assert_eq!(rest, b"answer");
        } else {
            // The request was in its ring (RFC 2525 2.17).
            assert_eq!(read.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        }
        drop(kernels);
        is_clean(&root);
    }
    drop(daemon);
}

/// A connection that cannot be opened, whatever the reason, leaves nothing: no descriptor, mapping, port, handler or quota, and
/// no flow: more of them fail than the driver has flows.
#[test]
fn an_open_that_fails_leaves_nothing() {
    let Some(network) = Network::new("tcpf", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpf");
    let daemon = start(&network, &folder, "");
    let root = daemon.connect();
    let listener = network.within(1, || TcpListener::bind(at(1, 8_080))).expect("a listener");
    // The kernel closes first, so that no TIME-WAIT is here.
    let opens = || {
        let mut stream = root.connect_tcp(at(1, 8_080), LOW_DELAY).expect("granted");
        drop(listener.accept().expect("a connection"));
        assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
    };
    let too_fast = Qos::Guaranteed { rate: BitRate(u64::MAX / 2), period: Nanos::from_millis(1) };
    let nowhere = SocketAddr::from(([192, 0, 2, 1], 8_080));
    let taken = network.within(0, || TcpListener::bind(at(0, 9_001))).expect("a listener");
    let ways: [(&str, &dyn Fn() -> Option<TcpError>); 5] = [
        ("in use", &|| root.bind_tcp(at(0, 9_001), LOW_DELAY, 4).err()),
        ("has no listener", &|| root.connect_tcp(at(1, 8_081), LOW_DELAY).err()),
        ("no link with flows_max", &|| root.connect_tcp(nowhere, LOW_DELAY).err()),
        ("handler", &|| root.connect_tcp(at(1, 8_080), too_fast).err()),
        ("handler", &|| root.bind_tcp(at(0, 9_000), too_fast, 4).err()),
    ];
    // What stays allocated after the first use is there by then.
    ways.iter().for_each(|(_, fails)| drop(fails()));
    opens();
    is_clean(&root);
    let mut least = holdings(daemon.pid(), &root);
    for (what, fails) in ways {
        for _ in 0..2 * FLOWS_MAX {
            let line = punctual::one_line(&fails().unwrap_or_else(|| panic!("{what}: it opened")));
            assert!(line.contains(what), "{line}");
        }
        eventually(what, || least.lower_to(&holdings(daemon.pid(), &root)));
    }
    drop(taken);
    // Its SYN-ACK has no way back.
    network.run(1, &format!("ip route add blackhole {}/32", at(0, 0).ip()));
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "victim", "--nocapture"]).env(VICTIM, &*folder).env("OPENS", "1");
    let mut victim = command.spawn().expect("a program");
    let opens_now = || root.tcp_connections().expect("a list").iter().any(|it| it.state == State::SynSent);
    eventually("it waits for an answer", opens_now);
    victim.kill().expect("killed");
    victim.wait().expect("gone");
    eventually("the program is gone", || least.lower_to(&holdings(daemon.pid(), &root)));
    // A program that waits no longer takes nothing with it, however often it tries.
    for _ in 0..2 * FLOWS_MAX {
        let late = root.connect_tcp_timeout(at(1, 8_080), LOW_DELAY, Duration::from_millis(20));
        assert!(matches!(late, Err(TcpError::Late(peer)) if peer == at(1, 8_080)), "{:?}", late.err());
    }
    eventually("what it gave up is gone", || least.lower_to(&holdings(daemon.pid(), &root)));
    network.run(1, &format!("ip route del blackhole {}/32", at(0, 0).ip()));
    opens();
    drop(daemon);
}

/// A daemon that is killed takes its connections along; programs see that, and the next daemon begins with a clean device.
#[test]
fn a_daemon_that_dies_ends_its_connections() {
    let Some(network) = Network::new("tcpk", 2) else { return };
    network.join(CABLE);
    let folder = folder("tcpk");
    let listener = network.within(1, || TcpListener::bind(at(1, 8_080))).expect("a listener");
    let daemon = start(&network, &folder, "");
    let mut stream = connect_as(USER, &folder).connect_tcp(at(1, 8_080), LOW_DELAY).expect("granted");
    let _kernels = listener.accept().expect("a connection").0;
    daemon.stop(Signal::KILL);
    let error = stream.read(&mut [0; 10]).expect_err("the daemon is gone");
    assert!(error.to_string().contains("daemon"), "{error}");
    assert!(stream.write(b"more").is_err());
    let daemon = start(&network, &folder, "");
    let stream = connect_as(USER, &folder).connect_tcp(at(1, 8_080), LOW_DELAY);
    drop(stream.expect("granted"));
    drop(daemon);
}
