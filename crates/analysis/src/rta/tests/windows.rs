//! Response times under EDF against a search through all offsets and all times, and where windows end.

use alloc::vec::Vec;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::*;
use super::tiny_tasks;

/// The most work of a task that is released in a window; what is due before it begins is no window.
fn demand(task: &Task, window: i64) -> i64 {
    let [cost, period, jitter] = [task.cost, task.period, task.jitter].map(|span| span.0 as i64);
    if window <= 0 { 0 } else { cost * ((window + jitter + period - 1) / period) }
}

/// The first time from 1 on by which so much work is done.
fn done(work: impl Fn(i64) -> i64) -> i64 {
    (1..).find(|at| work(*at) <= *at).expect("it is done some time")
}

/// The longest response of a task whose job is released at any time of the busy window.
fn longest(tasks: &[Task], index: usize, blocking: i64, convention: Convention, busy: i64) -> i64 {
    let blocks = |segment: i64| match convention {
        Convention::TextBook => segment,
        Convention::Ticks => (segment - 1).max(0),
    };
    let (own, safe) = (&tasks[index], tasks[index].segment_last.0 as i64 - 1);
    let others = || tasks.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, task)| task);
    let at = |offset: i64| {
        let due = offset + own.deadline.0 as i64;
        let later =
            others().filter(|task| task.deadline.0 as i64 > due).map(|task| task.segment_max.0 as i64);
        let first = blocks(later.max().unwrap_or(0).max(blocking)) + demand(own, offset + 1) - safe;
        let started = done(|now| {
            let competes = |task: &Task| demand(task, now.min(due + 1 - task.deadline.0 as i64));
            first + others().map(competes).sum::<i64>()
        });
        (started - offset).max(0) + safe
    };
    (0..busy).map(at).max().expect("a window is not empty")
}

#[test]
fn only_offsets_at_which_demand_steps_matter_under_edf() {
    let mut compared = 0;
    for seed in 0..1_500 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let preemption =
            [Preemption::Full, Preemption::None, Preemption::BetweenUnits(Nanos(2))][seed as usize % 3];
        let mut tasks = tiny_tasks(&mut rng, preemption, 7);
        tasks.iter_mut().for_each(|task| task.deadline = Nanos(rng.random_range(1..30)));
        let (blocking, convention) =
            (rng.random_range(0..4), [Convention::TextBook, Convention::Ticks][rng.random_range(0..2)]);
        let found = edf::response_times(&tasks, Nanos(blocking), convention).expect("it is short");
        let outside = convention.blocking(Nanos(blocking)).0 as i64;
        for (index, found) in found.into_iter().enumerate().filter_map(|(index, found)| Some((index, found?)))
        {
            let busy = done(|at| outside + tasks.iter().map(|task| demand(task, at)).sum::<i64>());
            let window = busy_period(&tasks, convention.blocking(Nanos(blocking)), &mut Effort::default());
            assert_eq!(
                window,
                Ok(Some(Nanos(busy as u64))),
                "seed {seed}: {tasks:?} {blocking} {convention:?}"
            );
            let expected = longest(&tasks, index, blocking as i64, convention, busy);
            assert_eq!(
                found.0 as i64, expected,
                "seed {seed}, task {index}: {tasks:?} {blocking} {convention:?}"
            );
            compared += 1;
        }
    }
    assert!(compared > 1_000, "{compared}");
}

/// A task that is released at the end of a busy window begins another one: nothing is searched there. Each evaluation of a
/// task is a step.
#[test]
fn a_window_ends_before_what_is_released_at_its_end() {
    let task = |cost, period| Task::new(Nanos(cost), Nanos(period), Nanos(period), Preemption::Full);
    // Evaluations of the window, and of each job in it: at 1, and at each time that work was found to last to.
    for (cost, period, steps) in [(1, 1, 1 + 1), (1, 2, 1 + 1), (2, 2, 2 + 2), (3, 4, 2 + 2)] {
        let mut effort = Effort { steps_left: 100 };
        let found = fixed_priority::response_within(&[task(cost, period)], Nanos::ZERO, &mut effort);
        assert_eq!((found, effort.steps_left), (Ok(Some(Nanos(cost))), 100 - steps), "{cost} {period}");
    }
}

/// As many jobs as are analysed at most, and one more.
#[test]
fn a_busy_period_has_a_largest_number_of_jobs() {
    let (most, period) = (JOBS_MAX as u64, 1_000_000_000);
    let task = Task::new(Nanos(1), Nanos(period), Nanos(period), Preemption::Full);
    let busy = |jobs: u64| busy_period(&[task], Nanos(jobs * period), &mut Effort::default());
    // A job is released at the end of the last period, too: each costs a nanosecond.
    let end = |jobs: u64| Ok(Some(Nanos(jobs * period + jobs + 1)));
    assert_eq!((busy(most - 1), busy(most), busy(most + 1)), (end(most - 1), end(most), Err(TooLong)));
}

/// A set that leaves a part in 10^18 of the time gets rid of a backlog with it; one that leaves nothing never does.
#[test]
fn a_window_ends_if_any_time_is_left() {
    let whole = 1_000_000_000_000_000_000;
    let busy = |cost: u64| {
        let task = Task::new(Nanos(cost), Nanos(whole), Nanos(whole), Preemption::Full);
        busy_period(&[task], Nanos(1), &mut Effort::default())
    };
    assert_eq!((busy(whole - 1), busy(whole)), (Ok(Some(Nanos(whole))), Ok(None)));
}

/// What is searched is counted: the jobs of a window once, and what each different offset takes.
#[test]
fn offsets_are_within_their_window_and_are_searched_once() {
    let mut windows: Vec<usize> = Vec::new();
    for seed in 0..400 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let tasks = tiny_tasks(&mut rng, Preemption::Full, 12);
        windows.extend(edf::tests::search_effort(&tasks, Nanos(rng.random_range(0..4))));
    }
    assert!(windows.iter().filter(|offsets| **offsets > 3).count() > 100, "{}", windows.len());
}
