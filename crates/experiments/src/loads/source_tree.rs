//! Files of the source tree that are sent.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Finds a file of the source tree: from the working directory, or from the folder of the program
/// (target/release).
///
/// # Errors
/// If it is in neither.
pub fn find(relative: &Path) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().ok();
    let above_program = program.as_deref().into_iter().flat_map(Path::ancestors);
    let mut places = std::iter::once(Path::new(".")).chain(above_program).map(|place| place.join(relative));
    places
        .find(|place| place.exists())
        .with_context(|| format!("{} is not found: run from the source tree", relative.display()))
}
