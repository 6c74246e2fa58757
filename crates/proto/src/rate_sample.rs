//! The counts of one measurement of a link: the receiving host makes them, signalling carries them, the
//! sending host evaluates them.

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{BitRate, Nanos, Ppm};
use serde::{Deserialize, Serialize};

/// Packets that came through in a window of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateSample {
    /// Packets that came in `span`.
    pub packets: u64,
    /// Length of the window by the receiver's clock.
    pub span: Nanos,
    /// How far single packets were from an even flow.
    pub jitter: Nanos,
    /// Packets that were sent in `offered_span`.
    pub offered: u64,
    /// Time over which they were sent, by the sender's clock.
    pub offered_span: Nanos,
    /// Bytes of the wire of other packets that were sent between them.
    pub others: u64,
}

impl RateSample {
    /// The rate at which packets of `wire_bytes` came through, and other packets with them in the same
    /// proportion.
    pub fn rate(&self, wire_bytes: u32) -> BitRate {
        let others = u128::from(self.others) * u128::from(self.packets.min(self.offered))
            / u128::from(self.offered.max(1));
        rate_of(u128::from(self.packets) * u128::from(wire_bytes) + others, self.span)
    }

    /// The rate at which all were sent.
    pub fn offered_rate(&self, wire_bytes: u32) -> BitRate {
        let bytes = u128::from(self.offered) * u128::from(wire_bytes) + u128::from(self.others);
        rate_of(bytes, self.offered_span)
    }

    /// The largest error of the rate if other packets were lost at another ratio than ours.
    fn of_others(&self, wire_bytes: u32) -> Ppm {
        let million = u128::from(Ppm::ONE.0);
        let lost = u128::from(self.offered.saturating_sub(self.packets));
        let unsure = u128::from(self.others) * lost / u128::from(self.offered.max(1));
        let through = u128::from(self.packets) * u128::from(wire_bytes);
        let share = (unsure * million).div_ceil(through.max(1));
        Ppm(u32::try_from(share).unwrap_or(u32::MAX).min(Ppm::ONE.0))
    }

    /// The error of the rate of packets of `wire_bytes`, without the clocks' error.
    pub fn error(&self, wire_bytes: u32) -> Ppm {
        let sum = self.unevenness().0.saturating_add(self.of_others(wire_bytes).0);
        Ppm(sum.min(Ppm::ONE.0))
    }

    /// Part of [`Self::error`] that comes from both ends of the window, and from one packet more or less.
    pub fn unevenness(&self) -> Ppm {
        let million = u128::from(Ppm::ONE.0);
        let jitter = if active(Mutation::RateErrorLeftOut) { 0 } else { u128::from(self.jitter.0) };
        let time = (jitter * 2 * million).div_ceil(u128::from(self.span.0.max(1)));
        let count = million.div_ceil(u128::from(self.packets.max(1)));
        Ppm(u32::try_from(time + count).unwrap_or(u32::MAX).min(Ppm::ONE.0))
    }
}

fn rate_of(bytes: u128, span: Nanos) -> BitRate {
    let bits = bytes.saturating_mul(8_000_000_000);
    BitRate(u64::try_from(bits / u128::from(span.0.max(1))).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_bytes_by_time_and_of_no_time_the_largest() {
        assert_eq!(rate_of(1_000, Nanos::from_secs(2)), BitRate(4_000));
        assert_eq!(rate_of(3, Nanos(1)), BitRate(24_000_000_000));
        assert_eq!(rate_of(u128::MAX, Nanos(0)), BitRate(u64::MAX));
    }

    const SAMPLE: RateSample = RateSample {
        packets: 1_000,
        span: Nanos::from_secs(1),
        jitter: Nanos(333),
        offered: 1_100,
        offered_span: Nanos::from_secs(1),
        others: 7_777,
    };

    /// 7,777 B of other packets were sent among 1,100 packets; with 1,000 received packets, 7,070 B of them
    /// count.
    #[test]
    fn others_count_in_proportion_and_never_more_than_they_were() {
        assert_eq!(SAMPLE.rate(1_000), BitRate((1_000_000 + 7_070) * 8));
        assert_eq!(SAMPLE.offered_rate(1_000), BitRate((1_100_000 + 7_777) * 8));
        let more = RateSample { packets: 1_200, ..SAMPLE };
        assert_eq!(more.rate(1_000), BitRate((1_200_000 + 7_777) * 8));
        assert_eq!(RateSample { offered: 0, ..SAMPLE }.rate(1_000), BitRate(8_000_000));
    }

    /// The error is rounded up: two ends of the window, a packet more or less, and others' bytes that were
    /// lost.
    #[test]
    fn an_error_is_never_reported_smaller_than_it_is() {
        for (jitter, ends) in [(0, 0), (333, 1), (500, 1), (501, 2), (1_000, 2)] {
            let sample = RateSample { jitter: Nanos(jitter), ..SAMPLE };
            assert_eq!(sample.unevenness(), Ppm(ends + 1_000), "{jitter}");
        }
        assert_eq!(RateSample { packets: 999, ..SAMPLE }.unevenness(), Ppm(1 + 1_002));
        // Of 7,777 B, 707 may have been lost: relative to 1,000,000 B, and to 999,000.
        assert_eq!(SAMPLE.error(1_000), Ppm(1_001 + 707));
        assert_eq!(SAMPLE.error(999), Ppm(1_001 + 708));
        assert_eq!(RateSample { packets: 1_200, ..SAMPLE }.error(1_000), Ppm(1 + 834), "nothing was lost");
        for all in [RateSample { packets: 0, ..SAMPLE }, RateSample { span: Nanos(0), ..SAMPLE }] {
            assert_eq!((all.unevenness(), all.error(1_000)), (Ppm::ONE, Ppm::ONE));
        }
    }

    /// The formulas over all small numbers, each division written out: none of the numbers may be zero where
    /// it divides.
    #[test]
    fn rates_and_errors_are_those_of_the_formulas() {
        let up = |number: u64, by: u64| number.div_ceil(by.max(1));
        let million = 1_000_000_u64;
        let small = || 0..4_u64;
        let counts = small().flat_map(|packets| (0..6_u64).map(move |offered| (packets, offered)));
        let sizes = (0..6_u64).flat_map(|others| (0..3_u32).map(move |wire_bytes| (others, wire_bytes)));
        let times = small().flat_map(|span| small().map(move |jitter| (Nanos(span), Nanos(jitter))));
        for (((packets, offered), (others, wire_bytes)), (span, jitter)) in counts
            .flat_map(|of| sizes.clone().map(move |size| (of, size)))
            .flat_map(|of| times.clone().map(move |time| (of, time)))
        {
            let sample = RateSample { packets, span, jitter, offered, offered_span: span, others };
            let (wire, time) = (u64::from(wire_bytes), span.0.max(1));
            let through = packets * wire + others * packets.min(offered) / offered.max(1);
            assert_eq!(sample.rate(wire_bytes), BitRate(through * 8_000_000_000 / time), "{sample:?}");
            let sent = offered * wire + others;
            assert_eq!(sample.offered_rate(wire_bytes), BitRate(sent * 8_000_000_000 / time), "{sample:?}");
            let uneven = (up(2 * jitter.0 * million, time) + up(million, packets)).min(million);
            assert_eq!(sample.unevenness(), Ppm(uneven as u32), "{sample:?}");
            // What was lost of the others, if they were lost like ours: that may be wrong by all of it.
            let lost = others * offered.saturating_sub(packets) / offered.max(1);
            let unsure = up(lost * million, packets * wire).min(million);
            let error = (uneven + unsure).min(million);
            assert_eq!(sample.error(wire_bytes), Ppm(error as u32), "{sample:?} {wire_bytes}");
        }
    }
}
