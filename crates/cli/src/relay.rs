//! Copies bytes between two streams, in both directions, until both are closed. One thread serves one pair.
//!
//! What one side does is carried to the other: an end behind the last byte, and a reset. Memory is bounded: one buffer a
//! direction.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as KernelStream};
use std::time::Duration;

use punctual::tcp::TcpStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;

/// Bytes that a direction holds.
const BUFFER_BYTES: usize = 16 * 1024;
/// How soon to look again for room in our stream: nothing reports it.
const ROOM_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000 };
/// How long the peer may take to acknowledge the last bytes.
const LAST_BYTES_WAIT: Duration = Duration::from_secs(60);
/// How often to look although nothing was reported.
const IDLE_CHECK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// One direction.
struct Direction {
    buffer: Vec<u8>,
    /// Bytes in the buffer, and how many of them were written.
    bytes: usize,
    written: usize,
    /// The source has ended.
    saw_end: bool,
    /// The end was carried on.
    is_closed: bool,
    total: u64,
}

impl Direction {
    fn new() -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self { buffer, bytes: 0, written: 0, saw_end: false, is_closed: false, total: 0 }
    }

    /// Whether bytes wait for room.
    const fn is_pending(&self) -> bool {
        self.written < self.bytes
    }

    /// Whether bytes from the source are wanted.
    const fn wants_bytes(&self) -> bool {
        !self.is_pending() && !self.saw_end
    }

    /// Whether the end is to be carried on.
    const fn is_ending(&self) -> bool {
        self.saw_end && !self.is_pending() && !self.is_closed
    }

    /// Reads into the buffer if it is empty; whether anything came.
    fn fill(&mut self, from: &mut impl Read) -> io::Result<bool> {
        if !self.wants_bytes() {
            return Ok(false);
        }
        let Some(bytes) = unless_it_would_block(from.read(&mut self.buffer))? else { return Ok(false) };
        (self.bytes, self.written, self.saw_end) = (bytes, 0, bytes == 0);
        Ok(true)
    }

    /// Writes what the buffer holds; whether anything went.
    fn drain(&mut self, to: &mut impl Write) -> io::Result<bool> {
        if !self.is_pending() {
            return Ok(false);
        }
        let rest = &self.buffer[self.written..self.bytes];
        let Some(written) = unless_it_would_block(to.write(rest))? else { return Ok(false) };
        self.written += written;
        self.total += written as u64;
        Ok(written > 0)
    }
}

fn unless_it_would_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Bytes that were carried, and why the pair ended before both sides had closed, if it did.
#[derive(Debug)]
pub struct Carried {
    /// Bytes from the wire to the program.
    pub in_bytes: u64,
    /// Bytes from the program to the wire.
    pub out_bytes: u64,
    /// The error of one side, which the other side has seen as a reset.
    pub error: Option<io::Error>,
}

/// Carries bytes between a stream on the wire and one of a program until both sides have closed.
pub fn carry(mut wire: TcpStream, program: &KernelStream) -> Carried {
    let (mut inward, mut outward) = (Direction::new(), Direction::new());
    wire.set_nonblocking(true);
    let result = program.set_nonblocking(true).and_then(|()| {
        while !(inward.is_closed && outward.is_closed) {
            if !turn(&mut wire, program, &mut inward, &mut outward)? {
                wait(&wire, program, &inward, &outward)?;
            }
        }
        // The relay's end would be the end of what has not left.
        wire.wait_sent(LAST_BYTES_WAIT).map(drop)
    });
    if result.is_err() {
        reset(&wire, program);
    }
    Carried { in_bytes: inward.total, out_bytes: outward.total, error: result.err() }
}

/// Both sides see a reset.
pub fn reset(wire: &TcpStream, program: &KernelStream) {
    // An error means that the side is gone already.
    let _ = wire.abort();
    reset_program(program);
}

/// The program's end sees a reset instead of an end.
pub fn reset_program(program: &KernelStream) {
    let _ = set_socket_linger(program, Some(Duration::ZERO));
}

/// Moves what can be moved now; whether anything was.
fn turn(
    wire: &mut TcpStream,
    mut program: &KernelStream,
    inward: &mut Direction,
    outward: &mut Direction,
) -> io::Result<bool> {
    let mut moved = inward.fill(wire)?;
    moved |= inward.drain(&mut program)?;
    if inward.is_ending() {
        inward.is_closed = true;
        moved = true;
        // A program that is gone has closed both directions.
        let _ = program.shutdown(Shutdown::Write);
    }
    moved |= outward.fill(&mut program)?;
    moved |= outward.drain(wire)?;
    if outward.is_ending() {
        outward.is_closed = true;
        moved = true;
        wire.shutdown(Shutdown::Write)?;
    }
    Ok(moved)
}

fn wait(wire: &TcpStream, program: &KernelStream, inward: &Direction, outward: &Direction) -> io::Result<()> {
    let flags = |wanted: bool, flag| if wanted { flag } else { PollFlags::empty() };
    let of_program = flags(outward.wants_bytes(), PollFlags::IN) | flags(inward.is_pending(), PollFlags::OUT);
    let mut waits = vec![PollFd::new(program, of_program)];
    if inward.wants_bytes() {
        waits.push(PollFd::new(wire, PollFlags::IN));
    }
    let patience = if outward.is_pending() { ROOM_CHECK } else { IDLE_CHECK };
    match poll(&mut waits, Some(&patience)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
