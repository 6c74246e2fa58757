//! Mutants that no check can detect, each with the reason: `mutants/equivalent.toml`.

use std::path::Path;

use serde::Deserialize;

use crate::Error;
use crate::mutant::Mutant;

/// A mutant that behaves like the original code. It is found by its file, function and texts, not by its
/// line.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Equivalent {
    /// Path from the root of the workspace.
    pub file: String,
    /// The function, as the report names it.
    pub function: String,
    /// The original text, as the report shows it.
    pub original: String,
    /// The mutated text, as the report shows it.
    pub mutated: String,
    /// Which of several in one function with the same texts.
    #[serde(default = "first")]
    pub nth: usize,
    /// Why no check can detect it.
    pub reason: String,
    /// The second reader, who has found the reason right. Without a name the entry does not count.
    #[serde(default)]
    pub signed: String,
}

fn first() -> usize {
    1
}

/// The list.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Equivalents {
    /// The entries, in any order.
    #[serde(default)]
    equivalent: Vec<Equivalent>,
}

impl Equivalents {
    /// Reads the list; a missing file is an empty list.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(path).map_err(Error::of(path))?;
        toml::from_str(&text).map_err(|cause| Error::Equivalent { path: path.into(), cause })
    }

    /// All of them, as listed.
    pub fn entries(&self) -> &[Equivalent] {
        &self.equivalent
    }

    /// The list's entry for `mutant`.
    pub fn of(&self, mutant: &Mutant) -> Option<&Equivalent> {
        self.equivalent.iter().find(|entry| entry.is(mutant))
    }

    /// Entries of `sources` that match none of `mutants`: their code has changed.
    pub fn stale<'s>(
        &'s self,
        mutants: &'s [Mutant],
        folders: &'s [&str],
    ) -> impl Iterator<Item = &'s Equivalent> {
        let concerns = |entry: &Equivalent| folders.iter().any(|folder| entry.file.starts_with(folder));
        let there = |entry: &Equivalent| mutants.iter().any(|mutant| entry.is(mutant));
        self.equivalent.iter().filter(move |entry| concerns(entry) && !there(entry))
    }
}

impl Equivalent {
    /// Whether a second reader has signed it.
    pub fn counts(&self) -> bool {
        !self.signed.trim().is_empty()
    }

    fn is(&self, mutant: &Mutant) -> bool {
        let site = &mutant.site;
        Path::new(&self.file) == mutant.file
            && self.function == site.function
            && self.original == site.original
            && self.mutated == site.mutated
            && self.nth == site.nth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list that cannot be read ends every run before it begins.
    #[test]
    fn the_list_of_the_workspace_is_read_and_argues_each_entry() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mutants/equivalent.toml");
        let list = Equivalents::read(&path).expect("is a list");
        assert!(!list.equivalent.is_empty(), "{} is there", path.display());
        for (index, entry) in list.equivalent.iter().enumerate() {
            assert!(!entry.reason.trim().is_empty(), "{entry:?}");
            assert!(!list.equivalent[..index].contains(entry), "twice: {entry:?}");
        }
    }
}
