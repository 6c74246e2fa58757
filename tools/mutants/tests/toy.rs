//! The whole procedure on a toy crate: what a test checks is caught, what no test checks survives.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use punctual_mutants::build::{self, Places};
use punctual_mutants::equivalent::Equivalents;
use punctual_mutants::judge;
use punctual_mutants::mutant::Mutant;
use punctual_mutants::operators::Operator;
use punctual_mutants::report::{Outcome, Row};
use punctual_mutants::sample;
use punctual_mutants::scope::{Scope, Sources};
use punctual_mutants::tree::Originals;

const MANIFEST: &str = "[package]\nname = \"toy\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
const LOCK: &str = "version = 4\n\n[[package]]\nname = \"toy\"\nversion = \"0.1.0\"\n";
/// A test checks the limit, the loop's step decides whether it ends, no test checks the fee; the name cannot
/// be multiplied.
const LIBRARY: &str = r#"//! A toy.
#![no_std]
extern crate alloc;
use alloc::string::String;

/// Whether all fits.
pub fn fits(sizes: &[u32], limit: u32) -> bool {
    let (mut at, mut sum) = (0, 0);
    while at < sizes.len() {
        sum += sizes[at];
        at += 1;
    }
    sum <= limit
}

/// What it costs.
pub fn fee(size: u32) -> u32 {
    size / 8
}

/// With a full stop.
pub fn ended(name: String) -> String {
    name + "."
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_limit_is_kept() {
        assert!(super::fits(&[2, 3], 5));
        assert!(!super::fits(&[2, 3], 4));
        assert!(super::fee(1) < 9);
    }
}
"#;

const TOY: Scope = Scope {
    name: "toy",
    sources: &[Sources { folder: "src", switch: "crate::mutant_switch::chosen", only: &[], without: &[] }],
    switch_in: "src/lib.rs",
    tested: &["toy"],
    features: &[],
    skipped_tests: &[],
    recordings: &[],
    programs: &[],
    simulator: None,
    classifier: false,
};

struct Toy(PathBuf);

impl Toy {
    /// In a folder of its own: tests of one process run concurrently.
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("toy-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(root.join("src")).expect("a folder");
        for (name, text) in [("Cargo.toml", MANIFEST), ("Cargo.lock", LOCK), ("src/lib.rs", LIBRARY)] {
            std::fs::write(root.join(name), text).expect("a file");
        }
        Self(root)
    }
}

impl Drop for Toy {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn row<'r>(rows: &'r [Row], original: &str, mutated: &str) -> &'r Row {
    let is = |row: &&Row| row.original == original && row.mutated == mutated;
    rows.iter().find(is).unwrap_or_else(|| panic!("{original} -> {mutated} is not among {rows:#?}"))
}

/// Original and mutated texts of the mutants that are checked: one without end takes seconds.
const LOOKED_FOR: [(&str, &str); 3] =
    [("sum <= limit", "(sum) < (limit)"), ("at += 1;", ""), ("size / 8", "(size) * (8)")];

fn places(root: &Path) -> Places {
    Places { tree: root.join("target/tree"), target: root.join("target/build") }
}

/// For the toy in `root`: the outcomes of the checked mutants, how many build, and which do not.
fn rows(root: &Path, drawn: &[Mutant]) -> (Vec<Row>, usize, Vec<u32>) {
    let places = places(root);
    let originals = Originals::read(root).expect("is there");
    let (chosen, unbuildable) =
        build::choose(&originals, &places, &TOY, drawn, usize::MAX, &[]).expect("the copy builds");
    let (programs, _) = build::programs(&places, &TOY, 0).expect("tests build");
    let scratch = root.join("target/scratch");
    let learn = |program| judge::learn(program, Outcome::CaughtByTests, true, &scratch).expect("holds");
    let known: Vec<_> = programs.into_iter().map(learn).collect();
    let wanted = |mutant: &&&Mutant| LOOKED_FOR.contains(&(&*mutant.site.original, &*mutant.site.mutated));
    let look = |mutant: &&Mutant| judge::look(mutant, &known, &scratch).expect("runs");
    (chosen.iter().filter(wanted).map(look).collect(), chosen.len(), unbuildable)
}

#[test]
fn checked_code_is_caught_and_unchecked_code_survives() {
    let toy = Toy::new();
    let drawn = sample::draw(&toy.0, &TOY, 1).expect("Rust");
    let (rows, buildable, unbuildable) = rows(&toy.0, &drawn);

    let limit = row(&rows, "sum <= limit", "(sum) < (limit)");
    assert_eq!(limit.outcome, Outcome::CaughtByTests);
    assert_eq!(limit.by.as_deref(), Some("tree/toy: tests::the_limit_is_kept"));
    let endless = row(&rows, "at += 1;", "");
    assert_eq!((endless.outcome, endless.operator), (Outcome::CaughtByTests, Operator::Deletion));
    let fee = row(&rows, "size / 8", "(size) * (8)");
    assert_eq!((fee.outcome, fee.reached_by), (Outcome::Survived, 1));

    let of_name: Vec<_> = drawn.iter().filter(|mutant| mutant.site.original == "name + \".\"").collect();
    assert_eq!(
        unbuildable,
        of_name.iter().map(|mutant| mutant.id).collect::<Vec<_>>(),
        "no text less a text"
    );
    assert_eq!(buildable + unbuildable.len(), drawn.len());
    // A run that goes on leaves the copy as it is, so that nothing is built again.
    let written = || std::fs::metadata(toy.0.join("target/tree/src/lib.rs")).and_then(|file| file.modified());
    let (before, places) = (written().expect("a copy"), places(&toy.0));
    let originals = Originals::read(&toy.0).expect("is there");
    let again = build::choose(&originals, &places, &TOY, &drawn, usize::MAX, &unbuildable);
    assert_eq!(again.expect("the copy builds").0.len(), buildable);
    assert_eq!(written().expect("a copy"), before);
    let shipped = std::fs::read_to_string(toy.0.join("src/lib.rs")).expect("is there");
    assert_eq!(shipped, LIBRARY, "what ships stays as it is");
}

#[test]
fn a_sample_is_that_of_its_seed() {
    let toy = Toy::new();
    let places = |seed| -> Vec<_> {
        let drawn = sample::draw(&toy.0, &TOY, seed).expect("Rust");
        drawn.into_iter().map(|mutant| (mutant.site.range, mutant.site.mutated)).collect()
    };
    assert_eq!(places(1), places(1));
    assert_ne!(places(1), places(2));
}

#[test]
fn an_equivalent_counts_once_it_is_signed() {
    let toy = Toy::new();
    let drawn = sample::draw(&toy.0, &TOY, 1).expect("Rust");
    let list = |signed: &str| {
        let file = toy.0.join("equivalent.toml");
        let entry = "file = 'src/lib.rs'\nfunction = 'fee'\noriginal = 'size / 8'\nmutated = '(size) * (8)'\nreason = 'toy'";
        std::fs::write(&file, format!("[[equivalent]]\n{entry}\n{signed}\n")).expect("a file");
        Equivalents::read(&file).expect("a list")
    };
    let fee = drawn.iter().find(|mutant| mutant.site.mutated == "(size) * (8)").expect("is there");
    let others = drawn.iter().filter(|mutant| mutant.id != fee.id);
    let (unsigned, signed) = (list(""), list("signed = 'A. Reader'"));
    assert!(!unsigned.of(fee).expect("is in the list").counts());
    assert!(signed.of(fee).expect("is in the list").counts());
    assert!(others.into_iter().all(|mutant| signed.of(mutant).is_none()));
    let rest: Vec<Mutant> = drawn.iter().filter(|mutant| mutant.id != fee.id).cloned().collect();
    assert_eq!((signed.stale(&drawn, &["src"]).count(), signed.stale(&rest, &["src"]).count()), (0, 1));
}
