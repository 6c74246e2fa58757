//! The domain's key in a file that others can change, or that is none.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::attacker::NOBODY;
use crate::common::hosts::with_text;
use crate::common::program::{folder, write};
use crate::measured::{Measured, yes};

pub const ROWS: &[Measured] = &[
    Measured {
        name: "key-of-a-stranger",
        without: "private-keys",
        what: "daemons that take a key that user 65534 wrote",
        most: 0.0,
        measure: give_a_key,
    },
    Measured {
        name: "key-that-anybody-reads",
        without: "private-keys",
        what: "daemons that take a key that anybody may read",
        most: 0.0,
        measure: show_a_key,
    },
    Measured {
        name: "pipe-for-a-key",
        without: "key-files",
        what: "ms that a start waited for a pipe, 3,000 at most",
        most: 1_500.0,
        measure: lay_a_pipe,
    },
];

const LONGEST: Duration = Duration::from_secs(3);

/// Whether a daemon takes the key at `key`, and how long that took.
fn check(folder: &Path, key: &Path, without: &str) -> (bool, Duration) {
    let text = with_text(folder, "a", 0, |text| write(folder, text));
    let given = "key = \"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"";
    let config = std::fs::read_to_string(&text).expect("written");
    assert!(config.contains(given), "{config}");
    std::fs::write(&text, config.replace(given, &format!("key_file = \"{}\"", key.display())))
        .expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctuald"));
    command.args(["--check", "--best-effort-host", "--config"]).arg(&text);
    if !without.is_empty() {
        command.env("PUNCTUAL_WITHOUT", without);
    }
    let mut process = command.stdout(Stdio::null()).spawn().expect("punctuald runs");
    let begun = Instant::now();
    loop {
        if let Some(status) = process.try_wait().expect("its state") {
            return (status.success(), begun.elapsed());
        }
        if begun.elapsed() > LONGEST {
            process.kill().expect("it is there");
            process.wait().expect("it ends");
            return (false, LONGEST);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder, and a file with a key that has this mode.
fn key(name: &str, mode: u32) -> (PathBuf, PathBuf) {
    let folder = folder(name);
    let key = folder.join("key");
    std::fs::write(&key, "ab".repeat(32)).expect("written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("a mode");
    (folder, key)
}

fn give_a_key(without: &'static str) -> f64 {
    let (folder, key) = key("key-given", 0o600);
    chown(&key, Some(NOBODY), None).expect("given away");
    let (taken, _) = check(&folder, &key, without);
    std::fs::remove_dir_all(folder).expect("removed");
    yes(taken)
}

fn show_a_key(without: &'static str) -> f64 {
    let (folder, key) = key("key-shown", 0o644);
    let (taken, _) = check(&folder, &key, without);
    std::fs::remove_dir_all(folder).expect("removed");
    yes(taken)
}

fn lay_a_pipe(without: &'static str) -> f64 {
    let folder = folder("key-pipe");
    let pipe = folder.join("key");
    mkfifoat(CWD, &pipe, Mode::RUSR).expect("a FIFO");
    let (_, took) = check(&folder, &pipe, without);
    std::fs::remove_dir_all(folder).expect("removed");
    took.as_secs_f64() * 1e3
}
