//! tokio's traits over this host's own TCP, with a kernel at the other end. Network namespaces; needs root.

mod cable;
#[path = "../examples/tcp_tokio.rs"]
#[allow(dead_code, reason = "an example has a main")]
mod example;

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use cable::{
    A, B, FLOWS, LOW_DELAY, PATIENCE, address, bytes, cable, endsystem, exchange, patient, privileged,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf, split};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_io().enable_time().build().expect("a runtime")
}

/// Runs `task` for a bounded time.
async fn patiently<R>(task: impl Future<Output = R>) -> R {
    tokio::time::timeout(PATIENCE, task).await.expect("in time")
}

#[test]
fn tasks_read_and_write_at_the_same_time() {
    if !privileged() {
        return;
    }
    const TOTAL: usize = 1_000_000;
    let (a, b) = cable();
    let listener = b.within(|| TcpListener::bind(address(B))).expect("a listener");
    let kernel = std::thread::spawn(move || {
        let kernels = patient(listener.accept().expect("a connection").0);
        let out = kernels.try_clone().expect("a clone");
        let close = || kernels.shutdown(Shutdown::Write).expect("to close");
        exchange(&kernels, out, close, [1, 0], TOTAL);
    });
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        runtime().block_on(async {
            let stream = patiently(endsystem.connect_tcp_async(address(B), LOW_DELAY)).await;
            let (mut from, mut to) = split(stream.unwrap_or_else(|error| panic!("{error}")));
            let writing = tokio::spawn(async move {
                to.write_all(&bytes(0, 0, TOTAL)).await.expect("written");
                to.shutdown().await.expect("to close");
                to
            });
            let mut read = Vec::new();
            patiently(from.read_to_end(&mut read)).await.expect("read");
            assert!(read == bytes(1, 0, TOTAL), "{} bytes", read.len());
            drop(patiently(writing).await.expect("the writing task"));
        });
        kernel.join().expect("the kernel's end");
    });
}

/// The example's server answers several kernels at once; when it is dropped, its port is free.
#[test]
fn a_listener_accepts_for_tasks() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        let runtime = runtime();
        let listener = endsystem.bind_tcp(address(A), LOW_DELAY, 8).unwrap_or_else(|error| panic!("{error}"));
        let listener = listener.into_async().expect("a thread");
        let serving = runtime.spawn(example::serve(listener));
        let clients = std::thread::spawn(move || {
            let streams: Vec<_> = (0..3_u8)
                .map(|number| {
                    (number, patient(b.within(|| TcpStream::connect(address(A))).expect("to connect")))
                })
                .collect();
            for (number, mut stream) in streams {
                stream.write_all(&[number; 1_000]).expect("written");
                stream.shutdown(Shutdown::Write).expect("to close");
                let mut read = Vec::new();
                stream.read_to_end(&mut read).expect("read");
                assert!(read == vec![number; 1_000], "an echo: {} bytes", read.len());
            }
            // The cable goes with the host.
            b
        });
        runtime.block_on(async {
            while !clients.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let b = clients.join().expect("the kernels' ends");
        serving.abort();
        drop(runtime);
        // The thread that accepted ends at once.
        let until = Instant::now() + Duration::from_secs(15);
        while let Err(error) = endsystem.bind_tcp(address(A), LOW_DELAY, 8) {
            assert!(Instant::now() < until, "{error}");
            std::thread::yield_now();
        }
        drop(b);
    });
}

/// A peer that sends faster than a task reads does not keep the thread: after 128 reads at most the task lets others go on.
#[test]
fn a_fast_peer_leaves_time_to_other_tasks() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let listener = b.within(|| TcpListener::bind(address(B))).expect("a listener");
    let kernel = std::thread::spawn(move || {
        let mut kernels = patient(listener.accept().expect("a connection").0);
        kernels.write_all(&[5; 3_000]).expect("written");
        kernels.shutdown(Shutdown::Write).expect("to close");
        kernels.read(&mut [0; 1]).map_or(0, |count| count)
    });
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        let reads = runtime().block_on(async {
            let stream = patiently(endsystem.connect_tcp_async(address(B), LOW_DELAY)).await;
            let mut stream = stream.unwrap_or_else(|error| panic!("{error}"));
            // All of it is there: how many reads one turn of the task makes.
            while stream.get_mut().status().expect("the engine").is_none_or(|it| it.segments_in < 3) {
                tokio::task::yield_now().await;
            }
            let reads_of_a_turn = |context: &mut Context<'_>| {
                let mut reads = 0;
                loop {
                    let mut byte = [0];
                    match Pin::new(&mut stream).poll_read(context, &mut ReadBuf::new(&mut byte)) {
                        Poll::Ready(read) => read.expect("a byte"),
                        Poll::Pending => return Poll::Ready(reads),
                    }
                    reads += 1;
                }
            };
            patiently(poll_fn(reads_of_a_turn)).await
        });
        assert!((1..=128).contains(&reads), "{reads}");
        kernel.join().expect("the kernel's end");
    });
}

/// A task that waits for a connection no longer leaves nothing behind: neither its place nor a thread that waits.
#[test]
fn a_connection_that_is_awaited_no_longer_ends() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    // `b` forwards nothing, and says nothing.
    a.run("ip route add 10.99.0.0/24 via 10.98.0.2");
    let silent = std::net::SocketAddr::from(([10, 99, 0, 1], 80));
    let listener = b.within(|| TcpListener::bind(address(B))).expect("a listener");
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        let runtime = runtime();
        let begun = Instant::now();
        // More than there are places for.
        for _ in 0..20 {
            let late = runtime.block_on(async {
                let connecting = endsystem.connect_tcp_async(silent, LOW_DELAY);
                tokio::time::timeout(Duration::from_millis(10), connecting).await.map(drop)
            });
            late.expect_err("nobody answers");
        }
        drop(runtime);
        let until = Instant::now() + PATIENCE;
        while let Err(error) = endsystem.connect_tcp(address(B), LOW_DELAY) {
            assert!(Instant::now() < until, "{error}");
            std::thread::yield_now();
        }
        assert!(begun.elapsed() < PATIENCE * 2, "{:?}", begun.elapsed());
        drop(listener.accept());
    });
}
