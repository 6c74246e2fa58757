//! Which configurations are accepted, and the one line that answers each of the others: every key with values of its kind,
//! keys that contradict each other, and tables in a wrong form. Recorded in `answers/configurations.txt` (docs/adr/0049).

#[path = "answers/corpus.rs"]
mod corpus;
#[path = "answers/file.rs"]
mod file;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use corpus::{FORMS, KEYS, TOGETHER, of_keys};
use punctual_host::config::parse;

const EXAMPLE: &str = include_str!("../../../docs/punctuald.example.toml");
/// How the folder of the file is called in the recording.
const FOLDER: &str = "FOLDER";

/// The folder of the files, with the files that they name.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("punctual-configurations-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let files = [
            ("key", "ab".repeat(32)),
            ("short-key", "ab".into()),
            ("plan.toml", plan("a")),
            ("plan-of-b.toml", plan("b")),
        ];
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("a file");
            fs::set_permissions(folder.join(name), Permissions::from_mode(0o600)).expect("its owner's");
        }
        Self(folder)
    }

    /// The answer to a file: why it is refused, or its warnings.
    fn answer(&self, text: &str) -> Result<Vec<String>, String> {
        let config = parse(text, &self.0.join("host.toml"))
            .map_err(|error| error.to_string().replace(self.0.to_str().expect("letters"), FOLDER))?;
        assert!(config.node.check().is_ok(), "the node would refuse it when it starts: {text}");
        Ok(config.warnings())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn plan(host: &str) -> String {
    let flow = "name = \"cam\"\nperiod_ns = 10000000\npackets = 2\ncost_ns = 40000\nunit_ns = 20000\n\
                deadline_ns = 9000000\nrate_ns = 9921875\nplace = 1\n";
    format!("version = 1\n[[host]]\nname = \"{host}\"\n[[host.flow]]\n{flow}")
}

/// Keys of the example by table, including those that are commented out.
fn keys_of_example() -> BTreeSet<(String, String)> {
    let mut keys = BTreeSet::new();
    let mut table = String::new();
    for line in EXAMPLE.lines() {
        let line = line.trim_start_matches("# ");
        if line.starts_with('[') && line.ends_with(']') {
            table = line.trim_matches(['[', ']']).rsplit('.').next().unwrap_or_default().to_owned();
        }
        let is_key =
            |key: &&str| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if let Some(key) = line.split_once(" = ").map(|(key, _)| key).filter(is_key) {
            keys.insert((table.clone(), key.to_owned()));
        }
    }
    keys
}

#[test]
fn every_key_of_the_example_has_recorded_answers() {
    let asked = KEYS
        .iter()
        .flat_map(|(table, keys)| keys.iter().map(|(key, _)| (table.to_string(), key.to_string())));
    let asked: BTreeSet<_> = asked.collect();
    let known = keys_of_example();
    assert!(known.len() > 100, "{known:?}");
    let differ: Vec<_> = known.symmetric_difference(&asked).collect();
    assert!(differ.is_empty(), "in one of the example and KEYS only: {differ:?}");
}

/// All answers. Warnings are long and few: each is listed in full at the end, with the number that answers
/// use for it.
#[derive(Default)]
struct Record {
    lines: Vec<String>,
    warnings: Vec<String>,
}

impl Record {
    fn add(&mut self, what: &str, answer: Result<Vec<String>, String>) {
        let answer = match answer {
            Ok(warnings) => {
                let numbers =
                    warnings.into_iter().map(|warning| format!(", warning {}", self.number(warning)));
                format!("accepted{}", numbers.collect::<String>())
            }
            Err(line) => line,
        };
        assert!(!answer.contains('\n'), "{what}: more than a line: {answer}");
        self.lines.push(format!("{what} => {answer}"));
    }

    fn number(&mut self, warning: String) -> usize {
        let known = self.warnings.iter().position(|other| *other == warning);
        known.unwrap_or_else(|| {
            self.warnings.push(warning);
            self.warnings.len() - 1
        })
    }

    fn text(&self) -> String {
        let warnings = self.warnings.iter().enumerate();
        let warnings = warnings.map(|(number, warning)| format!("warning {number}: {warning}"));
        self.lines.iter().cloned().chain(warnings).collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn every_configuration_is_answered_as_recorded() {
    let folder = Folder::new();
    let mut record = Record::default();
    let small = folder.answer(&file::replaced("", ""));
    assert!(small.is_ok(), "{small:?}");
    record.add("(nothing changed)", small);
    for changes in of_keys().iter().map(String::as_str).chain(TOGETHER.iter().copied()) {
        record.add(changes, folder.answer(&file::with(changes)));
    }
    for (from, to) in FORMS {
        record.add(&format!("{from:?} replaced by {to:?}"), folder.answer(&file::replaced(from, to)));
    }
    compare(&record.text());
}

/// Compares with `answers/configurations.txt`; `PUNCTUAL_PIN=1` writes that anew.
fn compare(answers: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answers/configurations.txt");
    if std::env::var_os("PUNCTUAL_PIN").is_some() {
        fs::write(&file, format!("{answers}\n")).expect("the file can be written");
    }
    let recorded = fs::read_to_string(&file).expect("PUNCTUAL_PIN=1 writes it");
    let differ = recorded.lines().zip(answers.lines()).find(|(before, now)| before != now);
    assert_eq!(differ, None, "if that is meant, look at the whole difference after PUNCTUAL_PIN=1");
    assert_eq!(recorded.lines().count(), answers.lines().count(), "one ends before the other");
}
