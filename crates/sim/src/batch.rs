//! Many seeds on all cores. Each run stays on one thread; only its outcome leaves it.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::options::Options;
use crate::outcome::Outcome;
use crate::scenario::ScenarioError;

/// Runs every seed of `seeds` on `threads` threads (at least one); outcomes in the order of seeds. `progress`
/// is told each one as it is done.
///
/// # Errors
/// Where a topology or configuration cannot be used.
pub fn run_many(
    seeds: Range<u64>,
    options: &Options,
    threads: usize,
    progress: impl Fn(&Outcome) + Sync,
) -> Result<Vec<Outcome>, ScenarioError> {
    let next = AtomicU64::new(seeds.start);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let result = crate::run(seed, options).inspect(&progress);
                    results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((seed, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|&(seed, _)| seed);
    results.into_iter().map(|(_, result)| result).collect()
}
