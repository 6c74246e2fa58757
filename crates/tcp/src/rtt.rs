//! The round-trip time of a connection (RFC 6298 2), for what the machine's own estimate cannot be asked. Segments that were sent
//! again are not measured (Karn's rule).

use punctual_analysis::{Instant, Nanos};

use crate::sequence::at_or_after;

/// The estimate, and the measurement under way.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// The end of the segment that is measured, and when it left.
    timed: Option<(u32, Instant)>,
    smoothed: Option<Nanos>,
}

impl RoundTrip {
    /// Data up to `end` leaves for the first time.
    pub(crate) fn left(&mut self, end: u32, now: Instant) {
        self.timed.get_or_insert((end, now));
    }

    /// Something is sent again: what is acknowledged next may be that.
    pub(crate) fn sent_again(&mut self) {
        self.timed = None;
    }

    /// Everything before `ack` was acknowledged.
    pub(crate) fn acknowledged(&mut self, ack: u32, now: Instant) {
        let Some((_, left)) = self.timed.take_if(|(end, _)| at_or_after(ack, *end)) else { return };
        let sample = now.since(left);
        // RFC 6298 2.3: alpha is 1/8.
        self.smoothed = Some(self.smoothed.map_or(sample, |smoothed| (smoothed * 7 + sample) / 8));
    }

    /// Something was sent again after `wait`, and the peer got it twice: the round trip is no shorter. What was sent again is not
    /// measured, so an estimate that is too short would stay.
    pub(crate) fn not_below(&mut self, wait: Nanos) {
        self.smoothed = Some(self.smoothed.map_or(wait, |smoothed| smoothed.max(wait)));
    }

    /// The smoothed round-trip time, once there is one.
    pub(crate) const fn smoothed(&self) -> Option<Nanos> {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn the_estimate_follows_the_samples_by_an_eighth() {
        let mut rtt = RoundTrip::default();
        rtt.left(100, at(0));
        rtt.left(200, at(5));
        rtt.acknowledged(99, at(8));
        assert_eq!(rtt.smoothed(), None, "the measured segment is not acknowledged");
        rtt.acknowledged(100, at(10));
        assert_eq!(rtt.smoothed(), Some(Nanos::from_millis(10)));
        rtt.acknowledged(200, at(90));
        assert_eq!(rtt.smoothed(), Some(Nanos::from_millis(10)), "one at a time is measured");
        rtt.left(300, at(100));
        rtt.acknowledged(300, at(118));
        assert_eq!(rtt.smoothed(), Some(Nanos::from_millis(11)));
    }

    #[test]
    fn a_copy_that_was_not_needed_lengthens_the_estimate_alone() {
        let mut rtt = RoundTrip::default();
        rtt.not_below(Nanos::from_millis(20));
        assert_eq!(rtt.smoothed(), Some(Nanos::from_millis(20)));
        rtt.not_below(Nanos::from_millis(10));
        assert_eq!(rtt.smoothed(), Some(Nanos::from_millis(20)));
        rtt.not_below(Nanos::from_millis(40));
        assert_eq!(rtt.smoothed(), Some(Nanos::from_millis(40)));
    }

    #[test]
    fn what_was_sent_again_is_not_measured() {
        let mut rtt = RoundTrip::default();
        rtt.left(100, at(0));
        rtt.sent_again();
        rtt.acknowledged(100, at(500));
        assert_eq!(rtt.smoothed(), None);
    }
}
