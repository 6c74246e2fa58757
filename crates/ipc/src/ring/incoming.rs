//! The incoming ring: the daemon assembles messages in slots of the application's registered buffer and
//! publishes them in the order of their completion.
//!
//! [`InboxWriter`] is the daemon's end, [`InboxReader`] the application's. Several messages are assembled at
//! the same time, so a slot is not tied to a position: a ring of entries states which slot holds the message
//! at a position, and carries its [`MessageInfo`]. The daemon keeps its own record of the slot that each
//! position frees, and never reads it back.
//!
//! The application is not trusted: the daemon reads only its consumer position. A position that goes
//! backwards, or past what was published, breaks the ring. The daemon's end never blocks and never allocates.

mod entry;
mod reader;

use std::collections::VecDeque;
use std::{fmt, io};

use punctual_proto::api::ChannelCounters;
use punctual_proto::latencies::{Latencies, Observation};
use punctual_proto::memory::{Inbox, MessageInfo, MessageWrite};

use self::entry::{entry_offset, payload_offset, write_entry};
use super::counters::CountersWriter;
use super::free_list::FreeList;
use super::{HEADER_BYTES, Other, Own, ProgramMemory, RingError, RingHandles, RingShape};
use crate::shm::{Offer, Region};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wake::{self, Alarm, Answered, Bell, BellHandle, RingPath};

pub use reader::InboxReader;

/// Bytes of the daemon's own memory for each slot: its place in the list of free slots, and the slot that was
/// published at a position.
pub(super) const OWN_BYTES_PER_SLOT: u64 = 2 * size_of::<u32>() as u64;
/// Bytes of the daemon's own memory for each message that waits for its turn.
pub(super) const TURN_BYTES: u64 = size_of::<Turn>() as u64;
/// Slots that the application has freed which one call takes back.
const COLLECTED_AT_ONCE: u64 = 64;
/// Makes a ring: the daemon's end, and the handles with which the application attaches. `alarm` rings if the
/// application breaks the ring; `ring_path` selects what rings the application's bell.
///
/// # Errors
/// If memory or descriptors are short.
pub fn inbox(
    shape: RingShape,
    alarm: &Alarm,
    ring_path: &RingPath,
) -> Result<(InboxWriter, RingHandles), RingError> {
    let (file, region) = Region::create(shape.file_bytes())?;
    let (theirs, offer) = Offer::create(HEADER_BYTES as u64)?;
    let (their_bell, bell) = Bell::pair(ring_path)?;
    let writer = InboxWriter::new(shape, (region, ProgramMemory::new(offer)), bell, alarm);
    Ok((writer, RingHandles { shape, descriptors: vec![file, theirs, their_bell] }))
}

/// Makes a ring between two threads of this process: memory of the process, and one descriptor. `alarm` rings if the reader breaks the
/// ring.
///
/// # Errors
/// If the ring is too large, or descriptors run out.
pub fn inbox_within(shape: RingShape, alarm: &Alarm) -> Result<(InboxWriter, InboxReader), RingError> {
    let (region, written) = Region::private(shape.file_bytes())?;
    let (own, readers) = Region::private(HEADER_BYTES as u64)?;
    let (bell, handle) = Bell::within()?;
    let writer = InboxWriter::new(shape, (region, ProgramMemory::accepted(readers)), handle, alarm);
    Ok((writer, InboxReader::new(shape, (own, written), bell)))
}

/// The state that the daemon's writer and its slots share.
#[derive(Debug)]
struct SharedInbox {
    region: Region,
    theirs: ProgramMemory,
    shape: RingShape,
    bell: BellHandle,
    free: FreeList,
    broken: AtomicBool,
}

/// A complete message that waits for its turn.
type Turn = (InboxSlot, MessageInfo);

/// The list in which messages of a ring wait for their turns, with room for as many as it has slots. Not made
/// on the processor.
#[derive(Debug, Default)]
pub struct Turns(VecDeque<Turn>);

/// What an embedding program does with a message at its delivery, on the thread that delivers. `false`: it wants no
/// more of them, the next ones go to the ring.
pub type Upcall = Box<dyn FnMut(&[u8], &MessageInfo) -> bool + Send>;

/// The daemon's end. Dropping it closes the ring for the application.
pub struct InboxWriter {
    shared: Arc<SharedInbox>,
    answered: Answered,
    /// Number of the slot that was published at each position.
    published: Box<[u32]>,
    produced: u64,
    consumed: u64,
    alarm: Alarm,
    upcall: Option<Upcall>,
    /// Complete messages that wait until the one before is taken; `None` unless the ring alternates. Their slots are
    /// the ring's, so that it never holds more than they are.
    turns: Option<VecDeque<Turn>>,
    /// Latencies of the messages with a guarantee.
    latencies: Latencies,
    counters: CountersWriter,
}

impl fmt::Debug for InboxWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.upcall.is_some() { "upcall" } else { "ring" };
        write!(f, "InboxWriter({:?}, by {way})", self.shared.shape)
    }
}

impl InboxWriter {
    fn new(
        shape: RingShape,
        (region, theirs): (Region, ProgramMemory),
        bell: BellHandle,
        alarm: &Alarm,
    ) -> Self {
        let (free, broken) = (FreeList::full(shape.slots), AtomicBool::new(false));
        Self {
            shared: Arc::new(SharedInbox { region, theirs, shape, bell, free, broken }),
            answered: Answered::default(),
            published: vec![0; shape.slots as usize].into(),
            produced: 0,
            consumed: 0,
            alarm: alarm.clone(),
            upcall: None,
            turns: None,
            latencies: Latencies::default(),
            counters: CountersWriter::new(),
        }
    }

    /// From now on messages do not go to the ring but to `upcall`, in place, within [`Inbox::publish`]. Only
    /// for rings whose other end is in this process: the bytes must not change.
    pub fn set_upcall(&mut self, upcall: Upcall) {
        self.upcall = Some(upcall);
        // Messages that wait for their turn come first.
        for (slot, info) in self.turns.take().into_iter().flatten() {
            self.publish(slot, info);
        }
    }

    /// From now on a message becomes visible only when the application has taken all messages before it: the
    /// protocol's handler and the application's alternate one to one (RTU 3). Complete messages wait in their
    /// slots; [`Inbox::resume`] shows the next one. `turns` belongs to this ring (see
    /// [`InboxHealth::turns`]); a ring that alternates already keeps its own.
    pub fn alternate(&mut self, turns: Turns) {
        self.turns.get_or_insert(turns.0);
    }

    /// Whether the application has taken all published messages. If not, it is requested to ring when it has.
    fn is_taken(&self) -> bool {
        let taken = || self.taken() == self.produced;
        if taken() {
            return true;
        }
        wake::arm(Own(&self.shared.region).ticket());
        taken()
    }

    /// Whether a message waits for its turn.
    fn has_turns(&self) -> bool {
        self.turns.as_ref().is_some_and(|turns| !turns.is_empty())
    }

    /// Number of messages that the application reports as taken; 0 before its file was accepted.
    fn taken(&self) -> u64 {
        self.shared.theirs.get().map_or(0, Other::position)
    }

    fn show(&mut self, mut slot: InboxSlot, info: &MessageInfo) {
        slot.published = true;
        let offset = entry_offset(self.shared.shape, self.produced);
        write_entry(&self.shared.region, offset, slot.index, info, self.shared.shape);
        let index = self.index(self.produced);
        self.published[index] = slot.index;
        self.produced += 1;
        Own(&self.shared.region).position().store(self.produced, Ordering::SeqCst);
        // The application may be asleep until its file is accepted: no other state of it is known.
        let ticket = self.shared.theirs.get().map(Other::ticket);
        if ticket.is_none_or(|ticket| self.answered.must_wake(ticket)) {
            self.shared.bell.ring();
        }
    }

    /// Calls the upcall if there is one; `false` if the message is to go to the ring.
    fn call_up(&mut self, slot: &InboxSlot, info: &MessageInfo) -> bool {
        let Some(upcall) = &mut self.upcall else { return false };
        let len = info.len.min(self.shared.shape.message_bytes_max) as usize;
        let offset = payload_offset(self.shared.shape, slot.index);
        // SAFETY: only its `InboxSlot`, which is borrowed here, writes a slot that was reserved and not
        // published; the other end of the ring is this process' own reader (see `set_upcall`).
        let bytes = unsafe { self.shared.region.bytes(offset, len) };
        if !upcall(bytes, info) {
            self.upcall = None;
        }
        true
    }

    /// Whether the application broke the ring's rules. The channel should be closed; there is no other
    /// damage.
    pub fn is_broken(&self) -> bool {
        self.shared.broken.load(Ordering::Relaxed)
    }

    /// A handle that reports this on another thread.
    pub fn health(&self) -> InboxHealth {
        InboxHealth(Arc::clone(&self.shared))
    }

    /// Slots that were taken back from the application.
    #[cfg(test)]
    pub(super) fn collected(&self) -> u64 {
        self.consumed
    }

    fn index(&self, position: u64) -> usize {
        (position % u64::from(self.shared.shape.slots)) as usize
    }

    /// The ring is full: the application is requested to ring when it has taken a message, and the ring is checked again.
    fn pop_armed(&mut self) -> Option<u32> {
        wake::arm(Own(&self.shared.region).ticket());
        self.collect();
        self.shared.free.pop()
    }

    /// Takes back slots that the application has freed, [`COLLECTED_AT_ONCE`] at most: one is enough for the
    /// caller, and a ring may have thousands.
    fn collect(&mut self) {
        let (before, consumed) = (self.consumed, self.taken());
        if consumed < before || consumed > self.produced {
            self.shared.broken.store(true, Ordering::Release);
            self.alarm.ring();
            return;
        }
        while self.consumed < consumed.min(before + COLLECTED_AT_ONCE) {
            self.shared.free.push(self.published[self.index(self.consumed)]);
            self.consumed += 1;
        }
    }
}

impl Inbox for InboxWriter {
    type Slot = InboxSlot;

    fn reserve(&mut self) -> Option<InboxSlot> {
        if !self.is_broken() {
            self.collect();
        }
        if self.is_broken() {
            return None;
        }
        let free = self.shared.free.pop().or_else(|| self.pop_armed());
        free.map(|index| InboxSlot { shared: Arc::clone(&self.shared), index, published: false })
    }

    fn publish(&mut self, slot: InboxSlot, info: MessageInfo) {
        if !Arc::ptr_eq(&slot.shared, &self.shared) {
            return;
        }
        if let Some(error) = info.clock_error.filter(|_| !info.unpromised) {
            let latency = info.delivered.since(info.logical_arrival);
            self.counters.observe(self.latencies.add(Observation { latency, error }));
        }
        if self.call_up(&slot, &info) {
            return;
        }
        let taken = self.turns.is_none() || self.is_taken();
        match &mut self.turns {
            Some(turns) if !taken || !turns.is_empty() => turns.push_back((slot, info)),
            _ => self.show(slot, &info),
        }
    }

    fn unread(&self) -> u64 {
        self.produced.saturating_sub(self.taken())
    }

    fn observed(&self) -> Option<&Latencies> {
        Some(&self.latencies)
    }

    fn touch(&mut self) -> bool {
        self.counters.touch(&self.shared.region)
    }

    fn show(&mut self, counters: &ChannelCounters) {
        self.counters.show_with(&self.shared.region, counters, &self.latencies);
    }

    fn outdate(&mut self) {
        self.counters.outdate(&self.shared.region);
    }

    fn resume(&mut self) -> bool {
        // The check arms a ring for the next taking, which is wanted only while a message waits.
        if !self.has_turns() || !self.is_taken() {
            return false;
        }
        self.show_one();
        // The application may have taken it already: the next call checks that, and arms a ring if not.
        self.has_turns()
    }

    fn show_one(&mut self) -> bool {
        let Some((slot, info)) = self.turns.as_mut().and_then(VecDeque::pop_front) else { return false };
        self.show(slot, &info);
        true
    }
}

impl Drop for InboxWriter {
    fn drop(&mut self) {
        // The alternation ends with the channel: all complete messages become readable.
        for (slot, info) in self.turns.take().into_iter().flatten() {
            self.show(slot, &info);
        }
        // A thread that wakes up to a closed ring finds that the upcall is over.
        self.upcall = None;
        Own(&self.shared.region).closed().store(1, Ordering::SeqCst);
        self.shared.bell.ring();
    }
}

/// Whether a ring was broken, for a thread that does not hold its writer. Keeps the memory mapped, so that
/// the processor is not the one that unmaps it.
#[derive(Clone, Debug)]
pub struct InboxHealth(Arc<SharedInbox>);

impl InboxHealth {
    /// See [`InboxWriter::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::Acquire)
    }

    /// Maps the application's file, which the application reports as sealed: from now on its consumer
    /// position is read. Not for a real-time thread.
    ///
    /// # Errors
    /// If the file is not sealed, or memory is short.
    pub fn accept(&self) -> io::Result<()> {
        self.0.theirs.accept()
    }

    /// Whether no other holder of any part of the ring is left.
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// The ring's geometry.
    pub fn shape(&self) -> RingShape {
        self.0.shape
    }

    /// Allocates what the ring needs to alternate ([`RingShape::turns_bytes`]). Not for a real-time thread.
    pub fn turns(&self) -> Turns {
        Turns(VecDeque::with_capacity(self.0.shape.slots as usize))
    }
}

/// A slot in which a message is being put together. Dropped unpublished it is free again.
#[derive(Debug)]
pub struct InboxSlot {
    shared: Arc<SharedInbox>,
    index: u32,
    published: bool,
}

impl MessageWrite for InboxSlot {
    fn copy_from(&mut self, offset: u32, bytes: &[u8]) {
        let shape = self.shared.shape;
        let left = shape.message_bytes_max.saturating_sub(offset) as usize;
        let bytes = &bytes[..bytes.len().min(left)];
        let offset = offset.min(shape.message_bytes_max) as usize;
        self.shared.region.write(payload_offset(shape, self.index) + offset, bytes);
    }
}

impl Drop for InboxSlot {
    fn drop(&mut self) {
        if !self.published {
            self.shared.free.push(self.index);
        }
    }
}
