//! Message rings: one producer, one consumer, fixed slots, in two memory files.
//!
//! [`outgoing`]: the application produces, the daemon consumes. [`incoming`]: the daemon produces, the
//! application consumes. Each side writes a file of its own and maps the other's for reading only ([`crate::shm`]). Both
//! files begin with the same header; positions count messages, never wrap in practice (64 bits), and index slots modulo
//! the slot count. Each position and ticket has a cache line of its own.
//!
//! ```text
//! header                   0 position   128 sleep ticket   192 closed (the daemon's only)
//! outgoing  the program's  header | slot 0: len, sent_at, payload | slot 1 | ...
//!           the daemon's   header | counters
//! incoming  the daemon's   header | counters | entry 0: slot, MessageInfo | entry 1 | ... | slot 0: payload | slot 1 | ...
//!           the program's  header
//! ```
//!
//! The geometry travels over the socket and is never read from shared memory. The daemon does not read the
//! application's file before the application has sealed it and the daemon has verified that (`accept`). Until
//! then an outgoing ring counts as empty, and no message of an incoming one as taken.

mod counters;
mod free_list;
pub mod incoming;
pub mod outgoing;
pub(crate) mod sequence;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock, PoisonError};

use punctual_analysis::Instant;
use punctual_analysis::contract::MESSAGE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::shm::{Offer, REGION_BYTES_MAX, Region, View};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::wake::Bell;

use counters::DAEMON_HEADER_BYTES;

pub use counters::{Counted, CountersReader};
pub use incoming::{InboxReader, InboxSlot, InboxWriter, Turns, Upcall, inbox, inbox_within};
pub use outgoing::{
    LocalWriter, OutboxMessage, OutboxReader, OutboxWriter, local_outbox, outbox, outbox_within,
};

/// Most messages of one ring.
pub const SLOTS_MAX: u32 = 1 << 20;
/// Bytes before the first slot, or the counters.
const HEADER_BYTES: usize = 256;
/// Bytes of a file that only has a header.
const PAGE_BYTES: u64 = 4_096;
/// Bytes of the daemon's own memory that a ring takes in addition to those for each slot, on the safe side.
const OWN_BYTES: u64 = 4_096;
/// Bytes of a file that the shortest pipe holds in its place.
const PIPE_HOLDS_BYTES: u64 = 4 << 20;
/// What slots and entries are multiples of.
const LINE_BYTES: usize = 64;

/// The geometry of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingShape {
    /// Messages that it holds.
    pub slots: u32,
    /// Longest message, in bytes.
    pub message_bytes_max: u32,
}

impl RingShape {
    /// Checks a geometry.
    ///
    /// # Errors
    /// If it is empty or larger than [`REGION_BYTES_MAX`].
    pub fn new(slots: u32, message_bytes_max: u32) -> Result<Self, RingError> {
        let shape = Self { slots, message_bytes_max };
        let plausible =
            (1..=SLOTS_MAX).contains(&slots) && (1..=MESSAGE_BYTES_MAX).contains(&message_bytes_max);
        if plausible && shape.file_bytes() <= REGION_BYTES_MAX {
            Ok(shape)
        } else {
            Err(RingError::Shape(shape))
        }
    }

    /// Bytes of one slot's payload, in whole cache lines.
    const fn payload_bytes(self) -> usize {
        (self.message_bytes_max as usize).next_multiple_of(LINE_BYTES)
    }

    /// Largest length in bytes of the file with the payload; the other file is a page.
    pub const fn file_bytes(self) -> u64 {
        DAEMON_HEADER_BYTES as u64 + self.slots as u64 * (LINE_BYTES as u64 + self.payload_bytes() as u64)
    }

    /// Maximum number of pipes that hold a page of each 2 MiB of the file with the payload: if a user of the
    /// system has many pipes, each holds two pages only (`pipe-user-pages-soft`).
    pub const fn pipes(self) -> u64 {
        self.file_bytes().div_ceil(PIPE_HOLDS_BYTES)
    }

    /// Memory that an outgoing ring takes, the daemon's own included: what quotas count.
    pub const fn outbox_bytes(self) -> u64 {
        self.shared_bytes() + self.slots as u64 * outgoing::OWN_BYTES_PER_SLOT + OWN_BYTES
    }

    /// Memory that an incoming ring takes in bytes, the daemon's own included: what quotas count.
    pub const fn inbox_bytes(self) -> u64 {
        self.shared_bytes() + self.slots as u64 * incoming::OWN_BYTES_PER_SLOT + OWN_BYTES
    }

    /// What an incoming one takes beside that once it alternates: see [`InboxHealth::turns`](incoming::InboxHealth::turns).
    pub const fn turns_bytes(self) -> u64 {
        self.slots as u64 * incoming::TURN_BYTES
    }

    /// The two files of an outgoing ring, in whole pages, in the order in which they are handed over.
    pub const fn outbox_files_bytes(self) -> [u64; 2] {
        [PAGE_BYTES, self.file_bytes().next_multiple_of(PAGE_BYTES)]
    }

    /// Lengths in bytes of the two files of an incoming ring, in whole pages, in the order in which they are
    /// handed over.
    pub const fn inbox_files_bytes(self) -> [u64; 2] {
        [self.file_bytes().next_multiple_of(PAGE_BYTES), PAGE_BYTES]
    }

    /// Both files.
    const fn shared_bytes(self) -> u64 {
        self.file_bytes().next_multiple_of(PAGE_BYTES) + PAGE_BYTES
    }
}

/// A ring that cannot be made or used.
#[derive(Debug, Error)]
pub enum RingError {
    /// Zero, or too large.
    #[error("a ring of {} messages of {} B is out of range: 1 to {SLOTS_MAX} messages, {REGION_BYTES_MAX} B in all",
        .0.slots, .0.message_bytes_max)]
    Shape(RingShape),
    /// The system returned an error.
    #[error(
        "cannot make a message ring: {0}; raise the limits of locked memory (ulimit -l) and descriptors (ulimit -n)"
    )]
    System(io::Error),
    /// The system cannot report whether a process holds the ring's files.
    #[error("cannot watch the files of a message ring: {0}")]
    Watch(io::Error),
    /// The number of descriptors is not that of this ring.
    #[error("the daemon sent {0} descriptors with a ring: daemon and client are of different versions")]
    Descriptors(usize),
}

impl From<io::Error> for RingError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// What an application needs to attach to a ring, in the order in which it is sent.
#[derive(Debug)]
pub struct RingHandles {
    /// Geometry of the ring.
    pub shape: RingShape,
    /// The daemon's memory file, the application's, the bell, and the doorbell (outgoing rings only).
    pub descriptors: Vec<OwnedFd>,
}

/// Closes a ring from the application's side, if the daemon is gone and cannot close it.
#[derive(Debug)]
pub struct RingCloser {
    gone: Arc<AtomicBool>,
    bell: Bell,
}

impl RingCloser {
    /// Marks the ring closed and wakes the threads that wait for it.
    pub fn close(&self) {
        self.gone.store(true, Ordering::SeqCst);
        self.bell.ring();
    }
}

/// The words at the start of what this side writes.
#[derive(Clone, Copy)]
struct Own<'a>(&'a Region);

impl<'a> Own<'a> {
    fn position(self) -> &'a AtomicU64 {
        self.0.word(0)
    }
    fn ticket(self) -> &'a AtomicU32 {
        self.0.half(128)
    }
    fn closed(self) -> &'a AtomicU32 {
        self.0.half(192)
    }
}

/// The words at the start of the other side's file.
#[derive(Clone, Copy)]
struct Other<'a>(&'a View);

impl Other<'_> {
    /// Sequentially consistent, because it is read again after a ticket was taken.
    fn position(self) -> u64 {
        self.0.word(0, Ordering::SeqCst)
    }
    fn ticket(self) -> u32 {
        self.0.half(128, Ordering::SeqCst)
    }
    fn is_closed(self) -> bool {
        self.0.half(192, Ordering::SeqCst) != 0
    }
}

/// The application's file, as the daemon holds it.
#[derive(Debug)]
struct ProgramMemory {
    /// The offer until it is accepted; its descriptor is not needed after that.
    offer: Mutex<Option<Offer>>,
    view: OnceLock<View>,
}

impl ProgramMemory {
    const fn new(offer: Offer) -> Self {
        Self { offer: Mutex::new(Some(offer)), view: OnceLock::new() }
    }

    /// Memory that needs no seal: its writer is this process.
    fn accepted(view: View) -> Self {
        Self { offer: Mutex::new(None), view: OnceLock::from(view) }
    }

    /// The application's file; `None` until the application has sealed it.
    fn get(&self) -> Option<Other<'_>> {
        self.view.get().map(Other)
    }

    fn accept(&self) -> io::Result<()> {
        let mut offer = self.offer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*offer {
            let view = made.accept()?;
            // No other thread sets it: the offer is locked and still there.
            let _ = self.view.set(view);
            *offer = None;
        }
        Ok(())
    }
}

/// This host's monotonic clock, as the engine reads it.
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant(seconds * 1_000_000_000 + nanos)
}
