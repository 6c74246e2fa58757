//! The hostile program's way to what the kernel shows of processes. It is opened before the program loses its rights: the root
//! of a test's file system may be closed to other users, what lies below an open folder is not.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags};

/// `/proc`, and the folder that the program works in.
static FOLDERS: OnceLock<[OwnedFd; 2]> = OnceLock::new();

/// To be called first.
pub fn prepare() {
    let open = |path| rustix::fs::openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let folders = ["/proc", "."].map(|path| open(path).expect("a folder"));
    FOLDERS.set(folders).expect("prepared once");
}

fn folders() -> &'static [OwnedFd; 2] {
    FOLDERS.get().expect("prepared")
}

/// Opens a path below `/proc`.
pub fn open(path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(&folders()[0], path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Reads all of a file there; what may not be read is nothing.
pub fn read(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = open(path, OFlags::RDONLY) {
        // Some begin and then refuse: that counts as an end.
        let _ = File::from(file).read_to_end(&mut bytes);
    }
    bytes
}

/// The names in a folder there.
pub fn names(path: &str) -> Vec<String> {
    let folder = open(path, OFlags::DIRECTORY).expect("a folder");
    let entries = rustix::fs::Dir::new(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// Runs `work` with `/proc` as the folder of the calling thread alone.
pub fn inside<R>(work: impl FnOnce() -> R) -> R {
    let [proc, home] = folders();
    // SAFETY: numbers only; the folder of other threads stays.
    let to = |folder: &OwnedFd| unsafe { libc::unshare(libc::CLONE_FS) | libc::fchdir(folder.as_raw_fd()) };
    assert_eq!(to(proc), 0, "its own folder");
    let done = work();
    assert_eq!(to(home), 0, "back");
    done
}
