//! Builds the XDP program with clang: `bpf/punctual.bpf.c` becomes an object that the crate embeds.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

const SOURCE: &str = "bpf/punctual.bpf.c";
const INCLUDED: [&str; 3] = ["bpf/punctual.bpf.h", "bpf/flows.bpf.h", "bpf/kernel.h"];

fn main() {
    for file in INCLUDED.iter().chain([&SOURCE]) {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    if let Err(why) = build() {
        eprintln!("error: {why}");
        exit(1);
    }
}

fn build() -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let big_endian = env::var("CARGO_CFG_TARGET_ENDIAN").is_ok_and(|endian| endian == "big");
    let target = if big_endian { "bpfeb" } else { "bpfel" };
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or("OUT_DIR is not set: build with cargo")?;
    // Atomic instructions need version 3 of the instruction set (Linux 5.12); `-g` brings the maps' types.
    let output = Command::new(&clang)
        .args(["-target", target, "-mcpu=v3", "-O2", "-g", "-fdebug-compilation-dir=."])
        .args(["-Wall", "-Wextra", "-Werror", "-c", SOURCE, "-o"])
        .arg(out.join("punctual.bpf.o"))
        .output()
        .map_err(|error| {
            format!("cannot run \"{clang}\" ({error}): install it (`apt-get install clang`) or set CLANG")
        })?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{clang} could not build {SOURCE} (clang 12 or newer is needed):\n{printed}"));
    }
    Ok(())
}
