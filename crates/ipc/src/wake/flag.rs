//! The sleep tickets. The parent module explains why no wake-up is lost.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Announces "I am about to sleep" in this side's own memory. The caller checks the ring again *after* this.
pub fn arm(ticket: &AtomicU32) {
    ticket.fetch_add(1, Ordering::SeqCst);
}

/// The last ticket of the other side that was answered with a ring.
#[derive(Debug)]
pub struct Answered(AtomicU32);

impl Default for Answered {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl Answered {
    /// Whether the other side must be woken. Call it *after* publishing, with the other side's ticket loaded
    /// after that. It is true once for each ticket.
    pub fn must_wake(&self, ticket: u32) -> bool {
        // No change, nearly always: this avoids a locked instruction.
        self.0.load(Ordering::Relaxed) != ticket && self.0.swap(ticket, Ordering::AcqRel) != ticket
    }
}
