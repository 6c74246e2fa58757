//! A cache in front of signalling: the time of its next timeout, and whether it has a packet, are stored
//! until signalling may have changed.
//!
//! The processor reads both several times in each turn, while signalling is idle for milliseconds: computing
//! them each time took a quarter of all instructions of a short message (callgrind). A mutable borrow of
//! signalling invalidates the cache, so no change is missed.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};

use punctual_analysis::Instant;

use crate::ids::LinkId;
use crate::signalling::Signalling;

pub(super) struct Signals {
    signalling: Signalling,
    /// Valid unless signalling was mutably borrowed since.
    timeout: Cell<Option<Option<Instant>>>,
    /// Whether any link has a packet to send; valid as above.
    has_signals: Cell<Option<bool>>,
}

impl Signals {
    pub const fn new(signalling: Signalling) -> Self {
        Self { signalling, timeout: Cell::new(None), has_signals: Cell::new(None) }
    }

    /// Time at which `handle_timeout` has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timeout = self.timeout.get().unwrap_or_else(|| self.signalling.poll_timeout());
        self.timeout.set(Some(timeout));
        timeout
    }

    /// Whether `poll_signal` has a packet for any link.
    pub fn has_signals(&self) -> bool {
        let has_signals = self.has_signals.get().unwrap_or_else(|| self.signalling.has_signals());
        self.has_signals.set(Some(has_signals));
        has_signals
    }

    /// Whether `poll_signal` has a packet for `link`.
    pub fn has_signal(&self, link: LinkId) -> bool {
        self.has_signals() && self.signalling.has_signal(link)
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
        self.has_signals.set(None);
        &mut self.signalling
    }
}
