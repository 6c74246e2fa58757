//! Mistakes in the XDP program's C source: found in its text, each compiled to an object of its own.
//!
//! A run-time switch would change the program that the verifier checks, and clang takes a tenth of a second:
//! so the copy's loader loads the object of the mutant that is switched on.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::mutant::Mutant;
use crate::operators::Operator;
use crate::sites::{Change, Site, normalised};

/// The program's source, from the root of the workspace.
pub const SOURCE: &str = "crates/link/bpf/punctual.bpf.c";
/// What loads it.
pub const LOADER: &str = "crates/link/src/xdp/program.rs";

const LOADED: &str = ".load(OBJECT)";
const LOADED_IN_COPY: &str = ".load(mutant_object())";

/// Operators between spaces, and their replacements.
const OPERATORS: &[(&str, Operator, &str)] = &[
    ("<", Operator::Comparison, "<="),
    ("<=", Operator::Comparison, "<"),
    (">", Operator::Comparison, ">="),
    (">=", Operator::Comparison, ">"),
    ("==", Operator::Comparison, "!="),
    ("!=", Operator::Comparison, "=="),
    ("&&", Operator::Logic, "||"),
    ("||", Operator::Logic, "&&"),
    ("+", Operator::Arithmetic, "-"),
    ("-", Operator::Arithmetic, "+"),
    ("*", Operator::Arithmetic, "/"),
    ("/", Operator::Arithmetic, "*"),
    ("+=", Operator::Arithmetic, "-="),
    ("-=", Operator::Arithmetic, "+="),
    ("&", Operator::Bits, "|"),
    ("|", Operator::Bits, "&"),
    ("^", Operator::Bits, "|"),
    ("^=", Operator::Bits, "|="),
    ("|=", Operator::Bits, "&="),
    ("<<", Operator::Bits, ">>"),
    (">>", Operator::Bits, "<<"),
];

/// All mistakes in the functions of `text`, which has the layout of the kernel's sources: a body's braces are
/// alone in the first column.
pub fn find(text: &str) -> Vec<Site> {
    let (mut found, mut seen) = (Vec::new(), HashMap::new());
    let (mut function, mut is_body, mut is_comment, mut start) = (String::new(), false, false, 0);
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        match line.trim_end() {
            "{" => is_body = true,
            "}" => is_body = false,
            _ if is_body => {
                let code = code_of(line, &mut is_comment);
                for (range, operator, by) in mistakes(code) {
                    let mutated = format!("{}{by}{}", &line[..range.start], &line[range.end..]);
                    let (original, mutated) = (normalised(line), normalised(&mutated));
                    let nth: &mut usize =
                        seen.entry((function.clone(), original.clone(), mutated.clone())).or_insert(0);
                    *nth += 1;
                    found.push(Site {
                        range: start + range.start..start + range.end,
                        line: number,
                        function: function.clone(),
                        operator,
                        original,
                        mutated,
                        nth: *nth,
                        change: Change::Expression(by),
                    });
                }
            }
            _ => function = name_of(line).unwrap_or(function),
        }
        start += line.len();
    }
    found
}

/// The name of the function whose head begins on this line.
fn name_of(line: &str) -> Option<String> {
    let head = line.split_once('(')?.0;
    let begins = line.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let name = head.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (begins && !name.is_empty() && name != "__attribute__").then(|| name.to_owned()).or_else(|| {
        // `static __attribute__((noinline)) int name(`
        let rest = line.strip_prefix("static __attribute__((noinline)) ")?;
        name_of(rest)
    })
}

/// The part of a line that is code; sets whether a comment continues on the next line.
fn code_of<'l>(line: &'l str, is_comment: &mut bool) -> &'l str {
    if *is_comment {
        *is_comment = !line.contains("*/");
        return "";
    }
    let (code, comment) = line.split_once("/*").unwrap_or((line, "*/"));
    *is_comment = !comment.contains("*/");
    if code.starts_with('#') { "" } else { code }
}

/// Each mistake of a line: the replaced part, and its replacement.
fn mistakes(code: &str) -> Vec<(Range<usize>, Operator, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(' ') {
        let word = code[at + 1..].split(' ').next().unwrap_or_default().trim_end();
        if let Some((_, operator, other)) = OPERATORS.iter().find(|(from, ..)| *from == word) {
            found.push((at + 1..at + 1 + word.len(), *operator, (*other).to_owned()));
        }
    }
    for (at, _) in code.match_indices('!') {
        if !code[at + 1..].starts_with('=') {
            found.push((at..at + 1, Operator::NotLeftOut, String::new()));
        }
    }
    found.extend(numbers(code));
    found.extend(condition(code));
    found.extend(assignment(code));
    found
}

/// Whole numbers, one more and one less.
fn numbers(code: &str) -> Vec<(Range<usize>, Operator, String)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut at = 0;
    for word in code.split(|c| !is_word(c)) {
        let hexadecimal = word.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
        if let Ok(value) = hexadecimal.unwrap_or_else(|| word.parse()) {
            for other in [value.checked_add(1), value.checked_sub(1)].into_iter().flatten() {
                found.push((at..at + word.len(), Operator::Literal, other.to_string()));
            }
        }
        at += word.len() + code[at + word.len()..].chars().next().map_or(0, char::len_utf8);
    }
    found
}

/// A condition on one line, negated.
fn condition(code: &str) -> Option<(Range<usize>, Operator, String)> {
    let start = code.find("if (")? + "if ".len();
    let mut depth = 0;
    for (at, c) in code[start..].char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 {
            let range = start..start + at + 1;
            let negated = format!("(!{})", &code[range.clone()]);
            return Some((range, Operator::Condition, negated));
        }
    }
    None
}

/// A statement on one line that assigns, left out.
fn assignment(code: &str) -> Option<(Range<usize>, Operator, String)> {
    let statement = code.trim();
    let (left, _) = statement.strip_suffix(';')?.split_once(" = ").or_else(|| statement.split_once("= "))?;
    let is_place = !left.trim_end_matches([' ', '+', '-', '|', '^']).contains([' ', '(']);
    let start = code.find(statement)?;
    is_place.then(|| (start..start + statement.len(), Operator::Deletion, ";".to_owned()))
}

/// The loader of the copy, which takes the object of the mutant that is switched on from `objects`.
///
/// # Errors
/// If the loader's text has changed.
pub fn loader(text: &str, objects: &Path) -> Result<String, Error> {
    if !text.contains(LOADED) {
        return Err(Error::Build(format!("{LOADER} has no {LOADED}: mend tools/mutants/src/classifier.rs")));
    }
    let objects = objects.display();
    let function = format!(
        r#"
/// The object of the mutant that is switched on.
fn mutant_object() -> &'static [u8] {{
    match std::env::var("PUNCTUAL_MUTANT").unwrap_or_default().parse::<u32>() {{
        Ok(id) if id > 0 => std::fs::read(format!("{objects}/{{id}}.o")).expect("the mutant's object").leak(),
        _ => OBJECT,
    }}
}}
"#
    );
    Ok(text.replace(LOADED, LOADED_IN_COPY) + &function)
}

/// The folder of the objects, beside the copy.
pub fn objects(tree: &Path) -> PathBuf {
    tree.with_file_name("objects")
}

/// Compiles `mutant` of the source in `tree`; returns whether it is valid C, and compiles to something else
/// than the original code.
///
/// # Errors
/// If the compiler cannot be run.
pub fn compile(tree: &Path, mutant: &Mutant) -> Result<bool, Error> {
    let (source, objects) = (tree.join(SOURCE), objects(tree));
    fs::create_dir_all(&objects).map_err(Error::of(&objects))?;
    let text = fs::read_to_string(&source).map_err(Error::of(&source))?;
    let Change::Expression(by) = &mutant.site.change else {
        return Ok(false);
    };
    let mutated = format!("{}{by}{}", &text[..mutant.site.range.start], &text[mutant.site.range.end..]);
    let file = objects.join(format!("{}.c", mutant.id));
    fs::write(&file, mutated).map_err(Error::of(&file))?;
    let folder = source.parent().unwrap_or(tree);
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    // The same flags as in crates/link/build.rs; an unused variable is not an error.
    let status = Command::new(clang)
        .args(["-target", "bpfel", "-mcpu=v3", "-O2", "-g", "-w", "-c", "-I"])
        .arg(folder)
        .arg(&file)
        .arg("-o")
        .arg(file.with_extension("o"))
        .stderr(std::process::Stdio::null())
        .status()
        .map_err(Error::of(&file))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "struct a {\n\t__u32 b[4];\n};\n\n/* One < two. */\nstatic int f(int a)\n{\n\tint b = 0x10;\n\n\t/* a <\n\t * b */\n\tif (!a && b < 2)\n\t\ta += 1;\n\treturn a;\n}\n";

    #[test]
    fn mistakes_of_c_are_found_in_functions_only() {
        let found: Vec<_> =
            find(TEXT).into_iter().map(|site| (site.line, site.function, site.mutated)).collect();
        let expected = [
            (8, "int b = 17;"),
            (8, "int b = 15;"),
            (12, "if (!a || b < 2)"),
            (12, "if (!a && b <= 2)"),
            (12, "if (a && b < 2)"),
            (12, "if (!a && b < 3)"),
            (12, "if (!a && b < 1)"),
            (12, "if (!(!a && b < 2))"),
            (13, "a -= 1;"),
            (13, "a += 2;"),
            (13, "a += 0;"),
            (13, ";"),
        ];
        assert_eq!(found, expected.map(|(line, text)| (line, "f".to_owned(), text.to_owned())));
    }

    #[test]
    fn the_range_of_a_mistake_is_what_it_replaces() {
        for site in find(TEXT) {
            let Change::Expression(by) = &site.change else { panic!("{site:?}") };
            let whole = format!("{}{by}{}", &TEXT[..site.range.start], &TEXT[site.range.end..]);
            assert_eq!(normalised(whole.lines().nth(site.line - 1).expect("a line")), site.mutated);
        }
    }

    #[test]
    fn a_function_is_named_with_any_text_before_it() {
        assert_eq!(
            name_of("static __always_inline __u32 charge(struct taken *account)").as_deref(),
            Some("charge")
        );
        let steer = "static __attribute__((noinline)) __u64 steer(struct xdp_md *ctx,";
        assert_eq!(name_of(steer).as_deref(), Some("steer"));
        assert_eq!(name_of("\treturn drop(POLICED);"), None);
    }
}
