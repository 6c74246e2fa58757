//! A piece of memory from the kernel, divided by an allocator of its own (two-level segregated fit: every
//! call takes a bounded time). It is mapped in slices, so that another thread that changes the address space
//! waits for at most one of them.

use std::alloc::Layout;
use std::io;
use std::ptr::{self, NonNull};

use rlsf::Tlsf;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::PendingFree;

/// Lengths of pools, in bytes, are multiples of this.
pub(super) const UNIT_BYTES: usize = 1 << 20;
/// The longest: a pool is one number in the table, see [`Range`].
pub(super) const BYTES_MAX: usize = (PAGE_BYTES - 1) * UNIT_BYTES;
const PAGE_BYTES: usize = 4_096;
/// How much becomes usable at once: the kernel fills locked memory with the address space's lock held.
const SLICE_BYTES: usize = 256 << 10;
/// Bytes that are before each block.
const BLOCK_HEADER_BYTES: usize = rlsf::GRANULARITY / 2;
/// Shortest block: it must take a [`PendingFree`] when it is given back.
const BLOCK_BYTES_MIN: usize = size_of::<PendingFree>();

/// Blocks of up to 4 GiB.
type Blocks = Tlsf<'static, u32, u16, 27, 16>;

/// A pool of memory. It is at the beginning of its own memory.
pub(super) struct Pool {
    blocks: Blocks,
    /// Bytes of the whole pool.
    bytes: usize,
    /// Bytes that blocks take, counted as [`taken`] counts.
    used_bytes: usize,
    used_blocks: usize,
}

/// The number of bytes for which a block of this layout is counted.
const fn taken(layout: Layout) -> usize {
    let bytes = if layout.size() < BLOCK_BYTES_MIN { BLOCK_BYTES_MIN } else { layout.size() };
    let padding = layout.align().saturating_sub(BLOCK_HEADER_BYTES);
    (bytes + padding + BLOCK_HEADER_BYTES).next_multiple_of(rlsf::GRANULARITY)
}

/// A layout that leaves room for what links it when it is given back.
const fn linked(layout: Layout) -> Option<Layout> {
    let bytes = if layout.size() < BLOCK_BYTES_MIN { BLOCK_BYTES_MIN } else { layout.size() };
    let align = if layout.align() < BLOCK_BYTES_MIN { BLOCK_BYTES_MIN } else { layout.align() };
    match Layout::from_size_align(bytes, align) {
        Ok(layout) => Some(layout),
        Err(_) => None,
    }
}

/// A pool. The value owns the pool, and its memory is mapped until [`Owned::unmap`].
#[derive(Debug)]
pub(super) struct Owned(NonNull<Pool>);

impl Owned {
    /// Requests from the kernel a pool in which a block of `block_bytes` has room, of `bytes` at least.
    pub fn map(bytes: usize, block_bytes: usize) -> io::Result<Self> {
        // The allocator searches among blocks a sixteenth longer.
        let needed = block_bytes.saturating_add(block_bytes / 8).saturating_add(2 * PAGE_BYTES);
        let bytes = bytes.max(needed).checked_next_multiple_of(UNIT_BYTES);
        let bytes = bytes.filter(|bytes| *bytes <= BYTES_MAX).ok_or(io::ErrorKind::OutOfMemory)?;
        let base = map_in_slices(bytes)?;
        let header = size_of::<Pool>().next_multiple_of(rlsf::GRANULARITY);
        let pool: NonNull<Pool> = base.cast();
        // SAFETY: fresh memory of `bytes`, page-aligned and unused; the rest of it belongs to the allocator
        // as long as the pool exists.
        unsafe {
            pool.write(Pool { blocks: Tlsf::new(), bytes, used_bytes: 0, used_blocks: 0 });
            let rest = NonNull::slice_from_raw_parts(base.add(header), bytes - header);
            (*pool.as_ptr()).blocks.insert_free_block_ptr(rest);
        }
        Ok(Self(pool))
    }

    /// Returns the pool as one pointer, for [`Owned::from_raw`].
    pub const fn into_raw(self) -> NonNull<u8> {
        self.0.cast()
    }

    /// # Safety
    /// `raw` came from [`Owned::into_raw`], and no other value is made of it.
    pub const unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw.cast())
    }

    fn pool(&self) -> &Pool {
        // SAFETY: the pool is there for as long as this value, which alone gives access to it.
        unsafe { self.0.as_ref() }
    }

    const fn pool_mut(&mut self) -> &mut Pool {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { self.0.as_mut() }
    }

    pub fn bytes(&self) -> usize {
        self.pool().bytes
    }

    /// Free bytes, contiguous or not.
    pub fn free_bytes(&self) -> usize {
        let pool = self.pool();
        pool.bytes.saturating_sub(size_of::<Pool>() + pool.used_bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.pool().used_blocks == 0
    }

    /// Range of addresses of the pool.
    pub fn range(&self) -> Range {
        Range(self.0.as_ptr().expose_provenance() | (self.bytes() / UNIT_BYTES))
    }

    pub fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let pool = self.pool_mut();
        let block = pool.blocks.allocate(linked(layout)?)?;
        pool.used_bytes += taken(layout);
        pool.used_blocks += 1;
        Some(block)
    }

    /// # Safety
    /// `block` was allocated here with this layout and is given back once.
    pub unsafe fn deallocate(&mut self, block: NonNull<u8>, layout: Layout) {
        let pool = self.pool_mut();
        // The layout was valid at the allocation, so it can be linked.
        let align = linked(layout).map_or(BLOCK_BYTES_MIN, |layout| layout.align());
        // SAFETY: as the caller promises.
        unsafe { pool.blocks.deallocate(block, align) };
        pool.used_bytes -= taken(layout);
        pool.used_blocks -= 1;
    }

    /// Gives the memory back to the kernel, in slices.
    ///
    /// # Safety
    /// None of its blocks is used any more.
    pub unsafe fn unmap(self) {
        let bytes = self.bytes();
        let base: *mut u8 = self.0.as_ptr().cast();
        for offset in (0..bytes).step_by(SLICE_BYTES).rev() {
            let len = SLICE_BYTES.min(bytes - offset);
            // SAFETY: only this pool uses it, as the caller promises. If it fails, the memory stays mapped,
            // which does no harm.
            let _ = unsafe { rustix::mm::munmap(base.add(offset).cast(), len) };
        }
    }
}

/// The address range of a pool: its address, and in the bits below a page its number of units. 0: no pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range(pub usize);

impl Range {
    pub const fn contains(self, address: usize) -> bool {
        let (start, units) = (self.0 & !(PAGE_BYTES - 1), self.0 & (PAGE_BYTES - 1));
        address.wrapping_sub(start) < units * UNIT_BYTES
    }
}

fn map_in_slices(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let base =
        unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE)? };
    let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
    for offset in (0..bytes).step_by(SLICE_BYTES) {
        let len = SLICE_BYTES.min(bytes - offset);
        // If memory is locked, this fills it.
        // SAFETY: within the fresh mapping, which is not used yet.
        let done = unsafe {
            let slice = base.add(offset).as_ptr().cast();
            rustix::mm::mprotect(slice, len, MprotectFlags::READ | MprotectFlags::WRITE)
        };
        if let Err(error) = done {
            // SAFETY: the fresh mapping, which no other code uses.
            let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
            return Err(error.into());
        }
    }
    Ok(base)
}
