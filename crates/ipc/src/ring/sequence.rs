//! A record that the daemon writes and a program reads without a request: words behind a sequence lock.
//!
//! ```text
//! 0 turn   8 version   16 words: the first one is the turn that the others belong to
//! ```
//!
//! The writer announces that a turn has begun before the turn has any visible effect ([`Writer::touch`]), and
//! writes the words when the turn ends ([`Writer::write`]). It never waits. The reader copies the words, and
//! accepts the copy only if the version was even before and is unchanged after: then no write overlapped it.
//! A thread that has seen an effect of a turn finds that the turn has begun, and so reads again until the
//! words are of that turn or a later one. The caller sets how often. After that it gets the words of the turn
//! before, which are consistent (`fuzz/models` tries every order).

use crate::shm::{Region, View};
use crate::sync::atomic::{Ordering, fence};

const VERSION: usize = 8;
const WORDS: usize = 16;

/// Bytes of a record with this many words besides the turn.
pub const fn bytes_of(words: usize) -> usize {
    WORDS + (words + 1) * 8
}

/// What the writer keeps of its record, at `at` in its region: it never reads it back.
#[derive(Debug)]
pub struct Writer {
    at: usize,
    words: usize,
    turn: u64,
    version: u64,
    is_touched: bool,
}

impl Writer {
    /// The writer of a record that is all zero, with this many words besides the turn.
    pub const fn new(at: usize, words: usize) -> Self {
        Self { at, words, turn: 0, version: 0, is_touched: false }
    }

    /// Begins a turn; call it before each effect. Returns `true` for the first one of a turn: the words are
    /// due at its end.
    pub fn touch(&mut self, region: &Region) -> bool {
        if self.is_touched {
            return false;
        }
        self.is_touched = true;
        self.turn += 1;
        region.word(self.at).store(self.turn, Ordering::Release);
        true
    }

    /// The turn is over: writes its first words, and those of the others that have changed, each with its index.
    pub fn write(&mut self, region: &Region, first: &[u64], changed: impl Iterator<Item = (usize, u64)>) {
        self.is_touched = false;
        let version = region.word(self.at + VERSION);
        version.store(self.version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        region.word(self.at + WORDS).store(self.turn, Ordering::Relaxed);
        let words = region.words(self.at + WORDS + 8, self.words);
        words.iter().zip(first).for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
        changed.for_each(|(index, word)| words[index].store(word, Ordering::Relaxed));
        self.version += 2;
        version.store(self.version, Ordering::Release);
    }
}

/// Copies the words of a record at `at` to the same places of `words`, after one for the turn. Repeats the
/// copy while the words are older than the turn that had begun and `again`, which receives the number of
/// copies so far, returns `true`. Returns `false` if no copy was consistent.
pub fn read(view: &View, at: usize, words: &mut [u64], mut again: impl FnMut(u32) -> bool) -> bool {
    let begun = view.word(at, Ordering::Acquire);
    let mut attempts = 0;
    loop {
        let is_whole = copy(view, at, words);
        attempts += 1;
        let is_due = is_whole && words.first().is_some_and(|turn| *turn >= begun);
        if is_due || !again(attempts) {
            return is_whole;
        }
    }
}

fn copy(view: &View, at: usize, words: &mut [u64]) -> bool {
    let before = view.word(at + VERSION, Ordering::Acquire);
    if !before.is_multiple_of(2) {
        return false;
    }
    view.words(at + WORDS, words);
    fence(Ordering::Acquire);
    view.word(at + VERSION, Ordering::Relaxed) == before
}
