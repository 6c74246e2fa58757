//! A link that is slower than its configuration.

use punctual_proto::{BitRate, Instant, Nanos};

/// A queue with a token bucket below the driver of a host, towards the next host. It drains at its own rate.
pub struct Slow {
    /// The host above it.
    pub node: usize,
    /// The rate at which it drains.
    pub rate: BitRate,
    /// Bytes that each packet adds on the wire.
    pub overhead_bytes: u64,
    /// How long a packet may wait. A packet that would wait longer is lost.
    pub wait_max: Nanos,
    /// The depth of the bucket, as time at `rate`.
    pub burst: Nanos,
    /// Begin and end of the time in which nothing leaves the queue. All that waits leaves at the end.
    pub stall: (Instant, Instant),
    free_at: Instant,
}

impl Slow {
    /// Below `node`: without a burst or a stall, and with room for 100 ms.
    pub fn new(node: usize, rate: BitRate) -> Self {
        let (wait_max, burst) = (Nanos::from_millis(100), Nanos::ZERO);
        let stall = (Instant(0), Instant(0));
        Self { node, rate, overhead_bytes: 66, wait_max, burst, stall, free_at: Instant(0) }
    }

    /// When a packet of `bytes` that arrives now leaves the queue; `None` if it is lost.
    pub(crate) fn drain(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let begins = self.free_at.max(Instant(now.0.saturating_sub(self.burst.0)));
        if begins.since(now) > self.wait_max {
            return None;
        }
        self.free_at = begins + self.rate.time_of(bytes as u64 + self.overhead_bytes);
        let at = self.free_at.max(now);
        Some(if at >= self.stall.0 { at.max(self.stall.1) } else { at })
    }
}
