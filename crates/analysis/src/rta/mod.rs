//! Worst-case response times for fixed priorities and EDF: preemptive, limited-preemptive, non-preemptive.
//!
//! Each is computed over the whole busy period, not its first instance (Davis et al. 2007), with release
//! jitter and blocking. Responses and, for EDF, deadlines count from *release*. Jobs run in segments that are
//! not interrupted. Between segments more urgent work runs, so only a job's last segment is safe.

pub mod edf;
pub mod fixed_priority;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::units::Nanos;

/// Most jobs in a busy period that are analysed.
const JOBS_MAX: u128 = 20_000_000;
/// Most evaluations of a task, over all searches of one answer: about a second. A set may have few jobs and
/// still take years to search, one nanosecond per step.
const STEPS_TRIED_MAX: u64 = 100_000_000;

/// Where a task can be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preemption {
    /// Preemptible at any time.
    Full,
    /// Preemptible between units of this cost; the rest of the job is the last segment.
    BetweenUnits(Nanos),
    /// Not preemptible.
    None,
}

/// A sporadic task with release jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// C: longest execution, at least 1 ns.
    pub cost: Nanos,
    /// T: shortest time between arrivals, at least 1 ns.
    pub period: Nanos,
    /// D, from release.
    pub deadline: Nanos,
    /// Longest time from arrival to release.
    pub jitter: Nanos,
    /// The longest segment, which can block others (0: preemptible at any time).
    pub segment_max: Nanos,
    /// The last segment, at least 1 ns: the part that is safe from preemption.
    pub segment_last: Nanos,
}

impl Task {
    /// A task without jitter and with the segments of `preemption`.
    pub fn new(cost: Nanos, period: Nanos, deadline: Nanos, preemption: Preemption) -> Self {
        let (cost, period) = (cost.max(Nanos(1)), period.max(Nanos(1)));
        let (segment_max, segment_last) = match preemption {
            Preemption::Full => (Nanos::ZERO, Nanos(1)),
            Preemption::None => (cost, cost),
            Preemption::BetweenUnits(unit) => {
                let unit = unit.clamp(Nanos(1), cost);
                (unit, cost - unit * (cost.div_ceil(unit) - 1))
            }
        };
        Self { cost, period, deadline, jitter: Nanos::ZERO, segment_max, segment_last }
    }

    /// This task with release jitter.
    #[must_use]
    pub fn with_jitter(self, jitter: Nanos) -> Self {
        Self { jitter, ..self }
    }

    /// The most work released in any window of length `window`.
    fn demand_within(&self, window: Nanos) -> Nanos {
        if window == Nanos::ZERO {
            Nanos::ZERO
        } else {
            self.cost * (window + self.jitter).div_ceil(self.period)
        }
    }

    /// The offset in a busy window at which its demand steps after `jobs` jobs.
    fn step(&self, jobs: u64) -> Nanos {
        self.period * jobs - self.jitter
    }
}

/// How long a segment that has begun blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Convention {
    /// The whole length of the segment counts, as in textbooks on real-time scheduling.
    #[default]
    TextBook,
    /// All but one tick, because it began at least a tick ago: integer-time theory. The difference may be
    /// more than a tick.
    Ticks,
}

impl Convention {
    fn blocking(self, segment: Nanos) -> Nanos {
        match self {
            Self::TextBook => segment,
            Self::Ticks => segment - Nanos(1),
        }
    }
}

/// The busy period is too long to analyse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the busy period is too long to analyse: use coarser periods, or less utilisation or jitter")]
pub struct TooLong;

/// Effort that an answer may still take.
#[derive(Debug)]
struct Effort {
    steps_left: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { steps_left: STEPS_TRIED_MAX }
    }
}

impl Effort {
    fn spend(&mut self, steps: u64) -> Result<(), TooLong> {
        self.steps_left = self.steps_left.checked_sub(steps).ok_or(TooLong)?;
        Ok(())
    }
}

/// The busy period of `tasks` after `blocking`; `None` if it never ends.
fn busy_period(tasks: &[Task], blocking: Nanos, effort: &mut Effort) -> Result<Option<Nanos>, TooLong> {
    const WHOLE: u128 = 1_000_000_000_000_000_000;
    let share = |task: &Task| u128::from(task.cost.0) * WHOLE / u128::from(task.period.0);
    // Rounded down by less than 1 each.
    let used: u128 = tasks.iter().map(share).sum();
    let backlog = blocking > Nanos::ZERO || tasks.iter().any(|task| task.jitter > Nanos::ZERO);
    if used > WHOLE || (used + tasks.len() as u128 > WHOLE && backlog) {
        return Ok(None);
    }
    let mut busy = Nanos(1);
    loop {
        effort.spend(tasks.len() as u64)?;
        let next = blocking + tasks.iter().map(|task| task.demand_within(busy)).sum();
        if next <= busy {
            return Ok(Some(busy));
        }
        let jobs: u128 = tasks.iter().map(|task| u128::from(next.0) / u128::from(task.period.0)).sum();
        if jobs > JOBS_MAX {
            return Err(TooLong);
        }
        busy = next;
    }
}

/// The least `at` >= 1 with `work(at)` <= `at`; exists below the end of the busy period. `work` evaluates
/// `tasks` tasks.
fn fixed_point(
    from: Nanos,
    tasks: usize,
    effort: &mut Effort,
    work: impl Fn(Nanos) -> Nanos,
) -> Result<Nanos, TooLong> {
    let mut at = from.max(Nanos(1));
    loop {
        effort.spend(tasks as u64)?;
        let next = work(at);
        if next <= at {
            return Ok(at);
        }
        at = next;
    }
}
