//! Copies bytes between two streams, in both directions, until both are closed. One thread serves one pair.
//!
//! If one side ends its stream, the other sees the end after the last byte. If one side resets its connection, the other
//! is reset, too, also while bytes for it wait. If this process is killed, the program sees a reset: not every byte has come. Memory is
//! bounded: one buffer for each direction.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as KernelStream};
use std::time::Duration;

use punctual::Endsystem;
use punctual::tcp::TcpStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;

/// Size of the buffer of one direction.
const BUFFER_BYTES: usize = 32 * 1024;
/// How long the peer may take to acknowledge the last bytes.
const LAST_BYTES_WAIT: Duration = Duration::from_secs(60);
/// How often to check both sides, and the engine, if no event was reported.
const IDLE_CHECK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// One direction.
struct Direction {
    buffer: Vec<u8>,
    /// Bytes in the buffer, and how many of them were written.
    bytes: usize,
    written: usize,
    /// The source has ended.
    saw_end: bool,
    /// The end was passed on to the other side.
    is_closed: bool,
    /// The source had no more bytes at the last look: there is nothing to read until an event reports some.
    is_dry: bool,
    /// The target had no room at the last look.
    is_stuck: bool,
    total: u64,
}

impl Direction {
    fn new() -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self {
            buffer,
            bytes: 0,
            written: 0,
            saw_end: false,
            is_closed: false,
            is_dry: false,
            is_stuck: false,
            total: 0,
        }
    }

    /// Whether bytes in the buffer wait to be written.
    const fn is_pending(&self) -> bool {
        self.written < self.bytes
    }

    /// Whether the buffer is free for bytes from the source.
    const fn wants_bytes(&self) -> bool {
        !self.is_pending() && !self.saw_end
    }

    /// Whether the end must now be passed on.
    const fn is_ending(&self) -> bool {
        self.saw_end && !self.is_pending() && !self.is_closed
    }

    /// Reads into the buffer if it is empty. Returns whether bytes came.
    fn fill(&mut self, from: &mut impl Read) -> io::Result<bool> {
        if !self.wants_bytes() || self.is_dry {
            return Ok(false);
        }
        let Some(bytes) = unless_it_would_block(from.read(&mut self.buffer))? else {
            self.is_dry = true;
            return Ok(false);
        };
        // Both kinds of source fill the buffer if they can.
        self.is_dry = bytes < self.buffer.len();
        (self.bytes, self.written, self.saw_end) = (bytes, 0, bytes == 0);
        Ok(true)
    }

    /// Writes the bytes in the buffer, as far as there is room. Returns whether any were written.
    fn drain(&mut self, to: &mut impl Write) -> io::Result<bool> {
        let before = self.total;
        while self.is_pending() && !self.is_stuck {
            let rest = &self.buffer[self.written..self.bytes];
            match unless_it_would_block(to.write(rest))? {
                Some(written) => {
                    self.written += written;
                    self.total += written as u64;
                }
                None => self.is_stuck = true,
            }
        }
        Ok(self.total > before)
    }
}

fn unless_it_would_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bytes that were forwarded, and the error if a side did not close in order.
#[derive(Debug)]
pub struct Carried {
    /// Bytes from the network to the program.
    pub in_bytes: u64,
    /// Bytes from the program to the network.
    pub out_bytes: u64,
    /// The peer has acknowledged all bytes and the end.
    pub is_acknowledged: bool,
    /// The error of one side. The other side was reset because of it.
    pub error: Option<io::Error>,
}

/// Forwards bytes between a stream on the network, of `endsystem`, and one of a program until both sides have closed.
pub fn carry(mut wire: TcpStream, program: &KernelStream, endsystem: &Endsystem) -> Carried {
    let (mut inward, mut outward) = (Direction::new(), Direction::new());
    wire.set_nonblocking(true);
    reset_program(program);
    let result = program.set_nonblocking(true).and_then(|()| {
        while !(inward.is_closed && outward.is_closed) {
            if !turn(&mut wire, program, &mut inward, &mut outward)?
                && !wait(&wire, program, &mut inward, &mut outward)?
            {
                check(&mut wire, program, endsystem)?;
            }
        }
        // If the relay ended before, the bytes that have not left yet would be lost.
        wire.wait_sent(LAST_BYTES_WAIT)
    });
    match &result {
        // All was carried: closing the program's socket is no reset.
        Ok(_) => drop(set_socket_linger(program, None)),
        Err(_) => reset(&wire, program),
    }
    let is_acknowledged = matches!(result, Ok(true));
    Carried { in_bytes: inward.total, out_bytes: outward.total, is_acknowledged, error: result.err() }
}

/// Looks for the end of what waits: a side that is gone may be one that nothing is read from now, and nothing is reported of an engine.
fn check(wire: &mut TcpStream, program: &KernelStream, endsystem: &Endsystem) -> io::Result<()> {
    if let Some(error) = endsystem.ended() {
        return Err(io::Error::other(error));
    }
    match wire.take_error() {
        Some(error) => Err(error),
        None => program.take_error()?.map_or(Ok(()), |error| Err(program_error(error))),
    }
}

/// Resets both sides.
pub fn reset(wire: &TcpStream, program: &KernelStream) {
    // If this fails, that side is gone already.
    let _ = wire.abort();
    reset_program(program);
}

/// Makes the program see a reset, instead of an orderly end, when its socket is closed.
pub fn reset_program(program: &KernelStream) {
    let _ = set_socket_linger(program, Some(Duration::ZERO));
}

/// An error of the program's connection, as one of the network's is said.
fn program_error(error: io::Error) -> io::Error {
    let kind = error.kind();
    let what = match kind {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "the program reset the connection".to_owned(),
        _ => format!("the program's connection: {error}"),
    };
    io::Error::new(kind, what)
}

/// Forwards what can be forwarded now. Returns whether anything was.
fn turn(
    wire: &mut TcpStream,
    mut program: &KernelStream,
    inward: &mut Direction,
    outward: &mut Direction,
) -> io::Result<bool> {
    let mut moved = inward.fill(wire)?;
    moved |= inward.drain(&mut program).map_err(program_error)?;
    if inward.is_ending() {
        inward.is_closed = true;
        moved = true;
        // If this fails, the program is gone, and has closed both directions.
        let _ = program.shutdown(Shutdown::Write);
    }
    moved |= outward.fill(&mut program).map_err(program_error)?;
    moved |= outward.drain(wire)?;
    if outward.is_ending() {
        outward.is_closed = true;
        moved = true;
        wire.shutdown(Shutdown::Write)?;
    }
    Ok(moved)
}

/// Waits until a source may have bytes that are wanted, or a target room for those that wait; `false` if nothing was reported for a
/// while.
fn wait(
    wire: &TcpStream,
    program: &KernelStream,
    inward: &mut Direction,
    outward: &mut Direction,
) -> io::Result<bool> {
    let flags = |wanted: bool, flag| if wanted { flag } else { PollFlags::empty() };
    let of_program = flags(outward.wants_bytes(), PollFlags::IN) | flags(inward.is_pending(), PollFlags::OUT);
    let room = wire.room_fd();
    let mut waits = [
        PollFd::new(wire, flags(inward.wants_bytes(), PollFlags::IN)),
        PollFd::new(&room, flags(outward.is_pending(), PollFlags::IN)),
        PollFd::new(program, of_program),
    ];
    // A program that has closed both directions would be reported each time, also while nothing can be done about it. One that has
    // reset its connection is reported whatever is asked for.
    let count = if of_program.is_empty() && inward.is_closed { 2 } else { 3 };
    match poll(&mut waits[..count], Some(&IDLE_CHECK)) {
        Ok(0) => {
            // No event may be lost for longer than this.
            for direction in [inward, outward] {
                (direction.is_dry, direction.is_stuck) = (false, false);
            }
            return Ok(false);
        }
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let [of_wire, of_room, of_program] = waits.map(|wait| wait.revents());
    if of_program.contains(PollFlags::ERR) {
        program.take_error()?.map_or(Ok(()), |error| Err(program_error(error)))?;
    }
    let is_over = of_program.intersects(PollFlags::HUP | PollFlags::ERR);
    inward.is_dry &= of_wire.is_empty();
    inward.is_stuck &= !(is_over || of_program.contains(PollFlags::OUT));
    outward.is_dry &= !(is_over || of_program.contains(PollFlags::IN));
    outward.is_stuck &= of_room.is_empty();
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives so many bytes at each call, and would wait after that.
    struct Source(Vec<usize>, u32);

    impl Read for Source {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            let bytes = self.0.pop().ok_or(ErrorKind::WouldBlock)?;
            buffer[..bytes].fill(7);
            Ok(bytes)
        }
    }

    /// Takes at most so many bytes at each call, and so many in all.
    struct Target(usize, usize);

    impl Write for Target {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0).min(self.1);
            self.1 -= taken;
            if taken > 0 { Ok(taken) } else { Err(ErrorKind::WouldBlock.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A source that has given all that it had is not asked again before an event; one that has filled the buffer is.
    #[test]
    fn a_source_is_asked_while_it_may_have_more() {
        let mut source = Source(vec![10, BUFFER_BYTES], 0);
        let (mut direction, mut target) = (Direction::new(), Target(usize::MAX, usize::MAX));
        for (expected, calls) in [(true, 1), (true, 2), (false, 2)] {
            assert_eq!(direction.fill(&mut source).expect("no error"), expected);
            assert_eq!(source.1, calls);
            direction.drain(&mut target).expect("no error");
        }
        direction.is_dry = false;
        assert!(!direction.fill(&mut source).expect("no error"));
        assert!(source.1 == 3 && direction.is_dry, "it would wait");
        assert_eq!(direction.total, BUFFER_BYTES as u64 + 10);
    }

    /// All that the target has room for is written at once; the rest waits for an event.
    #[test]
    fn a_target_is_filled_before_an_event_is_waited_for() {
        let mut direction = Direction::new();
        direction.fill(&mut Source(vec![1_000], 0)).expect("no error");
        let mut target = Target(100, 750);
        assert!(direction.drain(&mut target).expect("no error"));
        assert!(direction.written == 750 && direction.is_stuck && direction.is_pending());
        target.1 = 1_000;
        assert!(!direction.drain(&mut target).expect("no error"), "no event has come");
        direction.is_stuck = false;
        assert!(direction.drain(&mut target).expect("no error") && !direction.is_pending());
        assert_eq!(direction.total, 1_000);
    }

    /// The end of a source is passed on behind its last byte, once.
    #[test]
    fn an_end_comes_behind_the_last_byte() {
        let (mut direction, mut source) = (Direction::new(), Source(vec![0, 5], 0));
        direction.fill(&mut source).expect("no error");
        direction.is_dry = false;
        assert!(!direction.is_ending(), "bytes wait");
        direction.drain(&mut Target(5, 5)).expect("no error");
        direction.fill(&mut source).expect("no error");
        assert!(direction.is_ending() && !direction.wants_bytes());
        direction.is_closed = true;
        assert!(!direction.is_ending());
    }
}
