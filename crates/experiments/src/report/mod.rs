//! Results for people and programs: SVG plots, one self-contained HTML page, JSON.

pub mod bars;
pub mod check;
mod drawing;
pub mod html;
pub mod plot;

pub use bars::{Bar, Bars};
pub use check::Check;
pub use drawing::Scale;
pub use html::{Page, Table};
pub use plot::{Axis, Legend, Mark, Plot, Row, Series};

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use anyhow::Context;

/// Checks whether a file can be written before its content is measured; makes its directory, changes nothing
/// else.
///
/// # Errors
/// The obstacle, with the fix.
pub fn ensure_writable(path: &Path) -> anyhow::Result<()> {
    let fix =
        || format!("cannot write {}: choose another place, or change who may write there", path.display());
    let directory =
        path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).with_context(fix)?;
    match std::fs::metadata(path) {
        // A pipe or a device: opening it may wait, or do something.
        Ok(there) if !there.is_file() && !there.is_dir() => return Ok(()),
        _ => {}
    }
    let file = OpenOptions::new().append(true).create_new(true).open(path);
    match file {
        Ok(_) => std::fs::remove_file(path).with_context(fix),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(path).map(drop).with_context(fix)
        }
        Err(error) => Err(error).with_context(fix),
    }
}

/// Writes `text` to `path`, making its directory.
///
/// # Errors
/// If the file system refuses.
pub fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_place_is_noticed_and_a_good_one_left_as_it_is() {
        let folder = std::env::temp_dir().join(format!("punctual-places-{}", std::process::id()));
        let (new, there) = (folder.join("new/file"), folder.join("there"));
        ensure_writable(&new).expect("a directory that can be made");
        assert!(!new.exists() && new.parent().is_some_and(Path::exists));
        std::fs::write(&there, "kept").expect("a file");
        ensure_writable(&there).expect("a file that can be replaced");
        assert_eq!(std::fs::read_to_string(&there).expect("a file"), "kept");
        // A directory, a file for a directory, and a file system that makes no files, not even for root.
        for bad in [&folder, &there.join("file"), Path::new("/proc/punctual/file")] {
            let error = format!("{:#}", ensure_writable(bad).expect_err("a bad place"));
            let named = error.contains(&bad.display().to_string()) && error.contains("choose another place");
            assert!(named && error.lines().count() == 1, "{error}");
        }
        ensure_writable(Path::new("/dev/null")).expect("a device");
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
