//! The command: exit codes, what goes to which output, and JSON.

use std::path::PathBuf;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_punctual-idl")).args(arguments).output().expect("it runs")
}

/// A file with this text, in a folder of its own.
fn file(name: &str, text: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("punctual-idl-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("a.idl");
    std::fs::write(&path, text).expect("written");
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn an_accepted_file_is_0_and_prints_nothing() {
    let path = file("accepted", "#include <b.idl>\nconst long x = N + M;\n");
    let folder = path.parent().expect("a folder").join("inc");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("b.idl"), "").expect("written");
    let (folder, path) = (folder.display().to_string(), path.display().to_string());
    let output = run(&["-I", &folder, "-DN=3", "-D", "M", "--check", &path]);
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(0), "".into(), "".into())
    );
    let output = run(&["--check", &path]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_refused_file_is_1_and_its_errors_go_to_stderr() {
    let path = file("refused", "typedef x y;\nstruct S { long a }\n").display().to_string();
    let output = run(&["--check", &path]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    let expected = format!(
        "{path}:1:9: error: \"x\" is not declared\n    typedef x y;\n            ^\n\
         {path}:2:19: error: expected \";\" behind the member, found \"}}\"\n    struct S {{ long a }}\n                      ^\n"
    );
    assert!(text(&output.stderr).starts_with(&expected), "{}", text(&output.stderr));
    assert_eq!(run(&["--check", "/nonexistent/a.idl"]).status.code(), Some(1));
}

#[test]
fn json_has_the_verdict_and_the_diagnostics() {
    let path = file("json", "typedef \"x\ty\" z;\n").display().to_string();
    let output = run(&["--check", "--json", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stdout),
        format!(
            "{{\"file\":\"{path}\",\"accepted\":false,\"written\":null,\"not_generated\":[],\"diagnostics\":[{{\"severity\":\"error\",\"file\":\"{path}\",\
             \"line\":1,\"column\":9,\"message\":\"expected a type, found a string\",\
             \"source_line\":\"typedef \\\"x\\u0009y\\\" z;\",\"notes\":[]}}]}}\n"
        )
    );
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &[][..],
        &["--check"],
        &["a", "b", "--check"],
        &["--no"],
        &["-I"],
        &["-o", "", "a"],
        &["-D", "1", "--check", "a"],
        &["a"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains("usage: punctual-idl"), "{arguments:?}");
    }
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    // As omniidl and gcc do for a file that cannot be read.
    assert!(text(&help.stdout).contains("1 refused (also if FILE cannot be read"), "{help:?}");
}

#[test]
fn a_folder_is_no_file() {
    let path = file("folder", "#include <b.idl>\nconst long x = N;\n");
    let [first, second] = ["1", "2"].map(|name| path.with_file_name(name));
    std::fs::create_dir_all(first.join("b.idl")).expect("a folder with the name of a file");
    std::fs::create_dir_all(&second).expect("a folder");
    std::fs::write(second.join("b.idl"), "#define N 5\n").expect("written");
    let [first, second, path] = [first, second, path].map(|path| path.display().to_string());
    assert_eq!(run(&["-I", &first, "-I", &second, "--check", &path]).status.code(), Some(0));
    let output = run(&["--check", "--json", &first]);
    let why = format!("cannot read {first}: it is a folder");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), format!("punctual-idl: {why}\n"));
    assert_eq!(text(&output.stdout), format!("{{\"accepted\":false,\"error\":\"{why}\"}}\n"));
}
