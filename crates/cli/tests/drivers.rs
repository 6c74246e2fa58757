//! Only a driver's own file describes the driver; all other code uses the table of drivers and names none.

mod sources;

use punctual_host::config::Driver;

use sources::{code, crates, sources};

/// The folders of drivers: the table with a file or a folder for each, and the code that carries packets.
const DRIVERS: [&str; 2] = ["host/src/config/drivers/", "link/src/"];

/// Files that may name a driver nevertheless, with the reason.
const NAMED: &[(&str, &str)] = &[
    ("cli/src/verbs/bench.rs", "an example of a command line"),
    ("experiments/src/experiments/mod.rs", "streams are compared with kernel sockets, over the same"),
    ("experiments/src/experiments/small_messages.rs", "one of its worlds is a bare kernel socket"),
    ("experiments/src/experiments/roundtrip/channels.rs", "states the driver for which its targets hold"),
    ("experiments/src/experiments/livelock/judge.rs", "states the driver for which its targets hold"),
    ("experiments/src/experiments/list.rs", "an experiment on the links that it makes in its process"),
    ("experiments/src/experiments/profile_limit/pair.rs", "that experiment"),
    ("experiments/src/testbed/embedded.rs", "hosts of one process, joined by links that it makes"),
    ("os/src/calls/tables.rs", "the system calls of threads stand in one table, with what each is for"),
];

/// Whether a line names the driver: in quotes, as a constant of the table, or, unless its name is an ordinary word, as a word
/// that is no part of a path.
fn names(line: &str, driver: &str) -> bool {
    let quoted = [format!("\"{driver}\""), format!("\"{driver}\\\"")];
    if quoted.iter().any(|name| line.contains(name.as_str())) {
        return true;
    }
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_:.".contains(c);
    line.split(|c: char| !is_of_word(c)).any(|word| {
        let constant = word.strip_prefix("Driver::").is_some_and(|name| name == driver.to_ascii_uppercase());
        constant
            || (driver != "memory" && word.trim_end_matches([':', '.']) == driver && !word.ends_with("::"))
    })
}

/// Lines of a file of ours that name a driver.
fn lines_with_names(text: &str) -> Vec<String> {
    let named = |line: &&str| Driver::ALL.iter().any(|driver| names(line, driver.name()));
    // A module may be called like a driver.
    let is_module = |line: &str| line.trim_start().starts_with("mod ") || line.starts_with("pub mod ");
    code(text).filter(|line| !is_module(line)).filter(named).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn drivers_are_named_in_their_files_and_in_the_table_alone() {
    let root = crates();
    let folders = std::fs::read_dir(&root).expect("the crates");
    let of_crate =
        |entry: std::io::Result<std::fs::DirEntry>| sources(&entry.expect("an entry").path().join("src"));
    let files: Vec<_> = folders.flat_map(of_crate).collect();
    assert!(files.len() > 300, "sources are found: {}", files.len());
    let mut used = Vec::new();
    for file in &files {
        let path = file.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        if is_test || DRIVERS.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let lines = lines_with_names(&sources::text(file));
        match NAMED.iter().find(|(known, _)| *known == path) {
            Some((known, _)) if !lines.is_empty() => used.push(*known),
            Some((known, _)) => panic!("{known} names no driver any more: take it out of NAMED"),
            None => assert!(lines.is_empty(), "{path} names a driver: ask the table instead: {lines:#?}"),
        }
    }
    assert_eq!(used.len(), NAMED.len(), "all of NAMED are there: {used:?}");
}

#[test]
fn a_name_is_found() {
    let found = |line: &str| !lines_with_names(line).is_empty();
    for line in [
        "let driver = \"udp\";",
        "if driver == Driver::XDP {",
        "format!(\"driver \\\"memory\\\" has no wire\")",
        "\"measured over udp: it costs more\"",
        "text = \"xdp: takes packets in\"",
    ] {
        assert!(found(line), "{line}");
    }
    for line in [
        "use punctual_link::xdp::ZeroCopy;",
        "mod xdp;",
        "let udp_wires = ports.udp.len();",
        "// over udp",
        "take more memory than \"memories\"",
    ] {
        assert!(!found(line), "{line}");
    }
}
