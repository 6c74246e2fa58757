//! Memory that two sides share: words of loom, and payload in lines that notice who touches them at once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use loom::cell::UnsafeCell;

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Same as in `punctual_ipc`.
pub const REGION_BYTES_MAX: u64 = 4 << 30;
const LINE_BYTES: usize = 64;

thread_local! {
    /// Loom runs all threads of a model on one.
    static FILES: RefCell<HashMap<RawFd, Rc<Storage>>> = RefCell::default();
}

struct Storage {
    words: Vec<AtomicU64>,
    halves: Vec<AtomicU32>,
    lines: Vec<UnsafeCell<[u8; LINE_BYTES]>>,
}

/// A mapping of it.
pub struct Region {
    storage: Rc<Storage>,
    len: usize,
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} B)", self.len)
    }
}

// SAFETY: loom's threads take turns on one thread of the system.
unsafe impl Send for Region {}
// SAFETY: as above; loom's cells and atomics report concurrent accesses to the same data.
unsafe impl Sync for Region {}

/// Something to hang an object of the model on.
pub(crate) fn descriptor() -> io::Result<OwnedFd> {
    Ok(std::fs::File::open("/dev/null")?.into())
}

impl Region {
    pub fn create(len: u64) -> io::Result<(OwnedFd, Self)> {
        let (file, len) = (descriptor()?, len as usize);
        let storage = Rc::new(Storage {
            words: (0..len / 8).map(|_| AtomicU64::new(0)).collect(),
            halves: (0..len / 4).map(|_| AtomicU32::new(0)).collect(),
            lines: (0..len / LINE_BYTES).map(|_| UnsafeCell::new([0; LINE_BYTES])).collect(),
        });
        FILES.with_borrow_mut(|files| files.insert(file.as_raw_fd(), Rc::clone(&storage)));
        Ok((file, Self { storage, len }))
    }

    pub fn private(len: u64) -> io::Result<(Self, View)> {
        let (file, region) = Self::create(len)?;
        Ok((region, View::open(file, len)?))
    }

    /// The storage of a descriptor. It is returned once: no storage of one model may be used in the next.
    fn find(file: impl AsFd, len: u64) -> io::Result<Self> {
        let found = FILES.with_borrow_mut(|files| files.remove(&file.as_fd().as_raw_fd()));
        Ok(Self { storage: found.ok_or(io::ErrorKind::NotFound)?, len: len as usize })
    }

    pub fn take(file: impl AsFd, len: u64) -> io::Result<Self> {
        Self::find(file, len)
    }

    pub fn word(&self, offset: usize) -> &AtomicU64 {
        &self.storage.words[offset / 8]
    }

    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        &self.storage.words[offset / 8..][..count]
    }

    pub fn half(&self, offset: usize) -> &AtomicU32 {
        &self.storage.halves[offset / 4]
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let start = offset % LINE_BYTES;
        self.storage.lines[offset / LINE_BYTES].with_mut(|line| {
            // SAFETY: loom has just checked that no other thread accesses the line.
            let line = unsafe { &mut *line };
            line[start..start + bytes.len()].copy_from_slice(bytes);
        });
    }

    /// # Safety
    /// As the real one's.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let start = offset % LINE_BYTES;
        // SAFETY: as the caller promises; loom has just checked it.
        self.storage.lines[offset / LINE_BYTES].with(|line| unsafe { &(&*line)[start..start + len] })
    }

    /// # Safety
    /// As the real one's.
    #[expect(clippy::mut_from_ref, reason = "as the real one's")]
    pub unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        let start = offset % LINE_BYTES;
        // SAFETY: as the caller promises; loom has just checked it.
        self.storage.lines[offset / LINE_BYTES]
            .with_mut(|line| unsafe { &mut (&mut *line)[start..start + len] })
    }
}

/// The other side's file.
#[derive(Debug)]
pub struct View(Region);

impl View {
    pub fn open(file: impl AsFd, len: u64) -> io::Result<Self> {
        Ok(Self(Region::find(file, len)?))
    }

    pub fn word(&self, offset: usize, order: Ordering) -> u64 {
        self.0.word(offset).load(order)
    }

    pub fn words(&self, offset: usize, out: &mut [u64]) {
        for (index, word) in out.iter_mut().enumerate() {
            *word = self.0.word(offset + index * 8).load(Ordering::Relaxed);
        }
    }

    pub fn half(&self, offset: usize, order: Ordering) -> u32 {
        self.0.half(offset).load(order)
    }

    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let start = offset % LINE_BYTES;
        self.0.storage.lines[offset / LINE_BYTES].with(|line| {
            // SAFETY: loom has just checked that no thread writes the line.
            let line = unsafe { &*line };
            out.copy_from_slice(&line[start..start + out.len()]);
        });
    }

    /// # Safety
    /// As the real one's.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: as the caller promises.
        unsafe { self.0.bytes(offset, len) }
    }
}

/// The same memory for the daemon.
#[derive(Debug)]
pub struct Offer(Region);

impl Offer {
    pub fn create(len: u64) -> io::Result<(OwnedFd, Self)> {
        let (file, region) = Region::create(len)?;
        Ok((file, Self(region)))
    }

    pub fn accept(&self) -> io::Result<View> {
        Ok(View(Region { storage: Rc::clone(&self.0.storage), len: self.0.len }))
    }
}
