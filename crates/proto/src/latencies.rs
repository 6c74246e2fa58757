//! Latencies of messages as a histogram of fixed size: buckets of an eighth of a power of two, so that a
//! quantile has an error of at most 6 %.

use alloc::vec::Vec;

use punctual_analysis::Nanos;
use serde::{Deserialize, Serialize};

/// Buckets in each power of two.
const PER_POWER: u64 = 8;
/// The first bucket holds all below 1,024 ns, the last all from 17 s on.
const POWER_MIN: u32 = 10;
const POWERS: usize = 24;
/// Buckets of [`Latencies`].
pub const BUCKETS: usize = 1 + POWERS * PER_POWER as usize + 1;

/// Observed latencies of one channel's messages, from their logical arrival to their delivery.
#[derive(Clone, Debug)]
pub struct Latencies {
    buckets: [u32; BUCKETS],
    count: u64,
    last: Observation,
    max: Observation,
}

/// A latency and its error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Time from the logical arrival to the delivery; zero if the delivery was earlier by the clocks.
    pub latency: Nanos,
    /// Largest error of the latency, in either direction.
    pub error: Nanos,
}

/// Summary of the observed latencies for users and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Messages whose latency is known.
    pub messages: u64,
    /// Latency of the last message.
    pub last: Observation,
    /// The largest latency.
    pub max: Observation,
    /// Latency that half of the messages did not exceed.
    pub p50: Nanos,
    /// Latency that 99 of 100 messages did not exceed.
    pub p99: Nanos,
    /// Latency that 999 of 1,000 messages did not exceed.
    pub p999: Nanos,
    /// Buckets that are not empty, the smallest latencies first.
    pub histogram: Vec<Bucket>,
}

/// Messages of similar latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Upper end of the bucket, in nanoseconds: all latencies in it are less, and no less than the bucket
    /// before.
    pub below_ns: u64,
    /// Number of messages in the bucket.
    pub messages: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let none = Observation::default();
        Self { buckets: [0; BUCKETS], count: 0, last: none, max: none }
    }
}

impl Latencies {
    /// Counts a message, in the bucket of this index. Constant time.
    pub fn add(&mut self, observation: Observation) -> usize {
        let index = index_of(observation.latency);
        let bucket = &mut self.buckets[index];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.last = observation;
        if observation.latency >= self.max.latency {
            self.max = observation;
        }
        index
    }

    /// Rebuilds the latencies from the parts that the methods below return.
    pub const fn of(buckets: [u32; BUCKETS], count: u64, last: Observation, max: Observation) -> Self {
        Self { buckets, count, last, max }
    }

    /// Number of messages by latency, the smallest first.
    pub const fn buckets(&self) -> &[u32; BUCKETS] {
        &self.buckets
    }

    /// Messages whose latency is known.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Latency of the last message.
    pub const fn last(&self) -> Observation {
        self.last
    }

    /// The largest latency.
    pub const fn max(&self) -> Observation {
        self.max
    }

    /// The latency that `per_mille` of the messages did not exceed, with an error of at most 6 % (below 1 us
    /// up to the whole bucket); zero before there are any.
    pub fn quantile(&self, per_mille: u64) -> Nanos {
        let counted = self.buckets.iter().map(|count| u64::from(*count)).sum::<u64>();
        let wanted = (counted * per_mille).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return middle_of(index).min(self.max.latency);
            }
        }
        Nanos::ZERO
    }

    /// The whole summary.
    pub fn observed(&self) -> Observed {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        Observed {
            messages: self.count,
            last: self.last,
            max: self.max,
            p50: self.quantile(500),
            p99: self.quantile(990),
            p999: self.quantile(999),
            histogram: filled
                .map(|(index, count)| Bucket { below_ns: end_of(index).0, messages: u64::from(*count) })
                .collect(),
        }
    }
}

fn index_of(latency: Nanos) -> usize {
    let Some(power) = latency.0.checked_ilog2().filter(|power| *power >= POWER_MIN) else { return 0 };
    let eighth = (latency.0 >> (power - 3)) & (PER_POWER - 1);
    let index = 1 + u64::from(power - POWER_MIN) * PER_POWER + eighth;
    (index as usize).min(BUCKETS - 1)
}

/// Lower end of the bucket, in ns.
fn begin_of(index: usize) -> u64 {
    let Some(place) = index.checked_sub(1) else { return 0 };
    let (power, eighth) = (POWER_MIN + (place as u64 / PER_POWER) as u32, place as u64 % PER_POWER);
    (PER_POWER + eighth) << (power - 3)
}

fn end_of(index: usize) -> Nanos {
    Nanos(if index + 1 < BUCKETS { begin_of(index + 1) } else { u64::MAX })
}

/// Harmonic mean of both ends of a bucket: the relative error is the same towards either end.
fn middle_of(index: usize) -> Nanos {
    let (begin, end) = (begin_of(index), end_of(index).0);
    match index {
        0 => Nanos(end),
        _ if end == u64::MAX => Nanos(end),
        _ => Nanos((u128::from(begin) * u128::from(end) * 2 / u128::from(begin + end)) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(latency: u64) -> Observation {
        Observation { latency: Nanos(latency), error: Nanos(7) }
    }

    #[test]
    fn every_latency_falls_between_the_ends_of_its_bucket() {
        let mut latency = 1_u64;
        while latency < 1 << 40 {
            for near in [latency - 1, latency, latency + 1] {
                let index = index_of(Nanos(near));
                assert!((begin_of(index)..end_of(index).0).contains(&near), "{near} in {index}");
            }
            latency += latency / 100 + 1;
        }
        assert_eq!((index_of(Nanos::ZERO), index_of(Nanos::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn a_quantile_is_wrong_by_six_in_a_hundred_at_most() {
        let mut latency = 1_100_u64;
        while latency < 15_000_000_000 {
            let mut latencies = Latencies::default();
            for other in [latency, latency, latency * 4] {
                latencies.add(at(other));
            }
            let off = latencies.quantile(500).0.abs_diff(latency);
            assert!(off * 100 <= latency * 6, "{latency}: {:?}", latencies.quantile(500));
            latency += latency / 37;
        }
    }

    #[test]
    fn observed_values_are_reported() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.observed(), Observed::default());
        for latency in [5_000, 3_000_000, 20_000] {
            latencies.add(at(latency));
        }
        let observed = latencies.observed();
        assert_eq!((observed.messages, observed.last, observed.max), (3, at(20_000), at(3_000_000)));
        assert_eq!(observed.p999, Nanos(3_000_000), "never more than the largest");
        assert_eq!(observed.histogram.iter().map(|bucket| bucket.messages).sum::<u64>(), 3);
    }

    /// Whatever is observed, a quantile is near the value at its place in sorted order.
    #[test]
    fn quantiles_are_those_of_what_was_observed() {
        let mut random = crate::signalling::SplitMix64::new(3);
        for count in [1, 2, 3, 10, 999, 1_000, 5_003] {
            let mut all: Vec<u64> = (0..count).map(|_| 1_100 << random.below(20)).collect();
            let mut latencies = Latencies::default();
            for latency in &all {
                latencies.add(at(*latency));
            }
            all.sort_unstable();
            for per_mille in [0, 1, 10, 500, 501, 990, 999, 1_000] {
                let place = (count as u64 * per_mille).div_ceil(1_000).max(1) as usize - 1;
                let off = latencies.quantile(per_mille).0.abs_diff(all[place]);
                assert!(off * 100 <= all[place] * 6, "{per_mille} of {count}: {} {}", all[place], off);
            }
        }
    }

    /// Of a thousand messages the reported quantiles change with the one after the 500th, the 990th and the
    /// 999th.
    #[test]
    fn reported_quantiles_change_at_their_places() {
        let observed = |long: u64| {
            let mut latencies = Latencies::default();
            for n in 0..1_000 {
                latencies.add(at(if n < long { 1 << 30 } else { 1 << 20 }));
            }
            let observed = latencies.observed();
            [observed.p50, observed.p99, observed.p999].map(|quantile| quantile.0 > 1 << 25)
        };
        assert_eq!([0, 1].map(observed), [[false; 3]; 2]);
        assert_eq!([2, 10].map(observed), [[false, false, true]; 2]);
        assert_eq!([11, 500].map(observed), [[false, true, true]; 2]);
        assert_eq!([501, 1_000].map(observed), [[true; 3]; 2]);
    }

    /// Buckets are an eighth of a power of two from 1,024 ns on, by their rule written out; of equal largest
    /// latencies the last one is reported, with its error.
    #[test]
    fn buckets_begin_at_eighths_of_powers_of_two() {
        let begins = (10..34_u32).flat_map(|power| (8..16_u64).map(move |eighth| (eighth << power) / 8));
        let begins: Vec<u64> = core::iter::once(0).chain(begins).chain([1 << 34]).collect();
        assert_eq!(begins.len(), BUCKETS);
        for (index, &begin) in begins.iter().enumerate() {
            assert_eq!((begin_of(index), index_of(Nanos(begin))), (begin, index));
            assert!(begin == 0 || index_of(Nanos(begin - 1)) == index - 1, "{begin}");
            let mut latencies = Latencies::default();
            for error in [1, 2, 1] {
                latencies.add(Observation { latency: Nanos(begin), error: Nanos(error) });
            }
            let end = begins.get(index + 1).copied().unwrap_or(u64::MAX);
            let observed = latencies.observed();
            assert_eq!(observed.histogram, [Bucket { below_ns: end, messages: 3 }]);
            assert_eq!(observed.max, Observation { latency: Nanos(begin), error: Nanos(1) });
        }
    }

    /// The middle of a bucket is within it, also for the first and for the last bucket, which has no upper
    /// end.
    #[test]
    fn the_middle_of_a_bucket_is_within_it() {
        for index in 0..BUCKETS {
            let middle = middle_of(index).0;
            assert!(begin_of(index) <= middle && middle <= end_of(index).0, "{index}: {middle}");
        }
        assert_eq!((end_of(BUCKETS - 1), middle_of(BUCKETS - 1)), (Nanos(u64::MAX), Nanos(u64::MAX)));
    }

    /// The longest of many messages is among all of them, and not among one fewer in a thousand.
    #[test]
    fn all_of_the_messages_include_the_longest() {
        let mut latencies = Latencies::default();
        for n in 0..20_000 {
            latencies.add(at(if n == 7 { 1 << 30 } else { 1 << 20 }));
        }
        assert_eq!([999, 1_000].map(|per_mille| latencies.quantile(per_mille).0 > 1 << 25), [false, true]);
    }
}
