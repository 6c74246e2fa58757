//! A mapped file, or memory of this process in its place. While the kernel populates or frees a mapping it
//! holds the lock of the address space, and all other threads of the process that allocate memory wait for
//! that lock. Therefore this is done in slices.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::{fmt, io};

use punctual_trial::{Defence, holds};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};

/// Ranges that the kernel may put into one huge page, by their place in the file.
pub(super) const HUGE_BYTES: usize = 2 << 20;
pub(super) const PAGE_BYTES: usize = 4_096;
const LINE_BYTES: usize = 64;
/// Bytes that are mapped, filled or unmapped at once: whole pages.
const SLICE_BYTES: usize = 256 << 10;

/// Begins and lengths of the slices of `len` bytes.
fn slices(len: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> {
    (0..len.div_ceil(SLICE_BYTES)).map(move |slice| {
        let offset = slice * SLICE_BYTES;
        (offset, SLICE_BYTES.min(len - offset))
    })
}

/// Alignment of memory that is no file.
#[derive(Clone)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "accessed by address")] [u8; LINE_BYTES]);

/// Memory of this process, for two ends of a ring that are both in it.
pub(super) struct PrivateMemory(NonNull<[Line]>);

// SAFETY: it owns its memory, which is accessed as a mapped file is, see [`Mapping`].
unsafe impl Send for PrivateMemory {}
// SAFETY: as above.
unsafe impl Sync for PrivateMemory {}

impl PrivateMemory {
    /// At least `len` zeroed bytes. They are written here, so that no page is missing later.
    pub fn new(len: usize) -> Arc<Self> {
        let mut lines = Vec::with_capacity(len.div_ceil(LINE_BYTES));
        lines.resize(len.div_ceil(LINE_BYTES), Line([0; LINE_BYTES]));
        Arc::new(Self(NonNull::from(Box::leak(lines.into_boxed_slice()))))
    }
}

impl Drop for PrivateMemory {
    fn drop(&mut self) {
        // SAFETY: from a box that was leaked; no mapping of it is left.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// What a mapping keeps, besides its addresses.
enum Backing {
    /// Pipes with one page of each huge page's range of the file.
    File {
        held: Vec<OwnedFd>,
    },
    Private(#[allow(dead_code, reason = "it is only held")] Arc<PrivateMemory>),
}

/// A mapped file, or memory of this process. Unmapped when dropped.
pub(super) struct Mapping {
    pub base: NonNull<u8>,
    pub len: usize,
    backing: Backing,
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} B)", self.len)
    }
}

// SAFETY: a Mapping is only an address range; all access goes through atomics or raw copies, whose callers
// keep the ring protocol. The mapping is owned and stays until drop.
unsafe impl Send for Mapping {}
// SAFETY: as above; it is made for shared access.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub fn new(file: impl AsFd, len: u64, writable: bool) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let mapping = Self::reserve(len)?;
        for (offset, len) in slices(len) {
            // SAFETY: in place of a part of the reservation, which is this mapping's; the file is at least `len` long and
            // cannot shrink (checked by all callers).
            unsafe {
                let at = mapping.base.as_ptr().add(offset).cast();
                let flags = MapFlags::SHARED | MapFlags::POPULATE | MapFlags::FIXED;
                rustix::mm::mmap(at, len, protection, flags, &file, offset as u64)?;
            }
        }
        Ok(mapping)
    }

    /// Reserves addresses without memory. Even if memory is locked, the kernel fills no pages that may not be
    /// accessed.
    fn reserve(len: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let base = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            rustix::mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, backing: Backing::File { held: Vec::new() } })
    }

    /// The first `len` bytes of memory of this process, which is at least so long.
    pub fn of(memory: &Arc<PrivateMemory>, len: usize) -> Self {
        let lines = memory.0;
        assert!(len <= lines.len() * LINE_BYTES, "{len} B of {} lines", lines.len());
        Self { base: lines.cast(), len, backing: Backing::Private(Arc::clone(memory)) }
    }

    /// Makes all pages present and keeps them in place, whatever a reader of the file requests from the
    /// kernel.
    pub fn hold(&mut self) -> io::Result<()> {
        let mut offset = if holds(Defence::HeldPages) { 0 } else { self.len };
        while offset < self.len {
            let (pipe, count) = self.hold_some(offset)?;
            if let Backing::File { held } = &mut self.backing {
                held.push(pipe);
            }
            offset += count * HUGE_BYTES;
        }
        // Populating at the time of the mapping reports no error, and a collapse that had begun may have run
        // in between.
        for (offset, len) in slices(self.len) {
            let at = self.at(offset, len).cast();
            // SAFETY: it changes no byte, and the range is this mapping's.
            match unsafe { rustix::mm::madvise(at, len, Advice::LinuxPopulateRead) } {
                Ok(()) => {}
                // The kernel is older than Linux 5.14, and so does not implement collapse either.
                Err(Errno::INVAL) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Holds as many pages, one of each range from `offset` on, as one pipe takes: at least one. Returns the
    /// pipe and the number of pages.
    fn hold_some(&self, offset: usize) -> io::Result<(OwnedFd, usize)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let wanted = (self.len - offset).div_ceil(HUGE_BYTES);
        // A refusal costs memory, or another pipe.
        let _ = rustix::pipe::fcntl_setpipe_size(&write, wanted.min(256) * PAGE_BYTES);
        let mut held = 0;
        while held < wanted {
            let byte = self.at(offset + held * HUGE_BYTES, 1);
            // SAFETY: the byte is in the mapping; the pipe is never read.
            let done = unsafe {
                let byte = std::slice::from_raw_parts(byte, 1);
                rustix::pipe::vmsplice(&write, &[IoSliceRaw::from_slice(byte)], SpliceFlags::NONBLOCK)
            };
            match done {
                Ok(_) => held += 1,
                Err(Errno::AGAIN) if held > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok((read, held))
    }

    /// The address of `offset`, with `bytes` bytes behind it inside the mapping.
    ///
    /// # Panics
    /// If the range leaves the mapping: offsets are computed from our own geometry, never read from it.
    pub fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset <= self.len && bytes <= self.len - offset, "{offset} + {bytes} leaves the region");
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The 64-bit word at `offset`. If the mapping is for reading only, it may only be loaded.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: in bounds and aligned; every access by both processes to this word is atomic.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// 64-bit words from `offset` on. If the mapping is for reading only, they may only be loaded.
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8));
        // SAFETY: in bounds and aligned; every access by both processes to these words is atomic.
        unsafe { std::slice::from_raw_parts(self.at(offset, count * 8).cast(), count) }
    }

    pub fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: in bounds and aligned; every access by both processes to this word is atomic.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if matches!(self.backing, Backing::Private(_)) {
            return;
        }
        for (offset, len) in slices(self.len).rev() {
            let at = self.at(offset, len).cast();
            // SAFETY: this mapping is ours and is not borrowed any more. A failure would mean a corrupt
            // address space, which cannot be handled here.
            let _ = unsafe { rustix::mm::munmap(at, len) };
        }
    }
}
