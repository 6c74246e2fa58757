//! What build scripts call: which files are read, what is written, and what an error says.

use std::path::{Path, PathBuf};

use punctual_idl::{Build, Disk, Loader, build};

/// A folder with these files.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("build-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.join(name), text).expect("written");
    }
    folder
}

#[test]
fn all_files_that_were_read_are_named_and_code_is_written() {
    let files = [("a.idl", "#include \"b.idl\"\nstruct A { B part; };"), ("b.idl", "struct B { long x; };")];
    let folder = folder("one", &files);
    let written = Build::new().file(folder.join("a.idl")).write_to(&folder, "a").expect("it is accepted");
    assert_eq!(written.read, [folder.join("a.idl"), folder.join("b.idl")]);
    assert_eq!((written.path, written.warnings), (folder.join("a.rs"), vec![]));
    let code = std::fs::read_to_string(folder.join("a.rs")).expect("it is there");
    assert!(code.contains("pub struct A") && code.contains("pub struct B"), "{code}");
}

#[test]
fn files_of_one_build_share_what_they_include() {
    let guarded = "#ifndef GUARD\n#define GUARD\nmodule M { struct C { MAX x; }; };\n#endif\n";
    let files = [
        ("a.idl", "#include <c.idl>\nstruct A { M::C part; };"),
        ("b.idl", "#include <c.idl>\nstruct B { M::C part; };\nvaluetype V {};"),
        ("c.idl", guarded),
    ];
    let folder = folder("two", &files);
    let build = Build::new().file(folder.join("a.idl")).file(folder.join("b.idl"));
    let build = build.include_dir(&folder).define("MAX", "octet");
    let written = build.write_to(&folder, "all").expect("it is accepted");
    assert_eq!(written.read, ["a.idl", "c.idl", "b.idl"].map(|name| folder.join(name)));
    assert_eq!(written.warnings, ["not generated: V: punctual-idl generates no code for value types"]);
    let code = std::fs::read_to_string(written.path).expect("it is there");
    assert_eq!(code.matches("pub struct C").count(), 1, "{code}");
}

#[test]
fn errors_have_places_and_nothing_is_written() {
    let folder = folder("bad", &[("bad.idl", "struct A { long x; };\nstruct B { Lost x; };\n")]);
    let file = folder.join("bad.idl");
    let error = Build::new().file(&file).write_to(&folder, "bad").expect_err("it is refused");
    let expected = format!(
        "the IDL has errors\n{}:2:12: error: \"Lost\" is not declared\n    struct B {{ Lost x; }};\n               ^",
        file.display()
    );
    assert_eq!(format!("{error:?}"), expected);
    assert!(!folder.join("bad.rs").exists());
    let error = Build::new().file(folder.join("none.idl")).write_to(&folder, "x").expect_err("no file");
    assert!(error.to_string().contains("none.idl: there is no such file"), "{error}");
    let error = build(&file).expect_err("this is no build script");
    assert!(error.to_string().contains("OUT_DIR"), "{error}");
}

/// A device states no length.
#[test]
fn a_file_without_an_end_is_refused() {
    let refused = Disk.load(Path::new("/dev/zero")).expect_err("it has no end");
    assert!(refused.to_string().contains("larger than"), "{refused}");
}
