//! Owns the record of the region's frames that the kernel has on behalf of one link, and of the ring that
//! each is in.
//!
//! An index leaves the pool and enters the ledger when it is put into a fill or TX ring. It leaves the ledger
//! when it comes back by an RX or completion ring. If the kernel gives back a frame that it does not have, it
//! is refused, so a frame has one owner whatever a ring contains. When the ledger is dropped, after the
//! link's sockets were closed, the frames that it still has go back to the pool.

use super::umem::XdpMemory;

/// Entry of a frame that the kernel does not have.
const OURS: u32 = u32::MAX;
/// Entry of a frame that is in the fill ring, or received and not taken.
const TO_RECEIVE: u32 = u32::MAX - 1;
/// Maximum number of wire bytes that an entry can store; no packet is as long.
const WIRE_BYTES_MAX: u32 = u32::MAX - 2;

/// The record of one link (see the module).
pub(super) struct Ledger {
    memory: XdpMemory,
    /// Entries by frame index: [`OURS`], [`TO_RECEIVE`], or the wire bytes of a packet that is on its way
    /// out.
    entries: Box<[u32]>,
    to_receive: u32,
    to_send: u32,
}

impl Ledger {
    pub(super) fn new(memory: &XdpMemory) -> Self {
        let entries = vec![OURS; memory.frames() as usize].into();
        Self { memory: memory.clone(), entries, to_receive: 0, to_send: 0 }
    }

    /// The kernel gets frame `index`, which is ours, to receive into.
    pub(super) fn lend(&mut self, index: u32) {
        self.entries[index as usize] = TO_RECEIVE;
        self.to_receive += 1;
    }

    /// The kernel reports that it has received into frame `index`; `false` if it had no such frame.
    pub(super) fn received(&mut self, index: u32) -> bool {
        let Some(entry) = self.entries.get_mut(index as usize).filter(|entry| **entry == TO_RECEIVE) else {
            return false;
        };
        *entry = OURS;
        self.to_receive -= 1;
        true
    }

    /// The kernel gets frame `index`, which is ours, to send.
    pub(super) fn send(&mut self, index: u32, wire_bytes: u32) {
        self.entries[index as usize] = wire_bytes.min(WIRE_BYTES_MAX);
        self.to_send += 1;
    }

    /// The kernel reports that it has sent frame `index`: the wire bytes; `None` if it had no such frame.
    pub(super) fn sent(&mut self, index: u32) -> Option<u32> {
        let entry = self.entries.get_mut(index as usize).filter(|entry| **entry <= WIRE_BYTES_MAX)?;
        self.to_send -= 1;
        Some(std::mem::replace(entry, OURS))
    }

    /// Gives up the packets in transmission: returns the sum of their wire bytes, which later completions do
    /// not count again. Visits the whole region: for a device that is gone.
    pub(super) fn give_up(&mut self) -> u32 {
        let sending = self.entries.iter_mut().filter(|entry| **entry <= WIRE_BYTES_MAX);
        sending.fold(0, |sum, entry| std::mem::take(entry).saturating_add(sum))
    }

    /// Frames that the kernel has to receive into, or that it has filled and the link has not taken yet.
    pub(super) const fn to_receive(&self) -> u32 {
        self.to_receive
    }

    /// Frames on their way out.
    pub(super) const fn to_send(&self) -> u32 {
        self.to_send
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        for (index, _) in self.entries.iter().enumerate().filter(|(_, entry)| **entry != OURS) {
            self.memory.pool().give_back(index as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_gives_back_only_what_it_has_and_a_dropped_ledger_leaks_nothing() {
        let memory = XdpMemory::new(8, 2_048).expect("16 KiB");
        let take = || memory.pool().take_index().expect("a frame");
        let (one, two, three) = (take(), take(), take());
        let mut ledger = Ledger::new(&memory);
        ledger.lend(one);
        ledger.send(two, 1_500);
        ledger.send(three, 64);
        assert_eq!((ledger.to_receive(), ledger.to_send()), (1, 2));
        assert!(!ledger.received(two) && !ledger.received(99) && ledger.sent(one).is_none());
        assert!(ledger.received(one) && !ledger.received(one));
        assert_eq!((ledger.sent(two), ledger.sent(two), ledger.sent(u32::MAX)), (Some(1_500), None, None));
        assert_eq!((ledger.to_receive(), ledger.to_send()), (0, 1));
        memory.pool().give_back(one);
        memory.pool().give_back(two);
        drop(ledger);
        assert_eq!(std::iter::from_fn(|| memory.pool().take_index()).count(), 8);
    }

    #[test]
    fn what_is_given_up_is_counted_once() {
        let memory = XdpMemory::new(4, 2_048).expect("8 KiB");
        let index = memory.pool().take_index().expect("a frame");
        let mut ledger = Ledger::new(&memory);
        ledger.send(index, 700);
        assert_eq!((ledger.give_up(), ledger.give_up()), (700, 0));
        assert_eq!((ledger.sent(index), ledger.to_send()), (Some(0), 0));
        memory.pool().give_back(index);
    }
}
