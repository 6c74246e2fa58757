//! Limits repeated reports: a number of them in an interval, then they are only counted.

use punctual_analysis::{Instant, Nanos};

/// Limits how often one event is reported: at most `times` within `every`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    times: u32,
    every: Nanos,
    /// Time of the first report in the present interval.
    begun: Option<Instant>,
    passed: u32,
    left_out: u64,
}

impl Limiter {
    /// A limiter that has let nothing through yet.
    pub const fn new(times: u32, every: Nanos) -> Self {
        Self { times, every, begun: None, passed: 0, left_out: 0 }
    }

    /// Whether no interval is in progress at `now`: the next event is reported.
    pub fn is_over(&self, now: Instant) -> bool {
        self.begun.is_none_or(|begun| now.since(begun) >= self.every)
    }

    /// Whether to report the event at `now`; if so, the number of events that were left out since the last
    /// report.
    pub fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.is_over(now) {
            self.begun = Some(now);
            self.passed = 0;
        }
        if self.passed == self.times {
            self.left_out += 1;
            return None;
        }
        self.passed += 1;
        Some(core::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Nanos = Nanos::from_secs(60);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Nanos::from_secs(seconds)
    }

    #[test]
    fn repetitions_are_logged_once_in_a_while_and_counted() {
        let mut limiter = Limiter::new(1, MINUTE);
        assert!(limiter.is_over(at(5)));
        assert_eq!(limiter.pass(at(5)), Some(0), "at once");
        assert!(!limiter.is_over(at(64)) && limiter.is_over(at(65)));
        assert!((0..600).all(|tenth| limiter.pass(at(5) + Nanos::from_millis(100) * tenth).is_none()));
        assert_eq!(limiter.pass(at(65)), Some(600));
        assert_eq!(limiter.pass(at(66)), None);
        assert_eq!(limiter.pass(at(10_000)), Some(1), "however long it was silent");
    }

    #[test]
    fn several_are_logged_before_the_rest_is_left_out() {
        let mut limiter = Limiter::new(3, MINUTE);
        let passed = (0..10).filter(|second| limiter.pass(at(*second)).is_some()).count();
        assert_eq!(passed, 3);
        assert_eq!(limiter.pass(at(60)), Some(7));
        assert_eq!([61, 62, 63].map(|second| limiter.pass(at(second))), [Some(0), Some(0), None]);
    }
}
