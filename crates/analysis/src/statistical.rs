//! Soft guarantees: a channel that declares its mean rate and the share of its messages that may miss.
//!
//! Sources are assumed to be independent of each other and, from the point of view of another channel's
//! message, stationary. There are no other assumptions: the peak rate, the burst and the mean are policed at
//! the source (see [`LogicalArrivals`](crate::LogicalArrivals)), so that a source which violates the
//! assumptions affects only soft channels.

use core::fmt;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::activation::Activation;
use crate::contract::{Contract, SPAN_MAX};
use crate::policy::Demand;
use crate::units::{Nanos, Rate};

/// Time over which the mean is kept unless the contract has another time.
pub const MEAN_OVER_DEFAULT: Nanos = Nanos::from_secs(1);

/// A proportion in parts per thousand million, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ppb(NonZeroU32);

impl Ppb {
    /// `parts` of a thousand million; `None` if that is zero.
    pub const fn new(parts: u32) -> Option<Self> {
        match NonZeroU32::new(parts) {
            Some(parts) => Some(Self(parts)),
            None => None,
        }
    }

    /// The parts.
    pub const fn parts(self) -> u32 {
        self.0.get()
    }

    /// The proportion as a number above 0.
    pub fn as_f64(self) -> f64 {
        f64::from(self.parts()) / 1e9
    }

    /// One of `shares` equal shares of this proportion, at least 10^-9.
    pub fn share(self, shares: u32) -> Self {
        Self(NonZeroU32::new(self.parts() / shares.max(1)).unwrap_or(NonZeroU32::MIN))
    }
}

/// The parts of the whole.
const WHOLE: u32 = 1_000_000_000;

impl fmt::Display for Ppb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.parts()) / 1e7)
    }
}

/// The terms of a contract's soft guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Statistical {
    /// The mean rate: at most the peak rate R of the contract, and one an hour at least.
    pub mean_rate: Rate,
    /// The time over which the mean is kept: in any time t at most 1 + mean_rate·(t + mean_over) messages.
    pub mean_over: Nanos,
    /// The share of messages that may miss the deadline: above 0, below 1.
    pub miss_ratio: Ppb,
}

/// Why a soft contract is invalid, with a valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum StatisticalError {
    /// The mean is above the peak, or less than one an hour.
    #[error(
        "mean of one message every {mean}: give at most the rate, one every {interval}, and one an hour at least"
    )]
    Mean {
        /// The requested mean interval.
        mean: Nanos,
        /// I.
        interval: Nanos,
    },
    /// The time over which the mean is kept is too short or too long.
    #[error("mean kept over {over}: give the interval {interval} or more, and an hour at most")]
    Over {
        /// The requested time over which the mean is kept.
        over: Nanos,
        /// I.
        interval: Nanos,
    },
    /// All messages may miss.
    #[error("miss ratio {ratio}: give less than 1; leave it out for a hard guarantee")]
    MissRatio {
        /// The requested miss ratio.
        ratio: Ppb,
    },
    /// Budgets and plans are for hard guarantees.
    #[error("a miss ratio with an activation of its own or a planned flow: choose one of them")]
    Reserved,
}

impl Statistical {
    /// Checks every range, given the rest of the contract.
    ///
    /// # Errors
    /// The first value out of its range.
    pub fn validate(&self, contract: &Contract) -> Result<(), StatisticalError> {
        let (mean, interval, over) = (self.mean_rate.interval(), contract.interval(), self.mean_over);
        if !(interval..=SPAN_MAX).contains(&mean) {
            return Err(StatisticalError::Mean { mean, interval });
        }
        if !(interval..=SPAN_MAX).contains(&over) {
            return Err(StatisticalError::Over { over, interval });
        }
        if self.miss_ratio.parts() >= WHOLE {
            return Err(StatisticalError::MissRatio { ratio: self.miss_ratio });
        }
        if contract.activation != Activation::Deadline || contract.flow.is_some() {
            return Err(StatisticalError::Reserved);
        }
        Ok(())
    }
}

/// The demand of a soft channel for one stage beside its peak ([`Demand`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Soft {
    /// The policed mean interval.
    pub mean_period: Nanos,
    /// Excess over the mean rate: in any time t at most 1 + (t + `mean_over`)/`mean_period` messages arrive
    /// at the stage.
    pub mean_over: Nanos,
    /// J: how far effective arrivals here may be shifted relative to those at the source.
    pub jitter: Nanos,
    /// The share of messages that may miss the bound of this stage.
    pub miss_ratio: Ppb,
}

impl Soft {
    /// The demand of a contract for a stage that has all of its miss ratio.
    pub fn of(contract: &Contract) -> Option<Self> {
        contract.statistical.map(|Statistical { mean_rate, mean_over, miss_ratio }| Self {
            mean_period: mean_rate.policed_interval(),
            mean_over,
            jitter: Nanos::ZERO,
            miss_ratio,
        })
    }

    /// The demand of a contract for one of `stages` stages behind an arrival error of `jitter`. Each stage
    /// gets an equal part of the miss ratio: a message that misses anywhere may miss its deadline, so the
    /// ratios add up.
    #[must_use]
    pub fn at_stage(self, stages: u32, jitter: Nanos) -> Self {
        Self { jitter, mean_over: self.mean_over + jitter, miss_ratio: self.miss_ratio.share(stages), ..self }
    }
}

impl Demand {
    /// Most messages whose effective arrivals are within a window of `window`, its ends included.
    pub fn messages_max(&self, window: Nanos) -> u64 {
        let peak = window.0 / self.period.0.max(1) + 1;
        match self.soft {
            Some(soft) => peak.min((window + soft.mean_over).0 / soft.mean_period.0.max(1) + 1),
            None => peak,
        }
    }

    /// The mean number of messages within such a window at a random time; for a hard channel the largest
    /// number.
    pub fn messages_mean(&self, window: Nanos) -> f64 {
        match self.soft {
            Some(soft) => (window + soft.jitter).0 as f64 / soft.mean_period.0.max(1) as f64,
            None => self.messages_max(window) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn contract(mean: Nanos, mean_over: Nanos, miss: u32) -> Contract {
        let plain = Contract::new(1_000, Rate::every(MS(10)).unwrap(), 1, MS(50)).unwrap();
        let mean_rate = Rate::every(mean).unwrap();
        let statistical = Some(Statistical { mean_rate, mean_over, miss_ratio: Ppb::new(miss).unwrap() });
        Contract { statistical, ..plain }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(contract(MS(40), MS(1_000), 1_000_000).validate(), Ok(()));
        for wrong in [
            contract(MS(9), MS(1_000), 1),
            contract(MS(40), MS(9), 1),
            contract(MS(40), MS(1_000), WHOLE),
            Contract {
                activation: Activation::Periodic { period: MS(10), packets: 1 },
                ..contract(MS(40), MS(1_000), 1)
            },
        ] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_most_follows_the_peak_and_then_the_mean() {
        let model = crate::Cpu {
            utilisation_max: crate::Ppm::ONE,
            best_effort_share_min: crate::Ppm(0),
            interference: Default::default(),
            best_effort_unit: Nanos::ZERO,
            quantum_packets: 1,
        };
        let costs = crate::PathCosts::one_by_one(Nanos(1), Nanos(1), Nanos(1));
        let soft = contract(MS(40), MS(100), 1_000_000);
        let demand = model.demand(&soft, 1_400, &costs, Nanos::ZERO, Nanos::ZERO);
        assert_eq!(demand.messages_max(Nanos::ZERO), 1);
        assert_eq!(demand.messages_max(MS(20)), 3);
        // 1 + (1,000 + 100)/39.6875
        assert_eq!(demand.messages_max(MS(1_000)), 28);
        assert!((demand.messages_mean(MS(400)) - 400.0 / 39.687_5).abs() < 1e-9);
        let shared = demand.soft.unwrap().at_stage(5, MS(3));
        assert_eq!((shared.miss_ratio, shared.mean_over), (Ppb::new(200_000).unwrap(), MS(103)));
        // Messages that were under way when the window began are counted too.
        let late = Demand { soft: Some(shared), ..demand };
        assert!((late.messages_mean(MS(400)) - 403.0 / 39.687_5).abs() < 1e-9);
        // However short the intervals: a message at each nanosecond of the window, its ends included.
        let short = Soft { mean_period: Nanos(1), mean_over: Nanos(3), ..shared };
        // An interval of nothing counts as a nanosecond.
        let none = [(0, 1, 11), (0, 2, 7), (1, 0, 11), (2, 0, 6), (0, 0, 11)];
        for (period, mean_period, most) in
            [(1, 100, 1), (1, 1, 11), (2, 1, 6), (1, 2, 7), (3, 4, 4)].into_iter().chain(none)
        {
            let soft = Some(Soft { mean_period: Nanos(mean_period), ..short });
            let fast = Demand { period: Nanos(period), soft, ..demand };
            assert_eq!(fast.messages_max(Nanos(10)), most, "{period} {mean_period}");
            let hard = Demand { soft: None, ..fast };
            assert_eq!(hard.messages_max(Nanos(10)), 10 / period.max(1) + 1, "{period}");
        }
        for mean_period in [0, 1, 2] {
            let fast = Demand { soft: Some(Soft { mean_period: Nanos(mean_period), ..short }), ..demand };
            let mean = f64::from(7 + 3_000_000) / if mean_period == 2 { 2.0 } else { 1.0 };
            assert!((fast.messages_mean(Nanos(7)) - mean).abs() < 1e-6, "{mean_period}");
        }
    }
}
