//! Messages of one stream, one by one, in a buffer that is used again.
//!
//! Invariants: the present message begins at the buffer's begin, which is aligned for all numbers; bytes behind
//! it belong to later messages. Memory is taken as bytes come, never for what a header only says. Fragments are
//! joined here; at most [`PARTIAL_MAX`] messages wait for theirs.

use std::io;
use std::time::Duration;

use punctual_giop::message::Header;
use punctual_giop::reassembly::{Pushed, Reassembly};

use crate::limits::{BYTES_AHEAD_MAX, IDLE_BUFFER_BYTES};
use crate::server::serve_until_readable;
use crate::transport::{Deadline, Stream, is_close, left};

/// Messages of one stream that wait for more fragments.
const PARTIAL_MAX: usize = 16;

/// How often a much smaller message must come before memory is given back.
const SMALL_MESSAGES_MAX: u32 = 64;

/// What is read of a stream.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    /// Where the present message ends.
    end: usize,
    /// A message that was joined of fragments, instead of the present one.
    joined: Option<Vec<u8>>,
    partial: Reassembly,
    message_bytes_max: usize,
    /// The timeout that the socket has.
    timeout: Option<Duration>,
    small_messages: u32,
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Inbox {
    pub fn new(message_bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            end: 0,
            joined: None,
            partial: Reassembly::new(message_bytes_max, PARTIAL_MAX),
            message_bytes_max,
            timeout: None,
            small_messages: 0,
        }
    }

    /// The present message.
    pub fn message(&self) -> &[u8] {
        self.joined.as_deref().unwrap_or(&self.bytes[..self.end])
    }

    /// The present message, which is not here any more.
    pub fn take_message(&mut self) -> Vec<u8> {
        if let Some(joined) = self.joined.take() {
            return joined;
        }
        let behind = self.bytes.split_off(self.end);
        self.end = 0;
        std::mem::replace(&mut self.bytes, behind)
    }

    /// Nothing is there for now: gives back the memory of a long message.
    pub fn rest(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > IDLE_BUFFER_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Waits for the next message. `false` if the stream has ended between two.
    ///
    /// # Errors
    /// `InvalidData` if the bytes are no messages; `TimedOut`; those of the stream.
    pub fn next(&mut self, stream: &Stream, deadline: Deadline) -> io::Result<bool> {
        loop {
            if self.take()? {
                return Ok(true);
            }
            serve_until_readable(stream, deadline)?;
            self.wait(stream, deadline)?;
            if stream.read(&mut self.bytes).map_err(timed_out)? == 0 {
                let is_between = self.bytes.is_empty() && self.partial.is_empty();
                return if is_between { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// As [`Inbox::next`], but does not wait: `None` if the message is not there yet.
    pub fn poll(&mut self, stream: &Stream) -> io::Result<Option<bool>> {
        loop {
            if self.take()? {
                return Ok(Some(true));
            }
            match stream.read_now(&mut self.bytes) {
                Ok(0) => return Ok(Some(false)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the next message the present one, if it is there; else makes room for its bytes.
    fn take(&mut self) -> io::Result<bool> {
        self.joined = None;
        self.forget();
        loop {
            let Some((header, _)) = self.bytes.split_first_chunk() else {
                self.room(Header::BYTES);
                return Ok(false);
            };
            let header = Header::parse(header).map_err(invalid)?;
            let bytes = header.message_bytes(self.message_bytes_max).map_err(invalid)?;
            if self.bytes.len() < bytes {
                self.room(bytes);
                return Ok(false);
            }
            self.end = bytes;
            if self.join(&header)? {
                return Ok(true);
            }
            self.forget();
        }
    }

    /// Removes the present message. What is behind it moves to the begin.
    fn forget(&mut self) {
        let rest = self.bytes.len() - self.end;
        if self.end > 0 {
            self.bytes.copy_within(self.end.., 0);
            self.bytes.truncate(rest);
        }
        if self.bytes.capacity() > IDLE_BUFFER_BYTES && self.end > 0 {
            self.small_messages =
                if self.end * 4 < self.bytes.capacity() { self.small_messages + 1 } else { 0 };
            if self.small_messages > SMALL_MESSAGES_MAX {
                self.bytes.shrink_to(IDLE_BUFFER_BYTES);
                self.small_messages = 0;
            }
        }
        self.end = 0;
    }

    /// Room for a message of so many bytes, or for a part of it as large as what is there.
    fn room(&mut self, bytes: usize) {
        let ahead = (bytes - self.bytes.len()).min(BYTES_AHEAD_MAX.max(self.bytes.len()));
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(ahead.max(IDLE_BUFFER_BYTES));
        }
        if self.bytes.capacity() - self.bytes.len() < ahead {
            self.bytes.reserve_exact(ahead);
        }
    }

    /// Takes the message or fragment that is there. `true` if a message is whole, and the present one.
    fn join(&mut self, header: &Header) -> io::Result<bool> {
        match self.partial.push(header, &self.bytes[..self.end]).map_err(invalid)? {
            Pushed::Whole => Ok(true),
            Pushed::Kept => Ok(false),
            Pushed::Completed(whole) => {
                self.joined = Some(whole);
                Ok(true)
            }
        }
    }

    /// Sets the socket's timeout if it is another one, and is over at the deadline.
    fn wait(&mut self, stream: &Stream, deadline: Deadline) -> io::Result<()> {
        let left = left(deadline)?;
        if !is_close(self.timeout, left) {
            stream.set_read_timeout(left)?;
            self.timeout = left;
        }
        Ok(())
    }
}

/// A socket's timeout looks as if it did not block.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}
