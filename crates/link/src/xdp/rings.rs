//! The four rings of AF_XDP: bounded, one producer, one consumer, in memory that is shared with the kernel.
//!
//! Indices only grow and wrap at 2^32; an entry is at index modulo the ring's size, a power of two. The
//! producer fills entries and then releases its index, the consumer acquires that index, reads, and then
//! releases its own. Each side caches the other's index and reads it again only when the cached one is used
//! up, so a batch costs one cache miss. Our side of a ring is a [`Producer`] (fill, TX) or a [`Consumer`]
//! (RX, completion); the kernel is the other side. An impossible index of the other side (more than a ring
//! away) is limited to the ring's size, so no entry outside the ring is ever accessed.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::mapping::Mapping;
use crate::Stream;

/// Sizes of the rings, in entries; powers of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSizes {
    pub(super) rx: [u32; Stream::ALL.len()],
    pub(super) tx: u32,
    pub(super) fill: u32,
}

/// Offsets of the parts of a ring in its memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) flags: usize,
    pub(super) entries: usize,
}

/// The parts that both ends of a ring have in common.
struct Ring<T> {
    memory: Mapping,
    offsets: Offsets,
    /// A power of two.
    size: u32,
    of: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// # Panics
    /// If the parts are not inside the memory: a bug of the caller, who computes both.
    fn new(memory: Mapping, offsets: Offsets, size: u32) -> Self {
        assert!(size.is_power_of_two(), "a ring of {size} entries");
        let ends = [offsets.producer, offsets.consumer, offsets.flags].map(|at| at + size_of::<u32>());
        let end = offsets.entries + size as usize * size_of::<T>();
        assert!(ends.iter().chain([&end]).all(|end| *end <= memory.bytes()), "a ring beyond its memory");
        Self { memory, offsets, size, of: PhantomData }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` checked that the word is inside the mapping, which is kept as long as `self`; the
        // kernel and this process only use it atomically, and its offset is a multiple of 4 (the kernel's
        // structure, page-aligned base).
        unsafe { self.memory.base().add(at).cast::<AtomicU32>().as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        let at = self.offsets.entries + (index & (self.size - 1)) as usize * size_of::<T>();
        // SAFETY: the masked index is below `size`, and `new` checked that so many entries are inside the
        // mapping.
        unsafe { self.memory.base().add(at).cast() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }
}

/// The filling end of a ring.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Entries filled, published or not.
    filled: u32,
    /// Entries published.
    published: u32,
    /// Entries that the consumer had taken at the last check.
    taken: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn new(memory: Mapping, offsets: Offsets, size: u32) -> Self {
        let ring = Ring::new(memory, offsets, size);
        let filled = ring.producer().load(Ordering::Relaxed);
        let taken = ring.consumer().load(Ordering::Acquire);
        Self { ring, filled, published: filled, taken }
    }

    /// Puts `entry` behind the others, invisible until [`Producer::publish`]; `false` if the ring is full.
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.filled.wrapping_sub(self.taken) >= self.ring.size {
            self.taken = self.ring.consumer().load(Ordering::Acquire);
            if self.filled.wrapping_sub(self.taken) >= self.ring.size {
                return false;
            }
        }
        // SAFETY: there is less than a ring between `filled` and the entries that the consumer has taken, so
        // this entry is ours.
        unsafe { self.ring.entry(self.filled).write(entry) };
        self.filled = self.filled.wrapping_add(1);
        true
    }

    /// Makes the pushed entries visible; returns how many.
    pub(super) fn publish(&mut self) -> u32 {
        let count = self.filled.wrapping_sub(self.published);
        if count > 0 {
            self.ring.producer().store(self.filled, Ordering::Release);
            self.published = self.filled;
        }
        count
    }

    /// Entries pushed that the consumer has not taken.
    pub(super) fn waiting(&self) -> u32 {
        let taken = self.ring.consumer().load(Ordering::Acquire);
        self.filled.wrapping_sub(taken).min(self.ring.size)
    }

    /// Whether the consumer sleeps and must be woken by a system call.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.word(self.ring.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The emptying end of a ring.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Entries taken, given back or not.
    taken: u32,
    /// Entries given back to the producer.
    released: u32,
    /// Entries that the producer had published at the last check.
    published: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn new(memory: Mapping, offsets: Offsets, size: u32) -> Self {
        let ring = Ring::new(memory, offsets, size);
        let taken = ring.consumer().load(Ordering::Relaxed);
        let published = ring.producer().load(Ordering::Acquire);
        Self { ring, taken, released: taken, published }
    }

    /// The next entry; its place is the producer's again only after [`Consumer::release`].
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.published == self.taken {
            self.published = self.ring.producer().load(Ordering::Acquire);
            if self.published == self.taken {
                return None;
            }
            if self.published.wrapping_sub(self.taken) > self.ring.size {
                self.published = self.taken.wrapping_add(self.ring.size);
            }
        }
        // SAFETY: the entry was published (acquired above) and not released, so it is not written.
        let entry = unsafe { self.ring.entry(self.taken).read() };
        self.taken = self.taken.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of all entries taken back to the producer.
    pub(super) fn release(&mut self) {
        if self.released != self.taken {
            self.ring.consumer().store(self.taken, Ordering::Release);
            self.released = self.taken;
        }
    }

    /// Entries published that were not taken.
    pub(super) fn waiting(&self) -> u32 {
        let published = self.ring.producer().load(Ordering::Acquire);
        published.wrapping_sub(self.taken).min(self.ring.size)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, entries: 192 };

    /// Both ends of one ring whose indices begin at `first`, over memory that is mapped twice.
    fn ends(size: u32, first: u32) -> (Producer<u64>, Consumer<u64>) {
        let file = File::from(memfd_create("ring", MemfdFlags::CLOEXEC).expect("a file in memory"));
        ftruncate(&file, 4_096).expect("its length");
        let map = || Mapping::shared(file.as_fd(), 0, 4_096).expect("a mapping");
        let begin = Ring::<u64>::new(map(), OFFSETS, size);
        begin.producer().store(first, Ordering::Relaxed);
        begin.consumer().store(first, Ordering::Relaxed);
        (Producer::new(map(), OFFSETS, size), Consumer::new(map(), OFFSETS, size))
    }

    #[test]
    fn nothing_is_seen_before_it_is_published_and_no_place_is_reused_before_it_is_released() {
        let (mut producer, mut consumer) = ends(2, u32::MAX);
        assert!(producer.push(1) && producer.push(2) && !producer.push(3));
        assert_eq!((consumer.waiting(), consumer.pop()), (0, None));
        producer.publish();
        assert_eq!((producer.waiting(), consumer.waiting()), (2, 2));
        assert_eq!(consumer.pop(), Some(1));
        assert!(!producer.push(3), "taken and not released");
        consumer.release();
        assert!(producer.push(3) && !producer.push(4));
        assert_eq!((consumer.pop(), consumer.pop()), (Some(2), None));
        producer.publish();
        assert_eq!((consumer.pop(), consumer.waiting()), (Some(3), 0));
    }

    #[test]
    fn order_survives_two_threads_and_the_end_of_the_numbers() {
        // Miri is some thousand times as slow.
        const COUNT: u64 = if cfg!(miri) { 200 } else { 100_000 };
        let (mut producer, mut consumer) = ends(16, u32::MAX - if cfg!(miri) { 100 } else { 1_000 });
        let sender = std::thread::spawn(move || {
            for number in 0..COUNT {
                while !producer.push(number) {
                    producer.publish();
                    std::thread::yield_now();
                }
                if number % 5 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        for number in 0..COUNT {
            let entry = loop {
                match consumer.pop() {
                    Some(entry) => break entry,
                    None => consumer.release(),
                }
                std::thread::yield_now();
            };
            assert_eq!(entry, number);
        }
        sender.join().expect("the sender ends");
    }

    #[test]
    fn an_index_that_cannot_be_true_touches_nothing_outside() {
        let (producer, mut consumer) = ends(4, 0);
        producer.ring.producer().store(1_000_000, Ordering::Release);
        assert_eq!(std::iter::from_fn(|| consumer.pop()).take(4).count(), 4);
    }

    #[test]
    fn the_other_side_requests_a_wake_up() {
        let (producer, consumer) = ends(4, 0);
        assert!(!producer.needs_wakeup());
        consumer.ring.word(OFFSETS.flags).store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }
}
