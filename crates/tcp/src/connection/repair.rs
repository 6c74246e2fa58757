//! Probes of a repair: what is sent again may be lost, too, and would wait for the timeout of the machine, which is a second at
//! least and twice as long each time. So the oldest segment leaves once more, beside the machine, when nothing new was acknowledged
//! for as long as the end of a flight waits for its probe (RFC 8985 7.2), and then after twice that time, again and again
//! (RFC 6298 5.5). One segment each time: the window is the machine's, which has shrunk it before a repair begins.

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::{Connection, State};
use crate::edge;
use crate::limits::{REPAIR_PROBE_MAX, TIMEOUT_MIN};

/// The probes of the repair under way.
#[derive(Debug, Default)]
pub(super) struct Repair {
    /// When the next one leaves.
    due: Option<Instant>,
    /// The oldest byte that was not acknowledged when they were planned.
    una: Option<u32>,
    /// How many have left since then.
    unanswered: u32,
    /// When a FIN leaves once more that the machine has forgotten, and how often it has.
    fin: Option<(Instant, u32)>,
}

impl Repair {
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Connection {
    /// Plans the probes: when a repair begins, and anew after each acknowledgement of something new.
    pub(super) fn plan_repair(&mut self, now: Instant) {
        let una = self.place().una;
        if !self.is_repairing() {
            self.probes.repair = Repair { fin: self.probes.repair.fin, ..Repair::default() };
        } else if self.probes.repair.una != Some(una) {
            self.probes.repair = Repair { una: Some(una), ..Repair::default() };
            self.probes.repair.due = self.repair_span().map(|span| now + span);
        }
    }

    /// Whether something is sent again that the peer has room for. What leaves into a window of zero asks for the window, and its
    /// times are the machine's (RFC 9293 3.8.6.1).
    fn is_repairing(&self) -> bool {
        use State::{CloseWait, Closing, Established, FinWait1, LastAck};
        let is_sending = matches!(self.state(), Established | CloseWait | FinWait1 | Closing | LastAck);
        let is_again = self.recovery.is_repairing() && self.recovery.in_flight() > 0;
        is_sending && is_again && self.has_full_window()
    }

    /// How long the next probe waits; none if it would wait longer than it may.
    fn repair_span(&self) -> Option<Nanos> {
        let factor = 1_u64.checked_shl(self.probes.repair.unanswered)?;
        let span = self.probe_span()?.as_u64().checked_mul(factor).map(Nanos)?;
        (span <= REPAIR_PROBE_MAX).then_some(span)
    }

    /// Whether only a FIN is unacknowledged.
    pub(super) fn is_fin_alone(&self) -> bool {
        let place = self.place();
        matches!(self.state(), State::FinWait1 | State::Closing | State::LastAck)
            && self.unacknowledged_bytes() == 0
            && place.sent == place.una.wrapping_add(1)
    }

    /// When the FIN leaves once more. The machine's timer for it ends where the peer's window was closed meanwhile: it has nothing to
    /// do then, or not before a minute.
    pub(super) fn fin_deadline(&mut self, now: Instant, machine: Option<Instant>) -> Option<Instant> {
        let is_forgotten = self.is_fin_alone() && machine.is_none_or(|at| at > now + REPAIR_PROBE_MAX);
        if !is_forgotten {
            self.probes.repair.fin = None;
            return None;
        }
        let (due, _) = self.probes.repair.fin.get_or_insert((now + TIMEOUT_MIN, 0));
        Some(*due)
    }

    /// Makes the FIN that was forgotten if it is due, in `packet`.
    pub(super) fn repeat_fin(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        let Some((_, times)) = self.probes.repair.fin.filter(|(due, _)| now >= *due) else { return false };
        self.probes.repair.fin = None;
        if !self.is_fin_alone() {
            return false;
        }
        let wait = TIMEOUT_MIN * 2_u64.saturating_pow(times + 1);
        self.probes.repair.fin = Some((now + wait.min(REPAIR_PROBE_MAX), times.saturating_add(1).min(16)));
        self.write_at(self.place().una, &[], now, packet);
        edge::edit(packet, |tcp| tcp.set_fin(true));
        edge::seal(packet);
        true
    }

    /// Makes the probe if it is due, in `packet`.
    pub(super) fn probe_repair(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        if self.probes.repair.due.is_none_or(|due| now < due) {
            return false;
        }
        self.probes.repair.due = None;
        if !self.is_repairing() {
            return false;
        }
        let una = self.place().una;
        let length = self.segment_bytes().min(self.recovery.in_flight() as usize);
        let mut payload = Vec::new();
        self.recovery.copy(una, length, &mut payload);
        self.write_data(una, &payload, now, packet);
        self.rtt.sent_again();
        self.recovery.count_resent(1);
        self.probes.repair.unanswered += 1;
        self.probes.repair.due = self.repair_span().map(|span| now + span);
        true
    }
}
