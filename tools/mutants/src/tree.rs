//! The copy of the workspace: sources with mutants behind a switch. What ships has neither.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::mutant::Mutant;
use crate::rewrite::{Numbered, rewrite};
use crate::scope::Scope;
use crate::{Error, classifier};

/// The profile with which the copy is built: quick to run, and every overflow is found.
pub const PROFILE: &str = "mutants";

const PROFILE_TEXT: &str = "
[profile.mutants]
inherits = \"release\"
debug = false
lto = false
opt-level = 2
codegen-units = 16
debug-assertions = true
overflow-checks = true
";

const SWITCH_TEXT: &str = include_str!("switch.rs.txt");

/// All files below `folder`, except those of builds and version control.
///
/// # Errors
/// If a folder cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::of(&folder))? {
            let path = entry.map_err(Error::of(&folder))?.path();
            if path.is_dir() && !path.is_symlink() {
                let left_out = path.file_name().is_some_and(|name| name == "target" || name == ".git");
                folders.extend((!left_out).then_some(path));
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The copy's files as they are without mutants, by their paths from the root.
#[derive(Debug)]
pub struct Originals {
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Originals {
    /// Reads the workspace at `root`.
    ///
    /// # Errors
    /// If something in it cannot be read.
    pub fn read(root: &Path) -> Result<Self, Error> {
        let mut read = BTreeMap::new();
        for file in files(root)? {
            let name = file.strip_prefix(root).unwrap_or(&file);
            // A file that is not under version control: it points a nested worktree to its repository.
            if name != Path::new(".git") {
                read.insert(name.to_path_buf(), fs::read(&file).map_err(Error::of(&file))?);
            }
        }
        Ok(Self { files: read })
    }

    /// The text of a file; `None` if there is no such file.
    pub fn text(&self, name: &Path) -> Option<String> {
        self.files.get(name).map(|content| String::from_utf8_lossy(content).into_owned())
    }

    /// A digest of the built code, so that results of different code are not mixed up.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let counts = |name: &Path| {
            let text = name.extension().is_some_and(|extension| extension == "md");
            let of_check = name.starts_with("mutants");
            !text && !of_check
        };
        for (name, content) in self.files.iter().filter(|(name, _)| counts(name)) {
            hasher
                .update(name.to_string_lossy().as_bytes())
                .update(&content.len().to_le_bytes())
                .update(content);
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// Writes the copy with `mutants` to `copy`; files with the right content stay, so that they are not
    /// built again.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, copy: &Path, scope: &Scope, mutants: &[&Mutant]) -> Result<(), Error> {
        let mut by_file: BTreeMap<&Path, Vec<&Mutant>> = BTreeMap::new();
        for mutant in mutants {
            by_file.entry(&mutant.file).or_default().push(mutant);
        }
        for (name, content) in &self.files {
            let content = match by_file.get(&**name) {
                Some(mutants) if !scope.classifier => rewritten(content, mutants).into_bytes(),
                None if scope.classifier && name == Path::new(classifier::LOADER) => {
                    let text = String::from_utf8_lossy(content);
                    classifier::loader(&text, &classifier::objects(copy))?.into_bytes()
                }
                _ => content.clone(),
            };
            write_changed(&copy.join(name), &self.with_switch(name, scope, content))?;
        }
        remove_others(copy, &self.files.keys().collect())
    }

    fn with_switch(&self, name: &Path, scope: &Scope, mut content: Vec<u8>) -> Vec<u8> {
        if name == Path::new(scope.switch_in) {
            content.extend_from_slice(SWITCH_TEXT.as_bytes());
        } else if name == Path::new("Cargo.toml") {
            content.extend_from_slice(PROFILE_TEXT.as_bytes());
        }
        content
    }
}

fn rewritten(content: &[u8], mutants: &[&Mutant]) -> String {
    let text = String::from_utf8_lossy(content);
    let numbered: Vec<_> =
        mutants.iter().map(|mutant| Numbered { id: mutant.id, site: &mutant.site }).collect();
    rewrite(&text, &numbered, mutants[0].switch)
}

fn write_changed(path: &Path, content: &[u8]) -> Result<(), Error> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::of(folder))?;
    }
    fs::write(path, content).map_err(Error::of(path))
}

/// Removes what an earlier copy had and this one has not.
fn remove_others(copy: &Path, kept: &BTreeSet<&PathBuf>) -> Result<(), Error> {
    for file in files(copy)? {
        let name = file.strip_prefix(copy).unwrap_or(&file).to_path_buf();
        if !kept.contains(&name) {
            fs::remove_file(&file).map_err(Error::of(&file))?;
        }
    }
    Ok(())
}
