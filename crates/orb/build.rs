//! Generates the clients and skeletons of the naming service.

use std::path::{Path, PathBuf};

fn main() {
    let idl = Path::new("src/naming/CosNaming.idl");
    println!("cargo::rerun-if-changed={}", idl.display());
    let outcome = punctual_idl::read(idl, &punctual_idl::Options::default(), &mut punctual_idl::Disk)
        .expect("the file is there");
    for diagnostic in &outcome.diagnostics {
        println!("cargo::warning={diagnostic}");
    }
    let specification = outcome.specification.expect("the file is accepted");
    let generated = punctual_idl::generate::generate(&specification, "CosNaming.idl");
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(folder.join("CosNaming.rs"), generated.code).expect("the folder can be written");
}
