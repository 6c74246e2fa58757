//! Files in memory, and what the front end says about them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use punctual_idl::{Diagnostic, Loader, Options, Outcome, Severity, Specification};

/// Files in memory, by their paths.
#[derive(Debug, Default)]
pub struct Memory(pub HashMap<PathBuf, Vec<u8>>);

impl Loader for Memory {
    fn load(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.get(path).cloned())
    }
}

/// Reads the file `a.idl` of these; `/inc` is a folder for included files.
pub fn read_files(files: &[(&str, &str)], defines: &[(&str, &str)]) -> Outcome {
    let of = |(name, text): &(&str, &str)| (PathBuf::from(name), text.as_bytes().to_vec());
    let mut loader = Memory(files.iter().map(of).collect());
    let options = Options {
        include_dirs: vec!["/inc".into()],
        defines: defines.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
    };
    punctual_idl::read(Path::new("a.idl"), &options, &mut loader).expect("a.idl is there")
}

/// Reads one file.
pub fn read(text: &str) -> Outcome {
    read_files(&[("a.idl", text)], &[])
}

/// The errors of one file, each as LINE:COLUMN: MESSAGE.
pub fn errors(text: &str) -> Vec<String> {
    errors_of(&read(text))
}

pub fn errors_of(outcome: &Outcome) -> Vec<String> {
    let errors = outcome.diagnostics.iter().filter(|found| found.severity == Severity::Error);
    errors.map(line).collect()
}

pub fn line(found: &Diagnostic) -> String {
    format!("{}:{}: {}", found.position.line, found.position.column, found.message)
}

/// What an accepted file means.
pub fn accepted(text: &str) -> Specification {
    let outcome = read(text);
    assert_eq!(errors_of(&outcome), Vec::<String>::new(), "{text}");
    outcome.specification.expect("no error")
}

/// All IDL files under a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.extension() {
                _ if path.is_dir() => open.push(path),
                Some(kind) if kind == "idl" => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}
