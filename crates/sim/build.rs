//! Computes the name of the code that simulations run: a digest of the sources of the simulator and of all
//! that it simulates, of their dependencies and compiler settings.
//!
//! Only results with the same name may be added up.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Simulated sources, beside this crate's own.
const SIMULATED: [&str; 3] = ["../analysis/src", "../proto/src", "src"];
/// Dependencies, their versions, and compiler settings.
const BUILT_WITH: [&str; 6] = [
    "../analysis/Cargo.toml",
    "../proto/Cargo.toml",
    "Cargo.toml",
    "build.rs",
    "../../Cargo.toml",
    "../../Cargo.lock",
];

fn main() -> io::Result<()> {
    let mut files: Vec<PathBuf> = BUILT_WITH.iter().map(PathBuf::from).collect();
    for folder in SIMULATED {
        println!("cargo::rerun-if-changed={folder}");
        sources(Path::new(folder), &mut files)?;
    }
    for file in BUILT_WITH {
        println!("cargo::rerun-if-changed={file}");
    }
    files.sort();
    let mut digest = FNV_OFFSET;
    for file in files {
        let name = file.to_string_lossy().replace('\\', "/");
        digest = fnv(fnv(digest, name.as_bytes()), &fs::read(&file)?);
    }
    for feature in features() {
        digest = fnv(digest, feature.as_bytes());
    }
    println!("cargo::rustc-env=PUNCTUAL_SIM_CODE={digest:016x}");
    Ok(())
}

/// Enabled features, in order.
fn features() -> Vec<String> {
    let mut names: Vec<String> =
        env::vars().map(|(name, _)| name).filter(|name| name.starts_with("CARGO_FEATURE_")).collect();
    names.sort();
    names
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// FNV-1a: sufficient to distinguish versions, and no dependency.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
