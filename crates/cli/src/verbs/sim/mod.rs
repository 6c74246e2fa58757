//! `punctual sim`: whole networks of real nodes in virtual time, watched by a checker that trusts none.

mod campaign;
mod minimise;
mod printed;
mod progress;

use std::fs::File;
use std::io::BufWriter;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Instant;

use anyhow::Context;
use clap::{ArgGroup, Args, ValueEnum};
use punctual_analysis::Nanos;
use punctual_sim::case::{Case, Cases, Frames};
use punctual_sim::trace::chrome;
use punctual_sim::{
    Class, FaultChoice, FaultKind, FaultKinds, Options, Report, SizeChoice, Timeline, Topology,
    TopologyError, Traffic, run_many,
};

use self::printed::{Printed, describe};
use self::progress::Progress;
use crate::output::{Outcome, Output, Usage, toml_mistake};

const EXAMPLE: &str = "Examples:
  $ punctual sim --seeds 0..200                 # 200 drawn networks on all cores
  $ punctual sim --replay 42 --trace            # one of them, step by step
  $ punctual sim --replay 42 --trace-file t.json   # for ui.perfetto.dev
  $ punctual sim --campaign campaign.json --seeds 0..10000 --traffic-ms 4000
  $ punctual sim --minimise 42                  # the smallest plan that goes wrong as seed 42 does
  $ punctual sim --case target/sim/seed-42.toml --trace
  $ punctual sim --seed 1 --size small --uptime-h 24
  $ punctual sim --seed 1 --size small --drift-h 2     # clocks 200 ppm apart, full rate
  $ punctual sim --seeds 0..100 --class soft    # soft channels beside hard ones
  $ punctual sim --seeds 0..100 --faults crash,partition --size medium
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
#[command(after_help = EXAMPLE, group = ArgGroup::new("which").required(true).multiple(true))]
pub struct Sim {
    /// One seed; the same seed gives the same run to the bit.
    #[arg(long, group = "which", value_name = "N", visible_alias = "replay")]
    seed: Option<u64>,
    /// Every seed from A on, B not included; of a campaign 0..10000 unless given.
    #[arg(long, group = "which", value_name = "A..B", value_parser = range, conflicts_with = "seed")]
    seeds: Option<Range<u64>>,
    /// Adds the seeds that are not in FILE yet to what it holds; Ctrl-C at any time, the same command goes on.
    #[arg(long, group = "which", value_name = "FILE", conflicts_with_all = ["seed", "trace"])]
    campaign: Option<PathBuf>,
    /// Cuts the plan of seed N down to what still shows its first violation, and writes that as a case.
    #[arg(long, group = "which", value_name = "N", conflicts_with_all = ["seed", "seeds", "campaign", "trace"])]
    minimise: Option<u64>,
    /// Runs the cases of FILE: what --minimise has written, or one of tests/seeds.
    #[arg(long, group = "which", value_name = "FILE",
          conflicts_with_all = ["seed", "seeds", "campaign", "minimise", "topology", "traffic_ms"])]
    case: Option<PathBuf>,
    /// Where --minimise writes; default: target/sim/seed-N.toml.
    #[arg(long, value_name = "FILE", requires = "minimise")]
    write: Option<PathBuf>,
    /// Hosts, links and perhaps channels, in TOML or JSON; drawn where missing.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// The timeline of one seed, or of a case.
    #[arg(long)]
    trace: bool,
    /// The same as a trace file that ui.perfetto.dev and chrome://tracing show.
    #[arg(long, value_name = "FILE")]
    trace_file: Option<PathBuf>,
    /// How long applications send, in virtual milliseconds; drawn where missing.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    traffic_ms: Option<u64>,
    /// A long run instead: so many virtual hours of little traffic in which channels come and go.
    #[arg(long, value_name = "HOURS", conflicts_with = "traffic_ms", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    uptime_h: Option<u64>,
    /// A long run instead: so many virtual hours of traffic at full rate, between clocks that part by 200 ppm.
    #[arg(long, value_name = "HOURS", conflicts_with_all = ["traffic_ms", "uptime_h"],
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    drift_h: Option<u64>,
    /// What kind of runs; drawn where missing.
    #[arg(long, value_enum)]
    class: Option<ClassName>,
    /// How large drawn networks are.
    #[arg(long, value_enum)]
    size: Option<SizeName>,
    #[command(flatten)]
    faults: FaultArgs,
}

/// Sizes of networks.
#[derive(Clone, Copy, ValueEnum)]
enum SizeName {
    /// 2 to 7 hosts.
    Small,
    /// 8 to 64.
    Medium,
    /// 65 to 200.
    Large,
    /// 201 to 2,000.
    Huge,
}

/// Kinds of runs.
#[derive(Clone, Copy, ValueEnum)]
enum ClassName {
    /// Everything is drawn for itself.
    Mixed,
    /// Every margin is small.
    Tight,
    /// Guaranteed traffic takes all of the links that it may have.
    Crowded,
    /// Soft channels beside hard ones.
    Soft,
}

impl From<ClassName> for Class {
    fn from(name: ClassName) -> Self {
        match name {
            ClassName::Mixed => Self::Mixed,
            ClassName::Tight => Self::Tight,
            ClassName::Crowded => Self::Crowded,
            ClassName::Soft => Self::Soft,
        }
    }
}

impl From<SizeName> for SizeChoice {
    fn from(name: SizeName) -> Self {
        match name {
            SizeName::Small => Self::Small,
            SizeName::Medium => Self::Medium,
            SizeName::Large => Self::Large,
            SizeName::Huge => Self::Huge,
        }
    }
}

/// What happens to frames. With none of these, one seed in four has faults of its own.
#[derive(Args)]
struct FaultArgs {
    /// Kinds of faults, of which every seed then draws some: all, none, or a list of frames, partition, pause, crash,
    /// clock, heap, lie, flood, forge, version, apps. Without it half of the seeds have a schedule of them.
    #[arg(long, value_name = "KINDS", value_parser = FaultKinds::from_str)]
    faults: Option<FaultKinds>,
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
    fn choose(&self, options: Options) -> Options {
        let options = match self.faults {
            Some(kinds) => options.with_faults(kinds),
            None => options,
        };
        match self.frames() {
            Some(frames) => Options { faults: FaultChoice::These(frames.into()), ..options },
            None => options,
        }
    }

    fn frames(&self) -> Option<Frames> {
        let given = [self.loss_ppm, self.duplicate_ppm, self.delay_ppm, self.corrupt_ppm];
        let none = self.faults.is_some_and(|kinds| !kinds.has(FaultKind::Frames));
        if given.iter().all(Option::is_none) && !none {
            return None;
        }
        let [loss_ppm, duplicate_ppm, delay_ppm, corrupt_ppm] = given.map(Option::unwrap_or_default);
        Some(Frames { loss_ppm, duplicate_ppm, delay_ppm, delay_max_ms: self.delay_max_ms, corrupt_ppm })
    }
}

/// One of them says what is to be run.
enum Wanted {
    /// A range of seeds, once.
    Seeds(Range<u64>),
    /// A range of seeds in pieces that add up.
    Campaign(PathBuf, Range<u64>),
    /// The smallest part of a seed's plan that goes wrong.
    Minimum(u64),
    /// What is written in a file.
    Cases(PathBuf),
}

impl Sim {
    /// Runs what is wanted and prints what was found.
    ///
    /// # Errors
    /// Where a file cannot be read, written or used.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let options = self.options()?;
        match self.wanted()? {
            Wanted::Seeds(seeds) => {
                self.check_trace(seeds.end - seeds.start)?;
                let progress = Progress::new(seeds.end - seeds.start, output);
                let threads = cores().min(usize::try_from(seeds.end - seeds.start).unwrap_or(usize::MAX));
                self.report(output, threads, || {
                    let outcomes = run_many(seeds, &options, threads, |outcome| progress.step(outcome))?;
                    progress.end();
                    Ok(outcomes)
                })
            }
            Wanted::Cases(file) => {
                let cases = Cases::read(&file)?.cases;
                self.check_trace(cases.len() as u64)?;
                self.report(output, 1, || {
                    cases.iter().map(|case| Ok(case.run(&file, options.trace)?)).collect()
                })
            }
            Wanted::Campaign(file, seeds) => campaign::run(&file, seeds, options, output),
            Wanted::Minimum(seed) => {
                let file = self.write.clone().unwrap_or(format!("target/sim/seed-{seed}.toml").into());
                minimise::run(self.case_of(seed), &options, &file, output)
            }
        }
    }

    /// A timeline is of one run.
    fn check_trace(&self, runs: u64) -> anyhow::Result<()> {
        let traced = self.trace || self.trace_file.is_some();
        if traced && runs != 1 {
            return Err(
                Usage(format!("--trace and --trace-file show one run, not {runs}: give --replay N")).into()
            );
        }
        Ok(())
    }

    /// What repeats the plan of `seed` under these arguments.
    fn case_of(&self, seed: u64) -> Case {
        let topology = self.topology.as_ref().map(|path| path.canonicalize().unwrap_or(path.clone()));
        Case {
            seed,
            topology,
            size: self.size.map(SizeChoice::from),
            traffic_ms: self.traffic_ms,
            class: self.class.map(Class::from),
            uptime_s: self.uptime_h.map(|hours| hours * 3_600),
            drift_s: self.drift_h.map(|hours| hours * 3_600),
            schedule: self.faults.faults.map(|kinds| kinds.to_string()),
            frames: self.faults.frames(),
            ..Case::default()
        }
    }

    /// The arguments exclude each other.
    fn traffic(&self) -> Traffic {
        let hours = |hours: u64| Nanos::from_secs(hours.saturating_mul(3_600));
        let short = self.traffic_ms.map(|ms| Traffic::For(Nanos::from_millis(ms)));
        let long = self.uptime_h.map(|h| Traffic::Uptime(hours(h)));
        short.or(long).or(self.drift_h.map(|h| Traffic::Drift(hours(h)))).unwrap_or_default()
    }

    fn options(&self) -> anyhow::Result<Options> {
        Ok(self.faults.choose(Options {
            topology: self.topology.as_deref().map(read).transpose()?,
            sizes: self.size.map(SizeChoice::from).unwrap_or_default(),
            traffic: self.traffic(),
            class: self.class.map(Class::from),
            trace: self.trace || self.trace_file.is_some(),
            ..Options::default()
        }))
    }

    fn wanted(&self) -> anyhow::Result<Wanted> {
        let alone =
            |seed: u64| Ok(seed..seed.checked_add(1).ok_or_else(|| Usage("--seed: too large".into()))?);
        if let Some(seed) = self.minimise {
            return Ok(Wanted::Minimum(seed));
        }
        match (self.seed, &self.seeds, &self.campaign, &self.case) {
            (Some(seed), ..) => alone(seed).map(Wanted::Seeds),
            (_, seeds, Some(file), _) => {
                Ok(Wanted::Campaign(file.clone(), seeds.clone().unwrap_or(campaign::SEEDS)))
            }
            (_, Some(seeds), ..) => Ok(Wanted::Seeds(seeds.clone())),
            (.., Some(file)) => Ok(Wanted::Cases(file.clone())),
            _ => {
                Err(Usage("give --seed N, --seeds A..B, --campaign FILE, --case FILE or --minimise N".into())
                    .into())
            }
        }
    }

    fn report(
        &self,
        output: Output,
        threads: usize,
        run: impl FnOnce() -> anyhow::Result<Vec<punctual_sim::Outcome>>,
    ) -> anyhow::Result<Outcome> {
        let began = Instant::now();
        let outcomes = run()?;
        let core_seconds = began.elapsed().as_secs_f64() * threads as f64;
        let report = Report::of(&outcomes);
        let holds = report.holds();
        if let (Some(file), [only]) = (&self.trace_file, &outcomes[..]) {
            write_trace(file, &only.trace)?;
        }
        let traces = outcomes.iter().filter(|_| self.trace);
        let trace = traces.flat_map(|outcome| outcome.trace.lines()).collect();
        output.print(&Printed { report, trace, core_seconds }, describe)?;
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

fn read(file: &Path) -> anyhow::Result<Topology> {
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
            faults: None,
            loss_ppm: None,
            duplicate_ppm: None,
            delay_ppm: None,
            delay_max_ms: 10,
            corrupt_ppm: None,
        };
        assert_eq!(none.choose(Options::default()).faults, FaultChoice::Drawn);
        let given = FaultArgs { loss_ppm: Some(0), ..none };
        let FaultChoice::These(faults) = given.choose(Options::default()).faults else { panic!("drawn") };
        assert!(faults.is_none());
    }
}
