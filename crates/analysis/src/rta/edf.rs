//! Response times under earliest deadline first (Spuri 1996, George et al. 1996; Bozhko and Brandenburg 2020).
//!
//! A job released at offset A of a busy window competes with what is due by A + D. A can be restricted to the
//! offsets at which the demand of some task steps.

use alloc::vec::Vec;

use super::{Convention, Task, TooLong, busy_period, fixed_point};
use crate::units::Nanos;

/// Response times, from release, of `tasks`; `None` where unbounded. `blocking` is the longest segment outside
/// the list, assumed less urgent than anything.
///
/// # Errors
/// Where the busy period is too long to look at.
pub fn response_times(
    tasks: &[Task],
    blocking: Nanos,
    convention: Convention,
) -> Result<Vec<Option<Nanos>>, TooLong> {
    let outside = convention.blocking(blocking);
    let Some(busy) = busy_period(tasks, outside)? else { return Ok(tasks.iter().map(|_| None).collect()) };
    let window = Window { tasks, blocking, convention, busy };
    Ok((0..tasks.len()).map(|index| Some(window.response_time(index))).collect())
}

struct Window<'a> {
    tasks: &'a [Task],
    blocking: Nanos,
    convention: Convention,
    busy: Nanos,
}

impl Window<'_> {
    fn response_time(&self, index: usize) -> Nanos {
        let mut offsets = self.offsets(index);
        offsets.sort_unstable();
        offsets.dedup();
        offsets.into_iter().map(|offset| self.response_at(index, offset)).max().unwrap_or_default()
    }

    /// Where the demand that competes with task `index` steps within the busy window.
    fn offsets(&self, index: usize) -> Vec<Nanos> {
        let own = self.tasks[index].deadline;
        let steps = |task: &Task| {
            let (task, busy) = (*task, self.busy);
            let competes_from = move |job: u64| (task.step(job) + task.deadline) - own;
            (0..).map(competes_from).take_while(move |&offset| offset < busy)
        };
        self.tasks.iter().flat_map(steps).collect()
    }

    fn response_at(&self, index: usize, offset: Nanos) -> Nanos {
        let own = &self.tasks[index];
        let due = offset + own.deadline;
        let safe = own.segment_last - Nanos(1);
        let own_work = own.demand_within(offset + Nanos(1)) - safe;
        let others =
            || self.tasks.iter().enumerate().filter(|&(other, _)| other != index).map(|(_, task)| task);
        let later = others().filter(|task| task.deadline > due).map(|task| task.segment_max);
        let blocking = self.convention.blocking(later.max().unwrap_or_default().max(self.blocking));
        let started = fixed_point(Nanos(1), |at| {
            let competing = |task: &Task| task.demand_within(at.min((due + Nanos(1)) - task.deadline));
            blocking + own_work + others().map(competing).sum()
        });
        (started - offset) + safe
    }
}
