//! Runs one seed after the other on one thread and ends with a failure at the first that shows a violation or
//! a miss: `first_violation 0..200`. `make mutants` runs many of these at the same time.

use std::ops::{ControlFlow, Range};
use std::process::ExitCode;
use std::sync::Mutex;

use punctual_sim::batch::run_each;
use punctual_sim::{Options, Report};

fn seeds() -> Option<Range<u64>> {
    let argument = std::env::args().nth(1)?;
    let (first, end) = argument.split_once("..")?;
    Some(first.parse().ok()?..end.parse().ok()?)
}

fn main() -> ExitCode {
    let Some(seeds) = seeds() else {
        eprintln!("give seeds: first_violation FIRST..END");
        return ExitCode::from(2);
    };
    let found = Mutex::new(None);
    run_each(seeds, &Options::default(), 1, |seed, outcome| {
        let wrong = match outcome {
            Ok(outcome) if Report::of(std::slice::from_ref(&outcome)).holds() => {
                return ControlFlow::Continue(());
            }
            Ok(outcome) => {
                let violation = outcome.violations.first().map(|violation| violation.what.clone());
                violation.unwrap_or_else(|| format!("{} misses", outcome.misses))
            }
            Err(error) => error.to_string(),
        };
        *found.lock().expect("no panic holds it") = Some(format!("seed {seed}: {wrong}"));
        ControlFlow::Break(())
    });
    match found.into_inner().expect("no panic holds it") {
        None => ExitCode::SUCCESS,
        Some(wrong) => {
            println!("{wrong}");
            ExitCode::FAILURE
        }
    }
}
