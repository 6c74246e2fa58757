//! Instructions of a message, counted by callgrind: what noise and clocks do not touch.
//!
//! The program runs itself under valgrind, sending messages of 64 B from one bare node to another, once few and once
//! many; the difference is the messages' own: source and sink, drivers and system calls left out.

use std::process::Stdio;

use anyhow::Context;
use punctual_proto::config::RunPolicy;

use super::worker::{self, Work};
use crate::testbed::Nodes;

/// Demand-driven and scheduled.
const POLICIES: [RunPolicy; 2] = [RunPolicy::Fifo, RunPolicy::Edf];
const FEW: u32 = 100;

/// Instructions per message from send to delivery, demand-driven and scheduled; or why they are not counted.
pub fn of_policies(quick: bool) -> Result<[f64; 2], String> {
    let many = if quick { 1_100 } else { 5_100 };
    let mut found = [0.0; 2];
    for (slot, policy) in found.iter_mut().zip(POLICIES) {
        let count = |messages| counted(policy, messages).map_err(|error| format!("{error:#}"));
        *slot = (count(many)? - count(FEW)?) / f64::from(many - FEW);
    }
    Ok(found)
}

fn counted(policy: RunPolicy, messages: u32) -> anyhow::Result<f64> {
    let valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let output = worker::command(&Work::Messages { policy, messages }, &valgrind)?
        .stdout(Stdio::null())
        .output()
        .context("valgrind is not there: apt-get install valgrind")?;
    let printed = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "under valgrind: {}",
        printed.lines().find(|line| line.contains("rror")).unwrap_or("it failed")
    );
    // "==123== Collected : 4711"
    let line = printed.lines().find_map(|line| line.split_once("Collected :"));
    let count = line.and_then(|(_, count)| count.trim().parse().ok());
    count.context("callgrind did not print what it counted")
}

/// The counted work. It uses no clock, no thread and no driver, because valgrind supports neither our clock
/// nor our waiting.
///
/// # Errors
/// If an engine does not start or a message is lost.
pub fn work(policy: RunPolicy, messages: u32) -> anyhow::Result<()> {
    let mut nodes = Nodes::open(policy, 1, 64)?;
    for _ in 0..messages {
        nodes.offer();
        nodes.exchange();
    }
    anyhow::ensure!(nodes.delivered() == u64::from(messages), "messages were lost on a null device");
    Ok(())
}
