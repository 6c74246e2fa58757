//! Names the code that simulations run: a digest of the sources of the simulator and of all that it simulates.
//!
//! Results of one name may be added up; of two, never.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Beside this crate's own sources.
const SIMULATED: [&str; 3] = ["../analysis/src", "../proto/src", "src"];

fn main() -> io::Result<()> {
    let mut files = Vec::new();
    for folder in SIMULATED {
        println!("cargo::rerun-if-changed={folder}");
        sources(Path::new(folder), &mut files)?;
    }
    files.sort();
    let mut digest = FNV_OFFSET;
    for file in files {
        let name = file.to_string_lossy().replace('\\', "/");
        digest = fnv(fnv(digest, name.as_bytes()), &fs::read(&file)?);
    }
    println!("cargo::rustc-env=PUNCTUAL_SIM_CODE={digest:016x}");
    Ok(())
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

/// FNV-1a: enough to tell versions apart, and no dependency.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
