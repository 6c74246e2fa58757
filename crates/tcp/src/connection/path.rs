//! The largest packet of the path: what the route, ICMP errors and probes say about it.

use punctual_analysis::Instant;

use super::repair::Repair;
use super::{Connection, Ended, State};
use crate::icmp::{Quote, Trouble};
use crate::sequence::within;

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
            Trouble::Unreachable | Trouble::Transient => (),
        }
        true
    }

    /// Everything before `una` has arrived now. What does that say about the size of packets that the path carries?
    pub(super) fn judge_path(&mut self, last: &Repair, una: u32, now: Instant) {
        let news_bytes = last.una.map_or(0, |last| una.wrapping_sub(last)) as usize;
        let before = self.path.current();
        if last.short_end != Some(una) {
            if news_bytes > self.short_segment_bytes() {
                self.path.full_passed();
            }
        } else if self.path.short_passed(now) {
            self.follow_path(before, now);
        }
    }
}
