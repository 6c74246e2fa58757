//! The rest of the first flight (RFC 6928), which leaves beside the machine: its congestion window begins at 2,048 bytes and can
//! be neither read nor set. The machine accepts acknowledgements of everything that it was given to send. When its window has
//! grown, it makes the same segments: what of them has left already is cut from them here.

use alloc::vec::Vec;

use punctual_analysis::Instant;

use super::Connection;
use crate::edge;
use crate::guard::Place;
use crate::limits::FIRST_FLIGHT;
use crate::machine::MachineState;
use crate::sequence::{before, later};
use crate::wire::{IPV4_BYTES, IPV6_BYTES, TCP_BYTES};

/// Bytes of the timestamp option with its padding (RFC 7323, appendix A).
const TIMESTAMP_BYTES: usize = 12;

/// What has left beside the machine.
#[derive(Debug)]
pub(super) struct Ahead {
    /// End of the data that the machine has made.
    made: u32,
    /// Whether nothing was lost so far: a first flight may leave.
    is_first: bool,
    /// SYNs that were made.
    syns: u8,
    /// Bytes of data that the peer takes in a segment without options.
    peer_mss: u16,
    has_sack: bool,
}

impl Ahead {
    /// The first byte of data will have the number `start`.
    pub(super) const fn new(start: u32) -> Self {
        Self { made: start, is_first: true, syns: 0, peer_mss: 0, has_sack: false }
    }

    /// The peer's SYN came.
    pub(super) const fn synchronize(&mut self, mss: u16, has_sack: bool) {
        (self.peer_mss, self.has_sack) = (mss, has_sack);
    }

    /// Whether the peer acknowledges selectively.
    pub(super) const fn has_sack(&self) -> bool {
        self.has_sack
    }

    /// Whether something was lost, a SYN included.
    pub(super) const fn has_lost(&self) -> bool {
        !self.is_first
    }

    /// A loss: from now on the machine alone says how much may be in flight.
    pub(super) const fn lost(&mut self) {
        self.is_first = false;
    }

    /// The machine has made a SYN; the second one means that the first was lost (RFC 5681 3.1).
    pub(super) fn syn(&mut self) {
        self.syns = self.syns.saturating_add(1);
        self.is_first &= self.syns < 2;
    }

    /// Data up to `end` counts as made by the machine: what it makes of that leaves again.
    pub(super) fn made(&mut self, end: u32) {
        self.made = later(self.made, end);
    }
}

impl Connection {
    /// Bytes of data of a full segment.
    pub(super) fn segment_bytes(&self) -> usize {
        self.segment_bytes_of(self.path.current())
    }

    /// Bytes of data of a segment of the smallest size that is ever used.
    pub(super) fn short_segment_bytes(&self) -> usize {
        self.segment_bytes_of(self.path.floor())
    }

    fn segment_bytes_of(&self, packet_bytes: u16) -> usize {
        let ours = usize::from(packet_bytes).saturating_sub(self.header_bytes());
        ours.min(usize::from(self.ahead.peer_mss)).saturating_sub(self.option_bytes())
    }

    /// Bytes of a packet besides its data.
    pub(super) fn overhead_bytes(&self) -> usize {
        self.header_bytes() + self.option_bytes()
    }

    fn header_bytes(&self) -> usize {
        TCP_BYTES + if self.flow.is_v6() { IPV6_BYTES } else { IPV4_BYTES }
    }

    fn option_bytes(&self) -> usize {
        let has_timestamps = self.guard.as_ref().is_some_and(|guard| guard.has_timestamps());
        if has_timestamps { TIMESTAMP_BYTES } else { 0 }
    }

    /// The segment of the first flight that may leave now, ahead of the machine: its number and its bytes.
    pub(super) fn next_of_first_flight(&self, place: Place) -> Option<(u32, usize)> {
        if !self.ahead.is_first || self.ended.is_some() {
            return None;
        }
        let (segments, bytes) = FIRST_FLIGHT;
        let full = self.segment_bytes() as u32;
        let flight = (segments * full).min(bytes.max(2 * full));
        let end = self.numbers.iss().wrapping_add(1).wrapping_add(flight);
        // The machine makes the first segment, which starts its timer.
        let is_under_way = before(place.una, self.ahead.made);
        let room = if before(place.sent, end) { end.wrapping_sub(place.sent) } else { 0 };
        let (seq, length) = self.next_unsent(place)?;
        let length = length.min(room as usize);
        let is_full = length >= full as usize;
        let may_be_short = self.config.is_nodelay || self.is_closing();
        (is_under_way && length > 0 && (is_full || may_be_short)).then_some((seq, length))
    }

    /// The next bytes that have not left and that the peer has room for: their number, and how many fit into a segment.
    pub(super) fn next_unsent(&self, place: Place) -> Option<(u32, usize)> {
        let unsent = self.numbers.enqueued_end().wrapping_sub(place.sent);
        let window = self.guard.as_ref()?.window(place.una);
        let room = window.saturating_sub(place.sent.wrapping_sub(place.una));
        let is_some = before(place.sent, self.numbers.enqueued_end());
        let length = (unsent.min(room) as usize).min(self.segment_bytes());
        (is_some && length > 0).then_some((place.sent, length))
    }

    fn is_closing(&self) -> bool {
        let state = self.machine.state();
        self.numbers.close_waits()
            || matches!(state, MachineState::FinWait1 | MachineState::Closing | MachineState::LastAck)
    }

    /// Sends data for the first time, beside the machine.
    pub(super) fn send_beside(&mut self, (seq, length): (u32, usize), now: Instant, packet: &mut Vec<u8>) {
        let mut payload = Vec::new();
        self.recovery.copy(seq, length, &mut payload);
        let end = seq.wrapping_add(payload.len() as u32);
        self.write_data(seq, &payload, now, packet);
        self.recovery.left(seq, &payload, self.numbers.sent());
        self.numbers.sent_to(end);
        self.rtt.left(end, now);
    }

    /// Cuts what has left already from data that the machine makes for the first time. What is left of the packet brings news,
    /// or it is empty.
    pub(super) fn cut_what_left(&mut self, packet: &mut Vec<u8>) {
        let Some((machine_seq, payload)) = edge::payload(packet) else { return };
        let (seq, length) = (self.numbers.to_wire(machine_seq), payload.len());
        let place = self.place();
        let end = seq.wrapping_add(length as u32);
        // A probe of a window that is closed is no segment that was made before.
        let is_probe = self.guard.as_ref().is_none_or(|guard| guard.window(place.una) == 0);
        let is_first = !before(seq, self.ahead.made) && !is_probe;
        self.ahead.made(end);
        if !is_first || !before(seq, place.sent) {
            return;
        }
        edge::cut_front(packet, place.sent.wrapping_sub(seq) as usize);
        if edge::payload(packet).is_none() && !self.brings_news(packet) {
            packet.clear();
        }
    }

    /// Whether a packet without data ends the stream, or acknowledges or takes more than the last one.
    pub(super) fn brings_news(&self, packet: &mut [u8]) -> bool {
        let (mut brings, edge) = (false, self.numbers.edge());
        let last = self.guard.as_ref().map(|guard| guard.last_ack_sent());
        edge::edit(packet, |tcp| {
            let ack = tcp.ack_number().0 as u32;
            let window = u32::from(tcp.window_len()) << self.numbers.shift();
            brings = tcp.fin() || last != Some(ack) || before(edge, ack.wrapping_add(window));
        });
        brings
    }
}
