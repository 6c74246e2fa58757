//! The results: `report.json`, from which an interrupted run continues.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::equivalent::Equivalents;
use crate::mutant::Mutant;
use crate::operators::Operator;

/// The outcome of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Tests saw it.
    CaughtByTests,
    /// The simulator saw it.
    CaughtBySimulator,
    /// Tests of rules and the simulator did not detect it; an answer differs from the recorded one (ADR 49).
    CaughtByRecordings,
    /// No check detected it.
    Survived,
    /// It is in the list of equivalent ones, with a second reader's name.
    Equivalent,
}

/// One mutant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its number in the order of drawing.
    pub id: u32,
    /// Path from the root of the workspace.
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// The function.
    pub function: String,
    /// The kind of mistake.
    pub operator: Operator,
    /// The original text.
    pub original: String,
    /// The mutated text; empty: nothing.
    pub mutated: String,
    /// Which of several alike in the function.
    pub nth: usize,
    /// Seeds of the simulator that may have run on it.
    pub simulator_seeds: u64,
    /// Number of programs that reach it.
    pub reached_by: usize,
    /// The outcome.
    pub outcome: Outcome,
    /// The test or seed that detected it; or the reason why none can.
    pub by: Option<String>,
    /// User and system time of all programs that ran on it.
    pub cpu_ms: u64,
}

impl Row {
    /// A row of `mutant`.
    pub fn of(mutant: &Mutant, reached_by: usize, outcome: Outcome, by: Option<String>, cpu_ms: u64) -> Self {
        let site = &mutant.site;
        Self {
            id: mutant.id,
            file: mutant.file.clone(),
            line: site.line,
            function: site.function.clone(),
            operator: site.operator,
            original: site.original.clone(),
            mutated: site.mutated.clone(),
            nth: site.nth,
            simulator_seeds: 0,
            reached_by,
            outcome,
            by,
            cpu_ms,
        }
    }
}

impl Row {
    /// Its place and its change, as text.
    pub fn place(&self) -> String {
        let mutated = if self.mutated.is_empty() { "nothing" } else { &self.mutated };
        let place = format!("{}:{} {}", self.file.display(), self.line, self.function);
        format!("{place}: {} -> {}", shortened(&self.original), shortened(mutated))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.outcome {
            Outcome::CaughtByTests | Outcome::CaughtBySimulator | Outcome::CaughtByRecordings => "caught",
            Outcome::Survived if self.reached_by == 0 => "SURVIVED, never reached",
            Outcome::Survived => "SURVIVED",
            Outcome::Equivalent => "equivalent",
        };
        write!(f, "{what}: {}", self.place())?;
        self.by.as_ref().map_or(Ok(()), |by| write!(f, " ({})", shortened(by)))
    }
}

/// Enough of a text for a line.
fn shortened(text: &str) -> String {
    const CHARACTERS: usize = 100;
    let mut short: String = text.chars().take(CHARACTERS).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

/// The parameters of a run: results of a run with other parameters are not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The selection of sources.
    pub scope: String,
    /// The seed with which the mutants are drawn.
    pub seed: u64,
    /// How many were wanted.
    pub mutants_wanted: usize,
    /// Parts of the paths of files that were mutated; none: all of the scope.
    #[serde(default)]
    pub only: Vec<String>,
    /// Seeds of the simulator, from 0.
    pub simulator_seeds: u64,
    /// Digest of all sources, tests included.
    pub sources_digest: String,
}

impl Run {
    /// The argument of `--only` as text.
    pub fn of_files(&self) -> String {
        if self.only.is_empty() { String::new() } else { format!(", only {}", self.only.join(", ")) }
    }
}

/// How many there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Mutants that were checked, equivalent ones included.
    pub mutants: usize,
    /// Mutants among these that tests detected.
    pub caught_by_tests: usize,
    /// Mutants among these that the simulator detected, but no test.
    pub caught_by_simulator: usize,
    /// Mutants among these that only a comparison with recorded answers detected.
    #[serde(default)]
    pub caught_by_recordings: usize,
    /// Mutants among these that no check detected.
    pub survived: usize,
    /// Mutants among these that no check can detect.
    pub equivalent: usize,
    /// Seen of all that can be.
    pub caught_percent: f64,
    /// Seen of all that can be, without recordings: these see that an answer is another, not that it is wrong.
    #[serde(default)]
    pub caught_by_rules_percent: f64,
    /// User and system time of all programs that ran.
    pub core_hours: f64,
}

/// All of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its parameters.
    #[serde(flatten)]
    pub run: Run,
    /// Whether all mutants were checked.
    pub complete: bool,
    /// Mistakes that can be made in the sources.
    pub sites: usize,
    /// Numbers of the drawn mutants that are not valid Rust, and so do not count.
    pub unbuildable: Vec<u32>,
    /// CPU time of each program without a mutant.
    pub programs_cpu_ms: BTreeMap<String, u64>,
    /// The sums.
    pub score: Score,
    /// One for each mutant.
    pub mutants: Vec<Row>,
}

impl Report {
    /// A report without results.
    pub fn new(run: Run, sites: usize) -> Self {
        Self {
            run,
            complete: false,
            sites,
            unbuildable: Vec::new(),
            programs_cpu_ms: BTreeMap::new(),
            score: Score::default(),
            mutants: Vec::new(),
        }
    }

    /// The report in `path`, if there is one.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(path).map_err(Error::of(path))?;
        let report = serde_json::from_str(&text);
        report.map(Some).map_err(|cause| Error::Report { path: path.into(), cause })
    }

    /// Writes it atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let beside = path.with_extension("json.new");
        std::fs::write(&beside, self.json()).map_err(Error::of(&beside))?;
        std::fs::rename(&beside, path).map_err(Error::of(path))
    }

    /// The report as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and numbers")
    }

    /// Removes the rows that the list of equivalents may decide anew; prints which entries of the list were
    /// detected all the same.
    pub fn reconsider(&mut self, drawn: &[Mutant], equivalents: &Equivalents) {
        let listed: Vec<u32> = drawn.iter().filter(|m| equivalents.of(m).is_some()).map(|m| m.id).collect();
        self.mutants.retain(|row| match row.outcome {
            Outcome::Equivalent => false,
            Outcome::Survived => !listed.contains(&row.id),
            Outcome::CaughtByTests | Outcome::CaughtBySimulator | Outcome::CaughtByRecordings => {
                if listed.contains(&row.id) {
                    eprintln!("{row}: it is seen: take it out of mutants/equivalent.toml");
                }
                true
            }
        });
        self.score = self.sums();
    }

    /// Adds the result of one mutant.
    pub fn add(&mut self, row: Row) {
        self.mutants.push(row);
        self.mutants.sort_by_key(|row| row.id);
        self.score = self.sums();
    }

    /// How many there are of each outcome.
    fn sums(&self) -> Score {
        let of = |outcome| self.mutants.iter().filter(|row| row.outcome == outcome).count();
        let [tests, simulator, recordings, survived] = [
            Outcome::CaughtByTests,
            Outcome::CaughtBySimulator,
            Outcome::CaughtByRecordings,
            Outcome::Survived,
        ]
        .map(of);
        let can_be_seen = tests + simulator + recordings + survived;
        let percent = |caught: usize| caught as f64 * 100.0 / can_be_seen.max(1) as f64;
        let cpu_ms: u64 = self.mutants.iter().map(|row| row.cpu_ms).sum();
        Score {
            mutants: self.mutants.len(),
            caught_by_tests: tests,
            caught_by_simulator: simulator,
            caught_by_recordings: recordings,
            survived,
            equivalent: of(Outcome::Equivalent),
            caught_percent: percent(tests + simulator + recordings),
            caught_by_rules_percent: percent(tests + simulator),
            core_hours: cpu_ms as f64 / 3_600_000.0,
        }
    }
}

impl Score {
    /// Percentage of the sample that no check can detect, according to the list of equivalents.
    pub fn equivalent_percent(&self) -> f64 {
        self.equivalent as f64 * 100.0 / self.mutants.max(1) as f64
    }

    /// The interval in percent that contains the score of all mistakes with 95 % confidence (Wilson's
    /// interval): a sample is small.
    pub fn interval_percent(&self) -> (f64, f64) {
        const Z: f64 = 1.96;
        let seen = (self.mutants - self.equivalent).max(1) as f64;
        let share = self.caught_percent / 100.0;
        let (middle, whole) = (share + Z * Z / (2.0 * seen), 1.0 + Z * Z / seen);
        let half = Z * (share * (1.0 - share) / seen + Z * Z / (4.0 * seen * seen)).sqrt();
        (100.0 * (middle - half) / whole, 100.0 * (middle + half) / whole)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { scope, seed, mutants_wanted, .. } = &self.run;
        let (from, to) = self.score.interval_percent();
        let looked = self.mutants.len();
        write!(f, "{scope}{}, seed {seed}, {looked} of {mutants_wanted} mutants: ", self.run.of_files())?;
        write!(f, "{}; 95 % confidence: {from:.1} to {to:.1} %", self.score)
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caught = self.caught_by_tests + self.caught_by_simulator + self.caught_by_recordings;
        write!(
            f,
            "{caught} of {} caught ({:.1} %): {} by tests, {} by the simulator ({:.1} %), {} by recordings alone; {} survived, \
             {} equivalent; {:.2} core-hours",
            self.mutants - self.equivalent,
            self.caught_percent,
            self.caught_by_tests,
            self.caught_by_simulator,
            self.caught_by_rules_percent,
            self.caught_by_recordings,
            self.survived,
            self.equivalent,
            self.core_hours
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: &[Outcome]) -> Report {
        let text = "fn f(a: u64) -> bool { a < 7 && a < 8 && a < 9 && a != 0 && a != 1 }";
        let sites = crate::sites::find(Path::new("f.rs"), text).expect("Rust").sites;
        let run = Run {
            scope: "s".into(),
            seed: 1,
            mutants_wanted: 4,
            only: Vec::new(),
            simulator_seeds: 0,
            sources_digest: "d".into(),
        };
        let mut report = Report::new(run, sites.len());
        for ((site, &outcome), id) in
            sites.into_iter().zip(outcomes).zip(1..=5).collect::<Vec<_>>().into_iter().rev()
        {
            let mutant = Mutant { id, file: "f.rs".into(), site, switch: "on" };
            report.add(Row::of(&mutant, 1, outcome, None, 900_000));
        }
        report
    }

    #[test]
    fn equivalent_ones_count_out() {
        use Outcome::{CaughtByRecordings, CaughtBySimulator, CaughtByTests, Equivalent, Survived};
        let outcomes = [CaughtByTests, CaughtBySimulator, CaughtByRecordings, Survived, Equivalent];
        let score = report(&outcomes).score;
        let expected = Score {
            mutants: 5,
            caught_by_tests: 1,
            caught_by_simulator: 1,
            caught_by_recordings: 1,
            survived: 1,
            equivalent: 1,
            caught_percent: 75.0,
            caught_by_rules_percent: 50.0,
            core_hours: 1.25,
        };
        assert_eq!(score, expected);
        assert_eq!(score.equivalent_percent(), 20.0);
    }

    /// Figures of Wilson's interval for 95 of 100, and for all of 10.
    #[test]
    fn a_small_sample_gives_a_wide_interval() {
        let of = |mutants: usize, caught_by_tests: usize| {
            let caught_percent = caught_by_tests as f64 * 100.0 / mutants as f64;
            let score = Score { mutants, caught_by_tests, caught_percent, ..Score::default() };
            let (from, to) = score.interval_percent();
            ((from * 10.0).round() / 10.0, (to * 10.0).round() / 10.0)
        };
        assert_eq!(of(100, 95), (88.8, 97.8));
        assert_eq!(of(10, 10), (72.2, 100.0));
    }

    #[test]
    fn what_is_written_is_read_in_the_order_of_drawing() {
        let report = report(&[Outcome::Survived, Outcome::CaughtByTests]);
        let path = std::env::temp_dir().join(format!("punctual-mutants-report-{}.json", std::process::id()));
        report.write(&path).expect("is written");
        let read = Report::read(&path).expect("is a report").expect("is there");
        std::fs::remove_file(&path).expect("was there");
        assert_eq!(read.run, report.run);
        assert_eq!(read.score, report.score);
        assert_eq!(read.mutants.iter().map(|row| row.id).collect::<Vec<_>>(), [1, 2]);
    }
}
