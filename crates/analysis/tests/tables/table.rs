//! Answers in rows, compared with the recorded ones (docs/adr/0049).

use std::fmt::Debug;
use std::fmt::Write;
use std::path::PathBuf;

#[derive(Default)]
pub struct Table(pub String);

impl Table {
    pub fn row(&mut self, what: &str, answer: &impl Debug) {
        // There are many spans: without the type name they are shorter.
        let answer = format!("{answer:?}").replace("Nanos(", "(");
        writeln!(self.0, "{what}: {answer}").expect("a text");
    }

    /// Compares with `tables/NAME.txt`; `PUNCTUAL_PIN=1` writes that anew.
    pub fn is_as_written(&self, name: &str) {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/tables/{name}.txt"));
        if std::env::var_os("PUNCTUAL_PIN").is_some() {
            std::fs::write(&file, &self.0).expect("it can be written");
        }
        let before = std::fs::read_to_string(&file).expect("it was written");
        for (number, (before, now)) in before.lines().zip(self.0.lines()).enumerate() {
            assert_eq!(before, now, "{name}.txt:{}", number + 1);
        }
        assert_eq!(before.lines().count(), self.0.lines().count(), "{name}.txt: one ends before the other");
    }
}
