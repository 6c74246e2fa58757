//! The shape of JSON: which keys there are, how they nest, and the types of their values. Values do not count.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter, Result, Write};
use std::path::PathBuf;

use serde_json::Value;

/// The types of a value. A value in a list may have another type in each element.
type Types = BTreeSet<String>;

/// The shape of a value: every path in it with its types, such as `links[].rate: integer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape(BTreeMap<String, Types>);

impl Shape {
    /// The shape of one value.
    pub fn of(value: &Value) -> Self {
        let mut shape = Self::default();
        shape.add("", value);
        shape
    }

    /// The shape of some values together: a key may be missing in one of them.
    pub fn of_all<'a>(values: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut shape = Self::default();
        values.into_iter().for_each(|value| shape.add("", value));
        shape
    }

    fn add(&mut self, path: &str, value: &Value) {
        self.0.entry(path.to_owned()).or_default().insert(type_of(value).to_owned());
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.add(&format!("{path}[]"), value)),
            Value::Object(object) => object.iter().for_each(|(key, value)| {
                let separator = if path.is_empty() { "" } else { "." };
                self.add(&format!("{path}{separator}{key}"), value);
            }),
            _ => {}
        }
    }

    /// Removes the optional paths: `known` has each such path, or its beginning, and its type. A path with
    /// another type is an error.
    pub fn without_optional(mut self, known: &[(&str, &str)]) -> std::result::Result<Self, String> {
        for (path, kind) in known {
            let is_it = |found: &String| found == path || (path.ends_with('.') && found.starts_with(path));
            for found in self.0.keys().filter(|found| is_it(found)).cloned().collect::<Vec<_>>() {
                let types = self.0.remove(&found).unwrap_or_default();
                if list(&types) != *kind {
                    return Err(format!("{found} is {}, not {kind}", list(&types)));
                }
            }
        }
        Ok(self)
    }

    /// The changes that break a script that relied on `self`, if a verb prints `now`: missing keys, and other
    /// types.
    fn broken_by(&self, now: &Self) -> Vec<String> {
        let mut broken = Vec::new();
        for (path, types) in &self.0 {
            match now.0.get(path) {
                None if now.is_unknown(path) => {}
                None => broken.push(format!("{path} is gone")),
                Some(new) if fits(new, types) => {}
                Some(new) => broken.push(format!("{path} was {}, is {}", list(types), list(new))),
            }
        }
        broken
    }

    /// True if a list above `path` is empty, or the value above it is null: then its content is unknown.
    fn is_unknown(&self, path: &str) -> bool {
        let holds_nothing = |above: &str, types: &Types| {
            let is_empty = types.contains("list") && !self.0.contains_key(&format!("{above}[]"));
            is_null(types) || is_empty
        };
        self.0.iter().any(|(above, types)| is_below(path, above) && holds_nothing(above, types))
    }

    /// Paths of `now` that `self` does not have, although it has their parents.
    fn added_by(&self, now: &Self) -> Vec<String> {
        let is_new = |path: &&String| !self.0.contains_key(*path) && !self.is_unknown(path);
        now.0.keys().filter(is_new).cloned().collect()
    }

    fn parse(text: &str) -> Self {
        let row = |line: &str| {
            let (path, types) = line.rsplit_once(": ").expect("a path and its types");
            let path = if path == WHOLE { "" } else { path };
            (path.to_owned(), types.split(" or ").map(str::to_owned).collect())
        };
        Self(text.lines().map(row).collect())
    }
}

/// How the whole value is called in a file.
const WHOLE: &str = "(whole)";

impl Display for Shape {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (path, types) in &self.0 {
            let path = if path.is_empty() { WHOLE } else { path };
            writeln!(f, "{path}: {}", list(types))?;
        }
        Ok(())
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

fn list(types: &Types) -> String {
    types.iter().map(String::as_str).collect::<Vec<_>>().join(" or ")
}

fn is_null(types: &Types) -> bool {
    types.iter().all(|kind| kind == "null")
}

/// True if a value of the types `new` fits what a script expects of the types `recorded`. Null does not show
/// a type.
fn fits(new: &Types, recorded: &Types) -> bool {
    is_null(recorded) || new.iter().all(|kind| kind == "null" || recorded.contains(kind))
}

/// True if `path` is inside of the value at `above`.
fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with(['.', '[']) || (above.is_empty() && !rest.is_empty()))
}

/// Shapes, by what was requested.
pub type Cases = Vec<(String, Shape)>;

/// The differences between `cases` and `tests/shapes/NAME.txt`; `PUNCTUAL_PIN=1` writes that file first.
pub fn compare(name: &str, cases: &Cases) -> Vec<String> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/shapes/{name}.txt"));
    if std::env::var_os("PUNCTUAL_PIN").is_some() {
        std::fs::write(&file, text(cases)).expect("the file can be written");
    }
    let recorded = std::fs::read_to_string(&file).unwrap_or_default();
    differences(&recorded, cases).into_iter().map(|what| format!("{name}: {what}")).collect()
}

fn text(cases: &Cases) -> String {
    cases.iter().fold(String::new(), |mut text, (case, shape)| {
        write!(text, "# {case}\n{shape}\n").expect("a text");
        text
    })
}

fn differences(recorded: &str, cases: &Cases) -> Vec<String> {
    let parts = recorded.split("# ").filter_map(|part| part.split_once('\n'));
    let before: BTreeMap<&str, Shape> =
        parts.map(|(case, text)| (case, Shape::parse(text.trim_end()))).collect();
    let mut wrong = Vec::new();
    for (case, now) in cases {
        let Some(before) = before.get(case.as_str()) else {
            wrong.push(format!("{case}: not recorded: PUNCTUAL_PIN=1 records it"));
            continue;
        };
        wrong.extend(before.broken_by(now).into_iter().map(|what| format!("{case}: {what}: scripts break")));
        let added = before.added_by(now);
        if !added.is_empty() {
            wrong.push(format!("{case}: new keys {}: PUNCTUAL_PIN=1 records them", added.join(", ")));
        }
    }
    let gone = before.keys().filter(|case| !cases.iter().any(|(now, _)| now == *case));
    wrong.extend(gone.map(|case| format!("{case}: recorded, and not run any more")));
    wrong
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape(value: &Value) -> Shape {
        Shape::of(value)
    }

    fn found(before: &Value, now: &Value) -> Vec<String> {
        differences(&text(&one(before)), &one(now))
    }

    fn one(value: &Value) -> Cases {
        vec![("case".to_owned(), shape(value))]
    }

    #[test]
    fn a_shape_is_written_and_read_again() {
        let value = json!({"a": [{"b": 1}, {"b": null, "c": 1.5}], "d": {"e": "x", "f": true}, "g": []});
        let written = shape(&value).to_string();
        assert_eq!(
            written,
            "(whole): object\na: list\na[]: object\na[].b: integer or null\na[].c: number\nd: object\nd.e: string\n\
             d.f: boolean\ng: list\n"
        );
        assert_eq!(Shape::parse(written.trim_end()), shape(&value));
    }

    #[test]
    fn what_only_some_values_have_is_left_out_but_not_of_another_type() {
        let known = [("a[].b", "boolean"), ("c.", "integer")];
        let some = shape(&json!({"a": [{"b": true, "d": 1}], "c": {"e": 1, "f": 2}}));
        let none = shape(&json!({"a": [{"d": 1}], "c": {}}));
        assert_eq!(some.without_optional(&known), Ok(none));
        let other = shape(&json!({"c": {"e": "1"}})).without_optional(&known);
        assert_eq!(other, Err("c.e is string, not integer".to_owned()));
    }

    #[test]
    fn other_values_are_no_difference() {
        assert_eq!(
            found(&json!({"a": 1, "b": ["x"]}), &json!({"a": 2, "b": ["y", "z"]})),
            Vec::<String>::new()
        );
        // An empty list or a null does not show its content.
        assert_eq!(found(&json!({"a": [{"b": 1}]}), &json!({"a": []})), Vec::<String>::new());
        assert_eq!(found(&json!({"a": {"b": 1}}), &json!({"a": null})), Vec::<String>::new());
        assert_eq!(found(&json!([1, 2]), &json!([1, null])), Vec::<String>::new());
        assert_eq!(
            found(&json!({"a": [], "b": null}), &json!({"a": [{"b": 1}], "b": "x"})),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_key_that_is_gone_or_has_another_type_breaks_scripts() {
        let before = json!({"a": {"b": 1}, "c": [1]});
        assert_eq!(found(&before, &json!({"a": {}, "c": [1]})), ["case: a.b is gone: scripts break"]);
        assert_eq!(
            found(&before, &json!({"a": {"b": "1"}, "c": [1]})),
            ["case: a.b was integer, is string: scripts break"]
        );
        assert_eq!(
            found(&before, &json!({"a": {"b": 1.5}, "c": [1]})).len(),
            1,
            "an integer is no other number"
        );
        assert_eq!(
            found(&before, &json!({"a": {"b": 1}})),
            ["case: c is gone: scripts break", "case: c[] is gone: scripts break"]
        );
    }

    #[test]
    fn a_key_that_is_new_is_to_be_recorded() {
        let new = found(&json!({"a": 1}), &json!({"a": 1, "b": 2}));
        assert_eq!(new, ["case: new keys b: PUNCTUAL_PIN=1 records them"]);
        let other = vec![("other".to_owned(), shape(&json!(1)))];
        assert_eq!(differences(&text(&one(&json!(1))), &other).len(), 2);
    }
}
