//! How the leftover of D is shared among the stages of a path (HARTS 3.2; design 7).
//!
//! Establishment leaves each stage with the smallest bound that it offered, and what D leaves beyond their sum is
//! added to them when ACCEPT comes back. Where it goes decides how many channels fit: a bound is dear where little
//! is left to give away, and of no more use where it is longer than what anybody could gain by it.

use alloc::vec::Vec;

use crate::units::{Nanos, Ppm};

/// What is known of a stage when the leftover is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareStage {
    /// The smallest bound that it offered.
    pub offered: Nanos,
    /// C of a message there.
    pub cost: Nanos,
    /// What all channels use of it, the newcomer included.
    pub load: Ppm,
}

/// A way of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sharing {
    /// The same to each stage.
    Even,
    /// By C.
    Cost,
    /// By load.
    Load,
    /// By C times load.
    CostLoad,
    /// By C times the square of load.
    CostLoadSquared,
    /// By C over what is left to give away.
    Scarcity,
    /// By the root of C times load.
    RootCostLoad,
    /// By load over what is left.
    LoadScarcity,
    /// By the bounds that were offered.
    Offered,
    /// All to the stage with the most load.
    Bottleneck,
    /// So that bounds are as C times load, as far as offers allow.
    LevelCostLoad,
    /// So that bounds are as C, as far as offers allow.
    LevelCost,
    /// So that bounds are as C times the square of load, as far as offers allow.
    LevelCostLoadSquared,
    /// So that bounds are as C over what is left, as far as offers allow.
    LevelScarcity,
}

impl Sharing {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Even,
        Self::Cost,
        Self::Load,
        Self::CostLoad,
        Self::CostLoadSquared,
        Self::Scarcity,
        Self::RootCostLoad,
        Self::LoadScarcity,
        Self::Offered,
        Self::Bottleneck,
        Self::LevelCostLoad,
        Self::LevelCost,
        Self::LevelCostLoadSquared,
        Self::LevelScarcity,
    ];

    fn weight(self, stage: &ShareStage) -> u128 {
        let cost = u128::from(stage.cost.0.max(1));
        let load = u128::from(stage.load.0.clamp(1, 1_000_000));
        match self {
            Self::Even | Self::Bottleneck => 1,
            Self::Cost | Self::LevelCost => cost,
            Self::Load => load,
            Self::CostLoad | Self::LevelCostLoad => cost * load,
            Self::CostLoadSquared | Self::LevelCostLoadSquared => cost * (load * load / 1_000).max(1),
            Self::Scarcity | Self::LevelScarcity => cost * 1_000_000_000 / (1_010_000 - load),
            Self::RootCostLoad => (cost * 1_000).isqrt() * load,
            Self::LoadScarcity => load * 1_000_000 / (1_010_000 - load),
            Self::Offered => u128::from(stage.offered.0.max(1)),
        }
    }

    /// The shares of `leftover`, in the order of `stages`; together at most that.
    pub fn shares(self, leftover: Nanos, stages: &[ShareStage]) -> Vec<Nanos> {
        match self {
            Self::Bottleneck => {
                let most = stages.iter().map(|stage| (stage.load, stage.cost)).max();
                let first = stages.iter().position(|stage| Some((stage.load, stage.cost)) == most);
                let share = |index| if Some(index) == first { leftover } else { Nanos::ZERO };
                (0..stages.len()).map(share).collect()
            }
            Self::LevelCostLoad | Self::LevelCost | Self::LevelCostLoadSquared | Self::LevelScarcity => {
                self.level(leftover, stages)
            }
            _ => {
                let total: u128 = stages.iter().map(|stage| self.weight(stage)).sum();
                let share = |stage: &ShareStage| {
                    Nanos((u128::from(leftover.0) * self.weight(stage) / total.max(1)) as u64)
                };
                stages.iter().map(share).collect()
            }
        }
    }

    /// Raises the bounds that are lowest for their weight first, all to one level.
    fn level(self, leftover: Nanos, stages: &[ShareStage]) -> Vec<Nanos> {
        // The stages by bound over weight; those up to some place are raised.
        let mut order: Vec<usize> = (0..stages.len()).collect();
        order.sort_by(|&a, &b| {
            let (left, right) = (&stages[a], &stages[b]);
            let cross = |one: &ShareStage, other: &ShareStage| {
                u128::from(one.offered.0).saturating_mul(self.weight(other))
            };
            cross(left, right).cmp(&cross(right, left))
        });
        let mut shares = alloc::vec![Nanos::ZERO; stages.len()];
        let (mut held, mut weights) = (u128::from(leftover.0), 0_u128);
        for (place, &index) in order.iter().enumerate() {
            held += u128::from(stages[index].offered.0);
            weights += self.weight(&stages[index]);
            // The level held / weights; does it stay below the next one's?
            let ends = order.get(place + 1).is_none_or(|&next| {
                held.saturating_mul(self.weight(&stages[next]))
                    <= u128::from(stages[next].offered.0).saturating_mul(weights)
            });
            if ends {
                for &raised in &order[..=place] {
                    let bound = held.saturating_mul(self.weight(&stages[raised])) / weights.max(1);
                    shares[raised] = Nanos(u64::try_from(bound).unwrap_or(u64::MAX)) - stages[raised].offered;
                }
                break;
            }
        }
        shares
    }
}
