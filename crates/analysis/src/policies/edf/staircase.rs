//! The demand of all held channels as a staircase over time, kept in blocks so that a change touches few of
//! them.
//!
//! Owns the steps up to `horizon`; admission is decided in [`super::search`]. Invariants: steps are in order
//! and at distinct times; the first is at 0 and stays; a block's sums are those of its steps; blocks hold 1
//! to [`BLOCK_STEPS_MAX`] steps.

use alloc::vec::Vec;

use super::signed;
use crate::stage::Interference;
use crate::units::Nanos;

/// Measured: blocks of 64 to 512 steps decide equally fast, larger ones change more slowly.
const BLOCK_STEPS_MAX: usize = 256;

/// A time at which the demand rises (and blocking may fall).
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) at: i64,
    /// `at` less interference(at): the time that the scheduler has had by then.
    pub(super) free: i64,
    /// Demand that is due at `at`.
    pub(super) added: i64,
    /// Channels that have a step here.
    channels: u32,
}

/// A run of steps.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) steps: Vec<Step>,
    /// Sum of `added`.
    pub(super) added: i64,
    /// Smallest of free less the block's demand so far, over its steps.
    pub(super) margin: i64,
}

impl Block {
    fn new(steps: Vec<Step>) -> Self {
        let mut block = Self { steps, added: 0, margin: 0 };
        block.sum_up();
        block
    }

    pub(super) fn first(&self) -> i64 {
        self.steps[0].at
    }

    fn sum_up(&mut self) {
        (self.added, self.margin) = (0, i64::MAX);
        for step in &self.steps {
            self.added += step.added;
            self.margin = self.margin.min(step.free - self.added);
        }
    }
}

/// Steps of one channel, or of several equal channels: at `first`, `first` + `period`, ... with `cost` each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) first: i64,
    pub(super) period: i64,
    pub(super) cost: i64,
    pub(super) channels: u32,
}

impl Series {
    /// The steps in (`from`, `to`], as (time, demand).
    fn steps(&self, from: i64, to: i64) -> impl Iterator<Item = (i64, i64)> + use<> {
        let Self { first, period, cost, .. } = *self;
        let skipped = if first > from { 0 } else { (from - first) / period + 1 };
        let times =
            core::iter::successors(Some(first.saturating_add(skipped.saturating_mul(period))), move |at| {
                at.checked_add(period)
            });
        times.take_while(move |&at| at <= to).map(move |at| (at, cost))
    }
}

/// The staircase (see the module).
#[derive(Debug)]
pub(super) struct Staircase {
    interference: Interference,
    pub(super) blocks: Vec<Block>,
    pub(super) horizon: i64,
    steps: usize,
}

impl Staircase {
    pub(super) fn new(interference: Interference) -> Self {
        let mut empty = Self { interference, blocks: Vec::new(), horizon: 0, steps: 0 };
        empty.clear();
        empty
    }

    /// Removes every step.
    pub(super) fn clear(&mut self) {
        let origin = self.step(0, 0, 1);
        (self.blocks, self.horizon, self.steps) = (Vec::from([Block::new(Vec::from([origin]))]), 0, 1);
    }

    pub(super) fn len(&self) -> usize {
        self.steps
    }

    fn step(&self, at: i64, added: i64, channels: u32) -> Step {
        Step { at, free: self.free(at), added, channels }
    }

    /// The time that the scheduler has had by `at`: negative while the burst of interference lasts.
    pub(super) fn free(&self, at: i64) -> i64 {
        at - signed(self.interference.within(Nanos(at as u64)))
    }

    /// Adds a series up to the horizon.
    pub(super) fn add(&mut self, series: &Series) {
        let mut changed = None;
        for (at, cost) in series.steps(0, self.horizon) {
            let index = self.block_of(at);
            self.leave(changed.replace(index), index);
            self.add_step(index, at, cost * i64::from(series.channels), series.channels);
        }
        self.sum_up(changed);
    }

    /// Removes a series that was added.
    pub(super) fn remove(&mut self, series: &Series) {
        let mut changed = None;
        for (at, cost) in series.steps(0, self.horizon) {
            let index = self.block_of(at);
            self.leave(changed.replace(index), index);
            self.remove_step(index, at, cost * i64::from(series.channels), series.channels);
            if self.blocks[index].steps.is_empty() {
                self.blocks.remove(index);
                changed = None;
            }
        }
        self.sum_up(changed);
    }

    /// Sums up a block when the last step of a series in it is done: a series changes one block after
    /// another.
    fn leave(&mut self, changed: Option<usize>, next: usize) {
        self.sum_up(changed.filter(|changed| *changed != next));
    }

    fn sum_up(&mut self, block: Option<usize>) {
        if let Some(block) = block {
            self.blocks[block].sum_up();
        }
    }

    /// Moves the horizon out, with the steps of all held series.
    pub(super) fn extend(&mut self, horizon: i64, all: impl Iterator<Item = Series>) {
        let mut fresh: Vec<Step> = Vec::new();
        for series in all {
            let scaled = series.steps(self.horizon, horizon);
            let channels = series.channels;
            fresh.extend(scaled.map(|(at, cost)| self.step(at, cost * i64::from(channels), channels)));
        }
        fresh.sort_unstable_by_key(|step| step.at);
        fresh.dedup_by(|later, kept| {
            let same = later.at == kept.at;
            if same {
                kept.added += later.added;
                kept.channels += later.channels;
            }
            same
        });
        self.steps += fresh.len();
        // Half-full blocks leave room for the next channels' steps.
        self.blocks.extend(fresh.chunks(BLOCK_STEPS_MAX / 2).map(|run| Block::new(run.to_vec())));
        self.horizon = horizon;
    }

    /// The block that `at` belongs to.
    fn block_of(&self, at: i64) -> usize {
        self.blocks.partition_point(|block| block.first() <= at).saturating_sub(1)
    }

    /// Adds a step; the caller must sum up the block.
    fn add_step(&mut self, index: usize, at: i64, added: i64, channels: u32) {
        let fresh = self.step(at, added, channels);
        let block = &mut self.blocks[index];
        match block.steps.binary_search_by_key(&at, |step| step.at) {
            Ok(place) => {
                block.steps[place].added += added;
                block.steps[place].channels += channels;
            }
            Err(place) => {
                block.steps.insert(place, fresh);
                self.steps += 1;
            }
        }
        if block.steps.len() > BLOCK_STEPS_MAX {
            let rest = block.steps.split_off(BLOCK_STEPS_MAX / 2);
            self.blocks.insert(index + 1, Block::new(rest));
        }
    }

    /// Removes a step; the caller must sum up the block, or remove it if it is empty.
    fn remove_step(&mut self, index: usize, at: i64, added: i64, channels: u32) {
        let steps = &mut self.blocks[index].steps;
        let Ok(place) = steps.binary_search_by_key(&at, |step| step.at) else {
            debug_assert!(false, "a step that was added is there");
            return;
        };
        steps[place].added -= added;
        steps[place].channels -= channels;
        if steps[place].channels == 0 {
            steps.remove(place);
            self.steps -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps that a longer horizon adds are in blocks of half of the size, so that each has room for those of further channels,
    /// and there are no more blocks than that takes: a search looks at each.
    #[test]
    fn blocks_of_a_longer_horizon_have_room() {
        let mut stairs = Staircase::new(Interference::default());
        let series = Series { first: 1, period: 1, cost: 1, channels: 1 };
        for horizon in [BLOCK_STEPS_MAX as i64, 5 * BLOCK_STEPS_MAX as i64] {
            stairs.extend(horizon, [series].into_iter());
            let steps: Vec<usize> = stairs.blocks.iter().map(|block| block.steps.len()).collect();
            assert!(steps.iter().all(|steps| (1..=BLOCK_STEPS_MAX / 2).contains(steps)), "{steps:?}");
            // Beside the one at 0, and one for each of the two horizons whose last block is not full.
            assert!(steps.len() <= 3 + horizon as usize / (BLOCK_STEPS_MAX / 2), "{steps:?}");
            // The step at 0, and the series'.
            assert_eq!(steps.iter().sum::<usize>() as i64, horizon + 1);
        }
    }

    /// A full block stays one. A block that is too large is cut in the middle, so that both halves have room
    /// for equally many steps.
    #[test]
    fn a_block_that_overflows_leaves_the_same_room_in_both_halves() {
        let mut stairs = Staircase::new(Interference::default());
        // The step at 0 is there already.
        stairs.horizon = BLOCK_STEPS_MAX as i64 - 1;
        let series = Series { first: 1, period: 1, cost: 1, channels: 1 };
        stairs.add(&series);
        assert_eq!((stairs.blocks.len(), stairs.len()), (1, BLOCK_STEPS_MAX));
        stairs.clear();
        stairs.horizon = BLOCK_STEPS_MAX as i64;
        stairs.add(&series);
        let steps: Vec<usize> = stairs.blocks.iter().map(|block| block.steps.len()).collect();
        let [front, back] = steps[..] else { panic!("one cut: {steps:?}") };
        assert_eq!(front + back, BLOCK_STEPS_MAX + 1);
        assert!(front.abs_diff(back) <= 1, "{steps:?}");
    }
}
