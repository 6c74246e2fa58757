//! `punctual`: the command line. One verb a file in `verbs`; what they share is in `output` and `values`.
//!
//! To add a verb: a module in `verbs`, a variant of [`Verb`], a line in [`Verb::run`].
//! Exit codes (stable): 0 done, 1 refused or failed, 2 wrong usage, 3 inconclusive.

mod output;
mod values;
mod verbs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::{Outcome, Output, Usage};

/// Guaranteed channels for programs on ordinary Linux hosts.
#[derive(Parser)]
#[command(name = "punctual", version, about, max_term_width = 110)]
struct Cli {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {}

impl Verb {
    fn run(self, _output: Output) -> anyhow::Result<Outcome> {
        match self {}
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.verb.run(Output { json: cli.json }) {
        Ok(outcome) => outcome.exit_code(),
        Err(error) => {
            eprintln!("punctual: {error:#}");
            if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::from(1) }
        }
    }
}
