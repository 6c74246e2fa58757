//! `punctual sim`: whole networks of real nodes in virtual time, watched by a checker that trusts none.

mod arguments;
mod campaign;
mod minimise;
mod printed;
mod progress;

use std::fs::File;
use std::io::BufWriter;
use std::num::NonZero;
use std::path::Path;
use std::thread;

use anyhow::{Context, anyhow};
use punctual_os::clock::process_cpu;
use punctual_sim::case::{CaseError, Cases};
use punctual_sim::resident::{Scales, resident_bytes};
use punctual_sim::trace::chrome;
use punctual_sim::{Options, Report, Timeline, TopologyError, run_many};

pub use self::arguments::Sim;
use self::arguments::Wanted;
use self::printed::{Printed, describe};
use self::progress::Progress;
use crate::output::{Outcome, Output, Usage, toml_mistake};

impl Sim {
    /// Runs the requested seeds and prints the result.
    ///
    /// # Errors
    /// If a file cannot be read, written or used.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let options = self.options().map_err(mistake)?;
        match self.wanted()? {
            Wanted::Seeds(seeds) => {
                let count = seeds.end - seeds.start;
                self.check_trace(count)?;
                let progress = Progress::new(count, output);
                // With several runs at the same time, the memory cannot be attributed to one.
                let memory = (count == 1 && self.is_long()).then_some(resident_bytes as Scales);
                let options = Options { memory, ..options };
                let threads = cores().min(usize::try_from(count).unwrap_or(usize::MAX));
                self.report(output, || {
                    let outcomes = run_many(seeds, &options, threads, |outcome| progress.step(outcome))?;
                    progress.end();
                    Ok(outcomes)
                })
            }
            Wanted::Cases(file) => {
                let cases = Cases::read(&file).map_err(mistake)?.cases;
                self.check_trace(cases.len() as u64)?;
                let run =
                    || cases.iter().map(|case| case.run(&file, options.trace).map_err(mistake)).collect();
                self.report(output, run)
            }
            Wanted::Campaign(file, seeds) => campaign::run(&file, seeds, options, output),
            Wanted::Minimum(seed) => {
                let file = self.write.clone().unwrap_or(format!("target/sim/seed-{seed}.toml").into());
                minimise::run(self.case(seed), &options, &file, output)
            }
        }
    }

    /// A timeline is of one run.
    fn check_trace(&self, runs: u64) -> Result<(), Usage> {
        if self.is_traced() && runs != 1 {
            return Err(Usage(format!("--trace and --trace-file show one run, not {runs}: give --replay N")));
        }
        Ok(())
    }

    fn report(
        &self,
        output: Output,
        run: impl FnOnce() -> anyhow::Result<Vec<punctual_sim::Outcome>>,
    ) -> anyhow::Result<Outcome> {
        let began = process_cpu();
        let outcomes = run()?;
        let core_seconds = (process_cpu() - began).as_secs_f64();
        let report = Report::of(&outcomes);
        let holds = report.holds();
        if let (Some(file), [only]) = (&self.trace_file, &outcomes[..]) {
            write_trace(file, &only.trace)?;
        }
        let traces = outcomes.iter().filter(|_| self.trace);
        let trace = traces.flat_map(|outcome| outcome.trace.lines()).collect();
        let memory = outcomes.iter().flat_map(|outcome| outcome.memory.clone()).collect();
        output.print(&Printed { report, trace, core_seconds, memory }, describe)?;
        Ok(Outcome::from_ok(holds))
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn write_trace(file: &Path, trace: &Timeline) -> anyhow::Result<()> {
    let written = File::create(file).and_then(|file| chrome::write(trace, BufWriter::new(file)));
    written.with_context(|| format!("{}: the trace cannot be written", file.display()))
}

/// The mistake in a file, on one line.
fn mistake(error: CaseError) -> anyhow::Error {
    let (path, cause) = match &error {
        CaseError::Syntax { path, cause, text } => (path, toml_mistake(cause, text)),
        CaseError::Topology { path, cause: TopologyError::Syntax(cause), text } => {
            (path, toml_mistake(cause, text))
        }
        CaseError::Topology { path, cause, .. } => (path, cause.to_string()),
        _ => return error.into(),
    };
    anyhow!("{}: {cause}: see 'punctual sim --help'", path.display())
}
