//! A heap of the processor's own, prepared before its loop begins. Its thread requests no memory from the
//! kernel and gives none back, so it never waits for a thread that changes the address space, nor for a lock
//! of the C library's heap that such a thread may hold (docs/adr/0037).
//!
//! A program that uses it names [`Allocator`] as its global allocator; one thread of it may then have the
//! heap, by a [`Lease`]. All memory that this thread allocates comes from [`pool`]s, all other memory from
//! the C library. A block may be freed on another thread than the one that allocated it:
//! - a pool's block that another thread frees waits in a list until the thread of the heap allocates or frees
//!   again;
//! - a block of the C library that the thread of the heap frees waits in another list, until any other thread
//!   allocates.
//!
//! A second thread, the keeper, adds a pool when less than a reserve is left, and gives empty pools back to
//! the kernel. The thread of the heap waits for the keeper only if one piece of work needs more than the
//! reserve; these waits are counted ([`waits`]).

mod keeper;
mod pool;
mod pools;
mod stack;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use self::keeper::KeeperQueue;
use self::pool::Range;
use self::pools::{Kind, Pools};
use self::stack::{Link, Stack};
use super::calls::Forbidden;
use super::realtime::SchedulingClass;

/// Most pools at once. Each is at least as large as an eighth of all before it, so they are enough for any memory.
const POOLS_MAX: usize = 64;

/// Longest time that [`expect`] waits. Real-time threads ordinarily keep a keeper from its CPU for no longer
/// than this.
const EXPECTED_WAIT_MAX: Duration = Duration::from_millis(100);

/// Memory that is kept ready, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// For blocks of less than [`LARGE_BYTES`].
    pub small: usize,
    /// For large blocks, whose pools the keeper gives back to the kernel.
    pub large: usize,
}

/// Minimum length of a large block, in bytes. Large blocks have pools of their own: they belong to large
/// channels, which are opened and closed.
pub const LARGE_BYTES: usize = 32 << 10;

/// The global allocator of a program whose processor has a heap of its own.
#[derive(Debug)]
pub struct Allocator;

static HEAP: Heap = Heap {
    ranges: [const { AtomicUsize::new(0) }; POOLS_MAX],
    used: AtomicUsize::new(0),
    returned: Stack::new(),
    foreign: Stack::new(),
    queue: KeeperQueue::new(),
    is_leased: AtomicBool::new(false),
    is_installed: AtomicBool::new(false),
    waits: AtomicU64::new(0),
    large_reserve: AtomicUsize::new(0),
    expected: AtomicUsize::new(0),
    is_to_sweep: AtomicBool::new(false),
    pools: UnsafeCell::new(Pools::new()),
};

thread_local! {
    /// Whether the calling thread has the lease.
    static HAS_LEASE: Cell<bool> = const { Cell::new(false) };
}

struct Heap {
    /// The address ranges of the pools, for every thread that frees a block: a [`Range`] each. Only the
    /// thread of the heap writes them.
    ranges: [AtomicUsize; POOLS_MAX],
    /// How many of them may be in use, from the first on.
    used: AtomicUsize,
    /// Blocks of pools that other threads have freed.
    returned: Stack,
    /// Blocks of the C library's that the thread of the heap has freed.
    foreign: Stack,
    queue: KeeperQueue,
    is_leased: AtomicBool,
    /// The program's allocator is this one.
    is_installed: AtomicBool,
    waits: AtomicU64,
    large_reserve: AtomicUsize,
    /// Bytes that large blocks will take together in addition to the reserve, as [`expect`] set them.
    expected: AtomicUsize,
    /// Less is expected than before: pools may have to go.
    is_to_sweep: AtomicBool,
    /// Pools of the heap. Only the thread with the lease touches them.
    pools: UnsafeCell<Pools>,
}

// SAFETY: `pools` is touched by the thread with the lease alone, of which there is one at a time; everything else is made for
// several threads.
unsafe impl Sync for Heap {}

impl Heap {
    /// What all pools of a kind are to have, used or not.
    fn needed(&self, kind: Kind) -> usize {
        match kind {
            Kind::Small => 0,
            Kind::Large => {
                let expected = self.expected.load(Ordering::Relaxed);
                // The gaps between and before blocks.
                self.large_reserve.load(Ordering::Relaxed) + expected + expected / 16
            }
        }
    }

    fn owns(&self, block: *mut u8) -> bool {
        let used = self.used.load(Ordering::Acquire);
        let ranges = self.ranges.iter().take(used);
        ranges.into_iter().any(|range| Range(range.load(Ordering::Relaxed)).contains(block.addr()))
    }

    /// # Safety
    /// The calling thread has the lease, and is not within another such call.
    #[expect(clippy::mut_from_ref, reason = "one thread has the lease")]
    const unsafe fn pools(&self) -> &mut Pools {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.pools.get() }
    }
}

/// The error of a heap that cannot be had.
fn refused(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

/// The right of one thread to the heap. Drop it after everything else of the thread, on the thread itself or
/// when it has ended.
#[derive(Debug)]
pub struct Lease {
    has_begun: bool,
}

impl Lease {
    /// Claims the heap for a thread of `class`, and starts the keeper from the calling thread: on its CPUs,
    /// confined to the keeper's list of system calls.
    ///
    /// # Errors
    /// If the program's allocator is another, another thread has the heap, or threads run out.
    pub fn claim(class: SchedulingClass, forbidden: Forbidden) -> io::Result<Self> {
        // The allocator marks itself as installed when it is used.
        drop(Box::new(0_u64));
        if !HEAP.is_installed.load(Ordering::Relaxed) {
            return Err(refused("the program's allocator is not punctual_os::heap::Allocator"));
        }
        if HEAP.is_leased.swap(true, Ordering::Acquire) {
            return Err(refused("another processor of this process has the heap"));
        }
        let lease = Self { has_begun: false };
        HEAP.queue.open(class, forbidden)?;
        Ok(lease)
    }

    /// Has the calling thread, and no other thread with this lease, allocate from the heap from now on, with
    /// `sizes` ready. If memory is to be locked, call this after that.
    ///
    /// # Errors
    /// If memory runs out, or it was called before.
    pub fn begin(&mut self, sizes: Sizes) -> io::Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Err(refused("a thread has this heap already"));
        }
        // SAFETY: there is one lease, and no thread has it yet; the callee does not allocate.
        unsafe { HEAP.pools().begin(&HEAP, sizes)? };
        HEAP.large_reserve.store(sizes.large, Ordering::Relaxed);
        HAS_LEASE.set(true);
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Clear the flag of the thread that had the lease, which may have ended.
        HAS_LEASE.set(false);
        HEAP.queue.close();
        HEAP.is_leased.store(false, Ordering::Release);
    }
}

/// Expects the thread of the heap to use `bytes` of large blocks together from now on: has them ready beside
/// the reserve, and waits for that, [`EXPECTED_WAIT_MAX`] at most. If they are not ready, the thread of the
/// heap waits. Do not call it on that thread.
pub fn expect(bytes: usize) {
    let before = HEAP.expected.swap(bytes, Ordering::AcqRel);
    if bytes <= before {
        return HEAP.is_to_sweep.store(true, Ordering::Release);
    }
    let end = Instant::now() + EXPECTED_WAIT_MAX;
    while HEAP.is_leased.load(Ordering::Acquire) {
        let (seen, there, needed) =
            (HEAP.queue.brought(), HEAP.queue.there(Kind::Large), HEAP.needed(Kind::Large));
        let left = end.saturating_duration_since(Instant::now());
        if there >= needed || left.is_zero() {
            return;
        }
        HEAP.queue.ask(Kind::Large, (needed - there).max(there / 8), 0);
        HEAP.queue.wait_for(seen, left);
    }
}

/// How often the thread of the heap has waited for memory.
pub fn waits() -> u64 {
    HEAP.waits.load(Ordering::Relaxed)
}

/// Gives blocks that the thread of the heap has freed back to the C library.
fn free_foreign() {
    for block in HEAP.foreign.take() {
        // SAFETY: it came from `System`, which takes it from `malloc` or `posix_memalign`, and was freed once.
        unsafe { libc::free(block.as_ptr().cast()) };
    }
}

/// The content of a pool's block while it waits to be freed: the link to the next one, and its layout in one
/// number.
#[repr(C)]
struct PendingFree {
    link: Link,
    layout: usize,
}

impl PendingFree {
    /// # Safety
    /// `block` has this layout, is in a pool, and is the caller's.
    unsafe fn write(block: NonNull<u8>, layout: Layout) -> NonNull<u8> {
        let note = layout.size() << 6 | layout.align().trailing_zeros() as usize;
        // SAFETY: as the caller promises; blocks of pools are long enough.
        unsafe { (&raw mut (*block.cast::<Self>().as_ptr()).layout).write(note) };
        block
    }

    /// # Safety
    /// The requirements of [`PendingFree::write`], which was called before.
    unsafe fn read(block: NonNull<u8>) -> Layout {
        // SAFETY: as the caller promises; sizes are less than half of the address space, so the upper bits
        // are unused.
        unsafe {
            let note = (&raw const (*block.cast::<Self>().as_ptr()).layout).read();
            Layout::from_size_align_unchecked(note >> 6, 1 << (note & 63))
        }
    }
}

fn has_lease() -> bool {
    HAS_LEASE.try_with(Cell::get).unwrap_or(false)
}

// SAFETY: every block belongs to the caller alone until it is freed, and goes back to its origin, which its
// address range determines.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if has_lease() {
            // SAFETY: this thread has the lease, and the callee does not use this allocator.
            let block = unsafe { HEAP.pools().allocate(&HEAP, layout) };
            return block.map_or(ptr::null_mut(), NonNull::as_ptr);
        }
        if !HEAP.is_installed.load(Ordering::Relaxed) {
            HEAP.is_installed.store(true, Ordering::Relaxed);
        }
        free_foreign();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !has_lease() {
            free_foreign();
            // SAFETY: as the caller promises.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as the caller promises; the block is as long as the layout.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(piece) = NonNull::new(block) else { return };
        // SAFETY: a block of this allocator's that is freed once, as the caller promises. One of a pool is long enough for a link,
        // and so is the shortest of the C library's.
        unsafe {
            match (HEAP.owns(block), has_lease()) {
                (true, true) => HEAP.pools().deallocate(&HEAP, piece, layout),
                (true, false) => HEAP.returned.push(PendingFree::write(piece, layout)),
                (false, true) => HEAP.foreign.push(piece),
                (false, false) => System.dealloc(block, layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller promises: a block of this layout, and a length that makes one with its alignment.
        unsafe {
            if !has_lease() && !HEAP.owns(block) {
                return System.realloc(block, layout, bytes);
            }
            let moved = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, bytes.min(layout.size()));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}
