//! The pools, owned by the thread of the heap. No function here allocates with the program's allocator, and
//! only [`Pools::wait`] waits.

use std::alloc::Layout;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::pool::{Owned, UNIT_BYTES};
use super::stack::Taken;
use super::{Heap, LARGE_BYTES, POOLS_MAX, PendingFree, Sizes};

/// Maximum number of returned blocks that one call frees.
const RETURNED_AT_ONCE: usize = 8;

/// Small and large blocks are in separate pools, so that pools of large ones become empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Kind {
    Small,
    Large,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Small, Self::Large];

    const fn of(layout: Layout) -> Self {
        if layout.size() < LARGE_BYTES { Self::Small } else { Self::Large }
    }
}

/// A pool with its place in the table.
type Slot = Option<(Owned, Kind)>;

/// See the module.
pub(super) struct Pools {
    slots: [Slot; POOLS_MAX],
    of: [Account; 2],
    /// Returned blocks that are still to be freed.
    returned: Taken,
}

/// Sums over all pools of a kind.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// Bytes that must be ready.
    reserve: usize,
    bytes: usize,
    free: usize,
    /// The keeper was requested to bring more, and has not brought it.
    asked: bool,
}

impl Account {
    const NONE: Self = Self { reserve: 0, bytes: 0, free: 0, asked: false };

    /// Length of the next pool: an eighth of the present total, so that few pools are enough for any amount
    /// of memory.
    fn more(&self) -> usize {
        (self.bytes / 8).max(self.reserve.saturating_sub(self.free))
    }

    /// Whether an empty pool of `bytes` can go where all pools are to have `needed`, and `margin` more.
    const fn can_do_without(&self, bytes: usize, needed: usize, margin: usize) -> bool {
        self.free.saturating_sub(bytes) >= self.reserve + margin && self.bytes - bytes >= needed + margin
    }
}

impl Pools {
    pub const fn new() -> Self {
        Self { slots: [const { None }; POOLS_MAX], of: [Account::NONE; 2], returned: Taken::NONE }
    }

    /// Has memory of these sizes ready.
    pub fn begin(&mut self, heap: &Heap, sizes: Sizes) -> io::Result<()> {
        for (kind, reserve) in Kind::ALL.into_iter().zip([sizes.small, sizes.large]) {
            let account = &mut self.of[kind as usize];
            (account.reserve, account.asked) = (reserve, false);
            if account.free < reserve {
                heap.queue.ask(kind, account.more() + UNIT_BYTES, 0);
                self.wait(heap, kind)?;
            }
        }
        Ok(())
    }

    pub fn allocate(&mut self, heap: &Heap, layout: Layout) -> Option<NonNull<u8>> {
        self.settle(heap, RETURNED_AT_ONCE);
        let kind = Kind::of(layout);
        let found = self.try_allocate(kind, layout).or_else(|| self.insist(heap, kind, layout));
        let account = &mut self.of[kind as usize];
        if account.free < account.reserve && !account.asked {
            account.asked = true;
            heap.queue.ask(kind, account.more(), 0);
        }
        found
    }

    fn try_allocate(&mut self, kind: Kind, layout: Layout) -> Option<NonNull<u8>> {
        // The first ones are filled first, so that the last ones become empty.
        for (pool, _) in self.slots.iter_mut().flatten().filter(|(_, of)| *of == kind) {
            let before = pool.free_bytes();
            if let Some(block) = pool.allocate(layout) {
                self.of[kind as usize].free -= before - pool.free_bytes();
                return Some(block);
            }
        }
        None
    }

    /// Allocates when free memory does not suffice: first frees all returned blocks, then gets a new pool.
    /// `None` if memory runs out.
    #[cold]
    fn insist(&mut self, heap: &Heap, kind: Kind, layout: Layout) -> Option<NonNull<u8>> {
        self.settle(heap, usize::MAX);
        loop {
            if let Some(block) = self.try_allocate(kind, layout) {
                return Some(block);
            }
            heap.waits.fetch_add(1, Ordering::Relaxed);
            heap.queue.ask(kind, self.of[kind as usize].more(), layout.size() + layout.align());
            self.wait(heap, kind).ok()?;
        }
    }

    /// Waits until the keeper has brought a pool of this kind.
    fn wait(&mut self, heap: &Heap, kind: Kind) -> io::Result<()> {
        loop {
            let seen = heap.queue.brought();
            if self.accept(heap, kind) {
                return Ok(());
            }
            if heap.queue.has_failed(kind) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            heap.queue.wait(seen);
        }
    }

    /// # Safety
    /// `block` was allocated here with this layout, and is freed once.
    pub unsafe fn deallocate(&mut self, heap: &Heap, block: NonNull<u8>, layout: Layout) {
        self.settle(heap, RETURNED_AT_ONCE);
        // SAFETY: as the caller promises.
        unsafe { self.put(heap, block, layout) };
    }

    /// # Safety
    /// The requirements of [`Pools::deallocate`].
    unsafe fn put(&mut self, heap: &Heap, block: NonNull<u8>, layout: Layout) {
        let address = block.as_ptr().addr();
        let found = self.slots.iter_mut().enumerate().find_map(|(slot, pool)| {
            let (pool, kind) = pool.as_mut()?;
            pool.range().contains(address).then_some((slot, pool, *kind))
        });
        let Some((slot, pool, kind)) = found else { return };
        let before = pool.free_bytes();
        // SAFETY: as the caller promises; it is in this pool.
        unsafe { pool.deallocate(block, layout) };
        let account = &mut self.of[kind as usize];
        account.free += pool.free_bytes() - before;
        // Keep a margin, so that what is given back is not requested again at once.
        let margin = account.reserve / 2;
        if pool.is_empty() && account.can_do_without(pool.bytes(), heap.needed(kind), margin) {
            self.retire(heap, slot);
        }
    }

    /// Gives back every pool that is empty and not needed, the largest first: so as much goes as can.
    fn sweep(&mut self, heap: &Heap) {
        while let Some(slot) = self.largest_spare(heap) {
            self.retire(heap, slot);
        }
    }

    fn largest_spare(&self, heap: &Heap) -> Option<usize> {
        let pools = self.slots.iter().enumerate().filter_map(|(slot, pool)| Some((slot, pool.as_ref()?)));
        let spare = pools.filter(|(_, (pool, kind))| {
            let account = &self.of[*kind as usize];
            pool.is_empty() && account.can_do_without(pool.bytes(), heap.needed(*kind), 0)
        });
        spare.max_by_key(|(_, (pool, _))| pool.bytes()).map(|(slot, _)| slot)
    }

    fn retire(&mut self, heap: &Heap, slot: usize) {
        let Some((pool, kind)) = self.slots[slot].take() else { return };
        heap.ranges[slot].store(0, Ordering::Release);
        let account = &mut self.of[kind as usize];
        account.bytes -= pool.bytes();
        account.free -= pool.free_bytes();
        heap.queue.retire(pool, kind);
    }

    /// Frees blocks that other threads have returned, and takes the pools that the keeper has brought.
    fn settle(&mut self, heap: &Heap, at_most: usize) {
        self.accept(heap, Kind::Small);
        if heap.is_to_sweep.load(Ordering::Relaxed) && heap.is_to_sweep.swap(false, Ordering::AcqRel) {
            self.sweep(heap);
        }
        for _ in 0..at_most {
            if self.returned.is_empty() {
                self.returned = heap.returned.take();
            }
            let Some(block) = self.returned.next() else { return };
            // SAFETY: a block of a pool, which another thread has freed, with its layout written into it.
            unsafe { self.put(heap, block, PendingFree::read(block)) };
        }
    }

    /// Takes pools in; whether one was of this kind.
    fn accept(&mut self, heap: &Heap, wanted: Kind) -> bool {
        let mut any = false;
        for (pool, kind) in heap.queue.take_delivered() {
            let account = &mut self.of[kind as usize];
            account.asked = false;
            let Some(slot) = self.slots.iter().position(Option::is_none) else {
                // The table of sixty-four pools is full: the thread that waits for this pool must get the
                // failure.
                heap.queue.retire(pool, kind);
                heap.queue.fail(kind);
                continue;
            };
            any |= kind == wanted;
            account.bytes += pool.bytes();
            account.free += pool.free_bytes();
            heap.ranges[slot].store(pool.range().0, Ordering::Release);
            heap.used.fetch_max(slot + 1, Ordering::AcqRel);
            self.slots[slot] = Some((pool, kind));
        }
        any
    }
}

const _: () = assert!(UNIT_BYTES > LARGE_BYTES);
