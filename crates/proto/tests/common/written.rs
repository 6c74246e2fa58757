//! Texts that were written down once, and are compared.

use std::path::PathBuf;

/// Compares `text` with `transcripts/NAME.txt`; `PUNCTUAL_PIN=1` writes that anew.
pub fn is_as_written(name: &str, text: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/transcripts/{name}.txt"));
    if std::env::var_os("PUNCTUAL_PIN").is_some() {
        std::fs::write(&file, text).expect("it can be written");
    }
    let before = std::fs::read_to_string(&file).expect("it was written");
    for (number, (before, now)) in before.lines().zip(text.lines()).enumerate() {
        assert_eq!(
            before,
            now,
            "{name}.txt:{}: if that is meant, look at the whole difference after PUNCTUAL_PIN=1",
            number + 1
        );
    }
    assert_eq!(before.lines().count(), text.lines().count(), "{name}.txt: one ends before the other");
}
