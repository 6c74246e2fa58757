//! TIME-WAIT (RFC 9293 3.6.1): late segments of the connection, and a peer that begins anew.

use alloc::vec::Vec;

use punctual_analysis::Instant;

use super::{Connection, Ended, Received};
use crate::sequence::before;
use crate::wire::Segment;

impl Connection {
    pub(super) fn enter_time_wait(&mut self, now: Instant, reply: &mut Vec<u8>) {
        self.time_wait = Some(now + self.config.msl * 2);
        self.answer(now, reply);
    }

    /// RFC 9293 3.10.7.4 in TIME-WAIT, RFC 6191 (a newer SYN may take over), RFC 1337 (resets are ignored). One reset counts: the
    /// exact one after a SYN that was answered. That peer has begun anew, with an older number or clock (RFC 9293 3.5.1, figure 9), and
    /// could not connect for a minute otherwise.
    pub(super) fn input_time_wait(
        &mut self,
        now: Instant,
        segment: &Segment,
        reply: &mut Vec<u8>,
    ) -> Received {
        let next = self.place().next;
        let Some(guard) = self.guard.as_ref() else { return Received::Dropped };
        let is_stale =
            guard.has_timestamps() && segment.timestamp.is_some_and(|(value, _)| guard.is_stale(value, now));
        if segment.flags.rst {
            if self.misfits.has_answered_syn && segment.seq == next {
                self.time_wait = None;
                self.ended = Some(Ended::Closed);
            }
            return Received::Dropped;
        }
        if segment.flags.syn && segment.ack.is_none() && !is_stale {
            let is_newer = segment
                .timestamp
                .is_some_and(|(value, _)| guard.has_timestamps() && before(guard.echo(), value));
            if is_newer || before(next, segment.seq) {
                // Over at once: the SYN comes again, and must find its flow free.
                self.time_wait = None;
                self.ended = Some(Ended::Closed);
                return Received::ForNobody;
            }
        }
        // The peer's own FIN again, and no other.
        if segment.flags.fin && segment.end() == next && !is_stale {
            self.time_wait = Some(now + self.config.msl * 2);
        }
        if segment.length() > 0 || segment.seq != next {
            self.challenge(now, reply);
            self.misfits.has_answered_syn |= segment.flags.syn && segment.ack.is_none() && !reply.is_empty();
        }
        Received::Dropped
    }
}
