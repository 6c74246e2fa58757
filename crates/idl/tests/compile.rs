//! Generated code compiles without a warning, also without those of clippy: that of `tests/idl`, of all of
//! omniorb-idl's files, and of the tree in `PUNCTUAL_ACE_TAO` (`make idl-corpus DIR=...`).

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Memory, errors_of, files};
use punctual_idl::generate::generate;
use punctual_idl::{Disk, Loader, Options, Specification};

/// Files that do not contradict each other, read as one.
#[derive(Debug, Default)]
struct Group {
    files: Vec<PathBuf>,
    specification: Option<Specification>,
}

/// A file that includes others, and the others from the disk.
struct Including(Memory);

impl Loader for Including {
    fn load(&mut self, path: &Path) -> std::io::Result<Option<Vec<u8>>> {
        Ok(self.0.load(path)?.or(Disk.load(path)?))
    }
}

fn read(files: &[PathBuf], options: &Options) -> Option<Specification> {
    let text: String = files.iter().map(|file| format!("#include \"{}\"\n", file.display())).collect();
    let all = PathBuf::from("/all.idl");
    let mut loader = Including(Memory([(all.clone(), text.into_bytes())].into()));
    let outcome = punctual_idl::read(&all, options, &mut loader).expect("a file");
    assert_eq!(outcome.specification.is_some(), errors_of(&outcome).is_empty());
    outcome.specification
}

/// All files that are accepted, in as few groups as need be.
fn groups(files: Vec<PathBuf>, options: &Options) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    'files: for file in files {
        let Some(alone) = read(std::slice::from_ref(&file), options) else { continue };
        for group in &mut groups {
            group.files.push(file.clone());
            match read(&group.files, options) {
                Some(all) => {
                    group.specification = Some(all);
                    continue 'files;
                }
                None => drop(group.files.pop()),
            }
        }
        groups.push(Group { files: vec![file], specification: Some(alone) });
    }
    groups
}

/// A crate with these modules passes clippy, warnings denied.
fn compiles(name: &str, modules: &[String]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(folder.join("src")).expect("a folder");
    let manifest = format!(
        "[package]\nname = \"generated\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         punctual-giop = {{ path = {:?} }}\npunctual-orb = {{ path = {:?} }}\n",
        root.join("crates/giop"),
        root.join("crates/orb")
    );
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("written");
    std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("copied");
    let mut lib = "//! Generated.\n#![deny(warnings, missing_docs, clippy::all)]\n".to_owned();
    for (number, module) in modules.iter().enumerate() {
        std::fs::write(folder.join(format!("src/m{number}.rs")), module).expect("written");
        lib += &format!("/// Of one group of files.\npub mod m{number};\n");
    }
    std::fs::write(folder.join("src/lib.rs"), lib).expect("written");
    let mut command = Command::new(env!("CARGO"));
    command.args(["clippy", "--offline", "--quiet"]).current_dir(&folder);
    // The dependencies stay where the next run finds them.
    command.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated-target"));
    let output = command.output().expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}:\n{errors}", folder.display());
}

fn generated(groups: &[Group]) -> Vec<String> {
    let code = |group: &Group| {
        let specification = group.specification.as_ref().expect("it was accepted");
        generate(specification, "all.idl").code
    };
    groups.iter().map(code).collect()
}

#[test]
fn code_for_all_files_of_omniorb_compiles_without_a_warning() {
    let folder = PathBuf::from("/usr/share/idl/omniORB");
    if !folder.is_dir() {
        punctual_skip::skipped!("{} is missing: apt-get install omniorb-idl", folder.display());
        return;
    }
    let options = Options {
        include_dirs: vec![folder.clone(), folder.join("COS")],
        defines: vec![("__OMNIIDL__".into(), "1".into())],
    };
    let groups = groups(files(&folder), &options);
    let count: usize = groups.iter().map(|group| group.files.len()).sum();
    assert!(count >= 61 && groups.len() <= 3, "{count} files in {} groups", groups.len());
    compiles("omniorb", &generated(&groups));
}

/// Operations of each kind, and names that Rust has for something else.
#[test]
fn code_for_the_files_of_these_tests_compiles_without_a_warning() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/idl");
    let groups = groups(files(&folder), &Options::default());
    assert!(groups.len() == 1 && groups[0].files.len() >= 3, "{groups:?}");
    compiles("own", &generated(&groups));
}

#[test]
fn code_for_all_files_of_tao_compiles_without_a_warning() {
    let Some(tree) = std::env::var_os("PUNCTUAL_ACE_TAO").map(PathBuf::from) else {
        punctual_skip::skipped!("run make idl-corpus DIR=..., with a checkout of DOCGroup/ACE_TAO");
        return;
    };
    let folder = tree.join("TAO/tests/IDL_Test");
    let options = Options {
        include_dirs: vec![folder.clone(), tree.join("TAO"), tree.join("TAO/tao")],
        defines: vec![],
    };
    let groups = groups(files(&folder), &options);
    assert!(!groups.is_empty());
    compiles("tao", &generated(&groups));
}
