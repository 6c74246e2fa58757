//! The data of a connection that is guaranteed at both ends, with the same period T and B segments in each, on a clean wire.
//!
//! A period carries the data of B - 1 full segments: one may be cut in two, where the connection's buffer for sending begins
//! again (`punctual_tcp::endsystem::segments_max`). What is written and known to the sender's host before a period of its clock
//! begins leaves its link by that begin + `sent` of its output handler's grant. It is at the receiver's host after the link's propagation, and is taken
//! by its processor after the release latency. The input handler runs in the periods of its own clock: B segments of those
//! that are there when one begins, done by that begin + its bound. So the data of each period is at the program before the
//! second period of the receiver ends in which it may be there: the one in which it came, and the next. That is a bound of
//! sent + propagation + release latency + T + bound, and where the two clocks drift so far that two of the sender's periods
//! fall into one of the receiver's, the later one waits for the next.

use std::collections::VecDeque;

use punctual_analysis::{Instant, Nanos};
use punctual_proto::api::{RtuClass, RtuGrant};

use crate::scenario::{ConnectionPlan, Writes};
use crate::time::{HostClock, SimTime};

/// Segments after which the window of the connection is open for all that may be under way.
const WARM_SEGMENTS: u64 = 96;
/// Bytes of a TCP header with timestamps.
const TCP_BYTES: u32 = 32;

/// The promise to one connection, from client to server.
pub(super) struct Promise {
    period: Nanos,
    units: u32,
    /// Data of a segment at least.
    segment_bytes: u32,
    /// Of the sender's output handler, and of the receiver's input handler.
    sent: Option<Nanos>,
    bound: Option<Nanos>,
    /// Ends of what was written and is not known to the host.
    written: VecDeque<u64>,
    /// Ends of what is known, and when it is due.
    due: VecDeque<(u64, SimTime)>,
    /// The sender's period that has data last.
    last: u64,
    /// The receiver's period that has data last, and its segments.
    filled: (u64, u32),
    is_on: bool,
}

impl Promise {
    pub fn of(plan: &ConnectionPlan) -> Option<Self> {
        let RtuClass::Guaranteed { period, units } = plan.classes[0] else { return None };
        let is_promised =
            plan.writes == [Writes::Budget, Writes::Nothing] && plan.classes[0] == plan.classes[1];
        let header_bytes = if plan.is_v6 { 40 } else { 20 } + TCP_BYTES;
        is_promised.then(|| Self {
            period,
            units,
            segment_bytes: u32::from(plan.config.mtu_bytes) - header_bytes,
            sent: None,
            bound: None,
            written: VecDeque::new(),
            due: VecDeque::new(),
            last: 0,
            filled: (0, 0),
            is_on: false,
        })
    }

    pub const fn period(&self) -> Nanos {
        self.period
    }

    /// Data of a period.
    pub const fn budget_bytes(&self) -> u32 {
        (self.units - 1) * self.segment_bytes
    }

    /// Whether each period's data is promised by now.
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether the window is open after so many bytes.
    pub const fn is_warm(&mut self, read: u64) -> bool {
        self.is_on |= read >= WARM_SEGMENTS * self.segment_bytes as u64;
        self.is_on
    }

    /// A handler of an end was granted.
    pub const fn grant(&mut self, end: usize, grant: &RtuGrant, is_input: bool) {
        match (end, is_input) {
            (0, false) => self.sent = grant.sent,
            (1, true) => self.bound = grant.bound,
            _ => {}
        }
    }

    /// A period's data is written, which ends at this byte.
    pub fn wrote(&mut self, end: u64) {
        self.written.push_back(end);
    }

    /// What was written is known to the sender's host at `now` of its clock.
    pub fn notified(&mut self, now: Instant, [sender, receiver]: [HostClock; 2], travels: Nanos) {
        let (Some(sent), Some(bound)) = (self.sent, self.bound) else { return };
        while let Some(end) = self.written.pop_front() {
            // The next period that begins, and that has no data yet.
            self.last = now.0.div_ceil(self.period.0).max(self.last + 1);
            let left = sender.when(Instant(self.last * self.period.0) + sent);
            let there = receiver.read(left + travels);
            let first = there.0.div_ceil(self.period.0);
            for _ in 0..self.units {
                self.fill(first);
            }
            let done = Instant(self.filled.0 * self.period.0) + bound;
            self.due.push_back((end, receiver.when(done)));
        }
    }

    /// One more segment is processed in the receiver's period `first`, or in the next that has room.
    fn fill(&mut self, first: u64) {
        let (period, used) = self.filled;
        self.filled = match period.max(first) {
            next if next > period => (next, 1),
            _ if used < self.units => (period, used + 1),
            _ => (period + 1, 1),
        };
    }

    /// So many bytes were read by `now`: how many periods' data were complete, and how late one of them was.
    pub fn read(&mut self, read: u64, now: SimTime) -> (u64, Option<String>) {
        let (mut judged, mut late) = (0, None);
        while let Some(&(_, due)) = self.due.front().filter(|(end, _)| *end <= read) {
            self.due.pop_front();
            judged += 1;
            if now > due {
                late = Some(format!("{} after it was due at {due}", now.since(due)));
            }
        }
        (judged, late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_that_is_full_moves_the_next_ones_data() {
        let mut promise = Promise {
            period: Nanos(100),
            units: 2,
            segment_bytes: 10,
            sent: Some(Nanos(50)),
            bound: Some(Nanos(40)),
            written: VecDeque::new(),
            due: VecDeque::new(),
            last: 0,
            filled: (0, 0),
            is_on: true,
        };
        let clocks = [HostClock::new(0, 0), HostClock::new(0, 0)];
        promise.wrote(20);
        promise.notified(Instant(101), clocks, Nanos(10));
        // Sent in the period of 200, left by 250, there by 260, processed in that of 300.
        promise.wrote(40);
        promise.wrote(60);
        promise.notified(Instant(190), clocks, Nanos(10));
        assert_eq!(promise.due, [(20, SimTime(340)), (40, SimTime(440)), (60, SimTime(540))]);
        assert_eq!(promise.read(19, SimTime(340)), (0, None));
        assert_eq!(promise.read(20, SimTime(340)), (1, None));
        let (judged, late) = promise.read(60, SimTime(540));
        assert!(judged == 2 && late.expect("the second is late").contains("at 0.000440 ms"));
        promise.fill(4);
        assert_eq!(promise.filled, (6, 1), "an earlier period is over");
    }
}
