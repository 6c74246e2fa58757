//! Reading from a TCP connection and writing to it.
//!
//! Invariant: the message at the front of the incoming ring stays there until all its bytes were read, so that they can be read
//! in place.

use std::io::{self, BufRead, IoSlice, IoSliceMut, Read, Write};
use std::time::{Duration, Instant};

use punctual_ipc::ring::outgoing::PushError;

use super::Ended;
use super::side::Known;
use super::stream::{TcpStream, error_of, gone};

/// How soon to look again for the reason of an end.
pub(super) const REASON_PAUSE: Duration = Duration::from_millis(1);
/// How long a call that must not wait is given to learn it: a daemon that runs answers within that, and a later answer makes no edge for
/// `epoll`.
const REASON_PATIENCE: Duration = Duration::from_millis(10);
/// How long a write that may wait does so for the reason why its ring is closed.
const REASON_WITHIN: Duration = Duration::from_millis(250);
/// Answers that a connection is over, after which the news of the reason does not come any more: a daemon that answers runs, and tells the
/// news within a turn or two.
const OVER_ANSWERS: u32 = 32;

/// What waiting for bytes has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readable {
    /// Bytes that were not read wait at the front of the ring.
    Bytes,
    /// The end of the stream.
    End,
}

/// Whether a connection has ended.
enum Why {
    /// For this reason.
    Ended(Ended),
    /// It has not.
    GoesOn,
    /// It has, for a reason that is not known.
    Over,
    /// Nothing is known yet.
    Unknown,
}

fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

impl TcpStream {
    /// Copies bytes that wait into `buffer` and leaves them unread; waits for the first as a read does.
    ///
    /// # Errors
    /// Those of a read.
    pub fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let count = buffer.len().min(bytes.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    /// Passes `fill` free memory of the ring that leads to the connection, and sends as many bytes as it returns. Waits for
    /// room as a write does. Returns the number of bytes.
    ///
    /// # Errors
    /// Those of a write.
    pub fn write_with(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> io::Result<usize> {
        self.await_room()?;
        let mut count = 0;
        self.put(|slot| {
            count = fill(slot).min(slot.len());
            count
        })?;
        Ok(count)
    }

    /// Has the handlers called: bytes to send are there, or room for bytes that came.
    fn ready(&self) -> io::Result<()> {
        self.end.ready().map_err(gone)
    }

    /// Looks at the ring without waiting; `None`: nothing waits.
    pub(super) fn poll_readable(&mut self) -> io::Result<Option<Readable>> {
        if self.saw_end {
            return Ok(Some(Readable::End));
        }
        if self.end_seen.is_some() {
            return self.end();
        }
        // Read before the ring: a ring may be filled and closed between two reads.
        let is_closed = self.inbox.is_closed();
        match self.inbox.front().map(<[u8]>::len) {
            // An empty message is the end. It stays there until the reason is known, so that the descriptor stays readable.
            Some(0) => self.end(),
            Some(_) => Ok(Some(Readable::Bytes)),
            None if self.reads_rest => {
                self.saw_end = true;
                Ok(Some(Readable::End))
            }
            None if is_closed => self.end(),
            None => Ok(None),
        }
    }

    fn await_readable(&mut self) -> io::Result<Readable> {
        let until = deadline(self.read_timeout);
        loop {
            if let Some(readable) = self.poll_readable()? {
                return Ok(readable);
            }
            // The end without its reason is none: what was reset must not look whole.
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            if self.awaits_reason() && !self.is_nonblocking && !is_late {
                std::thread::sleep(REASON_PAUSE);
                continue;
            }
            if self.is_nonblocking
                || self.awaits_reason()
                || !self.inbox.wait(until)? && !self.inbox.is_closed()
            {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Whether the end of the stream is known and its reason is not: a moment later it is, without another wake-up.
    pub(super) const fn awaits_reason(&self) -> bool {
        self.end_seen.is_some() && !self.saw_end
    }

    /// The end of the stream: without error if the peer has closed it. `None`: the reason is not known yet. The end is visible
    /// a moment before the news of a reset, and a reset must not look like an end.
    fn end(&mut self) -> io::Result<Option<Readable>> {
        let is_first = self.end_seen.is_none();
        if is_first {
            self.end.ask_anew();
        }
        let answers = *self.end_seen.get_or_insert(0);
        let why = match self.why(if is_first { REASON_PATIENCE } else { REASON_PAUSE })? {
            Why::Ended(why) => Some(why),
            Why::GoesOn => None,
            Why::Over if answers >= OVER_ANSWERS => None,
            Why::Over => {
                self.end_seen = Some(answers + 1);
                return Ok(None);
            }
            Why::Unknown => return Ok(None),
        };
        if self.inbox.front().is_some_and(<[u8]>::is_empty) {
            self.inbox.pop();
        }
        self.saw_end = true;
        match why.filter(|why| *why != Ended::Closed && !self.saw_error) {
            Some(why) => {
                self.saw_error = true;
                Err(error_of(why))
            }
            None => Ok(Some(Readable::End)),
        }
    }

    /// Why the connection has ended, if that is known within `wait`.
    fn why(&mut self, wait: Duration) -> io::Result<Why> {
        if let Some(why) = self.end.ended() {
            return Ok(Why::Ended(why));
        }
        Ok(match self.end.known_within(wait).map_err(gone)? {
            Known::Is(status) => status.ended.map_or(Why::GoesOn, Why::Ended),
            Known::Over => self.end.ended().map_or(Why::Over, Why::Ended),
            Known::Nothing => Why::Unknown,
        })
    }

    /// Looks for room without waiting; `false`: there is none.
    pub(super) fn poll_room(&mut self) -> io::Result<bool> {
        if let Some(why) = self.end.ended() {
            return Err(self.broken(why));
        }
        if self.is_closing {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.outbox.is_closed() {
            let why = self.why_no_room()?;
            return Err(self.broken(why));
        }
        Ok(self.outbox.has_room())
    }

    /// The error of a write to a connection that has ended: the reason once.
    fn broken(&mut self, why: Ended) -> io::Error {
        let is_old = why == Ended::Closed || std::mem::replace(&mut self.saw_error, true);
        if is_old { io::ErrorKind::BrokenPipe.into() } else { error_of(why) }
    }

    /// Why the ring to the connection is closed: the reason comes a moment later.
    fn why_no_room(&mut self) -> io::Result<Ended> {
        let until = Instant::now() + if self.is_nonblocking { REASON_PATIENCE } else { REASON_WITHIN };
        self.end.ask_anew();
        loop {
            match self.why(REASON_PAUSE)? {
                Why::Ended(why) => return Ok(why),
                _ if Instant::now() >= until => return Ok(Ended::Closed),
                _ => std::thread::sleep(REASON_PAUSE),
            }
        }
    }

    fn await_room(&mut self) -> io::Result<()> {
        let until = deadline(self.write_timeout);
        while !self.poll_room()? {
            let is_late = self.is_nonblocking || !self.outbox.wait_room(until)?;
            // A connection that has ended has no room, and says why.
            if is_late && !self.poll_room()? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(())
    }

    /// Puts one message into the ring, which has room, and tells the engine.
    fn put(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> io::Result<()> {
        let is_to_wake = self.put_quietly(fill)?;
        self.tell(is_to_wake)
    }

    /// Puts one message into the ring, which has room; whether an engine in this process is to be told of it.
    fn put_quietly(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> io::Result<bool> {
        let pushed = if self.end.is_remote() {
            self.outbox.fill_quietly(fill).map(|_| false)
        } else {
            self.outbox.fill_beside(fill, punctual_ipc::ring::now())
        };
        pushed.map_err(|error| match error {
            PushError::Full => io::ErrorKind::WouldBlock.into(),
            error => io::Error::new(io::ErrorKind::BrokenPipe, error),
        })
    }

    /// The engine is told of messages if it has seen the ring empty: a daemon by the ring's doorbell.
    fn tell(&self, is_to_wake: bool) -> io::Result<()> {
        if self.end.is_remote() {
            self.outbox.wake_reader();
            return Ok(());
        }
        if is_to_wake { self.ready() } else { Ok(()) }
    }
}

/// Copies as much as fits of `parts` into `slot`, without their first `skip` bytes; returns the number of bytes.
pub(super) fn gather(slot: &mut [u8], mut skip: usize, parts: &[IoSlice<'_>]) -> usize {
    let mut end = 0;
    for part in parts {
        let begin = skip.min(part.len());
        skip -= begin;
        let count = (part.len() - begin).min(slot.len() - end);
        slot[end..end + count].copy_from_slice(&part[begin..begin + count]);
        end += count;
    }
    end
}

impl BufRead for TcpStream {
    /// Bytes that came, in place; empty at the end of the stream.
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.await_readable()? {
            Readable::Bytes => Ok(self.inbox.front().map_or(&[], |message| &message[self.read..])),
            Readable::End => Ok(&[]),
        }
    }

    fn consume(&mut self, count: usize) {
        self.read += count;
        let is_read = self.inbox.front().is_some_and(|message| message.len() <= self.read);
        if count == 0 || !is_read {
            return;
        }
        self.read = 0;
        self.inbox.pop();
        // A daemon is rung by the ring.
        if !self.end.is_remote() && self.inbox.writer_waits() {
            // An error means that the engine is gone: the next read says so.
            let _ = self.ready();
        }
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    /// Reads bytes into several buffers, one after the other: as many as wait and fit.
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut read = 0;
        for buffer in buffers.iter_mut() {
            let mut at = 0;
            while at < buffer.len() {
                // Only the first bytes are waited for.
                let more = if read == 0 {
                    self.await_readable()?
                } else {
                    match self.inbox.front() {
                        Some(message) if !message.is_empty() => Readable::Bytes,
                        _ => return Ok(read),
                    }
                };
                if more == Readable::End {
                    return Ok(read);
                }
                let bytes = self.inbox.front().map_or(&[][..], |message| &message[self.read..]);
                let count = bytes.len().min(buffer.len() - at);
                buffer[at..at + count].copy_from_slice(&bytes[..count]);
                self.consume(count);
                (at, read) = (at + count, read + count);
            }
        }
        Ok(read)
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// Writes several buffers, one after the other: as much as the ring takes. The engine, which precedes this thread, is told
    /// once, of all of it.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes == 0 {
            return Ok(0);
        }
        self.await_room()?;
        let (mut written, mut is_to_wake) = (0, false);
        while written == 0 || written < bytes && !self.outbox.is_full() {
            let mut count = 0;
            let put = self.put_quietly(|slot| {
                count = gather(slot, written, parts);
                count
            });
            match put {
                Ok(wakes) => is_to_wake |= wakes,
                // What went before counts; the next write says why.
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
            written += count;
        }
        self.tell(is_to_wake)?;
        Ok(written)
    }

    /// Does nothing: what is written leaves as soon as the connection may send it.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
