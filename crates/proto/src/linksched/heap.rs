//! A d-ary heap of (key, flow): a flow is in it at most once.
//!
//! Ties go to the smaller flow, so that equal deadlines are served message by message, not interleaved.

use alloc::vec::Vec;

/// Children of a node; see docs/adr/0003 for the measurement.
const ARITY: usize = 4;

/// Key in the upper 64 bits, flow in the lower 32: one comparison of integers orders both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

impl Entry {
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

/// Smallest key first.
#[derive(Debug, Default)]
pub(super) struct Heap {
    entries: Vec<Entry>,
}

impl Heap {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Room for `capacity` flows altogether, so that `push` does not allocate.
    pub(super) fn reserve(&mut self, capacity: usize) {
        self.entries.reserve(capacity.saturating_sub(self.entries.len()));
    }

    pub(super) fn peek(&self) -> Option<(u64, u32)> {
        self.entries.first().map(|e| (e.key(), e.flow()))
    }

    pub(super) fn push(&mut self, key: u64, flow: u32) {
        self.entries.push(Entry::new(key, flow));
        self.sift_up(self.entries.len() - 1);
    }

    pub(super) fn pop(&mut self) -> Option<(u64, u32)> {
        let last = self.entries.pop()?;
        let Some(first) = self.entries.first_mut() else {
            return Some((last.key(), last.flow()));
        };
        let top = core::mem::replace(first, last);
        self.sift_down();
        Some((top.key(), top.flow()))
    }

    /// Gives the top flow another key: cheaper than `pop` and `push`.
    pub(super) fn rekey_top(&mut self, key: u64) {
        if let Some(top) = self.entries.first_mut() {
            *top = Entry::new(key, top.flow());
            self.sift_down();
        }
    }

    fn sift_up(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.entries[parent] <= entry {
                break;
            }
            self.entries[at] = self.entries[parent];
            at = parent;
        }
        self.entries[at] = entry;
    }

    fn sift_down(&mut self) {
        let entry = self.entries[0];
        let mut at = 0;
        while let Some(child) = self.smallest_child(at) {
            if entry <= self.entries[child] {
                break;
            }
            self.entries[at] = self.entries[child];
            at = child;
        }
        self.entries[at] = entry;
    }

    fn smallest_child(&self, at: usize) -> Option<usize> {
        let first = at * ARITY + 1;
        let children = self.entries.get(first..(first + ARITY).min(self.entries.len()))?;
        let (offset, _) = children.iter().enumerate().min_by_key(|(_, entry)| **entry)?;
        Some(first + offset)
    }
}
