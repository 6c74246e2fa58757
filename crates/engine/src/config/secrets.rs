//! The domain's key and the host's boot count.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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

/// The key in a file that only its owner and group can read.
pub(super) fn key_in(path: &Path) -> Result<[u8; 32], String> {
    let named = |error: io::Error| {
        format!(
            "key_file {}: {error}: name a file that this user may read, made with `openssl rand -hex 32`",
            path.display()
        )
    };
    let mode = fs::metadata(path).map_err(named)?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(format!("key_file {0} is open to everybody: chmod 600 {0}", path.display()));
    }
    key(&fs::read_to_string(path).map_err(named)?)
        .map_err(|what| format!("key_file {}: {what}", path.display()))
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
}
