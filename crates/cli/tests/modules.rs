//! Modules depend one way. Those at the root of `proto` and `experiments` have the order of docs/ARCHITECTURE.md. In every
//! crate, at each level of its tree, modules form no circle, except those for which the document gives a reason.

mod sources;

use std::collections::{BTreeMap, BTreeSet};

use sources::crates;
use sources::modules::Tree;

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
    "breach",
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

/// Modules at the root of a crate that form a circle: all of them, and no other. Each is one file. docs/ARCHITECTURE.md explains why
/// under "Circles of modules".
const CIRCLES: &[(&str, &[&str])] = &[
    ("analysis", &["activation", "admission", "contract", "policy", "stage", "statistical"]),
    ("client", &["agents", "channel", "connection", "events", "listener", "receiver", "state"]),
];

/// The uses between the modules at the root of a crate.
fn uses(of: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, used) in Tree::of_crate(of).uses() {
        let Some(module) = module.first() else { continue };
        let others = used.iter().filter_map(|used| used.first()).filter(|used| *used != module);
        uses.entry(module.clone()).or_default().extend(others.cloned());
    }
    uses
}

/// The modules of `of` use those before them in `order` alone.
fn one_way(of: &str, order: &[&str]) {
    let place = |module: &str| order.iter().position(|known| *known == module);
    let uses = uses(of);
    assert!(uses.values().map(BTreeSet::len).sum::<usize>() > order.len(), "uses are found");
    for (module, used) in &uses {
        let own = place(module).unwrap_or_else(|| panic!("{module} is new: give it its place"));
        for used in used {
            assert!(
                place(used).is_some_and(|place| place < own),
                "{of}: {module} uses {used}, which is above it"
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
    let folders =
        std::fs::read_dir(crates()).expect("the crates").map(|entry| entry.expect("an entry").path());
    let others = ["fuzz", "fuzz/models", "tools/mutants"].map(|folder| sources::root().join(folder));
    for folder in folders.chain(others) {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let tree = Tree::of_sources(&folder);
        let documented: Vec<(String, Vec<String>)> = (CIRCLES.iter().filter(|(known, _)| *known == name))
            .map(|(_, modules)| (String::new(), modules.iter().map(|module| (*module).to_owned()).collect()))
            .collect();
        assert_eq!(
            tree.circles(),
            documented,
            "{name}: move what they share below them, or name them in CIRCLES"
        );
        for (_, modules) in &documented {
            assert!(!modules.iter().any(|module| tree.is_folder(module)), "{name}: a circle across folders");
        }
        let has_reason = reasons.contains(&format!("\n- `{name}`:"));
        assert_eq!(has_reason, !documented.is_empty(), "{name}: docs/ARCHITECTURE.md gives the reason");
    }
}

/// Whether `path` names a module of `of`, or an item in one: a name with a capital, and what follows it, is an item.
fn is_module(of: &Tree, path: &[&str]) -> bool {
    let modules = path.iter().take_while(|name| !name.starts_with(|c: char| c.is_ascii_uppercase()));
    of.has(&modules.map(|name| (*name).to_owned()).collect::<Vec<_>>())
}

#[test]
fn modules_named_in_the_architecture_exist() {
    let trees: BTreeMap<String, Tree> = std::fs::read_dir(crates())
        .expect("the crates")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .map(|name| {
            (if name == "client" { "punctual".to_owned() } else { name.clone() }, Tree::of_crate(&name))
        })
        .collect();
    let client = &trees["punctual"];
    let document = sources::text(&sources::root().join("docs/ARCHITECTURE.md"));
    let mut found = 0;
    for quoted in document.split('`').skip(1).step_by(2).filter(|quoted| quoted.contains("::")) {
        let (start, ends) = quoted.split_once("::{").unwrap_or((quoted, ""));
        for end in ends.trim_end_matches('}').split(',').map(str::trim) {
            let path: Vec<&str> = start.split("::").chain((!end.is_empty()).then_some(end)).collect();
            let of_crate = if path[0] == "client" { Some(client) } else { trees.get(path[0]) };
            let is_there = of_crate.is_some_and(|tree| is_module(tree, &path[1..]))
                || trees.values().any(|tree| is_module(tree, &path));
            assert!(is_there, "docs/ARCHITECTURE.md: there is no module {}", path.join("::"));
            found += 1;
        }
    }
    assert!(found > 50, "{found} modules are named");
}

#[test]
fn paths_are_followed_to_the_module_that_defines_the_item() {
    let module =
        |path: &str| path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let tree = |files: &[(&str, &str)]| {
        Tree::of(files.iter().map(|(path, text)| (module(path), (*text).to_owned())))
    };
    let circle = |parent: &str, names: &[&str]| {
        (parent.to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
    };
    let one = ("one", "use super::{Second,\n    other::Other};\npub struct First(Second);");
    let two = ("two", "pub struct Second;\nfn make() -> crate::First {}");
    let root = ("", "mod one;\nmod two;\npub use self::one::First;\nuse two::Second;");
    assert_eq!(tree(&[root, one, two]).circles(), [circle("", &["one", "two"])], "by names of the root");
    let apart = ("two", "pub struct Second;");
    assert_eq!(tree(&[root, one, apart]).circles(), []);
    // A module and what is below it are one; neighbours below another module are not.
    let above = ("top", "mod left;\nmod right;\nuse self::left::Left;\nstruct Top(Left);");
    let left = ("top::left", "use super::Top;\npub struct Left;");
    assert_eq!(tree(&[above, left, ("top::right", "")]).circles(), []);
    let right = ("top::right", "use super::*;\npub const fn right() { left::Left; }");
    let left = ("top::left", "use super::right;\npub struct Left;\nfn turn() { right::right() }");
    assert_eq!(tree(&[above, left, ("top::right", right.1)]).circles(), [], "only the parent names both");
    let right = ("top::right", "fn right() { super::left::Left; }");
    assert_eq!(tree(&[above, left, right]).circles(), [circle("top", &["left", "right"])]);
}
