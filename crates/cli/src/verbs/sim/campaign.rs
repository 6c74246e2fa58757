//! `punctual sim --campaign`: many seeds in pieces that add up.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::time::Instant;

use punctual::counted;
use punctual_os::interrupt;
use punctual_sim::Options;
use punctual_sim::campaign::{Campaign, Record};
use serde::Serialize;

use super::cores;
use super::printed::{pace, sums, verdict};
use super::progress::Ticker;
use crate::output::{Outcome, Output};

/// Default seeds.
pub const SEEDS: Range<u64> = 0..10_000;

#[derive(Serialize)]
struct Printed<'a> {
    /// Whether every requested seed is done.
    complete: bool,
    /// Seeds that are left.
    left: u64,
    #[serde(flatten)]
    record: &'a Record,
}

/// Continues the campaign of `file` until all of `seeds` are done or the program is interrupted.
///
/// # Errors
/// If the file cannot be used or holds other results.
pub fn run(file: &Path, seeds: Range<u64>, options: Options, output: Output) -> anyhow::Result<Outcome> {
    interrupt::install()?;
    let mut campaign = Campaign::open(file, options)?;
    let ticker = Ticker::new(output);
    let piece = Piece::new(campaign.left(seeds.clone()), campaign.record());
    campaign.run(seeds.clone(), cores(), |record| {
        ticker.show(|| piece.describe(record));
        if interrupt::check().is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    ticker.end();
    let left = campaign.left(seeds);
    let record = campaign.record();
    output.print(&Printed { complete: left == 0, left, record }, describe)?;
    Ok(Outcome::from_ok(record.report.holds() && left == 0))
}

fn describe(printed: &Printed<'_>) -> String {
    let Printed { complete, left, record } = printed;
    let mut lines = sums(&record.report);
    lines.push(pace(&record.report, record.core_seconds));
    lines.push(format!("code {}, {:.0} core-seconds", record.code, record.core_seconds));
    lines.push(verdict(&record.report, &record.digest_sum.to_string()));
    if !complete {
        lines.push(format!("stopped with {} left: the same command goes on", counted(*left, "seed")));
    }
    lines.join("\n")
}

/// The seeds of this run of the program.
struct Piece {
    began: Instant,
    /// The number of seeds.
    seeds: u64,
    /// Number of seeds before them.
    before: u64,
}

impl Piece {
    fn new(seeds: u64, record: &Record) -> Self {
        Self { began: Instant::now(), seeds, before: record.report.seeds }
    }

    /// How far it is, and how long it will take.
    fn describe(&self, record: &Record) -> String {
        let done = record.report.seeds - self.before;
        let per_seed = self.began.elapsed().as_secs_f64() / done.max(1) as f64;
        let eta = self.seeds.saturating_sub(done) as f64 * per_seed;
        format!(
            "{done} of {}, {} in all, {}, {:.0} min {:.0} s to go",
            counted(self.seeds, "seed"),
            counted(record.report.messages, "message"),
            counted(record.report.violations_total, "violation"),
            (eta / 60.0).floor(),
            eta % 60.0,
        )
    }
}
