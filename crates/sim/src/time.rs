//! Virtual time, and the clocks that hosts read in its place.
//!
//! [`SimTime`] is the true time, which only the simulator and its checker use. A node reads its own
//! [`Instant`], which has any origin and runs fast or slow. Conversion between the two needs a [`HostClock`].

use std::fmt;
use std::ops::{Add, Sub};

use punctual_analysis::{Instant, Nanos};

/// A point of virtual (true) time, in nanoseconds from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimTime(pub u64);

impl SimTime {
    /// The span since `earlier`, zero if `earlier` is in the future.
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for SimTime {
    type Output = Self;
    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Nanos> for SimTime {
    type Output = Self;
    fn sub(self, span: Nanos) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} ms", self.0 as f64 / 1e6)
    }
}

const PPB: i128 = 1_000_000_000;

/// One host's clock: `offset + floor(t * (1 + drift))`, so it is monotonic and exactly invertible. Instead of
/// stepping back it stops, as every monotonic clock does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostClock {
    /// Its reading at virtual time zero, in nanoseconds.
    pub offset_ns: u64,
    /// Its drift, positive if fast, in parts per 10^9; within the configured tolerance if the host is honest.
    pub drift_ppb: i64,
    /// Lower limit of its readings.
    pub least: Instant,
}

impl HostClock {
    /// A clock without faults.
    pub const fn new(offset_ns: u64, drift_ppb: i64) -> Self {
        Self { offset_ns, drift_ppb, least: Instant::ZERO }
    }

    /// Its reading at `at`.
    pub fn read(&self, at: SimTime) -> Instant {
        let elapsed = i128::from(at.0) * (PPB + i128::from(self.drift_ppb)) / PPB;
        Instant(self.offset_ns.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))).max(self.least)
    }

    /// Jumps ahead.
    pub const fn jump(&mut self, by: Nanos) {
        self.offset_ns = self.offset_ns.saturating_add(by.0);
    }

    /// Runs `ppb` faster than before from `at` on; the reading is continuous.
    pub fn drift_more(&mut self, at: SimTime, ppb: i64) {
        let shown = self.read(at);
        self.drift_ppb += ppb;
        let anew = Self { least: Instant::ZERO, ..*self }.read(at);
        self.offset_ns = self.offset_ns.saturating_add_signed(shown.minus(anew));
    }

    /// Steps back at `at`: the clock stops until true time has caught up.
    pub fn step_back(&mut self, at: SimTime, by: Nanos) {
        self.least = self.read(at);
        self.offset_ns = self.offset_ns.saturating_sub(by.0);
    }

    /// The earliest virtual time at which the reading is `instant` or more.
    pub fn when(&self, instant: Instant) -> SimTime {
        let elapsed = i128::from(instant.0.saturating_sub(self.offset_ns));
        let pace = PPB + i128::from(self.drift_ppb);
        let exact = (elapsed * PPB + pace - 1) / pace;
        SimTime(u64::try_from(exact).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_is_the_earliest_time_that_reads_so() {
        for drift_ppb in [-100_000, -99_999, -1, 0, 1, 77_777, 100_000] {
            let clock = HostClock::new(5_000_000_000, drift_ppb);
            for t in [0, 1, 2, 9_999, 10_000, 10_001, 123_456_789, 60_000_000_017] {
                let reading = clock.read(SimTime(t));
                let back = clock.when(reading);
                assert!(back <= SimTime(t), "drift {drift_ppb}: {back:?} after {t}");
                assert_eq!(clock.read(back), reading, "drift {drift_ppb} at {t}");
                if back.0 > 0 {
                    assert!(clock.read(SimTime(back.0 - 1)) < reading, "drift {drift_ppb} at {t}");
                }
            }
        }
    }

    #[test]
    fn a_step_ahead_shows_and_a_step_back_does_not() {
        let mut clock = HostClock::new(1_000, 0);
        clock.jump(Nanos(50));
        assert_eq!(clock.read(SimTime(10)), Instant(1_060));
        clock.step_back(SimTime(10), Nanos(100));
        assert_eq!((clock.read(SimTime(11)), clock.read(SimTime(110))), (Instant(1_060), Instant(1_060)));
        assert_eq!((clock.read(SimTime(120)), clock.when(Instant(1_070))), (Instant(1_070), SimTime(120)));
    }

    #[test]
    fn an_instant_before_the_start_is_the_start() {
        assert_eq!(HostClock::new(100, 5).when(Instant(7)), SimTime(0));
    }
}
