//! A throughput as samples: the time of every fixed number of bytes, so that holes and A/A count as for
//! latencies.

use punctual_analysis::{Instant, Nanos};

use super::samples::Sample;

/// Cuts what arrives into laps of equally many bytes. What arrives first starts the clock and does not count.
#[derive(Clone, Debug)]
pub struct Laps {
    bytes: u64,
    counted: u64,
    begun: Option<Instant>,
    laps: Vec<Sample>,
}

impl Laps {
    /// Counts laps of `bytes` bytes each.
    pub const fn of(bytes: u64) -> Self {
        Self { bytes, counted: 0, begun: None, laps: Vec::new() }
    }

    /// Records that so many bytes have arrived until `at`. Bytes beyond a lap's end count for the next.
    pub fn arrived(&mut self, bytes: u64, at: Instant) {
        let Some(begun) = self.begun else {
            self.begun = Some(at);
            return;
        };
        self.counted += bytes;
        if self.counted < self.bytes {
            return;
        }
        let laps = self.counted / self.bytes;
        let each = Nanos(at.since(begun).0 / laps);
        for lap in 0..laps {
            self.laps.push(Sample { begun: begun + each * lap, span: each });
        }
        self.counted %= self.bytes;
        self.begun = Some(at);
    }

    /// The complete laps.
    pub fn finish(self) -> Vec<Sample> {
        self.laps
    }
}

/// Bytes a second of laps of `bytes` that took `mean_us` in the mean.
pub fn rate_of(bytes: u64, mean_us: f64) -> f64 {
    if mean_us > 0.0 { bytes as f64 * 1e6 / mean_us } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_makes_equal_laps() {
        let mut laps = Laps::of(1_000);
        for packet in 0..=100 {
            laps.arrived(300, Instant(packet * 30));
        }
        let laps = laps.finish();
        // 100 packets after the first: 30,000 B, each lap cut at a packet.
        assert_eq!(laps.len(), 30);
        let total: u64 = laps.iter().map(|lap| lap.span.0).sum();
        assert_eq!(total, 3_000);
        assert!((rate_of(1_000, 0.1) - 1e10).abs() < 1.0);
    }

    #[test]
    fn what_comes_at_once_is_shared_out() {
        let mut laps = Laps::of(100);
        laps.arrived(500, Instant(0));
        laps.arrived(350, Instant(30));
        let laps = laps.finish();
        assert_eq!(
            laps.iter().map(|lap| (lap.begun.0, lap.span.0)).collect::<Vec<_>>(),
            [(0, 10), (10, 10), (20, 10)]
        );
        assert!(Laps::of(1).finish().is_empty());
        assert_eq!(rate_of(1, 0.0), 0.0, "no lap");
    }
}
