//! The film that the demo plays: examples/media, frame by frame.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use punctual_experiments::loads::source_tree;

use crate::h264::access_units;

/// Path of the film in the source tree.
const FILM: &str = "examples/media/bigbuckbunny-720p25.h264";

/// Reads the film's frames.
///
/// # Errors
/// If the file is not found below the working directory or any directory above the program, or is no stream.
pub fn load() -> anyhow::Result<Arc<[Vec<u8>]>> {
    let path = source_tree::find(Path::new(FILM))?;
    let stream = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let frames =
        access_units(&stream).with_context(|| format!("{} cannot be split into frames", path.display()))?;
    Ok(frames.into_iter().map(<[u8]>::to_vec).collect())
}
