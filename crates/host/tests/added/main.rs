//! An admission policy and a link driver are each added by one new file and one line. The test copies the crates that know
//! policies and drivers, adds one of each to the copy, builds it, and runs a program that uses both by their names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that `host` is built from, and itself.
const CRATES: [&str; 9] = ["trial", "analysis", "os", "proto", "tcp", "link", "engine", "ipc", "host"];

/// What is added: its file, where the file goes, the file with the table, the line of the table before it, and the line.
struct Added {
    text: &'static str,
    to: &'static str,
    table: &'static str,
    before: &'static str,
    line: &'static str,
}

const POLICY: Added = Added {
    text: include_str!("at_most_two.rs"),
    to: "analysis/src/policies/at_most_two.rs",
    table: "analysis/src/policies/mod.rs",
    before: "    mod fifo: ",
    line: "    mod at_most_two: AT_MOST_TWO = \"`edf` with at most two channels.\";\n",
};

const DRIVER: Added = Added {
    text: include_str!("echoes.rs"),
    to: "host/src/config/drivers/echoes.rs",
    table: "host/src/config/drivers/mod.rs",
    before: "    mod memory: ",
    line: "    mod echoes: ECHOES(Echoes) = \"A link that leads nowhere.\";\n",
};

const ADDED: [Added; 2] = [POLICY, DRIVER];

impl Added {
    /// The text of the file `path` after the addition, which changes the table alone.
    fn applied(&self, path: &str, text: String) -> String {
        assert!(path != self.to, "{path} is new");
        if path != self.table {
            return text;
        }
        let (before, after) = text.split_once(self.before).expect("the table");
        format!("{before}{}{}{after}", self.line, self.before)
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Writes a file if its text is another. So a second run of the test builds nothing anew.
fn write(file: &Path, text: &str) {
    if fs::read_to_string(file).is_ok_and(|present| present == text) {
        return;
    }
    let folder = file.parent().expect("a folder");
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(file, text));
    written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// Copies a folder below `crates`, with the additions.
fn copy(crates: &Path, folder: &str, to: &Path) {
    let from = crates.join(folder);
    for entry in fs::read_dir(&from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let entry = entry.expect("an entry");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            copy(crates, &path, to);
        } else {
            let text = read(&entry.path());
            write(&to.join(&path), &ADDED.iter().fold(text, |text, added| added.applied(&path, text)));
        }
    }
}

/// The manifest of a crate without its tests and benches, which are not copied.
fn manifest(text: &str) -> &str {
    let ends = ["[dev-dependencies]", "[[test]]", "[[bench]]"];
    &text[..ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len())]
}

/// The manifest of the workspace, with the crates of the copy alone. Nothing is optimised and debug information is left out: the
/// program is built quickly and runs once.
fn workspace(text: &str) -> String {
    let packages = text.find("[workspace.package]").expect("what packages share");
    let profiles = text.find("[profile.").unwrap_or(text.len());
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n\n{}\n[profile.dev]\nopt-level = 0\ndebug = false\n",
        &text[packages..profiles]
    )
}

/// Copies the workspace to `folder`, as far as it is needed, with the additions and the program that uses them.
fn copy_workspace(folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (from, to) = (root.join("crates"), folder.join("crates"));
    write(&folder.join("Cargo.toml"), &workspace(&read(&root.join("Cargo.toml"))));
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the versions of all packages");
    for name in CRATES {
        copy(&from, &format!("{name}/src"), &to);
        let file = format!("{name}/Cargo.toml");
        write(&to.join(&file), manifest(&read(&from.join(&file))));
    }
    write(&to.join("link/build.rs"), &read(&from.join("link/build.rs")));
    copy(&from, "link/bpf", &to);
    for added in &ADDED {
        write(&to.join(added.to), added.text);
    }
    let check = folder.join("crates/check");
    write(&check.join("src/main.rs"), include_str!("check.rs"));
    write(
        &check.join("Cargo.toml"),
        "[package]\nname = \"check\"\nedition.workspace = true\n\n[dependencies]\npunctual-analysis.workspace = true\n\
         punctual-host.workspace = true\nrustix.workspace = true\n",
    );
}

#[test]
fn a_policy_and_a_driver_are_one_file_and_one_line_each() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("added");
    copy_workspace(&folder);
    let built = Command::new(env!("CARGO"))
        .args(["run", "--offline", "--quiet", "--package", "check"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo");
    let (printed, errors) = (String::from_utf8_lossy(&built.stdout), String::from_utf8_lossy(&built.stderr));
    assert!(
        built.status.success() && printed.contains("the policy and the driver are known"),
        "{printed}{errors}"
    );
    assert!(!errors.contains("warning"), "{errors}");
}
