//! The offset of a neighbour's clock from ours, and the error bound of that offset (ADR 0025; after Cristian
//! 1989).
//!
//! A packet that the neighbour stamped t3 on its clock and that came here at t4 on ours took at least
//! `propagation_min`, so offset = theirs - ours >= t3 - t4 + `propagation_min`. One of ours, stamped t1 here
//! and t2 there, bounds it from above: offset <= t2 - t1 - `propagation_min`. Each bound weakens by the
//! clocks' drift while it ages. A new bound is compared with the aged one, and the better one is kept. So the
//! fastest packet of each direction counts, whatever exchange it belongs to, and a queue that grows in one
//! direction invalidates nothing. No bound is kept for longer than `CLOCK_BOUND_AGE_MAX`.
//!
//! Repeated contradictions between bounds show that a clock was stepped, or drifts faster than its tolerance:
//! both bounds are dropped, and the observed drift is assumed from then on.

use punctual_analysis::{Instant, Nanos, Ppm};

use crate::lateness::drifted;
use crate::limits::CLOCK_BOUND_AGE_MAX;

/// Receive stamps of drivers are converted from one clock to another: they may be too early by this much.
const STAMP_ERROR: Nanos = Nanos(2_000);
/// Consecutive contradicting stamps of one direction after which the known bounds are dropped.
const CONTRADICTIONS_MAX: u8 = 3;
/// A clock that moves faster than this was stepped.
const DRIFT_MAX: Ppm = Ppm(10_000);

/// A neighbour's clock minus ours, as known at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Theirs minus ours, in nanoseconds.
    pub offset_ns: i64,
    /// Upper bound on the error of the offset.
    pub error: Nanos,
    /// Time of the measurement, on our clock.
    pub at: Instant,
    /// How fast the two clocks may drift apart.
    pub drift: Ppm,
}

impl ClockOffset {
    /// Converts a reading of the neighbour's clock to this host's clock.
    pub const fn to_ours(&self, theirs: Instant) -> Instant {
        theirs.offset(self.offset_ns.saturating_neg())
    }
    /// Upper bound on the error of the offset at `at`.
    pub fn error_at(&self, at: Instant) -> Nanos {
        self.error + drifted(self.drift, at.since(self.at))
    }
}

/// The end of the interval that contains the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Lower,
    Upper,
}

impl End {
    const fn other(self) -> Self {
        match self {
            Self::Lower => Self::Upper,
            Self::Upper => Self::Lower,
        }
    }
}

/// A bound as it was when it was seen.
#[derive(Clone, Copy, Debug)]
struct Bound {
    offset_ns: i64,
    at: Instant,
}

/// What is known of a neighbour's clock.
#[derive(Clone, Debug)]
pub struct ClockFilter {
    propagation_min: Nanos,
    /// Sum of the tolerances of both clocks, as their hosts state them.
    tolerance: Ppm,
    /// Drift that was observed beyond the tolerance; 0 before any was.
    observed: Ppm,
    lower: Option<Bound>,
    upper: Option<Bound>,
    /// Consecutive contradicting stamps, by end.
    contradictions: [u8; 2],
    /// Number of times that all bounds were dropped.
    breaks: u32,
    round_trip_min: Option<Nanos>,
    round_trip_recent: Option<Nanos>,
}

impl ClockFilter {
    /// `propagation_min`: of either direction; `tolerance`: of the two clocks together.
    pub const fn new(propagation_min: Nanos, tolerance: Ppm) -> Self {
        Self {
            propagation_min,
            tolerance,
            observed: Ppm(0),
            lower: None,
            upper: None,
            contradictions: [0; 2],
            breaks: 0,
            round_trip_min: None,
            round_trip_recent: None,
        }
    }
    /// Sets the neighbour's tolerance to the value that it reports.
    pub const fn set_tolerance(&mut self, tolerance: Ppm) {
        self.tolerance = tolerance;
    }
    /// The neighbour has begun another life: drops all bounds.
    pub const fn clear(&mut self) {
        *self = Self::new(self.propagation_min, self.tolerance);
    }
    /// Number of times that a clock was stepped, or was observed to drift faster than its tolerance.
    pub const fn breaks(&self) -> u32 {
        self.breaks
    }
    /// Whether the last stamps of a direction contradict the known bounds: a clock may just have been
    /// stepped.
    pub const fn is_doubted(&self) -> bool {
        self.contradictions[0] > 0 || self.contradictions[1] > 0
    }
    pub const fn round_trip_min(&self) -> Option<Nanos> {
        self.round_trip_min
    }
    /// The last round trip. It shows a growing queue, which the smallest round trip hides.
    pub const fn round_trip_recent(&self) -> Option<Nanos> {
        self.round_trip_recent
    }

    /// Notes a packet of the neighbour, stamped `there_sent` on its clock, that arrived at `received`.
    pub fn note_offset(&mut self, there_sent: Instant, received: Instant) {
        let least = self.propagation_min.0 as i64 - STAMP_ERROR.0 as i64;
        let offset_ns = there_sent.minus(received).saturating_add(least);
        self.bound(End::Lower, Bound { offset_ns, at: received });
    }
    /// Notes a packet of ours, stamped `sent`, that arrived at the neighbour at `there_received` on its
    /// clock.
    pub fn echoed(&mut self, sent: Instant, there_received: Instant) {
        let least = self.propagation_min.0 as i64 - STAMP_ERROR.0 as i64;
        let offset_ns = there_received.minus(sent).saturating_sub(least);
        self.bound(End::Upper, Bound { offset_ns, at: sent });
    }
    /// Notes an exchange that took `whole` here, and during which the neighbour `held` the packet for a time.
    pub fn exchanged(&mut self, whole: Nanos, held: Nanos) {
        let round_trip = whole - held;
        self.round_trip_recent = Some(round_trip);
        self.round_trip_min = Some(self.round_trip_min.map_or(round_trip, |least| least.min(round_trip)));
    }

    /// The neighbour's clock minus ours at `now`; `None` until there is a bound from each direction.
    pub fn offset(&self, now: Instant) -> Option<ClockOffset> {
        let (lower, upper) = (self.aged(End::Lower, now)?, self.aged(End::Upper, now)?);
        let width = upper.saturating_sub(lower).max(0);
        // If a clock drifts faster than its tolerance, the two bounds become too close, and then meet. But
        // all of the fastest exchange's time can be on one way.
        let least =
            self.round_trip_min.map_or(Nanos::ZERO, |round_trip| round_trip / 2 - self.propagation_min);
        let error = Nanos(width as u64).div_ceil(Nanos(2)).max(least.0) + 1;
        let offset_ns = lower.saturating_add(width / 2);
        Some(ClockOffset { offset_ns, error: Nanos(error), at: now, drift: self.drift() })
    }

    fn drift(&self) -> Ppm {
        self.tolerance.max(self.observed)
    }

    fn end(&self, end: End) -> Option<Bound> {
        match end {
            End::Lower => self.lower,
            End::Upper => self.upper,
        }
    }

    /// A bound at `now`, weakened by its age. `now` may be before the measurement.
    fn aged(&self, end: End, now: Instant) -> Option<i64> {
        let Bound { offset_ns, at } = self.end(end)?;
        let drifted = self.drift().of(now.since(at).max(at.since(now))).0 as i64;
        Some(match end {
            End::Lower => offset_ns.saturating_sub(drifted),
            End::Upper => offset_ns.saturating_add(drifted),
        })
    }

    fn bound(&mut self, end: End, bound: Bound) {
        if let Some(other) = self.contradicted(end, bound) {
            self.contradictions[end as usize] += 1;
            if self.contradictions[end as usize] < CONTRADICTIONS_MAX {
                return;
            }
            self.forget(other, bound);
        }
        self.contradictions[end as usize] = 0;
        let is_old = |known: Bound| bound.at.since(known.at) > CLOCK_BOUND_AGE_MAX;
        let known = self.aged(end, bound.at).filter(|_| !self.end(end).is_some_and(is_old));
        let better = known.is_none_or(|known| match end {
            End::Lower => bound.offset_ns >= known,
            End::Upper => bound.offset_ns <= known,
        });
        if better {
            match end {
                End::Lower => self.lower = Some(bound),
                End::Upper => self.upper = Some(bound),
            }
        }
    }

    /// What is known of the other end, if a bound and that leave no offset between them.
    fn contradicted(&self, end: End, bound: Bound) -> Option<Bound> {
        let is_beyond = |_: &Bound| match end {
            End::Lower => self.aged(End::Upper, bound.at).is_some_and(|upper| bound.offset_ns > upper),
            End::Upper => self.aged(End::Lower, bound.at).is_some_and(|lower| bound.offset_ns < lower),
        };
        self.end(end.other()).filter(is_beyond)
    }

    /// What was known is wrong, as `bound` shows, which contradicts `other`: by a step, or by drift of which that tells how
    /// fast it is at least.
    fn forget(&mut self, other: Bound, bound: Bound) {
        let moved = u128::from(bound.offset_ns.abs_diff(other.offset_ns)) * 1_000_000;
        let span = u128::from(bound.at.since(other.at).max(Nanos(1)).0);
        let seen = Ppm(u32::try_from(moved.div_ceil(span) * 2).unwrap_or(u32::MAX));
        if seen <= DRIFT_MAX {
            self.observed = self.observed.max(seen);
        }
        (self.lower, self.upper) = (None, None);
        self.contradictions = [0; 2];
        self.breaks = self.breaks.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    mod exact;

    use super::super::random::SplitMix64;
    use super::*;

    /// Two clocks, and the packets between them.
    struct Clocks {
        filter: ClockFilter,
        random: SplitMix64,
        /// Theirs minus ours at 0, and its growth.
        offset_ns: i64,
        ppm: i64,
        propagation_min: u64,
    }

    impl Clocks {
        fn new(seed: u64, ppm: i64, tolerance: Ppm) -> Self {
            let filter = ClockFilter::new(Nanos(20_000), tolerance);
            let random = SplitMix64::new(seed);
            Self { filter, random, offset_ns: 5_000_000_000, ppm, propagation_min: 20_000 }
        }
        fn offset(&self, ours: u64) -> i64 {
            self.offset_ns + (ours as i128 * i128::from(self.ppm) / 1_000_000) as i64
        }
        fn theirs(&self, ours: u64) -> Instant {
            Instant(ours).offset(self.offset(ours))
        }
        /// Makes an exchange that begins at `t1`, with up to `there_max` and `back_max` of queueing.
        fn exchange(&mut self, t1: u64, there_max: u64, back_max: u64) -> u64 {
            let t2 = t1 + self.propagation_min + self.random.below(there_max);
            let t3 = t2 + self.random.below(500_000_000);
            let t4 = t3 + self.propagation_min + self.random.below(back_max);
            self.filter.note_offset(self.theirs(t3), Instant(t4));
            self.filter.echoed(Instant(t1), self.theirs(t2));
            let held = self.theirs(t3).since(self.theirs(t2));
            self.filter.exchanged(Nanos(t4 - t1), held);
            t4
        }
        /// The actual error of the offset at `now`, and its error bound.
        fn wrong(&self, now: u64) -> (u64, u64) {
            let known = self.filter.offset(Instant(now)).expect("both directions were heard");
            (known.offset_ns.abs_diff(self.offset(now)), known.error.0)
        }
    }

    #[test]
    fn the_bound_holds_with_drift_and_lopsided_delays() {
        for seed in 0..50 {
            let ppm = if seed % 2 == 0 { 100 } else { -100 };
            let mut clocks = Clocks::new(seed, ppm, Ppm(200));
            for round in 1..200 {
                let t4 = clocks.exchange(round * 1_000_000_000, 3_000_000, 300_000);
                let now = t4 + clocks.random.below(1_000_000_000);
                let (wrong, error) = clocks.wrong(now);
                assert!(wrong <= error, "seed {seed} round {round}: {wrong} {error}");
            }
            assert_eq!(clocks.filter.breaks(), 0, "seed {seed}");
        }
    }

    #[test]
    fn the_fastest_packet_of_each_direction_counts_whatever_exchange_it_was_of() {
        let mut clocks = Clocks::new(1, 0, Ppm(0));
        // Quick there and slow back, then the other way round: a single exchange gives no better bound than 5
        // ms.
        for (there, back) in [(1, 10_000_000), (10_000_000, 1)] {
            clocks.random = SplitMix64::new(7);
            clocks.exchange(1_000_000_000, there, back);
        }
        let (wrong, error) = clocks.wrong(3_000_000_000);
        assert!(wrong <= error);
        let lower = clocks.filter.lower.expect("heard").offset_ns;
        let upper = clocks.filter.upper.expect("echoed").offset_ns;
        assert!(upper - lower <= 2 * STAMP_ERROR.0 as i64, "{lower} {upper}");
    }

    #[test]
    fn a_queue_that_grows_one_way_makes_nothing_wrong() {
        let mut clocks = Clocks::new(3, 50, Ppm(200));
        for round in 1..100 {
            let t4 = clocks.exchange(round * 100_000_000, 1 + round * 2_000_000, 50_000);
            let (wrong, error) = clocks.wrong(t4);
            assert!(wrong <= error && error < 3_000_000, "round {round}: {wrong} {error}");
        }
    }

    #[test]
    fn a_clock_beyond_its_tolerance_is_noticed_and_taken_to_be_that_fast() {
        for ppm in [-900, 700] {
            let mut clocks = Clocks::new(9, ppm, Ppm(200));
            let mut worst = 0.0_f64;
            for round in 1..300 {
                let t4 = clocks.exchange(round * 100_000_000, 100_000, 100_000);
                if clocks.filter.lower.is_some() && clocks.filter.upper.is_some() {
                    let (wrong, error) = clocks.wrong(t4);
                    let late = clocks.filter.breaks() > 0 && round > 50;
                    worst = worst.max(wrong as f64 / error as f64);
                    assert!(!late || wrong <= error, "{ppm} round {round}: {wrong} {error}");
                }
            }
            assert!(clocks.filter.breaks() > 0 && worst < 20.0, "{worst}");
            assert!(clocks.filter.drift() >= Ppm(ppm.unsigned_abs() as u32), "{:?}", clocks.filter.drift());
        }
    }

    /// A clock drifts faster than its tolerance: the best bounds of both directions, of different times, come too close. As long
    /// as they do not contradict each other, the offset is as far off as the fastest exchange lets it be, and no further.
    #[test]
    fn drift_that_nothing_has_shown_yet_is_within_the_error() {
        for ppm in [-900, 700] {
            let mut clocks = Clocks::new(3, ppm, Ppm(200));
            let mut rounds = 0;
            loop {
                let t1 = (rounds + 1) * 100_000_000;
                let (t2, t3, t4) = (t1 + 500_000, t1 + 600_000, t1 + 1_100_000);
                clocks.filter.note_offset(clocks.theirs(t3), Instant(t4));
                clocks.filter.echoed(Instant(t1), clocks.theirs(t2));
                clocks.filter.exchanged(Nanos(t4 - t1), clocks.theirs(t3).since(clocks.theirs(t2)));
                if clocks.filter.is_doubted() {
                    break;
                }
                rounds += 1;
                let (wrong, error) = clocks.wrong(t4);
                assert!(wrong <= error, "{ppm} round {rounds}: {wrong} {error}");
            }
            assert!((10..50).contains(&rounds) && clocks.filter.breaks() == 0, "{ppm}: {rounds}");
        }
    }

    #[test]
    fn a_step_is_corrected_soon_and_one_wrong_stamp_changes_nothing() {
        let mut clocks = Clocks::new(5, 0, Ppm(200));
        for round in 1..20 {
            clocks.exchange(round * 1_000_000_000, 100_000, 100_000);
        }
        let before = clocks.filter.offset(Instant(20_000_000_000));
        clocks.filter.note_offset(clocks.theirs(20_000_000_000), Instant(19_000_000_000));
        assert_eq!(clocks.filter.offset(Instant(20_000_000_000)), before);
        clocks.offset_ns += 700_000_000;
        for round in 20..26 {
            clocks.exchange(round * 1_000_000_000, 100_000, 100_000);
        }
        let (wrong, error) = clocks.wrong(26_500_000_000);
        assert!(wrong <= error && clocks.filter.breaks() == 1, "{wrong} {error}");
        assert_eq!(clocks.filter.drift(), Ppm(200), "a step is no drift");
    }

    #[test]
    fn nothing_is_known_of_one_direction_alone() {
        let mut filter = ClockFilter::new(Nanos::ZERO, Ppm(200));
        filter.note_offset(Instant(u64::MAX), Instant(0));
        assert_eq!(filter.offset(Instant(10)), None);
        filter.echoed(Instant(0), Instant(u64::MAX));
        assert!(filter.offset(Instant(u64::MAX)).is_some());
    }

    /// Bounds age as fast as the clocks may drift: after the last exchange both clocks run on with the
    /// largest allowed error, in either direction.
    #[test]
    fn what_was_known_ages_as_fast_as_clocks_may_drift() {
        for (ppm, silence_s) in [(200, 1), (200, 1_000), (-200, 100), (-200, 10_000)] {
            let mut clocks = Clocks::new(silence_s, ppm, Ppm(200));
            let t4 = clocks.exchange(1_000_000_000, 50_000, 50_000);
            let (wrong, error) = clocks.wrong(t4 + silence_s * 1_000_000_000);
            assert!(wrong <= error, "{ppm} {silence_s}: {wrong} {error}");
            // Half a millisecond of waiting, and 200 of a million parts to both sides.
            let needed = silence_s * 200_000;
            assert!(error <= needed + needed / 1_000 + 700_000, "{ppm} {silence_s}: {error} of {needed}");
        }
    }

    /// Not even if both directions leave one offset only.
    #[test]
    fn no_clock_is_known_exactly() {
        let mut filter = ClockFilter::new(Nanos(1_000), Ppm(0));
        filter.note_offset(Instant(5_000_000), Instant(2_000_000));
        let offset = 3_000_000 + 1_000 - STAMP_ERROR.0;
        filter.echoed(Instant(2_000_000), Instant(2_000_000 + offset + 1_000 - STAMP_ERROR.0));
        let known = filter.offset(Instant(2_000_000)).expect("both directions were heard");
        assert_eq!((known.offset_ns, known.error), (offset as i64, Nanos(1)));
    }

    /// Bounds that meet leave one offset: that is no contradiction, whichever direction comes last; one nanosecond more is.
    #[test]
    fn bounds_may_meet() {
        let (slack, at) = (1_000 - STAMP_ERROR.0 as i64, 2_000_000_i64);
        for (beyond, doubted) in [(0, false), (1, true)] {
            for received_last in [false, true] {
                let mut filter = ClockFilter::new(Nanos(1_000), Ppm(0));
                let note_offset = |filter: &mut ClockFilter| {
                    filter.note_offset(Instant((at + 3_000_000 + beyond - slack) as u64), Instant(at as u64));
                };
                let echoed = |filter: &mut ClockFilter| {
                    filter.echoed(Instant(at as u64), Instant((at + 3_000_000 + slack) as u64));
                };
                if received_last {
                    echoed(&mut filter);
                    note_offset(&mut filter);
                } else {
                    note_offset(&mut filter);
                    echoed(&mut filter);
                }
                assert_eq!(filter.is_doubted(), doubted, "{beyond} {received_last}");
            }
        }
    }

    /// A bound that a later packet confirms is as recent as that packet: a worse bound does not replace it
    /// before its time.
    #[test]
    fn a_repeated_offset_is_fresh_again() {
        let age = CLOCK_BOUND_AGE_MAX.0;
        for lower in [true, false] {
            let mut filter = ClockFilter::new(Nanos::ZERO, Ppm(0));
            let report = |filter: &mut ClockFilter, at: u64, late: u64| match lower {
                true => filter.note_offset(Instant(at), Instant(at + late)),
                false => filter.echoed(Instant(at), Instant(at + late)),
            };
            let known = |filter: &ClockFilter| match lower {
                true => filter.lower.map(|bound| bound.offset_ns),
                false => filter.upper.map(|bound| -bound.offset_ns),
            };
            report(&mut filter, age, 0);
            let quick = known(&filter);
            report(&mut filter, age + age / 2, 0);
            // Confirmed half an age ago, though first measured more than an age ago.
            report(&mut filter, 2 * age + 1_000, 500);
            assert_eq!(known(&filter), quick, "{lower}");
            report(&mut filter, 2 * age + age / 2 + 1_000, 500);
            assert!(known(&filter) < quick, "{lower}: its time is over");
        }
    }

    /// If one direction has a queue from then on, the bound from the last quick packet is used until it
    /// expires and no longer.
    #[test]
    fn information_of_one_packet_expires() {
        let mut clocks = Clocks::new(3, 0, Ppm(200));
        let begin = 1_000_000_000;
        clocks.exchange(begin, 1_000, 1_000);
        let error = |clocks: &Clocks, now| clocks.wrong(now).1;
        let (mut now, mut forgotten) = (begin, None);
        while forgotten.is_none() {
            now += 500_000_000;
            let (t1, t4) = (now, now + 40_000_000);
            clocks.filter.note_offset(clocks.theirs(t1), Instant(t4));
            if error(&clocks, t4) > 15_000_000 {
                forgotten = Some(Nanos(t4 - begin));
            }
        }
        let forgotten = forgotten.expect("it is");
        let most = CLOCK_BOUND_AGE_MAX + Nanos::from_secs(2);
        assert!((CLOCK_BOUND_AGE_MAX..most).contains(&forgotten), "{forgotten}");
    }

    /// Either direction may contradict the other. Until that is resolved, no packet is judged by the clock.
    #[test]
    fn a_contradiction_of_either_direction_is_a_doubt() {
        for lower in [true, false] {
            let mut filter = ClockFilter::new(Nanos::ZERO, Ppm(200));
            filter.note_offset(Instant(1_000_000_000), Instant(1_000_000_000));
            filter.echoed(Instant(1_000_000_000), Instant(1_000_100_000));
            assert!(!filter.is_doubted());
            match lower {
                true => filter.note_offset(Instant(3_000_000_000), Instant(2_000_000_000)),
                false => filter.echoed(Instant(2_000_000_000), Instant(1_000_000_000)),
            }
            assert!(filter.is_doubted() && filter.breaks() == 0, "{lower}");
            match lower {
                true => filter.note_offset(Instant(2_000_000_000), Instant(2_000_000_000)),
                false => filter.echoed(Instant(2_000_000_000), Instant(2_000_100_000)),
            }
            assert!(!filter.is_doubted(), "{lower}");
        }
    }

    /// If one direction proves wrong what was known, nothing of it is left to doubt: neither direction's contradictions count on.
    #[test]
    fn what_is_known_anew_is_in_no_doubt() {
        let ahead =
            |filter: &mut ClockFilter| filter.note_offset(Instant(3_000_000_000), Instant(2_000_000_000));
        let behind = |filter: &mut ClockFilter| filter.echoed(Instant(2_000_000_000), Instant(1_000_000_000));
        let both: [fn(&mut ClockFilter); 2] = [ahead, behind];
        for (once, again) in [(both[0], both[1]), (both[1], both[0])] {
            let mut filter = ClockFilter::new(Nanos::ZERO, Ppm(200));
            filter.note_offset(Instant(1_000_000_000), Instant(1_000_000_000));
            filter.echoed(Instant(1_000_000_000), Instant(1_000_100_000));
            once(&mut filter);
            (1..CONTRADICTIONS_MAX).for_each(|_| again(&mut filter));
            assert!(filter.is_doubted() && filter.breaks() == 0);
            again(&mut filter);
            assert!(!filter.is_doubted() && filter.breaks() == 1);
        }
    }
}
