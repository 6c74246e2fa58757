//! A d-ary heap of (key, flow): a flow is in it at most once.
//!
//! Ties go to the smaller flow, so that equal deadlines are served message by message, not interleaved.
//! The children of a node lie together at a cache line's start: one node of a walk down is one or two misses
//! (measured in docs/adr/0003).

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::parameters::FlowIndex;
use crate::slab::reserve;

/// Children of a node.
const ARITY: usize = 8;

/// What names a flow in a heap: a number of 32 bits.
pub(super) trait Numbered: Copy {
    /// The flow of this number.
    fn from_number(number: u32) -> Self;
    /// The flow's number.
    fn number(self) -> u32;
}

/// Guaranteed channels.
impl Numbered for FlowIndex {
    fn from_number(number: u32) -> Self {
        Self(number)
    }
    fn number(self) -> u32 {
        self.0
    }
}

/// Best-effort flows: their places in the queue's table.
impl Numbered for u32 {
    fn from_number(number: u32) -> Self {
        number
    }
    fn number(self) -> u32 {
        self
    }
}

/// Key in the upper 64 bits, flow in the lower 32: one comparison of integers orders both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

impl Entry {
    /// Entry that sorts after every other one. It fills places that are not in use.
    const LAST: Self = Self(u128::MAX);

    const fn new(key: u64, flow: u32) -> Self {
        Self((key as u128) << 64 | flow as u128)
    }
    const fn key(self) -> u64 {
        (self.0 >> 64) as u64
    }
    const fn flow(self) -> u32 {
        self.0 as u32
    }
}

/// The children of one node.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Children([Entry; ARITY]);

/// Smallest key first. Node 0 is the root; the children of node n are `children[n]`.
#[derive(Debug)]
pub(super) struct Heap<F> {
    root: Entry,
    children: Vec<Children>,
    len: usize,
    flows: PhantomData<F>,
}

impl<F: Numbered> Heap<F> {
    pub(super) const fn new() -> Self {
        Self { root: Entry::LAST, children: Vec::new(), len: 0, flows: PhantomData }
    }

    /// Room for `capacity` flows altogether, so that `push` does not allocate.
    pub(super) fn reserve(&mut self, capacity: usize) {
        let groups = capacity.div_ceil(ARITY);
        reserve(&mut self.children, groups);
    }

    pub(super) fn peek(&self) -> Option<(u64, F)> {
        (self.len > 0).then_some((self.root.key(), F::from_number(self.root.flow())))
    }

    pub(super) fn push(&mut self, key: u64, flow: F) {
        let at = self.len;
        self.len += 1;
        if at > 0 && (at - 1) / ARITY == self.children.len() {
            self.children.push(Children([Entry::LAST; ARITY]));
        }
        self.sift_up(at, Entry::new(key, flow.number()));
    }

    pub(super) fn pop(&mut self) -> Option<(u64, F)> {
        let top = self.peek()?;
        self.len -= 1;
        let last = self.get(self.len);
        self.put(self.len, Entry::LAST);
        if self.len > 0 {
            self.sift_down(0, last);
        }
        Some(top)
    }

    /// Takes `flow` out if it is in. O(flows): for flows that close.
    pub(super) fn remove(&mut self, flow: F) {
        let Some(at) = (0..self.len).find(|at| self.get(*at).flow() == flow.number()) else { return };
        self.len -= 1;
        let last = self.get(self.len);
        self.put(self.len, Entry::LAST);
        if at < self.len {
            self.sift_down(at, last);
            self.sift_up(at, self.get(at));
        }
    }

    /// Gives the top flow another key: cheaper than `pop` and `push`.
    pub(super) fn rekey_top(&mut self, key: u64) {
        if self.len > 0 {
            self.sift_down(0, Entry::new(key, self.root.flow()));
        }
    }

    fn get(&self, at: usize) -> Entry {
        match at {
            0 => self.root,
            at => self.children[(at - 1) / ARITY].0[(at - 1) % ARITY],
        }
    }

    fn put(&mut self, at: usize, entry: Entry) {
        match at {
            0 => self.root = entry,
            at => self.children[(at - 1) / ARITY].0[(at - 1) % ARITY] = entry,
        }
    }

    fn sift_up(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            let above = self.get(parent);
            if above <= entry {
                break;
            }
            self.put(at, above);
            at = parent;
        }
        self.put(at, entry);
    }

    /// Puts `entry` in the place `at`, or below.
    fn sift_down(&mut self, mut at: usize, entry: Entry) {
        while let Some(children) = self.children.get(at) {
            let (offset, smallest) = smallest(&children.0);
            if entry <= smallest {
                break;
            }
            self.put(at, smallest);
            at = at * ARITY + 1 + offset;
        }
        self.put(at, entry);
    }
}

/// Index and value of the smallest child, found by a tournament: the selections do not depend on one another,
/// and no branch can be mispredicted.
fn smallest(children: &[Entry; ARITY]) -> (usize, Entry) {
    let less = |a: (usize, Entry), b: (usize, Entry)| if b.1 < a.1 { b } else { a };
    let pair = |i: usize| less((i, children[i]), (i + 1, children[i + 1]));
    less(less(pair(0), pair(2)), less(pair(4), pair(6)))
}

#[cfg(test)]
impl<F> Heap<F> {
    /// Flows that there is room for.
    pub(super) fn room(&self) -> usize {
        self.children.capacity() * ARITY
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;
    use crate::signalling::SplitMix64;

    /// After any operations: the smallest key first, of equal keys the smaller flow.
    #[test]
    fn a_heap_gives_what_a_sorted_set_gives() {
        for seed in 0..60 {
            let mut random = SplitMix64::new(seed);
            let (mut heap, mut set, mut flow) = (Heap::new(), BTreeSet::new(), 0_u32);
            let keys = [3, 50, 1 << 40][seed as usize % 3];
            for _ in 0..600 {
                let key = random.below(keys);
                match random.below(6) {
                    0..=2 if set.len() < 90 => {
                        flow += 1;
                        heap.push(key, flow);
                        set.insert((key, flow));
                    }
                    3 => assert_eq!(heap.pop(), set.pop_first()),
                    4 => {
                        let gone = 1 + random.below(u64::from(flow) + 1) as u32;
                        heap.remove(gone);
                        set.retain(|(_, flow)| *flow != gone);
                    }
                    _ => {
                        heap.rekey_top(key);
                        let top = set.pop_first();
                        set.extend(top.map(|(_, flow)| (key, flow)));
                    }
                }
                assert_eq!(heap.peek(), set.first().copied(), "seed {seed}");
            }
            while let Some(top) = set.pop_first() {
                assert_eq!(heap.pop(), Some(top), "seed {seed}");
            }
            assert_eq!((heap.peek(), heap.pop()), (None, None));
        }
    }

    /// Room is reserved once, and insertions within it do not allocate.
    #[test]
    fn a_heap_has_the_room_that_was_made() {
        for capacity in [1, 8, 9, 10, 17, 64, 65, 73, 74] {
            let mut heap = Heap::<u32>::new();
            heap.reserve(capacity);
            let room = heap.children.capacity();
            (0..capacity).rev().for_each(|flow| heap.push(7, flow as u32));
            assert_eq!(heap.children.capacity(), room, "{capacity}");
            assert!(heap.children.len() == (capacity - 1).div_ceil(ARITY), "{capacity}");
        }
    }
}
