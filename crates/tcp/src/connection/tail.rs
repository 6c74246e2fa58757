//! Probes of the end of a flight (RFC 8985 7): a last segment that is lost has no duplicates behind it, and would wait for the
//! timeout of the machine, which is a second at least. The probe leaves beside the machine. The machine is told of the loss that it
//! shows by duplicate acknowledgements.

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::{Connection, State};
use crate::edge;
use crate::limits::{PEER_ACK_DELAY, PROBE_MIN, TIMEOUT_MIN};
use crate::sequence::at_or_after;
use crate::wire::{self, Flags, Segment, bare};

/// Duplicate acknowledgements that make the machine repair a loss (RFC 5681 3.2).
const DUPLICATES: u32 = 3;

/// The probe of a flight.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// When it leaves.
    due: Option<Instant>,
    /// What was sent so far when it left, and whether it was sent before.
    out: Option<(u32, bool)>,
    /// What the machine has made when it was told of a loss, if it is needed.
    made: Vec<u8>,
}

impl Tail {
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a segment waits that was made.
    pub(super) const fn has_made(&self) -> bool {
        !self.made.is_empty()
    }

    /// Moves the segment that was made into `packet`, which is empty.
    pub(super) fn take_made(&mut self, packet: &mut Vec<u8>) {
        packet.append(&mut self.made);
    }
}

impl Connection {
    /// Plans the probe of what is in flight: after data that left, and after each acknowledgement.
    pub(super) fn plan_probe(&mut self, now: Instant) {
        let may_probe = matches!(self.state(), State::Established | State::CloseWait)
            && self.ahead.has_sack()
            && self.recovery.in_flight() > 0
            && !self.recovery.is_repairing()
            && self.probes.tail.out.is_none()
            && self.has_full_window();
        self.probes.tail.due = self.tail_span().filter(|_| may_probe).map(|span| now + span);
    }

    /// Whether the peer takes a full segment. The machine sends one for a loss whatever the window: bytes beyond a smaller one would
    /// count as sent.
    pub(super) fn has_full_window(&self) -> bool {
        let una = self.place().una;
        self.guard.as_ref().is_some_and(|guard| guard.window(una) as usize >= self.segment_bytes())
    }

    /// How long the probe waits; none if the machine's timeout is no later.
    fn tail_span(&self) -> Option<Nanos> {
        self.probe_span().filter(|span| *span < TIMEOUT_MIN)
    }

    /// RFC 8985 7.2: twice the round-trip time, and more where the peer may wait for another segment.
    pub(super) fn probe_span(&self) -> Option<Nanos> {
        let is_single = self.recovery.in_flight() as usize <= self.recovery.longest_bytes();
        let waits = if is_single { PEER_ACK_DELAY } else { Nanos::ZERO };
        Some((self.rtt.smoothed()? * 2 + waits).max(PROBE_MIN))
    }

    /// Makes the probe if it is due, in `packet`: bytes that have not left, or else the last ones again (RFC 8985 7.3).
    pub(super) fn probe(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        if self.probes.tail.due.is_none_or(|due| now < due) {
            return false;
        }
        self.probes.tail.due = None;
        let place = self.place();
        if self.recovery.in_flight() == 0 || self.recovery.is_repairing() || self.ended.is_some() {
            return false;
        }
        let is_again = match self.next_unsent(place) {
            Some(next) => {
                self.send_beside(next, now, packet);
                false
            }
            None => {
                let length = self.segment_bytes().min(self.recovery.in_flight() as usize);
                let seq = place.una.wrapping_add(self.recovery.in_flight()).wrapping_sub(length as u32);
                let mut payload = Vec::new();
                self.recovery.copy(seq, length, &mut payload);
                self.write_data(seq, &payload, now, packet);
                self.rtt.sent_again();
                self.recovery.count_resent(1);
                true
            }
        };
        self.probes.tail.out = Some((place.una.wrapping_add(self.recovery.in_flight()), is_again));
        true
    }

    /// An acknowledgement comes, after its selective ones were noted and before the machine gets it (RFC 8985 7.4.2).
    /// `window` is the field that the machine was given last.
    pub(super) fn probe_answered(
        &mut self,
        now: Instant,
        segment: &Segment,
        window: u16,
        blocks: &[(u32, u32)],
    ) {
        let (Some((end, is_again)), Some(ack)) = (self.probes.tail.out, segment.ack) else { return };
        let una = self.place().una;
        let has_duplicate = blocks.first().is_some_and(|(_, to)| at_or_after(ack, *to));
        if !at_or_after(ack, end) {
            // The probe arrived and something before it did not.
            if self.recovery.has_hole() && !self.recovery.is_repairing() {
                self.probes.tail.out = None;
                if self.mark_oldest_lost(now, window) {
                    self.recovery.told_of_loss();
                }
            }
            return;
        }
        let is_repeat = ack == una && blocks.is_empty() && segment.length() == 0;
        if let Some(wait) = self.probe_span().filter(|_| is_again && has_duplicate) {
            self.rtt.not_below(wait);
        }
        if !is_again || has_duplicate || is_repeat {
            self.probes.tail.out = None;
        } else if ack != end {
            // The probe has repaired a loss, and the window must shrink.
            self.probes.tail.out = None;
            if self.mark_oldest_lost(now, window) {
                self.probes.tail.made = self.shrink(now, una);
            }
        }
    }

    /// Has the machine make the segment that it sends for a loss, which has arrived. Returns what it has made if that is needed: it
    /// may be another segment, or have bytes that have not left, because it is as long as the peer takes, whatever the window.
    fn shrink(&mut self, now: Instant, una: u32) -> Vec<u8> {
        let (mut packet, sent) = (Vec::new(), self.numbers.sent());
        self.machine.output(now, &mut packet);
        let made =
            edge::payload(&packet).map(|(seq, payload)| (self.numbers.to_wire(seq), payload.len() as u32));
        if made.is_some_and(|(seq, length)| seq == una && at_or_after(sent, seq.wrapping_add(length))) {
            packet.clear();
        }
        packet
    }

    /// Selective acknowledgements may show that the oldest segment is lost, which the machine does not see.
    pub(super) fn note_loss(&mut self, now: Instant) {
        if self.ended.is_some() || !self.recovery.shows_loss() {
            return;
        }
        let una = self.place().una;
        let Some(window) = self.guard.as_ref().map(|guard| guard.repeated_window(una)) else { return };
        self.probes.tail.out = None;
        if self.mark_oldest_lost(now, window) {
            self.recovery.told_of_loss();
        }
    }

    /// Tells the machine that the oldest segment is lost, if the peer has room for a full one; whether it has.
    fn mark_oldest_lost(&mut self, now: Instant, window: u16) -> bool {
        let has_room = self.has_full_window();
        if has_room {
            self.tell_machine(now, window, DUPLICATES);
        }
        has_room
    }

    /// Gives the machine an acknowledgement of what it knows as acknowledged, with this window field, so many times. The peer has not
    /// sent it.
    pub(super) fn tell_machine(&mut self, now: Instant, window: u16, times: u32) {
        if times == 0 {
            return;
        }
        let Some(guard) = self.guard.as_ref() else { return };
        let place = self.place();
        let timestamp = guard.has_timestamps().then(|| (guard.echo(), 0));
        let segment = Segment {
            seq: place.next,
            ack: Some(self.numbers.to_machine(place.una)),
            flags: Flags::default(),
            window,
            timestamp,
            ..bare(self.flow)
        };
        let (mut packet, mut reply) = (Vec::new(), Vec::new());
        wire::write_with(&segment, &[], self.config.hop_limit, false, &mut packet);
        self.machine.told(now);
        for _ in 0..times {
            self.machine.input(now, &packet, &mut reply);
            reply.clear();
        }
    }
}
