//! A record that the daemon writes and a program reads without asking: words behind a sequence lock.
//!
//! ```text
//! 0 turn   8 version   16 words: the first says of which turn the others are
//! ```
//!
//! The writer says that a turn has begun before anybody can see what it does ([`Writer::touch`]), and writes the words when
//! it ends ([`Writer::write`]). It waits for nobody. The reader copies them and takes the copy only where the version was
//! even before and is the same after: nobody wrote meanwhile. Whoever has seen an effect of a turn finds that it has begun,
//! and so looks again until the words are of that turn or a later one. How often is the caller's to say: what is left then
//! are the words of the turn before, all of one moment (`fuzz/models` tries every order).

use crate::shm::{Region, View};
use crate::sync::atomic::{Ordering, fence};

const VERSION: usize = 8;
const WORDS: usize = 16;

/// Bytes of a record with this many words besides the turn.
pub const fn bytes_of(words: usize) -> usize {
    WORDS + (words + 1) * 8
}

/// What the writer keeps of its record, at `at` in its region: it reads nothing back.
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

/// Copies the words of a record at `at` to the same places of `words`, after one for the turn. Looks once more while they
/// are not of the turn that had begun and `again` says so, which is told how often it has looked; `false` if no copy was
/// of one moment.
pub fn read(view: &View, at: usize, words: &mut [u64], mut again: impl FnMut(u32) -> bool) -> bool {
    let begun = view.word(at, Ordering::Acquire);
    let mut looks = 0;
    loop {
        let is_whole = copy(view, at, words);
        looks += 1;
        let is_due = is_whole && words.first().is_some_and(|turn| *turn >= begun);
        if is_due || !again(looks) {
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
