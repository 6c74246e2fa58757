//! `punctual sim --campaign`: many seeds in pieces that add up.

use std::io::{IsTerminal, stderr};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use punctual_experiments::interrupt;
use punctual_sim::Options;
use punctual_sim::campaign::{Campaign, Record};
use serde::Serialize;

use super::cores;
use super::printed::{pace, sums, verdict};
use crate::output::{Outcome, Output};

/// Unless others are asked for.
pub const SEEDS: Range<u64> = 0..10_000;

/// On a terminal, and in a log.
const SHOWN_EVERY: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(60)];

#[derive(Serialize)]
struct Printed<'a> {
    /// Whether every seed that was asked for is done.
    complete: bool,
    /// Seeds that are left.
    left: u64,
    #[serde(flatten)]
    record: &'a Record,
}

/// Goes on with the campaign of `file` until all of `seeds` are done or somebody interrupts.
///
/// # Errors
/// Where the file cannot be used or holds other results.
pub fn run(file: &Path, seeds: Range<u64>, options: Options, output: Output) -> anyhow::Result<Outcome> {
    interrupt::install()?;
    let mut campaign = Campaign::open(file, options)?;
    let progress = Progress::new(campaign.left(seeds.clone()), campaign.record(), output);
    campaign.run(seeds.clone(), cores(), |record| {
        progress.show(record);
        if interrupt::check().is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    progress.end();
    let left = campaign.left(seeds);
    let record = campaign.record();
    output.print(&Printed { complete: left == 0, left, record }, describe)?;
    Ok(match (record.report.holds(), left) {
        (false, _) => Outcome::Refused,
        (true, 0) => Outcome::Done,
        (true, _) => Outcome::Inconclusive,
    })
}

fn describe(printed: &Printed<'_>) -> String {
    let Printed { complete, left, record } = printed;
    let mut lines = sums(&record.report);
    lines.push(pace(&record.report, record.core_seconds));
    lines.push(format!("code {}, {:.0} core-seconds", record.code, record.core_seconds));
    lines.push(verdict(&record.report, &record.digest_sum.to_string()));
    if !complete {
        lines.push(format!("stopped: {left} seeds are left, the same command goes on"));
    }
    lines.join("\n")
}

/// How far this piece is, and how long it will take.
struct Progress {
    every: Option<Duration>,
    began: Instant,
    /// Seeds of this piece, and of those before it.
    left: u64,
    before: u64,
    shown: Mutex<Instant>,
}

impl Progress {
    fn new(left: u64, record: &Record, output: Output) -> Self {
        let every = SHOWN_EVERY[usize::from(!stderr().is_terminal())];
        let now = Instant::now();
        Self {
            every: (!output.json).then_some(every),
            began: now,
            left,
            before: record.report.seeds,
            shown: Mutex::new(now),
        }
    }

    fn show(&self, record: &Record) {
        let Some(every) = self.every else { return };
        let mut shown = self.shown.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if shown.elapsed() < every {
            return;
        }
        *shown = Instant::now();
        let done = record.report.seeds - self.before;
        let per_seed = self.began.elapsed().as_secs_f64() / done.max(1) as f64;
        let eta = (self.left - done.min(self.left)) as f64 * per_seed;
        let (start, end) = if stderr().is_terminal() { ("\r\x1b[K", "") } else { ("", "\n") };
        eprint!(
            "{start}{done} of {} seeds, {} messages in all, {} violations, {:.0} min {:.0} s to go {end}",
            self.left,
            record.report.messages,
            record.report.violations_total,
            (eta / 60.0).floor(),
            eta % 60.0,
        );
    }

    fn end(&self) {
        if self.every.is_some() && stderr().is_terminal() {
            eprintln!();
        }
    }
}
