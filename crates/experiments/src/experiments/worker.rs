//! Runs this program again for work that needs a process of its own: for separate memory, or under valgrind.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use punctual_os::clock::thread_cpu;
use punctual_proto::config::RunPolicy;
use punctual_sim::scale::{self, Size};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::instructions;

/// Holds the [`Work`] of a worker, as JSON.
const VARIABLE: &str = "PUNCTUAL_BENCH_WORK";

/// The work of a worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Measure a network; prints the result.
    Network(Size),
    /// Pass messages from node to node.
    Messages {
        /// How handlers are ordered.
        policy: RunPolicy,
        /// Number of messages.
        messages: u32,
    },
}

/// Starts a worker, as an argument of the program and its flags in `under`.
///
/// # Errors
/// If this program's own path is unknown.
pub fn command(work: &Work, under: &[&str]) -> anyhow::Result<Command> {
    let own = std::env::current_exe().context("this program cannot be started again")?;
    let mut command = match under {
        [] => Command::new(own),
        [program, flags @ ..] => {
            let mut command = Command::new(program);
            command.args(flags).arg(own);
            command
        }
    };
    command.args(["bench", "list"]).env(VARIABLE, serde_json::to_string(work)?).stdin(Stdio::null());
    Ok(command)
}

/// The result of a worker.
///
/// # Errors
/// If it fails, or prints something else.
pub fn outcome_of<T: DeserializeOwned>(work: &Work) -> anyhow::Result<T> {
    let output = command(work, &[])?.stderr(Stdio::inherit()).output();
    let output = output.context("this program cannot be started again")?;
    ensure!(output.status.success(), "the measuring process failed");
    serde_json::from_slice(&output.stdout).context("the measuring process says something else")
}

/// Does the work of a worker if this is one; whether it was.
///
/// # Errors
/// If the work fails.
pub fn work_if_asked() -> anyhow::Result<bool> {
    let Ok(asked) = std::env::var(VARIABLE) else { return Ok(false) };
    match serde_json::from_str(&asked).context(VARIABLE)? {
        Work::Network(size) => println!("{}", serde_json::to_string(&scale::measure(size, thread_cpu)?)?),
        Work::Messages { policy, messages } => instructions::work(policy, messages)?,
    }
    Ok(true)
}
