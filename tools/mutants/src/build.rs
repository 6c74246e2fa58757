//! Builds the copy, once: mutants that do not build are found first and left out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::mutant::Mutant;
use crate::process::Program;
use crate::rewrite::blame;
use crate::scope::Scope;
use crate::tree::{Originals, PROFILE};
use crate::{Error, classifier};

/// How often the copy is checked at most: each time some mutants are left out.
const ROUNDS_MAX: usize = 40;

/// The folders of the copy and of its build.
#[derive(Clone, Debug)]
pub struct Places {
    /// The copy.
    pub tree: PathBuf,
    /// Cargo's folder for it.
    pub target: PathBuf,
}

impl Places {
    /// Runs Cargo with these arguments and those of builds; returns its JSON messages, and whether it succeeded.
    fn build(&self, arguments: &[&str]) -> Result<(Vec<Value>, bool), Error> {
        self.cargo(arguments, &["--profile", PROFILE, "--message-format=json"])
    }

    fn cargo(&self, arguments: &[&str], more: &[&str]) -> Result<(Vec<Value>, bool), Error> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(arguments)
            .arg("--locked")
            .args(more)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            // What mutants leave unused is no mistake of the build.
            .env("RUSTFLAGS", "--cap-lints=allow")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(Error::of(&self.tree))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let messages = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok((messages, output.status.success()))
    }
}

/// Writes the copy with the first of `drawn` that build, up to the wanted number, in their order. Returns
/// those, and the numbers of the ones that do not build; some of these may be known.
///
/// # Errors
/// If the copy cannot be written, or does not build although all mutants with errors are left out.
pub fn choose<'m>(
    originals: &Originals,
    places: &Places,
    scope: &Scope,
    drawn: &'m [Mutant],
    wanted: usize,
    known: &[u32],
) -> Result<(Vec<&'m Mutant>, Vec<u32>), Error> {
    if scope.classifier {
        return choose_compiled(originals, places, scope, drawn, wanted);
    }
    let mut unbuildable: BTreeSet<u32> = known.iter().copied().collect();
    let packages = packages(originals, scope)?;
    for round in 1..=ROUNDS_MAX {
        let chosen: Vec<&Mutant> =
            drawn.iter().filter(|mutant| !unbuildable.contains(&mutant.id)).take(wanted).collect();
        originals.write(&places.tree, scope, &chosen)?;
        let mut arguments = vec!["check", "--lib"];
        packages.iter().for_each(|package| arguments.extend(["-p", package]));
        let (messages, well) = places.build(&arguments)?;
        if well {
            return Ok((chosen, unbuildable.into_iter().collect()));
        }
        let blamed = blamed(&places.tree, &messages, &chosen)?;
        eprintln!("check {round}: {} of {} mutants do not build", blamed.len(), chosen.len());
        unbuildable.extend(blamed);
    }
    Err(Error::Build(format!("after {ROUNDS_MAX} checks there still are errors")))
}

/// The same for the XDP program, whose mutants are compiled one by one.
fn choose_compiled<'m>(
    originals: &Originals,
    places: &Places,
    scope: &Scope,
    drawn: &'m [Mutant],
    wanted: usize,
) -> Result<(Vec<&'m Mutant>, Vec<u32>), Error> {
    originals.write(&places.tree, scope, &[])?;
    let (mut chosen, mut unbuildable) = (Vec::new(), Vec::new());
    for mutant in drawn {
        if chosen.len() == wanted {
            break;
        }
        match classifier::compile(&places.tree, mutant)? {
            true => chosen.push(mutant),
            false => unbuildable.push(mutant.id),
        }
    }
    Ok((chosen, unbuildable))
}

/// The packages of the mutated sources: cargo takes the folder of each for its name. The copy is not touched: what is written
/// anew is built anew.
fn packages(originals: &Originals, scope: &Scope) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for sources in scope.sources {
        let mut folders = Path::new(sources.folder).ancestors();
        let text = folders.find_map(|folder| originals.text(&folder.join("Cargo.toml")));
        let text = text.ok_or_else(|| Error::Build(format!("{}: no package", sources.folder)))?;
        let table: toml::Table = text.parse().map_err(|cause| Error::Build(format!("{cause}")))?;
        let name = table.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
        found.push(name.ok_or_else(|| Error::Build(format!("{}: no package", sources.folder)))?.to_owned());
    }
    Ok(found)
}

/// The mutants that the errors among cargo's `messages` come from.
fn blamed(tree: &Path, messages: &[Value], chosen: &[&Mutant]) -> Result<BTreeSet<u32>, Error> {
    let (mut found, mut unexplained) = (BTreeSet::new(), Vec::new());
    let errors =
        messages.iter().map(|message| &message["message"]).filter(|message| message["level"] == "error");
    for error in errors {
        let mut spans = Vec::new();
        spans_of(error, &mut spans);
        match spans.into_iter().find_map(|span| blame_span(tree, span, chosen)) {
            Some(id) => drop(found.insert(id)),
            // The last one only counts the others.
            None if !error["spans"].as_array().is_none_or(Vec::is_empty) => {
                unexplained.push(error["rendered"].as_str().unwrap_or_default());
            }
            None => {}
        }
    }
    if found.is_empty() {
        return Err(Error::Build(unexplained.join("\n")));
    }
    Ok(found)
}

/// All places that an error names, the first ones first, those of macros' callers after their own.
fn spans_of<'v>(message: &'v Value, found: &mut Vec<&'v Value>) {
    let spans = message["spans"].as_array().into_iter().flatten();
    let (primary, other): (Vec<_>, Vec<_>) = spans.partition(|span| span["is_primary"] == true);
    for mut span in primary.into_iter().chain(other) {
        while span.is_object() {
            found.push(span);
            span = &span["expansion"]["span"];
        }
    }
    message["children"].as_array().into_iter().flatten().for_each(|child| spans_of(child, found));
}

fn blame_span(tree: &Path, span: &Value, chosen: &[&Mutant]) -> Option<u32> {
    let file = Path::new(span["file_name"].as_str()?);
    let at = usize::try_from(span["byte_start"].as_u64()?).ok()?;
    let ids: Vec<u32> = chosen.iter().filter(|mutant| mutant.file == file).map(|mutant| mutant.id).collect();
    let text = std::fs::read_to_string(tree.join(file)).ok()?;
    blame(&text, at, &ids)
}

/// Builds the tests and, if any of its `seeds` are to run, the simulator; returns the programs, tests first.
///
/// # Errors
/// If they do not build.
pub fn programs(
    places: &Places,
    scope: &Scope,
    seeds: u64,
) -> Result<(Vec<Program>, Option<PathBuf>), Error> {
    let features = scope.features.join(",");
    let tests = test_names(places, scope)?;
    let mut arguments = vec!["test", "--no-run", "--lib"];
    scope.tested.iter().for_each(|package| arguments.extend(["-p", package]));
    tests.iter().for_each(|test| arguments.extend(["--test", test]));
    if !features.is_empty() {
        arguments.extend(["--features", &features]);
    }
    let (messages, well) = places.build(&arguments)?;
    if !well {
        return Err(Error::Build("its tests do not build: see above".into()));
    }
    let programs = messages.iter().filter_map(|message| test_program(message, scope)).collect();
    let Some(simulator) = scope.simulator.as_ref().filter(|_| seeds > 0) else {
        return Ok((programs, None));
    };
    let arguments = ["build", "-p", simulator.package, "--example", simulator.example];
    let (messages, _) = places.build(&arguments)?;
    let example = messages.iter().find(|message| message["target"]["name"] == simulator.example);
    let example = example.and_then(|message| message["executable"].as_str());
    let example = example.ok_or_else(|| Error::Build(format!("{}: see above", simulator.example)))?;
    Ok((programs, Some(example.into())))
}

/// The test programs in the folders `tests` of the tested packages. Those that are not run are not built: of
/// `sim` they take longer to build than all others together.
fn test_names(places: &Places, scope: &Scope) -> Result<Vec<String>, Error> {
    let (metadata, well) = places.cargo(&["metadata", "--no-deps", "--format-version=1"], &[])?;
    let packages = metadata.first().filter(|_| well).and_then(|all| all["packages"].as_array());
    let packages = packages.ok_or_else(|| Error::Build("cargo metadata failed: see above".into()))?;
    let is_tested = |package: &&Value| scope.tested.iter().any(|name| package["name"] == *name);
    let targets = packages.iter().filter(is_tested).filter_map(|package| package["targets"].as_array());
    let is_test =
        |target: &&Value| target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"test".into()));
    let names = targets.flatten().filter(is_test).filter_map(|target| target["name"].as_str());
    Ok(names.filter(|name| !scope.skipped_tests.contains(name)).map(str::to_owned).collect())
}

fn test_program(message: &Value, scope: &Scope) -> Option<Program> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let target = message["target"]["name"].as_str()?;
    if scope.skipped_tests.contains(&target) {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?).parent()?;
    let own = scope.programs.iter().find(|(name, _)| *name == target).map(|(_, arguments)| *arguments);
    let arguments =
        own.unwrap_or(&["--test-threads=1"]).iter().map(|&argument| argument.to_owned()).collect();
    let package = manifest.file_name()?.to_string_lossy();
    Some(Program { name: format!("{package}/{target}"), path, arguments, folder: manifest.to_path_buf() })
}
