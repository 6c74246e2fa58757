//! The domain's key and the host's boot count.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use punctual_trial::{Defence, holds};
use rustix::fs::OFlags;
use rustix::process::{getegid, geteuid};

use super::ConfigError;

/// 64 hexadecimal digits.
pub(super) fn key(text: &str) -> Result<[u8; 32], String> {
    let bad = || "a key is 64 hexadecimal digits: make one with `openssl rand -hex 32`".to_string();
    let text = text.trim();
    if text.len() != 64 || !text.is_ascii() {
        return Err(bad());
    }
    let mut key = [0; 32];
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
    }
    Ok(key)
}

/// Reads the key from a file that only root, the daemon's user and the daemon's own group can read, and that
/// no other user can write.
pub(super) fn key_in(path: &Path) -> Result<[u8; 32], String> {
    let named = |error: io::Error| {
        format!(
            "key_file {}: {error}: name a file that this user may read, made with `openssl rand -hex 32`",
            path.display()
        )
    };
    // A FIFO or a device in its place must not keep the daemon waiting.
    let wait = if holds(Defence::KeyFiles) { OFlags::NONBLOCK } else { OFlags::empty() };
    let flags = (wait | OFlags::NOCTTY).bits() as i32;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(named)?;
    // Check the file that was opened, whatever the name leads to by now.
    let about = file.metadata().map_err(named)?;
    if !about.is_file() && holds(Defence::KeyFiles) {
        let fix = "give the name of a file with the key in it";
        return Err(format!("key_file {} is no regular file: {fix}", path.display()));
    }
    let own = Identity { user: geteuid().as_raw(), group: getegid().as_raw() };
    is_private(path, &Identity { user: about.uid(), group: about.gid() }, about.mode(), &own)?;
    let mut text = String::new();
    file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(named)?;
    key(&text).map_err(|what| format!("key_file {}: {what}", path.display()))
}

/// Bytes of a key file that are read at most; a key has 64.
const KEY_FILE_BYTES_MAX: u64 = 4_096;

/// A user and a group.
struct Identity {
    user: u32,
    group: u32,
}

/// Whether a key may be in a file of `owner` with `mode`, for a daemon with the identity `own`.
fn is_private(path: &Path, owner: &Identity, mode: u32, own: &Identity) -> Result<(), String> {
    if !holds(Defence::PrivateKeys) {
        return Ok(());
    }
    let path = path.display();
    if owner.user != 0 && owner.user != own.user {
        let (user, own) = (owner.user, own.user);
        return Err(format!(
            "key_file {path} belongs to user {user}, who can change it: chown root {path}, or chown {own} {path}"
        ));
    }
    if mode & 0o007 != 0 {
        return Err(format!("all users can use key_file {path}: chmod 600 {path}"));
    }
    if mode & 0o030 != 0 {
        return Err(format!("key_file {path} can be written by its group: chmod g-wx {path}"));
    }
    if mode & 0o040 != 0 && owner.group != own.group {
        let (group, own) = (owner.group, own.group);
        return Err(format!(
            "key_file {path} can be read by group {group}, which is not the daemon's ({own}): chmod 600 {path}, or \
             chgrp {own} {path}"
        ));
    }
    Ok(())
}

/// Counts a boot in `path` and returns its number; durable before it returns, so that no number is used twice.
pub(super) fn next_boot(path: &Path) -> Result<u64, ConfigError> {
    let fail = |error| ConfigError::Epoch { what: format!("epoch_file {}", path.display()), error };
    let last = match fs::read_to_string(path) {
        Ok(text) => text.trim().parse::<u64>().map_err(|_| {
            fail(io::Error::new(
                io::ErrorKind::InvalidData,
                "holds no number: put a larger one than ever used there, or leave epoch_file out",
            ))
        })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(fail(with_fix(error))),
    };
    let next = last.checked_add(1).ok_or_else(|| {
        fail(io::Error::new(
            io::ErrorKind::InvalidData,
            "holds the last number that there is: leave epoch_file out",
        ))
    })?;
    replace(path, &format!("{next}\n")).map_err(|error| fail(with_fix(error)))?;
    Ok(next)
}

fn with_fix(error: io::Error) -> io::Error {
    let fix = "name a file in a directory that the daemon may write, or leave epoch_file out";
    io::Error::new(error.kind(), format!("{error}: {fix}"))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("punctual-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        folder
    }

    #[test]
    fn boots_are_counted_and_garbage_is_refused() {
        let folder = folder("epoch");
        let path = folder.join("epoch");
        assert_eq!([1, 2, 3].map(|_| next_boot(&path).expect("counted")), [1, 2, 3]);
        fs::write(&path, "seven").expect("written");
        let error = next_boot(&path).expect_err("refused").to_string();
        assert!(error.contains("epoch_file") && error.contains("no number"), "{error}");
        let error = next_boot(&folder.join("missing/epoch")).expect_err("no directory").to_string();
        assert!(error.contains("epoch_file") && error.contains("may write"), "{error}");
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn keys_are_hexadecimal_and_private() {
        assert_eq!(key(&"0f".repeat(32)), Ok([15; 32]));
        for text in ["", "0f", &"0g".repeat(32), &"ä".repeat(32), &"+f".repeat(32)[..63]] {
            assert!(key(text).is_err_and(|what| what.contains("openssl")), "{text}");
        }
        let folder = folder("key");
        let path = folder.join("key");
        fs::write(&path, "ab".repeat(32)).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("mode");
        assert!(key_in(&path).is_err_and(|what| what.contains("chmod 600")));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
        assert_eq!(key_in(&path), Ok([0xab; 32]));
        assert!(key_in(&folder.join("none")).is_err_and(|what| what.contains("name a file")));
        fs::remove_dir_all(folder).expect("removed");
    }

    /// A key of another user, a key that other users can read, and a path that is no file: each gives one
    /// line, and no call blocks.
    #[test]
    fn keys_of_other_users_and_non_files_are_refused() {
        let path = Path::new("/etc/key");
        let root = Identity { user: 0, group: 0 };
        let daemon = Identity { user: 900, group: 901 };
        let other_user = Identity { user: 1_000, group: 901 };
        let shared = Identity { user: 0, group: 901 };
        for (owner, mode) in [(&root, 0o600), (&daemon, 0o640), (&shared, 0o440), (&daemon, 0o400)] {
            assert_eq!(is_private(path, owner, 0o100_000 | mode, &daemon), Ok(()), "{mode:o}");
        }
        for (owner, mode, what) in [
            (&other_user, 0o600, "belongs to user 1000"),
            (&root, 0o640, "can be read by group 0"),
            (&shared, 0o660, "written by its group"),
            (&root, 0o604, "all users can use"),
            (&daemon, 0o602, "all users can use"),
            (&daemon, 0o610, "chmod g-wx"),
        ] {
            let refused = is_private(path, owner, 0o100_000 | mode, &daemon).expect_err("refused");
            assert!(refused.contains(what) && refused.contains("ch") && !refused.contains('\n'), "{refused}");
        }
        let folder = folder("key-kinds");
        let fifo = folder.join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).expect("a FIFO");
        for path in [fifo.as_path(), Path::new("/dev/zero"), folder.as_path()] {
            let refused = key_in(path).expect_err("refused");
            assert!(refused.contains("no regular file"), "{refused}");
        }
        if geteuid().is_root() {
            let key = folder.join("key");
            fs::write(&key, "ab".repeat(32)).expect("written");
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("mode");
            std::os::unix::fs::chown(&key, Some(65_534), None).expect("given away");
            assert!(key_in(&key).is_err_and(|what| what.contains("belongs to user 65534")));
        }
        fs::remove_dir_all(folder).expect("removed");
    }
}
