//! Results for people and programs: SVG plots, one self-contained HTML page, JSON.

pub mod html;
pub mod plot;

pub use html::{Page, Table};
pub use plot::{Axis, Legend, Mark, Plot, Scale, Series};

use std::path::Path;

use anyhow::Context;

/// Writes `text` to `path`, making its directory.
///
/// # Errors
/// Where the file system refuses.
pub fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
