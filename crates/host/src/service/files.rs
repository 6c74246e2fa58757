//! Memory files of rings count in their user's quotas until no process holds them: neither this process nor
//! any other.
//!
//! A program that keeps the descriptors of a closed ring keeps its memory, which this process has allocated.
//! The quota is given back when the kernel reports that the last holder is gone ([`FileWatcher`]).

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use punctual_ipc::api::Resource;
use punctual_ipc::ring::{RingError, RingHandles, RingShape};
use punctual_ipc::shm::{FileWatcher, Watched};
use punctual_proto::api::UserId;
use punctual_trial::{Defence, holds};

use super::end::Held;
use super::{Host, Service};

/// Descriptors that each file takes: the pipe that holds a page of it, or the file itself until it is
/// attached. This also bounds how many files are watched.
const FILE_DESCRIPTORS: u64 = 1;

/// The quota that a ring takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Resources of this process alone.
    own: Held,
    /// Bytes of the two files, in the order in which they are handed over.
    files_bytes: [u64; 2],
    /// Descriptors in the answer that hands the ring over, until the program has read it.
    pub handed_over: u64,
}

impl Needs {
    /// Needs of an outgoing ring: bell, doorbell, and pipes that hold pages of the program's file.
    pub(super) fn outbox(shape: RingShape) -> Self {
        let descriptors = 2 + shape.pipes();
        Self::new(shape.outbox_bytes(), shape.outbox_files_bytes(), descriptors, 4)
    }

    /// Needs of an incoming ring: the bell, and pipes that hold pages of the daemon's file.
    pub(super) fn inbox(shape: RingShape) -> Self {
        let descriptors = 1 + shape.pipes();
        Self::new(shape.inbox_bytes(), shape.inbox_files_bytes(), descriptors, 3)
    }

    fn new(bytes: u64, files_bytes: [u64; 2], descriptors: u64, handed_over: u64) -> Self {
        let own = Held { bytes: bytes - files_bytes.iter().sum::<u64>(), descriptors };
        Self { own, files_bytes, handed_over }
    }

    /// All of it, including files, but without the descriptors that are passed on.
    pub(super) fn all(&self) -> Held {
        Held {
            bytes: self.own.bytes + self.files_bytes.iter().sum::<u64>(),
            descriptors: self.own.descriptors + FILE_DESCRIPTORS * self.files_bytes.len() as u64,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// `None`: only this process holds rings, or their holders are not watched.
    watcher: Option<FileWatcher>,
    /// True if the kernel's event queue has overflowed, and the files that are left could not be queried yet.
    lost: bool,
    held: HashMap<Watched, (UserId, u64)>,
}

impl Files {
    /// Programs are other processes.
    ///
    /// # Errors
    /// See [`FileWatcher::new`].
    pub(super) fn keep_apart(&mut self) -> io::Result<()> {
        if holds(Defence::KeptFiles) {
            self.watcher = Some(FileWatcher::new()?);
        }
        Ok(())
    }

    /// The part of a ring that counts until this process has let go of it: all of it if no other process can
    /// hold any.
    pub(super) fn own(&self, needs: &Needs) -> Held {
        if self.watcher.is_some() { needs.own } else { needs.all() }
    }

    /// From now on both files of a ring count until no process holds them.
    ///
    /// # Errors
    /// See [`FileWatcher::watch`]; then neither file counts.
    pub(super) fn watch(&mut self, user: UserId, ring: &RingHandles, needs: &Needs) -> Result<(), RingError> {
        let Some(watcher) = &self.watcher else { return Ok(()) };
        let mut watched = Vec::with_capacity(needs.files_bytes.len());
        for (file, bytes) in ring.descriptors.iter().zip(needs.files_bytes) {
            match watcher.watch(file) {
                Ok(file) => watched.push((file, (user, bytes))),
                Err(error) => {
                    watched.into_iter().for_each(|(file, _)| watcher.forget(file));
                    return Err(RingError::Watch(error));
                }
            }
        }
        self.held.extend(watched);
        Ok(())
    }

    /// Adds the owners and sizes of files that are gone to `gone`. `left` queries a watcher for the files
    /// that still exist, which takes a descriptor.
    ///
    /// # Errors
    /// The errors of the system. `gone` holds what was found before the error, and the rest comes with the
    /// next call that succeeds.
    fn take_gone(
        &mut self,
        left: impl FnOnce(&FileWatcher) -> io::Result<HashSet<Watched>>,
        gone: &mut Vec<(UserId, u64)>,
    ) -> io::Result<()> {
        let Self { watcher: Some(watcher), lost, held } = self else { return Ok(()) };
        *lost |= !watcher.take_gone(|file| gone.extend(held.remove(&file)))?;
        if *lost {
            let left = left(watcher)?;
            gone.extend(held.extract_if(|file, _| !left.contains(file)).map(|(_, of)| of));
            *lost = false;
        }
        Ok(())
    }
}

impl<H: Host> Service<H> {
    /// Readable when a file of a ring is gone.
    pub fn watcher(&self) -> Option<BorrowedFd<'_>> {
        self.files.watcher.as_ref().map(AsFd::as_fd)
    }

    /// Gives back the quota of ring files that no process holds any more.
    ///
    /// # Errors
    /// If the kernel does not report them, for instance without a free descriptor: they count until a later
    /// call.
    pub fn collect_gone(&mut self) -> io::Result<()> {
        let mut gone = Vec::new();
        let collected = self.files.take_gone(FileWatcher::left, &mut gone);
        for (user, bytes) in gone {
            self.accounts.give_back(user, Resource::BufferBytes, bytes);
            self.accounts.give_back(user, Resource::Descriptors, FILE_DESCRIPTORS);
        }
        collected
    }
}

#[cfg(test)]
mod tests {
    use punctual_ipc::ring::{inbox, outbox};
    use punctual_ipc::wake::{Alarm, RingPath};

    use super::*;

    const ANN: UserId = UserId(3_000_001);

    fn shape() -> RingShape {
        RingShape::new(64, 1_000).expect("a shape")
    }

    fn apart() -> Files {
        let mut files = Files::default();
        files.keep_apart().expect("a watcher");
        files
    }

    fn gone(files: &mut Files) -> Vec<(UserId, u64)> {
        let mut gone = Vec::new();
        files.take_gone(FileWatcher::left, &mut gone).expect("reported");
        gone
    }

    #[test]
    fn all_of_a_ring_is_its_own_part_and_its_files() {
        for (needs, bytes, descriptors) in [
            (Needs::outbox(shape()), shape().outbox_bytes(), 5),
            (Needs::inbox(shape()), shape().inbox_bytes(), 4),
        ] {
            assert_eq!(needs.all(), Held { bytes, descriptors });
            assert_eq!(Files::default().own(&needs), needs.all(), "within one process");
            let own = apart().own(&needs);
            assert!(own.bytes < bytes / 4 && own.descriptors + 2 == descriptors, "{own:?}");
        }
    }

    #[test]
    fn each_file_of_a_ring_counts_until_its_last_holder_is_gone() {
        let (alarm, mut files) = (Alarm::new().expect("an eventfd"), apart());
        let (reader, mut ring, doorbell) = outbox(shape(), &alarm, &RingPath::Direct).expect("a ring");
        let needs = Needs::outbox(shape());
        files.watch(ANN, &ring, &needs).expect("watched");
        drop((reader, doorbell));
        assert_eq!(gone(&mut files), [], "the program has them");
        let [theirs, ours] = [1, 0].map(|file| ring.descriptors.swap_remove(file));
        drop(ours);
        assert_eq!(gone(&mut files), [(ANN, needs.files_bytes[0])]);
        drop(theirs);
        assert_eq!(gone(&mut files), [(ANN, needs.files_bytes[1])]);
        assert!(files.held.is_empty());
    }

    #[test]
    fn rings_that_end_in_a_heap_are_all_given_back() {
        let (alarm, mut files) = (Alarm::new().expect("an eventfd"), apart());
        let shape = RingShape::new(1, 8).expect("a shape");
        let needs = Needs::inbox(shape);
        let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("a limit");
        // Two events for each of two files.
        let rings = most.trim().parse::<usize>().expect("a number") / 4 + 10;
        for _ in 0..rings {
            let (writer, ring) = inbox(shape, &alarm, &RingPath::Direct).expect("a ring");
            files.watch(ANN, &ring, &needs).expect("watched");
            drop((writer, ring));
        }
        let mut collected = Vec::new();
        let no_descriptor = |_: &FileWatcher| Err(io::Error::from(rustix::io::Errno::MFILE));
        files.take_gone(no_descriptor, &mut collected).expect_err("who is left is not known");
        assert!((1..2 * rings).contains(&collected.len()), "{} of {rings} rings", collected.len());
        // No later event reports these files again.
        files.take_gone(no_descriptor, &mut collected).expect_err("nor is it now");
        assert_eq!(collected.len() + gone(&mut files).len(), 2 * rings);
        assert!(files.held.is_empty());
    }
}
