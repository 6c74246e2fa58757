//! How many messages each stage must be able to hold (design 3, "Horizon"; HARTS 3.1).
//!
//! Counts are whole largest messages of one channel; multiply by S. I' is the policed interval.

use crate::units::Nanos;

/// At the source: a burst of `burst_messages_max`, and what stage 1 has not served yet: B + ceil(d(1)/I').
pub fn source(burst_messages_max: u32, bound: Nanos, period: Nanos) -> u64 {
    u64::from(burst_messages_max).saturating_add(bound.div_ceil(period))
}

/// At a later stage that may serve `horizon` early: ceil((h(k) + d(k))/I') + ceil(J(k)/I').
///
/// With h(k) = sum of d(j), j < k, this is the cumulative horizon's ceil(sum(d(j), j <= k)/I'). After
/// relaxation h(k) is what the hop committed to.
pub fn cumulative(horizon: Nanos, bound: Nanos, jitter: Nanos, period: Nanos) -> u64 {
    (horizon + bound).div_ceil(period).saturating_add(jitter.div_ceil(period))
}

/// At a later stage that holds to e(k): ceil((d(k-1) + h(k-1) + d(k))/I') + ceil(J(k)/I').
pub fn regulated(
    previous_bound: Nanos,
    previous_horizon: Nanos,
    bound: Nanos,
    jitter: Nanos,
    period: Nanos,
) -> u64 {
    (previous_bound + previous_horizon + bound).div_ceil(period).saturating_add(jitter.div_ceil(period))
}

/// At a sink that holds messages to l + D: ceil(D/I') + ceil(J/I').
pub fn sink_at_deadline(deadline: Nanos, jitter: Nanos, period: Nanos) -> u64 {
    deadline.div_ceil(period).saturating_add(jitter.div_ceil(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    #[test]
    fn the_formulas_of_the_design() {
        assert_eq!(source(10, MS(30), MS(40)), 11);
        assert_eq!(cumulative(MS(50), MS(30), MS(1), MS(40)), 3);
        assert_eq!(cumulative(Nanos::ZERO, MS(40), Nanos::ZERO, MS(40)), 1);
        assert_eq!(regulated(MS(20), MS(5), MS(20), Nanos::ZERO, MS(40)), 2);
        assert_eq!(sink_at_deadline(MS(80), MS(2), MS(40)), 3);
    }

    #[test]
    fn absurd_input_saturates() {
        assert_eq!(source(1, MS(1), Nanos::ZERO), u64::MAX);
        assert_eq!(cumulative(Nanos::MAX, Nanos::MAX, Nanos::MAX, Nanos(1)), u64::MAX);
    }
}
