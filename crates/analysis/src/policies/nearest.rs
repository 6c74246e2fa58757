//! The offer in a refusal.

use crate::contract::SPAN_MAX;
use crate::policy::Demand;
use crate::units::Nanos;

/// Longest bound of a stage.
pub(super) const BOUND_MAX: Nanos = SPAN_MAX;

/// Bisections of the span that contains the shortest period: to 1/64 of itself.
const HALVINGS: u32 = 6;

/// The shortest period, to within 1/64, that `fits` accepts, at or above `at_least` (where utilisation allows
/// it); longer periods only demand less. At most 48 trials.
pub(super) fn period_possible(
    demand: &Demand,
    at_least: Option<Nanos>,
    mut fits: impl FnMut(&Demand) -> bool,
) -> Option<Nanos> {
    let mut fits = |period: Nanos| fits(&Demand { period, ..*demand });
    let mut short = demand.period.max(at_least?);
    if fits(short) {
        return Some(short);
    }
    let mut long = short * 2;
    while !fits(long) {
        (short, long) = (long, long * 2);
        if short > SPAN_MAX {
            return None;
        }
    }
    for _ in 0..HALVINGS {
        let middle = Nanos(short.0 + (long.0 - short.0) / 2);
        if fits(middle) { long = middle } else { short = middle }
    }
    Some(long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::testing;

    fn demand(period: u64) -> Demand {
        testing::demand(1, period)
    }

    /// Every least period is found to within a 64th of the power of two below it, never below it, in at most 48 trials; where
    /// the requested period or that of the utilisation suffices, it is that one.
    #[test]
    fn the_shortest_period_that_fits_is_found_to_within_a_sixty_fourth() {
        for (own, at_least) in [(1_000, 0), (1_000, 1_000), (10, 1_000), (1_024, 7)] {
            let begin = own.max(at_least);
            for least in (0..9_000).step_by(7).chain([begin - 1, begin, begin + 1, 2 * begin, 2 * begin + 1])
            {
                let mut trials = 0;
                let found = period_possible(&demand(own), Some(Nanos(at_least)), |demand| {
                    trials += 1;
                    demand.period.0 >= least
                });
                let found = found.expect("there is one").0;
                let mut below = begin;
                while 2 * below < least {
                    below *= 2;
                }
                let precision = if least <= begin { 0 } else { below.div_ceil(64) };
                assert!(
                    (least.max(begin)..=least.max(begin) + precision).contains(&found),
                    "{least}: {found}"
                );
                // The requested one; then one for each doubling, and one for each half.
                let doublings = (1..).find(|&times| begin << times >= least).expect("it is reached");
                let expected = if least <= begin { 1 } else { 1 + doublings + 6 };
                assert_eq!(trials, expected, "{least} from {begin}");
                assert!(trials <= 48, "{trials}");
                if least <= begin {
                    assert_eq!(found, begin, "{least}");
                }
            }
        }
    }

    /// Without a free share there is no period, nor beyond the longest span.
    #[test]
    fn a_period_that_is_longer_than_the_longest_span_is_none() {
        assert_eq!(period_possible(&demand(1), None, |_| true), None);
        assert_eq!(period_possible(&demand(1_000), Some(Nanos(1)), |_| false), None);
        let longest = |least: u64| {
            period_possible(&demand(SPAN_MAX.0), Some(Nanos(1)), |demand| demand.period.0 >= least)
        };
        assert_eq!(longest(SPAN_MAX.0), Some(SPAN_MAX));
        assert!(longest(2 * SPAN_MAX.0).is_some() && longest(4 * SPAN_MAX.0).is_none());
        let from_half = |least: u64| {
            period_possible(&demand(SPAN_MAX.0 / 2), Some(Nanos(1)), |demand| demand.period.0 >= least)
        };
        assert!(from_half(SPAN_MAX.0 + 1).is_some_and(|period| period > SPAN_MAX), "the longest span fails");
        assert!(from_half(2 * SPAN_MAX.0 + 1).is_none(), "twice that, too");
    }
}
