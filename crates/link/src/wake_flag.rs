//! Whether somebody was told already: a busy receiver costs its sender no system call.

use crate::sync::atomic::{AtomicBool, Ordering};

/// Up from the first ring until its owner is about to look.
#[derive(Debug, Default)]
pub(crate) struct WakeFlag(AtomicBool);

impl WakeFlag {
    /// Whether the owner must be told; call it after publishing.
    pub(crate) fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Makes the next [`WakeFlag::raise`] tell the owner again; call it before looking. It is an exchange and not
    /// a store, so that of the two one comes first. If this one does, the other one tells; if the other one
    /// does, this one has seen what it published.
    pub(crate) fn lower(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}
