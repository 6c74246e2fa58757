//! The end of a stream beside a window that was closed. The machine loses its timer there, or probes the window by an empty segment
//! that nobody answers, so a FIN that was lost leaves no more; and where it has nothing to send at all, it probes without end. So the
//! FIN is the probe (RFC 9293 3.8.6.1), probes for nothing end, and a FIN for which the machine has no timer has one of its own: a
//! second, and twice as long each time, up to a minute (RFC 6298 2.4, 5.5).

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::{Connection, State};
use crate::edge;
use crate::limits::{REPAIR_PROBE_MAX, TIMEOUT_MIN};

/// The timer of a FIN that the machine has forgotten.
#[derive(Debug)]
pub(super) struct Fin {
    /// When it leaves once more.
    due: Option<Instant>,
    /// How long it waits then.
    wait: Nanos,
}

impl Default for Fin {
    fn default() -> Self {
        Self { due: None, wait: TIMEOUT_MIN }
    }
}

impl Connection {
    /// Whether only a FIN is unacknowledged.
    fn is_fin_alone(&self) -> bool {
        let place = self.place();
        matches!(self.state(), State::FinWait1 | State::Closing | State::LastAck)
            && self.unacknowledged_bytes() == 0
            && place.sent == place.una.wrapping_add(1)
    }

    /// Whether `packet`, the machine's, asks for the window with nothing to send into it: at most a FIN.
    pub(super) fn is_idle_probe(&self, packet: &mut [u8]) -> bool {
        let is_idle = self.state() == State::FinWait2 || self.is_fin_alone();
        is_idle && !packet.is_empty() && edge::payload(packet).is_none() && !self.brings_news(packet)
    }

    /// Puts the FIN in the place of such a probe, which has its times. Without one it ends the probes; whether there is a packet.
    pub(super) fn replace_idle_probe(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        packet.clear();
        if self.is_fin_alone() {
            self.write_fin(now, packet);
        } else {
            self.tell_machine(now, 1, 1);
        }
        !packet.is_empty()
    }

    /// When the FIN leaves once more; `None` while the machine has a timer for it. That of its keep-alive is none.
    pub(super) fn fin_deadline(&mut self, now: Instant) -> Option<Instant> {
        if !self.is_fin_alone() {
            self.probes.fin = Fin::default();
            return None;
        }
        let has_timer = self.config.keep_alive.is_none() && self.machine.has_timer(now);
        let due = self.probes.fin.due.filter(|_| !has_timer).unwrap_or(now + self.probes.fin.wait);
        self.probes.fin.due = (!has_timer).then_some(due);
        self.probes.fin.due
    }

    /// Makes the FIN if it is due, in `packet`.
    pub(super) fn repeat_fin(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        if self.probes.fin.due.is_none_or(|due| now < due) || !self.is_fin_alone() {
            return false;
        }
        self.probes.fin.wait = (self.probes.fin.wait * 2).min(REPAIR_PROBE_MAX);
        self.probes.fin.due = Some(now + self.probes.fin.wait);
        self.write_fin(now, packet);
        true
    }

    fn write_fin(&self, now: Instant, packet: &mut Vec<u8>) {
        self.write_at(self.place().una, &[], now, packet);
        edge::edit(packet, |tcp| tcp.set_fin(true));
        edge::seal(packet);
    }
}
