//! Acknowledgements of several segments reach the machine in parts. Its congestion control counts each acknowledgement as one
//! segment at most. A peer acknowledges every second segment (RFC 9293 3.8.6.3), or fewer where it takes several at once, so the
//! window would grow at half the rate of RFC 9438 4.3, which counts the acknowledged segments.
//!
//! Before the first loss the window doubles quickly anyway, and while a loss is repaired the recovery counts acknowledgements. In
//! both cases, and where data comes with the acknowledgement, it stays whole.

use alloc::vec::Vec;

use punctual_analysis::Instant;

use super::Connection;
use crate::edge;
use crate::guard::Changes;
use crate::limits::ACK_PARTS_MAX;
use crate::sequence::{at_or_after, before};
use crate::wire::Segment;

impl Connection {
    /// Gives the machine all parts of an acknowledgement but the last, which `packet` is when it is delivered.
    pub(super) fn acknowledge_in_parts(
        &mut self,
        now: Instant,
        (segment, changes): (&Segment, Changes),
        packet: &mut [u8],
        reply: &mut Vec<u8>,
    ) {
        let Some(ack) = changes.ack.or(segment.ack) else { return };
        if segment.length() > 0 || segment.flags.rst || !self.ahead.has_lost() || self.recovery.is_repairing()
        {
            return;
        }
        let (place, full) = (self.place(), self.segment_bytes() as u32);
        if full == 0 || !before(place.una, ack) || !at_or_after(place.sent, ack) {
            return;
        }
        let segments = ack.wrapping_sub(place.una).div_ceil(full);
        for part in 1..segments.min(ACK_PARTS_MAX) {
            let ack = self.numbers.to_machine(place.una.wrapping_add(part * full));
            edge::edit(packet, |tcp| {
                edge::set_ack(tcp, ack);
                if let Some(window) = changes.window {
                    tcp.set_window_len(window);
                }
            });
            self.machine.input(now, packet, reply);
        }
    }
}
