//! Regression tests: every case of `tests/seeds`, which once failed, keeps every promise. Runs are the same
//! bit by bit on every machine: some digests are pinned.

use std::path::PathBuf;

use punctual_analysis::Nanos;
use punctual_sim::case::{Case, Cases};
use punctual_sim::{FaultKinds, Options, Report, Scenario, SizeChoice, Traffic, run_many};

/// All cases, with their files.
fn cases() -> Vec<(PathBuf, Case)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/seeds");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let of = |file: PathBuf| {
        let cases = Cases::read(&file).unwrap_or_else(|error| panic!("{error}")).cases;
        cases.into_iter().map(move |case| (file.clone(), case))
    };
    files.into_iter().flat_map(of).collect()
}

/// A seed that draws another plan today no longer tests what its case recorded.
#[test]
fn cases_draw_the_plans_of_their_lessons() {
    let mut others = String::new();
    for (file, case) in cases() {
        let drawn = case.options(&file).map(|options| Scenario::draw(case.seed, &options));
        let drawn = drawn.unwrap_or_else(|error| panic!("{error}")).expect("drawn").digest();
        if case.plan.as_ref() != Some(&drawn) {
            let kept = case.plan.unwrap_or_else(|| "nothing".into());
            others += &format!("{}, seed {}: plan = \"{drawn}\", not {kept}\n", file.display(), case.seed);
        }
    }
    assert!(others.is_empty(), "these draw other plans; see CaseError::Plan:\n{others}");
}

#[test]
fn past_failures_stay_fixed() {
    let cases = cases();
    assert!(cases.len() >= 10, "{} cases", cases.len());
    for (file, case) in cases {
        let (name, seed) = (file.display(), case.seed);
        assert!(!case.lesson.is_empty(), "{name}, seed {seed}: say what it was");
        let outcome = case.run(&file, false).unwrap_or_else(|error| panic!("{name}, seed {seed}: {error}"));
        let violations = outcome.violations;
        assert!(violations.is_empty(), "{name}, seed {seed} ({}): {violations:#?}", case.lesson);
    }
}

const PINS: &str = "tests/digests.txt";

/// The digest covers every event of a run: another machine, build or order of threads must not change one bit
/// of it. A change of behaviour does; if it is intended, run with `PUNCTUAL_PIN=1` to set the pins.
#[test]
fn digests_are_the_same_everywhere() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(PINS);
    let found: String = pinned().map(|(name, digest)| format!("{name} {digest}\n")).collect();
    if std::env::var_os("PUNCTUAL_PIN").is_some() {
        std::fs::write(&file, &found).expect("the pins can be written");
    }
    let pins = std::fs::read_to_string(&file).expect("the pins are there");
    let again = "runs differ from those that were pinned; where that is meant: \
                 PUNCTUAL_PIN=1 cargo test -p punctual-sim --test seeds";
    assert_eq!(found, pins, "{again}");
}

fn pinned() -> impl Iterator<Item = (String, String)> {
    let short = |kinds: &str| {
        let kinds: FaultKinds = kinds.parse().expect("kinds of faults");
        let options = Options { traffic: Traffic::For(Nanos::from_millis(200)), ..Options::default() };
        Options { sizes: SizeChoice::Small, ..options.with_faults(kinds) }
    };
    ["none", "frames", "all"].into_iter().flat_map(move |kinds| {
        let outcomes = run_many(0..4, &short(kinds), 2, |_| {}).expect("runs");
        outcomes
            .into_iter()
            .map(move |outcome| (format!("{kinds} {}", outcome.seed), Report::of(&[outcome]).digest))
    })
}
