//! The published sets of the literature, and the cases in which simpler analyses are wrong.

use alloc::vec;
use alloc::vec::Vec;

use super::*;

mod windows;

fn times(tasks: &[Task], blocking: Nanos) -> Vec<u64> {
    let responses = fixed_priority::response_times(tasks, blocking, Convention::TextBook).unwrap();
    responses.into_iter().map(|response| response.unwrap().0).collect()
}

/// Davis, Burns, Bril, Lukkien 2007: 250 kbit/s CAN. Own cost with the 3-bit inter-frame space, blocking by
/// lower frames without it.
#[test]
fn the_can_message_set() {
    let bit_ns = 4_000;
    let set = [
        (8, 10),
        (3, 14),
        (3, 20),
        (2, 15),
        (5, 20),
        (5, 40),
        (4, 15),
        (5, 50),
        (4, 20),
        (7, 100),
        (5, 50),
        (1, 100),
    ];
    let tasks: Vec<Task> = set
        .iter()
        .map(|&(bytes, period_ms)| {
            let frame = Nanos((52 + 10 * bytes) * bit_ns);
            let period = Nanos::from_millis(period_ms);
            let task = Task::new(frame + Nanos(3 * bit_ns), period, period, Preemption::None);
            Task { segment_max: frame, ..task }
        })
        .collect();
    let expected = [1_028, 1_368, 1_708, 2_008, 2_428, 2_848, 3_228, 3_648, 4_028, 4_448, 4_708, 4_720]
        .map(|us| us * 1_000);
    assert_eq!(times(&tasks, Nanos::ZERO), expected);
}

/// An example of the same paper as above: the third task misses its deadline in the second instance of its
/// busy period.
#[test]
fn the_whole_busy_period_counts() {
    let task = |cost_us, period_us| {
        let (cost, period) = (Nanos::from_micros(cost_us), Nanos::from_micros(period_us));
        Task::new(cost, period, period, Preemption::None)
    };
    let mut tasks = [task(1_000, 2_500), task(1_000, 3_500), task(1_000, 3_500)];
    tasks[1].deadline = Nanos::from_micros(3_250);
    tasks[2].deadline = Nanos::from_micros(3_250);
    assert_eq!(times(&tasks, Nanos::ZERO), [2_000_000, 3_000_000, 3_500_000]);
    assert!(Nanos(3_500_000) > tasks[2].deadline);
}

#[test]
fn only_the_last_packet_of_a_message_is_safe_from_preemption() {
    let us = Nanos::from_micros;
    let small = Task::new(us(300), us(1_000), us(1_000), Preemption::None);
    let message = |preemption| Task::new(us(3_000), us(100_000), us(100_000), preemption);
    let packets = [small, message(Preemption::BetweenUnits(us(300)))];
    assert_eq!(times(&packets, us(300))[1], 4_800_000);
    let in_one_piece = [small, message(Preemption::None)];
    assert_eq!(times(&in_one_piece, us(300))[1], 3_600_000);
}

#[test]
fn an_overloaded_level_is_unbounded_and_those_above_are_not() {
    let us = Nanos::from_micros;
    let tasks = [(60, 100), (30, 100), (20, 100)]
        .map(|(cost, period)| Task::new(us(cost), us(period), us(period), Preemption::Full));
    let fp = fixed_priority::response_times(&tasks, Nanos::ZERO, Convention::TextBook).unwrap();
    assert_eq!(fp, vec![Some(us(60)), Some(us(90)), None]);
    let edf = edf::response_times(&tasks, Nanos::ZERO, Convention::TextBook).unwrap();
    assert_eq!(edf, vec![None; 3]);
    // Exactly full: the busy period ends with the hyperperiod, unless there is blocking.
    let full = [us(60), us(40)].map(|cost| Task::new(cost, us(100), us(100), Preemption::Full));
    assert_eq!(times(&full, Nanos::ZERO), [60_000, 100_000]);
    let blocked = fixed_priority::response_times(&full, us(1), Convention::TextBook).unwrap();
    assert_eq!(blocked, vec![Some(us(61)), None]);
}

#[test]
fn work_outside_the_list_blocks_under_edf_too() {
    let us = Nanos::from_micros;
    let tasks = [(10, 100), (20, 200)]
        .map(|(cost, period)| Task::new(us(cost), us(period), us(period), Preemption::Full));
    let with = edf::response_times(&tasks, us(50), Convention::TextBook).unwrap();
    let without = edf::response_times(&tasks, Nanos::ZERO, Convention::TextBook).unwrap();
    assert_eq!(without, vec![Some(us(10)), Some(us(30))]);
    assert_eq!(with, vec![Some(us(60)), Some(us(80))]);
}

#[test]
fn a_busy_period_beyond_reason_is_an_error_and_not_an_endless_loop() {
    let tasks = [
        Task::new(Nanos(1), Nanos(2), Nanos(2), Preemption::Full),
        Task::new(Nanos(1 << 50), Nanos(1 << 52), Nanos(1 << 52), Preemption::Full),
    ];
    assert_eq!(fixed_priority::response_times(&tasks, Nanos::ZERO, Convention::TextBook), Err(TooLong));
}

#[test]
fn what_would_be_searched_for_years_is_answered_soon() {
    let task = |deadline| Task::new(Nanos(1), Nanos(3), Nanos(deadline), Preemption::Full);
    // Ten thousand million jobs, each searched from the start.
    let long = [task(3), task(3)];
    assert_eq!(edf::response_times(&long, Nanos(5_000_000_000), Convention::TextBook), Err(TooLong));
    // A deadline of a year beside a period of 3 ns: all of that year's jobs compete from the start.
    let year = [task(3), task(31_536_000_000_000_000)];
    assert_eq!(
        edf::response_times(&year, Nanos::ZERO, Convention::TextBook),
        Ok(vec![Some(Nanos(1)), Some(Nanos(2))])
    );
}

/// An answer takes no more than its effort: a step of each task for each evaluation, and not one more.
#[test]
fn effort_is_spent_to_its_end_and_no_further() {
    let mut effort = Effort { steps_left: 5 };
    assert_eq!([5, 1, 0].map(|steps| effort.spend(steps)), [Ok(()), Err(TooLong), Ok(())]);
    // Ten evaluations of three tasks.
    let search = |steps_left| {
        let mut effort = Effort { steps_left };
        let found = fixed_point(Nanos::ZERO, 3, &mut effort, |at| (at + Nanos(1)).min(Nanos(10)));
        found.map(|at| (at, effort.steps_left))
    };
    assert_eq!([29, 30, 31].map(search), [Err(TooLong), Ok((Nanos(10), 0)), Ok((Nanos(10), 1))]);
    // Two evaluations of two tasks.
    let task = |cost| Task::new(Nanos(cost), Nanos(10), Nanos(10), Preemption::Full);
    let busy = |steps_left| busy_period(&[task(1), task(2)], Nanos::ZERO, &mut Effort { steps_left });
    assert_eq!([3, 4].map(busy), [Err(TooLong), Ok(Some(Nanos(3)))]);
}

/// Costs, periods and units are at least a nanosecond; the last segment is what is left behind whole units.
#[test]
fn segments_are_those_of_the_units() {
    for cost in 0..20_u64 {
        for period in [0, 1, 50] {
            let of = |preemption| Task::new(Nanos(cost), Nanos(period), Nanos(9), preemption);
            let least = cost.max(1);
            let rest = |task: Task| (task.segment_max.0, task.segment_last.0);
            assert_eq!(rest(of(Preemption::Full)), (0, 1));
            assert_eq!(rest(of(Preemption::None)), (least, least));
            for unit in 0..25_u64 {
                let task = of(Preemption::BetweenUnits(Nanos(unit)));
                let longest = unit.clamp(1, least);
                assert_eq!(rest(task), (longest, (least - 1) % longest + 1), "{cost} {unit}");
                assert_eq!(
                    (task.cost, task.period, task.deadline),
                    (Nanos(least), Nanos(period.max(1)), Nanos(9))
                );
                assert_eq!(task.jitter, Nanos::ZERO);
            }
        }
    }
}

/// A job in the simulations: when it is released, what it still takes, and whether it counts before others of its time.
#[derive(Clone, Copy)]
struct Job {
    task: usize,
    released: u64,
    due: u64,
    left: u64,
}

/// A busy window, tick by tick: first `blocking`, then of all jobs that are released the one that `first` orders first. Returns
/// each job's end. The last `safe` ticks of a job are not interrupted.
fn run_window(
    mut jobs: Vec<Job>,
    blocking: u64,
    safe: impl Fn(&Job) -> u64,
    first: impl Fn(&Job) -> (u64, u64),
) -> Vec<(Job, u64)> {
    let (mut ended, mut running) = (Vec::new(), None);
    for now in blocking.. {
        let next = running.or_else(|| {
            let ready = jobs.iter().enumerate().filter(|(_, job)| job.released <= now);
            ready.min_by_key(|(_, job)| first(job)).map(|(index, _)| index)
        });
        let Some(index) = next else { return ended };
        jobs[index].left -= 1;
        running = (jobs[index].left <= safe(&jobs[index])).then_some(index);
        if jobs[index].left == 0 {
            ended.push((jobs.swap_remove(index), now + 1));
            running = None;
        }
    }
    ended
}

pub(super) fn tiny_tasks(
    rng: &mut rand::rngs::SmallRng,
    preemption: Preemption,
    jitter_max: u64,
) -> Vec<Task> {
    use rand::Rng;
    let count = rng.random_range(1..4);
    let task = |_| {
        let (cost, period) = (rng.random_range(1..5), rng.random_range(4..14));
        let deadline = rng.random_range(1..18);
        let task = Task::new(Nanos(cost), Nanos(period), Nanos(deadline), preemption);
        task.with_jitter(Nanos(rng.random_range(0..=jitter_max)))
    };
    (0..count).map(task).collect()
}

/// All jobs of a task that are released in a window of `span`: as early, and as close together, as its jitter allows.
fn released(index: usize, task: &Task, span: u64) -> impl Iterator<Item = Job> {
    let Task { cost, period, deadline, jitter, .. } = *task;
    let at = move |job: u64| (period.0 * job).saturating_sub(jitter.0);
    let jobs = (0..).map(at).take_while(move |released| *released < span);
    jobs.map(move |released| Job { task: index, released, due: released + deadline.0, left: cost.0 })
}

/// In sets of a few nanoseconds each tick counts: the response times under fixed priorities are those of the busy window in
/// which all is released at once.
#[test]
fn response_times_are_those_of_the_window_in_which_all_is_released_at_once() {
    use rand::{Rng, SeedableRng};
    let (mut bounded, mut unbounded, mut later_jobs) = (0, 0, 0);
    for seed in 0..3_000 {
        let mut rng = rand::rngs::SmallRng::seed_from_u64(seed);
        let preemption =
            [Preemption::Full, Preemption::None, Preemption::BetweenUnits(Nanos(2))][seed as usize % 3];
        let tasks = tiny_tasks(&mut rng, preemption, 6);
        let blocking = rng.random_range(0..5);
        let found = fixed_priority::response_time(&tasks, Nanos(blocking)).expect("it is short");
        let share: f64 = tasks.iter().map(|task| task.cost.0 as f64 / task.period.0 as f64).sum();
        let Some(found) = found else {
            assert!(share > 1.0 - 1e-9, "seed {seed}");
            unbounded += 1;
            continue;
        };
        let (index, own) = (tasks.len() - 1, tasks[tasks.len() - 1]);
        let jobs = tasks.iter().enumerate().flat_map(|(index, task)| released(index, task, 3_000)).collect();
        // Own jobs are the least urgent: only their last segment is not interrupted.
        let safe = |job: &Job| if job.task == index { own.segment_last.0 - 1 } else { 0 };
        let ended = run_window(jobs, blocking, safe, |job| (u64::from(job.task == index), job.released));
        let responses =
            ended.iter().filter(|(job, _)| job.task == index).map(|(job, end)| end - job.released);
        let responses: Vec<_> = responses.collect();
        assert_eq!(Some(found.0), responses.iter().copied().max(), "seed {seed}: {tasks:?} {blocking}");
        later_jobs += u32::from(responses[0] < found.0);
        bounded += 1;
    }
    assert!(bounded > 1_500 && unbounded > 100 && later_jobs > 20, "{bounded} {unbounded} {later_jobs}");
}

/// Under EDF the worst window of a task is one in which all others are released at once, and its own jobs as close together as
/// they may be before some time: all of these windows are tried.
#[test]
fn response_times_under_edf_are_the_longest_of_all_windows() {
    use rand::{Rng, SeedableRng};
    let mut compared = 0;
    for seed in 0..250 {
        let mut rng = rand::rngs::SmallRng::seed_from_u64(seed);
        let tasks = tiny_tasks(&mut rng, Preemption::Full, 0);
        let blocking = rng.random_range(0..4);
        let found = edf::response_times(&tasks, Nanos(blocking), Convention::TextBook).expect("it is short");
        let whole: u64 = tasks.iter().map(|task| task.period.0).product();
        let used: u64 = tasks.iter().map(|task| task.cost.0 * (whole / task.period.0)).sum();
        if used > whole || used == whole && blocking > 0 {
            assert_eq!(found, vec![None; tasks.len()], "seed {seed}");
            continue;
        }
        // Otherwise the window is too long to try.
        if used * 100 > whole * 85 {
            continue;
        }
        for (index, own) in tasks.iter().enumerate() {
            let mut longest = 0;
            for offset in 0..110 {
                let others = tasks.iter().enumerate().filter(|(other, _)| *other != index);
                let mut jobs: Vec<Job> =
                    others.flat_map(|(other, task)| released(other, task, 230)).collect();
                let Task { cost, period, deadline, .. } = *own;
                jobs.extend(
                    (0..=offset / period.0).map(|back| offset - back * period.0).map(|released| Job {
                        task: index,
                        released,
                        due: released + deadline.0,
                        left: cost.0,
                    }),
                );
                // Of jobs that are due at the same time the task's own is last.
                let ended = run_window(jobs, blocking, |_| 0, |job| (job.due, u64::from(job.task == index)));
                let own = ended.iter().find(|(job, _)| job.task == index && job.released == offset);
                // Without an end in the window, the window had ended before.
                longest = longest.max(own.map_or(0, |(_, end)| end - offset));
            }
            assert_eq!(found[index], Some(Nanos(longest)), "seed {seed}, task {index}: {tasks:?} {blocking}");
            compared += 1;
        }
    }
    assert!(compared > 150, "{compared}");
}
