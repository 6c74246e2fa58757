//! The other ends: TCP of the kernel, every byte checked.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(30);

/// Byte `at` of what side `side` sends.
pub fn byte(side: u8, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9).wrapping_add(u64::from(side) * 77) >> 13) as u8
}

pub fn fill(side: u8, from: u64, chunk: &mut [u8]) {
    for (at, to) in chunk.iter_mut().enumerate() {
        *to = byte(side, from + at as u64);
    }
}

pub fn check(side: u8, from: u64, chunk: &[u8]) {
    for (at, got) in chunk.iter().enumerate() {
        assert_eq!(*got, byte(side, from + at as u64), "byte {} of side {side}", from + at as u64);
    }
}

/// Sends `bytes` as side `side` and closes that direction, while it reads as many of the other side, and then the end.
pub fn exchange(stream: &TcpStream, side: u8, bytes: u64) {
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    stream.set_write_timeout(Some(LONG)).expect("a timeout");
    std::thread::scope(|scope| {
        let mut out = stream;
        scope.spawn(move || {
            let (mut chunk, mut at) = ([0; 16_384], 0);
            while at < bytes {
                let size = chunk.len().min((bytes - at) as usize);
                fill(side, at, &mut chunk[..size]);
                out.write_all(&chunk[..size]).expect("to send");
                at += size as u64;
            }
            out.shutdown(Shutdown::Write).expect("to close");
        });
        let (mut from, mut chunk, mut at) = (stream, [0; 16_384], 0);
        loop {
            let size = from.read(&mut chunk).expect("to receive");
            if size == 0 {
                break;
            }
            check(1 - side, at, &chunk[..size]);
            at += size as u64;
        }
        assert_eq!(at, bytes);
    });
}

/// Accepts one connection.
pub fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut waits = [PollFd::new(listener, PollFlags::IN)];
    let patience = Timespec { tv_sec: LONG.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut waits, Some(&patience)).expect("to wait"), 1, "no peer connects");
    listener.accept().expect("a connection")
}
