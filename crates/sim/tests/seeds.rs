//! What once went wrong does not go wrong again: every case of `tests/seeds` keeps every promise. And runs are the
//! same to the bit on every machine: some digests are pinned.

use std::path::PathBuf;

use punctual_analysis::Nanos;
use punctual_sim::case::Cases;
use punctual_sim::{FaultKinds, Options, Report, SizeChoice, run_many};

#[test]
fn lessons_stay_learnt() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/seeds");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let mut ran = 0;
    for file in files {
        let cases = Cases::read(&file).unwrap_or_else(|error| panic!("{error}")).cases;
        for case in cases {
            let (name, seed) = (file.display(), case.seed);
            assert!(!case.lesson.is_empty(), "{name}, seed {seed}: say what it was");
            let outcome =
                case.run(&file, false).unwrap_or_else(|error| panic!("{name}, seed {seed}: {error}"));
            assert!(
                outcome.violations.is_empty(),
                "{name}, seed {seed} ({}): {:#?}",
                case.lesson,
                outcome.violations
            );
            ran += 1;
        }
    }
    assert!(ran >= 10, "{ran} cases");
}

const PINS: &str = "tests/digests.txt";

/// The digest covers every event of a run: another machine, build or order of threads must not change one bit of it.
/// A change of behaviour does; whoever means it sets the pins anew with `PUNCTUAL_PIN=1`.
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
        let options = Options { traffic: Some(Nanos::from_millis(200)), ..Options::default() };
        Options { sizes: SizeChoice::Small, ..options.with_faults(kinds) }
    };
    ["none", "frames", "all"].into_iter().flat_map(move |kinds| {
        let outcomes = run_many(0..4, &short(kinds), 2, |_| {}).expect("runs");
        outcomes
            .into_iter()
            .map(move |outcome| (format!("{kinds} {}", outcome.seed), Report::of(&[outcome]).digest))
    })
}
