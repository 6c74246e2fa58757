//! Rewrites errors of the parser, which report what it expected but not what the author probably meant.

use punctual_proto::ids::Name;

/// Place where all keys are explained.
const EXPLAINED: &str = "docs/punctuald.example.toml explains every key";

/// Tables of which a host has one.
const ONCE: [&str; 4] = ["node", "processor", "daemon", "signalling"];

/// For "unknown field `a`, expected one of `b`, `c`": a message with only the key that was probably meant.
pub(super) fn unknown_key(message: &str) -> Option<String> {
    let message = message.strip_prefix("unknown field ")?;
    let mut quoted = message.split('`').skip(1).step_by(2);
    let given = quoted.next()?;
    let known: Vec<Name> = quoted.filter_map(|key| Name::new(key).ok()).collect();
    let near = Name::new(given).ok().and_then(|given| given.slip_of(known.iter()).cloned());
    Some(match near {
        Some(meant) => format!("unknown key `{given}`: did you mean `{meant}`?"),
        None => format!("unknown key `{given}`: leave it out; {EXPLAINED}"),
    })
}

/// The parser's terms for what it expected, which are types of the program, and the corresponding terms of
/// the file.
const EXPECTED: [(&str, &str); 6] = [
    ("wanted string or table", "expected a word in quotes"),
    ("expected u8", "expected a whole number from 0 to 255"),
    ("expected u16", "expected a whole number from 0 to 65535"),
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected a boolean", "expected true or false"),
    ("expected a sequence", "expected a list in brackets"),
];

/// The parser's message in plain words.
pub(super) fn plain(message: &str) -> String {
    if let Some((before, _)) = message.split_once("expected struct ") {
        return format!("{before}expected a table of keys");
    }
    let expected = EXPECTED.iter().find(|(types, _)| message.ends_with(types));
    expected.map_or_else(|| message.to_owned(), |(types, words)| message.replace(types, words))
}

/// `[link]` for `[[link]]`, or the other way round: a message for the brackets at `at`.
pub(super) fn brackets(message: &str, text: &str, at: usize) -> Option<String> {
    let expected = message.strip_prefix("invalid type: map, expected ")?;
    let line_end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    let header = text[..line_end].lines().map(str::trim).rfind(|line| line.starts_with('['))?;
    let name = header.trim_start_matches('[').split(']').next()?.trim();
    if expected.starts_with("a sequence") && !header.starts_with("[[") {
        Some(format!("[{name}]: a file may have several of these: write [[{name}]]"))
    } else if ONCE.contains(&name) && header.starts_with("[[") {
        Some(format!("[[{name}]]: a file has one of these: write [{name}]"))
    } else {
        None
    }
}
