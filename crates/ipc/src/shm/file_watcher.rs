//! Detects when no process holds a memory file any more.
//!
//! The system gets a file's memory back when its last holder is gone: a descriptor, a mapping, or a message
//! in transit with a descriptor, in any process. The holders cannot be listed: seals forbid to take the
//! memory back, and a lease does not see descriptors that only name a file (`O_PATH`). But when the last
//! holder of a file without a name is gone, the kernel removes the watches of the file and reports that ([ADR
//! 0046](../../../../docs/adr/0046-what-was-given-away-counts-until-nobody-has-it.md)).
//!
//! Only that event is watched for: no other action of a holder on the file makes an event.

use std::collections::HashSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Events that are taken at once.
const EVENTS: usize = 64;
const EVENT_BYTES: usize = size_of::<libc::inotify_event>();

/// A file that is watched. Numbers come round after 2^31 of them, and pass by those in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watched(i32);

/// See the module.
#[derive(Debug)]
pub struct FileWatcher(OwnedFd);

impl FileWatcher {
    /// A watcher without watched files.
    ///
    /// # Errors
    /// If descriptors, or such objects (`fs.inotify.max_user_instances`), run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches a file without a name.
    ///
    /// # Errors
    /// If this process's user has as many watches as it may (`fs.inotify.max_user_watches`), or `/proc` is not there.
    pub fn watch(&self, file: impl AsFd) -> io::Result<Watched> {
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        match inotify::add_watch(&self.0, path, WatchFlags::DELETE_SELF) {
            Ok(number) => Ok(Watched(number)),
            Err(Errno::NOSPC) => Err(io::Error::other(
                "the daemon's user may have no more watches of files: raise fs.inotify.max_user_watches (sysctl)",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the watch of a file. A file without holders has no watch any more.
    pub fn forget(&self, watched: Watched) {
        let _ = inotify::remove_watch(&self.0, watched.0);
    }

    /// Reports the files that have lost their last holder since the last call. `false`: there were too many,
    /// and the caller must query those that are left ([`Self::left`]).
    ///
    /// # Errors
    /// The errors of the system.
    pub fn take_gone(&self, mut is_gone: impl FnMut(Watched)) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); EVENTS * EVENT_BYTES];
        let (mut reader, mut all) = (Reader::new(&self.0, &mut buffer), true);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => all = false,
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => is_gone(Watched(event.wd())),
                // The file is about to go.
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(all),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// All files that are watched now.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn left(&self) -> io::Result<HashSet<Watched>> {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd()))?;
        let number = |line: &str| {
            let (number, _) = line.strip_prefix("inotify wd:")?.split_once(' ')?;
            number.parse().ok().map(Watched)
        };
        Ok(text.lines().filter_map(number).collect())
    }
}

/// Readable when a file is gone.
impl AsFd for FileWatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::shm::{Offer, Region};
    use crate::socket::{Packet, send};

    fn gone(watcher: &FileWatcher) -> Vec<Watched> {
        let mut gone = Vec::new();
        assert!(watcher.take_gone(|file| gone.push(file)).expect("events"), "not too many");
        gone
    }

    /// A sealed file of the daemon, as a program gets it. The daemon keeps no descriptor and no mapping of
    /// it.
    fn file(watcher: &FileWatcher) -> (OwnedFd, Watched) {
        let (file, _) = Region::create(8_192).expect("a file");
        let watched = watcher.watch(&file).expect("watched");
        (file, watched)
    }

    fn again(file: &OwnedFd, flags: i32) -> std::fs::File {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        OpenOptions::new().read(true).custom_flags(flags).open(path).expect("opened anew")
    }

    /// Covers each kind of holder: the file is held until the holder lets go.
    #[test]
    fn a_file_is_gone_when_the_last_holder_of_any_kind_is() {
        type Hold = fn(&OwnedFd) -> Box<dyn std::any::Any>;
        let ways: [(&str, Hold); 5] = [
            ("a descriptor", |file| Box::new(file.try_clone().expect("a copy"))),
            ("a mapping", |file| Box::new(crate::shm::View::open(file, 8_192).expect("mapped"))),
            ("a file opened anew", |file| Box::new(again(file, 0))),
            ("a descriptor that only names it", |file| Box::new(again(file, libc::O_PATH))),
            ("a message on its way", |file| {
                let kind = SocketType::SEQPACKET;
                let (ours, theirs) =
                    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair");
                let file = file.try_clone().expect("a copy");
                let packet = Packet { bytes: vec![1], descriptors: vec![file] };
                send(&ours, &packet, SendFlags::empty()).expect("sent");
                Box::new(theirs)
            }),
        ];
        let watcher = FileWatcher::new().expect("a watcher");
        for (way, hold) in ways {
            let (file, watched) = file(&watcher);
            let held = hold(&file);
            drop(file);
            assert_eq!(gone(&watcher), [], "{way}");
            assert!(watcher.left().expect("a list").contains(&watched), "{way}");
            drop(held);
            assert_eq!(gone(&watcher), [watched], "{way}");
            assert!(!watcher.left().expect("a list").contains(&watched), "{way}");
        }
    }

    #[test]
    fn the_daemons_part_of_an_offer_holds_it_and_a_foreign_watch_does_not() {
        let watcher = FileWatcher::new().expect("a watcher");
        let (file, offer) = Offer::create(8_192).expect("a file");
        let watched = watcher.watch(&file).expect("watched");
        let foreign_watcher = FileWatcher::new().expect("another one");
        foreign_watcher.watch(&file).expect("watched twice");
        drop(file);
        assert_eq!(gone(&watcher), []);
        drop(offer);
        assert_eq!(gone(&watcher), [watched]);
        let (file, watched) = self::file(&watcher);
        watcher.forget(watched);
        drop(file);
        assert!(watcher.left().expect("a list").is_empty());
    }

    /// By default the kernel queues 16,384 events; each file takes two.
    #[test]
    fn too_many_at_once_are_reported_and_the_remaining_ones_are_known() {
        let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("a limit");
        let most: usize = most.trim().parse().expect("a number");
        let watcher = FileWatcher::new().expect("a watcher");
        let (kept, watched) = file(&watcher);
        for _ in 0..=most / 2 {
            drop(file(&watcher));
        }
        assert!(!watcher.take_gone(|_| {}).expect("events"), "some are lost");
        assert_eq!(watcher.left().expect("a list"), HashSet::from([watched]));
        drop(kept);
        assert_eq!(gone(&watcher), [watched]);
    }
}
