//! `punctual bench`: the papers' figures on this machine.

use std::path::PathBuf;

use clap::Args;
use punctual_experiments::experiments::{EXPERIMENTS, Experiment, find};

use crate::output::{Outcome, Output, Usage, table};

/// Repeat a figure of the papers, beside plain kernel sockets; `list` shows which there are.
#[derive(Args)]
#[command(
    after_help = "Example: sudo punctual bench clips-isolation --quick\nPlots and JSON go to target/bench/"
)]
pub struct Bench {
    /// Its name, or `list`.
    name: String,
    /// Fewer points and shorter slices: done within 60 s.
    #[arg(long)]
    quick: bool,
    /// Where the plot, the JSON and the daemons' logs go.
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    directory: PathBuf,
}

impl Bench {
    /// Runs it.
    ///
    /// # Errors
    /// Where there is no such experiment, no test bed can be set up, or a stream breaks.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        if self.name == "list" {
            output.print(&EXPERIMENTS, |all| list(all))?;
            return Ok(Outcome::Done);
        }
        let experiment = find(&self.name).map_err(|error| Usage(error.to_string()))?;
        let (status, report) = experiment.run(self.quick, self.directory, output.is_live())?;
        if let Some(report) = report {
            output.print(&report, |report| report.text())?;
        }
        Ok(outcome(status))
    }
}

/// How an exit status of an experiment is told.
pub fn outcome(status: i32) -> Outcome {
    match status {
        0 => Outcome::Done,
        3 => Outcome::Inconclusive,
        _ => Outcome::Refused,
    }
}

fn list(experiments: &[Experiment]) -> String {
    let row = |one: &Experiment| vec![one.name.to_owned(), one.paper.to_owned(), one.about.to_owned()];
    table(&["name", "paper", "shows"], &experiments.iter().map(row).collect::<Vec<_>>())
}
