//! How the leftover of D is shared among the stages of a path (HARTS 3.2; ADR 0018).
//!
//! Establishment leaves each stage with its smallest offer, and the rest of D beyond their sum is added to
//! them when ACCEPT returns. Its division determines how many channels fit (`punctual bench acceptance`).

use alloc::vec::Vec;

use crate::contract::SPAN_MAX;
use crate::units::{Nanos, Ppm};

/// State of a stage when the leftover is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareStage {
    /// The smallest bound that it offered.
    pub offered: Nanos,
    /// C of a message there.
    pub cost: Nanos,
    /// Utilisation by all channels, as the stage reported it.
    pub load: Ppm,
}

/// A method of sharing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// In proportion to C divided by the free share of the stage: time is worth most where messages take long
    /// and little is free. Signalling shares in this way.
    #[default]
    Scarcity,
    /// In proportion to C.
    Cost,
    /// In proportion to the load.
    Load,
    /// In proportion to C times the load.
    CostLoad,
    /// In proportion to the bounds that were offered.
    Offered,
    /// An equal part for each stage.
    Even,
    /// Everything for the stage with the highest load; for the first of several equal ones.
    Bottleneck,
}

impl Sharing {
    /// All methods of sharing.
    pub const ALL: [Self; 7] =
        [Self::Scarcity, Self::Cost, Self::Load, Self::CostLoad, Self::Offered, Self::Even, Self::Bottleneck];

    /// Name of the method in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scarcity => "cost over what is left",
            Self::Cost => "cost",
            Self::Load => "load",
            Self::CostLoad => "cost times load",
            Self::Offered => "offered bound",
            Self::Even => "evenly",
            Self::Bottleneck => "all to the bottleneck",
        }
    }

    fn weight(self, stage: &ShareStage) -> u128 {
        /// Share that counts as free if nothing is free: a hundredth.
        const LEFT_MIN_PPM: u128 = 10_000;
        // With this limit, no product of a weight and a leftover overflows.
        let cost = u128::from(stage.cost.0.clamp(1, SPAN_MAX.0));
        let load = u128::from(stage.load.0.clamp(1, 1_000_000));
        match self {
            Self::Scarcity => cost * 1_000_000_000 / (1_000_000 + LEFT_MIN_PPM - load),
            Self::Cost => cost,
            Self::Load => load,
            Self::CostLoad => cost * load,
            Self::Offered => u128::from(stage.offered.0.clamp(1, SPAN_MAX.0)),
            Self::Even | Self::Bottleneck => 1,
        }
    }

    /// The share of the last of `stages` in `leftover`; the others' shares come from the same weights. At
    /// most the whole leftover.
    pub fn of_last(self, leftover: Nanos, stages: &[ShareStage]) -> Nanos {
        let Some((last, before)) = stages.split_last() else { return Nanos::ZERO };
        if self == Self::Bottleneck {
            let rank = |stage: &ShareStage| (stage.load, stage.cost);
            let is_most = before.iter().all(|stage| rank(stage) < rank(last));
            return if is_most { leftover } else { Nanos::ZERO };
        }
        let own = self.weight(last);
        let all = before.iter().map(|stage| self.weight(stage)).sum::<u128>() + own;
        Nanos((u128::from(leftover.0) * own / all) as u64)
    }

    /// The shares of all stages, in the order of `stages`.
    pub fn shares(self, leftover: Nanos, stages: &[ShareStage]) -> Vec<Nanos> {
        let mut left = leftover;
        let mut shares: Vec<Nanos> = (0..stages.len())
            .rev()
            .map(|index| {
                let share = self.of_last(left, &stages[..=index]);
                left = left - share;
                share
            })
            .collect();
        shares.reverse();
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(cost: u64, load: u32) -> ShareStage {
        ShareStage { offered: Nanos(cost + 1_000), cost: Nanos(cost), load: Ppm(load) }
    }

    #[test]
    fn shares_never_sum_to_more_than_there_is() {
        let wild =
            [stage(u64::MAX - 1_000, u32::MAX), stage(0, 0), stage(1, 999_999), stage(1 << 40, 500_000)];
        for sharing in Sharing::ALL {
            for leftover in [0, 1, 7, 1_000_000, u64::MAX] {
                let shares = sharing.shares(Nanos(leftover), &wild);
                let sum: u128 = shares.iter().map(|share| u128::from(share.0)).sum();
                assert!(sum <= u128::from(leftover), "{sharing:?} {leftover} {shares:?}");
            }
            assert!(sharing.shares(Nanos(5), &[]).is_empty());
        }
    }

    /// The weights, written out: costs and bounds count as a nanosecond at least and an hour at most, loads as a
    /// millionth to the whole; what is free of a stage is in millionths, with a hundredth added.
    #[test]
    fn the_last_stage_gets_its_weights_part_rounded_down() {
        let times = [0, 1, 2, 3, 7, SPAN_MAX.0 - 1, SPAN_MAX.0, SPAN_MAX.0 + 1, u64::MAX];
        let loads = [0, 1, 2, 10_000, 999_999, 1_000_000, 1_000_001, u32::MAX];
        let stages = || {
            times.iter().flat_map(|&time| loads.iter().map(move |&load| (time, load))).map(|(time, load)| {
                ShareStage { offered: Nanos(time), cost: Nanos(times[8] - time), load: Ppm(load) }
            })
        };
        let within = |value: u64, most: u64| u128::from(if value == 0 { 1 } else { value.min(most) });
        let weight = |sharing: Sharing, stage: &ShareStage| {
            let (cost, load) = (within(stage.cost.0, SPAN_MAX.0), within(stage.load.0.into(), 1_000_000));
            match sharing {
                Sharing::Scarcity => cost * 1_000_000 * 1_000 / (1_000_000 - load + 10_000),
                Sharing::Cost => cost,
                Sharing::Load => load,
                Sharing::CostLoad => cost * load,
                Sharing::Offered => within(stage.offered.0, SPAN_MAX.0),
                Sharing::Even => 1,
                Sharing::Bottleneck => unreachable!("it has no weights"),
            }
        };
        for sharing in Sharing::ALL.into_iter().filter(|sharing| *sharing != Sharing::Bottleneck) {
            for first in stages() {
                for last in stages() {
                    let [one, other] = [&first, &last].map(|stage| weight(sharing, stage));
                    for leftover in [9, 101_000, u64::MAX] {
                        let expected = u128::from(leftover) * other / (one + other);
                        let share = sharing.of_last(Nanos(leftover), &[first, last]);
                        assert_eq!(
                            u128::from(share.0),
                            expected,
                            "{sharing:?} {leftover} {first:?} {last:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_scarce_gets_more() {
        let stages = [stage(1_000, 190_000), stage(1_000, 600_000), stage(4_000, 190_000)];
        let shares = Sharing::Scarcity.shares(Nanos(1_000_000), &stages);
        assert!(shares[1].0 > shares[0].0 * 19 / 10 && shares[2].0 > shares[0].0 * 39 / 10, "{shares:?}");
        let all: u64 = shares.iter().map(|share| share.0).sum();
        assert!(all > 999_990);
        assert_eq!(Sharing::Bottleneck.shares(Nanos(9), &stages), [Nanos(0), Nanos(9), Nanos(0)]);
        assert_eq!(Sharing::Even.shares(Nanos(9), &stages), [Nanos(3); 3]);
        let equal = [stage(1, 5), stage(2, 7), stage(2, 7), stage(2, 6)];
        assert_eq!(Sharing::Bottleneck.shares(Nanos(9), &equal), [0, 9, 0, 0].map(Nanos));
    }
}
