//! A client's connection that a reactor reads. Replies may come from other threads.
//!
//! Nobody waits for a client that does not read: what its socket does not take stays here, and the reactor reads
//! no more of the client's requests before it is sent.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use punctual_giop::{Encoder, message};
use rustix::event::epoll::EventFlags;

use super::bell::Bell;
use crate::counted::Mutex;
use crate::framing::Framing;
use crate::transport::Stream;

/// Bytes that the socket did not take.
#[derive(Debug, Default)]
struct Unsent {
    bytes: Vec<u8>,
    /// How many of them are sent.
    sent: usize,
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub number: u64,
    pub stream: Arc<Stream>,
    framing: Framing,
    unsent: Mutex<Unsent>,
    /// What the reactor waits for.
    awaited: AtomicU32,
}

impl Connection {
    pub fn new(number: u64, stream: Stream, framing: Framing) -> Self {
        Self {
            number,
            stream: Arc::new(stream),
            framing,
            unsent: Mutex::default(),
            awaited: AtomicU32::new(0),
        }
    }

    fn unsent(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message behind the bytes that wait. `false` if some wait now.
    pub fn send(&self, message: &[u8]) -> io::Result<bool> {
        let mut unsent = self.unsent();
        self.framing.each(message, |head, body| {
            self.send_part(&mut unsent, head)?;
            self.send_part(&mut unsent, body)
        })?;
        Ok(unsent.bytes.is_empty())
    }

    /// Sends a reply from any thread. The reactor, which `bell` wakes, sends what the socket does not take.
    pub fn reply(&self, message: &[u8], bell: &Bell) {
        match self.send(message) {
            Ok(true) => {}
            Ok(false) => bell.has_unsent(self.number),
            // The reactor finds its end.
            Err(_) => self.stream.shutdown(),
        }
    }

    fn send_part(&self, unsent: &mut Unsent, bytes: &[u8]) -> io::Result<()> {
        let is_first = unsent.bytes.is_empty();
        let sent = if is_first { self.stream.write_now(bytes)? } else { 0 };
        unsent.bytes.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends bytes that wait. `false` if some are left.
    pub fn flush(&self) -> io::Result<bool> {
        let mut unsent = self.unsent();
        if unsent.bytes.is_empty() {
            return Ok(true);
        }
        let from = unsent.sent;
        unsent.sent += self.stream.write_now(&unsent.bytes[from..])?;
        if unsent.sent < unsent.bytes.len() {
            return Ok(false);
        }
        // The memory is given back: the client may be idle from now on.
        *unsent = Unsent::default();
        Ok(true)
    }

    /// Whether bytes wait.
    pub fn has_unsent(&self) -> bool {
        !self.unsent().bytes.is_empty()
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
