//! Response times under fixed priorities.

use alloc::vec::Vec;

use super::{Convention, Effort, Task, TooLong, busy_period, fixed_point};
use crate::mutation::{Mutation, active};
use crate::units::Nanos;

/// Response times, from release, of `tasks` in priority order; `None` if one is unbounded. `blocking` is the
/// longest segment outside the list: it joins the maximum over lower tasks.
///
/// # Errors
/// If a busy period is too long to analyse.
pub fn response_times(
    tasks: &[Task],
    blocking: Nanos,
    convention: Convention,
) -> Result<Vec<Option<Nanos>>, TooLong> {
    let mut effort = Effort::default();
    (0..tasks.len())
        .map(|index| {
            let lower = tasks[index + 1..].iter().map(|task| task.segment_max).max().unwrap_or_default();
            response_within(&tasks[..=index], convention.blocking(lower.max(blocking)), &mut effort)
        })
        .collect()
}

/// The response time of the last of `tasks`, with the others more urgent, after at most `blocking`.
///
/// # Errors
/// If its busy period is too long to analyse.
pub fn response_time(tasks: &[Task], blocking: Nanos) -> Result<Option<Nanos>, TooLong> {
    response_within(tasks, blocking, &mut Effort::default())
}

pub(super) fn response_within(
    tasks: &[Task],
    blocking: Nanos,
    effort: &mut Effort,
) -> Result<Option<Nanos>, TooLong> {
    let Some((own, higher)) = tasks.split_last() else { return Ok(None) };
    let Some(busy) = busy_period(tasks, blocking, effort)? else { return Ok(None) };
    let (mut worst, mut started, mut job) = (Nanos::ZERO, Nanos::ZERO, 0);
    while own.step(job) < busy {
        let released = own.step(job);
        // Work up to and including the first tick of its last segment, after which it is not preempted.
        let own_work = own.cost * (job + 1) - (own.segment_last - Nanos(1));
        started = fixed_point(started, tasks.len(), effort, |at| {
            blocking + own_work + higher.iter().map(|task| task.demand_within(at)).sum()
        })?;
        worst = worst.max((started - released) + (own.segment_last - Nanos(1)));
        job += 1;
        if active(Mutation::FirstInstanceOnly) {
            break;
        }
    }
    Ok(Some(worst))
}
