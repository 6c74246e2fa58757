//! blocking(t): the largest unit among the channels with d - r > t.
//!
//! A channel with d - r <= t < d need not be checked: while a message of it blocks, no other message of it is
//! due by t, and the demand test counts at least one, which costs no less than the unit.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::signed;
use crate::multiset::Multiset;
use crate::mutation::{Mutation, active};
use crate::stage::Blocking;
use crate::units::Nanos;

/// blocking(t) of the held channels.
#[derive(Debug)]
pub(super) struct BlockingCurve {
    model: Blocking,
    /// Held d - r of each unit cost.
    bounds: BTreeMap<Nanos, Multiset<Nanos>>,
    /// (d - r, blocking below it): the first strictly rising, the second strictly falling.
    stairs: Vec<(i64, i64)>,
    floor: i64,
}

impl BlockingCurve {
    pub(super) fn new(model: Blocking) -> Self {
        let floor = signed(model.by(Nanos::ZERO));
        Self { model, bounds: BTreeMap::new(), stairs: Vec::new(), floor }
    }

    /// Whether blocking depends on units.
    pub(super) fn depends_on_units(&self) -> bool {
        matches!(self.model, Blocking::LargestUnit { .. }) || active(Mutation::DeadlineFilterAtDepthTwo)
    }

    /// blocking(t) if only a unit of `unit` is less urgent.
    pub(super) fn by(&self, unit: Nanos) -> i64 {
        signed(self.model.by(unit))
    }

    pub(super) fn add(&mut self, unit: Nanos, bound: Nanos) {
        if self.depends_on_units() {
            self.bounds.entry(unit).or_default().add(bound);
            self.rebuild();
        }
    }

    pub(super) fn remove(&mut self, unit: Nanos, bound: Nanos) {
        let Some(held) = self.bounds.get_mut(&unit) else { return };
        held.remove(bound);
        if held.is_empty() {
            self.bounds.remove(&unit);
        }
        self.rebuild();
    }

    /// Rebuilds the steps: one for each unit that is the largest at some t.
    fn rebuild(&mut self) {
        self.stairs.clear();
        let mut reach = i64::MIN;
        for (&unit, bounds) in self.bounds.iter().rev() {
            let blocking = signed(self.model.by(unit));
            let Some(last) = bounds.counts().last_key_value().map(|(&bound, _)| signed(bound)) else {
                continue;
            };
            if blocking > self.floor && last > reach {
                self.stairs.push((last, blocking));
                reach = last;
            }
        }
    }

    /// blocking(t).
    pub(super) fn at(&self, t: i64) -> i64 {
        self.stairs.iter().find(|&&(bound, _)| bound > t).map_or(self.floor, |&(_, blocking)| blocking)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Whatever units come and go, the curve is the largest unit that is due later, or what blocks always;
    /// and it has no more steps than it has values.
    #[test]
    fn the_curve_is_the_largest_unit_that_is_due_later() {
        let mut steps_max = 0;
        for seed in 0..40 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let best_effort = rng.random_range(0..4);
            let mut curve = BlockingCurve::new(Blocking::LargestUnit { best_effort: Nanos(best_effort) });
            let mut held: Vec<(u64, u64)> = Vec::new();
            for round in 0..80 {
                if held.len() > 9 || (!held.is_empty() && rng.random_bool(0.4)) {
                    let (unit, bound) = held.swap_remove(rng.random_range(0..held.len()));
                    curve.remove(Nanos(unit), Nanos(bound));
                } else {
                    let (unit, bound) = (rng.random_range(0..9), rng.random_range(0..12));
                    curve.add(Nanos(unit), Nanos(bound));
                    held.push((unit, bound));
                }
                let at = |t: u64| {
                    let later = held.iter().filter(|&&(_, bound)| bound > t);
                    later.map(|&(unit, _)| unit).fold(best_effort, u64::max) as i64
                };
                let found = (0..15).map(|t| curve.at(t));
                assert!(found.eq((0..15).map(at)), "seed {seed}, round {round}: {held:?}");
                let falls =
                    curve.stairs.windows(2).all(|step| step[0].0 < step[1].0 && step[0].1 > step[1].1);
                let is_above = curve.stairs.iter().all(|&(_, blocking)| blocking > best_effort as i64);
                assert!(falls && is_above, "seed {seed}, round {round}: {:?}", curve.stairs);
                steps_max = steps_max.max(curve.stairs.len());
            }
            held.drain(..).for_each(|(unit, bound)| curve.remove(Nanos(unit), Nanos(bound)));
            assert!(curve.bounds.is_empty() && curve.stairs.is_empty(), "seed {seed}: nothing is held");
        }
        assert!(steps_max > 2, "{steps_max}");
    }

    /// Where several units are outstanding, blocking is their time, whatever the channels' units.
    #[test]
    fn a_pipeline_blocks_alike_at_every_time() {
        let mut curve = BlockingCurve::new(Blocking::Pipeline(Nanos(7)));
        curve.add(Nanos(900), Nanos(5));
        assert_eq!(
            ([curve.at(0), curve.at(4), curve.at(5), curve.by(Nanos(900))], curve.bounds.len()),
            ([7; 4], 0)
        );
        curve.remove(Nanos(900), Nanos(5));
        assert_eq!([curve.at(0), curve.by(Nanos::ZERO)], [7; 2]);
    }
}
