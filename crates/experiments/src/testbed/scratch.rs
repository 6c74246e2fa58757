//! A directory for sockets and configurations of one run, removed when dropped; those of killed runs are
//! removed later.

use std::path::{Path, PathBuf};

use anyhow::Context;

use punctual_os::namespaces::{alive, next_number};

const PREFIX: &str = "punctual-run-";

/// The directory.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a directory that only this user can enter. Its path is short: socket paths end at 107 bytes.
    ///
    /// # Errors
    /// If the temporary directory refuses.
    pub fn create() -> anyhow::Result<Self> {
        let directory = std::env::temp_dir();
        remove_stale(&directory);
        let path = directory.join(format!("{PREFIX}{}-{}", std::process::id(), next_number()));
        let made =
            std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("warning: {} stays behind: {error}", self.path.display());
        }
    }
}

/// Removes stale directories, except those of other users, which this user cannot remove.
fn remove_stale(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if owner.is_some_and(|pid| !alive(pid)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_removed_together_with_those_of_ended_runs() {
        let dead = std::env::temp_dir().join(format!("{PREFIX}{}-{}", 1 << 23, std::process::id()));
        std::fs::create_dir_all(&dead).expect("a directory");
        let scratch = Scratch::create().expect("a directory");
        assert!(!dead.exists(), "what a dead run left is swept");
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").expect("a file");
        drop(scratch);
        assert!(!path.exists());
    }
}
