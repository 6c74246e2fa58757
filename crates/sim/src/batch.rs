//! Many seeds on all cores. Each run stays on one thread; only its outcome leaves it.

use std::any::Any;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use crate::options::Options;
use crate::outcome::{Outcome, Violation};
use crate::scenario::ScenarioError;

/// Runs every seed of `seeds` on `threads` threads (at least one); outcomes in the order of seeds. `progress`
/// is called with each outcome.
///
/// # Errors
/// If a topology or configuration cannot be used.
pub fn run_many(
    seeds: Range<u64>,
    options: &Options,
    threads: usize,
    progress: impl Fn(&Outcome) + Sync,
) -> Result<Vec<Outcome>, ScenarioError> {
    let results = Mutex::new(Vec::new());
    run_each(seeds, options, threads, |seed, result| {
        let result = result.inspect(&progress);
        let unusable = result.is_err();
        lock(&results).push((seed, result));
        if unusable { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|&(seed, _)| seed);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The same; `done` takes each outcome on the thread that ran it. After it breaks no further seed begins.
pub fn run_each(
    seeds: impl IntoIterator<Item = u64, IntoIter: Send>,
    options: &Options,
    threads: usize,
    done: impl Fn(u64, Result<Outcome, ScenarioError>) -> ControlFlow<()> + Sync,
) {
    let left = Mutex::new(Some(seeds.into_iter()));
    let next = || lock(&left).as_mut()?.next();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    if done(seed, caught(seed, || crate::run(seed, options))).is_break() {
                        *lock(&left) = None;
                    }
                }
            });
        }
    });
}

/// Runs `seed` with any setup; a panic in it is a violation like any other.
pub(crate) fn caught(
    seed: u64,
    run: impl FnOnce() -> Result<Outcome, ScenarioError>,
) -> Result<Outcome, ScenarioError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let what = format!("panicked: {}", words(&*panic));
        let violations = vec![Violation { seed, what }];
        Ok(Outcome { seed, violations, violations_total: 1, ..Outcome::default() })
    })
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words")
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
