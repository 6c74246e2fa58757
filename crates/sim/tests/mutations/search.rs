//! Parallel search for the first seed with a violation.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The smallest of `seeds` for which `look` returns a violation, and the violation. A panic counts as one,
/// too.
pub fn first(seeds: Range<u64>, look: impl Fn(u64) -> Option<String> + Sync) -> Option<(u64, String)> {
    let next = AtomicU64::new(seeds.start);
    let end = AtomicU64::new(seeds.end);
    let found = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end.load(Ordering::Relaxed) {
                        return;
                    }
                    let seen = catch_unwind(AssertUnwindSafe(|| look(seed)));
                    let seen = seen.unwrap_or_else(|panic| Some(words_of(panic.as_ref())));
                    if let Some(what) = seen {
                        end.fetch_min(seed, Ordering::Relaxed);
                        found.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((seed, what));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).into_iter().min()
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    format!("panic: {}", words.unwrap_or_default())
}
