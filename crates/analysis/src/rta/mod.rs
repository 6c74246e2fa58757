//! Worst-case response times for fixed priorities and EDF: preemptive, limited-preemptive, non-preemptive.
//!
//! Each is computed over the whole busy period, not its first instance (Davis et al. 2007), with release jitter
//! and blocking. Responses and, for EDF, deadlines count from *release*. Jobs run in segments that nothing
//! interrupts; between segments anything more urgent does, so only a job's last segment is safe.

pub mod edf;
pub mod fixed_priority;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::units::Nanos;

/// Most jobs in a busy period that are looked at.
const JOBS_MAX: u128 = 20_000_000;
/// Most looks at a task, all searches of one answer together: about a second. A set may hold few jobs and still be
/// searched for years, a nanosecond a step.
const STEPS_TRIED_MAX: u64 = 100_000_000;

/// Where a task can be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preemption {
    /// Everywhere.
    Full,
    /// Preemption is possible between units of this cost; the rest of the job comes last.
    BetweenUnits(Nanos),
    /// Nowhere.
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
    /// The longest segment: what it can block others for (0: preemptible everywhere).
    pub segment_max: Nanos,
    /// The last segment, at least 1 ns: what is safe from preemption.
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
    /// All of it: the text books.
    #[default]
    TextBook,
    /// All but one tick, as it began at least a tick ago: integer-time theory. Less by a tick or more.
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

/// The busy period is too long to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the busy period takes too long to look at: use coarser periods, or less utilisation or jitter")]
pub struct TooLong;

/// Effort that an answer may still take.
#[derive(Debug)]
struct Effort {
    looks_left: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { looks_left: STEPS_TRIED_MAX }
    }
}

impl Effort {
    fn spend(&mut self, looks: u64) -> Result<(), TooLong> {
        self.looks_left = self.looks_left.checked_sub(looks).ok_or(TooLong)?;
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

/// The least `at` >= 1 with `work(at)` <= `at`; exists below the end of the busy period. `work` looks at `tasks` tasks.
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
