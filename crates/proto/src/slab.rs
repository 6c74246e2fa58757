//! Many FIFO queues in one slab: an item moves in and out without an allocation, and memory is reserved for all queues
//! together, not for each.
//!
//! A [`Fifo`] belongs to exactly one slab and is emptied through it.

use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// A place in a slab, or none: where an item stands, or what stands behind it in its queue. The latter is kept by the
/// item, which may have room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next(u32);

impl Next {
    pub(crate) const NONE: Self = Self(NONE);
}

/// An item of a slab.
pub(crate) trait Linked {
    fn next_mut(&mut self) -> &mut Next;
    fn next(&self) -> Next;
}

/// Never across more cache lines than needed.
#[derive(Debug)]
#[repr(align(32))]
struct Slot<T>(Option<T>);

/// Slots of a run. More room is more runs: nothing moves. So long that allocators give a run pages of its own, which take
/// memory when they are used and not before; with 256 a channel took 60 B more in a network of 100 nodes.
const RUN_SLOTS: usize = 1_024;

/// The slots, in runs, and those free, the last used on top: it is still in the cache.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    runs: Vec<Vec<Slot<T>>>,
    /// Slots that have been used.
    len: usize,
    free: Vec<u32>,
    /// Items for which [`Slab::add_room`] has reserved.
    room: usize,
}

/// One queue in the slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo {
    head: u32,
    tail: u32,
}

impl Fifo {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

impl<T: Linked> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { runs: Vec::new(), len: 0, free: Vec::new(), room: 0 }
    }

    /// Room for `capacity` items altogether, so that neither `push` nor `pop` allocates.
    pub(crate) fn reserve(&mut self, capacity: usize) {
        while self.runs.len() * RUN_SLOTS < capacity {
            self.runs.push(Vec::with_capacity(RUN_SLOTS));
        }
        reserve(&mut self.free, capacity);
    }

    /// Room for `items` more.
    pub(crate) fn add_room(&mut self, items: u32) {
        self.room += items as usize;
        self.reserve(self.room);
    }

    /// So many less are needed.
    pub(crate) fn remove_room(&mut self, items: u32) {
        self.room -= items as usize;
    }

    /// Items in all queues.
    pub(crate) const fn used(&self) -> usize {
        self.len - self.free.len()
    }

    /// All of them, queue or not.
    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.runs.iter().flatten().filter_map(|slot| slot.0.as_ref())
    }

    /// Puts an item at the end of a queue; says where it stands.
    pub(crate) fn push(&mut self, fifo: &mut Fifo, item: T) -> Next {
        let index = self.take_slot(item);
        match self.at_mut(Next(fifo.tail)) {
            Some(tail) => *tail.next_mut() = Next(index),
            None => fifo.head = index,
        }
        fifo.tail = index;
        Next(index)
    }

    /// The item at a place.
    pub(crate) fn at(&self, place: Next) -> Option<&T> {
        let index = place.0 as usize;
        self.runs.get(index / RUN_SLOTS)?.get(index % RUN_SLOTS)?.0.as_ref()
    }

    pub(crate) fn at_mut(&mut self, place: Next) -> Option<&mut T> {
        self.slot_mut(place.0)?.0.as_mut()
    }

    /// Where the item stands that has `before` others before it in its queue. Takes a step for each of them.
    pub(crate) fn place(&self, fifo: &Fifo, before: u64) -> Option<Next> {
        let behind = |place: &Next| self.at(*place).map(Linked::next).filter(|next| *next != Next::NONE);
        core::iter::successors(Some(Next(fifo.head)), behind).nth(usize::try_from(before).ok()?)
    }

    pub(crate) fn front(&self, fifo: &Fifo) -> Option<&T> {
        self.at(Next(fifo.head))
    }

    pub(crate) fn back(&self, fifo: &Fifo) -> Option<&T> {
        self.at(Next(fifo.tail))
    }

    /// From the head on.
    pub(crate) fn iter(&self, fifo: &Fifo) -> impl Iterator<Item = &T> {
        let behind = |item: &&T| self.at(item.next());
        core::iter::successors(self.front(fifo), behind)
    }

    pub(crate) fn pop(&mut self, fifo: &mut Fifo) -> Option<T> {
        let item = self.slot_mut(fifo.head)?.0.take()?;
        self.free.push(fifo.head);
        fifo.head = item.next().0;
        if fifo.head == NONE {
            fifo.tail = NONE;
        }
        Some(item)
    }

    fn take_slot(&mut self, item: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.runs[index as usize / RUN_SLOTS][index as usize % RUN_SLOTS].0 = Some(item);
            return index;
        }
        self.reserve(self.len + 1);
        self.runs[self.len / RUN_SLOTS].push(Slot(Some(item)));
        self.len += 1;
        (self.len - 1) as u32
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.runs.get_mut(index as usize / RUN_SLOTS)?.get_mut(index as usize % RUN_SLOTS)
    }
}

/// Room for `capacity` items altogether, and, where that grows, for half as many more: fewer moves and holes. Moves what is there and
/// nothing else: memory that was never used is not touched.
pub(crate) fn reserve<T>(items: &mut Vec<T>, capacity: usize) {
    if capacity > items.capacity() {
        let ahead = if items.capacity() > 0 { capacity / 2 } else { 0 };
        let mut larger = Vec::with_capacity(capacity + ahead);
        larger.append(items);
        *items = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Item(u32, Next);

    impl Linked for Item {
        fn next_mut(&mut self) -> &mut Next {
            &mut self.1
        }
        fn next(&self) -> Next {
            self.1
        }
    }

    fn numbers(slab: &Slab<Item>, fifo: &Fifo) -> Vec<u32> {
        slab.iter(fifo).map(|item| item.0).collect()
    }

    #[test]
    fn queues_keep_their_own_order_in_shared_slots() {
        let (mut slab, mut even, mut odd) = (Slab::new(), Fifo::EMPTY, Fifo::EMPTY);
        slab.reserve(8);
        let room = (slab.runs.len(), slab.free.capacity());
        for turn in 0..100 {
            for number in 0..8 {
                let fifo = if number % 2 == 0 { &mut even } else { &mut odd };
                slab.push(fifo, Item(turn + number, Next::NONE));
            }
            assert_eq!(numbers(&slab, &even), [turn, turn + 2, turn + 4, turn + 6]);
            assert_eq!(slab.back(&odd).map(|item| item.0), Some(turn + 7));
            while slab.pop(&mut even).is_some() {}
            assert!(even.is_empty() && numbers(&slab, &odd).len() == 4);
            while slab.pop(&mut odd).is_some() {}
        }
        assert_eq!((slab.runs.len(), slab.free.capacity()), room, "nothing was allocated");
    }

    #[test]
    fn growing_keeps_what_is_queued() {
        let (mut slab, mut fifo) = (Slab::new(), Fifo::EMPTY);
        for number in 0..3_000 {
            slab.reserve(number as usize + 1);
            slab.push(&mut fifo, Item(number, Next::NONE));
        }
        assert!(numbers(&slab, &fifo).into_iter().eq(0..3_000));
    }
}
