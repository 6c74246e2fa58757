//! A piece of memory that two processes share: a sealed memory file, mapped.
//!
//! Nobody ever gets a `&[u8]` over bytes that the other process may be writing: payload goes in and out by raw
//! copies, positions and lengths through atomics. The file is sealed against shrinking before it leaves this
//! process, so that no access can fault because the other side cut it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Largest region, in bytes: one ring may not take more.
pub const REGION_BYTES_MAX: u64 = 4 << 30;

/// A mapped region. Unmapped when dropped.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a Region is only an address range; all access goes through atomics or raw copies, whose callers
// keep the ring protocol. The mapping is owned and stays until drop.
unsafe impl Send for Region {}
// SAFETY: as above; shared access is what the region is for.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a memory file of `len` bytes, allocated, zeroed and sealed, and maps it.
    ///
    /// # Errors
    /// Where the size is out of range, memory is short or a limit (descriptors, locked memory) is reached.
    pub fn create(len: u64) -> io::Result<(OwnedFd, Self)> {
        if len == 0 || len > REGION_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a ring of {len} B: at most {REGION_BYTES_MAX} B are possible; lower the message size or burst"
                ),
            ));
        }
        let file = rustix::fs::memfd_create("punctual", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let region = Self::map_checked(&file, len)?;
        Ok((file, region))
    }

    /// Maps a memory file that came from elsewhere.
    ///
    /// # Errors
    /// Where it is shorter than `len`, could still be shrunk, or cannot be mapped.
    pub fn open(file: impl AsFd, len: u64) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        if !seals.contains(SealFlags::SHRINK) || size < len || len == 0 || len > REGION_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the ring's memory file has not the promised size",
            ));
        }
        Self::map_checked(file, len)
    }

    fn map_checked(file: impl AsFd, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: a fresh mapping at an address that the kernel chooses; the file is at least `len` long and
        // cannot shrink (checked by both callers).
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The address of `offset`, with `bytes` bytes behind it inside the region.
    ///
    /// # Panics
    /// Where the range leaves the region: offsets are computed from our own geometry, never read from it.
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset <= self.len && bytes <= self.len - offset, "{offset} + {bytes} leaves the region");
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The 64-bit word at `offset` (a multiple of 8 inside the region).
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: in bounds and aligned; every access by both processes to this word is atomic.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// The 32-bit word at `offset` (a multiple of 4 inside the region).
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: in bounds and aligned; every access by both processes to this word is atomic.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: in bounds; `bytes` is ours and does not overlap a mapping that only raw copies touch. A
        // misbehaving process may race with this: then the bytes are garbage, to it alone.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset, bytes.len()), bytes.len()) }
    }

    /// Copies from `offset` into `out`.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        // SAFETY: as for `write`; what is read is plain bytes and never trusted.
        unsafe { ptr::copy_nonoverlapping(self.at(offset, out.len()), out.as_mut_ptr(), out.len()) }
    }

    /// The bytes at `offset`, in place.
    ///
    /// # Safety
    /// Nobody, in any process, may write them while the slice lives.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: in bounds; the caller promises that nobody writes.
        unsafe { std::slice::from_raw_parts(self.at(offset, len), len) }
    }

    /// The bytes at `offset`, in place and writable.
    ///
    /// # Safety
    /// Nobody else, in any process, may access them while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the ring protocol, not the borrow, makes the range exclusive")]
    pub unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        // SAFETY: in bounds; the caller promises exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset, len), len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours and nothing borrows from it any more. Failing would mean a corrupt
        // address space; there is nothing to be done about it here.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
