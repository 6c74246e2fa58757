//! The application's end of an outgoing ring.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant as Deadline;

use punctual_analysis::Instant;

use super::producer::{Producer, PushError};
use crate::ring::counters::{CountersReader, DAEMON_HEADER_BYTES};
use crate::ring::{Other, Own, RingCloser, RingError, RingHandles, RingShape};
use crate::shm::{Region, View};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wake::{self, Answered, Bell, Doorbell};

/// The application's end.
#[derive(Debug)]
pub struct OutboxWriter {
    producer: Producer,
    doorbell: Doorbell,
    answered: Answered,
    bell: Bell,
    /// The daemon is.
    gone: Arc<AtomicBool>,
}

impl OutboxWriter {
    /// Attaches to a ring that the daemon made, and seals the file that this end writes. The caller must then
    /// notify the daemon.
    ///
    /// # Errors
    /// If the handles are not those of an outgoing ring.
    pub fn attach(handles: RingHandles) -> Result<Self, RingError> {
        let count = handles.descriptors.len();
        let [file, own, bell, doorbell] =
            <[OwnedFd; 4]>::try_from(handles.descriptors).map_err(|_| RingError::Descriptors(count))?;
        let shape = RingShape::new(handles.shape.slots, handles.shape.message_bytes_max)?;
        let daemon = View::open(file, DAEMON_HEADER_BYTES as u64)?;
        let producer = Producer::new(Region::take(own, shape.file_bytes())?, daemon, shape);
        Ok(Self::new(producer, Doorbell::new(doorbell), Bell::new(bell)))
    }

    pub(super) fn new(producer: Producer, doorbell: Doorbell, bell: Bell) -> Self {
        let (answered, gone) = (Answered::default(), Arc::new(AtomicBool::new(false)));
        Self { producer, doorbell, answered, bell, gone }
    }

    /// The ring's geometry.
    pub fn shape(&self) -> RingShape {
        self.producer.shape
    }

    /// The ring's doorbell, for a ring in the other direction that the same reader serves.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn doorbell(&self) -> io::Result<Doorbell> {
        self.doorbell.try_clone()
    }

    /// A reader of the channel's counters, which needs no request.
    pub fn counters(&self) -> CountersReader {
        CountersReader::new(&self.producer.reader, &self.gone, false)
    }

    /// What closes this end from within the process.
    pub fn closer(&self) -> RingCloser {
        RingCloser { gone: Arc::clone(&self.gone), bell: self.bell.clone() }
    }

    /// Whether the daemon has closed the ring.
    pub fn is_closed(&self) -> bool {
        Other(&self.producer.reader).is_closed() || self.gone.load(Ordering::SeqCst)
    }

    /// Messages in the ring that the link has not sent.
    pub fn outstanding(&self) -> u64 {
        self.producer.outstanding()
    }

    /// Position of the message that was published last.
    pub fn last_position(&self) -> Option<u64> {
        self.producer.produced.checked_sub(1)
    }

    /// Whether the link has sent the message at this position.
    pub fn is_sent(&self, position: u64) -> bool {
        Other(&self.producer.reader).position() > position
    }

    /// Whether there is no room for another message.
    pub fn is_full(&self) -> bool {
        self.producer.is_full()
    }

    /// Whether there is room for another message. If not, the bell rings as soon as there is.
    pub fn has_room(&self) -> bool {
        !self.is_full() || self.arm_for_room()
    }

    /// Passes `fill` the next slot (as long as the longest message) and publishes as many bytes as it
    /// returns. Returns the message's position.
    ///
    /// # Errors
    /// See [`PushError`]; if the ring is full, the bell rings as soon as there is room.
    pub fn fill(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> Result<u64, PushError> {
        self.fill_at(None, fill).inspect(|_| self.wake_reader())
    }

    /// Does what [`Self::fill`] does, and leaves the reader asleep: one [`Self::wake_reader`] may follow several messages.
    ///
    /// # Errors
    /// See [`Self::fill`].
    pub fn fill_quietly(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> Result<u64, PushError> {
        self.fill_at(None, fill)
    }

    /// Wakes the reader if it has seen the ring empty since it was last woken.
    pub fn wake_reader(&self) {
        if self.answered.must_wake(Other(&self.producer.reader).ticket()) {
            self.doorbell.ring();
        }
    }

    /// Does what [`Self::fill`] does, for a message that counts as sent at `at` (`None`: when it is in the
    /// ring), and wakes no thread.
    fn fill_at(
        &mut self,
        at: Option<Instant>,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<u64, PushError> {
        if self.is_closed() {
            return Err(PushError::Closed);
        }
        if !self.has_room() {
            return Err(PushError::Full);
        }
        self.producer.put(at, fill)
    }

    /// Does what [`OutboxWriter::push`] does, on the thread of the ring's other end, and wakes no thread.
    /// Returns `true` if the reader of the ring must be notified to check it. The message counts as sent at
    /// `at`, a time in the past.
    ///
    /// # Errors
    /// See [`OutboxWriter::fill`].
    pub fn push_beside(&mut self, message: &[u8], at: Instant) -> Result<bool, PushError> {
        self.push_at(Some(at), &[IoSlice::new(message)])?;
        Ok(self.answered.must_wake(Other(&self.producer.reader).ticket()))
    }

    /// Does what [`OutboxWriter::fill`] does, as [`OutboxWriter::push_beside`].
    ///
    /// # Errors
    /// See [`OutboxWriter::fill`].
    pub fn fill_beside(
        &mut self,
        fill: impl FnOnce(&mut [u8]) -> usize,
        at: Instant,
    ) -> Result<bool, PushError> {
        self.fill_at(Some(at), fill)?;
        Ok(self.answered.must_wake(Other(&self.producer.reader).ticket()))
    }

    /// Puts one message together from parts.
    ///
    /// # Errors
    /// See [`OutboxWriter::fill`].
    pub fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<u64, PushError> {
        self.push_at(None, parts).inspect(|_| self.wake_reader())
    }

    fn push_at(&mut self, at: Option<Instant>, parts: &[IoSlice<'_>]) -> Result<u64, PushError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > self.producer.shape.message_bytes_max as usize {
            return Err(PushError::TooLong { bytes, bytes_max: self.producer.shape.message_bytes_max });
        }
        self.fill_at(at, |slot| {
            let mut end = 0;
            for part in parts {
                slot[end..end + part.len()].copy_from_slice(part);
                end += part.len();
            }
            bytes
        })
    }

    /// Clears the bell, arms it for the next freed slot, and checks again whether there is room.
    fn arm_for_room(&self) -> bool {
        self.bell.clear();
        wake::arm(Own(&self.producer.region).ticket());
        let room = !self.is_full();
        if room || self.is_closed() {
            self.bell.ring();
        }
        room
    }

    /// Sleeps until a slot is free; `false` when `until` came first or the ring was closed.
    ///
    /// # Errors
    /// If waiting itself fails.
    pub fn wait_room(&self, until: Option<Deadline>) -> io::Result<bool> {
        self.wait(until, || !self.is_full())
    }

    /// Sleeps until the link has sent the message at `position`; `false` when `until` came first or the ring
    /// was closed before.
    ///
    /// # Errors
    /// If waiting itself fails.
    pub fn wait_sent(&self, position: u64, until: Option<Deadline>) -> io::Result<bool> {
        let sent = self.wait(until, || self.is_sent(position))?;
        if !self.is_full() {
            self.bell.ring();
        }
        Ok(sent)
    }

    fn wait(&self, until: Option<Deadline>, done: impl Fn() -> bool) -> io::Result<bool> {
        loop {
            if done() {
                return Ok(true);
            }
            self.bell.clear();
            wake::arm(Own(&self.producer.region).ticket());
            if done() || self.is_closed() {
                self.bell.ring();
                return Ok(done());
            }
            if !self.bell.wait(until)? {
                return Ok(done());
            }
        }
    }
}

impl AsFd for OutboxWriter {
    /// Readable while there is room (it is a bell, not the data: never read from it).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
