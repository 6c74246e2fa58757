//! Instants that real-time threads note, in memory that is there and touched before they run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use punctual::Instant;

/// A message that went wrong: its logical arrival, and when it was delivered or refused.
pub(super) type FailedMessage = (Instant, Instant);

/// A list of bounded length. Adding an entry neither waits nor allocates.
pub(super) struct Log {
    entries: Box<[[AtomicU64; 2]]>,
    /// Notes until now, those without room counted.
    noted: AtomicUsize,
}

impl Log {
    /// One with room for `len` notes.
    pub fn new(len: usize) -> Self {
        let log =
            Self { entries: (0..len).map(|_| Default::default()).collect(), noted: AtomicUsize::new(0) };
        // Memory of zeroes may be mapped at its first write only.
        log.entries.iter().flatten().for_each(|word| word.store(1, Ordering::Relaxed));
        log
    }

    pub fn note(&self, (logical, at): FailedMessage) {
        let index = self.noted.fetch_add(1, Ordering::Relaxed);
        if let Some([first, second]) = self.entries.get(index) {
            first.store(logical.0, Ordering::Relaxed);
            second.store(at.0, Ordering::Relaxed);
        }
    }

    /// How many there were.
    pub fn len(&self) -> u64 {
        self.noted.load(Ordering::Relaxed) as u64
    }

    /// The entries that found room; the others cannot be excused.
    pub fn read(&self) -> Vec<FailedMessage> {
        let read = |word: &AtomicU64| Instant(word.load(Ordering::Relaxed));
        let noted = self.noted.load(Ordering::Relaxed).min(self.entries.len());
        self.entries[..noted].iter().map(|[first, second]| (read(first), read(second))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted() {
        let log = Log::new(2);
        let notes = [1, 2, 3].map(|n| (Instant(n), Instant(10 * n)));
        notes.into_iter().for_each(|noted| log.note(noted));
        assert_eq!((log.read().as_slice(), log.len()), (&notes[..2], 3));
    }
}
