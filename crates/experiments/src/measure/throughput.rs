//! Bytes over time, in slots of fixed length.

use punctual_analysis::Nanos;
use serde::Serialize;

/// One slot of a plot.
pub const SLOT: Nanos = Nanos::from_millis(250);

/// Delivered payload bytes per [`SLOT`] since `origin`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Throughput {
    slots: Vec<u64>,
}

impl Throughput {
    /// Counts `bytes` at `at`, a span after the origin of the time axis.
    pub fn record(&mut self, at: Nanos, bytes: u64) {
        let slot = usize::try_from(at.as_u64() / SLOT.as_u64()).unwrap_or(usize::MAX);
        // A day of slots is plenty; anything later is a broken stamp.
        if slot < 400_000 {
            self.slots.resize(self.slots.len().max(slot + 1), 0);
            self.slots[slot] += bytes;
        }
    }

    /// (time of the slot's middle in s, Mbit/s) of every slot within `span`.
    pub fn series(&self, span: Nanos) -> Vec<(f64, f64)> {
        let seconds = SLOT.as_secs_f64();
        let point =
            |(slot, &bytes): (usize, &u64)| ((slot as f64 + 0.5) * seconds, bytes as f64 * 8e-6 / seconds);
        let whole = usize::try_from(span.as_u64() / SLOT.as_u64()).unwrap_or(usize::MAX);
        self.slots.iter().take(whole).enumerate().map(point).collect()
    }
}

/// `bytes` in `span`, in Mbit/s.
pub fn mbit_per_s(bytes: u64, span: Nanos) -> f64 {
    if span == Nanos::ZERO { 0.0 } else { bytes as f64 * 8e-6 / span.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_land_in_their_slot() {
        let mut throughput = Throughput::default();
        throughput.record(Nanos::from_millis(10), 1_000);
        throughput.record(Nanos::from_millis(249), 250);
        throughput.record(Nanos::from_millis(500), 31_250);
        let series = throughput.series(Nanos::from_millis(900));
        assert_eq!(series.len(), 3);
        assert!((series[0].1 - 0.04).abs() < 1e-9);
        assert_eq!(throughput.series(Nanos::from_millis(740)).len(), 2, "a slot cut short is left out");
        assert_eq!(series[1].1, 0.0);
        assert!((series[2].0 - 0.625).abs() < 1e-9 && (series[2].1 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn rates() {
        assert!((mbit_per_s(5_000_000, Nanos::from_secs(1)) - 40.0).abs() < 1e-9);
        assert_eq!(mbit_per_s(1, Nanos::ZERO), 0.0);
    }
}
