//! Which message numbers are over: a sliding window of bits behind the newest number.

use alloc::boxed::Box;
use alloc::vec;
use core::slice;

/// Remembers for the newest [`Window::span`] numbers whether each is closed (delivered or given up). Every
/// number older than that counts as closed: forgetting never opens a number again.
#[derive(Debug)]
pub(super) struct Window {
    bits: Bits,
    /// One more than the newest number that was closed; all from here on are open.
    end: u64,
}

/// A power of two of words; a single one needs no memory of its own.
#[derive(Debug)]
enum Bits {
    One(u64),
    Many(Box<[u64]>),
}

impl Bits {
    fn words(&self) -> &[u64] {
        match self {
            Self::One(word) => slice::from_ref(word),
            Self::Many(words) => words,
        }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        match self {
            Self::One(word) => slice::from_mut(word),
            Self::Many(words) => words,
        }
    }
}

impl Window {
    /// A window over at least `span` numbers.
    pub(super) fn new(span: u32) -> Self {
        let words = (span as usize).div_ceil(64).next_power_of_two();
        let bits = if words <= 1 { Bits::One(0) } else { Bits::Many(vec![0; words].into_boxed_slice()) };
        Self { bits, end: 0 }
    }

    /// Numbers that it remembers one by one.
    pub(super) fn span(&self) -> u64 {
        self.bits.words().len() as u64 * 64
    }

    /// Whether nothing of `number` may be taken in any more. The very last number is never open, so that
    /// there always is a next one.
    pub(super) fn is_closed(&self, number: u64) -> bool {
        self.is_marked(number) || self.is_behind(number) || number == u64::MAX
    }

    /// Whether `number` is remembered as closed.
    pub(super) fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = self.place(number);
        number < self.end && !self.is_behind(number) && self.bits.words()[word] & bit != 0
    }

    /// Whether `number` is older than anything remembered.
    pub(super) fn is_behind(&self, number: u64) -> bool {
        self.end.saturating_sub(number) > self.span()
    }

    /// Closes `number`, and forgets what falls out of the window behind it. Takes at most one pass over the
    /// window.
    pub(super) fn close(&mut self, number: u64) {
        self.advance(number);
        let (word, bit) = self.place(number);
        if !self.is_behind(number) {
            self.bits.words_mut()[word] |= bit;
        }
    }

    /// Starts again at `number`: it and all behind it are open, all before it closed.
    pub(super) fn restart(&mut self, number: u64) {
        self.bits.words_mut().fill(u64::MAX);
        self.end = number;
    }

    /// Moves the window on so that it covers `number`.
    fn advance(&mut self, number: u64) {
        let end = number.saturating_add(1);
        if end <= self.end {
            return;
        }
        if end - self.end >= self.span() {
            self.bits.words_mut().fill(0);
        } else {
            for fresh in self.end..end {
                let (word, bit) = self.place(fresh);
                self.bits.words_mut()[word] &= !bit;
            }
        }
        self.end = end;
    }

    fn place(&self, number: u64) -> (usize, u64) {
        let word = (number / 64) as usize & (self.bits.words().len() - 1);
        (word, 1 << (number % 64))
    }
}
