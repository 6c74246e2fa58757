//! What is in flight and never leaves again. Beside a window that closes and opens, the machine ends its timer though data or a FIN are
//! not acknowledged, or it probes the window instead. So the oldest segment has a timer of its own: three seconds or six round
//! trips, and twice as long each time that the segment leaves again, whoever sends it. The machine's timer, where it runs, is shorter.

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::{Connection, State};
use crate::edge;
use crate::limits::{FORGOTTEN_MAX, FORGOTTEN_MIN};
use crate::sequence::before;

/// The timer of the oldest segment in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forgotten {
    /// Its first byte.
    una: u32,
    /// How long it waits.
    wait: Nanos,
    /// When it leaves once more.
    due: Instant,
}

impl Connection {
    /// Whether data or a FIN are in flight.
    fn is_unacknowledged(&self) -> bool {
        use State::{CloseWait, Closing, Established, FinWait1, LastAck};
        let place = self.place();
        matches!(self.state(), Established | CloseWait | FinWait1 | Closing | LastAck)
            && before(place.una, place.sent)
    }

    /// When what is in flight leaves once more, if nothing else has it leave before.
    pub(super) fn forgotten_deadline(&mut self, now: Instant) -> Option<Instant> {
        if !self.is_unacknowledged() {
            self.probes.forgotten = None;
            return None;
        }
        let una = self.place().una;
        if self.probes.forgotten.is_none_or(|forgotten| forgotten.una != una) {
            let round_trips = self.rtt.smoothed().unwrap_or_default() * 6;
            let wait = round_trips.clamp(FORGOTTEN_MIN, FORGOTTEN_MAX);
            self.probes.forgotten = Some(Forgotten { una, wait, due: now + wait });
        }
        self.probes.forgotten.map(|forgotten| forgotten.due)
    }

    /// The oldest segment has left again.
    pub(super) fn oldest_left_again(&mut self, now: Instant) {
        if let Some(forgotten) = &mut self.probes.forgotten {
            forgotten.wait = (forgotten.wait * 2).min(FORGOTTEN_MAX);
            forgotten.due = now + forgotten.wait;
        }
    }

    /// Makes the oldest segment if it is due, in `packet`.
    pub(super) fn repeat_forgotten(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        let is_due = self.forgotten_deadline(now).is_some_and(|due| due <= now);
        if is_due {
            self.oldest_left_again(now);
            self.write_oldest(now, packet);
        }
        is_due
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
