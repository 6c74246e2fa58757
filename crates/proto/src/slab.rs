//! Many FIFO queues in one slab: an item moves in and out without an allocation, and memory is reserved for all queues
//! together, not for each.
//!
//! A [`Fifo`] belongs to exactly one slab and is emptied through it.

use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// What stands behind an item in its queue. Kept by the item, which may have room for it.
#[derive(Clone, Copy, Debug)]
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

/// The slots, and those free, the last used on top: it is still in the cache.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
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
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Room for `capacity` items altogether, so that neither `push` nor `pop` allocates.
    pub(crate) fn reserve(&mut self, capacity: usize) {
        reserve(&mut self.slots, capacity);
        reserve(&mut self.free, capacity);
    }

    pub(crate) fn push(&mut self, fifo: &mut Fifo, item: T) {
        let index = self.take_slot(item);
        match self.slots.get_mut(fifo.tail as usize) {
            Some(Slot(Some(tail))) => *tail.next_mut() = Next(index),
            _ => fifo.head = index,
        }
        fifo.tail = index;
    }

    pub(crate) fn front(&self, fifo: &Fifo) -> Option<&T> {
        self.slots.get(fifo.head as usize)?.0.as_ref()
    }

    pub(crate) fn back(&self, fifo: &Fifo) -> Option<&T> {
        self.slots.get(fifo.tail as usize)?.0.as_ref()
    }

    /// From the head on.
    pub(crate) fn iter(&self, fifo: &Fifo) -> impl Iterator<Item = &T> {
        let behind = |item: &&T| self.slots.get(item.next().0 as usize)?.0.as_ref();
        core::iter::successors(self.front(fifo), behind)
    }

    pub(crate) fn pop(&mut self, fifo: &mut Fifo) -> Option<T> {
        let item = self.slots.get_mut(fifo.head as usize)?.0.take()?;
        self.free.push(fifo.head);
        fifo.head = item.next().0;
        if fifo.head == NONE {
            fifo.tail = NONE;
        }
        Some(item)
    }

    fn take_slot(&mut self, item: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Slot(Some(item));
            return index;
        }
        self.slots.push(Slot(Some(item)));
        (self.slots.len() - 1) as u32
    }
}

/// Room for `capacity` items altogether, and, where that grows, for an eighth more: fewer moves. Moves what is there and
/// nothing else: memory that was never used is not touched.
pub(crate) fn reserve<T>(items: &mut Vec<T>, capacity: usize) {
    if capacity > items.capacity() {
        let ahead = if items.capacity() > 0 { capacity / 8 } else { 0 };
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
        let room = slab.slots.capacity();
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
        assert_eq!(slab.slots.capacity(), room, "nothing was allocated");
    }

    #[test]
    fn growing_keeps_what_is_queued() {
        let (mut slab, mut fifo) = (Slab::new(), Fifo::EMPTY);
        for number in 0..100 {
            slab.reserve(number as usize + 1);
            slab.push(&mut fifo, Item(number, Next::NONE));
        }
        assert!(numbers(&slab, &fifo).into_iter().eq(0..100));
    }
}
