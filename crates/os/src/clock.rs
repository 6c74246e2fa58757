//! This host's clock, how wall-clock stamps of the kernel are moved to it, CPU time, and sleeping until a time.

use std::time::Duration;

use punctual_analysis::{Instant, Nanos};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::interrupt::{Interrupted, check};

/// The oldest that a receive stamp may be; older ones come from a step of the wall clock.
pub const STAMP_AGE_NS_MAX: u64 = 1_000_000_000;
/// Readings of the wall clock that are tried for a tight bracket.
const READINGS: usize = 3;
/// A bracket this tight is taken at once.
const BRACKET_NS: u64 = 1_000;

/// Maximum delay until a sleeper notices Ctrl-C.
const SLEEP_MAX: Nanos = Nanos::from_millis(50);

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// Nanoseconds of `CLOCK_MONOTONIC` at the last timer tick, some milliseconds ago. It costs a sixth of
/// [`monotonic_ns`].
pub fn coarse_monotonic_ns() -> u64 {
    read_ns(ClockId::MonotonicCoarse)
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// This host's time: `CLOCK_MONOTONIC`, which all its network namespaces share.
pub fn now() -> Instant {
    Instant(monotonic_ns())
}

/// CPU time that the calling thread has used.
pub fn thread_cpu() -> Nanos {
    Nanos(read_ns(ClockId::ThreadCPUTime))
}

/// CPU time that all threads of this process have used.
pub fn process_cpu() -> Nanos {
    Nanos(read_ns(ClockId::ProcessCPUTime))
}

/// Sleeps until `at`; returns at once if that is past. Signals do not cut it short.
pub fn sleep_until(at: Instant) {
    let seconds = i64::try_from(at.0 / 1_000_000_000).unwrap_or(i64::MAX);
    let request = Timespec { tv_sec: seconds, tv_nsec: (at.0 % 1_000_000_000) as _ };
    while clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &request).is_err() && now() < at {}
}

/// Sleeps until `at` or until the program is interrupted.
///
/// # Errors
/// [`Interrupted`] after Ctrl-C or a request to terminate.
pub fn wait_until(at: Instant) -> Result<(), Interrupted> {
    loop {
        check()?;
        let current = now();
        if current >= at {
            return Ok(());
        }
        sleep_until(at.min(current + SLEEP_MAX));
    }
}

/// A span for the standard library.
pub fn duration(span: Nanos) -> Duration {
    Duration::from_nanos(span.as_u64())
}

/// `CLOCK_REALTIME` beside `CLOCK_MONOTONIC` at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// The moment on the monotonic clock.
    pub monotonic_ns: u64,
    /// The moment on the wall clock.
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

    /// Converts a wall-clock stamp that was taken before this pair to the monotonic clock; `None` if it is in
    /// the future or more than [`STAMP_AGE_NS_MAX`] back, and thus impossible.
    pub fn to_monotonic(self, wall_ns: u64) -> Option<u64> {
        let age_ns = self.wall_ns.checked_sub(wall_ns)?;
        if age_ns > STAMP_AGE_NS_MAX { None } else { Some(self.monotonic_ns.saturating_sub(age_ns)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_move_by_their_age_and_impossible_ones_are_refused() {
        let pair = ClockPair { monotonic_ns: 5_000_000_000, wall_ns: 1_700_000_000_000_000_000 };
        assert_eq!(pair.to_monotonic(pair.wall_ns - 250), Some(5_000_000_000 - 250));
        assert_eq!(pair.to_monotonic(pair.wall_ns), Some(5_000_000_000));
        assert_eq!(pair.to_monotonic(pair.wall_ns + 1), None);
        assert_eq!(pair.to_monotonic(pair.wall_ns - STAMP_AGE_NS_MAX - 1), None);
    }

    #[test]
    fn a_pair_is_between_two_readings() {
        let before = monotonic_ns();
        let pair = ClockPair::read();
        assert!((before..=monotonic_ns()).contains(&pair.monotonic_ns));
    }
}
