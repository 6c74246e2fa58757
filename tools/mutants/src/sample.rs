//! Which mutants: drawn by a seed from all that can be made.

use std::path::{Path, PathBuf};

use crate::mutant::Mutant;
use crate::scope::{Scope, Sources};
use crate::sites::{self, Site};
use crate::{Error, classifier, tree};

/// All possible mistakes in `scope`, in the order in which `seed` draws them.
///
/// A mistake's place in that order depends only on its own text and the seed: a change of the code elsewhere
/// leaves the sample of a seed as it was.
///
/// # Errors
/// If a source cannot be read.
pub fn draw(root: &Path, scope: &Scope, seed: u64) -> Result<Vec<Mutant>, Error> {
    let mut ranked = Vec::new();
    for sources in scope.sources {
        for (file, site) in all(root, sources)? {
            ranked.push((rank(seed, &file, &site), file, site, sources.switch));
        }
    }
    if scope.classifier {
        let file = root.join(classifier::SOURCE);
        let text = std::fs::read_to_string(&file).map_err(Error::of(&file))?;
        let file = PathBuf::from(classifier::SOURCE);
        let found = classifier::find(&text).into_iter();
        ranked.extend(found.map(|site| (rank(seed, &file, &site), file.clone(), site, "")));
    }
    ranked.sort_by_key(|&(rank, ..)| rank);
    let numbered = (1..).zip(ranked);
    Ok(numbered.map(|(id, (_, file, site, switch))| Mutant { id, file, site, switch }).collect())
}

/// The mutants of `drawn` whose file's path contains one of `parts`, with their numbers; without parts all.
pub fn only(drawn: &[Mutant], parts: &[String]) -> Vec<Mutant> {
    let is_in = |mutant: &&Mutant| {
        let path = mutant.file.to_string_lossy();
        parts.is_empty() || parts.iter().any(|part| path.contains(&**part))
    };
    drawn.iter().filter(is_in).cloned().collect()
}

fn rank(seed: u64, file: &Path, site: &Site) -> [u8; 32] {
    let text = format!(
        "{seed}\n{}\n{}\n{:?}\n{}\n{}\n{}",
        file.display(),
        site.function,
        site.operator,
        site.original,
        site.mutated,
        site.nth
    );
    *blake3::hash(text.as_bytes()).as_bytes()
}

/// All sites of `sources`, with their files.
fn all(root: &Path, sources: &Sources) -> Result<Vec<(PathBuf, Site)>, Error> {
    let folder = root.join(sources.folder);
    let named = |names: &[&str]| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    let (only, left_out) = (named(sources.only), named(sources.without));
    let mut files = tree::files(&folder)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files.retain(|file| (only.is_empty() || only.contains(file)) && !left_out.contains(file));
    let (mut found, mut tests) = (Vec::new(), Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(Error::of(&file))?;
        let of_file = sites::find(&file, &text)?;
        let modules = modules_of(&file);
        tests.extend(of_file.test_modules.iter().map(|name| modules.join(name)));
        let name = file.strip_prefix(root).unwrap_or(&file).to_path_buf();
        found.extend(of_file.sites.into_iter().map(|site| (name.clone(), site)));
    }
    found.retain(|(file, _)| {
        let module = root.join(file).with_extension("");
        !tests.iter().any(|test| module.starts_with(test))
    });
    Ok(found)
}

/// The folder of the modules that a file declares.
fn modules_of(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default();
    let owns_folder = stem == "mod" || stem == "lib" || stem == "main";
    if owns_folder { file.parent().unwrap_or(file).to_path_buf() } else { file.with_extension("") }
}
