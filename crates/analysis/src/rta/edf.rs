//! Response times under earliest deadline first (Spuri 1996, George et al. 1996; Bozhko and Brandenburg
//! 2020).
//!
//! A job released at offset A of a busy window competes with the work that is due by A + D. A can be
//! restricted to the offsets at which the demand of some task steps.

use alloc::vec::Vec;

use super::{Convention, Effort, Task, TooLong, busy_period, fixed_point};
use crate::units::Nanos;

/// Response times, from release, of `tasks`; `None` if unbounded. `blocking` is the longest segment outside
/// the list, assumed less urgent than all tasks.
///
/// # Errors
/// If the busy period is too long to analyse.
pub fn response_times(
    tasks: &[Task],
    blocking: Nanos,
    convention: Convention,
) -> Result<Vec<Option<Nanos>>, TooLong> {
    let outside = convention.blocking(blocking);
    let mut effort = Effort::default();
    let Some(busy) = busy_period(tasks, outside, &mut effort)? else {
        return Ok(tasks.iter().map(|_| None).collect());
    };
    let window = Window { tasks, blocking, convention, busy };
    (0..tasks.len()).map(|index| window.response_time(index, &mut effort).map(Some)).collect()
}

struct Window<'a> {
    tasks: &'a [Task],
    blocking: Nanos,
    convention: Convention,
    busy: Nanos,
}

impl Window<'_> {
    fn response_time(&self, index: usize, effort: &mut Effort) -> Result<Nanos, TooLong> {
        effort.spend(self.jobs())?;
        let mut offsets = self.offsets(index);
        offsets.sort_unstable();
        offsets.dedup();
        let mut worst = Nanos::ZERO;
        for offset in offsets {
            worst = worst.max(self.response_at(index, offset, effort)?);
        }
        Ok(worst)
    }

    /// Number of jobs of the busy window, and so an upper bound on the number of offsets.
    fn jobs(&self) -> u64 {
        let jobs = |task: &Task| self.busy.div_ceil(task.period) + 1;
        self.tasks.iter().map(jobs).fold(0, u64::saturating_add)
    }

    /// The offsets at which the demand that competes with task `index` steps within the busy window.
    fn offsets(&self, index: usize) -> Vec<Nanos> {
        let own = self.tasks[index].deadline;
        let steps = |task: &Task| {
            let (task, busy) = (*task, self.busy);
            let competes_from = move |job: u64| (task.step(job) + task.deadline) - own;
            // All jobs before this one compete from the start.
            let first = ((own + task.jitter) - task.deadline).0 / task.period.0;
            (first..).map(competes_from).take_while(move |&offset| offset < busy)
        };
        self.tasks.iter().flat_map(steps).collect()
    }

    fn response_at(&self, index: usize, offset: Nanos, effort: &mut Effort) -> Result<Nanos, TooLong> {
        let own = &self.tasks[index];
        let due = offset + own.deadline;
        let safe = own.segment_last - Nanos(1);
        let own_work = own.demand_within(offset + Nanos(1)) - safe;
        let others =
            || self.tasks.iter().enumerate().filter(|&(other, _)| other != index).map(|(_, task)| task);
        let later = others().filter(|task| task.deadline > due).map(|task| task.segment_max);
        let blocking = self.convention.blocking(later.max().unwrap_or_default().max(self.blocking));
        let started = fixed_point(Nanos(1), self.tasks.len(), effort, |at| {
            let competing = |task: &Task| task.demand_within(at.min((due + Nanos(1)) - task.deadline));
            blocking + own_work + others().map(competing).sum()
        })?;
        Ok((started - offset) + safe)
    }
}
