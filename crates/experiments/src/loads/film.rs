//! The film that the demo plays: examples/media, frame by frame.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use super::Content;
use super::h264::access_units;

/// Its path in the source tree.
pub const FILM: &str = "examples/media/bigbuckbunny-720p25.h264";

/// Reads the film's frames.
///
/// # Errors
/// If the file is not found below the working directory or any directory above the program, or is no stream.
pub fn load() -> anyhow::Result<Content> {
    let path = find(Path::new(FILM))?;
    let stream = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let frames: Vec<Vec<u8>> = access_units(&stream)
        .with_context(|| format!("{} cannot be split into frames", path.display()))?
        .into_iter()
        .map(<[u8]>::to_vec)
        .collect();
    Ok(Content::Bodies(Arc::from(frames)))
}

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
