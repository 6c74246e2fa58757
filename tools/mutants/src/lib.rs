//! Mutation testing: would the checks detect a mistake that was not anticipated?
//!
//! Possible mistakes are found in the source text ([`sites`]), drawn by a seed ([`sample`]) and written into
//! a copy of the workspace ([`tree`], [`rewrite`]), each behind one run-time switch, so that the copy is
//! built once ([`build`]). Then each is switched on alone, and tests and the simulator run on it ([`judge`]).
//! A mutant that no check detects survives. `mutants/equivalent.toml` lists the survivors that no check can
//! detect ([`equivalent`]). docs/adr/0036-mutants-by-machine.md explains the design.

pub mod arguments;
pub mod build;
pub mod classifier;
pub mod equivalent;
pub mod judge;
pub mod mutant;
pub mod operators;
pub mod process;
pub mod report;
pub mod rewrite;
pub mod sample;
pub mod scope;
pub mod session;
pub mod sites;
pub mod tree;

use std::path::PathBuf;

/// Why no mutant could be checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder.
    #[error("{path}: {cause}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// Source text that is no Rust.
    #[error("{path}: {cause}: build the workspace first", path = path.display())]
    Syntax {
        /// Where.
        path: PathBuf,
        /// What.
        cause: syn::Error,
    },
    /// A list of equivalent mutants that cannot be read.
    #[error("{path}: {cause}: give file, function, original, mutated, reason and signed", path = path.display())]
    Equivalent {
        /// The list.
        path: PathBuf,
        /// The mistake in it.
        cause: toml::de::Error,
    },
    /// A report that cannot be read.
    #[error("{path}: {cause}: remove it to begin anew", path = path.display())]
    Report {
        /// The report.
        path: PathBuf,
        /// The mistake in it.
        cause: serde_json::Error,
    },
    /// A report of other sources or of another seed.
    #[error("{path}: is of other sources or another seed: run without --survivors first", path = .0.display())]
    Stale(PathBuf),
    /// The copy does not build, and no mutant is the cause.
    #[error("the copy with the mutants does not build: {0}")]
    Build(String),
    /// Tests fail without any mutant.
    #[error("{0} fails without any mutant: mend that first")]
    Baseline(String),
}

impl Error {
    /// What makes an I/O error one of `path`.
    pub(crate) fn of(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        |cause| Self::File { path, cause }
    }
}
