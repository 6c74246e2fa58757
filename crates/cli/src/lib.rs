//! `punctual`: the command line. Each verb has a file in `verbs`; shared code is in `output` and `values`.
//!
//! To add a verb: a module in `verbs`, a variant of [`Verb`], a line in [`Verb::run`].
//! Exit codes (stable): 0 done, 1 refused or failed, 2 wrong usage, 3 inconclusive. A verb that fails prints
//! one line on standard error, and with `--json` also `{"error": {"message", "exit_code"}}` on standard
//! output, unless the verb's own object (or with `recv` a part of the stream) is there. `call` prints the errors of an IDL
//! file before that line, and with `--json` as `error.diagnostics`.

mod causes;
mod corba;
mod doctor;
mod driver_name;
pub mod files;
mod film;
mod h264;
mod host;
mod late;
mod link_rate;
mod output;
mod pcap;
mod profile;
mod recording;
mod relay;
mod split;
mod sps;
mod stages;
mod units;
mod values;
mod verbs;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use output::{Outcome, Output, Usage};

/// Guaranteed channels for programs on ordinary Linux hosts.
#[derive(Parser)]
#[command(name = "punctual", version, max_term_width = 110)]
struct Cli {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Bench(verbs::bench::Bench),
    Demo(verbs::demo::Demo),
    Analyze(verbs::analyze::Analyze),
    Plan(verbs::plan::Plan),
    Suggest(verbs::suggest::Suggest),
    Sim(verbs::sim::Sim),
    Status(verbs::status::Status),
    Channels(verbs::channels::Channels),
    Connections(verbs::connections::Connections),
    Capture(verbs::capture::Capture),
    Admit(verbs::admit::Admit),
    Send(verbs::send::Send),
    Recv(verbs::recv::Recv),
    Relay(verbs::relay::Relay),
    Doctor(verbs::doctor::Doctor),
    Profile(verbs::profile::Profile),
    Ior(verbs::ior::Ior),
    Call(verbs::call::Call),
    Naming(verbs::naming::Naming),
}

impl Verb {
    fn run(self, output: Output) -> anyhow::Result<Outcome> {
        match self {
            Self::Bench(verb) => verb.run(output),
            Self::Demo(verb) => verb.run(output),
            Self::Analyze(verb) => verb.run(output),
            Self::Plan(verb) => verb.run(output),
            Self::Suggest(verb) => verb.run(output),
            Self::Sim(verb) => verb.run(output),
            Self::Status(verb) => verb.run(output),
            Self::Channels(verb) => verb.run(output),
            Self::Connections(verb) => verb.run(output),
            Self::Capture(verb) => verb.run(output),
            Self::Admit(verb) => verb.run(output),
            Self::Send(verb) => verb.run(output),
            Self::Recv(verb) => verb.run(output),
            Self::Relay(verb) => verb.run(output),
            Self::Doctor(verb) => verb.run(output),
            Self::Profile(verb) => verb.run(output),
            Self::Ior(verb) => verb.run(output),
            Self::Call(verb) => verb.run(output),
            Self::Naming(verb) => verb.run(output),
        }
    }
}

/// Names of all verbs, in the order of the help text.
pub fn verb_names() -> Vec<String> {
    Cli::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect()
}

/// The verb on the command line, for a mistake to point to its help.
fn asked_verb() -> Option<String> {
    let cli = Cli::command();
    let mut arguments = std::env::args_os().skip(1).filter_map(|argument| argument.into_string().ok());
    arguments.find(|argument| cli.find_subcommand(argument).is_some())
}

/// The program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error, asked_verb().as_deref()),
    };
    match cli.verb.run(Output { json: cli.json }) {
        Ok(outcome) => outcome.exit_code(),
        Err(error) => {
            let code = if error.is::<Usage>() { 2 } else { 1 };
            output::failed(&punctual::one_line(error.as_ref()), code, cli.json)
        }
    }
}
