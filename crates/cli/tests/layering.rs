//! Checks the layers of docs/ARCHITECTURE.md: dependencies point one way, the pure crates stay pure, unsafe
//! code is only where it is allowed, and the processor's thread has the system calls that docs/SECURITY.md
//! lists.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use sources::{root, sources};

/// Crate folder -> crates of the workspace that it may depend on.
const MAY_USE: &[(&str, &[&str])] = &[
    ("trial", &[]),
    ("analysis", &[]),
    ("proto", &["trial", "analysis"]),
    ("tcp", &["analysis", "proto"]),
    // Tests use it, and experiments with bare nodes; what runs on a host does not.
    ("rig", &["proto"]),
    ("os", &["analysis"]),
    ("link", &["trial", "analysis", "os"]),
    ("engine", &["trial", "analysis", "os", "proto", "tcp", "link"]),
    ("ipc", &["trial", "analysis", "proto"]),
    ("host", &["trial", "analysis", "os", "proto", "link", "engine", "ipc"]),
    // Engine, link and host with the feature `embedded` only: see `a_client_needs_no_engine`.
    ("client", &["analysis", "os", "proto", "ipc", "link", "engine", "host"]),
    ("daemon", &["trial", "analysis", "os", "proto", "link", "engine", "ipc", "host", "client"]),
    ("sim", &["analysis", "proto", "tcp"]),
    // The IDL front end in its build script only.
    (
        "experiments",
        &[
            "analysis", "os", "proto", "rig", "link", "engine", "ipc", "host", "client", "sim", "giop",
            "orb", "idl",
        ],
    ),
    (
        "cli",
        &[
            "trial",
            "analysis",
            "os",
            "proto",
            "link",
            "engine",
            "ipc",
            "host",
            "client",
            "sim",
            "experiments",
            "giop",
            "idl",
            "orb",
        ],
    ),
    ("giop", &["analysis"]),
    // The front end in its build script only.
    ("orb", &["giop", "analysis", "os", "idl"]),
    // IDL files to definitions: nothing of ours, so that a build script is small.
    ("idl", &[]),
    // Outside of `crates`: they show or test, and no crate depends on them.
    ("echo", &["giop", "idl", "orb"]),
    (
        "fuzz",
        &[
            "trial", "analysis", "os", "proto", "tcp", "rig", "link", "engine", "ipc", "host", "client",
            "sim", "cli", "idl", "giop",
        ],
    ),
    ("models", &["trial", "analysis", "proto"]),
    // It reads sources, and runs programs that are built from them.
    ("mutants", &[]),
    // Tests only.
    ("skip", &[]),
];

/// Crates that read no clock, no socket and no random source.
const PURE: &[&str] = &["analysis", "proto", "tcp", "giop"];

/// Everything that the pure crates may link, directly or not: all `no_std`, all without I/O.
const PURE_MAY_LINK: &[&str] = &[
    "allocator-api2",
    "arrayvec",
    "bitflags",
    "blake3",
    "byteorder",
    "cfg-if",
    "cobs",
    "constant_time_eq",
    "cpufeatures",
    "equivalent",
    "foldhash",
    "hash32",
    "hashbrown",
    "heapless",
    "libc", // cpufeatures uses it for the features of an ARM processor
    "managed",
    "postcard",
    "punctual-analysis",
    "punctual-giop",
    "punctual-proto",
    "punctual-trial",
    "serde",
    "serde_core",
    "punctual-tcp",
    "siphasher",
    "smoltcp",
    "stable_deref_trait",
    "thiserror",
    "zerocopy",
];

/// Linked with `std` nevertheless: smoltcp 0.14.0 computes CUBIC with methods of `f64` that `core` lacks, and
/// passes the feature on to `managed`. It takes its time as an argument (docs/adr/0052), and `punctual-tcp`
/// itself is `no_std`.
const MAY_HAVE_STD: &[&str] = &["managed", "smoltcp"];

/// Folders that may contain unsafe code; each block has its `SAFETY` reason, which clippy requires.
const UNSAFE_MAY_STAND_IN: &[&str] = &["crates/link/src/", "crates/ipc/src/", "crates/os/src/"];

fn cargo(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

/// Crate folder -> folders of the workspace's crates that it depends on, tests and benches left out.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let text = cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&text).expect("cargo prints JSON");
    let folder = |path: &str| Path::new(path).file_name().expect("a folder").to_string_lossy().into_owned();
    let of = |package: &Value| {
        let own = package["dependencies"].as_array().expect("a list").iter();
        let own = own.filter(|d| d["kind"] != "dev").filter_map(|d| d["path"].as_str()).map(folder);
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        (folder(&manifest.parent().expect("a folder").to_string_lossy()), own.collect())
    };
    metadata["packages"].as_array().expect("a list").iter().map(of).collect()
}

/// Names of the crates that a build with these options links, tests left out.
fn linked(options: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--offline", "-e", "normal,build", "--prefix", "none", "-f", "{p}"];
    let tree = cargo(&[&tree, options].concat());
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Only programs that ask for tokio's traits link tokio (deny.toml: no crate but the client may).
#[test]
fn tokio_is_linked_by_the_clients_feature_alone() {
    assert!(!linked(&["--workspace"]).contains("tokio"), "a crate links tokio by default");
    assert!(linked(&["-p", "punctual", "--features", "tokio"]).contains("tokio"), "is it called so?");
    let alone = linked(&["-p", "punctual", "--no-default-features", "--features", "tokio"]);
    assert!(alone.contains("tokio") && !alone.contains("punctual-engine"), "tokio needs no engine");
}

/// A program that connects to a daemon builds no engine and no BPF program, and reads no configuration of
/// hosts.
#[test]
fn a_client_needs_no_engine() {
    let client = |more: &[&str]| linked(&[&["-p", "punctual"], more].concat());
    let (alone, embedded) = (client(&["--no-default-features"]), client(&[]));
    for name in
        ["punctual-engine", "punctual-host", "punctual-link", "punctual-os", "aya", "netlink-sys", "toml"]
    {
        assert!(embedded.contains(name), "an embedding program has no {name}: is it called so?");
        assert!(!alone.contains(name), "a client without an engine links {name}");
    }
}

/// Whether a line of code, its comment left out, uses the keyword `unsafe`.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default().replace("\"unsafe\"", "");
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word == "unsafe")
}

#[test]
fn dependencies_point_one_way() {
    let found = dependencies();
    let known: BTreeSet<_> = MAY_USE.iter().map(|&(name, _)| name).collect();
    let there: BTreeSet<_> = found.keys().map(String::as_str).collect();
    assert_eq!(there, known, "a crate came or went: say here and in docs/ARCHITECTURE.md what it may use");
    for (name, allowed) in MAY_USE {
        for used in &found[*name] {
            assert!(allowed.contains(&used.as_str()), "{name} must not depend on {used}");
        }
    }
}

#[test]
fn pure_crates_are_no_std_and_safe() {
    for name in PURE {
        let path = root().join("crates").join(name).join("src/lib.rs");
        let text = std::fs::read_to_string(&path).expect("lib.rs");
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(
                text.lines().any(|line| line.trim() == attribute),
                "{} lacks {attribute}",
                path.display()
            );
        }
    }
}

#[test]
fn pure_crates_link_nothing_impure() {
    for name in PURE {
        let package = format!("punctual-{name}");
        let tree = cargo(&[
            "tree",
            "--offline",
            "-p",
            &package,
            "-e",
            "normal,no-proc-macro",
            "--prefix",
            "none",
            "-f",
            "{p}|{f}",
        ]);
        for line in tree.lines() {
            let (krate, features) = line.split_once('|').expect("the format asks for it");
            let krate = krate.split_whitespace().next().expect("a name");
            assert!(PURE_MAY_LINK.contains(&krate), "{package} links {krate}: is it no_std and without I/O?");
            let features = features.trim_end_matches(" (*)").split(',');
            let has_std = features.into_iter().any(|feature| feature == "std");
            assert!(!has_std || MAY_HAVE_STD.contains(&krate), "{package} links {krate} with std");
        }
    }
}

#[test]
fn unsafe_code_stays_where_it_may_be() {
    let root = root();
    let shipped = MAY_USE.iter().map(|(name, _)| root.join("crates").join(name).join("src"));
    for file in shipped.filter(|folder| folder.is_dir()).flat_map(|folder| sources(&folder)) {
        let text = sources::text(&file);
        let place = file.strip_prefix(&root).expect("inside the workspace").to_string_lossy().into_owned();
        let is_allowed = UNSAFE_MAY_STAND_IN.iter().any(|folder| place.starts_with(folder));
        let found = text.lines().position(has_unsafe);
        assert!(is_allowed || found.is_none(), "{place}:{}: unsafe code", found.unwrap_or_default() + 1);
    }
}

#[test]
fn the_search_for_unsafe_code_finds_it() {
    assert!(has_unsafe("    let x = unsafe { *p };"));
    assert!(has_unsafe("pub unsafe fn f() {}"));
    assert!(!has_unsafe("// unsafe { }"));
    assert!(!has_unsafe(r#"    "try", "unsafe", "use","#));
    assert!(!has_unsafe("#![forbid(unsafe_code)]"));
}

/// The table of docs/SECURITY.md that begins with a heading of these cells: its rows, the first two cells of each.
fn table(text: &str, heading: &str) -> Vec<(String, String)> {
    let rows = text.lines().skip_while(|line| *line != heading).skip(2);
    let cells = |row: &str| {
        let mut cells = row.trim_matches('|').splitn(2, '|').map(|cell| cell.trim().to_owned());
        (cells.next().unwrap_or_default(), cells.next().unwrap_or_default())
    };
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// The filter of the processor's thread is made from its list, so the thread can make only the calls that the
/// document lists.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_processors_system_calls_are_those_of_the_document() {
    use punctual_os::calls::{ThreadKind, calls};
    let text = std::fs::read_to_string(root().join("docs/SECURITY.md")).expect("the document");
    let documented = table(&text, "| call | for |");
    let has: Vec<_> =
        calls(ThreadKind::Processor).map(|call| (format!("`{}`", call.name), call.why.to_owned())).collect();
    assert_eq!(
        documented, has,
        "say in docs/SECURITY.md what the processor may do, and why, in the order of its list"
    );
}

/// `link` and `proto` do not depend on each other, and the driver reads packets of both kinds.
#[test]
fn the_driver_uses_the_protocols_versions_of_packets() {
    let header = std::fs::read_to_string(root().join("crates/link/bpf/punctual.bpf.h")).expect("the header");
    let versions = [
        ("WIRE_VERSION", punctual_proto::wire::VERSION),
        ("RTCOP_VERSION", punctual_proto::signalling::RTCOP_VERSION),
    ];
    for (name, version) in versions {
        let line = format!("#define {name} {version}");
        assert!(header.lines().any(|there| there == line), "the header does not say: {line}");
    }
}
