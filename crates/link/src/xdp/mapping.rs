//! Mapped memory, unmapped on drop: the region that links share, and the rings of their sockets.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A mapping of memory that is readable and writable, and that only its owner uses.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory that is valid on every thread; its users decide which thread may access
// which part.
unsafe impl Send for Mapping {}
// SAFETY: as above; it gives out only a raw pointer.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory, present from the start; on huge pages if `huge_pages` is set.
    pub(super) fn anonymous(bytes: usize, huge_pages: bool) -> io::Result<Self> {
        let huge = if huge_pages { MapFlags::HUGETLB } else { MapFlags::empty() };
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE | huge;
        // SAFETY: no address is requested, so the kernel chooses an unused one.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        Self::new(base, bytes)
    }

    /// `bytes` of `file` from `offset` on, shared with the kernel.
    pub(super) fn shared(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: as above.
        let base =
            unsafe { mmap(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset)? };
        Self::new(base, bytes)
    }

    fn new(base: *mut c_void, bytes: usize) -> io::Result<Self> {
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave no memory"))?;
        Ok(Self { base, bytes })
    }

    /// First byte of the mapping; valid as long as the mapping is.
    pub(super) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length of the mapping in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are what mmap returned; every user of the memory held this value or a share
        // of it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
