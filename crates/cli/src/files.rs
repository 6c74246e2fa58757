//! What verbs make of a file, from its text: for callers that have the text and no file.

use std::path::Path;

use crate::verbs;

/// The answer of `punctual analyze`, as JSON.
///
/// # Errors
/// The mistake in the text, in one line.
pub fn analyze(text: &str) -> anyhow::Result<String> {
    verbs::analyze::of_text(text)
}

/// The answer of `punctual plan`, as JSON; paths of other files in the text are relative to `folder`.
///
/// # Errors
/// The mistake in the text, in one line.
pub fn plan(text: &str, folder: &Path) -> anyhow::Result<String> {
    verbs::plan::of_text(text, folder)
}
