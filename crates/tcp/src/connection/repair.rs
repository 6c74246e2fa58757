//! Probes of a repair: what is sent again may be lost, too, and would wait for the timeout of the machine, which is a second at
//! least and twice as long each time. So the oldest segment leaves once more, beside the machine, when nothing new was acknowledged
//! for as long as the end of a flight waits for its probe (RFC 8985 7.2), and then after twice that time, again and again
//! (RFC 6298 5.5). One segment each time: the window is the machine's, which has shrunk it before a repair begins.
//!
//! Every second probe is a short segment, of the smallest size that is ever used; without a measured round trip each one, because the
//! machine's timeouts send full ones then. Where only short ones pass, the path drops full ones without an error (RFC 4821 7.7).

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::{Connection, State};
use crate::limits::{REPAIR_PROBE_MAX, UNMEASURED_PROBE};
use crate::sequence::{at_or_after, before};

/// The probes of the repair under way.
#[derive(Debug, Default)]
pub(super) struct Repair {
    /// When the next one leaves.
    due: Option<Instant>,
    /// The oldest byte that was not acknowledged when they were planned.
    una: Option<u32>,
    /// How many have left since then.
    unanswered: u32,
    /// The end of the short ones among them.
    short_end: Option<u32>,
    /// The longest segment that has left with the oldest byte in it, and has not arrived.
    longest: Option<(u32, u32)>,
}

impl Repair {
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether what begins at `seq` was not acknowledged, not even in part, when the probes were planned.
    pub(super) fn began_by(&self, seq: u32) -> bool {
        self.una.is_some_and(|una| at_or_after(seq, una))
    }

    /// Whether one of the short ones ends at `seq`.
    pub(super) fn has_short_to(&self, seq: u32) -> bool {
        self.short_end == Some(seq)
    }

    /// A segment with the oldest byte in it leaves.
    pub(super) fn note_longest(&mut self, from: u32, to: u32) {
        let is_longer = |(start, end): (u32, u32)| to.wrapping_sub(from) > end.wrapping_sub(start);
        if self.longest.is_none_or(is_longer) {
            self.longest = Some((from, to));
        }
    }

    /// What leaves from now on is of another size.
    pub(super) const fn forget_longest(&mut self) {
        self.longest = None;
    }

    /// Bytes of data of the longest segment.
    pub(super) fn longest_bytes(&self) -> Option<usize> {
        self.longest.map(|(from, to)| to.wrapping_sub(from) as usize)
    }
}

impl Connection {
    /// Plans the probes: when a repair begins, and anew after each acknowledgement of something new.
    pub(super) fn plan_repair(&mut self, now: Instant) {
        let una = self.place().una;
        if self.probes.repair.una != Some(una) {
            let longest = self.probes.repair.longest.filter(|(_, to)| before(una, *to));
            let next = Repair { una: Some(una), longest, ..Repair::default() };
            let last = core::mem::replace(&mut self.probes.repair, next);
            self.judge_path(&last, una, now);
        }
        if !self.is_repairing() {
            (self.probes.repair.due, self.probes.repair.unanswered) = (None, 0);
        } else if self.probes.repair.unanswered == 0 && self.probes.repair.due.is_none() {
            self.probes.repair.due = self.repair_span().map(|span| now + span);
        }
    }

    /// Whether something is sent again that the peer has room for, in more than one size. What leaves into a window of zero asks for the window, and its
    /// times are the machine's (RFC 9293 3.8.6.1).
    fn is_repairing(&self) -> bool {
        use State::{CloseWait, Closing, Established, FinWait1, LastAck};
        let is_sending = matches!(self.state(), Established | CloseWait | FinWait1 | Closing | LastAck);
        let is_again = self.recovery.is_repairing() && self.recovery.in_flight() > 0;
        is_sending && is_again && self.peer_window() > self.short_segment_bytes()
    }

    /// Bytes beyond the oldest that is not acknowledged that the peer takes.
    fn peer_window(&self) -> usize {
        let una = self.place().una;
        self.guard.as_ref().map_or(0, |guard| guard.window(una)) as usize
    }

    /// How long the next probe waits; none if it would wait longer than it may.
    fn repair_span(&self) -> Option<Nanos> {
        let factor = 1_u64.checked_shl(self.probes.repair.unanswered)?;
        let first = self.probe_span().unwrap_or(UNMEASURED_PROBE);
        let span = first.as_u64().checked_mul(factor).map(Nanos)?;
        (span <= REPAIR_PROBE_MAX).then_some(span)
    }

    /// Bytes of data of a full segment, or of what is in flight and the peer takes.
    fn full_length(&self) -> usize {
        self.segment_bytes().min(self.recovery.in_flight() as usize).min(self.peer_window())
    }

    /// Bytes of data of a short segment, if a full one is longer.
    fn short_length(&self) -> Option<usize> {
        Some(self.short_segment_bytes()).filter(|short| *short < self.full_length())
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
        let is_measured = self.rtt.smoothed().is_some();
        let short = self.short_length().filter(|_| !is_measured || self.probes.repair.unanswered % 2 == 1);
        self.probes.repair.unanswered += 1;
        self.probes.repair.due = self.repair_span().map(|span| now + span);
        // Without a measured round trip the machine's timeouts are early enough for full ones.
        if !is_measured && short.is_none() {
            return false;
        }
        self.send_probe(now, short, packet);
        true
    }

    /// Writes the oldest segment, of `short` bytes of data if it is to be a short one.
    fn send_probe(&mut self, now: Instant, short: Option<usize>, packet: &mut Vec<u8>) {
        let una = self.place().una;
        if let Some(short) = short {
            self.probes.repair.short_end = Some(una.wrapping_add(short as u32));
        }
        let mut payload = Vec::new();
        self.recovery.copy(una, short.unwrap_or(self.full_length()), &mut payload);
        self.write_data(una, &payload, now, packet);
        self.rtt.sent_again();
        self.recovery.count_resent(1);
        self.recovery.sent_once_more();
        self.oldest_left_again(now);
    }
}
