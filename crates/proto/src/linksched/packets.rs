//! A packet in a queue of a link.

use core::num::NonZeroU32;

use punctual_analysis::Instant;

use super::Queued;
use crate::slab::{Linked, Next};

impl<P> Queued<P> {
    /// A packet of no bytes counts as one byte.
    pub(super) fn new(packet: P, wire_bytes: u32, effective: Instant, deadline: Instant) -> Self {
        let wire_bytes = NonZeroU32::new(wire_bytes).unwrap_or(NonZeroU32::MIN);
        Self { packet, effective, deadline, wire_bytes, next: Next::NONE }
    }
}

impl<P> Linked for Queued<P> {
    fn next_mut(&mut self) -> &mut Next {
        &mut self.next
    }
    fn next(&self) -> Next {
        self.next
    }
}
