//! Every experiment runs to its end and leaves the report that scripts rely on. Its results are not checked
//! here: the runs are as short as possible. The shape of each report is recorded in `shapes/experiments.txt`.

mod shapes;

use std::path::Path;
use std::process::Command;

use punctual_experiments::testbed::Privilege;
use serde_json::Value;
use shapes::{Cases, Shape, compare};

/// What every report has.
const KEYS: [&str; 7] = ["experiment", "paper", "quick", "holes", "points", "checks", "plot"];
const PUNCTUAL: &str = env!("CARGO_BIN_EXE_punctual");

/// Runs `punctual bench WORDS --json` from the source tree, where examples are: returns its exit status,
/// standard output and standard error.
fn bench(words: &[&str]) -> (Option<i32>, String, String) {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(PUNCTUAL)
        .current_dir(tree)
        .arg("bench")
        .args(words)
        .arg("--json")
        .output()
        .expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The shape of the report of a run of `name`.
///
/// # Errors
/// The problem of the run.
fn run(name: &str, directory: &Path) -> Result<Shape, String> {
    let directory = directory.to_str().expect("a path of letters");
    let (status, printed, complained) = bench(&[name, "--smoke", "--directory", directory]);
    if !matches!(status, Some(0 | 1 | 3)) || printed.is_empty() {
        return Err(format!("status {status:?}: {complained}"));
    }
    let report: Value = serde_json::from_str(&printed).map_err(|error| format!("no JSON: {error}"))?;
    let missing: Vec<&str> = KEYS.into_iter().filter(|key| report.get(key).is_none()).collect();
    let full = |key: &str| report[key].as_array().is_some_and(|list| !list.is_empty());
    let check = |one: &Value| {
        one["name"].is_string()
            && one["ok"].is_boolean()
            && one.get("value").is_some()
            && one.get("limit").is_some()
    };
    let checks = report["checks"].as_array().into_iter().flatten().all(check);
    let drawn = report["plot"].as_str().is_some_and(|path| Path::new(path).is_file());
    let whole = missing.is_empty() && full("points") && full("checks") && checks && drawn;
    let named = report["experiment"] == name && report["quick"] == true;
    if whole && named {
        return Ok(Shape::of(&report));
    }
    Err(format!("keys missing: {missing:?}, plot {drawn}: {printed}"))
}

/// Keys that a report has only if they apply, and their types: counters of stages appear once they count.
const OPTIONAL: &[(&str, &str)] = &[
    ("checks[].inconclusive", "boolean"),
    ("checks[].note", "string"),
    ("checks[].samples", "integer"),
    ("points[].stages.", "integer"),
];

#[test]
fn every_experiment_ends_with_a_report() {
    if std::env::var_os("PUNCTUAL_TEST_EXPERIMENTS").is_none() {
        punctual_skip::skipped!(
            "takes over a minute of real time: set PUNCTUAL_TEST_EXPERIMENTS=1, as `make test` does"
        );
        return;
    }
    if !Privilege::detect().is_ok_and(|privilege| privilege == Privilege::Root) {
        punctual_skip::skipped!("experiments need network namespaces and the real-time class: run as root");
        return;
    }
    let daemon = Path::new(PUNCTUAL).with_file_name("punctuald");
    assert!(daemon.is_file(), "{} is not there: cargo build -p punctual-daemon", daemon.display());
    let (status, listed, complained) = bench(&["list"]);
    assert_eq!(status, Some(0), "{complained}");
    let all: Vec<Value> = serde_json::from_str(&listed).expect("a list");
    let directory = std::env::temp_dir().join(format!("punctual-bench-smoke-{}", std::process::id()));
    let (mut faults, mut shapes) = (Vec::new(), Cases::new());
    for name in all.iter().map(|one| one["name"].as_str().expect("a name")) {
        let begun = std::time::Instant::now();
        let ran = run(name, &directory);
        println!(
            "{name}: {:.1} s{}",
            begun.elapsed().as_secs_f64(),
            if ran.is_err() { ", failed" } else { "" }
        );
        match ran.and_then(|shape| shape.without_optional(OPTIONAL)) {
            Ok(shape) => shapes.push((name.to_owned(), shape)),
            Err(why) => faults.push(format!("{name}: {why}")),
        }
    }
    std::fs::remove_dir_all(&directory).expect("what was written goes");
    faults.extend(compare("experiments", &shapes));
    assert!(all.len() > 20 && faults.is_empty(), "{} experiments; {}", all.len(), faults.join("\n"));
}
