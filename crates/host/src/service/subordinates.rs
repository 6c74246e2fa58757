//! The user that a further user belongs to: accounts that may make user namespaces have ranges of further
//! users (`/etc/subuid`), which must not multiply their quotas.
//!
//! The file is read again when it has changed. Some ranges are not in it and cannot be found: those of other
//! sources (nsswitch, a container manager that is root), and those of names that are not in `/etc/passwd`.
//! Users of a namespace that the daemon's namespace does not map all appear as the overflow user, so they
//! share one account.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use punctual_proto::api::UserId;
use punctual_trial::{Defence, holds};

use super::quota::is_privileged;

/// Longest file that is read, in bytes; a longer one is ignored.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Distinguishes versions of a file.
type Stamp = Option<(u64, u64, i64, i64)>;

/// Users `first` to `last` belong to `owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    owner: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Subordinates {
    ranges_file: PathBuf,
    names_file: PathBuf,
    stamps: [Stamp; 2],
    /// Ranges by their first user; they may overlap.
    ranges: Vec<Range>,
}

impl Subordinates {
    /// The subordinates that this system's files state.
    pub(super) fn of_system() -> Self {
        Self::new(Path::new("/etc/subuid"), Path::new("/etc/passwd"))
    }

    fn new(ranges_file: &Path, names_file: &Path) -> Self {
        let (ranges_file, names_file) = (ranges_file.into(), names_file.into());
        Self { ranges_file, names_file, stamps: [None, None], ranges: Vec::new() }
    }

    /// User whose quotas are charged for the resources of `user`.
    pub(super) fn account(&mut self, user: UserId) -> UserId {
        if is_privileged(user) || !holds(Defence::Subordinates) {
            return user;
        }
        self.refresh();
        let known = self.ranges.partition_point(|range| range.first <= user.0);
        let owner = self.ranges[..known].iter().rev().find(|range| user.0 <= range.last);
        match owner {
            // Users in root's containers are not root: each range is an account of its own.
            Some(range) if is_privileged(UserId(range.owner)) => UserId(range.first),
            Some(range) => UserId(range.owner),
            None => user,
        }
    }

    fn refresh(&mut self) {
        let stamps = [stamp(&self.ranges_file), stamp(&self.names_file)];
        if stamps == self.stamps {
            return;
        }
        let names = read(&self.names_file, stamps[1]);
        let ranges = read(&self.ranges_file, stamps[0]);
        // A file that cannot be read now, for lack of a descriptor, is tried again later: until then the
        // former content applies.
        if let (Ok(names), Ok(ranges)) = (names, ranges) {
            (self.stamps, self.ranges) = (stamps, parse(&ranges, &names));
        }
    }
}

/// The text of a file; empty if there is none, or if it is too long.
fn read(path: &Path, stamp: Stamp) -> io::Result<String> {
    match stamp {
        Some((_, bytes, ..)) if bytes <= FILE_BYTES_MAX => {
            fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        }
        _ => Ok(String::new()),
    }
}

fn stamp(path: &Path) -> Stamp {
    let about = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
}

/// Lines that cannot be parsed are ignored.
fn parse(ranges: &str, names: &str) -> Vec<Range> {
    let by_name: HashMap<&str, u32> = names
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let (name, user) = (fields.next()?, fields.nth(1)?);
            Some((name, user.parse().ok()?))
        })
        .collect();
    let range = |line: &str| {
        let mut fields = line.trim().split(':');
        let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        let owner = owner.parse().ok().or_else(|| by_name.get(owner).copied())?;
        let (first, count) = (first.parse::<u32>().ok()?, count.parse::<u32>().ok()?.checked_sub(1)?);
        Some(Range { first, last: first.checked_add(count)?, owner })
    };
    let mut all: Vec<Range> = ranges.lines().filter_map(range).collect();
    all.sort_unstable_by_key(|range| range.first);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n";

    #[test]
    fn lines_are_read_by_name_and_by_number_and_others_are_ignored() {
        let ranges =
            parse("bob:300000:10\nann:100000:65536\n1002:200000:1\ncy:1:2\nann:x:1\nann:5:0\n\n#", NAMES);
        let of = |first, last, owner| Range { first, last, owner };
        assert_eq!(
            ranges,
            [of(100_000, 165_535, 1_000), of(200_000, 200_000, 1_002), of(300_000, 300_009, 1_001),]
        );
        assert_eq!(parse("ann:4294967295:2", NAMES), [], "beyond the last user");
    }

    #[test]
    fn subordinates_count_as_their_owner_as_soon_as_the_file_lists_them() {
        let folder = std::env::temp_dir().join(format!("punctual-subuid-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (ranges, names) = (folder.join("subuid"), folder.join("passwd"));
        let mut known = Subordinates::new(&ranges, &names);
        assert_eq!(known.account(UserId(100_005)), UserId(100_005), "no such file");
        fs::write(&names, NAMES).expect("written");
        fs::write(&ranges, "ann:100000:10\nroot:500000:10\n").expect("written");
        assert_eq!(
            [100_005, 100_009, 100_010, 1_000].map(|user| known.account(UserId(user)).0),
            [1_000, 1_000, 100_010, 1_000]
        );
        assert_eq!(known.account(UserId(500_003)), UserId(500_000), "no part of root's own");
        fs::write(&ranges, "bob:100000:10\nann:200000:10\n").expect("written");
        assert_eq!(known.account(UserId(100_005)), UserId(1_001), "the file has changed");
        // A file that is there and cannot be read.
        fs::remove_file(&ranges).expect("removed");
        std::os::unix::fs::symlink("/proc/self/mem", &ranges).expect("a link");
        assert_eq!(known.account(UserId(100_005)), UserId(1_001), "what was known holds");
        fs::remove_file(&ranges).expect("removed");
        assert_eq!(known.account(UserId(100_005)), UserId(100_005), "the file is gone");
        fs::remove_dir_all(folder).expect("removed");
    }
}
