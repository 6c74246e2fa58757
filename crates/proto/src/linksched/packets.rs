//! Packets of many FIFO queues in one slab: a packet moves in and out without an allocation.
//!
//! A [`Fifo`] belongs to exactly one slab and is emptied through it.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use punctual_analysis::Instant;

const NONE: u32 = u32::MAX;

/// A queued packet; `None` of it costs no space, which keeps a slot of a small `P` within half a cache line.
#[derive(Debug)]
pub(super) struct Queued<P> {
    pub(super) packet: P,
    pub(super) effective: Instant,
    pub(super) deadline: Instant,
    pub(super) wire_bytes: NonZeroU32,
    /// Behind this one in its FIFO.
    next: u32,
}

impl<P> Queued<P> {
    /// A packet of no bytes counts as one byte.
    pub(super) fn new(packet: P, wire_bytes: u32, effective: Instant, deadline: Instant) -> Self {
        let wire_bytes = NonZeroU32::new(wire_bytes).unwrap_or(NonZeroU32::MIN);
        Self { packet, effective, deadline, wire_bytes, next: NONE }
    }
}

/// Never across more cache lines than needed.
#[derive(Debug)]
#[repr(align(32))]
struct Slot<P>(Option<Queued<P>>);

/// The slots, and those free, the last used on top: it is still in the cache.
#[derive(Debug)]
pub(super) struct Slab<P> {
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
}

/// One queue in the slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fifo {
    head: u32,
    tail: u32,
}

impl Fifo {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(super) const fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

impl<P> Slab<P> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Room for `capacity` packets altogether, so that neither `push` nor `pop` allocates.
    pub(super) fn reserve(&mut self, capacity: usize) {
        self.slots.reserve(capacity.saturating_sub(self.slots.len()));
        self.free.reserve(capacity.saturating_sub(self.free.len()));
    }

    pub(super) fn push(&mut self, fifo: &mut Fifo, queued: Queued<P>) {
        let index = self.take_slot(queued);
        match self.slots.get_mut(fifo.tail as usize) {
            Some(Slot(Some(tail))) => tail.next = index,
            _ => fifo.head = index,
        }
        fifo.tail = index;
    }

    pub(super) fn front(&self, fifo: &Fifo) -> Option<&Queued<P>> {
        self.slots.get(fifo.head as usize)?.0.as_ref()
    }

    pub(super) fn back(&self, fifo: &Fifo) -> Option<&Queued<P>> {
        self.slots.get(fifo.tail as usize)?.0.as_ref()
    }

    pub(super) fn pop(&mut self, fifo: &mut Fifo) -> Option<Queued<P>> {
        let queued = self.slots.get_mut(fifo.head as usize)?.0.take()?;
        self.free.push(fifo.head);
        fifo.head = queued.next;
        if fifo.head == NONE {
            fifo.tail = NONE;
        }
        Some(queued)
    }

    fn take_slot(&mut self, queued: Queued<P>) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Slot(Some(queued));
            return index;
        }
        self.slots.push(Slot(Some(queued)));
        (self.slots.len() - 1) as u32
    }
}
