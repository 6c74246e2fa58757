//! The free slots of a ring: a fixed-size stack without locks, since slots are reserved by the processor but
//! may be dropped anywhere.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Marks the end of the list: no slot.
const END: u32 = u32::MAX;

/// Indices 0 to n-1, each at most once. The head carries a tag that every change increments (no ABA).
#[derive(Debug)]
pub(super) struct FreeList {
    head: AtomicU64,
    next: Box<[AtomicU32]>,
}

impl FreeList {
    /// A list in which all of `0..slots` are free.
    pub(super) fn full(slots: u32) -> Self {
        let next = (0..slots)
            .map(|index| AtomicU32::new(if index + 1 == slots { END } else { index + 1 }))
            .collect();
        Self { head: AtomicU64::new(0), next }
    }

    /// Takes one.
    pub(super) fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = head as u32;
            let next = self.next.get(index as usize)?.load(Ordering::Relaxed);
            match self.head.compare_exchange_weak(
                head,
                tagged(head, next),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(index),
                Err(current) => head = current,
            }
        }
    }

    /// Gives one back; it must have come from `pop`.
    pub(super) fn push(&self, index: u32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.next[index as usize].store(head as u32, Ordering::Relaxed);
            match self.head.compare_exchange_weak(
                head,
                tagged(head, index),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(current) => head = current,
            }
        }
    }
}

/// `index` with the tag after that of `head`.
fn tagged(head: u64, index: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_each_slot_once() {
        let list = FreeList::full(3);
        let mut taken: Vec<u32> = std::iter::from_fn(|| list.pop()).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
        list.push(1);
        assert_eq!((list.pop(), list.pop()), (Some(1), None));
    }

    /// A thread that was interrupted in a `pop` must notice that the slot it saw was away meanwhile, though it is first again.
    #[test]
    fn the_head_is_another_one_when_its_slot_has_come_back() {
        let list = FreeList::full(2);
        let mut seen = vec![list.head.load(Ordering::Relaxed)];
        for _ in 0..100 {
            list.push(list.pop().expect("one is free"));
            seen.push(list.head.load(Ordering::Relaxed));
        }
        assert!(seen.iter().all(|head| *head as u32 == 0), "the same slot is first");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 101);
    }

    #[test]
    fn threads_never_share_a_slot() {
        let list = FreeList::full(4);
        let owners: Vec<AtomicU32> = (0..4).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(index) = list.pop() else { continue };
                        assert_eq!(owners[index as usize].fetch_add(1, Ordering::AcqRel), 0);
                        owners[index as usize].fetch_sub(1, Ordering::AcqRel);
                        list.push(index);
                    }
                });
            }
        });
        assert_eq!(std::iter::from_fn(|| list.pop()).count(), 4);
    }
}
