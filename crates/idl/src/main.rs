//! `punctual-idl`: checks an IDL file, or generates Rust for its types.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use punctual_idl::generate::generate;
use punctual_idl::{Disk, Options, Outcome, Specification, json_string, read};

const USAGE: &str = "usage: punctual-idl [-I DIR]... [-D NAME[=VALUE]]... [--json] (--check | -o DIR) FILE

  -I DIR            search included files in DIR, too
  -D NAME[=VALUE]   define the macro NAME (as 1)
  --check           only check FILE
  -o DIR            write Rust for the types of FILE to DIR/FILE.rs, in rustfmt's form if it is installed
  --json            print the result as JSON

Exit code: 0 accepted, 1 refused (also if FILE cannot be read, as with omniidl and gcc), 2 wrong usage.";

/// What the command line asks for.
#[derive(Debug, Default)]
struct Arguments {
    options: Options,
    check: bool,
    out: Option<PathBuf>,
    json: bool,
    file: Option<PathBuf>,
}

/// A macro's name and its value.
fn define(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name || value.contains('\n') {
        return Err(format!("-D needs NAME or NAME=VALUE, not \"{text}\""));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn arguments(words: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
    let mut found = Arguments::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        // `-I DIR` or `-IDIR`.
        let mut value = |option: &str| match word[option.len()..].is_empty() {
            true => {
                let next = words.next().filter(|value| !value.is_empty());
                next.ok_or(format!("{option} needs a value"))
            }
            false => Ok(word[option.len()..].to_owned()),
        };
        match &*word {
            "--check" => found.check = true,
            "--json" => found.json = true,
            "--help" | "-h" => return Err(String::new()),
            _ if word.starts_with("-I") => found.options.include_dirs.push(value("-I")?.into()),
            _ if word.starts_with("-o") => found.out = Some(value("-o")?.into()),
            _ if word.starts_with("-D") => found.options.defines.push(define(&value("-D")?)?),
            _ if word.starts_with('-') && word.len() > 1 => return Err(format!("unknown option {word}")),
            _ if found.file.is_some() => return Err("give only one FILE".into()),
            _ => found.file = Some(word.into()),
        }
    }
    match (&found.file, found.check, &found.out) {
        (None, ..) => Err("which FILE?".into()),
        (_, false, None) => Err("give --check or -o DIR".into()),
        (_, true, Some(_)) => Err("give --check or -o DIR, not both".into()),
        _ => Ok(found),
    }
}

/// What was generated.
#[derive(Debug, Default)]
struct Written {
    path: Option<PathBuf>,
    /// Definitions without code, each with why.
    skipped: Vec<String>,
}

/// Writes Rust for an accepted file.
fn write(folder: &Path, file: &Path, specification: &Specification) -> io::Result<Written> {
    let stem = file.file_stem().unwrap_or_default();
    let path = folder.join(stem).with_extension("rs");
    let generated = generate(specification, &file.display().to_string());
    std::fs::create_dir_all(folder)?;
    std::fs::write(&path, generated.code)?;
    // Without rustfmt the code is as right and less pretty.
    let mut format = Command::new("rustfmt");
    format.args(["--edition", "2024"]).arg(&path);
    let _ = format.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let skipped = generated.skipped.iter().filter(|(id, _)| !specification.get(*id).is_included());
    let skipped = skipped.map(|(id, why)| format!("{}: {why}", specification.path(*id).join("::")));
    Ok(Written { path: Some(path), skipped: skipped.collect() })
}

/// Prints diagnostics and the verdict.
fn report(arguments: &Arguments, file: &str, outcome: &Outcome, written: &Written) {
    if !arguments.json {
        outcome.diagnostics.iter().for_each(|diagnostic| eprintln!("{diagnostic}"));
        written.skipped.iter().for_each(|skipped| eprintln!("not generated: {skipped}"));
        return;
    }
    let diagnostics: Vec<String> = outcome.diagnostics.iter().map(|one| one.json()).collect();
    let skipped: Vec<String> = written.skipped.iter().map(|one| json_string(one)).collect();
    let path = written.path.as_ref().map_or("null".into(), |path| json_string(&path.display().to_string()));
    println!(
        "{{\"file\":{},\"accepted\":{},\"written\":{path},\"not_generated\":[{}],\"diagnostics\":[{}]}}",
        json_string(file),
        outcome.specification.is_some(),
        skipped.join(","),
        diagnostics.join(",")
    );
}

fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) if why.is_empty() => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("punctual-idl: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("punctual-idl: {why}");
            if arguments.json {
                println!("{{\"accepted\":false,\"error\":{}}}", json_string(&why));
            }
            ExitCode::from(1)
        }
    }
}

/// Whether the file is accepted.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let path = arguments.file.clone().unwrap_or_default();
    let file = path.display().to_string();
    let outcome =
        read(&path, &arguments.options, &mut Disk).map_err(|error| format!("cannot read {file}: {error}"))?;
    let written = match (&arguments.out, &outcome.specification) {
        (Some(folder), Some(specification)) => write(folder, &path, specification)
            .map_err(|error| format!("cannot write to {}: {error}", folder.display()))?,
        _ => Written::default(),
    };
    report(arguments, &file, &outcome, &written);
    Ok(outcome.specification.is_some())
}
