//! Time of the experiments: `CLOCK_MONOTONIC`, which every network namespace of a host shares, so a stamp that
//! the sender took and one that the receiver took may be subtracted.

use std::time::Duration;

use punctual_analysis::{Instant, Nanos};
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};

use crate::interrupt::{Interrupted, check};

/// How long a sleeper stays deaf to Ctrl-C.
const DEAF: Nanos = Nanos::from_millis(50);

/// Now.
pub fn now() -> Instant {
    let at = clock_gettime(rustix::time::ClockId::Monotonic);
    Instant(at.tv_sec.unsigned_abs() * 1_000_000_000 + at.tv_nsec.unsigned_abs())
}

/// CPU time that the calling thread has used.
pub fn thread_cpu() -> Nanos {
    let at = clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Nanos(at.tv_sec.unsigned_abs() * 1_000_000_000 + at.tv_nsec.unsigned_abs())
}

/// CPU time that all threads of this process have used.
pub fn process_cpu() -> Nanos {
    let at = clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Nanos(at.tv_sec.unsigned_abs() * 1_000_000_000 + at.tv_nsec.unsigned_abs())
}

/// Sleeps until `at`; returns at once where that is past. Signals do not cut it short.
pub fn sleep_until(at: Instant) {
    let seconds = i64::try_from(at.0 / 1_000_000_000).unwrap_or(i64::MAX);
    let request = Timespec { tv_sec: seconds, tv_nsec: (at.0 % 1_000_000_000) as _ };
    while clock_nanosleep_absolute(ClockId::Monotonic, &request).is_err() && now() < at {}
}

/// Sleeps until `at` or until somebody interrupts the program.
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
        sleep_until(at.min(current + DEAF));
    }
}

/// A span for the standard library.
pub fn duration(span: Nanos) -> Duration {
    Duration::from_nanos(span.as_u64())
}
