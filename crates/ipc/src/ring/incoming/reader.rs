//! The application's end of an incoming ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant as Deadline;

use punctual_proto::memory::MessageInfo;

use super::entry::{entry_offset, payload_offset, read_entry};
use crate::ring::counters::CountersReader;
use crate::ring::{HEADER_BYTES, Other, Own, RingCloser, RingError, RingHandles, RingShape};
use crate::shm::{Region, View};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wake::{self, Answered, Bell, Doorbell};

/// The application's end.
#[derive(Debug)]
pub struct InboxReader {
    region: Region,
    daemon: Arc<View>,
    shape: RingShape,
    bell: Bell,
    consumed: u64,
    /// Rung when a message was taken and the writer waits ([`InboxReader::writer_waits`]).
    doorbell: Option<Doorbell>,
    answered: Answered,
    /// Free slots from which on a writer that waits for room is woken.
    room_slots: u64,
    /// The daemon is.
    gone: Arc<AtomicBool>,
}

impl InboxReader {
    /// Attaches to a ring that the daemon made, and seals the file that this end writes. The caller must then
    /// notify the daemon.
    ///
    /// # Errors
    /// If the handles are not those of an incoming ring.
    pub fn attach(handles: RingHandles) -> Result<Self, RingError> {
        let count = handles.descriptors.len();
        let [file, own, bell] =
            <[OwnedFd; 3]>::try_from(handles.descriptors).map_err(|_| RingError::Descriptors(count))?;
        let shape = RingShape::new(handles.shape.slots, handles.shape.message_bytes_max)?;
        let region = Region::take(own, HEADER_BYTES as u64)?;
        let daemon = View::open(file, shape.file_bytes())?;
        Ok(Self::new(shape, (region, daemon), Bell::new(bell)))
    }

    /// The end that owns `region` and reads `daemon`.
    pub(super) fn new(shape: RingShape, (region, daemon): (Region, View), bell: Bell) -> Self {
        // The first message rings, whatever comes before the first check.
        wake::arm(Own(&region).ticket());
        Self {
            daemon: Arc::new(daemon),
            region,
            shape,
            bell,
            consumed: 0,
            doorbell: None,
            answered: Answered::default(),
            room_slots: 1,
            gone: Arc::new(AtomicBool::new(false)),
        }
    }

    /// The ring's geometry.
    pub fn shape(&self) -> RingShape {
        self.shape
    }

    /// The ring alternates (see [`super::InboxWriter::alternate`]): rings `doorbell` whenever the next message can come.
    pub fn alternate(&mut self, doorbell: Doorbell) {
        // A message may have waited since before there was a doorbell.
        doorbell.ring();
        self.doorbell = Some(doorbell);
    }

    /// A writer that waits for room is woken only when so many slots are free, 1 to all of them; 1 at first. A writer that is woken
    /// for each slot takes turns with the reader, a message each.
    pub fn set_room(&mut self, slots: u32) {
        self.room_slots = slots.clamp(1, self.shape.slots).into();
    }

    /// Whether the writer waits for room, and there is enough now ([`InboxReader::set_room`]). Returns `true` once for each wait.
    pub fn writer_waits(&self) -> bool {
        let unread = Other(&self.daemon).position().saturating_sub(self.consumed);
        let is_room = unread + self.room_slots <= u64::from(self.shape.slots);
        is_room && self.answered.must_wake(Other(&self.daemon).ticket())
    }

    /// Rings `doorbell` when a message was taken and the writer waits for room.
    pub fn set_doorbell(&mut self, doorbell: Doorbell) {
        self.doorbell = Some(doorbell);
    }

    /// A reader of the channel's counters, which needs no request.
    pub fn counters(&self) -> CountersReader {
        CountersReader::new(&self.daemon, &self.gone, true)
    }

    /// What closes this end from within the process.
    pub fn closer(&self) -> RingCloser {
        RingCloser { gone: Arc::clone(&self.gone), bell: self.bell.clone() }
    }

    /// Whether the daemon has closed the ring. Messages may still be in it.
    pub fn is_closed(&self) -> bool {
        Other(&self.daemon).is_closed() || self.gone.load(Ordering::SeqCst)
    }

    /// Whether a message waits.
    pub fn has_message(&self) -> bool {
        Other(&self.daemon).position() > self.consumed
    }

    /// Passes `read` the next message in place and frees its slot afterwards (also if `read` panics). `None`
    /// if none waits: then the bell rings as soon as one does.
    pub fn take<R>(&mut self, read: impl FnOnce(&[u8], &MessageInfo) -> R) -> Option<R> {
        self.take_if(|_| true, read)
    }

    /// Does what [`InboxReader::take`] does if `wanted` accepts the message. Otherwise the message stays in
    /// the ring.
    pub fn take_if<R>(
        &mut self,
        wanted: impl FnOnce(&MessageInfo) -> bool,
        read: impl FnOnce(&[u8], &MessageInfo) -> R,
    ) -> Option<R> {
        if !self.has_message() && !self.arm_for_message() {
            return None;
        }
        let (slot, mut info) = read_entry(&self.daemon, entry_offset(self.shape, self.consumed));
        info.len = info.len.min(self.shape.message_bytes_max);
        if !wanted(&info) {
            return None;
        }
        let offset = payload_offset(self.shape, slot.min(self.shape.slots - 1));
        let freed = self.consumed + 1;
        self.consumed = freed;
        let _guard = self.freeing(freed);
        // SAFETY: the daemon does not write a published slot before the consumer position has passed it,
        // which happens when the guard drops, after the slice is gone.
        let bytes = unsafe { self.daemon.bytes(offset, info.len as usize) };
        Some(read(bytes, &info))
    }

    /// The next message in place; it stays in the ring until [`InboxReader::pop`]. `None` if none waits: then the bell rings
    /// as soon as one does.
    pub fn front(&self) -> Option<&[u8]> {
        if !self.has_message() && !self.arm_for_message() {
            return None;
        }
        let (slot, info) = read_entry(&self.daemon, entry_offset(self.shape, self.consumed));
        let offset = payload_offset(self.shape, slot.min(self.shape.slots - 1));
        // SAFETY: the daemon does not write a published slot before the consumer position has passed it, which takes `&mut self`.
        Some(unsafe { self.daemon.bytes(offset, info.len.min(self.shape.message_bytes_max) as usize) })
    }

    /// Frees the slot of the message that [`InboxReader::front`] has shown; without a message, nothing happens.
    pub fn pop(&mut self) {
        if self.has_message() {
            self.consumed += 1;
            drop(self.freeing(self.consumed));
        }
    }

    fn freeing(&self, freed: u64) -> FreeOnDrop<'_> {
        FreeOnDrop { reader: self, freed }
    }

    /// Clears the bell, arms it for the next message, and checks again whether one waits. If so, it rings the
    /// bell, so that the descriptor stays readable for the messages behind it.
    fn arm_for_message(&self) -> bool {
        self.bell.clear();
        wake::arm(Own(&self.region).ticket());
        let waits = self.has_message();
        if waits || self.is_closed() {
            self.bell.ring();
        }
        waits
    }

    /// Sleeps until a message waits; `false` when `until` came first or the ring was closed.
    ///
    /// # Errors
    /// If waiting itself fails.
    pub fn wait(&self, until: Option<Deadline>) -> io::Result<bool> {
        loop {
            if self.has_message() || self.arm_for_message() {
                return Ok(true);
            }
            if self.is_closed() || !self.bell.wait(until)? {
                return Ok(self.has_message());
            }
        }
    }
}

/// Moves the consumer position past a message.
struct FreeOnDrop<'a> {
    reader: &'a InboxReader,
    freed: u64,
}

impl Drop for FreeOnDrop<'_> {
    fn drop(&mut self) {
        let Self { reader, freed } = self;
        Own(&reader.region).position().store(*freed, Ordering::SeqCst);
        let Some(doorbell) = &reader.doorbell else { return };
        if reader.writer_waits() {
            doorbell.ring();
        }
    }
}

impl AsFd for InboxReader {
    /// Readable while a message waits or the ring is closed (it is a bell, not the data: never read from it).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use punctual_proto::memory::{Inbox, MessageWrite};

    use super::*;
    use crate::ring::incoming::inbox;
    use crate::wake::{Alarm, RingPath};

    /// A wrong number of a slot leads to another message of the ring, and to nothing outside of it.
    #[test]
    fn what_is_read_lies_within_the_ring_whatever_its_slot_number() {
        let (shape, alarm) = (RingShape::new(3, 8).expect("a shape"), Alarm::new().expect("an eventfd"));
        for wrong in [3, 4, u32::MAX] {
            let (mut writer, handles) = inbox(shape, &alarm, &RingPath::Direct).expect("a ring");
            let mut reader = InboxReader::attach(handles).expect("attached");
            for byte in 0..3 {
                let mut slot = writer.reserve().expect("a slot");
                slot.copy_from(0, &[byte]);
                writer.publish(slot, MessageInfo { len: 1, ..MessageInfo::default() });
            }
            writer.shared.region.half(entry_offset(shape, 0) + 36).store(wrong, Ordering::Relaxed);
            assert_eq!(reader.front(), Some(&[2][..]), "{wrong}");
            assert_eq!(reader.take(|bytes, _| bytes.to_vec()), Some(vec![2]), "{wrong}");
        }
    }
}
