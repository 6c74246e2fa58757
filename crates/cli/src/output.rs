//! How verbs end and print.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::error::ErrorKind;
use punctual_proto::text::{harmless, harmless_lines};
use serde::Serialize;

use crate::units::with_units;

/// How a verb ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The verb has succeeded.
    Done,
    /// A no: refused, not schedulable, a check failed.
    Refused,
    /// Too many platform holes for a conclusion.
    Inconclusive,
}

impl Outcome {
    /// `Done` if `ok`, else `Refused`.
    pub fn from_ok(ok: bool) -> Self {
        if ok { Self::Done } else { Self::Refused }
    }
    /// The exit code that scripts rely on.
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Done => 0,
            Self::Refused => 1,
            Self::Inconclusive => 3,
        })
    }
}

/// Wrong usage that the parser could not see: exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Usage {}

/// Prints help and version on standard output, and a mistake as one line on standard error. `verb`: the verb
/// on the command line, whose help the line names.
pub fn usage(error: &clap::Error, verb: Option<&str>) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is no error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // The cause is the first paragraph, its list of arguments line by line; hints and usage follow.
    let shown = error.to_string();
    let cause: Vec<&str> = shown.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let cause = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no verb given".to_owned(),
        _ => cause.join(" ").trim_start_matches("error: ").to_owned(),
    };
    let help = verb.map_or_else(|| "--help".into(), |verb| format!("{verb} --help"));
    // "tip: a similar value exists: 'send'" is on a line of its own.
    let tip = shown.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let tip = tip.map_or_else(String::new, |tip| format!(" ({tip})"));
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    failed(&format!("{cause}{tip}: see 'punctual {help}'"), 2, wants_json)
}

/// Whether a verb's JSON was printed on standard output, which reports errors itself, or a part of a stream,
/// which no other bytes may follow.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// Standard output is a stream from now on.
pub fn begin_stream() {
    PRINTED.store(true, Ordering::Relaxed);
}

/// One line on standard error, in one piece: another program may write to the same terminal. Whatever comes from elsewhere
/// in it is text and no order to the terminal.
pub fn print_note(line: &str) {
    // A terminal that cannot be written is no reason to fail.
    let _ = io::stderr().write_all(format!("{}\n", harmless(line)).as_bytes());
}

/// Characters of a line that says what has failed: it may have a whole argument in it.
const LINE_CHARS_MAX: usize = 1_000;

/// The line without its middle, if it is longer than people read.
fn shortened(line: &str) -> Cow<'_, str> {
    let count = line.chars().count();
    if count <= LINE_CHARS_MAX {
        return line.into();
    }
    let end = LINE_CHARS_MAX / 3;
    let begin: String = line.chars().take(LINE_CHARS_MAX - end).collect();
    let end: String = line.chars().skip(count - end).collect();
    format!("{begin} [...] {end}").into()
}

/// Prints one line on standard error, and with JSON also an object on standard output, if none was printed.
pub fn failed(line: &str, code: u8, wants_json: bool) -> ExitCode {
    let line = &*shortened(line);
    print_note(&format!("punctual: {line}"));
    if wants_json && !PRINTED.load(Ordering::Relaxed) {
        let error = serde_json::json!({ "error": punctual::failure(line, code) });
        // A closed pipe is no error.
        let _ = writeln!(io::stdout().lock(), "{error:#}");
    }
    ExitCode::from(code)
}

/// The destination and format of the output.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
}

impl Output {
    /// Prints `value` as JSON, or the text that `text` makes from it. A closed pipe is no error.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn print<T: Serialize>(self, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        let shown = |value| harmless_lines(&text(value)).into_owned();
        let printed = if self.json { serde_json::to_string_pretty(value)? } else { shown(value) };
        self.write(&printed)
    }
    /// The same for values with keys without units, as programs exchange them: in JSON each appears twice,
    /// once with its unit.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn print_with_units<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            return self.print(&with_units(serde_json::to_value(value)?), |_| String::new());
        }
        self.print(value, text)
    }
    fn write(self, printed: &str) -> anyhow::Result<()> {
        PRINTED.fetch_or(self.json, Ordering::Relaxed);
        match writeln!(io::stdout().lock(), "{}", printed.trim_end()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }
    /// Whether people read standard error.
    pub fn is_live(self) -> bool {
        !self.json && io::stderr().is_terminal()
    }
    /// Whether colour and live progress are wanted on standard error: it is a terminal, and this is its
    /// foreground job. A job in the background would write over another program's prompt.
    pub fn is_foreground(self) -> bool {
        let owner = || rustix::termios::tcgetpgrp(io::stderr()).ok();
        self.is_live() && owner() == Some(rustix::process::getpgrp())
    }
}

/// A mistake in a file of TOML, on one line: where and what.
pub fn toml_mistake(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = 1 + text.as_bytes()[..before].iter().filter(|byte| **byte == b'\n').count();
    format!("line {line}: {}", error.message().replace('\n', " "))
}

/// Columns of text, aligned: numbers (a cell that begins with a digit) to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let head = line(&head.iter().map(ToString::to_string).collect::<Vec<_>>(), &widths);
    let body: Vec<String> = rows.iter().map(|row| line(row, &widths)).collect();
    [vec![head], body].concat().join("\n")
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let pad = |(cell, width): (&String, &usize)| {
        let right = cell.starts_with(|first: char| first.is_ascii_digit());
        if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    };
    cells.iter().zip(widths).map(pad).collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_keep_their_begin_and_their_end() {
        assert_eq!(shortened("short"), "short");
        let long = format!("`{}` is no value", "ü".repeat(100_000));
        let shown = shortened(&long);
        assert!(
            shown.starts_with("`üü") && shown.ends_with("ü` is no value") && shown.len() < 2_100,
            "{shown}"
        );
    }

    #[test]
    fn tables_align() {
        let rows = [vec!["cam".to_owned(), "25".to_owned()], vec!["control".to_owned(), "100".to_owned()]];
        assert_eq!(table(&["name", "rate"], &rows), "name     rate\ncam        25\ncontrol   100");
    }
}
