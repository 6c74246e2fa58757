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
        let started = fixed_point(Nanos::ZERO, self.tasks.len(), effort, |at| {
            let competing = |task: &Task| task.demand_within(at.min((due + Nanos(1)) - task.deadline));
            blocking + own_work + others().map(competing).sum()
        })?;
        Ok((started - offset) + safe)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    /// Checks the effort of each task's search; returns how many different offsets were searched.
    pub(in crate::rta) fn search_effort(tasks: &[Task], blocking: Nanos) -> Vec<usize> {
        const STEPS: u64 = 1 << 40;
        let convention = Convention::TextBook;
        let busy = busy_period(tasks, blocking, &mut Effort::default()).expect("it is short");
        let Some(busy) = busy else { return Vec::new() };
        let window = Window { tasks, blocking, convention, busy };
        // In a window, and at its end.
        let jobs: u64 = tasks.iter().map(|task| busy.0.div_ceil(task.period.0) + 1).sum();
        let searched = |index: usize| {
            let offsets = window.offsets(index);
            assert!(offsets.iter().all(|offset| *offset < busy), "{offsets:?} in {busy:?}");
            assert!(offsets.len() as u64 <= jobs, "{offsets:?} of {jobs}: {tasks:?}");
            let different = BTreeSet::from_iter(offsets);
            let mut effort = Effort { steps_left: STEPS };
            for offset in &different {
                window.response_at(index, *offset, &mut effort).expect("it is short");
            }
            let mut whole = Effort { steps_left: STEPS };
            window.response_time(index, &mut whole).expect("it is short");
            assert_eq!(STEPS - whole.steps_left, jobs + STEPS - effort.steps_left, "{tasks:?}");
            different.len()
        };
        (0..tasks.len()).map(searched).collect()
    }
}
