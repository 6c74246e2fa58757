//! The largest packet of the path: what the route, ICMP errors and probes say about it.

use punctual_analysis::Instant;

use super::repair::Repair;
use super::{Connection, Ended, State};
use crate::edge;
use crate::icmp::{Quote, Trouble};
use crate::sequence::{at_or_after, before, within};

impl Connection {
    /// The route to the peer carries packets of `mtu_bytes` from now on. The connection follows, up to the size that it began
    /// with; what is in flight in larger segments is sent again.
    pub fn route_changed(&mut self, mtu_bytes: u32, now: Instant) {
        let before = self.path.current();
        let mtu = u16::try_from(mtu_bytes).unwrap_or(u16::MAX).min(self.config.mtu_bytes);
        if self.ended.is_some() || !self.path.device_changed(mtu) {
            return;
        }
        self.follow_path(before, now);
    }

    /// Makes packets of the path's size from now on, which was `before`; what is in flight in larger ones is sent again.
    fn follow_path(&mut self, before: u16, now: Instant) {
        self.machine.set_mtu(self.flow, self.path.current(), now);
        if self.path.current() < before {
            self.recovery.path_shrank(self.place().sent);
        }
    }

    /// Tries the device's size again if it is due.
    pub(super) fn raise_path(&mut self, now: Instant) {
        let before = self.path.current();
        if self.path.raise(now) {
            self.follow_path(before, now);
        }
    }

    /// Handles an ICMP error that quotes a segment of this connection. Returns whether it was accepted.
    pub fn icmp(&mut self, now: Instant, quote: &Quote) -> bool {
        let place = self.place();
        // RFC 5927 4.1: the quoted segment must be in flight.
        if self.ended.is_some() || quote.flow != self.flow || !within(quote.seq, place.una, place.sent) {
            return false;
        }
        match quote.trouble {
            Trouble::TooBig(mtu) => {
                let before = self.path.current();
                if self.path.too_big(mtu, now) {
                    self.follow_path(before, now);
                }
            }
            Trouble::Unreachable if self.state() == State::SynSent => self.ended = Some(Ended::Unreachable),
            // RFC 5461 4.1: a route that changes has had a second; a program may have other addresses to try.
            Trouble::Transient if self.state() == State::SynSent && self.ahead.has_lost() => {
                self.ended = Some(Ended::Unreachable);
            }
            Trouble::Unreachable | Trouble::Transient => (),
        }
        true
    }

    /// Notes a packet that leaves, if it will say something about the path: because of its size, or because what it carries is to be
    /// acknowledged next in a repair.
    pub(super) fn note_size(&mut self, packet: &[u8]) {
        let is_in_doubt = self.path.is_in_doubt(packet.len());
        if !is_in_doubt && !self.recovery.is_repairing() {
            return;
        }
        let Some((from, payload)) = edge::payload(packet) else { return };
        let (una, to) = (self.place().una, from.wrapping_add(payload.len() as u32));
        if is_in_doubt && from != to {
            self.probes.full.get_or_insert((from, to));
        }
        if at_or_after(una, from) && before(una, to) {
            self.probes.repair.note_longest(from, to);
        }
    }

    /// Everything before `una` has arrived now. What does that say about the size of packets that the path carries?
    pub(super) fn judge_path(&mut self, last: &Repair, una: u32, now: Instant) {
        if let Some((from, to)) = self.probes.full.filter(|(from, _)| before(*from, una)) {
            self.probes.full = None;
            // In one piece: no short one has come in its place.
            if at_or_after(una, to) && last.began_by(from) {
                self.path.full_passed();
            }
        }
        let lost = last.longest_bytes().filter(|bytes| *bytes > self.short_segment_bytes());
        let Some(lost) = lost.filter(|_| last.has_short_to(una)) else { return };
        let size = self.path.current();
        if self.path.short_passed(lost + self.overhead_bytes(), now) {
            self.follow_path(size, now);
            self.probes.repair.forget_longest();
        }
    }
}
