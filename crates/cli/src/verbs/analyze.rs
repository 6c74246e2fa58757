//! `punctual analyze`: worst-case response times of a task set.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use punctual_analysis::Nanos;
use punctual_analysis::rta::{Convention, Preemption, Task, edf, fixed_priority};
use serde::{Deserialize, Serialize};

use crate::output::{Outcome, Output, toml_mistake};

const EXAMPLE: &str = "Example:
  $ cat set.toml
  policy = \"np-fp\"        # or np-edf, fp, edf
  blocking_ns = 0          # optional: the longest non-preemptible work outside the list
  [[task]]                 # in priority order for fp and np-fp
  cost_ns = 1000000
  period_ns = 2500000
  deadline_ns = 2500000
  jitter_ns = 0            # optional
  blocks_ns = 1000000      # optional: how long it blocks others; default: its cost if it is not preemptible
  $ punctual analyze set.toml --json

Responses and deadlines count from the release. Blocked work waits until all of the work that blocks it is done.
Exit code 0: analysed; \"schedulable\" is the result. 1: the file cannot be read or is invalid.";

/// Compute worst-case response times of tasks on one resource.
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct Analyze {
    /// File that describes the task set (see below).
    file: PathBuf,
}

impl Analyze {
    /// Reads, analyses and prints.
    ///
    /// # Errors
    /// A file that cannot be read or makes no sense.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let name = self.file.display();
        let text = std::fs::read_to_string(&self.file).with_context(|| name.to_string())?;
        let (set, analysis) = read(&text).map_err(|cause| anyhow::anyhow!("{name}: {cause}"))?;
        output.print(&analysis, |analysis| describe(&set, analysis))?;
        Ok(Outcome::Done)
    }
}

fn read(text: &str) -> Result<(TaskSet, Analysis), String> {
    let set: TaskSet =
        toml::from_str(text).map_err(|error| format!("{}: {HELP}", toml_mistake(&error, text)))?;
    let analysis = analyze(&set)?;
    Ok((set, analysis))
}

/// See [`crate::files::analyze`].
pub fn of_text(text: &str) -> anyhow::Result<String> {
    let (_, analysis) = read(text).map_err(anyhow::Error::msg)?;
    Ok(serde_json::to_string(&analysis)?)
}

/// The reference to the description of a file of tasks.
const HELP: &str = "see 'punctual analyze --help'";

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Policy {
    NpFp,
    NpEdf,
    Fp,
    Edf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskSet {
    policy: Policy,
    #[serde(default)]
    blocking_ns: u64,
    #[serde(default)]
    task: Vec<TaskEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskEntry {
    cost_ns: u64,
    period_ns: u64,
    deadline_ns: u64,
    #[serde(default)]
    jitter_ns: u64,
    blocks_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Analysis {
    tasks: Vec<TaskAnalysis>,
    schedulable: bool,
}

#[derive(Debug, Serialize)]
struct TaskAnalysis {
    response_ns: Option<u64>,
    schedulable: bool,
}

fn analyze(set: &TaskSet) -> Result<Analysis, String> {
    if set.task.is_empty() {
        return Err("no [[task]]: give at least one".into());
    }
    let preemption = match set.policy {
        Policy::NpFp | Policy::NpEdf => Preemption::None,
        Policy::Fp | Policy::Edf => Preemption::Full,
    };
    let numbered = set.task.iter().enumerate();
    let tasks =
        numbered.map(|(index, entry)| task(index, entry, preemption)).collect::<Result<Vec<_>, _>>()?;
    let blocking = Nanos(set.blocking_ns);
    let responses = match set.policy {
        Policy::NpFp | Policy::Fp => fixed_priority::response_times(&tasks, blocking, Convention::TextBook),
        Policy::NpEdf | Policy::Edf => edf::response_times(&tasks, blocking, Convention::TextBook),
    };
    let responses = responses.map_err(|too_long| too_long.to_string())?;
    let judge = |(response, task): (Option<Nanos>, &Task)| TaskAnalysis {
        response_ns: response.map(Nanos::as_u64),
        schedulable: response.is_some_and(|response| response <= task.deadline),
    };
    let tasks: Vec<_> = responses.into_iter().zip(&tasks).map(judge).collect();
    let schedulable = tasks.iter().all(|task| task.schedulable);
    Ok(Analysis { tasks, schedulable })
}

fn task(index: usize, entry: &TaskEntry, preemption: Preemption) -> Result<Task, String> {
    // A year: sums of such spans stay far from the end of the numbers.
    const SPAN_NS_MAX: u64 = 365 * 86_400 * 1_000_000_000;
    let ranges = [
        ("cost_ns", entry.cost_ns, 1),
        ("period_ns", entry.period_ns, 1),
        ("deadline_ns", entry.deadline_ns, 1),
        ("jitter_ns", entry.jitter_ns, 0),
        ("blocks_ns", entry.blocks_ns.unwrap_or(0), 0),
    ];
    for (key, value, least) in ranges {
        if !(least..=SPAN_NS_MAX).contains(&value) {
            return Err(format!("task {}: {key} = {value}: give {least} to {SPAN_NS_MAX}", index + 1));
        }
    }
    let [cost, period, deadline] = [entry.cost_ns, entry.period_ns, entry.deadline_ns].map(Nanos);
    let mut task = Task::new(cost, period, deadline, preemption).with_jitter(Nanos(entry.jitter_ns));
    if let Some(blocks) = entry.blocks_ns {
        task.segment_max = Nanos(blocks);
    }
    Ok(task)
}

fn describe(set: &TaskSet, analysis: &Analysis) -> String {
    let line = |(entry, task): (&TaskEntry, &TaskAnalysis)| {
        let response = task.response_ns.map_or("unbounded".into(), |ns| Nanos(ns).to_string());
        let verdict = if task.schedulable { "ok" } else { "MISSES" };
        format!(
            "response {response:>12}   deadline {:>12}   {verdict}\n",
            Nanos(entry.deadline_ns).to_string()
        )
    };
    let verdict = if analysis.schedulable { "schedulable" } else { "not schedulable" };
    set.task.iter().zip(&analysis.tasks).map(line).collect::<String>() + verdict
}
