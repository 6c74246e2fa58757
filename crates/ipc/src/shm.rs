//! Memory that two processes share: memory files that one side writes and the other reads.
//!
//! The writer of a file maps it first and then seals it ([`SEALS`]): from then on no process, through any
//! descriptor or older mapping, can shrink it, punch a hole in it or map it for writing. The reader maps it
//! for reading only. So no access of either side can fault because of what the other does to the file. A ring
//! takes two files, one for each writer. The daemon makes both, because the close of a descriptor that
//! another process made may wait for that process:
//! - [`Region::create`]: the daemon's own file, sealed before it leaves the process;
//! - [`Offer`]: the file that the application writes and seals ([`Region::take`]). The daemon checks the
//!   seals and maps the file ([`Offer::accept`]) before any thread reads it.
//!
//! `MADV_COLLAPSE` by a reader removes pages from the page tables of all processes, locked or not, to put one
//! huge page in their place. It skips ranges in which another holder has a page: the daemon holds one page of
//! each 2 MiB, in a pipe (ADR 0031).
//!
//! No code ever gets a `&[u8]` over bytes that the other process may be writing: payload is copied in and out
//! with raw pointers, positions and lengths are read and written as atomics.

mod file_watcher;
mod mapping;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{io, ptr};

use punctual_trial::{Defence, holds};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

pub use self::file_watcher::{FileWatcher, Watched};
use self::mapping::{Mapping, PrivateMemory};

/// Largest region, in bytes: one ring may not take more.
pub const REGION_BYTES_MAX: u64 = 4 << 30;
/// What every file has before its reader relies on it.
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// `len`, if a region may be so long.
fn checked(len: u64) -> io::Result<u64> {
    if (1..=REGION_BYTES_MAX).contains(&len) {
        return Ok(len);
    }
    let why = format!(
        "a ring of {len} B: at most {REGION_BYTES_MAX} B are possible; lower the message size or burst"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// A new memory file of `len` bytes, all allocated, that can be neither cut nor grown.
fn new_file(len: u64) -> io::Result<OwnedFd> {
    let len = checked(len)?;
    let file = rustix::fs::memfd_create("punctual", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// Whether a file that came from elsewhere has `seals` and `len` bytes.
fn check(file: impl AsFd, len: u64, seals: SealFlags) -> io::Result<()> {
    let found = rustix::fs::fcntl_get_seals(&file)?;
    let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
    if !found.contains(seals) || size < len || len == 0 || len > REGION_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the ring's memory file is not sealed or has not the promised size",
        ));
    }
    Ok(())
}

/// What this side writes. Unmapped when dropped.
#[derive(Debug)]
pub struct Region(Mapping);

impl Region {
    /// Makes a memory file of `len` bytes, allocated and zeroed, that can be written only through this
    /// mapping.
    ///
    /// # Errors
    /// If the size is out of range, memory is short or a limit (descriptors, locked memory) is reached.
    pub fn create(len: u64) -> io::Result<(OwnedFd, Self)> {
        let file = new_file(len)?;
        let mut mapping = Mapping::new(&file, len, true)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        mapping.hold()?;
        Ok((file, Self(mapping)))
    }

    /// Maps the file of an [`Offer`] and seals it: the application's part.
    ///
    /// # Errors
    /// If it is shorter than `len`, could still be cut, or cannot be mapped or sealed.
    pub fn take(file: impl AsFd, len: u64) -> io::Result<Self> {
        let region = Self::map(&file, len)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok(region)
    }

    /// Maps the file of an [`Offer`] and leaves it as it is.
    ///
    /// # Errors
    /// If it is shorter than `len`, could still be cut, or is sealed already.
    pub fn map(file: impl AsFd, len: u64) -> io::Result<Self> {
        check(&file, len, SealFlags::SHRINK)?;
        Ok(Self(Mapping::new(file, len, true)?))
    }

    /// Zeroed memory of this process, and a view of the same: for two ends of a ring that are both in this process. It takes
    /// no system call but what the allocator needs, and all of it is present.
    ///
    /// # Errors
    /// If the size is out of range.
    pub fn private(len: u64) -> io::Result<(Self, View)> {
        let len = checked(len)? as usize;
        let memory = PrivateMemory::new(len);
        Ok((Self(Mapping::of(&memory, len)), View(Mapping::of(&memory, len))))
    }

    /// Length of the region in bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Never: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The 64-bit word at `offset` (a multiple of 8 inside the region).
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        self.0.word(offset)
    }

    /// `count` 64-bit words from `offset` (a multiple of 8 inside the region) on.
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        self.0.words(offset, count)
    }

    /// The 32-bit word at `offset` (a multiple of 4 inside the region).
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        self.0.half(offset)
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: in bounds; `bytes` is ours and does not overlap a mapping that only raw copies touch.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.at(offset, bytes.len()), bytes.len()) }
    }

    /// The bytes at `offset`, in place.
    ///
    /// # Safety
    /// The bytes must not be written while the slice exists.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: in bounds; the caller promises that there is no write.
        unsafe { std::slice::from_raw_parts(self.0.at(offset, len), len) }
    }

    /// The bytes at `offset`, in place and writable.
    ///
    /// # Safety
    /// The bytes must not be accessed in any other way, by any process, while the slice exists.
    #[expect(clippy::mut_from_ref, reason = "the ring protocol, not the borrow, makes the range exclusive")]
    pub unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        // SAFETY: in bounds; the caller promises exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.0.at(offset, len), len) }
    }
}

/// The other side's file, for reading only. Unmapped when dropped.
#[derive(Debug)]
pub struct View(Mapping);

impl View {
    /// Maps a memory file that the daemon made with [`Region::create`].
    ///
    /// # Errors
    /// If it is not sealed, is shorter than `len`, or cannot be mapped.
    pub fn open(file: impl AsFd, len: u64) -> io::Result<Self> {
        check(&file, len, SEALS)?;
        Ok(Self(Mapping::new(file, len, false)?))
    }

    /// Loads the 64-bit word at `offset` (a multiple of 8 inside the view).
    pub fn word(&self, offset: usize, order: Ordering) -> u64 {
        self.0.word(offset).load(order)
    }

    /// Loads 64-bit words from `offset` (a multiple of 8) on, each one separately and in no order.
    pub fn words(&self, offset: usize, out: &mut [u64]) {
        let shared = self.0.words(offset, out.len());
        for (word, shared) in out.iter_mut().zip(shared) {
            *word = shared.load(Ordering::Relaxed);
        }
    }

    /// Loads the 32-bit word at `offset` (a multiple of 4 inside the view).
    pub fn half(&self, offset: usize, order: Ordering) -> u32 {
        self.0.half(offset).load(order)
    }

    /// Copies from `offset` into `out`.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        // SAFETY: in bounds; the copied data are plain bytes and never trusted. A misbehaving process may
        // race with this: then it corrupts only its own bytes.
        unsafe { ptr::copy_nonoverlapping(self.0.at(offset, out.len()), out.as_mut_ptr(), out.len()) }
    }

    /// The bytes at `offset`, in place.
    ///
    /// # Safety
    /// No process may write the bytes while the slice exists.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: in bounds; the caller promises that there is no write.
        unsafe { std::slice::from_raw_parts(self.0.at(offset, len), len) }
    }
}

/// The daemon's end of a file that the application is to write.
#[derive(Debug)]
pub struct Offer {
    file: OwnedFd,
    len: u64,
}

impl Offer {
    /// Makes a file of `len` bytes, allocated and zeroed: a descriptor for the application, and the daemon's
    /// part.
    ///
    /// # Errors
    /// If the size is out of range, or memory or descriptors are short.
    pub fn create(len: u64) -> io::Result<(OwnedFd, Self)> {
        let file = new_file(len)?;
        Ok((file.try_clone()?, Self { file, len }))
    }

    /// Checks the seals of the file, which the application reports as sealed, and maps all of it. Not for a
    /// real-time thread.
    ///
    /// # Errors
    /// If the file is not sealed, or memory is short.
    pub fn accept(&self) -> io::Result<View> {
        let seals = if holds(Defence::SealedRings) { SEALS } else { SealFlags::SHRINK };
        check(&self.file, self.len, seals)?;
        let mut mapping = Mapping::new(&self.file, self.len, false)?;
        mapping.hold()?;
        Ok(View(mapping))
    }
}
