//! A binary heap of handlers that stores the position of each. A handler is in it at most once, and can be
//! re-keyed and removed in O(log n).

use alloc::vec::Vec;

use crate::ids::HandlerId;
use crate::slab::reserve;

const ABSENT: u32 = u32::MAX;

/// Key in the upper 96 bits, handler in the lower 32: ties go to the smaller handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

impl Entry {
    const fn new(key: u128, handler: HandlerId) -> Self {
        Self(key << 32 | handler.0 as u128)
    }
    const fn key(self) -> u128 {
        self.0 >> 32
    }
    const fn handler(self) -> HandlerId {
        HandlerId(self.0 as u32)
    }
}

/// Smallest key first; keys have at most 96 bits.
#[derive(Debug, Default)]
pub(super) struct IndexedHeap {
    entries: Vec<Entry>,
    /// Place of each handler's entry, by handler.
    positions: Vec<u32>,
}

impl IndexedHeap {
    /// Room for handlers up to `handlers` - 1, so that `set` does not allocate.
    pub(super) fn reserve(&mut self, handlers: usize) {
        reserve(&mut self.entries, handlers);
        reserve(&mut self.positions, handlers);
        self.positions.resize(self.positions.len().max(handlers), ABSENT);
    }

    pub(super) fn peek(&self) -> Option<(u128, HandlerId)> {
        self.entries.first().map(|entry| (entry.key(), entry.handler()))
    }

    /// Puts `handler` in, or gives it another key.
    pub(super) fn set(&mut self, handler: HandlerId, key: u128) {
        let entry = Entry::new(key, handler);
        match self.positions[handler.0 as usize] {
            ABSENT => {
                self.entries.push(entry);
                self.sift_up(self.entries.len() - 1);
            }
            at => self.replace(at as usize, entry),
        }
    }

    /// Takes `handler` out if it is in.
    #[inline]
    pub(super) fn remove(&mut self, handler: HandlerId) {
        let at = self.positions[handler.0 as usize];
        if at != ABSENT {
            self.positions[handler.0 as usize] = ABSENT;
            self.remove_at(at as usize);
        }
    }

    fn remove_at(&mut self, at: usize) {
        let before = self.entries.swap_remove(at);
        if let Some(&last) = self.entries.get(at) {
            self.sift(at, before, last);
        }
    }

    fn replace(&mut self, at: usize, entry: Entry) {
        let before = core::mem::replace(&mut self.entries[at], entry);
        self.sift(at, before, entry);
    }

    /// Moves `entry`, which has taken the place `at` of `before`, to where it belongs.
    fn sift(&mut self, at: usize, before: Entry, entry: Entry) {
        if entry < before {
            self.sift_up(at);
        } else if entry > before {
            self.sift_down(at);
        }
    }

    fn put(&mut self, at: usize, entry: Entry) {
        self.entries[at] = entry;
        self.positions[entry.handler().0 as usize] = at as u32;
    }

    fn sift_up(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while at > 0 && entry < self.entries[(at - 1) / 2] {
            let parent = (at - 1) / 2;
            self.put(at, self.entries[parent]);
            at = parent;
        }
        self.put(at, entry);
    }

    fn sift_down(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while let Some(child) = self.smaller_child(at).filter(|child| self.entries[*child] < entry) {
            self.put(at, self.entries[child]);
            at = child;
        }
        self.put(at, entry);
    }

    fn smaller_child(&self, at: usize) -> Option<usize> {
        let (left, right) = (2 * at + 1, 2 * at + 2);
        let left_entry = self.entries.get(left)?;
        match self.entries.get(right) {
            Some(right_entry) if right_entry < left_entry => Some(right),
            _ => Some(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The executor allocates where handlers are added, never where one becomes ready.
    #[test]
    fn a_heap_that_has_room_does_not_allocate() {
        let mut heap = IndexedHeap::default();
        for handlers in [1, 2, 7, 100] {
            heap.reserve(handlers);
            let room = |heap: &IndexedHeap| (heap.entries.capacity(), heap.positions.capacity());
            let before = room(&heap);
            (0..handlers as u32).for_each(|handler| heap.set(HandlerId(handler), u128::from(handler)));
            assert_eq!(room(&heap), before, "{handlers} handlers");
        }
    }
}
