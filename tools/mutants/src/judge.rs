//! Runs the checks on one mutant after the other: tests first, the quickest first, then the simulator, then
//! recordings.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Error;
use crate::mutant::Mutant;
use crate::process::{Program, run};
use crate::report::{Outcome, Row};

/// How much longer than without a mutant a program may run, in CPU time: times this, and these seconds.
const SLOWER_MAX: u64 = 4;
const SECONDS_MORE: u64 = 3;
/// Seeds that one run of the simulator checks.
const SEEDS_AT_ONCE: u64 = 10;
/// Time limit of a program whose time is not known yet, in CPU seconds.
const UNKNOWN_CPU_SECONDS: u64 = 3_600;

/// A program, and its behaviour without a mutant.
#[derive(Clone, Debug)]
pub struct Known {
    program: Program,
    /// User and system time.
    pub cpu_ms: u64,
    /// The mutants that it reaches; unknown if the program has no switch.
    reached: Option<BTreeSet<u32>>,
    stage: Outcome,
}

impl Known {
    /// How it is called in reports.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// The order in which programs run: tests before the simulator, recordings behind it, the quickest first.
    pub fn order(&self) -> (Outcome, u64) {
        (self.stage, self.cpu_ms)
    }

    fn cpu_seconds_max(&self) -> u64 {
        self.cpu_ms.div_ceil(1_000) * SLOWER_MAX + SECONDS_MORE
    }
}

/// Runs `program` without a mutant: it must hold, and shows which mutants it reaches if the sources have the switch.
///
/// # Errors
/// If it fails.
pub fn learn(program: Program, stage: Outcome, has_switch: bool, scratch: &Path) -> Result<Known, Error> {
    let trace = scratch.with_extension("trace");
    drop(std::fs::remove_file(&trace));
    let found = run(&program, &format!("trace:{}", trace.display()), UNKNOWN_CPU_SECONDS, scratch)?;
    if let Some(failure) = found.failure {
        return Err(Error::Baseline(format!("{}: {failure}", program.name)));
    }
    // A program that reaches none writes none.
    let text = std::fs::read_to_string(&trace).unwrap_or_default();
    let reached = has_switch.then(|| text.lines().filter_map(|line| line.parse().ok()).collect());
    Ok(Known { program, cpu_ms: found.cpu_ms, reached, stage })
}

/// The simulator as programs that check some of the seeds below `seeds` each: so a run without end is
/// detected soon, and seeds that do not reach a mutant are left out.
pub fn simulators(path: &Path, folder: &Path, seeds: u64) -> Vec<Program> {
    let firsts = (0..seeds).step_by(SEEDS_AT_ONCE as usize);
    let program = |first: u64| {
        let range = format!("{first}..{}", seeds.min(first + SEEDS_AT_ONCE));
        let (path, folder) = (path.to_path_buf(), folder.to_path_buf());
        Program { name: format!("sim {range}"), path, arguments: vec![range], folder }
    };
    firsts.map(program).collect()
}

/// Runs `programs` on `mutant`, in their order, until one fails. Programs that do not reach the mutant are
/// left out.
///
/// # Errors
/// If one cannot be started.
pub fn look(mutant: &Mutant, programs: &[Known], scratch: &Path) -> Result<Row, Error> {
    let reaches = |known: &&Known| known.reached.as_ref().is_none_or(|reached| reached.contains(&mutant.id));
    let reaching: Vec<&Known> = programs.iter().filter(reaches).collect();
    let mut cpu_ms = 0;
    for known in &reaching {
        let found = run(&known.program, &mutant.id.to_string(), known.cpu_seconds_max(), scratch)?;
        cpu_ms += found.cpu_ms;
        if let Some(failure) = found.failure {
            let by = format!("{}: {failure}", known.name());
            return Ok(Row::of(mutant, reaching.len(), known.stage, Some(by), cpu_ms));
        }
    }
    Ok(Row::of(mutant, reaching.len(), Outcome::Survived, None, cpu_ms))
}
