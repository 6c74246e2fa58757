//! Structs of `proto`, `tcp` and `engine` that have state encapsulate it: they have few fields, and none that
//! another module's code can change.
//!
//! A struct that derives `Copy` or `PartialEq`, and that no method of its own changes, is a value, which is
//! made, compared and passed on: configuration, wire formats, reports, identifiers. Every other struct is
//! assumed to have state. Tests are not checked.

mod sources;

use sources::{crates, without_tests};

/// A struct with more fields has several concerns.
const FIELDS_MAX: usize = 15;

/// Structs that neither have state nor are values, with the reason: crate, struct, why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("proto", "Layout", "the header as it is on the wire, read in place"),
    ("tcp", "Layout", "the header as it is on the wire, read in place"),
    ("tcp", "Rings", "parts of a connection that a program hands over; its memory cannot be compared"),
    ("engine", "EngineConfig", "configuration; its links are boxed drivers, which nothing compares"),
    (
        "engine",
        "TcpParts",
        "parts of a connection that its owner hands over; the processor takes them apart at once",
    ),
    ("engine", "TcpConnect", "a request, taken apart at once"),
    ("engine", "TcpJoin", "a request, taken apart at once"),
    ("engine", "TcpListen", "a request, taken apart at once"),
    ("engine", "TcpTimeWait", "a request, taken apart at once"),
    ("proto", "ChannelCounters", "a report; two are added to one"),
    ("proto", "Lateness", "two sums, in a report; two are added to one"),
    ("engine", "Counters", "a report: numbers of one writer each, read together as `EngineStatistics`"),
];

/// One struct with fields.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    name: String,
    fields: usize,
    public: usize,
    is_value: bool,
}

/// The name in `line`, if a struct begins there, and the text behind it.
fn begins(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    });
    let rest = line.trim_start().strip_prefix("struct ")?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(rest.split_at(end))
}

/// Fields up to the end of a struct, and the public ones.
fn named<'a>(lines: &mut impl Iterator<Item = &'a str>) -> (usize, usize) {
    let fields = lines.take_while(|line| *line != "}").filter_map(|line| line.strip_prefix("    "));
    let fields: Vec<&str> =
        fields.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    (fields.len(), fields.iter().filter(|line| line.starts_with("pub")).count())
}

/// Types that a method of their own changes, in a file that rustfmt has laid out.
fn changing(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix("impl").filter(|_| line.ends_with('{') && !line.contains(" for "))
        else {
            continue;
        };
        let name =
            if rest.starts_with('<') { rest.split_once("> ").map_or("", |(_, name)| name) } else { rest };
        let name = name.trim_start().split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
        let changes = |line: &str| line.contains("&mut self") && !line.trim_start().starts_with("//");
        if lines.by_ref().take_while(|line| *line != "}").any(changes) {
            found.extend(name);
        }
    }
    found
}

/// Structs with fields at the outer level of a file that rustfmt has laid out.
fn structs(text: &str) -> Vec<Found> {
    let text = without_tests(text);
    let changing = changing(text);
    let (mut found, mut derives) = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some((name, rest)) = begins(line) {
            let (fields, public) = match rest.rsplit_once('(') {
                _ if line.ends_with('{') => named(&mut lines),
                // A tuple struct: one line.
                Some((_, fields)) if line.ends_with(");") => (
                    fields.split(',').count(),
                    fields.split(',').filter(|field| field.contains("pub ")).count(),
                ),
                _ => (0, 0),
            };
            let is_value =
                (derives.contains("Copy") || derives.contains("PartialEq")) && !changing.contains(&name);
            found.push(Found { name: name.to_owned(), fields, public, is_value });
        }
        if line.starts_with("#[derive(") {
            derives = line.to_owned();
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            derives.clear();
        }
    }
    found
}

fn of_crate(name: &str) -> Vec<Found> {
    let root = crates().join(name).join("src");
    let mut files = sources::sources(&root);
    files.retain(|file| {
        let inside = file.strip_prefix(&root).expect("below the root").with_extension("");
        !inside.iter().any(|part| part == "tests")
    });
    files.sort();
    files.iter().flat_map(|file| structs(&sources::text(file))).collect()
}

#[test]
fn what_has_state_has_few_fields_and_keeps_them_to_itself() {
    let mut wrong = String::new();
    for of in ["proto", "tcp", "engine"] {
        let found = of_crate(of);
        assert!(found.iter().filter(|found| !found.is_value).count() > 10, "{of}: structs are found");
        let excepted =
            |found: &&Found| EXCEPTIONS.iter().any(|(from, name, _)| *from == of && *name == found.name);
        let states = found.iter().filter(|found| !found.is_value && !excepted(found));
        for Found { name, fields, public, .. } in states.filter(|s| s.fields > FIELDS_MAX || s.public > 0) {
            wrong += &format!("{of}: {name} has {fields} fields, {public} of them public\n");
        }
    }
    assert!(wrong.is_empty(), "group what belongs together, and let methods show what others need:\n{wrong}");
}

/// An exception that is not needed would hide a later mistake.
#[test]
fn every_exception_is_needed() {
    for (of, name, why) in EXCEPTIONS {
        assert!(!why.is_empty());
        let found = of_crate(of);
        let is = |found: &&Found| found.name == *name && !found.is_value;
        let needed = found.iter().filter(is).any(|found| found.fields > FIELDS_MAX || found.public > 0);
        assert!(needed, "{of}: {name} needs no exception");
    }
}

#[test]
fn fields_are_counted() {
    let text = "\
/// It has state.
#[derive(Debug)]
pub(super) struct State<T> {
    /// pub: not a field.
    pub(super) one: Vec<T>,
    #[cfg(feature = \"x\")]
    two: Option<
        usize,
    >,
}

#[derive(Clone, Copy, Debug)]
pub struct Value {
    pub one: u8,
}
impl Value {
    fn read(&self) -> u8 {
        self.one
    }
}
#[derive(Clone, Copy)]
pub struct Changes<T> {
    pub one: T,
}
impl<T: Into<u8>> Changes<T> {
    fn change(
        &mut self,
        to: T,
    ) {
        self.one = to;
    }
}
struct Unit;
pub struct Tuple<T: Into<u8>>(pub T, u8);

#[cfg(test)]
mod tests {
struct Hidden {
    pub one: u8,
}
}
";
    let found = |name: &str, fields, public, is_value| Found { name: name.into(), fields, public, is_value };
    let expected = [
        found("State", 2, 1, false),
        found("Value", 1, 1, true),
        found("Changes", 1, 1, false),
        found("Unit", 0, 0, false),
        found("Tuple", 2, 1, false),
    ];
    assert_eq!(structs(text), expected);
}
