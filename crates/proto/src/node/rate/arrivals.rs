//! Received packets of a neighbour's measurement, and the link rate that follows from them.
//!
//! The time of some of the packets is stored as a *mark*. Between two marks the link has drained the packets
//! between them, if it had packets all the time. A host that stalls or a timer that is late moves single
//! marks away from the straight line between the two marks: twice the largest deviation is the error of the
//! time between them. A token bucket that is not empty yet bends the line, which shows in the same way. So
//! the first marks are left out, and the straightest of a few windows counts.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use punctual_analysis::{Instant, Nanos};

use crate::ids::Cookie;
use crate::limits::{RATE_MARK_INTERVAL, RATE_MARKS_MAX, RATE_MARKS_MIN};
use crate::rate_sample::RateSample;
use crate::wire::Header;

/// State of the measurement at one packet.
#[derive(Clone, Copy, Debug)]
struct Mark {
    received: Instant,
    /// Time at which it was handed to the sender's driver, on the sender's clock.
    sent: Instant,
    /// Packets that came before it.
    packets: u64,
    /// Packets of the measurement that were sent before it.
    number: u64,
    /// Bytes on the wire of other packets that were sent before it.
    others: u64,
}

/// Counts the packets of one measurement.
#[derive(Debug)]
pub(in crate::node) struct FillerArrivals {
    cookie: Cookie,
    marks: Vec<Mark>,
    packets: u64,
    number_next: u64,
}

impl FillerArrivals {
    pub fn new(cookie: Cookie) -> Self {
        Self { cookie, marks: Vec::with_capacity(RATE_MARKS_MAX), packets: 0, number_next: 0 }
    }

    /// Takes a packet of best effort, if it belongs to the measurement. A number counts once, and not after a
    /// later number: packets that are duplicated on the way are not drained by the link.
    pub fn take(&mut self, header: &Header, received: Instant) -> bool {
        if header.cookie != self.cookie {
            return false;
        }
        if header.message < self.number_next {
            return true;
        }
        self.number_next = header.message.saturating_add(1);
        let due = self.marks.last().is_none_or(|last| received.since(last.received) >= RATE_MARK_INTERVAL);
        if due && self.marks.len() < RATE_MARKS_MAX {
            let (sent, packets, number) = (header.logical_arrival, self.packets, header.message);
            let others = u64::try_from(header.slack_ns).unwrap_or(0);
            self.marks.push(Mark { received, sent, packets, number, others });
        }
        self.packets += 1;
        true
    }

    /// The straightest window; `None` if too few packets arrived. Visits each mark nine times at most.
    pub fn counted(&self) -> Option<RateSample> {
        let marks = self.marks.len();
        if marks < RATE_MARKS_MIN {
            return None;
        }
        let first = marks / 3;
        let windows = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (0, 2)];
        let part = (marks - first) / 4;
        let windows = windows.map(|(begin, end)| (first + begin * part, marks - 1 - end * part));
        let counted = windows.iter().filter_map(|(begin, end)| self.window(*begin, *end));
        counted.min_by_key(|counted| counted.unevenness().0)
    }

    fn window(&self, begin: usize, end: usize) -> Option<RateSample> {
        let (from, to) = (self.marks.get(begin)?, self.marks.get(end)?);
        // No rate follows from none of them, nor from no time.
        let packets = NonZeroU64::new(to.packets - from.packets)?;
        let span = Nanos(NonZeroU64::new(to.received.since(from.received).0)?.get());
        let even = |mark: &Mark| {
            let part =
                u128::from(span.0) * u128::from(mark.packets - from.packets) / u128::from(packets.get());
            from.received + Nanos(part as u64)
        };
        let off = |mark: &Mark| mark.received.minus(even(mark)).unsigned_abs();
        let jitter = Nanos(self.marks[begin..end].iter().map(off).max().unwrap_or(0));
        let (offered, offered_span) = (to.number - from.number, to.sent.since(from.sent));
        let others = to.others.saturating_sub(from.others);
        Some(RateSample { packets: packets.get(), span, jitter, offered, offered_span, others })
    }
}

#[cfg(test)]
mod tests {
    use punctual_analysis::{BitRate, Ppm};

    use super::*;
    use crate::ids::NodeId;
    use crate::node::plane::filler_header;

    const COOKIE: Cookie = Cookie(7);

    /// Packets of 1,000 B on the wire, sent every 100 us and received at the time that `arrival` of (number,
    /// time of sending) returns.
    fn counted(packets: u64, mut arrival: impl FnMut(u64, u64) -> Option<u64>) -> Option<RateSample> {
        let mut arrivals = FillerArrivals::new(COOKIE);
        for number in 0..packets {
            let sent = number * 100_000;
            let header = filler_header(Default::default(), NodeId(2), COOKIE, number, 900, Instant(sent));
            if let Some(at) = arrival(number, sent) {
                assert!(arrivals.take(&header, Instant(at)));
            }
        }
        arrivals.counted()
    }

    #[test]
    fn an_even_drain_is_measured_to_the_packet() {
        let counted = counted(3_000, |number, _| Some(5_000_000 + number * 400_000)).expect("enough");
        assert_eq!(counted.rate(1_000), BitRate(20_000_000));
        assert_eq!(counted.offered_rate(1_000), BitRate(80_000_000));
        assert!(counted.unevenness() < Ppm(10_000), "{counted:?}");
    }

    #[test]
    fn the_bucket_that_is_full_at_the_beginning_is_left_out() {
        // A bucket of 60 ms lets 600 packets through without delay; later ones take 400 us each.
        let drains =
            |number: u64, sent: u64| Some(sent.max(60_000_000 + number.saturating_sub(600) * 400_000));
        let counted = counted(3_000, drains).expect("enough");
        let (rate, error) = (counted.rate(1_000).0, counted.unevenness());
        assert!(rate.abs_diff(20_000_000) <= 20_000_000 * u64::from(error.0) / 1_000_000, "{rate} {error:?}");
        assert!(error < Ppm(10_000), "{error:?}");
    }

    #[test]
    fn a_stall_is_in_the_error_and_what_is_lost_is_no_drain() {
        // Every second packet is lost. In the middle nothing is received for 13 ms, then all of it at once.
        let stalled = |number: u64, sent: u64| {
            let at = if (150_000_000..163_000_000).contains(&sent) { 163_000_000 } else { sent };
            number.is_multiple_of(2).then_some(at)
        };
        let counted = counted(3_000, stalled).expect("enough");
        let (rate, error) = (counted.rate(1_000).0, u64::from(counted.unevenness().0));
        assert!(rate.abs_diff(40_000_000) <= 40_000_000 * error / 1_000_000, "{rate} {error}");
    }

    #[test]
    fn packets_of_others_count_as_far_as_they_came_through() {
        // One foreign packet, half as long, is sent between two of ours; three of four of ours come through.
        let mut arrivals = FillerArrivals::new(COOKIE);
        for (came, number) in (0..3_000u64).filter(|number| number % 4 != 3).enumerate() {
            let sent = Instant(number * 100_000);
            let header = filler_header(Default::default(), NodeId(2), COOKIE, number, 900, sent);
            let header = Header { slack_ns: number as i64 * 500, ..header };
            assert!(arrivals.take(&header, Instant(came as u64 * 600_000)));
        }
        let counted = arrivals.counted().expect("enough");
        // 1,000 B and three quarters of 4/3 times 500 B every 600 us, if others' packets have the loss rate
        // of ours.
        assert!(counted.rate(1_000).0.abs_diff(20_000_000) < 50_000, "{counted:?}");
        // All or half of the others' packets may have come through: a sixth of our bytes.
        let error = counted.error(1_000);
        assert!((160_000..190_000).contains(&error.0), "{error:?}");
    }

    /// The field of the header has a sign, the number of other bytes has none: what is below 0 counts as 0.
    #[test]
    fn a_negative_number_of_others_bytes_counts_as_none() {
        let with_first = |first: i64| {
            let mut arrivals = FillerArrivals::new(COOKIE);
            for number in 0..3_000_u64 {
                let at = Instant(number * 100_000);
                let header = filler_header(Default::default(), NodeId(2), COOKIE, number, 900, at);
                let slack_ns = if number < 2_500 { first } else { 8_000 };
                assert!(arrivals.take(&Header { slack_ns, ..header }, at));
            }
            let marks = arrivals.marks.len();
            arrivals.window(0, marks - 1).expect("enough").others
        };
        assert_eq!([i64::MIN, -1, 0, 3_000].map(with_first), [8_000, 8_000, 8_000, 5_000]);
    }

    #[test]
    fn repeated_and_foreign_packets_do_not_count() {
        let mut arrivals = FillerArrivals::new(COOKIE);
        let header = |number| filler_header(Default::default(), NodeId(2), COOKIE, number, 9, Instant(0));
        assert!(arrivals.take(&header(4), Instant(1)) && arrivals.take(&header(4), Instant(2)));
        assert!(arrivals.take(&header(3), Instant(3)));
        assert_eq!(arrivals.packets, 1);
        assert!(!arrivals.take(&Header { cookie: Cookie(8), ..header(5) }, Instant(4)));
        assert_eq!(arrivals.counted(), None);
    }

    /// A bend in any of the quarters at the beginning and end of the marks is left out, and no more than
    /// that.
    #[test]
    fn the_longest_straight_window_counts() {
        // A few fewer than there are marks for.
        const PACKETS: u64 = 1_200;
        const QUARTER: u64 = PACKETS / 6;
        for (begin, end) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (0, 2)] {
            // A third is left out in any case; without a bend slightly less than the rest is used.
            let (first, last) = (PACKETS / 3 + begin * QUARTER, PACKETS - end * QUARTER);
            let drains = |number: u64, sent: u64| {
                let before = if begin > 0 { (first - 30).saturating_sub(number) } else { 0 };
                let behind = if end > 0 { number.saturating_sub(last - 1) } else { 0 };
                Some(1_000_000_000 + sent * 4 - before * before * 20 + behind * behind * 20)
            };
            let counted = counted(PACKETS, drains).expect("enough");
            let of_straight = (4 - begin - end) * QUARTER;
            assert!(counted.jitter < Nanos(1_000), "{begin} {end}: {counted:?}");
            assert!(counted.packets.abs_diff(of_straight) < QUARTER / 3, "{begin} {end}: {counted:?}");
            assert!(counted.rate(1_000).0.abs_diff(20_000_000) < 20_000, "{begin} {end}: {counted:?}");
        }
    }

    #[test]
    fn times_are_kept_now_and_then_and_in_bounded_numbers() {
        let of = |count: usize, apart: Nanos| {
            let mut arrivals = FillerArrivals::new(COOKIE);
            for number in 0..count as u64 {
                let at = Instant(1) + apart * number;
                let header = filler_header(Default::default(), NodeId(2), COOKIE, number, 900, at);
                assert!(arrivals.take(&header, at));
            }
            (arrivals.marks.len(), arrivals.counted().is_some())
        };
        assert_eq!(of(RATE_MARKS_MIN - 1, RATE_MARK_INTERVAL), (RATE_MARKS_MIN - 1, false));
        assert_eq!(of(RATE_MARKS_MIN, RATE_MARK_INTERVAL), (RATE_MARKS_MIN, true));
        assert_eq!(of(RATE_MARKS_MIN, RATE_MARK_INTERVAL - Nanos(1)).0, RATE_MARKS_MIN / 2);
        assert_eq!(of(RATE_MARKS_MAX + 50, RATE_MARK_INTERVAL), (RATE_MARKS_MAX, true));
    }
}
