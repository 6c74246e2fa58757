//! Messages of one stream, one by one, in a buffer that is used again.
//!
//! Invariants: the present message begins at the buffer's begin, which is aligned for all numbers; bytes behind
//! it belong to later messages. Memory is taken as bytes come, never for what a header only says. Fragments are
//! joined here. A fragment for which the messages in pieces have no room is refused by its header. So a stream
//! holds at most twice the bytes of the longest message: a message in pieces, and its last fragment. What clients
//! hold together is counted by their accounts.
//!
//! A message that has begun must go on: what the other side owes has a deadline, so that half a message, or
//! fragments without end, hold no thread and no memory for ever.

mod cancelled;

use std::io;
use std::time::{Duration, Instant};

use punctual_giop::message::{Header, MessageType};
use punctual_giop::reassembly::{Joined, Pushed, Reassembly, Whole};

use crate::budget::{Account, HeldMessage, large_bytes};
use crate::duty::work_until_readable;
use crate::framing::Framing;
use crate::limits::{
    BYTES_AHEAD_MAX, IDLE_BUFFER_BYTES, LARGE_BUFFER_BYTES, LARGE_BUFFER_TIME, PARTIAL_MAX,
    SMALL_MESSAGES_MAX,
};
use crate::owed::Owed;
use crate::transport::{Deadline, Stream, is_close, left};

/// What is read of a stream.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    /// Where the present message ends.
    end: usize,
    /// A message that was joined of fragments, instead of the present one.
    joined: Option<Joined>,
    partial: Reassembly,
    framing: Framing,
    /// The rest of a message that has begun.
    owed: Owed,
    /// The timeout that the socket has.
    timeout: Option<Duration>,
    small_messages: u32,
    /// Who counts its memory: nobody that of a server, which this ORB has chosen.
    account: Option<Account>,
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Inbox {
    pub fn new(framing: Framing) -> Self {
        Self {
            bytes: Vec::new(),
            end: 0,
            joined: None,
            partial: Reassembly::new(framing.message_bytes_max, PARTIAL_MAX),
            framing,
            owed: Owed::default(),
            timeout: None,
            small_messages: 0,
            account: None,
        }
    }

    /// That of a client.
    pub fn of_client(framing: Framing, account: Account) -> Self {
        Self { account: Some(account), ..Self::new(framing) }
    }

    /// The present message.
    pub fn message(&self) -> Whole<'_> {
        match &self.joined {
            Some(joined) => joined.whole(),
            None => self.bytes[..self.end].into(),
        }
    }

    /// Whether the connection was ended because others needed its memory.
    pub fn is_ended(&self) -> bool {
        self.account.as_ref().is_some_and(Account::is_ended)
    }

    /// The present message, which is not here any more.
    pub fn take_message(&mut self) -> HeldMessage {
        let (message, bytes) = match self.joined.take() {
            Some(joined) => {
                let bytes = joined.whole().bytes.len();
                (joined, bytes)
            }
            None => {
                let behind = self.bytes.split_off(self.end);
                self.end = 0;
                let bytes = std::mem::replace(&mut self.bytes, behind);
                let large = large_bytes(bytes.capacity());
                (bytes.into(), large)
            }
        };
        match &mut self.account {
            Some(account) => account.take(message, bytes),
            None => message.into(),
        }
    }

    /// Nothing is there for now: gives back the memory of a long message.
    pub fn rest(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > IDLE_BUFFER_BYTES {
            self.bytes = Vec::new();
            self.count_less();
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
            // Its client may be idle for long.
            let may_rest = self.account.is_some() && self.is_between() && self.is_large();
            let until = match self.owed() {
                _ if may_rest => Some(Instant::now() + LARGE_BUFFER_TIME),
                None => deadline,
                Some(owed) => Some(deadline.map_or(owed, |deadline| deadline.min(owed))),
            };
            work_until_readable(stream, until)?;
            self.wait(stream, until)?;
            match stream.read(&mut self.bytes).map_err(timed_out) {
                Ok(0) => return self.ended(),
                Ok(read) => self.progress(read),
                Err(error) if may_rest && error.kind() == io::ErrorKind::TimedOut => self.rest(),
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`Inbox::next`], but does not wait: `None` if the message is not there yet. The caller wakes at
    /// [`Inbox::owed`].
    pub fn poll(&mut self, stream: &Stream) -> io::Result<Option<bool>> {
        loop {
            if self.take()? {
                return Ok(Some(true));
            }
            match stream.read_now(&mut self.bytes) {
                Ok(0) => return self.ended().map(Some),
                Ok(read) => self.progress(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_over = self.owed().is_some_and(|owed| owed <= Instant::now());
                    return if is_over { Err(io::ErrorKind::TimedOut.into()) } else { Ok(None) };
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether more than the present message is there, or a part of it.
    pub fn has_more(&self) -> bool {
        self.bytes.len() > self.end || !self.partial.is_empty()
    }

    fn is_large(&self) -> bool {
        self.bytes.capacity() > LARGE_BUFFER_BYTES
    }

    fn progress(&mut self, bytes: usize) {
        self.owed.progress(bytes);
        self.account.iter().for_each(Account::moved);
    }

    /// Whether nothing of a message is there.
    fn is_between(&self) -> bool {
        self.bytes.is_empty() && self.partial.is_empty()
    }

    fn ended(&self) -> io::Result<bool> {
        if self.is_between() { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// By when more of the message that has begun must be there. Asked when all bytes that are there were taken.
    pub fn owed(&mut self) -> Deadline {
        if self.is_between() {
            self.owed.is_paid();
            return None;
        }
        self.owed.until(self.framing.message_time)
    }

    /// Makes the next message the present one, if it is there; else makes room for its bytes.
    fn take(&mut self) -> io::Result<bool> {
        self.joined = None;
        self.forget();
        self.count_less();
        let is_there = self.find()?;
        let is_unfinished = !is_there && !self.is_between();
        self.account.iter().for_each(|account| account.set_unfinished(is_unfinished));
        Ok(is_there)
    }

    fn find(&mut self) -> io::Result<bool> {
        loop {
            let Some((header, _)) = self.bytes.split_first_chunk() else {
                self.room(Header::BYTES)?;
                return Ok(false);
            };
            let header = Header::parse(header).map_err(invalid)?;
            let bytes = header.message_bytes(self.framing.message_bytes_max).map_err(invalid)?;
            self.partial.admit(&header).map_err(invalid)?;
            if self.bytes.len() < bytes {
                self.room(bytes)?;
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
    fn room(&mut self, bytes: usize) -> io::Result<()> {
        let (length, capacity) = (self.bytes.len(), self.bytes.capacity());
        let ahead = (bytes - length).min(BYTES_AHEAD_MAX.max(length));
        // A large message is read on while a part of its room is free.
        if capacity - length >= ahead.min(IDLE_BUFFER_BYTES.max(length / 4)) {
            return Ok(());
        }
        let ahead = if capacity == 0 { ahead.max(IDLE_BUFFER_BYTES) } else { ahead };
        self.count(length + ahead)?;
        self.bytes.reserve_exact(ahead);
        Ok(())
    }

    /// Counts what is here, with a buffer of this capacity.
    fn count(&mut self, capacity: usize) -> io::Result<()> {
        let joined = self.joined.as_ref().map_or(0, |joined| joined.whole().bytes.len());
        let held = large_bytes(capacity) + self.partial.held_bytes() + joined;
        self.account.as_mut().map_or(Ok(()), |account| account.set(held))
    }

    /// Counts what is here, which is not more than before.
    fn count_less(&mut self) {
        let _ = self.count(self.bytes.capacity());
    }

    /// Takes the message or fragment that is there. `true` if a message is whole, and the present one.
    fn join(&mut self, header: &Header) -> io::Result<bool> {
        let is_whole = match self.partial.push(header, &self.bytes[..self.end]).map_err(invalid)? {
            Pushed::Whole => {
                if header.kind == MessageType::CancelRequest {
                    self.cancel(header);
                }
                true
            }
            Pushed::Kept => false,
            Pushed::Completed(whole) => {
                self.joined = Some(whole);
                true
            }
        };
        self.count(self.bytes.capacity())?;
        Ok(is_whole)
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
