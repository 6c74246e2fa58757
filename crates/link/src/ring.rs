//! A bounded ring of packets with one producer and one consumer. It has the role of a NIC's cable and queue.
//!
//! Slots have a fixed size and are filled once the ring is made. The producer stages packets and publishes them
//! together with their time; the consumer copies them out. `head` and `tail` only grow.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, UnsafeCell};

struct Slot {
    bytes: Box<[u8]>,
    len: usize,
    published_ns: u64,
}

struct SharedRing {
    slots: Box<[UnsafeCell<Slot>]>,
    /// Packets consumed.
    head: AtomicUsize,
    /// Packets published.
    tail: AtomicUsize,
}

// SAFETY: a slot in `head..tail` belongs to the one consumer, any other to the one producer; `tail` is released
// after the slot was filled and `head` after it was read, and both ends are unique (neither is `Clone`).
unsafe impl Send for SharedRing {}
// SAFETY: as above.
unsafe impl Sync for SharedRing {}

/// The sending end.
pub struct Producer {
    shared: Arc<SharedRing>,
    published: usize,
    staged: usize,
}

/// The receiving end.
pub struct Consumer {
    shared: Arc<SharedRing>,
    consumed: usize,
}

/// A ring of `slots` packets of up to `slot_bytes` each.
pub fn ring(slots: usize, slot_bytes: usize) -> (Producer, Consumer) {
    let slot = || Slot { bytes: vec![0; slot_bytes].into_boxed_slice(), len: 0, published_ns: 0 };
    let slots = (0..slots.max(1)).map(|_| UnsafeCell::new(slot())).collect();
    let shared = Arc::new(SharedRing { slots, head: AtomicUsize::new(0), tail: AtomicUsize::new(0) });
    (Producer { shared: Arc::clone(&shared), published: 0, staged: 0 }, Consumer { shared, consumed: 0 })
}

impl Producer {
    /// Copies a packet of at most the slot's size into the next slot; `false` if the ring is full.
    pub fn stage(&mut self, packet: &[u8]) -> bool {
        let slots = &self.shared.slots;
        let at = self.published.wrapping_add(self.staged);
        if at.wrapping_sub(self.shared.head.load(Ordering::Acquire)) >= slots.len() {
            return false;
        }
        slots[at % slots.len()].with_mut(|slot| {
            // SAFETY: `at` is beyond the published tail and less than a whole ring before the head, so this
            // slot belongs to the producer; `&mut self` makes this its only user.
            let slot = unsafe { &mut *slot };
            slot.bytes[..packet.len()].copy_from_slice(packet);
            slot.len = packet.len();
        });
        self.staged += 1;
        true
    }

    /// Makes the staged packets visible, as of `now_ns`; returns how many.
    pub fn publish(&mut self, now_ns: u64) -> usize {
        let slots = &self.shared.slots;
        for n in 0..self.staged {
            slots[self.published.wrapping_add(n) % slots.len()].with_mut(|slot| {
                // SAFETY: staged slots are the producer's until `tail` is stored below.
                unsafe { (*slot).published_ns = now_ns };
            });
        }
        self.published = self.published.wrapping_add(self.staged);
        self.shared.tail.store(self.published, Ordering::Release);
        std::mem::take(&mut self.staged)
    }
}

impl Consumer {
    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.shared.tail.load(Ordering::Acquire) == self.consumed
    }

    /// Copies the next packet to `out`; returns its length and the time at which it was published.
    pub fn take(&mut self, out: &mut [u8]) -> Option<(usize, u64)> {
        if self.is_empty() {
            return None;
        }
        let slots = &self.shared.slots;
        let taken = slots[self.consumed % slots.len()].with(|slot| {
            // SAFETY: the slot is before the published tail and was not given back yet, so it belongs to the
            // consumer.
            let slot = unsafe { &*slot };
            let len = slot.len.min(out.len());
            out[..len].copy_from_slice(&slot.bytes[..len]);
            (len, slot.published_ns)
        });
        self.consumed = self.consumed.wrapping_add(1);
        self.shared.head.store(self.consumed, Ordering::Release);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_packets_are_invisible_until_published() {
        let (mut producer, mut consumer) = ring(2, 8);
        assert!(producer.stage(b"one") && producer.stage(b"two") && !producer.stage(b"three"));
        assert!(consumer.is_empty());
        assert_eq!(producer.publish(7), 2);
        let mut out = [0; 8];
        assert_eq!(consumer.take(&mut out), Some((3, 7)));
        assert_eq!(&out[..3], b"one");
        assert!(producer.stage(b"three"));
        assert_eq!(producer.publish(9), 1);
        assert_eq!(consumer.take(&mut out), Some((3, 7)));
        assert_eq!(consumer.take(&mut out), Some((5, 9)));
        assert_eq!(&out[..5], b"three");
        assert_eq!(consumer.take(&mut out), None);
    }

    #[test]
    fn order_and_bytes_survive_two_threads() {
        // Miri is some thousand times as slow.
        const COUNT: u64 = if cfg!(miri) { 200 } else { 20_000 };
        let (mut producer, mut consumer) = ring(16, 8);
        let sender = std::thread::spawn(move || {
            for n in 0..COUNT {
                while !producer.stage(&n.to_le_bytes()) {
                    std::thread::yield_now();
                }
                producer.publish(n);
            }
        });
        let mut out = [0; 8];
        for n in 0..COUNT {
            let (len, published_ns) = loop {
                match consumer.take(&mut out) {
                    Some(taken) => break taken,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!((len, published_ns, u64::from_le_bytes(out)), (8, n, n));
        }
        sender.join().expect("the sender ends");
    }
}
