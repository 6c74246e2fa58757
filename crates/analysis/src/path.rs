//! Computations over the whole route of a channel: end-to-end sum, shares of the leftover, horizons, arrival
//! error (ARCHITECTURE, The life of a channel).

use alloc::vec::Vec;

use crate::contract::Horizon;
use crate::units::{Nanos, Ppm};

/// A stage of a route, as needed for the end-to-end sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStage {
    /// d(k): bound of the stage.
    pub bound: Nanos,
    /// p_max(k): longest propagation time behind the stage.
    pub propagation_max: Nanos,
}

/// The smallest D that the stages can keep: sum of (d + p_max) + rho·sum of d.
///
/// `rho` is twice the tolerance of one clock: each hop measures its share with its own.
pub fn end_to_end(stages: &[PathStage], rho: Ppm) -> Nanos {
    let bounds: Nanos = stages.iter().map(|stage| stage.bound).sum();
    let propagation: Nanos = stages.iter().map(|stage| stage.propagation_max).sum();
    bounds + propagation + rho.of(bounds)
}

/// The part of `deadline` that is left after the stages' smallest bounds, ready to be added to bounds (rho
/// deducted); `None` if they do not fit.
pub fn leftover(stages: &[PathStage], rho: Ppm, deadline: Nanos) -> Option<Nanos> {
    let left = deadline.checked_sub(end_to_end(stages, rho))?;
    let spendable = u128::from(left.0) * 1_000_000 / (1_000_000 + u128::from(rho.0));
    // The sum rounds rho up once more: one nanosecond covers it.
    Some(Nanos(spendable as u64) - Nanos(u64::from(rho.0 > 0)))
}

/// Splits `leftover` by `weights`, evenly where all are zero. The shares never sum to more than `leftover`.
pub fn leftover_shares(leftover: Nanos, weights: &[u64]) -> Vec<Nanos> {
    let total: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    let even = Nanos(leftover.0 / (weights.len() as u64).max(1));
    let share = |&weight: &u64| match total {
        0 => even,
        _ => Nanos((u128::from(leftover.0) * u128::from(weight) / total) as u64),
    };
    weights.iter().map(share).collect()
}

/// h(k) of every stage for the bounds given: the sum of the bounds before it, or zero if it is regulated.
///
/// The source regulates: h(1) = 0.
pub fn horizons(mode: Horizon, bounds: &[Nanos]) -> Vec<Nanos> {
    let before = bounds.iter().scan(Nanos::ZERO, |sum, &bound| {
        let horizon = *sum;
        *sum += bound;
        Some(horizon)
    });
    match mode {
        Horizon::Cumulative => before.collect(),
        Horizon::Regulated => bounds.iter().map(|_| Nanos::ZERO).collect(),
    }
}

/// h(k) that hop k commits when ACCEPT comes back: D - final bounds from k on - later propagation.
///
/// It is known before the hops upstream have chosen their bounds, and it is never below the sum of those
/// bounds.
pub fn committed_horizon(
    mode: Horizon,
    deadline: Nanos,
    bounds_from_here: Nanos,
    propagation_later: Nanos,
) -> Nanos {
    match mode {
        Horizon::Cumulative => deadline - bounds_from_here - propagation_later,
        Horizon::Regulated => Nanos::ZERO,
    }
}

/// Accuracy of a hop's prediction when a packet reaches the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// How much later than slack predicts the receive time there may be.
    pub error: Nanos,
    /// Shortest propagation.
    pub propagation_min: Nanos,
    /// Longest propagation.
    pub propagation_max: Nanos,
}

/// J(k+1) = J(k) + prediction error + p_max - p_min + rho·d(k); J(1) = 0.
pub fn next_jitter(jitter: Nanos, hop: &Prediction, rho: Ppm, bound: Nanos) -> Nanos {
    jitter + hop.error + (hop.propagation_max - hop.propagation_min) + rho.of(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;
    const RHO: Ppm = Ppm(200);

    fn stages() -> [PathStage; 3] {
        [10, 20, 30].map(|d| PathStage { bound: MS(d), propagation_max: MS(1) })
    }

    #[test]
    fn the_sum_counts_bounds_propagation_and_drift() {
        assert_eq!(end_to_end(&stages(), RHO), MS(63) + Nanos::from_micros(12));
    }

    #[test]
    fn spending_all_that_is_left_over_still_keeps_the_deadline() {
        for extra_ns in [0, 1, 7, 4_999, 1_000_000, 123_456_789] {
            let deadline = end_to_end(&stages(), RHO) + Nanos(extra_ns);
            let left = leftover(&stages(), RHO, deadline).unwrap();
            for weights in [[1, 2, 3], [0, 0, 0], [u64::MAX, 1, u64::MAX], [0, 5, 0]] {
                let shares = leftover_shares(left, &weights);
                let mut relaxed = stages();
                relaxed.iter_mut().zip(&shares).for_each(|(stage, &share)| stage.bound += share);
                assert!(end_to_end(&relaxed, RHO) <= deadline, "{extra_ns} {weights:?}");
            }
        }
        assert_eq!(leftover(&stages(), RHO, MS(63)), None);
    }

    #[test]
    fn shares_follow_the_weights_and_fall_back_to_even() {
        assert_eq!(leftover_shares(MS(60), &[1, 2, 3]), [MS(10), MS(20), MS(30)]);
        assert_eq!(leftover_shares(MS(60), &[0, 0]), [MS(30), MS(30)]);
        assert!(leftover_shares(MS(60), &[]).is_empty());
    }

    #[test]
    fn horizons_accumulate_and_jitter_grows() {
        let bounds = [MS(10), MS(20), MS(30)];
        assert_eq!(horizons(Horizon::Cumulative, &bounds), [MS(0), MS(10), MS(30)]);
        assert_eq!(horizons(Horizon::Regulated, &bounds), [Nanos::ZERO; 3]);
        assert_eq!(committed_horizon(Horizon::Cumulative, MS(80), MS(50), MS(2)), MS(28));
        let hop = Prediction { error: MS(1), propagation_min: MS(1), propagation_max: MS(3) };
        assert_eq!(next_jitter(MS(2), &hop, RHO, MS(10)), MS(5) + Nanos::from_micros(2));
    }
}
