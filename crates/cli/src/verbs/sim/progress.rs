//! Reports the progress on standard error.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual::counted;
use punctual_sim::Outcome;

use crate::output::Output;

/// Interval on a terminal.
const SHOWN_LIVE: Duration = Duration::from_millis(200);
/// Interval in a log.
const SHOWN_LOGGED: Duration = Duration::from_secs(60);

/// A line that is printed again from time to time: over the former one on a terminal, below it in a log, and
/// not with JSON.
pub struct Ticker {
    every: Option<Duration>,
    is_terminal: bool,
    shown: Mutex<Instant>,
}

impl Ticker {
    /// Makes the ticker of a run that begins.
    pub fn new(output: Output) -> Self {
        let is_terminal = stderr().is_terminal();
        let every = if is_terminal { SHOWN_LIVE } else { SHOWN_LOGGED };
        Self { every: (!output.json).then_some(every), is_terminal, shown: Mutex::new(Instant::now()) }
    }

    /// Prints `line`, if it is time to.
    pub fn show(&self, line: impl FnOnce() -> String) {
        let Some(every) = self.every else { return };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.elapsed() < every {
            return;
        }
        *shown = Instant::now();
        if self.is_terminal {
            eprint!("\r\x1b[K{} ", line());
        } else {
            eprintln!("{}", line());
        }
    }

    /// Ends the output.
    pub fn end(&self) {
        if self.every.is_some() && self.is_terminal {
            eprintln!();
        }
    }
}

/// How far a range of seeds is.
pub struct Progress {
    ticker: Ticker,
    seeds: u64,
    done: AtomicU64,
    messages: AtomicU64,
    violations: AtomicU64,
}

impl Progress {
    /// Makes the progress of so many seeds.
    pub fn new(seeds: u64, output: Output) -> Self {
        let zero = || AtomicU64::new(0);
        Self { ticker: Ticker::new(output), seeds, done: zero(), messages: zero(), violations: zero() }
    }

    /// One more is done.
    pub fn step(&self, outcome: &Outcome) {
        let add = |sum: &AtomicU64, more| sum.fetch_add(more, Ordering::Relaxed) + more;
        let done = add(&self.done, 1);
        let messages = add(&self.messages, outcome.messages);
        let violations = add(&self.violations, outcome.violations_total);
        let line = || {
            format!(
                "{done} of {}, {}, {}",
                counted(self.seeds, "seed"),
                counted(messages, "message"),
                counted(violations, "violation")
            )
        };
        self.ticker.show(line);
    }

    /// All are.
    pub fn end(&self) {
        self.ticker.end();
    }
}
