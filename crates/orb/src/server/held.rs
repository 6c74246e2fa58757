//! Requests whose adapter lets them wait (CORBA 11.3.2.1). No thread waits with them.

use std::time::Instant;

use crate::poa::{Manager, State};

/// For what, and until when a request waits.
#[derive(Debug)]
pub(super) struct Held {
    manager: Manager,
    pub until: Instant,
}

impl Held {
    pub fn by(manager: Manager) -> Self {
        let until = Instant::now() + manager.hold_max();
        Self { manager, until }
    }

    /// Whether it need not wait any more: it is served, or refused.
    pub fn is_over(&self, now: Instant) -> bool {
        self.manager.state() != State::Holding || self.is_late(now)
    }

    /// Whether it has waited as long as it may: it is refused.
    pub fn is_late(&self, now: Instant) -> bool {
        self.until <= now
    }
}
