//! The memory of a ring, its files and the daemon's own data for it, is at most what quotas count for it.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::AsFd;

use punctual_ipc::ring::{RingHandles, RingShape, inbox, outbox};
use punctual_ipc::wake::{Alarm, RingPath};

struct Counting;

thread_local! {
    /// Bytes in use by this thread only: the test harness allocates and frees on other threads at the same
    /// time.
    static IN_USE_BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    IN_USE_BYTES.with(|in_use| in_use.set(in_use.get() + bytes));
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PAGE_BYTES: u64 = 4_096;
/// Small messages, for which overhead is most of a ring; the largest; a size that exceeds full pages by one
/// byte.
const SHAPES: [(u32, u32); 5] = [(1, 1), (65_536, 8), (1_000, 64), (3, 1 << 20), (4_000, 1_400)];

/// The bytes that `make` has allocated, and its result.
fn allocated<R>(make: impl FnOnce() -> R) -> (u64, R) {
    let before = IN_USE_BYTES.get();
    let made = make();
    (u64::try_from(IN_USE_BYTES.get() - before).expect("nothing was freed"), made)
}

/// Pages of the two files.
fn shared_bytes(handles: &RingHandles) -> u64 {
    let size = |file: &dyn AsFd| rustix::fs::fstat(file.as_fd()).expect("a file").st_size as u64;
    handles.descriptors[..2].iter().map(|file| size(file).next_multiple_of(PAGE_BYTES)).sum()
}

/// Quotas count all of the memory, and not much more: counting too much would deny a user part of its quota.
fn counts(counted: u64, taken: u64, what: &str, shape: RingShape) {
    assert!(taken <= counted, "{what} {shape:?} takes {taken} B, of which {counted} count");
    assert!(counted <= taken + 2 * PAGE_BYTES, "{what} {shape:?} takes {taken} B, and {counted} count");
}

#[test]
fn all_that_a_ring_takes_counts() {
    let alarm = Alarm::new().expect("an eventfd");
    for (slots, bytes) in SHAPES {
        let shape = RingShape::new(slots, bytes).expect("a shape");
        let (own, made) = allocated(|| outbox(shape, &alarm, &RingPath::Direct).expect("a ring"));
        counts(shape.outbox_bytes(), own + shared_bytes(&made.1), "an outgoing ring", shape);
        let (own, made) = allocated(|| inbox(shape, &alarm, &RingPath::Direct).expect("a ring"));
        counts(shape.inbox_bytes(), own + shared_bytes(&made.1), "an incoming ring", shape);
        let (own, turns) = allocated(|| made.0.health().turns());
        counts(shape.turns_bytes(), own, "turns", shape);
        drop(turns);
    }
}

/// The processor calls this path, so it must not allocate.
#[test]
fn alternating_allocates_nothing() {
    let alarm = Alarm::new().expect("an eventfd");
    let shape = RingShape::new(1_000, 8).expect("a shape");
    let (mut writer, _handles) = inbox(shape, &alarm, &RingPath::Direct).expect("a ring");
    let turns = writer.health().turns();
    let (taken, ()) = allocated(|| writer.alternate(turns));
    assert_eq!(taken, 0);
}
