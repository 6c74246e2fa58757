//! What a program's calls on a TCP connection do where the daemon is stopped, and at the ends of streams and listeners. Network
//! namespaces; needs root.

mod common;

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::eventually;
use common::network::{Cable, Network};
use common::program::{Program, folder, with_flows};
use punctual::Nanos;
use punctual::tcp::{Ended, Qos, TcpError};
use rustix::process::{Signal, kill_process};

const CABLE: Cable = Cable { number: 0, hosts: [0, 1] };
const LOW_DELAY: Qos = Qos::LowDelay { interval: Nanos::from_millis(10), units: 8, priority: None };
const PATIENCE: Duration = Duration::from_secs(30);

fn at(end: usize, port: u16) -> SocketAddr {
    SocketAddr::new(CABLE.address(end).parse().expect("an address"), port)
}

/// A daemon on `a`, and `b`.
fn world(name: &str) -> Option<(Network, PathBuf, Program)> {
    let network = Network::new(name, 2)?;
    network.join(CABLE);
    let folder = folder(name);
    let daemon = with_flows(&network, &folder, CABLE, "");
    Some((network, folder, daemon))
}

/// A program's end and the kernel's.
fn connected(network: &Network, daemon: &Program) -> (punctual::tcp::TcpStream, TcpStream) {
    let listener = network.within(1, || TcpListener::bind(at(1, 8_001))).expect("a listener");
    let stream = daemon.connect().connect_tcp(at(1, 8_001), LOW_DELAY).expect("a connection");
    let kernels = listener.accept().expect("accepted").0;
    kernels.set_read_timeout(Some(PATIENCE)).expect("a time");
    (stream, kernels)
}

/// The end of a stream is there; the daemon, which knows the reason, is stopped. No call waits for it longer than its own time, and none
/// takes the end for a good one before the reason is known.
#[test]
fn a_stopped_daemon_stops_no_call_that_has_a_time() {
    let Some((network, _folder, daemon)) = world("tcp-waits") else { return };
    let (mut stream, kernels) = connected(&network, &daemon);
    stream.set_nonblocking(true);
    kernels.shutdown(Shutdown::Write).expect("to close");
    let is_readable = |stream: &punctual::tcp::TcpStream| {
        let mut descriptors = [rustix::event::PollFd::new(stream, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut descriptors, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))
            .expect("to poll")
            > 0
    };
    eventually("the end has come", || is_readable(&stream));
    let stop = |signal| kill_process(daemon.pid(), signal).expect("the daemon");
    stop(Signal::STOP);
    let begun = Instant::now();
    for _ in 0..50 {
        let read = stream.read(&mut [0; 8]).expect_err("nobody knows yet");
        assert_eq!(read.kind(), ErrorKind::WouldBlock);
        assert!(is_readable(&stream), "it is awaited");
    }
    stream.set_nonblocking(false);
    stream.set_read_timeout(Some(Duration::from_millis(300)));
    assert_eq!(stream.read(&mut [0; 8]).expect_err("nobody knows yet").kind(), ErrorKind::WouldBlock);
    assert!(!stream.wait_sent(Duration::from_millis(50)).expect("nobody answers"));
    stop(Signal::CONT);
    stream.set_read_timeout(Some(PATIENCE));
    assert_eq!(stream.read(&mut [0; 8]).expect("the end"), 0);
    stop(Signal::STOP);
    stream.set_linger(Some(Duration::from_millis(50)));
    drop(stream);
    let took = begun.elapsed();
    stop(Signal::CONT);
    // Each call has its time; the daemon would have been waited for without end.
    assert!(took < PATIENCE, "{took:?}");
    drop(kernels);
}

/// A program that waits no longer for connections resets the one that has come in the meantime.
#[test]
fn a_listener_that_is_dropped_keeps_no_connection_open() {
    let Some((network, _folder, daemon)) = world("tcp-undone") else { return };
    let endsystem = daemon.connect();
    let listener = endsystem.bind_tcp(at(0, 9_000), LOW_DELAY, 4).expect("a listener");
    assert_eq!(listener.local_addr(), at(0, 9_000));
    assert!(listener.accept_timeout(Duration::from_millis(1)).expect("it waits").is_none());
    let mut kernels = network.within(1, || TcpStream::connect(at(0, 9_000))).expect("to connect");
    kernels.set_read_timeout(Some(PATIENCE)).expect("a time");
    eventually("it has come for the program", || {
        endsystem.tcp_connections().expect("a list").iter().any(|it| it.local.port() == 9_000)
    });
    drop(listener);
    assert_eq!(kernels.read(&mut [0; 8]).expect_err("it is reset").kind(), ErrorKind::ConnectionReset);
    eventually("nothing is left", || endsystem.tcp_connections().expect("a list").is_empty());
}

/// What came before the program stopped to read is read; the end follows.
#[test]
fn shutting_reading_down_loses_nothing_that_has_come() {
    let Some((network, _folder, daemon)) = world("tcp-shut") else { return };
    let (mut stream, mut kernels) = connected(&network, &daemon);
    kernels.write_all(b"hello").expect("written");
    assert_eq!(stream.fill_buf().expect("bytes"), b"hello");
    stream.shutdown(Shutdown::Read).expect("to shut down");
    let mut read = Vec::new();
    stream.read_to_end(&mut read).expect("the rest");
    assert_eq!(read, b"hello");
    stream.write_all(b"world").expect("the other direction is open");
    let mut echo = [0; 5];
    kernels.read_exact(&mut echo).expect("it came");
    assert_eq!(&echo, b"world");
    // For ever, unless the peer acknowledges the end: it does.
    stream.set_linger(Some(Duration::MAX));
    drop(stream);
}

/// A writer that waits for room is told of the reset.
#[test]
fn a_blocked_writer_is_told_why() {
    let Some((network, _folder, daemon)) = world("tcp-blocked") else { return };
    for _ in 0..5 {
        let (mut stream, kernels) = connected(&network, &daemon);
        // The kernel resets what has bytes that nobody read.
        let reset = std::thread::spawn(move || {
            let mut first = [0; 1];
            (&kernels).read_exact(&mut first).expect("the first byte");
            drop(kernels);
        });
        let error = loop {
            if let Err(error) = stream.write_all(&[7; 100_000]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        reset.join().expect("the kernel's end");
    }
}

/// A reset that comes while the daemon is stopped again and again is a reset at the end of each stream, and never a whole one.
#[test]
fn a_reset_beside_a_stopped_daemon_is_no_end() {
    let Some((network, _folder, daemon)) = world("tcp-stopped") else { return };
    let stop = |signal| kill_process(daemon.pid(), signal).expect("the daemon");
    for _ in 0..4 {
        let (mut stream, kernels) = connected(&network, &daemon);
        rustix::net::sockopt::set_socket_linger(&kernels, Some(Duration::ZERO)).expect("a reset at the end");
        drop(kernels);
        // More stops than the reset needs: it may come in any of them, or between two.
        let mut ended = None;
        for _ in 0..3 {
            stop(Signal::STOP);
            stream.set_read_timeout(Some(Duration::from_millis(300)));
            let read = stream.read(&mut [0; 8]);
            stop(Signal::CONT);
            match read {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => {
                    ended = Some(read);
                    break;
                }
            }
        }
        stream.set_read_timeout(Some(PATIENCE));
        let read = ended.unwrap_or_else(|| stream.read(&mut [0; 8])).expect_err("it was reset");
        assert_eq!(read.kind(), ErrorKind::ConnectionReset, "{read}");
    }
}

/// A connection that its peer resets before the program takes it is an error of that connection alone.
#[test]
fn a_connection_that_is_reset_before_it_is_accepted_is_named() {
    let Some((network, _folder, daemon)) = world("tcp-early") else { return };
    let endsystem = daemon.connect();
    let listener = endsystem.bind_tcp(at(0, 9_000), LOW_DELAY, 4).expect("a listener");
    for _ in 0..10 {
        let kernels = network.within(1, || TcpStream::connect(at(0, 9_000))).expect("to connect");
        let local = kernels.local_addr().expect("bound");
        rustix::net::sockopt::set_socket_linger(&kernels, Some(Duration::ZERO)).expect("a reset at the end");
        drop(kernels);
        match listener.accept_timeout(PATIENCE) {
            Ok(stream) => assert_eq!(stream.expect("one came").peer_addr(), local),
            Err(TcpError::Peer { peer, why }) => assert_eq!((peer, why), (local, Ended::Reset)),
            Err(error) => panic!("{error}"),
        }
    }
    let _kernels = network.within(1, || TcpStream::connect(at(0, 9_000))).expect("to connect");
    assert!(listener.accept_timeout(PATIENCE).expect("the listener is well").is_some());
}
