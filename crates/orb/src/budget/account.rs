//! What one connection uses, and messages that were taken out of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use punctual_giop::reassembly::{Joined, Whole};

use super::{Budget, Share, now};
use crate::limits::IDLE_BUFFER_BYTES;
use crate::transport::Stream;

/// What counts of a buffer: small ones do not.
pub(crate) fn large_bytes(capacity: usize) -> usize {
    capacity.saturating_sub(IDLE_BUFFER_BYTES)
}

/// The account of one client's connection: of what it sends, or of what it is to read.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<Budget>,
    stream: Arc<Stream>,
    pub(super) share: Option<(u64, Arc<Share>)>,
    /// What the connection has. The share has less if the connection is to end.
    bytes: usize,
}

impl Account {
    pub fn new(budget: &Arc<Budget>, stream: &Arc<Stream>) -> Self {
        Self { budget: Arc::clone(budget), stream: Arc::clone(stream), share: None, bytes: 0 }
    }

    /// The connection has so many bytes from now on.
    ///
    /// # Errors
    /// `OutOfMemory` if it may not have them: it is to end.
    pub fn set(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > self.bytes {
            self.grow(bytes - self.bytes)?;
        } else if bytes < self.bytes {
            let given = self.remove(self.bytes - bytes);
            self.budget.give_back(given);
        }
        self.bytes = bytes;
        if bytes == 0 {
            self.end_share();
        }
        Ok(())
    }

    fn grow(&mut self, more: usize) -> io::Result<()> {
        let (number, share) = self.share.get_or_insert_with(|| self.budget.begin_share(&self.stream));
        while !self.budget.take(more) {
            if share.is_ended.load(Ordering::Acquire) || !self.budget.end_slowest(*number, share, more) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        share.bytes.fetch_add(more, Ordering::AcqRel);
        Ok(())
    }

    /// Takes bytes out of the share: as many as it has.
    fn remove(&self, bytes: usize) -> usize {
        self.share.as_ref().map_or(0, |(_, share)| take_out(&share.bytes, bytes))
    }

    /// This message is not the connection's any more.
    pub fn take(&mut self, message: Joined, bytes: usize) -> HeldMessage {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let used = self.remove(bytes);
        let ending = self.share.as_ref().map_or(0, |(_, share)| take_out(&share.ending, bytes - used));
        HeldMessage { message, counted: Some(Counted { budget: Arc::clone(&self.budget), used, ending }) }
    }

    /// Bytes have come, or were taken.
    pub fn moved(&self) {
        if let Some((_, share)) = &self.share {
            share.moved.store(now(), Ordering::Relaxed);
        }
    }

    /// Whether a message has begun that is not there yet.
    pub fn set_unfinished(&self, is_unfinished: bool) {
        if let Some((_, share)) = &self.share {
            share.is_unfinished.store(is_unfinished, Ordering::Release);
        }
    }

    /// Whether the connection was ended for others.
    pub fn is_ended(&self) -> bool {
        self.share.as_ref().is_some_and(|(_, share)| share.is_ended.load(Ordering::Acquire))
    }

    fn end_share(&mut self) {
        if let Some((number, share)) = self.share.take() {
            self.budget.end_share(number, &share);
        }
    }
}

fn take_out(from: &AtomicUsize, bytes: usize) -> usize {
    let less = |had: usize| Some(had.saturating_sub(bytes));
    from.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).unwrap_or_default().min(bytes)
}

impl Drop for Account {
    fn drop(&mut self) {
        self.end_share();
    }
}

/// What is counted for a message.
#[derive(Debug)]
struct Counted {
    budget: Arc<Budget>,
    used: usize,
    ending: usize,
}

/// A whole message that was taken out of its connection.
#[derive(Debug)]
pub(crate) struct HeldMessage {
    message: Joined,
    counted: Option<Counted>,
}

impl From<Joined> for HeldMessage {
    /// Nobody counts it.
    fn from(message: Joined) -> Self {
        Self { message, counted: None }
    }
}

impl HeldMessage {
    pub fn whole(&self) -> Whole<'_> {
        self.message.whole()
    }
}

impl Drop for HeldMessage {
    fn drop(&mut self) {
        if let Some(Counted { budget, used, ending }) = &self.counted {
            budget.give_back(*used);
            budget.has_freed(*ending);
        }
    }
}
