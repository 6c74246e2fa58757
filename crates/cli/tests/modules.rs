//! Modules depend one way: those of `proto` and `experiments` in the order of docs/ARCHITECTURE.md, in every
//! other crate without circles across folders except those for which the document gives a reason.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sources::{code, crates, sources};

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

/// The modules of `experiments`, in the same way.
const EXPERIMENTS: &[&str] =
    &["report", "excuse", "witness", "measure", "loads", "testbed", "demo", "experiments"];

/// Modules that form a circle, crate by crate: all of them, and no other. docs/ARCHITECTURE.md explains why
/// under "Circles of modules".
const CIRCLES: &[(&str, &[&str])] = &[
    ("analysis", &["activation", "contract", "policies", "policy", "stage", "statistical"]),
    (
        "client",
        &["agents", "channel", "connection", "events", "handler", "lead", "listener", "receiver", "state"],
    ),
];

/// The uses of a module within its crate: module of the crate's root -> such modules.
type Uses = BTreeMap<String, BTreeSet<String>>;

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

/// The uses between the modules at the root of a crate.
fn uses(of: &str) -> Uses {
    let root = crates().join(of).join("src");
    let files = sources(&root);
    let module_of = |file: &PathBuf| {
        let inside = file.strip_prefix(&root).expect("below the root").with_extension("");
        let parts: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        (!parts.iter().any(|part| part == "tests")).then(|| (parts[0].clone(), parts.len()))
    };
    let modules: BTreeSet<String> = files.iter().filter_map(module_of).map(|(module, _)| module).collect();
    let mut uses = Uses::new();
    for file in &files {
        let Some((module, depth)) = module_of(file) else { continue };
        let text = sources::text(file);
        let code: String = code(&text).map(|line| format!("{line}\n")).collect();
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

/// The modules of `of` use those before them in `order` alone.
fn one_way(of: &str, order: &[&str]) {
    let place = |module: &str| order.iter().position(|known| *known == module);
    let uses = uses(of);
    assert!(uses.values().map(BTreeSet::len).sum::<usize>() > order.len(), "uses are found");
    for (module, used) in uses.iter().filter(|(module, _)| *module != "lib") {
        let own = place(module).unwrap_or_else(|| panic!("{module} is new: give it its place"));
        for used in used {
            assert!(
                place(used).is_some_and(|place| place < own),
                "{of}: {module} uses {used}, which stands above it"
            );
        }
    }
}

#[test]
fn the_modules_of_proto_depend_one_way() {
    assert!(uses("proto").values().map(BTreeSet::len).sum::<usize>() > 30, "uses are found");
    one_way("proto", PROTO);
}

#[test]
fn the_modules_of_experiments_depend_one_way() {
    one_way("experiments", EXPERIMENTS);
}

#[test]
fn modules_form_circles_only_where_documented() {
    let document = sources::text(&sources::root().join("docs/ARCHITECTURE.md"));
    let (_, reasons) = document.split_once("### Circles of modules").expect("the reasons");
    let reasons = reasons.split("\n#").next().unwrap_or_default();
    for entry in std::fs::read_dir(crates()).expect("the crates") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let uses = uses(&name);
        let circle: Vec<&str> =
            uses.keys().filter(|module| reaches(&uses, module, module)).map(String::as_str).collect();
        let documented =
            CIRCLES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, modules)| modules);
        assert_eq!(circle, documented, "{name}: a circle of modules; is it said in CIRCLES?");
        let has_reason = reasons.contains(&format!("\n- `{name}`:"));
        assert_eq!(
            has_reason,
            !documented.is_empty(),
            "{name}: say in docs/ARCHITECTURE.md why, where there is one"
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
