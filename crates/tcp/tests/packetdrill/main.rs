//! A small interpreter of packetdrill's language over the stack, in virtual time. It runs the scripts beside
//! it, and those of the directory in `PUNCTUAL_PACKETDRILL` (`make packetdrill DIR=...`), of which it prints
//! those that pass.
//!
//! It supports these parts of the language: times (absolute, `+` relative), packets in both directions with
//! flags, numbers, window and options, and the calls socket, bind, listen, connect, accept, read, write,
//! close, shutdown, fcntl, setsockopt (TCP_NODELAY, TCP_KEEPIDLE, hints). Python, which looks into a kernel, is left out and
//! counted. An unsupported part is reported with its line. Sequence numbers of the stack count from its SYN.

mod parse;
mod run;

use std::path::{Path, PathBuf};

fn scripts(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            scripts(&path, found);
        } else if path.extension().is_some_and(|end| end == "pkt") {
            found.push(path);
        }
    }
    found.sort();
}

/// How many assertions about a kernel were left out.
fn outcome(path: &Path) -> Result<usize, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let script = parse::script(&text)?;
    run::run(&script.steps).map(|()| script.assertions)
}

#[test]
fn own_scripts_pass() {
    let mut found = Vec::new();
    scripts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packetdrill/scripts"), &mut found);
    assert!(found.len() >= 8, "the scripts are missing: {found:?}");
    for path in found {
        let left_out = outcome(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(left_out, 0, "{}", path.display());
    }
}

/// A script that expects something else fails: the interpreter compares.
#[test]
fn a_wrong_script_fails() {
    let good = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
        +0 < S 0:0(0) win 1000 <mss 1000>\n+0 > S. 0:0(0) ack 1 <...>\n";
    let run = |text: &str| parse::script(text).and_then(|script| run::run(&script.steps));
    assert_eq!(run(good), Ok(()));
    for (from, to) in
        [("ack 1", "ack 2"), ("> S.", "> F."), ("+0 > S", "+2.5 > S"), ("S. 0:0(0)", "S. 1:1(0)")]
    {
        assert!(run(&good.replace(from, to)).is_err(), "{from} -> {to}");
    }
    assert!(run(&good.replace("+0 > S. 0:0(0) ack 1 <...>\n", "+0 < . 1:1(0) ack 1 win 9\n")).is_err());
    assert!(run("+0 sendfile(3, 4, 1) = 1").is_err());
}

/// Scripts of others: those that pass are printed; there are no requirements on them.
#[test]
fn scripts_of_others() {
    let Some(folder) = std::env::var_os("PUNCTUAL_PACKETDRILL") else { return };
    let mut found = Vec::new();
    scripts(Path::new(&folder), &mut found);
    let (mut passed, mut in_part) = (0, 0);
    for path in &found {
        match outcome(path) {
            Ok(0) => passed += 1,
            Ok(left_out) => {
                in_part += 1;
                println!("passes {}: without {left_out} assertions about the kernel", path.display());
            }
            Err(error) => println!("fails  {}: {error}", path.display()),
        }
    }
    println!("{passed} of {} scripts pass, {in_part} more without their assertions", found.len());
}
