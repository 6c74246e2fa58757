//! What the acknowledgement of a segment means, before the machine gets it.

use punctual_analysis::Instant;

use super::{Connection, State};
use crate::guard::{Changes, Place};
use crate::recovery::Acknowledgement;
use crate::sequence::before;
use crate::wire::Segment;

impl Connection {
    /// Whether a segment only repeats the acknowledgement of everything but our FIN. The machine would count it
    /// as a duplicate acknowledgement: the third one stops its retransmission timer for a segment of data, and
    /// the FIN is not sent again.
    fn repeats_ack_before_fin(&self, segment: &Segment, place: Place) -> bool {
        let is_fin_out = matches!(self.state(), State::FinWait1 | State::Closing | State::LastAck);
        let is_bare = segment.length() == 0 && !segment.flags.rst;
        is_fin_out && is_bare && self.unacknowledged_bytes() == 0 && segment.ack == Some(place.una)
    }

    /// Handles the acknowledgement of a segment before the machine gets it; whether the machine gets the segment. `window` is the field
    /// that it was given last.
    pub(super) fn takes_acknowledgement(
        &mut self,
        now: Instant,
        (segment, changes): (&Segment, Changes),
        window: u16,
        blocks: &[(u32, u32)],
    ) -> bool {
        let place = self.place();
        let times = self.recovers(segment, changes, blocks);
        self.probe_answered(now, segment, window, blocks);
        if self.repeats_ack_before_fin(segment, place) {
            return false;
        }
        if times == 0 {
            self.note_loss(now);
            self.plan_probe(now);
            return false;
        }
        self.tell_machine(now, window, times - 1);
        true
    }

    /// Gives the acknowledgement of a segment to the recovery; how many times the machine gets it.
    fn recovers(&mut self, segment: &Segment, changes: Changes, blocks: &[(u32, u32)]) -> u32 {
        let (Some(ack), false) = (changes.ack.or(segment.ack), segment.flags.rst) else { return 1 };
        let window = changes.window.unwrap_or(segment.window);
        let (is_bare, has_sack) = (segment.length() == 0, self.ahead.has_sack());
        let is_new = before(self.place().una, ack);
        let echo = segment.timestamp.map(|(_, echo)| echo);
        let it = Acknowledgement { ack, window, is_bare, has_sack, has_room: self.has_full_window(), echo };
        let times = self.recovery.acknowledged(it, blocks);
        // What is new to the machine is kept from it in no case.
        times.max(u32::from(is_new))
    }
}
