//! The thread that requests memory from the kernel and gives it back, and its queue to and from the thread of
//! the heap.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::thread::futex::{self, Timespec};

use super::pool::Owned;
use super::pools::Kind;
use super::stack::Stack;
use crate::calls::{self, Forbidden, ThreadKind};
use crate::realtime::{self, SchedulingClass};

/// The processor does not wait for a pool of more bytes than this: it is filled at ordinary priority, before
/// channels are opened. Filling this much takes some 2 ms.
const URGENT_BYTES_MAX: usize = 8 << 20;
/// Bytes of the keeper's stack: it has no tables and no deep calls.
const STACK_BYTES: usize = 64 << 10;

/// Requests for memory, memory that was brought, and memory that is given back. It blocks only in the
/// functions whose comments state it.
pub(super) struct KeeperQueue {
    /// For each kind of pool: wanted bytes, and in `block` the length of a block that must fit. 0: no
    /// request.
    wanted: [AtomicUsize; 2],
    block: [AtomicUsize; 2],
    failed: [AtomicBool; 2],
    brought: [Stack; 2],
    retired: Stack,
    /// What all pools have that were brought and not given back, in use or not.
    there: [AtomicUsize; 2],
    /// Counted on for each thing that the keeper is to do, and for each that it has done.
    work: AtomicU32,
    done: AtomicU32,
    closes: AtomicBool,
}

impl KeeperQueue {
    pub const fn new() -> Self {
        Self {
            wanted: [const { AtomicUsize::new(0) }; 2],
            block: [const { AtomicUsize::new(0) }; 2],
            failed: [const { AtomicBool::new(false) }; 2],
            brought: [const { Stack::new() }; 2],
            retired: Stack::new(),
            there: [const { AtomicUsize::new(0) }; 2],
            work: AtomicU32::new(0),
            done: AtomicU32::new(0),
            closes: AtomicBool::new(false),
        }
    }

    /// Starts the thread. If the processor has a real-time class, it goes right behind that, but for what takes long.
    pub fn open(&'static self, class: SchedulingClass, forbidden: Forbidden) -> io::Result<()> {
        self.closes.store(false, Ordering::Release);
        let (started, starting) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new().name("punctual-heap".into()).stack_size(STACK_BYTES).spawn(
            move || {
                let prepared = realtime::go_behind_the_processor(class)
                    .and_then(|()| calls::confine(ThreadKind::Heap, forbidden));
                let is_ready = prepared.is_ok();
                // The other side waits for it.
                let _ = started.send(prepared);
                if is_ready {
                    self.keep(class);
                }
            },
        )?;
        starting.recv().map_err(io::Error::other)?
    }

    /// The thread ends.
    pub fn close(&self) {
        self.closes.store(true, Ordering::Release);
        self.wake();
    }

    /// For a pool of `bytes`, in which a block of `block_bytes` has room.
    pub fn ask(&self, kind: Kind, bytes: usize, block_bytes: usize) {
        self.failed[kind as usize].store(false, Ordering::Relaxed);
        self.block[kind as usize].fetch_max(block_bytes, Ordering::Relaxed);
        self.wanted[kind as usize].fetch_max(bytes, Ordering::Release);
        self.wake();
    }

    /// Bytes of all pools of a kind.
    pub fn there(&self, kind: Kind) -> usize {
        self.there[kind as usize].load(Ordering::Acquire)
    }

    /// The pool goes back to the kernel.
    pub fn retire(&self, pool: Owned, kind: Kind) {
        self.there[kind as usize].fetch_sub(pool.bytes(), Ordering::AcqRel);
        // SAFETY: a pool is long enough, and this was its only value.
        unsafe { self.retired.push(pool.into_raw()) };
        self.wake();
    }

    /// There is no place for a pool of this kind.
    pub fn fail(&self, kind: Kind) {
        self.failed[kind as usize].store(true, Ordering::Release);
    }

    /// Whether the kernel has refused the last request.
    pub fn has_failed(&self, kind: Kind) -> bool {
        self.failed[kind as usize].load(Ordering::Acquire)
    }

    /// How often the keeper has done something; for [`KeeperQueue::wait`].
    pub fn brought(&self) -> u32 {
        self.done.load(Ordering::Acquire)
    }

    /// Waits until the keeper has done something since `seen`.
    pub fn wait(&self, seen: u32) {
        let _ = futex::wait(&self.done, futex::Flags::PRIVATE, seen, None);
    }

    /// Waits as [`KeeperQueue::wait`] does, for `span` at most.
    pub fn wait_for(&self, seen: u32, span: Duration) {
        let span = Timespec { tv_sec: 0, tv_nsec: span.subsec_nanos().into() };
        let _ = futex::wait(&self.done, futex::Flags::PRIVATE, seen, Some(&span));
    }

    /// The pools that were brought.
    pub fn take_delivered(&self) -> impl Iterator<Item = (Owned, Kind)> + use<> {
        Kind::ALL.into_iter().zip(self.brought.each_ref().map(Stack::take)).flat_map(|(kind, pools)| {
            // SAFETY: put there by the keeper, once each.
            pools.map(move |pool| (unsafe { Owned::from_raw(pool) }, kind))
        })
    }

    fn wake(&self) {
        self.work.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.work, futex::Flags::PRIVATE, 1);
    }

    /// The work of the thread.
    fn keep(&self, class: SchedulingClass) {
        loop {
            let seen = self.work.load(Ordering::Acquire);
            Kind::ALL.into_iter().for_each(|kind| self.bring(kind, class));
            let mut retired = self.retired.take().peekable();
            if retired.peek().is_some() {
                at_leisure(class, || {
                    // SAFETY: empty, and out of the table: no block of it is in use.
                    retired.for_each(|pool| unsafe { Owned::from_raw(pool).unmap() });
                });
            }
            if self.closes.load(Ordering::Acquire) {
                return;
            }
            let _ = futex::wait(&self.work, futex::Flags::PRIVATE, seen, None);
        }
    }

    fn bring(&self, kind: Kind, class: SchedulingClass) {
        let bytes = self.wanted[kind as usize].swap(0, Ordering::Acquire);
        if bytes == 0 {
            return;
        }
        let block_bytes = self.block[kind as usize].swap(0, Ordering::Relaxed);
        let map = || Owned::map(bytes, block_bytes);
        let mapped = if bytes.max(block_bytes) > URGENT_BYTES_MAX { at_leisure(class, map) } else { map() };
        match mapped {
            Ok(pool) => {
                self.there[kind as usize].fetch_add(pool.bytes(), Ordering::AcqRel);
                // SAFETY: a pool is long enough, and this was its only value.
                unsafe { self.brought[kind as usize].push(pool.into_raw()) }
            }
            Err(_) => self.failed[kind as usize].store(true, Ordering::Release),
        }
        self.done.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.done, futex::Flags::PRIVATE, 1);
    }
}

/// Does `work` as an ordinary thread that goes before others.
fn at_leisure<T>(class: SchedulingClass, work: impl FnOnce() -> T) -> T {
    // Lowering the priority needs no right; a thread without the right to raise it was lowered at its start.
    let _ = realtime::go_before_ordinary_threads(class);
    let done = work();
    let _ = realtime::go_behind_the_processor(class);
    done
}
