//! The mutation check: every deliberate fault of the core is detected, and the core without a fault passes.
//!
//! `cargo test --release -p punctual-sim --features mutations --test mutations -- [--short] [--only NAME]
//! [--json] [--write]`. Each fault runs with its catcher's configuration until the first seed or set that
//! catches it, at most 500 seeds or 20,000 sets; the core without a fault runs the same from the first to
//! beyond the last of those. `--short` searches only from the known first seed on. `--write` stores the
//! results for that, and in docs/GUARANTEES.md.

#[path = "../../../analysis/tests/checks/mod.rs"]
mod checks;
#[path = "../../../proto/tests/common/mod.rs"]
mod common;
#[path = "../../../tcp/tests/endsystem/main.rs"]
#[allow(dead_code, unused_imports)] // Has its own tests.
mod endsystem;
#[path = "../../../proto/tests/linksched_model.rs"]
#[allow(dead_code)] // Has its own tests.
mod linksched_model;
#[path = "../../../proto/tests/signalling/network.rs"]
#[allow(dead_code)] // Parts that only the tests of signalling use.
mod network;
#[path = "../../../proto/tests/signalling/properties.rs"]
#[allow(dead_code)] // Has its own tests.
mod properties;
#[path = "../../../analysis/tests/soundness.rs"]
#[allow(dead_code)] // Has its own tests.
mod soundness;
#[path = "../../../analysis/tests/statistical.rs"]
#[allow(dead_code)] // Has its own tests.
mod statistical;

mod catchers;
mod faults;
mod report;
mod search;

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use punctual_analysis::mutation::choose;

use catchers::Catcher;
use faults::{FAULTS, Fault};
use report::Row;

/// Number of seeds or sets from the known first one on in the short form.
const SHORT_SEEDS: u64 = 8;
const SHORT_SETS: u64 = 400;

struct Arguments {
    short: bool,
    json: bool,
    write: bool,
    only: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut found = Arguments { short: false, json: false, write: false, only: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--short" => found.short = true,
            "--json" => found.json = true,
            "--write" => found.write = true,
            "--only" => found.only = Some(words.next().ok_or("--only: give the name of a fault")?),
            _ => return Err(format!("{word}: give --short, --only NAME, --json or --write")),
        }
    }
    if found.write && (found.short || found.only.is_some()) {
        return Err("--write notes what a whole run finds: leave out --short and --only".into());
    }
    Ok(found)
}

/// Searches for one fault, and runs the core without it.
fn check(fault: &Fault, arguments: &Arguments, held: &mut Held) -> Row {
    let (unit, limit) = fault.catcher.limit();
    let known = report::known(fault);
    let some = if unit == "seed" { SHORT_SEEDS } else { SHORT_SETS };
    let range = match (arguments.short, known) {
        (true, Some(known)) => known..limit.min(known + some),
        _ => 0..limit,
    };
    choose(Some(fault.mutation));
    let began = Instant::now();
    let caught = search::first(range.clone(), |seed| fault.catcher.catch(seed));
    let took = began.elapsed();
    choose(None);
    let last = caught.as_ref().map_or(range.end, |(seed, _)| seed + 1);
    let honest_end = if arguments.short { last } else { last.max(fault.catcher.honest()) };
    let honest = held.of(fault.catcher, range.start..honest_end);
    Row { fault_name: fault.name, catcher: fault.catcher, caught, honest, took }
}

/// Seeds that the core without a fault is known to pass, so that none is run twice.
#[derive(Default)]
struct Held(Vec<(Catcher, Range<u64>)>);

impl Held {
    /// The first of `seeds` at which the core without a fault fails: there must be none.
    fn of(&mut self, catcher: Catcher, seeds: Range<u64>) -> Option<(u64, String)> {
        let covers = |held: &Range<u64>| held.start <= seeds.start && held.end >= seeds.end;
        if self.0.iter().any(|(known, held)| *known == catcher && covers(held)) {
            return None;
        }
        let caught = search::first(seeds.clone(), |seed| catcher.catch(seed));
        if caught.is_none() {
            self.0.push((catcher, seeds));
        }
        caught
    }
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let wanted =
        |fault: &&Fault| arguments.only.as_ref().is_none_or(|only| format!("{:?}", fault.mutation) == *only);
    let (mut rows, mut held) = (Vec::new(), Held::default());
    for fault in FAULTS.iter().filter(wanted) {
        let row = check(fault, &arguments, &mut held);
        if !arguments.json {
            println!("{row}");
        }
        rows.push((fault, row));
    }
    if arguments.json {
        println!("{}", report::json(&rows));
    }
    if arguments.write
        && let Err(error) = report::write(&rows)
    {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    let holds = !rows.is_empty() && rows.iter().all(|(_, row)| row.holds());
    if !holds {
        eprintln!("a fault survives, or the core without a fault is caught: see above");
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
