//! Modules depend one way: those of `proto` in the order of docs/ARCHITECTURE.md, in every other crate without circles
//! across folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The modules of `proto`: each uses those before it alone.
const PROTO: &[&str] = &[
    "limits",
    "ids",
    "text",
    "words",
    "slab",
    "interned",
    "table",
    "times",
    "watch",
    "latencies",
    "limiter",
    "lateness",
    "rate_sample",
    "wire",
    "seal",
    "config",
    "api",
    "memory",
    "fragment",
    "linksched",
    "sched",
    "signalling",
    "node",
];

/// Crates whose modules still form circles, and why.
const CIRCLES: &[(&str, &str)] = &[
    (
        "analysis",
        "a policy says what it is (`policies::kind`), and the interface of all policies (`policy`) names that",
    ),
    ("client", "handles and the connection that serves them hold each other"),
    ("experiments", "to be taken apart: loads, sessions and measurements name each other"),
];

/// What a module uses of its crate: module of the crate's root -> such modules.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file without its comments and its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |all, line| all + line + "\n")
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Names that follow `prefix` in `code`, also those in braces.
fn names_behind<'a>(code: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for rest in code.split(prefix).skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            names.insert(word(rest));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    names.insert(word(&list[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    names
}

/// Who uses whom, of the modules at the root of a crate.
fn uses(of: &str) -> Uses {
    let root = crates().join(of).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let module_of = |file: &PathBuf| {
        let inside = file.strip_prefix(&root).expect("below the root").with_extension("");
        let parts: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        (!parts.iter().any(|part| part == "tests")).then(|| (parts[0].clone(), parts.len()))
    };
    let modules: BTreeSet<String> = files.iter().filter_map(module_of).map(|(module, _)| module).collect();
    let mut uses = Uses::new();
    for file in &files {
        let Some((module, depth)) = module_of(file) else { continue };
        let code = code(&std::fs::read_to_string(file).expect("a source"));
        let mut names = names_behind(&code, "crate::");
        if depth == 1 && module != "lib" && module != "main" {
            names.extend(names_behind(&code, "super::"));
        }
        let others = names.into_iter().filter(|name| *name != module && modules.contains(*name));
        uses.entry(module.clone()).or_default().extend(others.map(str::to_owned));
    }
    uses
}

/// Whether `from` comes to `to` by what uses what.
fn reaches(uses: &Uses, from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        for used in uses.get(module).into_iter().flatten() {
            if used == to {
                return true;
            }
            if seen.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    false
}

#[test]
fn the_modules_of_proto_depend_one_way() {
    let place = |module: &str| PROTO.iter().position(|known| *known == module);
    let uses = uses("proto");
    assert!(uses.values().map(BTreeSet::len).sum::<usize>() > 30, "uses are found");
    for (module, used) in uses.iter().filter(|(module, _)| *module != "lib") {
        let own = place(module).unwrap_or_else(|| panic!("{module} is new: give it its place"));
        for used in used {
            assert!(
                place(used).is_some_and(|place| place < own),
                "proto: {module} uses {used}, which stands above it"
            );
        }
    }
}

#[test]
fn modules_form_circles_only_where_it_is_said() {
    for entry in std::fs::read_dir(crates()).expect("the crates") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let uses = uses(&name);
        let circle: Vec<&String> = uses.keys().filter(|module| reaches(&uses, module, module)).collect();
        let said = CIRCLES.iter().any(|(known, _)| *known == name);
        assert_eq!(
            !circle.is_empty(),
            said,
            "{name}: a circle of modules: {circle:?}; is it said in CIRCLES?"
        );
    }
}

#[test]
fn a_circle_is_found() {
    let uses = |pairs: &[(&str, &str)]| {
        let mut uses = Uses::new();
        for (module, used) in pairs {
            uses.entry((*module).into()).or_default().insert((*used).into());
        }
        uses
    };
    assert!(reaches(&uses(&[("a", "b"), ("b", "c"), ("c", "a")]), "a", "a"));
    assert!(!reaches(&uses(&[("a", "b"), ("b", "c"), ("a", "c")]), "a", "a"));
    let code = "use crate::one::{Two, three::{four}};\nuse crate::{five, six::Seven, eight::{nine}};";
    assert_eq!(names_behind(code, "crate::"), BTreeSet::from(["one", "five", "six", "eight"]));
}
