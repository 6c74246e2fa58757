//! Connections whose programs have used their rings, from any thread to the processor.
//!
//! Programs say so with each write that finds a quiet connection. A thread of a real-time class must not wait there for an
//! ordinary thread that the CPU was taken from, as it would at a lock: setting is two atomic operations, whatever other threads
//! do. Nor does it take memory.
//!
//! Invariant: a bit of `groups` is set behind each bit of its word, and taken before it. So what is set while the processor looks
//! is found now or at its next look.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BITS: u32 = u64::BITS;

/// A set of numbers below a limit.
#[derive(Debug)]
pub(crate) struct ReadySet {
    words: Box<[AtomicU64]>,
    /// A bit for each word that may have one.
    groups: Box<[AtomicU64]>,
    is_closed: AtomicBool,
}

/// Where the processor looks, and what it has taken and not returned yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    group: u32,
    /// Words of `group` that are to be looked at.
    words: u64,
    word: u32,
    /// Numbers of `word` that are to be returned.
    bits: u64,
}

fn zeros(count: u32) -> Box<[AtomicU64]> {
    (0..count.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect()
}

impl ReadySet {
    /// A set of numbers below `limit`.
    pub fn new(limit: u32) -> Self {
        let words = zeros(limit);
        let groups = zeros(words.len() as u32);
        Self { words, groups, is_closed: AtomicBool::new(false) }
    }

    /// Adds a number; `false` if nobody takes it any more. A number at the limit or above is no connection's.
    pub fn insert(&self, number: u32) -> bool {
        let word = number / BITS;
        if let (Some(bits), Some(group)) =
            (self.words.get(word as usize), self.groups.get((word / BITS) as usize))
        {
            // Behind what the program wrote, and before the look at the word.
            bits.fetch_or(1 << (number % BITS), Ordering::Release);
            group.fetch_or(1 << (word % BITS), Ordering::Release);
        }
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Nobody takes numbers any more.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Takes a number out, in turn; `None` if there was none.
    pub fn take(&self, cursor: &mut Cursor) -> Option<u32> {
        // One round over all groups: it ends, whatever programs add meanwhile.
        for _ in 0..=self.groups.len() {
            while cursor.bits == 0 && cursor.words != 0 {
                cursor.word = cursor.group * BITS + pop(&mut cursor.words);
                cursor.bits = self.words[cursor.word as usize].swap(0, Ordering::Acquire);
            }
            if cursor.bits != 0 {
                return Some(cursor.word * BITS + pop(&mut cursor.bits));
            }
            cursor.group = (cursor.group + 1) % (self.groups.len() as u32).max(1);
            cursor.words =
                self.groups.get(cursor.group as usize).map_or(0, |group| group.swap(0, Ordering::Acquire));
        }
        None
    }
}

/// Takes the lowest bit out of `bits`, which has one.
const fn pop(bits: &mut u64) -> u32 {
    let lowest = bits.trailing_zeros();
    *bits &= *bits - 1;
    lowest
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn all(set: &ReadySet, cursor: &mut Cursor) -> Vec<u32> {
        std::iter::from_fn(|| set.take(cursor)).collect()
    }

    #[test]
    fn each_number_is_taken_once_however_often_it_was_set() {
        let (set, mut cursor) = (ReadySet::new(70_000), Cursor::default());
        assert_eq!(all(&set, &mut cursor), []);
        let numbers = [0, 1, 63, 64, 4_095, 4_096, 65_535, 69_999];
        for number in numbers.iter().chain(&numbers) {
            assert!(set.insert(*number));
        }
        let taken = all(&set, &mut cursor);
        assert_eq!(taken.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from(numbers));
        assert_eq!(taken.len(), numbers.len());
        assert_eq!(all(&set, &mut cursor), []);
        set.insert(64);
        assert_eq!(all(&set, &mut cursor), [64]);
    }

    #[test]
    fn numbers_at_the_limit_are_no_connections_and_a_closed_set_says_so() {
        for limit in [0, 64] {
            let (set, mut cursor) = (ReadySet::new(limit), Cursor::default());
            assert!(set.insert(limit) && set.insert(u32::MAX));
            assert_eq!(all(&set, &mut cursor), []);
            set.close();
            assert!(!set.insert(0));
        }
    }

    /// One that is set again and again does not keep the others waiting.
    #[test]
    fn numbers_take_turns() {
        let (set, mut cursor) = (ReadySet::new(200), Cursor::default());
        for number in [3, 130] {
            set.insert(number);
        }
        let taken: Vec<u32> = (0..4)
            .map(|_| {
                let number = set.take(&mut cursor).expect("one");
                set.insert(number);
                number
            })
            .collect();
        assert_eq!(taken.iter().filter(|number| **number == 3).count(), 2, "{taken:?}");
    }

    /// What a thread has written before it set its number is seen by whoever takes the number, and the last is never lost.
    #[test]
    fn what_was_written_before_is_seen() {
        const THREADS: u32 = 3;
        const ROUNDS: u32 = 20_000;
        let (set, mut cursor) = (ReadySet::new(THREADS * 64), Cursor::default());
        let written: Vec<AtomicU32> = (0..THREADS).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for (thread, written) in (0..THREADS).zip(&written) {
                let set = &set;
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        written.store(round, Ordering::Relaxed);
                        set.insert(thread * 64);
                    }
                });
            }
            let mut seen = [0; THREADS as usize];
            while seen.iter().any(|seen| *seen < ROUNDS) {
                if let Some(number) = set.take(&mut cursor) {
                    let thread = (number / 64) as usize;
                    seen[thread] = written[thread].load(Ordering::Relaxed);
                }
            }
        });
    }
}
