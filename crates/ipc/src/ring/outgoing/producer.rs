//! What both kinds of writers do: they fill the next slot and publish it.

use punctual_analysis::Instant;
use thiserror::Error;

use super::{SENT_AT, SLOT_HEADER_BYTES, slot_offset};
use crate::ring::{Other, Own, RingShape};
use crate::shm::{Region, View};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Why the application's message did not go into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PushError {
    /// The ring has no room: wait or try again.
    #[error("the ring is full")]
    Full,
    /// Longer than the ring's messages.
    #[error("message of {bytes} B is longer than the contract's {bytes_max} B")]
    TooLong {
        /// Length of the message in bytes.
        bytes: usize,
        /// Longest message that fits, in bytes.
        bytes_max: u32,
    },
    /// The daemon has closed the ring.
    #[error("the channel is closed")]
    Closed,
}

/// The slots that a writer fills, and the reader's memory.
#[derive(Debug)]
pub(super) struct Producer {
    pub(super) region: Region,
    pub(super) reader: Arc<View>,
    pub(super) shape: RingShape,
    pub(super) produced: u64,
}

impl Producer {
    pub(super) fn new(region: Region, reader: View, shape: RingShape) -> Self {
        Self { region, reader: Arc::new(reader), shape, produced: 0 }
    }

    /// Messages in the ring that the link has not sent.
    pub(super) fn outstanding(&self) -> u64 {
        self.produced.wrapping_sub(Other(&self.reader).position())
    }

    pub(super) fn is_full(&self) -> bool {
        self.outstanding() >= u64::from(self.shape.slots)
    }

    /// Passes `fill` the next slot of a ring that is not full, and publishes as many bytes as it returns, as a message that
    /// counts as sent at `at` (`None`: now).
    pub(super) fn put(
        &mut self,
        at: Option<Instant>,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<u64, PushError> {
        let offset = slot_offset(self.shape, self.produced);
        let bytes_max = self.shape.message_bytes_max;
        // SAFETY: the slot is free (its position is at least `slots` behind the consumer's), and the reader
        // does not touch a slot before the producer position has passed it; `&mut self` excludes others here.
        let slot = unsafe { self.region.bytes_mut(offset + SLOT_HEADER_BYTES, bytes_max as usize) };
        let bytes = fill(slot);
        let len = u32::try_from(bytes).ok().filter(|len| *len <= bytes_max);
        let len = len.ok_or(PushError::TooLong { bytes, bytes_max })?;
        self.region.half(offset).store(len, Ordering::Relaxed);
        self.region.word(offset + SENT_AT).store(at.unwrap_or_else(crate::ring::now).0, Ordering::Relaxed);
        self.produced += 1;
        Own(&self.region).position().store(self.produced, Ordering::SeqCst);
        Ok(self.produced - 1)
    }
}
