//! Runs drawn plans of one class on one thread: `plans mixed 0..20`; `faults`: of any class, with faults of
//! all kinds; `handlers`, `tcp`: of any class, with programs' handlers, and with TCP connections, too. For `scripts/branches`, which reports the branches that such plans decide.

use std::ops::{ControlFlow, Range};
use std::process::ExitCode;
use std::sync::Mutex;

use punctual_analysis::Nanos;
use punctual_sim::batch::run_each;
use punctual_sim::{Class, FaultKinds, Options, SizeChoice, Traffic};

fn seeds(text: &str) -> Option<Range<u64>> {
    let (first, end) = text.split_once("..")?;
    Some(first.parse().ok()?..end.parse().ok()?)
}

/// Small networks: larger ones decide the same branches, more often.
fn options(class: &str) -> Option<Options> {
    let small = Options { sizes: SizeChoice::Small, ..Options::default() };
    let of = |class| Some(Options { class: Some(class), ..small.clone() });
    match class {
        "mixed" => of(Class::Mixed),
        "tight" => of(Class::Tight),
        "crowded" => of(Class::Crowded),
        "lent" => of(Class::Lent),
        "soft" => of(Class::Soft),
        "faults" => Some(small.with_faults(FaultKinds::ALL)),
        "handlers" => Some(Options { handlers: true, ..small }),
        "tcp" => Some(Options {
            tcp: true,
            handlers: true,
            traffic: Traffic::For(Nanos::from_millis(300)),
            ..small
        }),
        _ => None,
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [class, range] = &arguments[..] else {
        eprintln!("give a class and seeds: plans CLASS FIRST..END");
        return ExitCode::from(2);
    };
    let Some((options, seeds)) = options(class).zip(seeds(range)) else {
        eprintln!(
            "no class {class}, or no seeds {range}: mixed, tight, crowded, lent, soft, faults, handlers, tcp; FIRST..END"
        );
        return ExitCode::from(2);
    };
    let wrong = Mutex::new(Vec::new());
    run_each(seeds, &options, 1, |seed, outcome| {
        let reported = match outcome {
            Ok(outcome) => outcome.violations.into_iter().map(|violation| violation.what).next(),
            Err(error) => Some(error.to_string()),
        };
        let reported = reported.map(|what| format!("seed {seed}: {what}"));
        wrong.lock().expect("no panic holds it").extend(reported);
        ControlFlow::Continue(())
    });
    let wrong = wrong.into_inner().expect("no panic holds it");
    wrong.iter().for_each(|line| println!("{line}"));
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
