//! An outgoing ring within one process whose writer never waits: memory of the process, and no descriptor.

use punctual_analysis::Instant;

use super::producer::Producer;
use super::{OutboxReader, PushError};
use crate::ring::counters::DAEMON_HEADER_BYTES;
use crate::ring::{ProgramMemory, RingError, RingShape};
use crate::shm::Region;
use crate::wake::Alarm;

/// Makes a ring between two threads of this process. `alarm` rings if the writer breaks the ring.
///
/// # Errors
/// If the ring is too large.
pub fn local_outbox(shape: RingShape, alarm: &Alarm) -> Result<(OutboxReader, LocalWriter), RingError> {
    let (region, readers) = Region::private(DAEMON_HEADER_BYTES as u64)?;
    let (slots, written) = Region::private(shape.file_bytes())?;
    let reader = OutboxReader::new(shape, (region, ProgramMemory::accepted(written)), None, alarm);
    Ok((reader, LocalWriter(Producer::new(slots, readers, shape))))
}

/// The writer of such a ring. It wakes nobody: who writes knows who is to look.
#[derive(Debug)]
pub struct LocalWriter(Producer);

impl LocalWriter {
    /// Whether there is no room for another message.
    pub fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// Puts one message together from parts. It counts as sent at `at`, a time in the past.
    ///
    /// # Errors
    /// If the ring is full, or the message is longer than the ring's.
    pub fn push(&mut self, parts: &[&[u8]], at: Instant) -> Result<(), PushError> {
        let (bytes, bytes_max) = (parts.iter().map(|part| part.len()).sum(), self.0.shape.message_bytes_max);
        if bytes > bytes_max as usize {
            return Err(PushError::TooLong { bytes, bytes_max });
        }
        if self.is_full() {
            return Err(PushError::Full);
        }
        self.0.put(Some(at), |slot| {
            let mut end = 0;
            for part in parts {
                slot[end..end + part.len()].copy_from_slice(part);
                end += part.len();
            }
            bytes
        })?;
        Ok(())
    }
}
