//! Samples of one cost and their statistics.

use serde::{Deserialize, Serialize};

/// Number of units in one block, of which the mean is taken.
pub const BLOCK_UNITS: usize = 32;
/// A unit that took at least this long met a platform hole: it is counted and left out (a hole is a
/// millisecond or more).
pub const HOLE_NS: u64 = 1_000_000;

/// Summary of one cost, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Half of the units took no longer.
    pub median_ns: u64,
    /// 999 of 1,000 units took no longer.
    pub p999_ns: u64,
    /// The longest unit outside holes.
    pub max_ns: u64,
    /// The cost that admission charges, before its margin: the 99th percentile, over blocks of
    /// [`BLOCK_UNITS`] consecutive units, of a block's mean without its longest unit. A deadline test adds up
    /// many units, so the most expensive *row* of units is decisive; the excess of a single one (an
    /// interrupt) is interference, which is charged once.
    pub block_ns: u64,
    /// Units that count.
    pub samples: u64,
    /// Units that met a hole.
    pub holes: u64,
}

impl Summary {
    /// Summarises samples, given in the order in which they were taken.
    pub fn of(samples: &[u64]) -> Self {
        let kept: Vec<u64> = samples.iter().copied().filter(|ns| *ns < HOLE_NS).collect();
        let mut blocks: Vec<u64> = kept
            .chunks(BLOCK_UNITS)
            .filter(|block| block.len() == BLOCK_UNITS.min(kept.len()))
            .map(mean_up)
            .collect();
        let mut sorted = kept.clone();
        sorted.sort_unstable();
        blocks.sort_unstable();
        Self {
            median_ns: quantile(&sorted, 500),
            p999_ns: quantile(&sorted, 999),
            max_ns: sorted.last().copied().unwrap_or(0),
            block_ns: quantile(&blocks, 990),
            samples: kept.len() as u64,
            holes: (samples.len() - kept.len()) as u64,
        }
    }
}

/// The mean without the longest unit, which an interrupt may have hit.
fn mean_up(block: &[u64]) -> u64 {
    let longest = if block.len() > 1 { block.iter().copied().max().unwrap_or(0) } else { 0 };
    let counted = (block.len() as u64 - u64::from(block.len() > 1)).max(1);
    (block.iter().sum::<u64>() - longest).div_ceil(counted)
}

/// The smallest value that `per_mille` of the ascending `values` do not exceed; 0 if there are none.
fn quantile(values: &[u64], per_mille: usize) -> u64 {
    let rank = (values.len() * per_mille).div_ceil(1_000);
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_ranks() {
        let samples: Vec<u64> = (1..=1_000).collect();
        let summary = Summary::of(&samples);
        assert_eq!((summary.median_ns, summary.p999_ns, summary.max_ns), (500, 999, 1_000));
        assert_eq!((summary.samples, summary.holes), (1_000, 0));
        // 31 whole blocks; the 99th percentile of so few is the last: 961 to 992, less the longest.
        assert_eq!(summary.block_ns, 976);
    }

    #[test]
    fn one_interrupt_weighs_little_in_a_block_and_a_hole_nothing() {
        let mut samples = vec![1_000; 3_200];
        samples[100] = 33_000;
        samples[200] = HOLE_NS;
        let summary = Summary::of(&samples);
        assert_eq!((summary.median_ns, summary.holes, summary.max_ns), (1_000, 1, 33_000));
        assert_eq!(summary.block_ns, 1_000);
    }

    #[test]
    fn few_samples_are_one_block_and_none_is_nothing() {
        assert_eq!(Summary::of(&[5, 7]).block_ns, 5);
        assert_eq!(Summary::of(&[5]).block_ns, 5);
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}
