//! The end of a stream beside a window that was closed. The machine probes the window by an empty segment there, which nobody answers,
//! and where it has nothing to send at all, it probes without end. So the FIN is the probe (RFC 9293 3.8.6.1), and probes for nothing
//! end.

use alloc::vec::Vec;

use punctual_analysis::Instant;

use super::{Connection, State};
use crate::edge;

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

    /// Writes the FIN, without the data before it.
    pub(super) fn write_fin(&self, now: Instant, packet: &mut Vec<u8>) {
        self.write_at(self.place().una, &[], now, packet);
        edge::edit(packet, |tcp| tcp.set_fin(true));
        edge::seal(packet);
    }
}
