//! Cristian's probabilistic clock synchronisation with one neighbour: of a window of round trips, the one
//! whose error bound is smallest now gives the offset.
//!
//! With t1, t4 on our clock and t2, t3 on the neighbour's, offset = ((t2 - t1) + (t3 - t4)) / 2 is wrong by
//! half the difference of the two delays. Both are at least `propagation_min`, so by at most
//! `round_trip / 2 - propagation_min`; the clocks part by at most the sum of their tolerances.

use alloc::collections::VecDeque;

use punctual_analysis::{Instant, Nanos, Ppm};

/// Round trips that are remembered.
const SAMPLES: usize = 16;

/// The four time stamps of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// t1: we sent, our clock.
    pub sent: Instant,
    /// t2: the neighbour received, its clock.
    pub there_received: Instant,
    /// t3: the neighbour sent, its clock.
    pub there_sent: Instant,
    /// t4: we received, our clock.
    pub received: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    offset_ns: i64,
    error: Nanos,
    at: Instant,
}

/// What is known of a neighbour's clock.
#[derive(Clone, Debug)]
pub struct ClockFilter {
    propagation_min: Nanos,
    drift: Ppm,
    samples: VecDeque<Sample>,
    round_trip_min: Option<Nanos>,
}

impl ClockFilter {
    /// `propagation_min`: of either direction; `drift`: the two clocks' tolerances together.
    pub const fn new(propagation_min: Nanos, drift: Ppm) -> Self {
        Self { propagation_min, drift, samples: VecDeque::new(), round_trip_min: None }
    }
    /// Takes the neighbour's tolerance for what it says it is.
    pub const fn set_drift(&mut self, drift: Ppm) {
        self.drift = drift;
    }
    pub fn clear(&mut self) {
        *self = Self::new(self.propagation_min, self.drift);
    }
    /// Takes an exchange in. One whose stamps contradict each other is ignored.
    pub fn add(&mut self, trip: RoundTrip) {
        let whole = trip.received.minus(trip.sent);
        let held = trip.there_sent.minus(trip.there_received);
        if whole < 0 || held < 0 {
            return;
        }
        let drifted = self.drift.of(Nanos(whole as u64));
        let round_trip = Nanos(whole.saturating_sub(held).max(0) as u64);
        let there = i128::from(trip.there_received.minus(trip.sent));
        let back = i128::from(trip.there_sent.minus(trip.received));
        let offset_ns = ((there + back) / 2) as i64;
        // One more nanosecond for the two halvings.
        let error = (round_trip / 2 - self.propagation_min) + drifted + Nanos(1);
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { offset_ns, error, at: trip.received });
        self.round_trip_min = Some(self.round_trip_min.map_or(round_trip, |least| least.min(round_trip)));
    }
    /// The neighbour's clock less ours and the most that this can be wrong by, in nanoseconds, at `now`.
    pub fn offset_ns(&self, now: Instant) -> Option<(i64, u64)> {
        let aged = |sample: &Sample| (sample.error + self.drift.of(now.since(sample.at))).0;
        let best = self.samples.iter().min_by_key(|sample| aged(sample))?;
        Some((best.offset_ns, aged(best)))
    }
    pub const fn round_trip_min(&self) -> Option<Nanos> {
        self.round_trip_min
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::SplitMix64;
    use super::*;

    /// Their clock: 5 s ahead of ours and fast by `ppm`.
    fn theirs(ours: u64, ppm: i64) -> u64 {
        (ours as i128 + 5_000_000_000 + ours as i128 * i128::from(ppm) / 1_000_000) as u64
    }

    #[test]
    fn the_bound_holds_with_drift_and_lopsided_delays() {
        for seed in 0..50 {
            let mut random = SplitMix64::new(seed);
            let ppm = if seed % 2 == 0 { 100 } else { -100 };
            let mut filter = ClockFilter::new(Nanos(20_000), Ppm(200));
            for round in 1..200u64 {
                let t1 = round * 1_000_000_000;
                let t2 = t1 + 20_000 + random.below(3_000_000);
                let t3 = t2 + random.below(500_000_000);
                let t4 = t3 + 20_000 + random.below(300_000);
                filter.add(RoundTrip {
                    sent: Instant(t1),
                    there_received: Instant(theirs(t2, ppm)),
                    there_sent: Instant(theirs(t3, ppm)),
                    received: Instant(t4),
                });
                let now = t4 + random.below(1_000_000_000);
                let (offset, bound) = filter.offset_ns(Instant(now)).expect("a sample");
                let real = theirs(now, ppm) as i64 - now as i64;
                assert!(
                    (offset - real).unsigned_abs() <= bound,
                    "seed {seed} round {round}: {offset} {real} {bound}"
                );
            }
        }
    }

    #[test]
    fn contradicting_stamps_are_ignored() {
        let mut filter = ClockFilter::new(Nanos::ZERO, Ppm(200));
        let at = Instant;
        filter.add(RoundTrip { sent: at(9), there_received: at(0), there_sent: at(0), received: at(1) });
        filter.add(RoundTrip { sent: at(0), there_received: at(9), there_sent: at(0), received: at(1) });
        assert_eq!(filter.offset_ns(at(10)), None);
        filter.add(RoundTrip {
            sent: at(0),
            there_received: at(u64::MAX),
            there_sent: at(u64::MAX),
            received: at(u64::MAX),
        });
        assert!(filter.offset_ns(at(u64::MAX)).is_some());
    }
}
