//! What programs use of sockets, at a stream of this host's own TCP: reading in place, vectored reading and writing, options,
//! handlers on the processor and a leading thread, with a kernel at the other end. Network namespaces; needs root.

mod cable;
#[path = "../examples/tcp_direct.rs"]
#[allow(dead_code, reason = "an example has a main")]
mod example;

use std::io::{BufRead, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream as KernelStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use cable::{
    A, B, FLOWS, LOW_DELAY, PATIENCE, address, bytes, cable, endsystem, endsystem_with, patient, privileged,
};
use punctual::tcp::{Qos, TcpError, TcpStream};
use punctual::{BitRate, Endsystem, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What the program may take for a segment.
const DECLARED: Nanos = Nanos::from_micros(10);

/// Calls `test` with a stream of an endsystem and the kernel's end of it.
fn with_stream(
    connect: impl FnOnce(&Endsystem) -> Result<TcpStream, TcpError> + Send,
    test: impl FnOnce(TcpStream, KernelStream) + Send,
) {
    let (a, b) = cable();
    let listener = b.within(|| TcpListener::bind(address(B))).expect("a listener");
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        let mut stream = connect(&endsystem).unwrap_or_else(|error| panic!("{error}"));
        let kernels = patient(listener.accept().expect("a connection").0);
        stream.set_read_timeout(Some(PATIENCE));
        stream.set_write_timeout(Some(PATIENCE));
        test(stream, kernels);
    });
}

fn low_delay(endsystem: &Endsystem) -> Result<TcpStream, TcpError> {
    endsystem.connect_tcp(address(B), LOW_DELAY)
}

fn await_readable(stream: &TcpStream) {
    let mut waits = [PollFd::new(stream, PollFlags::IN)];
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut waits, Some(&patience)).expect("to wait"), 1, "readable");
}

#[test]
fn bytes_are_read_in_place_and_in_several_buffers() {
    if !privileged() {
        return;
    }
    const TOTAL: usize = 200_000;
    with_stream(low_delay, |mut stream, mut kernels| {
        let kernel = std::thread::spawn(move || {
            kernels.write_all(&bytes(1, 0, TOTAL)).expect("written");
            kernels.shutdown(Shutdown::Write).expect("to close");
            kernels
        });
        let mut peeked = [0; 10];
        assert_eq!(stream.peek(&mut peeked).expect("bytes"), 10);
        assert_eq!(peeked[..], bytes(1, 0, 10), "left unread");
        let mut read = Vec::new();
        while read.len() < TOTAL / 2 {
            // Pieces that end within the messages of the ring.
            let waiting = stream.fill_buf().expect("bytes");
            let count = waiting.len().min(777);
            read.extend_from_slice(&waiting[..count]);
            stream.consume(count);
        }
        loop {
            let (mut one, mut none, mut two) = ([0; 100], [0; 0], [0; 5_000]);
            let mut buffers = [&mut one[..], &mut none[..], &mut two[..]].map(IoSliceMut::new);
            let count = stream.read_vectored(&mut buffers).expect("bytes");
            if count == 0 {
                break;
            }
            let (first, second) = (count.min(100), count.saturating_sub(100));
            read.extend_from_slice(&one[..first]);
            read.extend_from_slice(&two[..second]);
        }
        assert!(stream.fill_buf().expect("the end").is_empty());
        assert!(read == bytes(1, 0, TOTAL), "{} bytes", read.len());
        drop(kernel.join().expect("the kernel's end"));
    });
}

#[test]
fn parts_are_written_in_order_and_in_place() {
    if !privileged() {
        return;
    }
    with_stream(low_delay, |mut stream, mut kernels| {
        let wanted = bytes(0, 0, 300);
        let parts = [&wanted[..100], &[], &wanted[100..200]].map(IoSlice::new);
        assert_eq!(stream.write_vectored(&parts).expect("room"), 200, "one message");
        let written = stream.write_with(|slot| {
            slot[..100].copy_from_slice(&wanted[200..]);
            100
        });
        assert_eq!(written.expect("room"), 100);
        stream.shutdown(Shutdown::Write).expect("it runs");
        assert_eq!(stream.write(&[1]).expect_err("closed").kind(), ErrorKind::BrokenPipe);
        let mut read = Vec::new();
        kernels.read_to_end(&mut read).expect("read");
        assert_eq!(read, wanted);
    });
}

#[test]
fn options_are_those_of_the_connection() {
    if !privileged() {
        return;
    }
    with_stream(low_delay, |stream, kernels| {
        assert!(stream.nodelay().expect("it runs"), "low delay");
        stream.set_nodelay(false).expect("it runs");
        assert!(!stream.nodelay().expect("it runs"));
        assert_eq!(stream.keep_alive().expect("it runs"), None);
        for (asked, is) in [(30_000, 30_000), (1, 100)] {
            stream.set_keep_alive(Some(Duration::from_millis(asked))).expect("it runs");
            assert_eq!(stream.keep_alive().expect("it runs"), Some(Duration::from_millis(is)));
        }
        stream.set_user_timeout(Duration::from_secs(5)).expect("it runs");
        stream.set_ttl(7).expect("it runs");
        let settings = stream.status().expect("it runs").expect("open").settings;
        assert_eq!((settings.user_timeout, settings.hop_limit), (Nanos::from_secs(5), 7));
        // Hints, with honest answers.
        let (receive, send) =
            (stream.recv_buffer_size().expect("one"), stream.send_buffer_size().expect("one"));
        assert_eq!((receive, send), (512 << 10, 512 << 10), "a buffer and a ring of 256 KiB each");
        assert_eq!(stream.set_recv_buffer_size(1 << 30).expect("one"), receive);
        assert_eq!(stream.set_send_buffer_size(1).expect("one"), send);
        drop(kernels);
    });
    with_stream(
        |endsystem| endsystem.connect_tcp(address(B), Qos::BestEffort),
        |stream, kernels| {
            assert!(!stream.nodelay().expect("it runs"), "best effort");
            drop(kernels);
        },
    );
}

/// Under `rmdp`, connections of low delay are granted one after the other, with priorities and without. Another order cannot honour one.
#[test]
fn low_delay_connections_have_priorities_under_rmdp() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let listener = b.within(|| TcpListener::bind(address(B))).expect("a listener");
    let of = |priority| Qos::LowDelay { interval: Nanos::from_millis(10), units: 2, priority };
    a.within(|| {
        let endsystem = endsystem_with("processor.policy = \"rmdp\"", FLOWS);
        let streams: Vec<_> = [None, Some(9), None, Some(0), Some(63)]
            .map(|priority| endsystem.connect_tcp(address(B), of(priority)))
            .into_iter()
            .map(|stream| stream.unwrap_or_else(|error| panic!("{error}")))
            .collect();
        for mut stream in streams {
            let mut kernels = patient(listener.accept().expect("a connection").0);
            stream.write_all(b"ping").expect("written");
            let mut read = [0; 4];
            kernels.read_exact(&mut read).expect("read");
            assert_eq!(&read, b"ping");
        }
        let beyond = endsystem.connect_tcp(address(B), of(Some(64))).map(drop).expect_err("0 to 63");
        assert!(beyond.to_string().contains("63"), "{beyond}");
    });
    a.within(|| {
        let refused = endsystem(FLOWS).connect_tcp(address(B), of(Some(1))).map(drop).expect_err("edf");
        assert!(refused.to_string().contains("needs the run policy \"rmdp\""), "{refused}");
    });
}

#[test]
fn a_dropped_stream_lingers_as_configured() {
    if !privileged() {
        return;
    }
    with_stream(low_delay, |mut stream, mut kernels| {
        stream.set_linger(Some(Duration::ZERO));
        drop(stream);
        assert_eq!(kernels.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    });
    with_stream(low_delay, |mut stream, mut kernels| {
        stream.write_all(&bytes(0, 0, 50_000)).expect("room");
        stream.set_linger(Some(PATIENCE));
        let kernel = std::thread::spawn(move || {
            let mut read = Vec::new();
            kernels.read_to_end(&mut read).expect("read");
            assert!(read == bytes(0, 0, 50_000));
        });
        drop(stream);
        kernel.join().expect("the kernel's end");
    });
}

#[test]
fn an_error_is_reported_once() {
    if !privileged() {
        return;
    }
    with_stream(low_delay, |mut stream, kernels| {
        assert!(stream.take_error().is_none());
        stream.write_all(b"unread").expect("room");
        let mut peek = [0; 6];
        while kernels.peek(&mut peek).expect("bytes") < 6 {}
        drop(kernels);
        await_readable(&stream);
        let error = std::iter::repeat_with(|| stream.take_error()).flatten().next().expect("an error");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(stream.take_error().is_none());
        assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
    });
}

/// The example's handler answers on the processor; the end of the stream comes to it, too.
#[test]
fn a_handler_answers_on_the_processor() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        let listener = endsystem
            .bind_tcp_direct(address(A), LOW_DELAY, 4, DECLARED)
            .unwrap_or_else(|error| panic!("{error}"));
        let mut kernels = patient(b.within(|| KernelStream::connect(address(A))).expect("to connect"));
        // What waits when the handler begins comes first.
        kernels.write_all(b"first ").expect("written");
        let mut stream = listener.accept_timeout(PATIENCE).expect("no error").expect("a connection");
        assert_eq!(stream.fill_buf().expect("bytes"), b"first ");
        stream.consume(3);
        let (ended, end) = channel();
        let handler = example::shout(stream, move || ended.send(()).unwrap_or_default());
        let handler = handler.unwrap_or_else(|error| panic!("{error}"));
        kernels.write_all(b"second").expect("written");
        kernels.shutdown(Shutdown::Write).expect("to close");
        end.recv_timeout(PATIENCE).expect("the handler saw the end");
        assert!((2..=10).contains(&handler.calls()), "{}", handler.calls());
        drop(handler);
        let mut read = String::new();
        kernels.read_to_string(&mut read).expect("read");
        assert_eq!(read, "ST SECOND");
    });
}

#[test]
fn a_handler_needs_a_declared_time_and_may_fail() {
    if !privileged() {
        return;
    }
    with_stream(low_delay, |stream, kernels| {
        assert!(matches!(stream.on_bytes(|_, _| {}), Err(TcpError::HandlerTime)));
        drop(kernels);
    });
    let direct = |endsystem: &Endsystem| endsystem.connect_tcp_direct(address(B), LOW_DELAY, DECLARED);
    with_stream(direct, |stream, mut kernels| {
        let (called, call) = channel();
        let handler = stream.on_bytes(move |_, _| {
            called.send(()).unwrap_or_default();
            panic!("a handler that fails, on purpose");
        });
        let handler = handler.unwrap_or_else(|error| panic!("{error}"));
        kernels.write_all(b"x").expect("written");
        call.recv_timeout(PATIENCE).expect("called");
        while !handler.has_panicked() {
            std::thread::yield_now();
        }
        drop(handler);
        assert_eq!(kernels.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_thread_leads_for_its_stream() {
    if !privileged() {
        return;
    }
    let direct = |endsystem: &Endsystem| endsystem.connect_tcp_direct(address(B), LOW_DELAY, DECLARED);
    with_stream(direct, |stream, kernels| {
        let kernel = std::thread::spawn(move || {
            let (mut from, mut to) = (&kernels, &kernels);
            std::io::copy(&mut from, &mut to).expect("an echo")
        });
        let mut lead = stream.lead().unwrap_or_else(|error| panic!("{error}"));
        if lead.is_leading() {
            assert!(lead.stream().status().is_err(), "this thread is the processor's");
        }
        for number in 0..100_u8 {
            lead.write_all(&[number; 64]).expect("written");
            let mut read = [0; 64];
            lead.read_exact(&mut read).expect("an echo");
            assert_eq!(read, [number; 64]);
        }
        let mut stream = lead.end();
        stream.shutdown(Shutdown::Write).expect("it runs");
        assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
        assert_eq!(kernel.join().expect("the kernel's end"), 6_400);
    });
}

#[test]
fn best_effort_has_no_budget_for_a_leading_thread() {
    if !privileged() {
        return;
    }
    let direct = |endsystem: &Endsystem| endsystem.connect_tcp_direct(address(B), Qos::BestEffort, Nanos(1));
    with_stream(direct, |stream, kernels| {
        assert!(matches!(stream.lead().err(), Some(TcpError::NoBudget)));
        drop(kernels);
    });
}

/// A handshake is over before admission decides about the connection's handlers. If a connection is refused then, the program sees the
/// reason; the others go on, and when one of them ends there is room again.
#[test]
fn a_refused_connection_harms_no_other() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    a.within(|| {
        let endsystem = endsystem("flows_max = 64\nlisteners_max = 1\n");
        let qos = Qos::Guaranteed { rate: BitRate(20_000_000), period: Nanos::from_millis(5) };
        let listener = endsystem.bind_tcp(address(A), qos, 4).unwrap_or_else(|error| panic!("{error}"));
        let connect = || patient(b.within(|| KernelStream::connect(address(A))).expect("to connect"));
        let mut open = Vec::new();
        let (refused, why) = loop {
            assert!(open.len() < 64, "admission refuses nothing");
            let kernels = connect();
            match listener.accept_timeout(PATIENCE) {
                Ok(stream) => open.push((stream.expect("a connection"), kernels)),
                Err(error) => break (kernels, error.to_string()),
            }
        };
        assert!(why.starts_with("admission refused the ") && !why.contains('\n'), "{why}");
        drop(refused);
        for (stream, kernels) in &mut open {
            stream.set_read_timeout(Some(PATIENCE));
            kernels.write_all(b"still here").expect("written");
            stream.read_exact(&mut [0; 10]).expect("read");
        }
        let (stream, mut kernels) = open.pop().expect("one was admitted");
        drop(stream);
        assert_eq!(kernels.read(&mut [0]).expect("the end"), 0);
        drop(kernels);
        let again = std::iter::repeat_with(|| {
            let kernels = connect();
            listener.accept_timeout(PATIENCE).ok().flatten().map(|stream| (stream, kernels))
        });
        assert!(again.take(64).flatten().next().is_some(), "there is room again");
    });
}

/// The host's own address goes and comes back during a connection: the peer misses no byte.
#[test]
fn a_stream_outlives_the_address_of_its_host() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let listener = b.within(|| TcpListener::bind(address(B))).expect("a listener");
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        let mut stream =
            endsystem.connect_tcp(address(B), LOW_DELAY).unwrap_or_else(|error| panic!("{error}"));
        let mut kernels = patient(listener.accept().expect("a connection").0);
        let mut send = |from: usize| {
            stream.write_all(&bytes(0, from, 20_000)).expect("room");
            from + 20_000
        };
        let mut at = send(0);
        a.ip_batch(&format!("address del {A}/30 dev va\n"));
        at = send(at);
        let refused = endsystem.connect_tcp(address(B), LOW_DELAY).err().expect("there is no way");
        assert!(!refused.to_string().contains('\n'), "{refused}");
        a.ip_batch(&format!("address add {A}/30 dev va\n"));
        at = send(at);
        stream.shutdown(Shutdown::Write).expect("it runs");
        let mut read = Vec::new();
        kernels.read_to_end(&mut read).expect("read");
        assert!(read == bytes(0, 0, at), "{} bytes of {at}", read.len());
    });
}
