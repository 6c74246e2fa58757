//! A distribution of latencies in nanoseconds, to three significant digits, up to 100 s.

use hdrhistogram::Histogram;
use punctual_analysis::Nanos;
use serde::Serialize;

/// Largest latency that has a bucket of its own.
const LATENCY_MAX: u64 = 100_000_000_000;
/// Samples from which p99 is worth reading.
pub const SAMPLES_FOR_P99: u64 = 1_000;
/// Samples from which p99.9 is worth reading.
pub const SAMPLES_FOR_P999: u64 = 10_000;

/// Latencies of one stream.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

/// The figures that tables show, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Samples.
    pub samples: u64,
    /// Median.
    pub p50_ms: f64,
    /// 99 of 100 are at or below.
    pub p99_ms: f64,
    /// 999 of 1000; `None` below [`SAMPLES_FOR_P999`] samples.
    pub p999_ms: Option<f64>,
    /// Largest.
    pub max_ms: f64,
}

impl LatencySummary {
    /// p50, p99, max, for tables.
    pub fn cells(&self) -> [String; 3] {
        if self.samples == 0 {
            return ["-", "-", "-"].map(Into::into);
        }
        [self.p50_ms, self.p99_ms, self.max_ms].map(|ms| format!("{ms:.2}"))
    }
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("constant bounds are valid");
        Self { histogram }
    }
}

impl Latencies {
    /// Counts one; longer ones than 100 s count as 100 s.
    pub fn record(&mut self, latency: Nanos) {
        self.histogram.saturating_record(latency.as_u64());
    }

    /// The value that the proportion `quantile` of the samples does not exceed.
    pub fn quantile(&self, quantile: f64) -> Nanos {
        Nanos(self.histogram.value_at_quantile(quantile))
    }

    /// Samples.
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The figures for people.
    pub fn summary(&self) -> LatencySummary {
        if self.is_empty() {
            return LatencySummary::default();
        }
        LatencySummary {
            samples: self.len(),
            p50_ms: self.quantile(0.5).as_millis_f64(),
            p99_ms: self.quantile(0.99).as_millis_f64(),
            p999_ms: (self.len() >= SAMPLES_FOR_P999).then(|| self.quantile(0.999).as_millis_f64()),
            max_ms: Nanos(self.histogram.max()).as_millis_f64(),
        }
    }

    /// The complementary distribution for a plot: (latency in ms, proportion of samples at or above it), falling,
    /// with `beyond` further samples that are above everything.
    pub fn exceedance(&self, beyond: u64) -> Vec<(f64, f64)> {
        let total = (self.len() + beyond).max(1) as f64;
        let mut seen = 0;
        let mut points = Vec::new();
        for step in self.histogram.iter_recorded() {
            points.push((Nanos(step.value_iterated_to()).as_millis_f64(), 1.0 - seen as f64 / total));
            seen += step.count_since_last_iteration();
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(count: u64) -> Latencies {
        let mut latencies = Latencies::default();
        (1..=count).for_each(|n| latencies.record(Nanos::from_micros(n * 10)));
        latencies
    }

    #[test]
    fn quantiles_of_a_uniform_distribution() {
        let summary = uniform(1_000).summary();
        assert_eq!(summary.samples, 1_000);
        assert!((summary.p50_ms - 5.0).abs() < 0.02, "{summary:?}");
        assert!((summary.p99_ms - 9.9).abs() < 0.02, "{summary:?}");
        assert!((summary.max_ms - 10.0).abs() < 0.02, "{summary:?}");
        assert_eq!(summary.p999_ms, None, "too few samples for it");
        assert!(uniform(SAMPLES_FOR_P999).summary().p999_ms.is_some());
    }

    #[test]
    fn nothing_measured_is_no_figure() {
        assert_eq!(Latencies::default().summary(), LatencySummary::default());
        assert!(Latencies::default().exceedance(3).is_empty());
    }

    #[test]
    fn the_exceedance_falls_from_one() {
        let points = uniform(100).exceedance(0);
        assert_eq!(points[0].1, 1.0);
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1));
        let with_lost = uniform(100).exceedance(100);
        assert!(with_lost.iter().all(|point| point.1 > 0.5), "half of them never came");
    }

    #[test]
    fn the_longest_is_not_lost() {
        let mut latencies = Latencies::default();
        latencies.record(Nanos::from_secs(1_000));
        assert!(latencies.summary().max_ms >= 100_000.0);
    }
}
