//! Runs this program again for work that needs a process of its own: for separate memory, or under valgrind.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use punctual_proto::config::RunPolicy;
use punctual_sim::scale::Size;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Holds the [`Work`] of a worker, as JSON.
pub(super) const VARIABLE: &str = "PUNCTUAL_BENCH_WORK";

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
    /// Hold idle connections of the kernel; says when it has them, and ends with its input.
    Connect {
        /// Their peer.
        to: SocketAddr,
        /// Number of connections.
        count: u32,
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
    serde_json::from_slice(&output.stdout).context("the measuring process printed something else")
}
