//! A client's connection that a reactor reads. Replies may come from other threads.
//!
//! Nobody waits for a client that does not read: what its socket does not take stays here, and the reactor reads
//! no more of the client's requests before it is sent. Replies to earlier requests may still come. What stays here
//! is counted with what all clients hold, and must go on: else the connection ends.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use punctual_giop::{Encoder, message};
use rustix::event::epoll::EventFlags;

use super::bell::Bell;
use crate::budget::{Account, Budget};
use crate::counted::Mutex;
use crate::framing::Framing;
use crate::owed::Owed;
use crate::transport::{Deadline, Stream};

/// Bytes that the socket did not take.
#[derive(Debug)]
struct Unsent {
    bytes: Vec<u8>,
    /// How many of them are sent.
    sent: usize,
    account: Account,
    owed: Owed,
}

impl Unsent {
    fn new(account: Account) -> Self {
        Self { bytes: Vec::new(), sent: 0, account, owed: Owed::default() }
    }

    /// Keeps more bytes.
    ///
    /// # Errors
    /// `OutOfMemory` if the client may not have them.
    fn append(&mut self, more: &[u8]) -> io::Result<()> {
        let needed = self.bytes.len() + more.len();
        if needed > self.bytes.capacity() {
            let capacity = needed.max(self.bytes.len() / 2 * 3);
            self.account.set(capacity)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    /// The socket has taken more bytes.
    fn progress(&mut self, sent: usize) {
        self.sent += sent;
        self.owed.progress(sent);
        if sent > 0 {
            self.account.moved();
        }
    }

    fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub number: u64,
    pub stream: Arc<Stream>,
    framing: Framing,
    budget: Arc<Budget>,
    unsent: Mutex<Option<Box<Unsent>>>,
    /// What the reactor waits for.
    awaited: AtomicU32,
}

impl Connection {
    pub fn new(number: u64, stream: Stream, framing: Framing, budget: &Arc<Budget>) -> Self {
        Self {
            number,
            stream: Arc::new(stream),
            framing,
            budget: Arc::clone(budget),
            unsent: Mutex::default(),
            awaited: AtomicU32::new(0),
        }
    }

    fn unsent(&self) -> MutexGuard<'_, Option<Box<Unsent>>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message behind the bytes that wait. `false` if some wait now. Without success the connection has ended.
    pub fn send(&self, message: &[u8]) -> io::Result<bool> {
        let mut unsent = self.unsent();
        let sent = self.framing.each(message, |head, body| {
            self.send_part(&mut unsent, head)?;
            self.send_part(&mut unsent, body)
        });
        if let Err(error) = sent {
            // A part of the message may be sent: nothing may follow.
            self.stream.shutdown();
            *unsent = None;
            return Err(error);
        }
        Ok(unsent.is_none())
    }

    /// Sends a reply from any thread. The reactor, which `bell` wakes, sends what the socket does not take, and finds the end
    /// of the connection.
    pub fn reply(&self, message: &[u8], bell: &Bell) {
        if let Ok(false) = self.send(message) {
            bell.has_unsent(self.number);
        }
    }

    fn send_part(&self, unsent: &mut Option<Box<Unsent>>, bytes: &[u8]) -> io::Result<()> {
        let sent = if unsent.is_none() { self.stream.write_now(bytes)? } else { 0 };
        if sent == bytes.len() {
            return Ok(());
        }
        let new = || Box::new(Unsent::new(Account::new(&self.budget, &self.stream)));
        unsent.get_or_insert_with(new).append(&bytes[sent..])
    }

    /// Sends bytes that wait. `false` if some are left.
    pub fn flush(&self) -> io::Result<bool> {
        let mut unsent = self.unsent();
        if let Some(waiting) = unsent.as_mut() {
            let sent = self.stream.write_now(&waiting.bytes[waiting.sent..])?;
            waiting.progress(sent);
            if !waiting.is_sent() {
                return Ok(false);
            }
        }
        // The memory is given back: the client may be idle from now on.
        *unsent = None;
        Ok(true)
    }

    /// Whether bytes wait.
    pub fn has_unsent(&self) -> bool {
        self.unsent().is_some()
    }

    /// By when the client must have taken more of the bytes that wait, if some do.
    pub fn owed(&self) -> Deadline {
        self.unsent().as_mut()?.owed.until(self.framing.message_time)
    }

    /// Whether it was ended because others needed the memory of its replies.
    pub fn is_ended(&self) -> bool {
        self.unsent().as_ref().is_some_and(|unsent| unsent.account.is_ended())
    }

    /// Ends it; its client learns that it may repeat its requests elsewhere.
    pub fn close(&self, outbox: &mut Encoder) {
        outbox.clear();
        if message::write_close_connection(outbox).is_ok() {
            // A client that does not read, or is gone, needs no goodbye.
            let _ = self.send(outbox.as_bytes());
        }
        self.stream.shutdown();
    }

    /// What the reactor waits for.
    pub fn awaited(&self) -> EventFlags {
        EventFlags::from_bits_retain(self.awaited.load(Ordering::Relaxed))
    }

    pub fn set_awaited(&self, flags: EventFlags) {
        self.awaited.store(flags.bits(), Ordering::Relaxed);
    }
}
