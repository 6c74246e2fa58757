//! Outgoing rings within one process: memory of the process, and a bell if the writer waits, or else no descriptor.

use punctual_analysis::Instant;

use super::producer::Producer;
use super::{OutboxReader, OutboxWriter, PushError};
use crate::ring::counters::DAEMON_HEADER_BYTES;
use crate::ring::{ProgramMemory, RingError, RingShape};
use crate::shm::Region;
use crate::wake::{Alarm, Bell, BellHandle, Doorbell};

/// Makes a ring between two threads of this process whose writer never waits. `alarm` rings if the writer breaks the ring.
///
/// # Errors
/// If the ring is too large.
pub fn local_outbox(shape: RingShape, alarm: &Alarm) -> Result<(OutboxReader, LocalWriter), RingError> {
    let (reader, producer) = within(shape, None, alarm)?;
    Ok((reader, LocalWriter(producer)))
}

/// Makes a ring between two threads of this process whose writer may wait for room: one descriptor. Its memory is the process' own, so
/// after a `fork` each page is copied at its next write, as all of the heap is. The writer's doorbell is none: the
/// reader is told of messages in another way. `alarm` rings if the writer breaks the ring.
///
/// # Errors
/// If the ring is too large, or descriptors run out.
pub fn outbox_within(shape: RingShape, alarm: &Alarm) -> Result<(OutboxReader, OutboxWriter), RingError> {
    let (bell, handle) = Bell::within()?;
    bell.ring();
    let (reader, producer) = within(shape, Some(handle), alarm)?;
    Ok((reader, OutboxWriter::new(producer, Doorbell::none(), bell)))
}

fn within(
    shape: RingShape,
    bell: Option<BellHandle>,
    alarm: &Alarm,
) -> Result<(OutboxReader, Producer), RingError> {
    let (region, readers) = Region::private(DAEMON_HEADER_BYTES as u64)?;
    let (slots, written) = Region::private(shape.file_bytes())?;
    let reader = OutboxReader::new(shape, (region, ProgramMemory::accepted(written)), bell, alarm);
    Ok((reader, Producer::new(slots, readers, shape)))
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

#[cfg(test)]
mod tests {
    use punctual_proto::memory::{MessageRead, Outbox};

    use super::*;
    use crate::ring::now;

    fn ring(slots: u32) -> (OutboxReader, LocalWriter) {
        let shape = RingShape::new(slots, 10).expect("a shape");
        local_outbox(shape, &Alarm::new().expect("an eventfd")).expect("a ring")
    }

    fn take(reader: &mut OutboxReader) -> Option<(Vec<u8>, super::super::OutboxMessage)> {
        let (message, _) = reader.take(now())?;
        let mut bytes = vec![0; message.len() as usize];
        message.copy_to(0, &mut bytes);
        Some((bytes, message))
    }

    /// What is put in comes out, whole and in order, however often the ring goes around; a slot is free again when its message was
    /// dropped.
    #[test]
    fn messages_come_out_whole_and_in_order() {
        let (mut reader, mut writer) = ring(3);
        let (mut put, mut held) = (0_u8, Vec::new());
        for round in 0..50_usize {
            while !writer.is_full() {
                writer.push(&[&[put; 4], &[], &[put + 1; 5]], now()).expect("there is room");
                put += 1;
            }
            assert_eq!(writer.push(&[&[0]], now()), Err(PushError::Full));
            for _ in 0..=round % 3 {
                let first = put - 3 + held.len() as u8;
                let (bytes, message) = take(&mut reader).expect("a message");
                assert_eq!(bytes, [vec![first; 4], vec![first + 1; 5]].concat());
                held.push(message);
            }
            assert!(writer.is_full(), "they are in use");
            held.clear();
            assert!(!writer.is_full() && !reader.is_broken());
        }
    }

    #[test]
    fn a_message_that_is_too_long_changes_nothing() {
        let (mut reader, mut writer) = ring(1);
        let error = PushError::TooLong { bytes: 11, bytes_max: 10 };
        assert_eq!(writer.push(&[&[1; 6], &[1; 5]], now()), Err(error));
        assert!(take(&mut reader).is_none() && !writer.is_full());
    }

    /// Either end may go first, and a message may outlive both.
    #[test]
    fn the_memory_stays_for_the_last_holder() {
        let (mut reader, mut writer) = ring(2);
        writer.push(&[b"first"], now()).expect("there is room");
        drop(writer);
        let (bytes, message) = take(&mut reader).expect("a message");
        let health = reader.health();
        drop(reader);
        let mut again = [0; 5];
        message.copy_to(0, &mut again);
        assert_eq!((&bytes[..], &again), (&b"first"[..], b"first"));
        assert!(!health.is_alone());
        drop(message);
        assert!(health.is_alone());
    }
}
