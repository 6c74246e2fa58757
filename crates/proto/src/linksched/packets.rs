//! Packets of many FIFO queues in one slab: a packet moves in and out without an allocation.
//!
//! A [`Fifo`] belongs to exactly one slab and is emptied through it.

use alloc::vec::Vec;

use punctual_analysis::Instant;

const NONE: u32 = u32::MAX;

/// A queued packet.
#[derive(Debug)]
pub(super) struct Queued<P> {
    pub(super) packet: P,
    pub(super) wire_bytes: u32,
    pub(super) effective: Instant,
    pub(super) deadline: Instant,
}

#[derive(Debug)]
struct Slot<P> {
    queued: Option<Queued<P>>,
    /// Next in the FIFO, or next free slot.
    next: u32,
}

/// The slots, and those free.
#[derive(Debug)]
pub(super) struct Slab<P> {
    slots: Vec<Slot<P>>,
    free: u32,
}

/// One queue in the slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fifo {
    head: u32,
    tail: u32,
    len: u32,
}

impl Fifo {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, len: 0 };

    pub(super) const fn len(&self) -> u32 {
        self.len
    }
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<P> Slab<P> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE }
    }

    /// Room for `capacity` packets altogether, so that `push` does not allocate.
    pub(super) fn reserve(&mut self, capacity: usize) {
        self.slots.reserve(capacity.saturating_sub(self.slots.len()));
    }

    pub(super) fn push(&mut self, fifo: &mut Fifo, queued: Queued<P>) {
        let index = self.take_slot(queued);
        match fifo.tail {
            NONE => fifo.head = index,
            tail => self.slots[tail as usize].next = index,
        }
        fifo.tail = index;
        fifo.len += 1;
    }

    pub(super) fn front(&self, fifo: &Fifo) -> Option<&Queued<P>> {
        self.slots.get(fifo.head as usize)?.queued.as_ref()
    }

    pub(super) fn back(&self, fifo: &Fifo) -> Option<&Queued<P>> {
        self.slots.get(fifo.tail as usize)?.queued.as_ref()
    }

    pub(super) fn pop(&mut self, fifo: &mut Fifo) -> Option<Queued<P>> {
        let index = fifo.head;
        let slot = self.slots.get_mut(index as usize)?;
        let queued = slot.queued.take()?;
        fifo.head = slot.next;
        slot.next = self.free;
        self.free = index;
        fifo.len -= 1;
        if fifo.len == 0 {
            *fifo = Fifo::EMPTY;
        }
        Some(queued)
    }

    fn take_slot(&mut self, queued: Queued<P>) -> u32 {
        let index = self.free;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            self.free = slot.next;
            *slot = Slot { queued: Some(queued), next: NONE };
            return index;
        }
        self.slots.push(Slot { queued: Some(queued), next: NONE });
        (self.slots.len() - 1) as u32
    }
}
