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
