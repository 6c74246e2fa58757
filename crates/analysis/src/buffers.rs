//! Number of messages that each stage must be able to hold (GUARANTEES; HARTS 3.1).
//!
//! Counts are whole largest messages of one channel; multiply by S. I' is the policed interval.

use alloc::vec::Vec;

use crate::chernoff::{Variables, tail};
use crate::statistical::Ppb;
use crate::units::Nanos;

/// Messages to buffer at the source: a burst of `burst_messages_max`, and the messages that arrive until
/// stage 1 has served it, `span` after it may begin: B + ceil((a + d(1))/I').
pub fn source(burst_messages_max: u32, span: Nanos, period: Nanos) -> u64 {
    u64::from(burst_messages_max).saturating_add(span.div_ceil(period))
}

/// Messages to buffer at a stage behind the ring that may serve `horizon` early: ceil((h(k) + d(k))/I') +
/// ceil(J(k)/I').
///
/// With h(k) = a + sum of d(j), j < k, a the jitter allowance, this is the cumulative horizon's ceil((a +
/// sum(d(j), j <= k))/I'). After relaxation h(k) is the value that the hop committed to.
pub fn cumulative(horizon: Nanos, bound: Nanos, jitter: Nanos, period: Nanos) -> u64 {
    (horizon + bound).div_ceil(period).saturating_add(jitter.div_ceil(period))
}

/// Messages to buffer at a later stage that holds to e(k): ceil((d(k-1) + h(k-1) + d(k))/I') + ceil(J(k)/I').
pub fn regulated(
    previous_bound: Nanos,
    previous_horizon: Nanos,
    bound: Nanos,
    jitter: Nanos,
    period: Nanos,
) -> u64 {
    (previous_bound + previous_horizon + bound).div_ceil(period).saturating_add(jitter.div_ceil(period))
}

/// Messages to buffer at a sink that holds messages to l + D and receives them up to `early` ahead of l:
/// ceil((a + D)/I') + ceil(J/I').
pub fn sink_at_deadline(early: Nanos, deadline: Nanos, jitter: Nanos, period: Nanos) -> u64 {
    (early + deadline).div_ceil(period).saturating_add(jitter.div_ceil(period))
}

/// One soft channel's use of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPart {
    /// The largest use: the buffers that a hard channel would reserve.
    pub most: u32,
    /// I' of the peak rate.
    pub period: Nanos,
    /// The policed mean interval. The mean use is at most `period`/`mean_period` of the largest: messages
    /// stay no longer than the time in which the largest number of them arrives.
    pub mean_period: Nanos,
}

/// The smallest pool that independent soft channels exceed with a probability of at most `ratio`.
pub fn pooled(parts: &[PoolPart], ratio: Ppb) -> u32 {
    let variables: Vec<_> = parts
        .iter()
        .map(|part| Variables {
            count: 1.0,
            most: f64::from(part.most),
            mean_share: (part.period.0 as f64 / part.mean_period.0.max(1) as f64).min(1.0),
        })
        .collect();
    let most = parts.iter().map(|part| part.most).reduce(u32::saturating_add).unwrap_or_default();
    let (mut overrun, mut enough, mut theta) = (0, most, 0.0);
    while enough > overrun {
        let middle = overrun + (enough - overrun) / 2;
        let above = tail(&variables, f64::from(middle) + 1.0, ratio.as_f64(), &mut theta);
        if above <= ratio.as_f64() { enough = middle } else { overrun = middle + 1 }
    }
    enough
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
        assert_eq!(sink_at_deadline(Nanos::ZERO, MS(80), MS(2), MS(40)), 3);
        assert_eq!(sink_at_deadline(MS(1), MS(80), MS(2), MS(40)), 4);
    }

    /// The formulas for all small times, each started interval counted one by one.
    #[test]
    fn each_started_interval_counts_a_message() {
        let started = |span: u64, period: u64| (0..span).step_by(period as usize).count() as u64;
        for period in 1..6 {
            for (a, b, c, jitter) in (0..625).map(|n| (n % 5, n / 5 % 5, n / 25 % 5, n / 125)) {
                let errors = started(jitter, period);
                let [first, second, third, late, span] = [a, b, c, jitter, period].map(Nanos);
                let what = [a, b, c, jitter, period];
                assert_eq!(source(a as u32, second, span), a + started(b, period), "{what:?}");
                let two = started(a + b, period) + errors;
                assert_eq!(cumulative(first, second, late, span), two, "{what:?}");
                assert_eq!(sink_at_deadline(first, second, late, span), two, "{what:?}");
                let three = started(a + b + c, period) + errors;
                assert_eq!(regulated(first, second, third, late, span), three, "{what:?}");
            }
        }
    }

    #[test]
    fn a_pool_is_no_larger_than_all_and_much_smaller_for_many() {
        let part = PoolPart { most: 4, period: MS(10), mean_period: MS(50) };
        let ratio = Ppb::new(1_000_000).unwrap();
        assert_eq!(pooled(&[], ratio), 0);
        assert_eq!(pooled(&[part], ratio), 4);
        // The mean is 160 of 800, the deviation of full and empty channels 23.
        let many = pooled(&[part; 200], ratio);
        assert!((220..300).contains(&many), "{many}");
        let stricter = pooled(&[part; 200], Ppb::new(1_000).unwrap());
        assert!(stricter > many && stricter < 330, "{stricter}");
        let wild = PoolPart { most: u32::MAX, period: MS(1), mean_period: Nanos::ZERO };
        assert_eq!(pooled(&[wild; 3], ratio), u32::MAX);
    }

    /// A pool that may always be exceeded needs no room, and one that never may needs all.
    #[test]
    fn a_pool_is_as_large_as_its_ratio_demands() {
        let part = PoolPart { most: 3, period: MS(10), mean_period: MS(50) };
        for count in [1, 2, 50] {
            let parts = alloc::vec![part; count];
            assert_eq!(pooled(&parts, Ppb::new(1_000_000_000).unwrap()), 0, "{count}");
            assert_eq!(pooled(&parts[..1], Ppb::new(1).unwrap()), 3);
        }
        let none = PoolPart { most: 0, ..part };
        assert_eq!(pooled(&[none, none], Ppb::new(1).unwrap()), 0);
    }

    /// Without a ratio worth mentioning each channel needs all that it may use, also if that is a single message;
    /// those that use nothing change nothing.
    #[test]
    fn a_pool_that_may_hardly_be_exceeded_has_room_for_all() {
        let part = |most| PoolPart { most, period: MS(10), mean_period: MS(20) };
        let parts = [part(0), part(1), part(0), part(1), part(2), part(0)];
        for count in 0..=parts.len() {
            let all = parts[..count].iter().map(|part| part.most).sum::<u32>();
            assert_eq!(pooled(&parts[..count], Ppb::new(1).unwrap()), all, "{count}");
        }
        // Whether the last message is there depends on all being full: a half to the power of 3 for those above.
        let at = |parts_of_ratio| pooled(&parts, Ppb::new(parts_of_ratio).unwrap());
        assert_eq!([124_999_999, 126_000_000].map(at), [4, 3]);
    }

    /// Whoever sends at its peak all the time is full: no ratio below the whole saves anything. A mean interval of
    /// nothing counts as a nanosecond, and the mean is no higher than the peak.
    #[test]
    fn channels_at_their_peak_share_nothing() {
        for (period, mean_period) in [(1, 1), (1, 0), (5, 5), (5, 2), (1_000_000, 0)] {
            let part = PoolPart { most: 3, period: Nanos(period), mean_period: Nanos(mean_period) };
            for count in [1, 2, 20] {
                let pool = pooled(&alloc::vec![part; count], Ppb::new(999_999_000).unwrap());
                assert_eq!(pool, 3 * count as u32, "{period} {mean_period} {count}");
            }
        }
        let never = PoolPart { most: 3, period: Nanos::ZERO, mean_period: Nanos::ZERO };
        assert_eq!(pooled(&[never; 9], Ppb::new(1_000).unwrap()), 0, "of no nanosecond in each");
    }

    #[test]
    fn absurd_input_saturates() {
        assert_eq!(source(1, MS(1), Nanos::ZERO), u64::MAX);
        assert_eq!(cumulative(Nanos::MAX, Nanos::MAX, Nanos::MAX, Nanos(1)), u64::MAX);
    }
}
