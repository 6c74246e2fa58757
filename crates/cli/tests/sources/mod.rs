//! Shared code of the tests that read the sources.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod modules;

use std::path::{Path, PathBuf};

/// The workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The folder of the crates.
pub fn crates() -> PathBuf {
    root().join("crates")
}

/// Every file of Rust below `folder`.
pub fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(kind) if kind == "rs" => found.push(path),
                _ => {}
            }
        }
    }
    found
}

/// A file of Rust.
pub fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A file without the tests at its end, whatever their visibility.
pub fn without_tests(text: &str) -> &str {
    let ends = ["mod ", "pub mod ", "pub(crate) mod ", "pub(super) mod "];
    let at = ends.iter().filter_map(|module| text.find(&format!("#[cfg(test)]\n{module}"))).min();
    &text[..at.unwrap_or(text.len())]
}

/// The lines of a file that are code: no comments, no tests.
pub fn code(text: &str) -> impl Iterator<Item = &str> {
    without_tests(text).lines().filter(|line| !line.trim_start().starts_with("//"))
}
