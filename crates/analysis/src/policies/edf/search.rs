//! The smallest bound of a newcomer under EDF, in one pass over the staircase.
//!
//! Let slack(t) = t - interference(t) - demand(t) - blocking(t) for the held channels. A newcomer (C, I', r)
//! with bound d adds k·C from its k-th step d - r + (k-1)·I' on, so d is feasible exactly if, for every k,
//! that step is at or after the last time at which slack < k·C. Between steps slack only grows, so one value
//! of k matters per step: the smallest that does not fit there. A larger one moves that time by at most
//! C/(1-rho) <= I' and does not change the bound. Beyond the horizon a line above the demand is used. This
//! gives the bound that the demand-bound test (QPA) would find by trial, without the trials.

use super::blocking::BlockingCurve;
use super::staircase::Staircase;
use crate::mutation::{Mutation, active};

const PPM: i128 = 1_000_000;

/// The newcomer, in signed nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer {
    pub(super) cost: i64,
    pub(super) period: i64,
    /// blocking(t) that it causes by itself at t < d - r.
    pub(super) blocking: i64,
    /// Assumed d - r of the newcomer, at which the blocking ends.
    pub(super) blocks_until: i64,
}

/// The line above the demand beyond the horizon: demand(t) <= offset + (1 - free share)·t.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// Sigma and the channels' offsets.
    pub(super) offset: i128,
    /// 1 - rho - utilisation, in parts per 10^12.
    pub(super) free_share: i128,
}

impl Tail {
    const WHOLE: i128 = PPM * PPM;

    /// The least d - r that the line allows at and after `from`; `None` if the line is above the time there.
    fn bound(&self, newcomer: &Newcomer, from: i64, blocking: i64) -> Option<i64> {
        let slack = i128::from(from) * self.free_share / Self::WHOLE - self.offset - i128::from(blocking);
        if slack < 0 {
            return None;
        }
        let (period, cost) = (i128::from(newcomer.period), i128::from(newcomer.cost));
        let bound = i128::from(from) + period - slack * period / cost;
        Some(i64::try_from(bound.max(0)).unwrap_or(i64::MAX))
    }

    /// Time from which on the line allows `bound` (= d - r); `None` if there is none.
    pub(super) fn horizon_for(&self, newcomer: &Newcomer, bound: i64, blocking: i64) -> Option<i64> {
        let (period, cost) = (i128::from(newcomer.period), i128::from(newcomer.cost));
        let free = self.free_share - div_up(cost * Self::WHOLE, period);
        if free <= 0 {
            return None;
        }
        let offset = self.offset + i128::from(blocking) + cost - i128::from(bound) * cost / period;
        i64::try_from(div_up(offset.max(0) * Self::WHOLE, free) + 1).ok()
    }
}

/// Ceiling division by a positive divisor.
pub(super) fn div_up(value: i128, by: i128) -> i128 {
    (value + by - 1).div_euclid(by)
}

/// The blocking that counts beyond the horizon: all of `blocking`, except with an injected fault.
fn beyond(blocking: i64) -> i64 {
    Some(blocking).filter(|_| !active(Mutation::LimitWithoutBlocking)).unwrap_or_default()
}

/// Why there is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBound {
    /// A held channel would miss its own bound, whatever the newcomer's.
    Others,
    /// The staircase is too short to decide.
    Horizon,
}

/// The smallest feasible d - r.
pub(super) struct Search<'a> {
    pub(super) stairs: &'a Staircase,
    pub(super) blocking: &'a BlockingCurve,
    pub(super) tail: Tail,
    pub(super) rho_ppm: u32,
    pub(super) newcomer: Newcomer,
}

/// A time in which neither demand nor blocking changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) start: i64,
    pub(super) end: i64,
    /// Free time at the start.
    pub(super) free: i64,
    pub(super) demand: i64,
    pub(super) blocking: i64,
}

impl Search<'_> {
    /// The smallest d - r by the steps alone: from the last to the first, because late steps require the
    /// most, and most of the others can then be skipped.
    pub(super) fn by_steps(&self) -> Result<i64, NoBound> {
        let blocks = &self.stairs.blocks;
        let (mut best, mut end) = (0, self.stairs.horizon);
        let mut demand: i64 = blocks.iter().map(|block| block.added).sum();
        for (index, block) in blocks.iter().enumerate().rev() {
            demand -= block.added;
            let slack = block.margin - demand - self.blocking_at(block.first());
            let reaches =
                end.saturating_sub((slack / self.newcomer.cost).saturating_mul(self.newcomer.period));
            if slack < 0 || reaches > best {
                best = self.by_block(index, end, demand, best)?;
            }
            end = block.first();
        }
        Ok(best)
    }

    /// The smallest d - r by the line beyond the horizon.
    pub(super) fn by_tail(&self) -> Result<i64, NoBound> {
        let horizon = self.stairs.horizon;
        let blocking = beyond(self.blocking_at(horizon));
        self.tail.bound(&self.newcomer, horizon, blocking).ok_or(NoBound::Horizon)
    }

    /// Blocking at and after the horizon, whatever the newcomer's bound.
    pub(super) fn blocking_max(&self) -> i64 {
        beyond(self.blocking.at(self.stairs.horizon).max(self.newcomer.blocking))
    }

    fn blocking_at(&self, t: i64) -> i64 {
        let held = self.blocking.at(t);
        if t < self.newcomer.blocks_until { held.max(self.newcomer.blocking) } else { held }
    }

    /// The smallest d - r that one block allows, at least `best`.
    fn by_block(&self, index: usize, end: i64, before: i64, mut best: i64) -> Result<i64, NoBound> {
        self.intervals(index, end, before, |interval| {
            best = self.by_interval(interval, best)?;
            Ok(())
        })?;
        Ok(best)
    }

    /// Calls `each` with the intervals of one block, from the last to the first. The block lasts until `end`,
    /// and `before` is the demand that is due by its begin.
    pub(super) fn intervals<E>(
        &self,
        index: usize,
        mut end: i64,
        before: i64,
        mut each: impl FnMut(&Interval) -> Result<(), E>,
    ) -> Result<(), E> {
        let block = &self.stairs.blocks[index];
        let mut demand = before + block.added;
        for step in block.steps.iter().rev() {
            let blocking = self.blocking_at(step.at);
            let whole = Interval { start: step.at, end, free: step.free, demand, blocking };
            let until = self.newcomer.blocks_until;
            if step.at < until && until < end {
                let free = self.stairs.free(until);
                each(&Interval { start: until, free, blocking: self.blocking_at(until), ..whole })?;
                each(&Interval { end: until, ..whole })?;
            } else {
                each(&whole)?;
            }
            demand -= step.added;
            end = step.at;
        }
        Ok(())
    }

    fn by_interval(&self, interval: &Interval, best: i64) -> Result<i64, NoBound> {
        let Newcomer { cost, period, .. } = self.newcomer;
        let slack = interval.free - interval.demand - interval.blocking;
        if slack < 0 && interval.demand > 0 {
            return Err(NoBound::Others);
        }
        let fits = slack.max(0) / cost;
        let earlier = fits.saturating_mul(period);
        if interval.end.saturating_sub(earlier) <= best {
            return Ok(best);
        }
        let missing = (i128::from(fits) + 1) * i128::from(cost) - i128::from(slack);
        let wait = div_up(missing * PPM, (PPM - i128::from(self.rho_ppm)).max(1));
        let mut ready = interval.start.saturating_add(i64::try_from(wait).unwrap_or(i64::MAX));
        // Interference is rounded to whole nanoseconds, so a nanosecond or two earlier may be enough, also where that is just before
        // the end.
        let due = interval.demand + interval.blocking + (fits + 1) * cost;
        // The due demand exceeds the free time at the start: the search ends behind that point.
        debug_assert!(self.stairs.free(interval.start) < due, "{ready} for {due}");
        while self.stairs.free(ready - 1) >= due {
            ready -= 1;
        }
        Ok(best.max(ready.min(interval.end).saturating_sub(earlier)))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const WHOLE: i128 = Tail::WHOLE;

    fn newcomer(cost: i64, period: i64) -> Newcomer {
        Newcomer { cost, period, blocking: 0, blocks_until: 0 }
    }

    /// The time above the line that is left at t, with a newcomer whose first message is due at `bound`;
    /// times 10^12 and its period, so that nothing is rounded.
    fn spare(tail: &Tail, newcomer: &Newcomer, bound: i64, blocking: i64, t: i64) -> i128 {
        let [cost, period] = [newcomer.cost, newcomer.period].map(i128::from);
        let free = tail.free_share * i128::from(t) - (tail.offset + i128::from(blocking)) * WHOLE;
        free * period - (i128::from(t - bound) + period) * cost * WHOLE
    }

    struct Drawn {
        tail: Tail,
        newcomer: Newcomer,
        blocking: i64,
    }

    fn drawn(rng: &mut SmallRng) -> Drawn {
        let period = rng.random_range(1_000..1_000_000_000);
        let newcomer = newcomer(rng.random_range(1..period), period);
        let tail = Tail {
            offset: rng.random_range(0..2_000_000_000),
            free_share: rng.random_range(WHOLE / 1_000..WHOLE),
        };
        Drawn { tail, newcomer, blocking: rng.random_range(0..100_000_000) }
    }

    /// With the line's smallest bound the newcomer fits, and with less it does not.
    #[test]
    fn the_line_allows_the_least_bound_with_which_the_newcomer_fits() {
        let (mut rng, mut tight) = (SmallRng::seed_from_u64(1), 0);
        for _ in 0..20_000 {
            let Drawn { tail, newcomer, blocking } = drawn(&mut rng);
            let from = rng.random_range(0..4_000_000_000);
            let above = tail.free_share * i128::from(from) < (tail.offset + i128::from(blocking)) * WHOLE;
            let bound = tail.bound(&newcomer, from, blocking);
            assert_eq!(bound.is_none(), above);
            let Some(bound) = bound else { continue };
            assert!(spare(&tail, &newcomer, bound, blocking, from) >= 0);
            // One nanosecond of free time changes the bound by this much.
            let less = bound - newcomer.period / newcomer.cost - 3;
            if less > 0 {
                tight += 1;
                assert!(spare(&tail, &newcomer, less, blocking, from) < 0, "{bound}");
            }
        }
        assert!(tight > 1_000, "{tight}");
        let line = Tail { offset: 5, free_share: WHOLE };
        assert_eq!(line.bound(&newcomer(10, 100), 7, 2), Some(107), "just nothing is left");
        assert_eq!(line.bound(&newcomer(10, 100), 7, 3), None);
        // 5 + 2 of 107 leave the time for ten messages, the first of which would be due 793 ns before 0.
        assert_eq!(line.bound(&newcomer(10, 100), 107, 2), Some(0), "it is never before that");
    }

    /// The newcomer fits under the line from the horizon on, and not long before. If it takes all free time,
    /// it never fits.
    #[test]
    fn a_horizon_is_the_first_time_from_which_on_the_newcomer_fits() {
        let (mut rng, mut seen, mut never) = (SmallRng::seed_from_u64(2), 0, 0);
        for _ in 0..20_000 {
            let Drawn { tail, newcomer, blocking } = drawn(&mut rng);
            let bound = rng.random_range(0..2_000_000_000);
            let [cost, period] = [newcomer.cost, newcomer.period].map(i128::from);
            let Some(horizon) = tail.horizon_for(&newcomer, bound, blocking) else {
                assert!((tail.free_share - 1) * period < cost * WHOLE, "it could fit");
                never += 1;
                continue;
            };
            let free = tail.free_share * period - cost * WHOLE;
            assert!(free > 0, "it takes all that is free");
            for later in [horizon, horizon + 1, horizon * 2, horizon * 9] {
                assert!(spare(&tail, &newcomer, bound, blocking, later) >= 0, "{later} after {horizon}");
            }
            // The rounding: a nanosecond of the offset, and 10^-12 of the free share.
            let rounded = (2 * WHOLE * period / free) as i64 + horizon / 1_000_000 + 3;
            if free > WHOLE / 100_000 * period && horizon > 2 * rounded {
                seen += 1;
                assert!(spare(&tail, &newcomer, bound, blocking, horizon - rounded) < 0, "{horizon}");
            }
        }
        assert!(seen > 1_000 && never > 1_000, "{seen} {never}");
        let line = |free_share| Tail { offset: 0, free_share };
        assert_eq!(line(WHOLE / 10).horizon_for(&newcomer(10, 100), 0, 0), None, "all that is free");
        assert_eq!(line(WHOLE / 5).horizon_for(&newcomer(10, 100), 0, 0), Some(101));
        assert_eq!(line(WHOLE / 5).horizon_for(&newcomer(10, 100), 1_000, 0), Some(1), "it fits at once");
        assert_eq!(line(WHOLE / 10 + 1).horizon_for(&newcomer(10, 100), 50, 0), Some(5 * WHOLE as i64 + 1));
    }
}
