//! Says on standard error how far it is.

use std::sync::atomic::{AtomicU64, Ordering};

use punctual_sim::Outcome;

use crate::output::Output;

/// Of a range of seeds.
pub struct Progress {
    shown: bool,
    seeds: u64,
    done: AtomicU64,
    messages: AtomicU64,
    violations: AtomicU64,
}

impl Progress {
    /// Of so many seeds.
    pub fn new(seeds: u64, output: Output) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            shown: seeds > 1 && output.is_live(),
            seeds,
            done: zero(),
            messages: zero(),
            violations: zero(),
        }
    }

    /// One more is done.
    pub fn step(&self, outcome: &Outcome) {
        let add = |sum: &AtomicU64, more| sum.fetch_add(more, Ordering::Relaxed) + more;
        let done = add(&self.done, 1);
        let messages = add(&self.messages, outcome.messages);
        let violations = add(&self.violations, outcome.violations_total);
        if self.shown {
            eprint!("\r{done} of {} seeds, {messages} messages, {violations} violations ", self.seeds);
        }
    }

    /// All are.
    pub fn end(&self) {
        if self.shown {
            eprintln!();
        }
    }
}
