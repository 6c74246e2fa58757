//! Signalling as its node holds it: when it wants to be called again is kept until somebody may have changed it.
//!
//! The processor asks for that in each turn, and signalling has nothing to do for milliseconds: asking it anew took a fifth
//! of all instructions of a short message (callgrind). Whoever borrows it mutably drops what is kept, so no change is
//! missed.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};

use punctual_analysis::Instant;

use crate::signalling::Signalling;

pub(super) struct Signals {
    signalling: Signalling,
    /// Unless somebody has borrowed it mutably since.
    timeout: Cell<Option<Option<Instant>>>,
}

impl Signals {
    pub const fn new(signalling: Signalling) -> Self {
        Self { signalling, timeout: Cell::new(None) }
    }

    /// When `handle_timeout` has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timeout = self.timeout.get().unwrap_or_else(|| self.signalling.poll_timeout());
        self.timeout.set(Some(timeout));
        timeout
    }
}

impl Deref for Signals {
    type Target = Signalling;

    fn deref(&self) -> &Signalling {
        &self.signalling
    }
}

impl DerefMut for Signals {
    fn deref_mut(&mut self) -> &mut Signalling {
        self.timeout.set(None);
        &mut self.signalling
    }
}
