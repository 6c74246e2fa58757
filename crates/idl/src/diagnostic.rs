//! Errors and warnings, as text with the line they are about, and as JSON.

use std::fmt;

use crate::limits::ERRORS_MAX;
use crate::source::{Location, Position, Sources};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is accepted.
    Warning,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// An error or a warning about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the file is refused for it.
    pub severity: Severity,
    /// Where.
    pub position: Position,
    /// What is wrong, in one line without a full stop.
    pub message: String,
    /// Other places that explain it, each with one line.
    pub notes: Vec<(Position, String)>,
}

/// The line of `position` with a caret under its column. Tabs stay tabs, so that the caret is below its place.
fn excerpt(position: &Position) -> String {
    let before = position.source_line.chars().take(position.indent);
    let indent: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    format!("    {}\n    {indent}^", position.source_line)
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [(&self.position, self.severity.name(), &self.message)].into_iter();
        let notes = self.notes.iter().map(|(position, text)| (position, "note", text));
        for (number, (position, kind, text)) in lines.chain(notes).enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            let Position { file, line, column, .. } = position;
            write!(f, "{file}:{line}:{column}: {kind}: {text}\n{}", excerpt(position))?;
        }
        Ok(())
    }
}

/// A string of JSON, with its quotes.
pub fn json_string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

impl Diagnostic {
    /// An object of JSON: `severity`, `file`, `line`, `column`, `message`, `source_line`, `notes`.
    pub fn json(&self) -> String {
        let place = |position: &Position, message: &str| {
            format!(
                "\"file\":{},\"line\":{},\"column\":{},\"message\":{},\"source_line\":{}",
                json_string(&position.file),
                position.line,
                position.column,
                json_string(message),
                json_string(&position.source_line)
            )
        };
        let notes: Vec<String> =
            self.notes.iter().map(|(position, text)| format!("{{{}}}", place(position, text))).collect();
        format!(
            "{{\"severity\":\"{}\",{},\"notes\":[{}]}}",
            self.severity.name(),
            place(&self.position, &self.message),
            notes.join(",")
        )
    }
}

/// Too many errors: the run ends.
#[derive(Debug)]
pub(crate) struct TooMany;

/// The files of a run and what is wrong with them.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub sources: Sources,
    found: Vec<Diagnostic>,
    errors: usize,
}

impl Session {
    /// Records an error. Beyond the limit errors are dropped: see [`Session::is_full`].
    pub fn error(&mut self, at: Location, message: impl Into<String>) {
        self.error_with(at, message, &[]);
    }

    /// Records an error with other places that explain it.
    pub fn error_with(&mut self, at: Location, message: impl Into<String>, notes: &[(Location, String)]) {
        if self.errors < ERRORS_MAX {
            self.errors += 1;
            self.add(Severity::Error, at, message.into(), notes);
        }
    }

    /// Records a warning.
    pub fn warning(&mut self, at: Location, message: impl Into<String>) {
        if self.found.len() < 2 * ERRORS_MAX {
            self.add(Severity::Warning, at, message.into(), &[]);
        }
    }

    fn add(&mut self, severity: Severity, at: Location, message: String, notes: &[(Location, String)]) {
        let notes = notes.iter().map(|(at, text)| (self.sources.position(*at), text.clone())).collect();
        let position = self.sources.position(at);
        self.found.push(Diagnostic { severity, position, message, notes });
    }

    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// How many errors there are.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Whether the limit of errors is reached.
    pub fn is_full(&self) -> Result<(), TooMany> {
        if self.errors < ERRORS_MAX { Ok(()) } else { Err(TooMany) }
    }

    pub fn into_diagnostics(self) -> Vec<Diagnostic> {
        self.found
    }
}
