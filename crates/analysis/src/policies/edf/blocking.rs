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
