//! The generated code of `tests/idl` is the recorded one of `tests/generated`, which other tests use.
//!
//! `PUNCTUAL_PIN=1 cargo test -p punctual-idl --test recorded` records it again.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the command, and returns what it wrote.
fn generate(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Within the workspace: rustfmt finds its configuration.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("recorded");
    let output = Command::new(env!("CARGO_BIN_EXE_punctual-idl"))
        .args(["-o", &folder.display().to_string(), &format!("tests/idl/{file}.idl")])
        .current_dir(root)
        .output()
        .expect("it runs");
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""), "{file}");
    let path = folder.join(file).with_extension("rs");
    let format = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(root.join("../../rustfmt.toml"))
        .arg(&path)
        .status();
    assert!(format.expect("rustfmt runs").success(), "{file}");
    std::fs::read_to_string(&path).expect("it is written")
}

#[test]
fn generated_code_is_the_recorded_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(root.join("tests/idl")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        let (code, recorded) = (generate(name), root.join(format!("tests/generated/{name}.rs")));
        if std::env::var_os("PUNCTUAL_PIN").is_some() {
            std::fs::write(&recorded, &code).expect("it is recorded");
        }
        let before = std::fs::read_to_string(&recorded).unwrap_or_default();
        assert!(code == before, "{name}.rs differs: set PUNCTUAL_PIN=1, and review git diff");
        count += 1;
    }
    assert!(count >= 2, "{count} files");
}
