//! OMG IDL: a front end for CORBA's files (IDL 4.2 with what CORBA 3 adds), for build scripts and for the
//! command `punctual-idl`.
//!
//! | module | owns |
//! |---|---|
//! | `preprocess`, `lexer`, `token` | files to tokens: inclusion, macros, conditions |
//! | `parse` | tokens to definitions, name by name as they come: IDL declares before it uses |
//! | `scope` | names, and the rules about their clashes |
//! | [`model`] | what an accepted file means |
//! | [`generate`] | Rust for its types |
//! | `build` | all of it for build scripts: [`build`], [`Build`] |
//! | [`limits`] | every limit against bad input |
//! | `source`, `diagnostic` | places in files, and errors about them |
//!
//! No input makes it panic, run for ever, or take memory without a limit. It has no dependency.

#![forbid(unsafe_code)]

mod build;
mod diagnostic;
pub mod generate;
mod lexer;
pub mod limits;
pub mod model;
mod parse;
mod preprocess;
mod scope;
mod source;
mod token;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use build::{Build, BuildError, Written, build};
pub use diagnostic::{Diagnostic, Severity, json_string};
pub use model::Specification;
pub use source::{Position, PresumedLine};

use diagnostic::Session;
use limits::FILE_BYTES_MAX;

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folders in which included files are searched, in this order (`-I`).
    pub include_dirs: Vec<PathBuf>,
    /// Macros and their values (`-D`).
    pub defines: Vec<(String, String)>,
}

/// Where files come from.
pub trait Loader {
    /// The bytes of a file, `None` if there is none.
    ///
    /// # Errors
    /// If there is one and it cannot be read.
    fn load(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>>;
}

/// Files of the file system.
#[derive(Debug, Default)]
pub struct Disk;

impl Loader for Disk {
    fn load(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
            }
            Ok(metadata) => metadata,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if metadata.len() > FILE_BYTES_MAX as u64 {
            return Err(too_large());
        }
        // A device has no length that it states.
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > FILE_BYTES_MAX { Err(too_large()) } else { Ok(Some(bytes)) }
    }
}

fn too_large() -> io::Error {
    io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes"))
}

/// A file, and what was found in it.
#[derive(Debug)]
pub struct Outcome {
    /// What the file means, if it is accepted.
    pub specification: Option<Specification>,
    /// Errors, if it is refused, and warnings.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the file at `path` and what it includes.
///
/// # Errors
/// If the file itself cannot be read. Everything else is in the outcome's diagnostics.
pub fn read(path: &Path, options: &Options, loader: &mut dyn Loader) -> io::Result<Outcome> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no such file");
    let bytes = loader.load(path)?.ok_or_else(missing)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    let mut session = Session::default();
    let tokens = preprocess::Preprocessor::new(&mut session, loader, options).run(path, bytes);
    let specification = tokens.and_then(|tokens| parse::parse(tokens, &mut session)).ok();
    let specification = specification.filter(|_| !session.has_errors());
    Ok(Outcome { specification, diagnostics: session.into_diagnostics() })
}
