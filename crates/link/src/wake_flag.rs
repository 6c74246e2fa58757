//! True if the receiver was already woken: then its sender makes no system call.

use crate::sync::atomic::{AtomicBool, Ordering};

/// Set by the first sender that wakes the owner; cleared when the owner is about to poll.
#[derive(Debug, Default)]
pub(crate) struct WakeFlag(AtomicBool);

impl WakeFlag {
    /// True if the caller must wake the owner. Call it after publishing.
    pub(crate) fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Makes the next [`WakeFlag::raise`] notify the owner again; call it before checking. It is an exchange
    /// and not a store, so that one of the two comes first. If this one does, the other one notifies. If the
    /// other one does, this one has seen what it published.
    pub(crate) fn lower(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}
