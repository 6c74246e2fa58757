//! This host's clock, and how wall-clock stamps of the kernel are moved to it.

use rustix::time::{ClockId, clock_gettime};

/// The oldest that a receive stamp may be; older ones come from a step of the wall clock.
pub const STAMP_AGE_NS_MAX: u64 = 1_000_000_000;
/// Readings of the wall clock that are tried for a tight bracket.
const READINGS: usize = 3;
/// A bracket this tight is taken at once.
const BRACKET_NS: u64 = 1_000;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// The same as of the last timer tick, some milliseconds ago, for a sixth of the price.
pub fn coarse_monotonic_ns() -> u64 {
    read_ns(ClockId::MonotonicCoarse)
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// `CLOCK_REALTIME` beside `CLOCK_MONOTONIC` at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// The moment on the monotonic clock.
    pub monotonic_ns: u64,
    /// The same moment on the wall clock.
    pub wall_ns: u64,
}

impl ClockPair {
    /// Reads both: the wall clock between two readings of the monotonic one, the tightest bracket of three.
    pub fn read() -> Self {
        let mut best = (u64::MAX, Self { monotonic_ns: 0, wall_ns: 0 });
        for _ in 0..READINGS {
            let before = monotonic_ns();
            let wall_ns = read_ns(ClockId::Realtime);
            let width = monotonic_ns().saturating_sub(before);
            if width < best.0 {
                best = (width, Self { monotonic_ns: before + width / 2, wall_ns });
            }
            if width <= BRACKET_NS {
                break;
            }
        }
        best.1
    }

    /// Moves a wall-clock stamp that was taken before this pair to the monotonic clock; `None` where it lies in
    /// the future or more than [`STAMP_AGE_NS_MAX`] back, so cannot be true.
    pub fn to_monotonic(self, wall_ns: u64) -> Option<u64> {
        let age_ns = self.wall_ns.checked_sub(wall_ns)?;
        if age_ns > STAMP_AGE_NS_MAX { None } else { Some(self.monotonic_ns.saturating_sub(age_ns)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_move_by_their_age_and_lies_are_refused() {
        let pair = ClockPair { monotonic_ns: 5_000_000_000, wall_ns: 1_700_000_000_000_000_000 };
        assert_eq!(pair.to_monotonic(pair.wall_ns - 250), Some(5_000_000_000 - 250));
        assert_eq!(pair.to_monotonic(pair.wall_ns), Some(5_000_000_000));
        assert_eq!(pair.to_monotonic(pair.wall_ns + 1), None);
        assert_eq!(pair.to_monotonic(pair.wall_ns - STAMP_AGE_NS_MAX - 1), None);
    }

    #[test]
    fn a_pair_lies_between_two_readings() {
        let before = monotonic_ns();
        let pair = ClockPair::read();
        assert!((before..=monotonic_ns()).contains(&pair.monotonic_ns));
    }
}
