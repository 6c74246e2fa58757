//! The arguments of `punctual sim`. Those that describe a run become a [`Case`], which defines their meaning.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{ArgGroup, Args};
use punctual_sim::case::{Case, CaseError, Frames};
use punctual_sim::{Class, FaultKind, FaultKinds, Options, SizeChoice};
use serde::de::DeserializeOwned;
use serde::de::value::{Error as NameError, StrDeserializer};

use super::campaign;
use crate::output::Usage;

const EXAMPLE: &str = "Examples:
  $ punctual sim --seeds 0..200                 # 200 random networks on all cores
  $ punctual sim --replay 42 --trace            # one of them, step by step
  $ punctual sim --replay 42 --trace-file t.json   # for ui.perfetto.dev
  $ punctual sim --campaign campaign.json --seeds 0..10000 --traffic-ms 4000
  $ punctual sim --minimise 42                  # the smallest plan that fails as seed 42 does
  $ punctual sim --case target/sim/seed-42.toml --trace
  $ punctual sim --seed 1 --size small --uptime-h 24
  $ punctual sim --seed 1 --size small --drift-h 2     # clocks 200 ppm apart, full rate
  $ punctual sim --seeds 0..100 --class soft    # soft channels beside hard ones
  $ punctual sim --seeds 0..100 --tcp           # TCP connections beside channels and over them
  $ punctual sim --seeds 0..100 --faults crash,partition --size medium
  $ punctual sim --seed 1 --topology net.toml --loss-ppm 1000
  $ cat net.toml
  [[host]]
  name = \"a\"
  [[host]]
  name = \"b\"
  [[link]]
  between = [\"a\", \"b\"]
  rate_mbit = 40               # the seed decides what is left out
  [[channel]]                  # left out: the seed decides on channels, too
  from = \"a\"
  to = \"b\"
  message_bytes_max = 20000
  interval_us = 40000
  deadline_us = 80000
  arrivals = \"greedy\"          # periodic, bursts, synchronous, greedy, sporadic, breaker

Exit code 0: nothing was violated. 1: something was violated, or a campaign was stopped before its end.";

/// Simulate networks of real nodes, with faults, and check that every promise holds and that all resources are freed.
#[derive(Args)]
#[command(after_help = EXAMPLE, group = ArgGroup::new("which").required(true).multiple(true))]
pub struct Sim {
    /// Run one seed. The same seed always gives exactly the same run.
    #[arg(long, group = "which", value_name = "N", visible_alias = "replay")]
    seed: Option<u64>,
    /// Run every seed from A up to, but not including, B [default of a campaign: 0..10000].
    #[arg(long, group = "which", value_name = "A..B", value_parser = range, conflicts_with = "seed")]
    seeds: Option<Range<u64>>,
    /// Run the seeds whose results are not in FILE yet, and add their results. Stop it with Ctrl-C at any time; the same
    /// command continues.
    #[arg(long, group = "which", value_name = "FILE", conflicts_with_all = ["seed", "trace", "trace_file"])]
    campaign: Option<PathBuf>,
    /// Cut the plan of seed N down to the smallest that still shows its first violation, and write it as a case.
    #[arg(long, group = "which", value_name = "N",
          conflicts_with_all = ["seed", "seeds", "campaign", "trace", "trace_file"])]
    minimise: Option<u64>,
    /// Run the cases in FILE: a file that --minimise has written, or a file in tests/seeds. A case defines a run completely.
    #[arg(long, group = "which", value_name = "FILE",
          conflicts_with_all = ["seed", "seeds", "campaign", "minimise", "topology", "traffic_ms", "uptime_h",
                                "drift_h", "class", "size", "tcp", "faults", "loss_ppm", "duplicate_ppm", "delay_ppm",
                                "delay_max_ms", "corrupt_ppm"])]
    case: Option<PathBuf>,
    /// File that --minimise writes [default: target/sim/seed-N.toml].
    #[arg(long, value_name = "FILE", requires = "minimise", conflicts_with_all = ["seed", "seeds", "campaign", "case"])]
    pub write: Option<PathBuf>,
    /// File with hosts, links and perhaps channels, in TOML or JSON. The seed decides what the file leaves out.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Print the timeline of one seed or case.
    #[arg(long)]
    pub trace: bool,
    /// Write the timeline as a trace file for ui.perfetto.dev or chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub trace_file: Option<PathBuf>,
    /// How long applications send, in virtual milliseconds [default: the seed decides].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    traffic_ms: Option<u64>,
    /// Make a long run: this many virtual hours of little traffic, in which channels come and go.
    #[arg(long, value_name = "HOURS", conflicts_with = "traffic_ms", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    uptime_h: Option<u64>,
    /// Make a long run: this many virtual hours of traffic at full rate, between clocks that drift apart by 200 ppm.
    #[arg(long, value_name = "HOURS", conflicts_with_all = ["traffic_ms", "uptime_h"],
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    drift_h: Option<u64>,
    /// Kind of runs: mixed (everything is random), tight (every margin is small), crowded (channels reserve as much of the
    /// links as admission allows), soft (soft channels beside hard ones) [default: the seed decides].
    #[arg(long, value_parser = named::<Class>)]
    class: Option<Class>,
    /// Size of random networks: small (2 to 7 hosts), medium (8 to 64), large (65 to 200), huge (201 to 2,000)
    /// [default: the seed decides].
    #[arg(long, value_parser = named::<SizeChoice>)]
    size: Option<SizeChoice>,
    /// Add TCP connections of all classes: between neighbours, and, one in three, over a path that is reserved, one channel
    /// each way, across any number of hosts and often beside a flood. Check every byte, every budget, the bound of each path,
    /// and that everything is given back. In half of the seeds, segments between neighbours are lost, doubled, delayed and
    /// corrupted; faults of frames and hosts meet both kinds.
    #[arg(long, conflicts_with_all = ["uptime_h", "drift_h"])]
    tcp: bool,
    #[command(flatten)]
    faults: FaultArgs,
}

/// What happens to frames. With none of these, one seed in four has faults of its own.
#[derive(Args)]
struct FaultArgs {
    /// Kinds of faults from which every seed chooses some: all, none, or a list of frames, partition, pause, crash,
    /// clock, heap, lie, flood, forge, version, apps. Without this option half of the seeds have such faults.
    #[arg(long, value_name = "KINDS", value_parser = FaultKinds::from_str)]
    faults: Option<FaultKinds>,
    /// How many frames in a million are lost.
    #[arg(long, value_name = "PPM", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    loss_ppm: Option<u32>,
    /// How many frames in a million arrive twice.
    #[arg(long, value_name = "PPM", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    duplicate_ppm: Option<u32>,
    /// How many frames in a million are delayed, by up to --delay-max-ms, so that others overtake them.
    #[arg(long, value_name = "PPM", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    delay_ppm: Option<u32>,
    /// The longest delay for --delay-ppm, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10, requires = "delay_ppm",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    delay_max_ms: u64,
    /// How many frames in a million are corrupted. Their checksum makes the receiver drop them.
    #[arg(long, value_name = "PPM", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    corrupt_ppm: Option<u32>,
}

impl FaultArgs {
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

/// What the arguments request to run.
pub enum Wanted {
    /// A range of seeds, once.
    Seeds(Range<u64>),
    /// A range of seeds in pieces that add up.
    Campaign(PathBuf, Range<u64>),
    /// The smallest part of a seed's plan that goes wrong.
    Minimum(u64),
    /// The cases in a file.
    Cases(PathBuf),
}

impl Sim {
    /// What repeats the plan of `seed` under these arguments.
    pub fn case(&self, seed: u64) -> Case {
        let topology = self.topology.as_ref().map(|path| path.canonicalize().unwrap_or(path.clone()));
        Case {
            seed,
            topology,
            size: self.size,
            traffic_ms: self.traffic_ms,
            class: self.class,
            uptime_s: self.uptime_h.map(|hours| hours * 3_600),
            drift_s: self.drift_h.map(|hours| hours * 3_600),
            schedule: self.faults.faults.map(|kinds| kinds.to_string()),
            frames: self.faults.frames(),
            tcp: self.tcp,
            ..Case::default()
        }
    }

    /// Options for every seed.
    ///
    /// # Errors
    /// If a topology cannot be used.
    pub fn options(&self) -> Result<Options, CaseError> {
        // A path that does not exist stays relative to the current folder, as does an absent one.
        let options = self.case(0).options(Path::new(""))?;
        Ok(Options { trace: self.is_traced(), ..options })
    }

    /// Whether it is a long run.
    pub const fn is_long(&self) -> bool {
        self.uptime_h.is_some()
    }

    /// Whether the timeline is wanted.
    pub const fn is_traced(&self) -> bool {
        self.trace || self.trace_file.is_some()
    }

    /// Returns what the arguments request to run.
    ///
    /// # Errors
    /// If the arguments do not determine it.
    pub fn wanted(&self) -> Result<Wanted, Usage> {
        if let Some(seed) = self.minimise {
            return Ok(Wanted::Minimum(seed));
        }
        match (self.seed, &self.seeds, &self.campaign, &self.case) {
            (Some(seed), ..) => {
                let end = seed.checked_add(1).ok_or_else(|| Usage("--seed: too large".into()))?;
                Ok(Wanted::Seeds(seed..end))
            }
            (_, seeds, Some(file), _) => {
                Ok(Wanted::Campaign(file.clone(), seeds.clone().unwrap_or(campaign::SEEDS)))
            }
            (_, Some(seeds), ..) => Ok(Wanted::Seeds(seeds.clone())),
            (.., Some(file)) => Ok(Wanted::Cases(file.clone())),
            _ => {
                Err(Usage("give --seed N, --seeds A..B, --campaign FILE, --case FILE or --minimise N".into()))
            }
        }
    }
}

/// One of the names that a case may hold.
fn named<T: DeserializeOwned>(text: &str) -> Result<T, NameError> {
    T::deserialize(StrDeserializer::new(text))
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("\"{text}\" is no range like 0..200");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
    if from < to { Ok(from..to) } else { Err(format!("\"{text}\" is empty: give a range like 0..200")) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use punctual_sim::{FaultChoice, Faults, ScheduleChoice};

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        sim: Sim,
    }

    fn parse(line: &str) -> Result<Sim, clap::Error> {
        CommandLine::try_parse_from(["sim"].into_iter().chain(line.split_whitespace())).map(|line| line.sim)
    }

    #[test]
    fn ranges() {
        assert_eq!(range("0..200"), Ok(0..200));
        for wrong in ["", "5", "5..", "..5", "5..5", "7..5", "a..b", "0..=5"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn any_fault_that_is_given_replaces_the_drawn_ones() {
        let options = |line| parse(line).expect("valid").options().expect("no file");
        assert_eq!(options("--seed 1").faults, FaultChoice::Drawn);
        let FaultChoice::These(faults) = options("--seed 1 --loss-ppm 0").faults else { panic!("drawn") };
        assert!(faults.is_none());
        let crashes = options("--seed 1 --faults crash");
        let FaultChoice::These(faults) = crashes.faults else { panic!("drawn") };
        assert!(faults.is_none());
        assert_eq!(crashes.schedule, ScheduleChoice::Kinds("crash".parse().expect("a kind")));
        assert_eq!(options("--seed 1 --faults frames").faults, FaultChoice::Drawn);
        let FaultChoice::These(late) = options("--seed 1 --delay-ppm 5 --delay-max-ms 7").faults else {
            panic!("drawn")
        };
        assert_ne!(late, Faults::NONE);
    }

    #[test]
    fn names_are_those_of_cases() {
        let sim = parse("--seed 1 --class crowded --size huge").expect("valid");
        assert_eq!((sim.class, sim.size), (Some(Class::Crowded), Some(SizeChoice::Huge)));
        let wrong = parse("--seed 1 --size giant").err().expect("refused").to_string();
        assert!(wrong.contains("`giant`") && wrong.contains("`medium`"), "{wrong}");
    }

    /// No given argument is ignored.
    #[test]
    fn what_does_not_go_together_is_refused() {
        for (run, others) in [
            (
                "--campaign c.json",
                "--seed 1|--trace|--trace-file t.json|--minimise 1|--case c.toml|--write w.toml",
            ),
            ("--minimise 1", "--seed 1|--seeds 0..2|--trace|--trace-file t.json|--case c.toml"),
            (
                "--case c.toml",
                "--topology t.toml|--traffic-ms 1|--uptime-h 1|--drift-h 1|--class soft|--size small|--tcp|--faults none|\
                 --loss-ppm 1|--duplicate-ppm 1|--delay-ppm 1|--delay-ppm 1 --delay-max-ms 1|--corrupt-ppm 1|\
                 --seed 1|--seeds 0..2|--write w.toml",
            ),
            ("--seeds 0..2", "--seed 1|--write w.toml"),
            ("--seed 1", "--seeds 0..2|--write w.toml|--delay-max-ms 5"),
        ] {
            assert!(parse(run).is_ok(), "{run}");
            for other in others.split('|') {
                assert!(parse(&format!("{run} {other}")).is_err(), "{run} {other}");
            }
        }
        assert!(parse("--seed 1 --tcp").is_ok() && parse("--seed 1 --tcp --uptime-h 1").is_err());
        assert!(parse("--case c.toml --trace --trace-file t.json").is_ok());
    }
}
