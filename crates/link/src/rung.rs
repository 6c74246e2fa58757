//! Whether somebody was told already: a busy receiver costs its sender no system call.

use crate::sync::atomic::{AtomicBool, Ordering};

/// Up from the first ring until its owner is about to look.
#[derive(Debug, Default)]
pub(crate) struct Rung(AtomicBool);

impl Rung {
    /// After publishing: whether the owner must be told.
    pub(crate) fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Before looking: what is published later is told again. An exchange, not a store: of it and [`Rung::raise`] one
    /// comes first. If this does, the other one tells; if the other one does, this one has seen what it published.
    pub(crate) fn lower(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}
