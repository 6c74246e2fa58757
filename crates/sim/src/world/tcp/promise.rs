//! The data of a connection that is guaranteed at both ends, with the same period T and B segments in each, on a clean wire.
//!
//! A period carries the data of B - 1 full segments: one may be cut in two, where the connection's buffer for sending begins
//! again (`punctual_tcp::endsystem::segments_max`). Both handlers are released when a segment comes, at most B times in any
//! window of T. A segment that is known to the sender's host at t is released at e = max(t, e of the segment B before it + T),
//! and leaves its link by e + `sent` of the output handler's grant. It is at the receiver's host after the link's propagation,
//! is taken by its processor after the release latency, and is released there by the same rule, on that host's clock. It is at
//! the program by that release + the bound of the input handler.
//!
//! *Over channels* (ADR 0055) it is in its channel's ring by e + the bound of the output handler, its logical arrival is I
//! behind the one before it at most, and it is at the input handler D after that. The windows of the connection must hold what
//! is under way meanwhile: the plan draws such periods and deadlines.

use std::collections::VecDeque;

use punctual_analysis::{Contract, Instant, Nanos};
use punctual_proto::api::{RtuClass, RtuGrant};

use crate::scenario::{ConnectionPlan, Writes};
use crate::time::{HostClock, SimTime};

/// Segments after which the window of the connection is open for all that may be under way.
const WARM_SEGMENTS: u64 = 96;
/// The same over channels, where less is under way (`scenario::paths`).
const WARM_SEGMENTS_PATH: u64 = 64;
/// Bytes of a TCP header with timestamps.
const TCP_BYTES: u32 = 32;

/// The promise to one connection, from client to server.
pub(super) struct Promise {
    period: Nanos,
    units: u32,
    /// Data of a segment at least.
    segment_bytes: u32,
    /// Bound of the sender's output handler. The next field is that of the receiver's input handler.
    sent: Option<Nanos>,
    bound: Option<Nanos>,
    /// Ends of what was written and is not known to the host.
    written: VecDeque<u64>,
    /// Ends of what is known, and when it is due.
    due: VecDeque<(u64, SimTime)>,
    /// Releases of the last B segments at the sender, the oldest first.
    releases: VecDeque<Instant>,
    /// The same at the receiver.
    releases_in: VecDeque<Instant>,
    /// Contract of the channel, and the latest logical arrival of the last segment, if the path is reserved.
    path: Option<(Contract, Instant)>,
    is_on: bool,
}

impl Promise {
    pub fn of(plan: &ConnectionPlan) -> Option<Self> {
        let RtuClass::Guaranteed { period, units, .. } = plan.classes[0] else { return None };
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
            releases: VecDeque::new(),
            releases_in: VecDeque::new(),
            path: plan.path.map(|path| (path, Instant::ZERO)),
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
        let segments = if self.path.is_some() { WARM_SEGMENTS_PATH } else { WARM_SEGMENTS };
        self.is_on |= read >= segments * self.segment_bytes as u64;
        self.is_on
    }

    /// A handler of an end was granted.
    pub fn grant(&mut self, end: usize, grant: &RtuGrant, is_input: bool) {
        match (end, is_input) {
            (0, false) => self.sent = grant.sent.or(grant.bound),
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
            let mut released = Instant::ZERO;
            for _ in 0..self.units {
                let left = self.window(now).next(&mut self.releases) + sent;
                let there = receiver.read(match &mut self.path {
                    Some((path, last)) => {
                        *last = left.max(*last + path.interval());
                        sender.when(*last) + path.deadline
                    }
                    None => sender.when(left) + travels,
                });
                released = self.window(there).next(&mut self.releases_in);
            }
            self.due.push_back((end, receiver.when(released + bound)));
        }
    }

    const fn window(&self, ready: Instant) -> Window {
        Window { period: self.period, units: self.units as usize, ready }
    }

    /// Notes that `read` bytes were read by `now`. Returns the number of periods whose data is complete, and a line if one was late.
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

/// A segment that is ready to be released.
struct Window {
    period: Nanos,
    units: usize,
    ready: Instant,
}

impl Window {
    /// Release of the next data, after those before it.
    fn next(&self, releases: &mut VecDeque<Instant>) -> Instant {
        let oldest = if releases.len() < self.units { None } else { releases.pop_front() };
        let release = oldest.map_or(self.ready, |oldest| self.ready.max(oldest + self.period));
        releases.push_back(release);
        release
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_comes_early_waits_until_its_window_has_room() {
        let mut promise = Promise {
            period: Nanos(100),
            units: 2,
            segment_bytes: 10,
            sent: Some(Nanos(50)),
            bound: Some(Nanos(40)),
            written: VecDeque::new(),
            due: VecDeque::new(),
            releases: VecDeque::new(),
            releases_in: VecDeque::new(),
            path: None,
            is_on: true,
        };
        let clocks = [HostClock::new(0, 0), HostClock::new(0, 0)];
        promise.wrote(20);
        promise.notified(Instant(101), clocks, Nanos(10));
        // Left by 151, there by 161, processed by 201.
        promise.wrote(40);
        promise.wrote(60);
        promise.notified(Instant(190), clocks, Nanos(10));
        assert_eq!(promise.due, [(20, SimTime(201)), (40, SimTime(301)), (60, SimTime(401))]);
        assert_eq!(promise.read(19, SimTime(201)), (0, None));
        assert_eq!(promise.read(20, SimTime(201)), (1, None));
        let (judged, late) = promise.read(60, SimTime(401));
        assert!(judged == 2 && late.expect("the second is late").contains("at 0.000301 ms"));
        promise.wrote(80);
        promise.notified(Instant(900), clocks, Nanos(10));
        assert_eq!(promise.due, [(80, SimTime(1_000))], "an earlier window is over");
    }
}
