//! For build scripts: IDL files to Rust in the folder that Cargo gives them.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), punctual_idl::BuildError> {
//!     punctual_idl::build("idl/echo.idl")
//! }
//! ```
//!
//! ```ignore
//! // src/main.rs
//! mod echo {
//!     include!(concat!(env!("OUT_DIR"), "/echo.rs"));
//! }
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::generate::generate;
use crate::{Disk, Loader, Options, Outcome, Severity, read};

/// Why no code was written. Its text has all errors of the files, each with its place.
pub struct BuildError(String);

/// As [`fmt::Display`]: Cargo prints what `main` of a build script returns in this form.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BuildError {}

/// Writes Rust for one file to `OUT_DIR/STEM.rs`, `STEM` its name without folder and extension. Cargo runs the
/// build script again when the file or one that it includes changes.
///
/// # Errors
/// If the file or one that it includes is refused, if the code cannot be written, or outside of a build script.
pub fn build(file: impl AsRef<Path>) -> Result<(), BuildError> {
    let stem = file.as_ref().file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Build::new().file(file).write(&stem)
}

/// Several files, folders for what they include, and macros.
///
/// Files that share definitions belong into one build: in code of its own each would have types of its own.
#[derive(Clone, Debug, Default)]
pub struct Build {
    files: Vec<PathBuf>,
    options: Options,
}

impl Build {
    /// Without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file. Paths are relative to the package, as always in build scripts.
    pub fn file(mut self, file: impl AsRef<Path>) -> Self {
        self.files.push(file.as_ref().to_owned());
        self
    }

    /// Adds a folder in which included files are searched (`-I`).
    pub fn include_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.options.include_dirs.push(folder.as_ref().to_owned());
        self
    }

    /// Defines a macro (`-D`).
    pub fn define(mut self, name: &str, value: &str) -> Self {
        self.options.defines.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes Rust for all files to `OUT_DIR/NAME.rs`, and says to Cargo which files were read and which
    /// definitions have no code.
    ///
    /// # Errors
    /// As [`build`].
    pub fn write(&self, name: &str) -> Result<(), BuildError> {
        let folder = std::env::var_os("OUT_DIR")
            .ok_or_else(|| BuildError("OUT_DIR is not set: call this from a build script".into()))?;
        let written = self.write_to(Path::new(&folder), name)?;
        for file in &written.read {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        for warning in &written.warnings {
            println!("cargo::warning={}", warning.replace('\n', " "));
        }
        Ok(())
    }

    /// As [`Build::write`], into any folder, and without a word to Cargo.
    ///
    /// # Errors
    /// If a file is refused, or the code cannot be written.
    pub fn write_to(&self, folder: &Path, name: &str) -> Result<Written, BuildError> {
        let mut loader = Recording { root: self.root(folder, name), read: Vec::new() };
        let root = loader.root.0.clone();
        let outcome = read(&root, &self.options, &mut loader)
            .map_err(|error| BuildError(format!("cannot read {}: {error}", root.display())))?;
        let Some(specification) = &outcome.specification else { return Err(BuildError(errors(&outcome))) };
        let generated = generate(specification, &format!("{name}.idl"));
        let path = folder.join(name).with_extension("rs");
        std::fs::write(&path, generated.code)
            .map_err(|error| BuildError(format!("cannot write {}: {error}", path.display())))?;
        let is_asked_for = |path: &str| {
            self.files.iter().any(|file| file == Path::new(path) || absolute(file) == Path::new(path))
        };
        let skipped = generated.skipped.iter().filter(|(id, _)| {
            specification.get(*id).position().is_some_and(|position| is_asked_for(&position.file))
        });
        let mut warnings: Vec<String> = skipped
            .map(|(id, why)| format!("not generated: {}: {why}", specification.path(*id).join("::")))
            .collect();
        warnings.extend(outcome.diagnostics.iter().map(|one| {
            format!("{}:{}:{}: {}", one.position.file, one.position.line, one.position.column, one.message)
        }));
        Ok(Written { path, read: loader.read, warnings })
    }

    /// The only file, or one that includes all.
    fn root(&self, folder: &Path, name: &str) -> (PathBuf, Option<String>) {
        if let [file] = &self.files[..] {
            return (file.clone(), None);
        }
        let include = |file: &PathBuf| format!("#include \"{}\"\n", absolute(file).display());
        (folder.join(name).with_extension("all"), Some(self.files.iter().map(include).collect()))
    }
}

fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

/// What a build did.
#[derive(Clone, Debug)]
pub struct Written {
    /// The code.
    pub path: PathBuf,
    /// Files that were read.
    pub read: Vec<PathBuf>,
    /// Warnings, and definitions without code.
    pub warnings: Vec<String>,
}

fn errors(outcome: &Outcome) -> String {
    let errors = outcome.diagnostics.iter().filter(|one| one.severity == Severity::Error);
    let errors: Vec<String> = errors.map(ToString::to_string).collect();
    format!("the IDL has errors\n{}", errors.join("\n"))
}

/// Files of the disk, and which were read.
struct Recording {
    /// The first file; with its text if there is none on the disk.
    root: (PathBuf, Option<String>),
    read: Vec<PathBuf>,
}

impl Loader for Recording {
    fn load(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        if let (root, Some(text)) = &self.root
            && root == path
        {
            return Ok(Some(text.clone().into_bytes()));
        }
        let bytes = Disk.load(path)?;
        if bytes.is_some() && !self.read.iter().any(|read| read == path) {
            self.read.push(path.to_owned());
        }
        Ok(bytes)
    }
}
