//! TCP of this host's own (RTU), as a program uses it: streams and listeners with kernels at the other end, in every class.
//! Network namespaces; needs root.

mod cable;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use cable::{
    A, B, FLOWS, LOW_DELAY, PATIENCE, address, bytes, cable, endsystem, exchange, patient, privileged,
};
use punctual::tcp::{Ended, Qos, State, TcpError};
use punctual::{BitRate, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[test]
fn streams_of_every_class_carry_every_byte_to_a_kernel() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let listener = b.within(|| TcpListener::bind(address(B))).expect("a listener");
    let guaranteed = Qos::Guaranteed { rate: BitRate(20_000_000), period: Nanos::from_millis(5) };
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        for (qos, total) in [(LOW_DELAY, 300_000), (guaranteed, 500_000), (Qos::BestEffort, 3_000_000)] {
            let mut stream = endsystem.connect_tcp(address(B), qos).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(stream.peer_addr(), address(B));
            let (kernels, from) = listener.accept().expect("a connection");
            assert_eq!(from, stream.local_addr());
            let kernels = patient(kernels);
            let kernel = std::thread::spawn(move || {
                let out = kernels.try_clone().expect("a clone");
                let close = || kernels.shutdown(Shutdown::Write).expect("to close");
                exchange(&kernels, out, close, [1, 0], total);
            });
            stream.set_read_timeout(Some(PATIENCE));
            stream.set_write_timeout(Some(PATIENCE));
            // One thread: in pieces that both rings hold.
            let (mut read, mut sent) = (Vec::new(), 0);
            let mut buffer = vec![0; 8_192];
            stream.set_nonblocking(true);
            while read.len() < total || sent < total {
                while sent < total {
                    match stream.write(&bytes(0, sent, 4_096.min(total - sent))) {
                        Ok(count) => sent += count,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{qos:?}: {error}"),
                    }
                    if sent == total {
                        stream.shutdown(Shutdown::Write).expect("it runs");
                    }
                }
                match stream.read(&mut buffer) {
                    Ok(0) => is_readable(&stream),
                    Ok(count) => read.extend_from_slice(&buffer[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => is_readable(&stream),
                    Err(error) => panic!("{qos:?}: {error}"),
                }
            }
            stream.set_nonblocking(false);
            assert_eq!(stream.read(&mut buffer).expect("the end"), 0);
            assert!(read == bytes(1, 0, total), "{qos:?}");
            kernel.join().expect("the kernel's end");
        }
    });
}

/// Waits at its descriptor until there is something to read, or a little for room to write.
fn is_readable(stream: &punctual::tcp::TcpStream) {
    let mut waits = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut waits, Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 })).expect("to wait");
}

#[test]
fn a_listener_accepts_kernels_and_each_stream_is_its_own() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        let listener = endsystem.bind_tcp(address(A), LOW_DELAY, 8).unwrap_or_else(|error| panic!("{error}"));
        let clients: Vec<_> = (0..3_u8)
            .map(|number| {
                let stream = patient(b.within(|| TcpStream::connect(address(A))).expect("to connect"));
                std::thread::spawn(move || {
                    let mut stream = stream;
                    stream.write_all(&[number; 1_000]).expect("written");
                    stream.shutdown(Shutdown::Write).expect("to close");
                    let mut read = Vec::new();
                    stream.read_to_end(&mut read).expect("read");
                    assert!(read == vec![number; 1_000], "an echo: {} bytes", read.len());
                })
            })
            .collect();
        for _ in 0..3 {
            let accepted = listener.accept_timeout(PATIENCE).unwrap_or_else(|error| panic!("{error}"));
            let mut stream = accepted.expect("a connection");
            stream.set_read_timeout(Some(PATIENCE));
            let mut read = Vec::new();
            stream.read_to_end(&mut read).expect("read");
            stream.write_all(&read).expect("written");
            // Dropping the stream closes it behind what was written.
        }
        clients.into_iter().for_each(|client| client.join().expect("the kernel's end"));
        assert!(listener.accept_timeout(Duration::ZERO).expect("no error").is_none());
    });
}

/// Each end sees how the other ended, as with other systems.
#[test]
fn ends_are_seen_at_the_other_side() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let listener = b.within(|| TcpListener::bind(address(B))).expect("a listener");
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        let connect =
            || endsystem.connect_tcp(address(B), LOW_DELAY).unwrap_or_else(|error| panic!("{error}"));
        // The program aborts.
        let stream = connect();
        let mut kernels = patient(listener.accept().expect("a connection").0);
        stream.abort().expect("it runs");
        assert_eq!(kernels.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        // The program goes with bytes that it has not read.
        let stream = connect();
        let mut kernels = patient(listener.accept().expect("a connection").0);
        kernels.write_all(&[7; 10]).expect("written");
        let mut waits = [PollFd::new(&stream, PollFlags::IN)];
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        assert_eq!(poll(&mut waits, Some(&patience)).expect("to wait"), 1, "the bytes came");
        drop(stream);
        assert_eq!(kernels.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        // The kernel's program goes with bytes that it has not read.
        let mut stream = connect();
        let kernels = patient(listener.accept().expect("a connection").0);
        stream.write_all(&[7; 10]).expect("written");
        let mut peek = [0; 10];
        while kernels.peek(&mut peek).expect("bytes") < 10 {}
        drop(kernels);
        stream.set_read_timeout(Some(PATIENCE));
        assert_eq!(stream.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        assert!(stream.write(&[1]).is_err());
        // There is no listener any more.
        drop(listener);
        let refused = endsystem.connect_tcp(address(B), LOW_DELAY).err().expect("refused");
        assert!(matches!(refused, TcpError::Peer { why: Ended::Refused, .. }), "{refused}");
    });
}

/// A refusal is one line with cause and fix, and leaves nothing behind.
#[test]
fn what_cannot_be_is_refused_with_one_line() {
    if !privileged() {
        return;
    }
    let (a, _b) = cable();
    a.within(|| {
        let without = endsystem("");
        let text = |error: Option<TcpError>| error.expect("refused").to_string();
        let line = text(without.connect_tcp(address(B), LOW_DELAY).err());
        assert_eq!(
            line,
            "no link of this host carries TCP connections: set flows_max in a [[link]] whose driver supports it"
        );
        drop(without);
        let endsystem = endsystem(FLOWS);
        let huge = Qos::Guaranteed { rate: BitRate(900_000_000), period: Nanos::from_millis(5) };
        let line = text(endsystem.connect_tcp(address(B), huge).err());
        assert!(line.starts_with("admission refused the "), "{line}");
        assert!(line.contains("; this handler alone would be granted as many segments every "), "{line}");
        let endless = Qos::Guaranteed { rate: BitRate(100_000_000_000), period: Nanos::from_millis(1) };
        let line = text(endsystem.connect_tcp(address(B), endless).err());
        assert!(line.contains("1 to 1024 segments: give units in this range, a lower rate or a shorter period"), "{line}");
        let elsewhere: SocketAddr = "203.0.113.9:80".parse().expect("an address");
        let line = text(endsystem.connect_tcp(elsewhere, LOW_DELAY).err());
        assert!(line.starts_with("no link with flows_max above 0 leads to 203.0.113.9: "), "{line}");
        let line = text(endsystem.bind_tcp("203.0.113.9:80".parse().expect("one"), LOW_DELAY, 1).err());
        assert!(!line.contains('\n') && line.contains("203.0.113.9"), "{line}");
        let local: SocketAddr = "[fe80::1]:80".parse().expect("an address");
        for line in [endsystem.connect_tcp(local, LOW_DELAY).err(), endsystem.bind_tcp(local, LOW_DELAY, 1).err()] {
            let line = text(line);
            assert!(line.contains("fe80::1 is a link-local address") && line.contains("give a global"), "{line}");
        }
        let held = TcpListener::bind(address(A)).expect("the kernel's");
        let line = text(endsystem.bind_tcp(address(A), LOW_DELAY, 1).err());
        assert!(!line.contains('\n') && line.contains("8080"), "{line}");
        drop(held);
        let handlers = endsystem.status().expect("a status").handlers;
        assert_eq!(handlers.len(), 1, "only the one for late segments: {handlers:?}");
    });
}

/// What is known of a stream.
#[test]
fn a_stream_shows_its_state() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let listener = b.within(|| TcpListener::bind(address(B))).expect("a listener");
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        let begun = Instant::now();
        let mut stream =
            endsystem.connect_tcp(address(B), LOW_DELAY).unwrap_or_else(|error| panic!("{error}"));
        let (mut kernels, _) = listener.accept().expect("a connection");
        kernels.write_all(&[7; 100]).expect("it is open");
        stream.read_exact(&mut [0; 100]).expect("it is open");
        let status = stream.status().expect("it runs").expect("open");
        let elapsed = begun.elapsed();
        assert_eq!((status.state, status.ended), (State::Established, None));
        assert!(status.segments_in >= 2 && status.segments_out >= 2, "{status:?}");
        // No delay is longer than all of it, or no time.
        let (mean, max) = status.delay_mean.zip(status.delay_max).expect("segments came");
        assert!(mean > Nanos::ZERO && mean <= max && u128::from(max.0) <= elapsed.as_nanos(), "{status:?}");
        assert!(status.bound_in.is_some() && status.bound_out.is_some(), "{status:?}");
        let best_effort = endsystem.connect_tcp(address(B), Qos::BestEffort).expect("it connects");
        let status = best_effort.status().expect("it runs").expect("open");
        assert_eq!((status.bound_in, status.bound_out), (None, None));
    });
}
