//! IDL files that are read at run time.

use std::path::{Path, PathBuf};

use clap::Args;
use punctual_idl::model::Specification;
use punctual_idl::{Diagnostic, Disk, Options, Severity};
use serde_json::{Value, json};

use crate::output::{Output, Usage, print_note};

/// The IDL file of an interface.
#[derive(Args)]
pub struct IdlFile {
    /// IDL file that declares the interface. Operations of all objects (_is_a, _non_existent, ...) need none.
    #[arg(long, value_name = "FILE")]
    idl: Option<PathBuf>,
    /// Folder with files that the IDL file includes; may be repeated.
    #[arg(long, short = 'I', value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Macro that the IDL file uses; may be repeated.
    #[arg(long, short = 'D', value_name = "NAME[=VALUE]", value_parser = definition)]
    define: Vec<(String, String)>,
}

fn definition(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name { Ok((name.into(), value.into())) } else { Err("write NAME or NAME=VALUE".into()) }
}

impl IdlFile {
    /// Whether there is one.
    pub fn is_given(&self) -> bool {
        self.idl.is_some()
    }

    /// What the file means. Errors in it are printed.
    ///
    /// # Errors
    /// [`Usage`] if there is no file, or it is refused.
    pub fn read(&self, output: Output) -> anyhow::Result<Specification> {
        let path = self
            .idl
            .as_deref()
            .ok_or_else(|| Usage("say --idl FILE: the IDL file of the interface".into()))?;
        let options = Options { include_dirs: self.include.clone(), defines: self.define.clone() };
        let cannot = |error| Usage(format!("cannot read {}: {error}", path.display()));
        let outcome = punctual_idl::read(path, &options, &mut Disk).map_err(cannot)?;
        match outcome.specification {
            Some(specification) => Ok(specification),
            None => Err(refused(path, &outcome.diagnostics, output)?.into()),
        }
    }
}

/// Prints what is wrong with the file.
fn refused(path: &Path, diagnostics: &[Diagnostic], output: Output) -> anyhow::Result<Usage> {
    diagnostics.iter().for_each(|one| one.to_string().lines().for_each(print_note));
    let count = diagnostics.iter().filter(|one| one.severity == Severity::Error).count();
    let errors = if count == 1 { "an error".into() } else { format!("{count} errors") };
    let line = format!("{} is refused: it has {errors}", path.display());
    if output.json {
        let all: Vec<Value> =
            diagnostics.iter().map(|one| serde_json::from_str(&one.json())).collect::<Result<_, _>>()?;
        let mut error = serde_json::to_value(punctual::failure(&line, 2))?;
        error["diagnostics"] = all.into();
        output.print(&json!({ "error": error }), |_| String::new())?;
    }
    Ok(Usage(line))
}
