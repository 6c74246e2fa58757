//! The outgoing ring: the application writes messages, the daemon refers to them until the link has sent them.
//!
//! [`OutboxWriter`] is the application's end, [`OutboxReader`] the daemon's. If both are in one process
//! ([`outbox_within`]), memory of that process takes the place of files. If nobody waits for the ring then,
//! [`LocalWriter`] takes the place of the first. A message stays in its slot until its [`OutboxMessage`] is
//! dropped, in any order; the consumer position passes it once all earlier ones are dropped too. So "the
//! position has passed mine" means "the link has sent it".
//!
//! The application is not trusted: the daemon keeps its own `taken` and `freed`, reads the producer position
//! and each slot's length once, and breaks the ring if they are impossible. The daemon's end never blocks and
//! never allocates.

mod local;
mod producer;
mod writer;

use std::io;
use std::os::fd::OwnedFd;

use punctual_analysis::Instant;
use punctual_proto::api::ChannelCounters;
use punctual_proto::memory::{MessageRead, Outbox};
use punctual_trial::{Defence, holds};

use super::counters::{CountersWriter, DAEMON_HEADER_BYTES};
use super::{HEADER_BYTES, LINE_BYTES, Other, Own, ProgramMemory, RingError, RingHandles, RingShape};
use crate::shm::{Offer, Region};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::wake::{self, Alarm, Answered, Bell, BellHandle, Doorbell, RingPath};

pub use local::{LocalWriter, local_outbox, outbox_within};
pub use producer::PushError;
pub use writer::OutboxWriter;

/// Bytes before the payload of a slot: the length at 0, the sending time at 8, the payload behind.
const SLOT_HEADER_BYTES: usize = LINE_BYTES;
const SENT_AT: usize = 8;
/// Positions that are made free by one call at most.
const FREED_AT_ONCE: u32 = 64;
/// Bytes of the daemon's own memory for each slot: the position that was freed there last.
pub(super) const OWN_BYTES_PER_SLOT: u64 = size_of::<AtomicU64>() as u64;

fn slot_offset(shape: RingShape, position: u64) -> usize {
    let index = (position % u64::from(shape.slots)) as usize;
    HEADER_BYTES + index * (SLOT_HEADER_BYTES + shape.payload_bytes())
}

/// Makes a ring: the daemon's end, the handles with which the application attaches, and the doorbell to
/// watch. `alarm` rings if the application breaks the ring; `ring_path` selects what rings the application's
/// bell.
///
/// # Errors
/// If memory or descriptors are short.
pub fn outbox(
    shape: RingShape,
    alarm: &Alarm,
    ring_path: &RingPath,
) -> Result<(OutboxReader, RingHandles, OwnedFd), RingError> {
    let (file, region) = Region::create(DAEMON_HEADER_BYTES as u64)?;
    let (theirs, offer) = Offer::create(shape.file_bytes())?;
    let (doorbell, their_doorbell) = Doorbell::pair()?;
    let (their_bell, bell) = Bell::pair(ring_path)?;
    bell.ring();
    let reader = OutboxReader::new(shape, (region, ProgramMemory::new(offer)), Some(bell), alarm);
    let descriptors = vec![file, theirs, their_bell, their_doorbell];
    Ok((reader, RingHandles { shape, descriptors }, doorbell))
}

/// The state that the daemon's reader and its messages share.
#[derive(Debug)]
struct SharedOutbox {
    region: Region,
    theirs: ProgramMemory,
    shape: RingShape,
    /// `None`: the writer never waits for room.
    bell: Option<BellHandle>,
    answered: Answered,
    /// All positions below are free. This value is authoritative; shared memory holds a copy for the
    /// application.
    freed: AtomicU64,
    /// Per slot, 1 + the position of the last message that was freed there.
    freed_at: Box<[AtomicU64]>,
    /// Positions after `freed` may be free, and no thread has moved `freed` over them yet.
    behind: AtomicBool,
    broken: AtomicBool,
}

impl SharedOutbox {
    /// Marks a position free, then moves `freed` over all free positions. Sequentially consistent: if two
    /// messages are dropped at the same time on two threads, at least one of them moves it over both.
    fn free(&self, position: u64) {
        let slots = self.freed_at.len() as u64;
        self.freed_at[(position % slots) as usize].store(position + 1, Ordering::SeqCst);
        self.advance();
    }

    /// Moves `freed` over free positions, [`FREED_AT_ONCE`] at most per call: as many messages as the ring
    /// holds may have been dropped while an earlier one was still needed. The next message that is freed or
    /// fetched continues with the rest.
    fn advance(&self) {
        let slots = self.freed_at.len() as u64;
        let mut moved = false;
        for step in 0..=FREED_AT_ONCE {
            let freed = self.freed.load(Ordering::SeqCst);
            if self.freed_at[(freed % slots) as usize].load(Ordering::SeqCst) != freed + 1 {
                break;
            }
            if step == FREED_AT_ONCE {
                self.behind.store(true, Ordering::SeqCst);
                break;
            }
            moved |=
                self.freed.compare_exchange(freed, freed + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        }
        if moved {
            Own(&self.region).position().fetch_max(self.freed.load(Ordering::SeqCst), Ordering::SeqCst);
            // Messages come only from a ring that was accepted.
            let ticket = self.theirs.get().map_or(0, Other::ticket);
            if self.answered.must_wake(ticket) {
                self.ring();
            }
        }
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Continues if there was too much for one call.
    fn catch_up(&self) {
        if self.behind.load(Ordering::Relaxed) && self.behind.swap(false, Ordering::SeqCst) {
            self.advance();
        }
    }
}

/// The daemon's end. Dropping it closes the ring for the application.
#[derive(Debug)]
pub struct OutboxReader {
    shared: Arc<SharedOutbox>,
    taken: u64,
    /// No message that is yet to come was sent before this.
    sent_after: Instant,
    alarm: Alarm,
    counters: CountersWriter,
}

impl OutboxReader {
    fn new(
        shape: RingShape,
        (region, theirs): (Region, ProgramMemory),
        bell: Option<BellHandle>,
        alarm: &Alarm,
    ) -> Self {
        wake::arm(Own(&region).ticket());
        let freed_at = (0..shape.slots).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(SharedOutbox {
            region,
            theirs,
            shape,
            bell,
            answered: Answered::default(),
            freed: AtomicU64::new(0),
            freed_at,
            behind: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        });
        let (sent_after, counters) = (super::now(), CountersWriter::new());
        Self { shared, taken: 0, sent_after, alarm: alarm.clone(), counters }
    }

    /// Whether the application broke the ring's rules. The channel should be closed; there is no other
    /// damage.
    pub fn is_broken(&self) -> bool {
        self.shared.broken.load(Ordering::Relaxed)
    }

    /// A handle that reports this on another thread.
    pub fn health(&self) -> OutboxHealth {
        OutboxHealth(Arc::clone(&self.shared))
    }

    fn break_ring(&self) {
        if !self.shared.broken.swap(true, Ordering::Release) {
            self.alarm.ring();
        }
    }

    /// Messages that wait; takes a ticket if there are none. Breaks the ring if that number is impossible.
    fn waiting(&self) -> u64 {
        let Some(theirs) = self.shared.theirs.get() else { return 0 };
        if self.is_broken() {
            return 0;
        }
        let mut produced = theirs.position();
        if produced == self.taken {
            wake::arm(Own(&self.shared.region).ticket());
            produced = theirs.position();
        }
        let waiting = produced.wrapping_sub(self.taken);
        // The application saw slots as freed before it produced messages into them. `freed` includes these
        // slots here, because the producer position was acquired.
        let in_use = self.taken - self.shared.freed.load(Ordering::Acquire);
        if waiting > u64::from(self.shared.shape.slots) - in_use && holds(Defence::CheckedRings) {
            self.break_ring();
            return 0;
        }
        waiting
    }
}

impl Outbox for OutboxReader {
    type Message = OutboxMessage;

    fn take(&mut self, now: Instant) -> Option<(OutboxMessage, Instant)> {
        self.shared.catch_up();
        if self.waiting() == 0 {
            // Whatever comes after this check was sent after `now`.
            self.sent_after = self.sent_after.max(now);
            return None;
        }
        let offset = slot_offset(self.shared.shape, self.taken);
        let Other(theirs) = self.shared.theirs.get()?;
        let len = theirs.half(offset, Ordering::Relaxed);
        let claimed = Instant(theirs.word(offset + SENT_AT, Ordering::Relaxed));
        if len > self.shared.shape.message_bytes_max && holds(Defence::CheckedRings) {
            self.break_ring();
            return None;
        }
        let sent_at = claimed.min(now).max(self.sent_after.min(now));
        self.sent_after = sent_at;
        let message = OutboxMessage { shared: Arc::clone(&self.shared), position: self.taken, offset, len };
        self.taken += 1;
        Some((message, sent_at))
    }

    fn is_ready(&self) -> bool {
        self.waiting() > 0
    }

    fn is_behind(&self) -> bool {
        self.shared.behind.load(Ordering::Relaxed)
    }

    fn touch(&mut self) -> bool {
        self.counters.touch(&self.shared.region)
    }

    fn show(&mut self, counters: &ChannelCounters) {
        self.counters.show(&self.shared.region, counters);
    }

    fn outdate(&mut self) {
        self.counters.outdate(&self.shared.region);
    }
}

impl Drop for OutboxReader {
    fn drop(&mut self) {
        Own(&self.shared.region).closed().store(1, Ordering::SeqCst);
        self.shared.ring();
    }
}

/// Whether a ring was broken, for a thread that does not hold its reader. Keeps the memory mapped, so that
/// the processor is not the one that unmaps it.
#[derive(Clone, Debug)]
pub struct OutboxHealth(Arc<SharedOutbox>);

impl OutboxHealth {
    /// See [`OutboxReader::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::Acquire)
    }

    /// Maps the application's file, which the application reports as sealed: from now on its messages are
    /// read. Not for a real-time thread.
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
}

/// A message that waits to be sent. Dropping it frees the slot: the link has sent it.
#[derive(Debug)]
pub struct OutboxMessage {
    shared: Arc<SharedOutbox>,
    position: u64,
    offset: usize,
    len: u32,
}

impl MessageRead for OutboxMessage {
    fn len(&self) -> u32 {
        self.len
    }

    fn copy_to(&self, offset: u32, out: &mut [u8]) {
        let left = self.len.saturating_sub(offset) as usize;
        let len = out.len().min(left);
        if let Some(Other(theirs)) = self.shared.theirs.get() {
            theirs.read(self.offset + SLOT_HEADER_BYTES + offset.min(self.len) as usize, &mut out[..len]);
        }
    }
}

impl Drop for OutboxMessage {
    fn drop(&mut self) {
        self.shared.free(self.position);
    }
}
