//! What is known of a neighbour's clock, to the nanosecond: by the formulas of ADR 0025, written out.

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A filter whose clocks do not drift, with offsets from `lower` to `upper` at 10 s. Propagation takes as
/// long as a stamp may be wrong, so that the bounds are the stamps.
fn known(lower: i64, upper: i64) -> ClockFilter {
    let mut filter = ClockFilter::new(STAMP_ERROR, Ppm(0));
    let at = Instant(10 * SECOND);
    filter.note_offset(at.offset(lower), at);
    filter.echoed(at, at.offset(upper));
    filter
}

/// The offset is the middle between its bounds. Its error is half of their distance, and no less than half of
/// the fastest round trip beyond propagation, rounded up, and one.
#[test]
fn the_offset_is_the_middle_of_its_bounds() {
    let propagation = STAMP_ERROR.0;
    for lower in [-1_000, -1, 0, 7, 5_000_000_000] {
        for width in (0..9).chain([1_000, 1_001]) {
            for round_trip in [None, Some(0), Some(2 * propagation), Some(2 * propagation + 5), Some(9_000)] {
                let mut filter = known(lower, lower + width);
                round_trip.into_iter().for_each(|took| filter.exchanged(Nanos(took + 30), Nanos(30)));
                let least = round_trip.map_or(0, |took| (took / 2).saturating_sub(propagation));
                let offset = filter.offset(Instant(10 * SECOND)).expect("both directions");
                let half = (width as u64).div_ceil(2);
                let expected = (lower + width / 2, Nanos(half.max(least) + 1));
                assert_eq!((offset.offset_ns, offset.error), expected, "{lower} {width} {round_trip:?}");
                // The truth is within the error, wherever it is between the bounds.
                for truth in [lower, lower + width] {
                    assert!(truth.abs_diff(offset.offset_ns) <= offset.error.0, "{lower} {width}");
                }
            }
        }
    }
}

/// Its error grows by the drift from then on, whatever part of a nanosecond that is.
#[test]
fn an_offset_is_less_exact_with_time() {
    let of = |tolerance| {
        let mut filter = ClockFilter::new(STAMP_ERROR, Ppm(tolerance));
        let at = Instant(10 * SECOND);
        filter.note_offset(at.offset(40), at);
        filter.echoed(at, at.offset(60));
        filter
    };
    for tolerance in [0, 1, 200] {
        let filter = of(tolerance);
        let at = Instant(10 * SECOND);
        let offset = filter.offset(at).expect("both directions");
        assert_eq!((offset.error, offset.drift), (Nanos(11), Ppm(tolerance)));
        for later in [0, 1, 4_999, 5_000, 1_000_000, SECOND, 9 * SECOND] {
            // Up to one nanosecond more, so that a part of one is not lost.
            let drifted = later * u64::from(tolerance) / 1_000_000 + 1;
            assert_eq!(offset.error_at(at + Nanos(later)), Nanos(11 + drifted), "{tolerance} {later}");
            // Bounds that are asked for later, or for earlier, are as much wider.
            let aged = (later * u64::from(tolerance)).div_ceil(1_000_000);
            for now in [at + Nanos(later), at - Nanos(later)] {
                let known = filter.offset(now).expect("both directions");
                assert_eq!((known.offset_ns, known.error), (50, Nanos(11 + aged)), "{tolerance} {later}");
            }
        }
    }
}

/// The smallest round trip and the last one, each without the time for which the neighbour held the packet.
#[test]
fn round_trips_are_measured_without_the_time_between() {
    let mut filter = ClockFilter::new(Nanos::ZERO, Ppm(0));
    assert_eq!((filter.round_trip_min(), filter.round_trip_recent()), (None, None));
    for (whole, held, least, recent) in
        [(900, 400, 500, 500), (800, 100, 500, 700), (700, 300, 400, 400), (600, 0, 400, 600), (5, 9, 0, 0)]
    {
        filter.exchanged(Nanos(whole), Nanos(held));
        assert_eq!(filter.round_trip_min(), Some(Nanos(least)));
        assert_eq!(filter.round_trip_recent(), Some(Nanos(recent)));
    }
}

/// A bound counts for its time. At its end it still does; a nanosecond later any other one replaces it.
#[test]
fn a_bound_is_replaced_when_its_time_is_over() {
    let begin = 10 * SECOND;
    for (age, replaced) in [
        (CLOCK_BOUND_AGE_MAX.0 - 1, false),
        (CLOCK_BOUND_AGE_MAX.0, false),
        (CLOCK_BOUND_AGE_MAX.0 + 1, true),
    ] {
        let mut filter = known(100, 200);
        let at = Instant(begin + age);
        filter.note_offset(at.offset(50), at);
        filter.echoed(at, at.offset(290));
        let bounds = (filter.lower.map(|bound| bound.offset_ns), filter.upper.map(|bound| bound.offset_ns));
        let expected = if replaced { (50, 290) } else { (100, 200) };
        assert_eq!(bounds, (Some(expected.0), Some(expected.1)), "{age}");
    }
}

/// Three stamps in a row that contradict the other direction show that a clock has moved: by at least their
/// distance in that time. Twice that is taken for its drift from then on, rounded up; more than 10,000 ppm is
/// no drift but a step.
#[test]
fn a_contradiction_shows_how_fast_a_clock_drifts() {
    for (moved, span, drift) in [
        // 1 us a second is 1 ppm.
        (1_000, SECOND, 2),
        (1_001, SECOND, 4),
        (999, SECOND, 2),
        (4_999_000, SECOND, 9_998),
        (5_000_000, SECOND, 10_000),
        (5_000_001, SECOND, 0),
        (10_000_000, 2 * SECOND, 10_000),
        (10_000_001, 2 * SECOND, 0),
        (700_000_000, SECOND, 0),
        // No time has passed: a step, however small.
        (1, 0, 0),
        (1, 1, 0),
    ] {
        for lower in [true, false] {
            let mut filter = known(100, 100);
            let at = Instant(10 * SECOND + span);
            for times in 1..=CONTRADICTIONS_MAX {
                assert_eq!((filter.breaks(), filter.is_doubted()), (0, times > 1));
                match lower {
                    true => filter.note_offset(at.offset(100 + moved), at),
                    false => filter.echoed(at, at.offset(100 - moved)),
                }
            }
            assert_eq!((filter.breaks(), filter.is_doubted()), (1, false), "{moved} {span} {lower}");
            assert_eq!(filter.drift(), Ppm(drift), "{moved} {span} {lower}");
            // Nothing else is known than the last stamp, in its direction.
            let bounds = [filter.lower, filter.upper].map(|bound| bound.map(|bound| bound.offset_ns));
            let expected = if lower { [Some(100 + moved), None] } else { [None, Some(100 - moved)] };
            assert_eq!(bounds, expected, "{moved} {span} {lower}");
        }
    }
}
