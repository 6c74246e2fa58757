//! The command line.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::scope::{self, Scope};

/// What `--help` prints.
pub const HELP: &str = "\
Draws mistakes in the sources, builds all of them once behind a switch, and lets tests and the simulator look for each.

Usage: mutants [OPTIONS]

  --mutants N         how many [default: 300]
  --seed N            what they are drawn with [default: that of the run that was cut off, or drawn]
  --scope NAME        core: crates/analysis and crates/proto; analysis: that alone, by its own tests; checkers: those of
                      crates/sim; rings: crates/ipc/src/ring; tcp: crates/tcp; classifier: the XDP program, as root
                      [default: core]
  --only TEXT[,..]    only in files whose path contains one of these: for work on a few of them, no score of the whole
  --sim-seeds N       seeds of the simulator that look at a mutant that tests do not see [default: 200]
  --survivors         look again at those that survived in the report, and at no other
  --jobs N            mutants at a time [default: one for each processor]
  --at-least PERCENT  how many must be caught for exit code 0 [default: 95]
  --root FOLDER       the workspace [default: .]
  --out FOLDER        where the copy, its build and report.json are [default: ROOT/target/mutants, other scopes than
                      core in a folder of their name there]
  --list              print what would be looked for, build nothing
  --json              print the report as JSON on standard output

Progress goes to standard error. Interrupted, the same command goes on where it was: report.json holds what is done.
Exit code: 0 enough are caught, 1 too few or it failed, 2 wrong usage.

Examples:
  mutants                                   300 of the core, their seed drawn and printed
  mutants --mutants 40 --seed 7 --json      a small sample that can be repeated
  mutants --survivors --sim-seeds 2000      more seeds for those of the report that survived
  mutants --only node/rate --sim-seeds 0    what tests alone see of a few files
  mutants --scope rings --mutants 50        the rings between programs and the processor";

/// The arguments.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// How many mutants.
    pub mutants: usize,
    /// Given, or none.
    pub seed: Option<u64>,
    /// The sources to mutate.
    pub scope: &'static Scope,
    /// Parts of paths; none given: all files.
    pub only: Vec<String>,
    /// Seeds of the simulator.
    pub simulator_seeds: u64,
    /// Only what survived in the report.
    pub survivors: bool,
    /// Mutants at a time.
    pub jobs: usize,
    /// Minimum score in percent.
    pub at_least: f64,
    /// The workspace.
    pub root: PathBuf,
    /// Folder of all output.
    pub out: PathBuf,
    /// The build folder.
    pub build: PathBuf,
    /// Only list, build nothing.
    pub list: bool,
    /// Print the report.
    pub json: bool,
}

/// Parses the command line; `None` if it requests help.
///
/// # Errors
/// The mistake in it.
pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = Arguments {
        mutants: 300,
        seed: None,
        scope: &scope::SCOPES[0],
        only: Vec::new(),
        simulator_seeds: 200,
        survivors: false,
        jobs,
        at_least: 95.0,
        root: PathBuf::from("."),
        out: PathBuf::new(),
        build: PathBuf::new(),
        list: false,
        json: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word}: give a value: see --help"));
        match word.as_str() {
            "--mutants" => found.mutants = number(&word, &value()?)?,
            "--seed" => found.seed = Some(number(&word, &value()?)?),
            "--scope" => {
                let name = value()?;
                found.scope = scope::by_name(&name)
                    .ok_or(format!("--scope {name}: give core, checkers, rings, tcp or classifier"))?;
            }
            "--only" => found.only = value()?.split(',').map(str::to_owned).collect(),
            "--sim-seeds" => found.simulator_seeds = number(&word, &value()?)?,
            "--survivors" => found.survivors = true,
            "--jobs" => found.jobs = number::<usize>(&word, &value()?)?.max(1),
            "--at-least" => found.at_least = number(&word, &value()?)?,
            "--root" => found.root = value()?.into(),
            "--out" => found.out = value()?.into(),
            "--list" => found.list = true,
            "--json" => found.json = true,
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("{word}: no such option: see --help")),
        }
    }
    if found.out.as_os_str().is_empty() {
        // The core's own folder contains those of the other scopes; external packages are built once for all.
        let (all, scope) = (found.root.join("target/mutants"), found.scope.name);
        found.build = all.join("build");
        found.out = if scope == scope::SCOPES[0].name { all } else { all.join(scope) };
    } else {
        found.build = found.out.join("build");
    }
    Ok(Some(found))
}

fn number<T: std::str::FromStr>(word: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{word} {text}: give a number"))
}

/// A seed from the clock: small, since people type it.
pub fn drawn_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let digest = blake3::hash(&now.as_nanos().to_le_bytes());
    u64::from(u16::from_le_bytes([digest.as_bytes()[0], digest.as_bytes()[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Arguments>, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_taken() {
        let line = "--mutants 7 --seed 9 --scope rings --only a,b/c --root /x";
        let found = parsed(line).unwrap().unwrap();
        assert_eq!(found.only, ["a", "b/c"]);
        assert_eq!((found.mutants, found.seed, found.scope.name), (7, Some(9), "rings"));
        assert_eq!(found.out, PathBuf::from("/x/target/mutants/rings"));
        assert_eq!(found.build, PathBuf::from("/x/target/mutants/build"));
    }

    #[test]
    fn mistakes_and_help_are_distinguished() {
        assert!(parsed("--help").unwrap().is_none());
        for wrong in ["--seed", "--seed x", "--scope all", "--what"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
