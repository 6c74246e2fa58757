//! `punctual sim`: whole networks of real nodes in virtual time, watched by a checker that trusts none.

use std::num::NonZero;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Context;
use clap::{ArgGroup, Args};
use punctual_analysis::{Nanos, Ppm};
use punctual_sim::{
    FaultChoice, FaultKinds, Faults, Options, Report, ScheduleChoice, Topology, TopologyError, run_many,
};
use serde::Serialize;

use crate::output::{Outcome, Output, Usage, toml_mistake};

const EXAMPLE: &str = "Examples:
  $ punctual sim --seeds 0..200                 # 200 drawn networks on all cores
  $ punctual sim --seed 42 --trace              # one of them, step by step
  $ punctual sim --seeds 0..50 --faults crash,partition
  $ punctual sim --seed 1 --topology net.toml --loss-ppm 1000
  $ cat net.toml
  [[host]]
  name = \"a\"
  [[host]]
  name = \"b\"
  [[link]]
  between = [\"a\", \"b\"]
  rate_mbit = 40               # whatever is left out, the seed decides
  [[channel]]                  # none: channels are drawn as well
  from = \"a\"
  to = \"b\"
  message_bytes_max = 20000
  interval_us = 40000
  deadline_us = 80000
  arrivals = \"greedy\"          # periodic, bursts, synchronous, greedy, sporadic, breaker

Exit code 1 where anything was violated.";

/// Simulate networks of real nodes: no promise may be broken, nothing may be left behind.
#[derive(Args)]
#[command(after_help = EXAMPLE, group = ArgGroup::new("which").required(true))]
pub struct Sim {
    /// One seed; the same seed gives the same run to the bit.
    #[arg(long, group = "which", value_name = "N")]
    seed: Option<u64>,
    /// Every seed from A on, B not included.
    #[arg(long, group = "which", value_name = "A..B", value_parser = range)]
    seeds: Option<Range<u64>>,
    /// Hosts, links and perhaps channels, in TOML or JSON; drawn where missing.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// The timeline of one seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// How long applications send, in virtual milliseconds; drawn where missing.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    traffic_ms: Option<u64>,
    /// Kinds of fault, of which every seed then draws a schedule: all, none, or a list of frames, partition, pause,
    /// crash, clock, heap, lie, flood, forge, version, apps. Without it half of the seeds have one.
    #[arg(long = "faults", value_name = "KINDS")]
    kinds: Option<FaultKinds>,
    #[command(flatten)]
    faults: FaultArgs,
}

/// What happens to frames. With none of these, one seed in four has faults of its own.
#[derive(Args)]
struct FaultArgs {
    /// Frames in a million that are lost.
    #[arg(long, value_name = "PPM", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    loss_ppm: Option<u32>,
    /// Frames in a million that arrive twice.
    #[arg(long, value_name = "PPM", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    duplicate_ppm: Option<u32>,
    /// Frames in a million that are up to --delay-max-ms late and overtaken.
    #[arg(long, value_name = "PPM", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    delay_ppm: Option<u32>,
    /// See --delay-ppm.
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    delay_max_ms: u64,
    /// Frames in a million that are corrupted, and dropped for their checksum.
    #[arg(long, value_name = "PPM", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    corrupt_ppm: Option<u32>,
}

impl FaultArgs {
    fn choice(&self) -> FaultChoice {
        let given = [self.loss_ppm, self.duplicate_ppm, self.delay_ppm, self.corrupt_ppm];
        if given.iter().all(Option::is_none) {
            return FaultChoice::Drawn;
        }
        let [loss, duplicate, delay, corrupt] = given.map(|ppm| Ppm(ppm.unwrap_or(0)));
        let delay_max = Nanos::from_millis(self.delay_max_ms);
        FaultChoice::These(Faults { loss, duplicate, delay, delay_max, corrupt })
    }
}

#[derive(Serialize)]
struct Printed {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace: Vec<String>,
}

impl Sim {
    /// Runs the seeds and prints what was found.
    ///
    /// # Errors
    /// Where the topology cannot be read or used.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let seeds = match (self.seed, &self.seeds) {
            (Some(seed), _) => seed..seed.checked_add(1).ok_or_else(|| Usage("--seed: too large".into()))?,
            (None, Some(seeds)) => seeds.clone(),
            (None, None) => return Err(Usage("give --seed N or --seeds A..B".into()).into()),
        };
        let options = Options {
            topology: self.topology.as_deref().map(read).transpose()?,
            faults: self.faults.choice(),
            traffic: self.traffic_ms.map(Nanos::from_millis),
            trace: self.trace,
            ..Options::default()
        };
        let options = match self.kinds {
            Some(kinds) if options.faults == FaultChoice::Drawn => options.with_faults(kinds),
            Some(kinds) => Options { schedule: ScheduleChoice::Kinds(kinds), ..options },
            None => options,
        };
        let progress = Progress::new(&seeds, output);
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let outcomes = run_many(seeds, &options, threads, |outcome| {
            progress.step(outcome.messages, outcome.violations_total);
        })?;
        progress.end();
        let report = Report::of(&outcomes);
        let holds = report.holds();
        let trace = outcomes.into_iter().flat_map(|outcome| outcome.trace).collect();
        output.print(&Printed { report, trace }, describe)?;
        Ok(Outcome::from_ok(holds))
    }
}

fn read(file: &std::path::Path) -> anyhow::Result<Topology> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| name.to_string())?;
    Topology::parse(&text).map_err(|error| {
        let cause = match &error {
            TopologyError::Syntax(error) => toml_mistake(error, &text),
            other => other.to_string(),
        };
        anyhow::anyhow!("{name}: {cause}: see 'punctual sim --help'")
    })
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("\"{text}\" is no range like 0..200");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
    if from < to { Ok(from..to) } else { Err(format!("\"{text}\" is empty: give a range like 0..200")) }
}

fn describe(printed: &Printed) -> String {
    let Printed { report, trace } = printed;
    let mut lines = trace.clone();
    lines.extend(report.violations.iter().map(|v| format!("violation, seed {}: {}", v.seed, v.what)));
    lines.push(format!(
        "{} seeds: {} channels admitted, {} refused; {} messages, {} late, {} touched by faults; \
         {} best-effort messages; {} packets",
        report.seeds,
        report.admitted,
        report.refused,
        report.messages,
        report.misses,
        report.excused,
        report.best_effort,
        report.packets
    ));
    lines.push(format!("slowest message: {} % of its deadline", report.tightness_percent));
    let verdict = if report.holds() { "every promise held" } else { "VIOLATED" };
    lines.push(format!("{verdict}: {} violations; digest {}", report.violations_total, report.digest));
    lines.join("\n")
}

/// Says on standard error how far it is.
struct Progress {
    shown: bool,
    seeds: u64,
    done: AtomicU64,
    messages: AtomicU64,
    violations: AtomicU64,
}

impl Progress {
    fn new(seeds: &Range<u64>, output: Output) -> Self {
        let seeds = seeds.end - seeds.start;
        let zero = || AtomicU64::new(0);
        Self {
            shown: seeds > 1 && output.is_live(),
            seeds,
            done: zero(),
            messages: zero(),
            violations: zero(),
        }
    }

    fn step(&self, messages: u64, violations: u64) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let messages = self.messages.fetch_add(messages, Ordering::Relaxed) + messages;
        let violations = self.violations.fetch_add(violations, Ordering::Relaxed) + violations;
        if self.shown {
            eprint!("\r{done} of {} seeds, {messages} messages, {violations} violations ", self.seeds);
        }
    }

    fn end(&self) {
        if self.shown {
            eprintln!();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(range("0..200"), Ok(0..200));
        for wrong in ["", "5", "5..", "..5", "5..5", "7..5", "a..b", "0..=5"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn any_fault_that_is_given_replaces_the_drawn_ones() {
        let none = FaultArgs {
            loss_ppm: None,
            duplicate_ppm: None,
            delay_ppm: None,
            delay_max_ms: 10,
            corrupt_ppm: None,
        };
        assert_eq!(none.choice(), FaultChoice::Drawn);
        let given = FaultArgs { loss_ppm: Some(0), ..none };
        let FaultChoice::These(faults) = given.choice() else { panic!("drawn") };
        assert!(faults.is_none());
    }
}
