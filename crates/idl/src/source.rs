//! The files of a run, and places in them.

use std::rc::Rc;

/// A file of a run, in the order in which the preprocessor opened them. A file that is included twice has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub(crate) u32);

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub(crate) file: FileId,
    /// Bytes from the begin of the file's text.
    pub(crate) offset: u32,
}

/// What a line marker (`# 12 "a.idl"`) says about the lines behind it.
#[derive(Debug)]
struct Marker {
    /// The first line that it is about, from 0.
    line: usize,
    /// The number that this line has, from 1.
    presumed: u64,
    name: Rc<str>,
}

#[derive(Debug)]
struct SourceFile {
    name: Rc<str>,
    text: Rc<str>,
    /// Offsets at which lines begin.
    lines: Vec<u32>,
    markers: Vec<Marker>,
}

/// All files of a run.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    files: Vec<SourceFile>,
}

/// A place as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The file's name, as it was given, found, or as a line marker says.
    pub file: String,
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: usize,
    /// The text of the line; of a very long one, the part around the column.
    pub source_line: String,
    /// Characters of `source_line` before the place.
    pub indent: usize,
}

/// Characters of a line that a message shows.
const SHOWN_MAX: usize = 200;

/// A line as people read it: line markers may presume another file and number than the text has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresumedLine {
    /// The file's name.
    pub file: Rc<str>,
    /// Its number, from 1.
    pub line: u64,
}

impl Sources {
    /// Adds a file. IDL is Latin-1 by the standard and UTF-8 in practice: bytes that are not UTF-8 are Latin-1.
    pub fn add(&mut self, name: &str, bytes: Vec<u8>) -> FileId {
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => error.into_bytes().into_iter().map(char::from).collect(),
        };
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at as u32 + 1)).collect();
        let id = FileId(self.files.len() as u32);
        self.files.push(SourceFile { name: name.into(), text: text.into(), lines, markers: Vec::new() });
        id
    }

    pub fn text(&self, file: FileId) -> Rc<str> {
        Rc::clone(&self.files[file.0 as usize].text)
    }

    /// The line behind `location` has the number `presumed` of the file `name`.
    pub fn mark(&mut self, location: Location, presumed: u64, name: Option<&str>) {
        let line = self.line(location) + 1;
        let file = &mut self.files[location.file.0 as usize];
        let last = file.markers.last().map_or(&file.name, |marker| &marker.name);
        let name = name.map_or_else(|| Rc::clone(last), Rc::from);
        file.markers.push(Marker { line, presumed, name });
    }

    fn line(&self, location: Location) -> usize {
        let lines = &self.files[location.file.0 as usize].lines;
        lines.partition_point(|&begin| begin <= location.offset) - 1
    }

    /// The line of a place, as line markers say.
    pub fn presumed(&self, location: Location) -> PresumedLine {
        let file = &self.files[location.file.0 as usize];
        let line = self.line(location);
        match file.markers[..file.markers.partition_point(|marker| marker.line <= line)].last() {
            Some(marker) => PresumedLine {
                file: Rc::clone(&marker.name),
                line: marker.presumed.saturating_add((line - marker.line) as u64),
            },
            None => PresumedLine { file: Rc::clone(&file.name), line: line as u64 + 1 },
        }
    }

    pub fn position(&self, location: Location) -> Position {
        let file = &self.files[location.file.0 as usize];
        let line = self.line(location);
        let begin = file.lines[line] as usize;
        let end = file.lines.get(line + 1).map_or(file.text.len(), |&next| next as usize);
        let text = file.text[begin..end].trim_end_matches(['\n', '\r']);
        let before = file.text.get(begin..location.offset as usize).unwrap_or_default().chars().count();
        let hidden = before.saturating_sub(SHOWN_MAX / 2);
        let presumed = self.presumed(location);
        let source_line: String = text.chars().skip(hidden).take(SHOWN_MAX).collect();
        // The end of a file may be behind a line end that is not shown.
        let indent = (before - hidden).min(source_line.chars().count());
        Position {
            file: presumed.file.to_string(),
            line: presumed.line,
            column: before + 1,
            source_line,
            indent,
        }
    }
}
