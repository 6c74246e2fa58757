//! Moments that are cheap to know.

use rustix::time::{ClockId, clock_gettime};

/// A moment in ticks of the kernel.
pub(crate) type Tick = (i64, i64);

/// The time of the kernel's last tick: much cheaper than the exact one.
pub(crate) fn tick() -> Tick {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    (now.tv_sec, now.tv_nsec)
}
