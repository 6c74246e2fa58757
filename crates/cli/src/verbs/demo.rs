//! `punctual demo`: a film, a control loop and a flood over three hosts.

use std::path::PathBuf;

use clap::Args;
use punctual_experiments::demo::{self, DemoOptions};

use crate::film;
use crate::output::{Outcome, Output};

/// Run the main example: a film, a control loop and a flood over three hosts in network namespaces.
///
/// The same traffic also runs through kernel sockets, plain and with priorities set by hand. Guarantees need root; without
/// it the demo runs degraded and reports that. It takes about 40 s.
#[derive(Args)]
#[command(after_help = "Example: sudo punctual demo\nThen open target/demo/report.html")]
pub struct Demo {
    /// Directory for report.html, report.json and the daemons' logs.
    #[arg(long, default_value = "target/demo", value_name = "DIR")]
    directory: PathBuf,
}

impl Demo {
    /// Runs it.
    ///
    /// # Errors
    /// If the hosts cannot be set up or a stream breaks.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let options =
            DemoOptions { directory: self.directory.clone(), film: film::load()?, show: !output.json };
        let (status, outcome) = demo::run(&options)?;
        if let Some(outcome) = outcome {
            let report = self.directory.join("report.html");
            output.print(&outcome, |outcome| {
                format!("{}\n{}\nreport: {}", outcome.table(), outcome.summary, report.display())
            })?;
        }
        Ok(super::bench::outcome(status))
    }
}
