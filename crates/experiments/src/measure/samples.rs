//! Latencies one by one, for the statistics that a distribution of buckets cannot give.

use punctual_analysis::{Instant, Nanos};
use serde::Serialize;

use super::latency::SAMPLES_FOR_P999;
use crate::excuse::Excuses;

/// One measured span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it began.
    pub begun: Instant,
    /// How long it took.
    pub span: Nanos,
}

impl Sample {
    /// Whether it contains a platform hole.
    pub fn is_excused(&self, excuses: &Excuses) -> bool {
        excuses.covers(self.begun, self.begun + self.span)
    }
}

/// The statistics of a set of samples that an experiment reports, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Moments {
    /// How many.
    pub samples: usize,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99 of 100 are at or below.
    pub p99_us: f64,
    /// 999 of 1000; `None` below 10,000 samples.
    pub p999_us: Option<f64>,
    /// Smallest.
    pub min_us: f64,
    /// Largest.
    pub max_us: f64,
    /// Standard deviation: the papers' jitter.
    pub std_us: f64,
}

/// A figure of a set of spans in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Arithmetic mean.
    Mean,
    /// Standard deviation.
    Jitter,
    /// Median.
    Median,
    /// 99 of 100 are at or below.
    P99,
    /// 999 of 1000 are at or below.
    P999,
    /// Largest.
    Max,
}

impl Statistic {
    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Jitter => "jitter",
            Self::Median => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
        }
    }

    /// The statistic of these spans, whose order it may change; zero if there are none.
    pub fn of(self, spans: &mut [f64]) -> f64 {
        match self {
            Self::Mean => mean(spans),
            Self::Jitter => deviation(spans),
            Self::Median => quantile(spans, 0.5),
            Self::P99 => quantile(spans, 0.99),
            Self::P999 => quantile(spans, 0.999),
            Self::Max => spans.iter().copied().fold(0.0, f64::max),
        }
    }
}

impl Moments {
    /// The statistics of spans in nanoseconds, in any order.
    pub fn of(mut spans: Vec<f64>) -> Self {
        if spans.is_empty() {
            return Self::default();
        }
        spans.sort_by(f64::total_cmp);
        let at = |share: f64| spans[rank(spans.len(), share)] / 1e3;
        Self {
            samples: spans.len(),
            mean_us: mean(&spans) / 1e3,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: (spans.len() as u64 >= SAMPLES_FOR_P999).then(|| at(0.999)),
            min_us: spans[0] / 1e3,
            max_us: spans[spans.len() - 1] / 1e3,
            std_us: deviation(&spans) / 1e3,
        }
    }
}

fn mean(spans: &[f64]) -> f64 {
    spans.iter().sum::<f64>() / spans.len().max(1) as f64
}

fn deviation(spans: &[f64]) -> f64 {
    let mean = mean(spans);
    let squares: f64 = spans.iter().map(|span| (span - mean) * (span - mean)).sum();
    (squares / spans.len().max(1) as f64).sqrt()
}

/// Nearest rank.
fn rank(len: usize, share: f64) -> usize {
    ((len as f64 * share).ceil() as usize).clamp(1, len.max(1)) - 1
}

fn quantile(spans: &mut [f64], share: f64) -> f64 {
    if spans.is_empty() {
        return 0.0;
    }
    let at = rank(spans.len(), share);
    *spans.select_nth_unstable_by(at, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_known_sets() {
        let moments = Moments::of((1..=100).rev().map(|n| f64::from(n) * 1e3).collect());
        assert_eq!((moments.samples, moments.min_us, moments.max_us), (100, 1.0, 100.0));
        assert_eq!((moments.mean_us, moments.p50_us, moments.p99_us), (50.5, 50.0, 99.0));
        assert!((moments.std_us - 28.866).abs() < 0.001, "{moments:?}");
        assert_eq!(moments.p999_us, None, "too few");
        assert_eq!(Moments::of(Vec::new()), Moments::default());
    }

    #[test]
    fn statistics_agree_with_moments() {
        let spans: Vec<f64> = (0..20_000).map(|n| f64::from((n * 7_919) % 20_000)).collect();
        let moments = Moments::of(spans.clone());
        let of = |statistic: Statistic| statistic.of(&mut spans.clone()) / 1e3;
        assert_eq!(of(Statistic::Mean), moments.mean_us);
        assert_eq!(of(Statistic::Jitter), moments.std_us);
        assert_eq!(of(Statistic::Median), moments.p50_us);
        assert_eq!(of(Statistic::P99), moments.p99_us);
        assert_eq!(Some(of(Statistic::P999)), moments.p999_us);
        assert_eq!(of(Statistic::Max), moments.max_us);
        assert_eq!(Statistic::P999.of(&mut []), 0.0);
    }
}
