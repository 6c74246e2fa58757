//! One run from the drawing to the score.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::arguments::{Arguments, drawn_seed};
use crate::build::{self, Places};
use crate::equivalent::Equivalents;
use crate::judge::{self, Known};
use crate::mutant::Mutant;
use crate::process::Program;
use crate::report::{Outcome, Report, Row, Run};
use crate::sample;
use crate::tree::Originals;
use crate::{Error, classifier};

/// Percentage of a sample above which too many mutants are equivalent for a meaningful score.
const EQUIVALENT_PERCENT_MAX: f64 = 10.0;

/// Runs the whole procedure; returns whether enough mutants are caught.
///
/// # Errors
/// If the copy cannot be written, built or run.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let root = arguments.root.canonicalize().map_err(Error::of(&arguments.root))?;
    std::fs::create_dir_all(&arguments.out).map_err(Error::of(&arguments.out))?;
    let out = arguments.out.canonicalize().map_err(Error::of(&arguments.out))?;
    let originals = Originals::read(&root)?;
    let path = out.join("report.json");
    let mut report = begin(arguments, &path, originals.digest())?;
    let all = sample::draw(&root, arguments.scope, report.run.seed)?;
    let drawn = sample::only(&all, &arguments.only);
    report.sites = drawn.len();
    eprintln!(
        "seed {}: {} of {} mistakes that can be made ({}{})",
        report.run.seed,
        report.run.mutants_wanted,
        report.sites,
        report.run.scope,
        report.run.of_files()
    );
    if arguments.list {
        drawn.iter().take(report.run.mutants_wanted).for_each(|mutant| {
            println!("{}", Row::of(mutant, 0, Outcome::Survived, None, 0).place());
        });
        return Ok(true);
    }
    let build = std::path::absolute(&arguments.build).map_err(Error::of(&arguments.build))?;
    let session = Session { build, arguments, root, out, path };
    session.name_stale(&all)?;
    session.look_for_all(&originals, &drawn, &mut report)?;
    Ok(session.finish(&report))
}

/// The report to continue, or a new one.
fn begin(arguments: &Arguments, path: &Path, digest: String) -> Result<Report, Error> {
    let run = |seed| Run {
        scope: arguments.scope.name.into(),
        seed,
        mutants_wanted: arguments.mutants,
        only: arguments.only.clone(),
        simulator_seeds: arguments.simulator_seeds,
        sources_digest: digest.clone(),
    };
    let Some(mut earlier) = Report::read(path)? else {
        return Ok(Report::new(run(arguments.seed.unwrap_or_else(drawn_seed)), 0));
    };
    let same_seed = arguments.seed.is_none_or(|seed| seed == earlier.run.seed);
    if arguments.survivors && same_seed && earlier.run.sources_digest == digest {
        earlier.mutants.retain(|row| {
            row.outcome != Outcome::Survived || row.simulator_seeds >= arguments.simulator_seeds
        });
        earlier.run.simulator_seeds = arguments.simulator_seeds;
        earlier.complete = false;
        return Ok(earlier);
    }
    let goes_on = arguments.seed.is_some() || !earlier.complete;
    if goes_on && earlier.run == run(arguments.seed.unwrap_or(earlier.run.seed)) {
        return Ok(earlier);
    }
    if arguments.survivors {
        return Err(Error::Stale(path.into()));
    }
    eprintln!("{}: of another run or of other sources: begins anew", path.display());
    Ok(Report::new(run(arguments.seed.unwrap_or_else(drawn_seed)), 0))
}

struct Session<'a> {
    arguments: &'a Arguments,
    root: PathBuf,
    out: PathBuf,
    build: PathBuf,
    path: PathBuf,
}

impl Session<'_> {
    fn equivalents(&self) -> Result<Equivalents, Error> {
        Equivalents::read(&self.root.join("mutants/equivalent.toml"))
    }

    /// Prints which entries of the list refer to text that no longer exists.
    fn name_stale(&self, all: &[Mutant]) -> Result<(), Error> {
        let scope = self.arguments.scope;
        let folders: Vec<&str> = match scope.classifier {
            true => vec![classifier::SOURCE],
            false => scope.sources.iter().map(|sources| sources.folder).collect(),
        };
        for stale in self.equivalents()?.stale(all, &folders) {
            eprintln!(
                "mutants/equivalent.toml: {} {}: {}: no such place any more",
                stale.file, stale.function, stale.original
            );
        }
        Ok(())
    }

    fn look_for_all(
        &self,
        originals: &Originals,
        drawn: &[Mutant],
        report: &mut Report,
    ) -> Result<(), Error> {
        let scope = self.arguments.scope;
        let equivalents = self.equivalents()?;
        let places = Places { tree: self.out.join("tree"), target: self.build.clone() };
        let (chosen, unbuildable) =
            build::choose(originals, &places, scope, drawn, report.run.mutants_wanted, &report.unbuildable)?;
        report.unbuildable = unbuildable;
        report.write(&self.path)?;
        report.reconsider(drawn, &equivalents);
        let done: BTreeSet<u32> = report.mutants.iter().map(|row| row.id).collect();
        let mut left: Vec<&Mutant> = Vec::new();
        for mutant in chosen.into_iter().filter(|mutant| !done.contains(&mutant.id)) {
            match equivalents.of(mutant).filter(|entry| entry.counts()) {
                Some(entry) => {
                    report.add(Row::of(mutant, 0, Outcome::Equivalent, Some(entry.reason.clone()), 0))
                }
                None => left.push(mutant),
            }
        }
        if !left.is_empty() {
            let programs = self.learn(&places, report.run.simulator_seeds)?;
            report.programs_cpu_ms = programs
                .iter()
                .map(|known| (known.name().to_owned(), known.cpu_ms))
                .collect::<BTreeMap<_, _>>();
            self.look_for(&left, &programs, report)?;
        }
        report.complete = true;
        report.write(&self.path)
    }

    /// Builds the checking programs and runs each without a mutant. The order: tests, the quickest first; the
    /// simulator; recordings.
    fn learn(&self, places: &Places, seeds: u64) -> Result<Vec<Known>, Error> {
        let began = Instant::now();
        let (tests, simulator) = build::programs(places, self.arguments.scope, seeds)?;
        eprintln!("built in {} s; {} test programs without a mutant", began.elapsed().as_secs(), tests.len());
        let simulators =
            simulator.map(|path| judge::simulators(&path, &places.tree, seeds)).unwrap_or_default();
        let simulators = simulators.into_iter().map(|program| (program, Outcome::CaughtBySimulator));
        let stage = |test: Program| (self.arguments.scope.stage_of(&test), test);
        let tests = tests.into_iter().map(stage).map(|(stage, test)| (test, stage));
        let programs: Vec<_> = tests.chain(simulators).collect();
        let learn = |(program, stage): &(Program, Outcome), scratch: &Path| {
            judge::learn(program.clone(), *stage, !self.arguments.scope.classifier, scratch)
        };
        let mut known = self.each(&programs, learn, |known| {
            eprintln!("{}: {} ms of CPU time", known.name(), known.cpu_ms);
            Ok(())
        })?;
        known.sort_by_key(Known::order);
        Ok(known)
    }

    fn look_for(&self, left: &[&Mutant], programs: &[Known], report: &mut Report) -> Result<(), Error> {
        let wanted = report.mutants.len() + left.len();
        let seeds = report.run.simulator_seeds;
        let report = Mutex::new(report);
        let look = |mutant: &&Mutant, scratch: &Path| {
            let row = judge::look(mutant, programs, scratch)?;
            Ok(Row { simulator_seeds: seeds, ..row })
        };
        self.each(left, look, |row| {
            let mut report = report.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            report.add(row.clone());
            eprintln!("{}/{wanted} {row}", report.mutants.len());
            report.write(&self.path)
        })?;
        Ok(())
    }

    /// Runs `work` on each of `items`, some in parallel; calls `done` with each result.
    fn each<I: Sync, R: Send>(
        &self,
        items: &[I],
        work: impl Fn(&I, &Path) -> Result<R, Error> + Sync,
        done: impl Fn(&R) -> Result<(), Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let worker = |number: usize| -> Result<(), Error> {
            let scratch = self.out.join(format!("scratch-{number}"));
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = work(item, &scratch).and_then(|result| done(&result).map(|()| result));
                // After a failure no worker takes another item.
                let result = result.inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
                results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(result);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let worker = &worker;
            let running: Vec<_> =
                (0..self.arguments.jobs).map(|number| scope.spawn(move || worker(number))).collect();
            running.into_iter().try_for_each(|handle| handle.join().expect("a worker does not panic"))
        })?;
        Ok(results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Prints the result.
    fn finish(&self, report: &Report) -> bool {
        let survivors = report.mutants.iter().filter(|row| row.outcome == Outcome::Survived);
        survivors.for_each(|row| eprintln!("{row}"));
        eprintln!("{report}; {}", self.path.display());
        if self.arguments.json {
            println!("{}", report.json());
        }
        let is_argued_away = report.score.equivalent_percent() > EQUIVALENT_PERCENT_MAX;
        if is_argued_away {
            eprintln!(
                "{:.1} % are called equivalent, more than {EQUIVALENT_PERCENT_MAX} %: that is no score",
                report.score.equivalent_percent()
            );
        }
        report.score.caught_percent >= self.arguments.at_least && !is_argued_away
    }
}
