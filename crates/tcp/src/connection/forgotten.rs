//! What is in flight without a timer. Beside a window that was closed and opens again, the machine ends its timer though data or a FIN
//! are not acknowledged: what was lost of that would never leave again. So the oldest segment has a timer of its own then: a second,
//! and twice as long each time, up to a minute (RFC 6298 2.4, 5.5).

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::{Connection, State};
use crate::edge;
use crate::limits::{REPAIR_PROBE_MAX, TIMEOUT_MIN};
use crate::sequence::before;

/// The timer of what the machine has forgotten.
#[derive(Debug)]
pub(super) struct Forgotten {
    /// When the oldest segment leaves once more.
    due: Option<Instant>,
    /// How long it waits then.
    wait: Nanos,
    /// The oldest byte that was not acknowledged when the time was set.
    una: Option<u32>,
}

impl Default for Forgotten {
    fn default() -> Self {
        Self { due: None, wait: TIMEOUT_MIN, una: None }
    }
}

impl Connection {
    /// Whether data or a FIN are in flight.
    fn is_unacknowledged(&self) -> bool {
        use State::{CloseWait, Closing, Established, FinWait1, LastAck};
        let place = self.place();
        matches!(self.state(), Established | CloseWait | FinWait1 | Closing | LastAck)
            && before(place.una, place.sent)
    }

    /// When what is in flight leaves once more; `None` while another timer runs for it. That of the machine's keep-alive is none.
    pub(super) fn forgotten_deadline(&mut self, now: Instant) -> Option<Instant> {
        let una = self.place().una;
        if self.probes.forgotten.una != Some(una) || !self.is_unacknowledged() {
            self.probes.forgotten = Forgotten { una: Some(una), ..Forgotten::default() };
        }
        let has_probe = self.probes.tail.due().is_some() || self.probes.repair.due().is_some();
        let has_timer = |connection: &mut Self| {
            connection.config.keep_alive.is_none() && connection.machine.has_timer(now)
        };
        if !self.is_unacknowledged() || has_probe || has_timer(self) {
            self.probes.forgotten.due = None;
            return None;
        }
        let forgotten = &mut self.probes.forgotten;
        Some(*forgotten.due.get_or_insert(now + forgotten.wait))
    }

    /// Makes the oldest segment if it is due, in `packet`.
    pub(super) fn repeat_forgotten(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        if self.probes.forgotten.due.is_none_or(|due| now < due) || !self.is_unacknowledged() {
            return false;
        }
        self.probes.forgotten.wait = (self.probes.forgotten.wait * 2).min(REPAIR_PROBE_MAX);
        self.probes.forgotten.due = Some(now + self.probes.forgotten.wait);
        self.write_oldest(now, packet);
        true
    }

    /// Writes as much of the oldest data in flight as a segment and the window hold, one byte at least, with the FIN if it follows.
    fn write_oldest(&mut self, now: Instant, packet: &mut Vec<u8>) {
        let (place, data) = (self.place(), self.recovery.in_flight() as usize);
        if data == 0 {
            return self.write_fin(now, packet);
        }
        let room = self.guard.as_ref().map_or(0, |guard| guard.window(place.una)).max(1) as usize;
        let mut payload = Vec::new();
        self.recovery.copy(place.una, data.min(self.segment_bytes()).min(room), &mut payload);
        self.write_data(place.una, &payload, now, packet);
        let end = place.una.wrapping_add(payload.len() as u32);
        if place.sent == end.wrapping_add(1) && payload.len() < room {
            edge::edit(packet, |tcp| tcp.set_fin(true));
            edge::seal(packet);
        }
        self.rtt.sent_again();
        self.recovery.count_resent(1);
        self.recovery.sent_once_more();
    }
}
