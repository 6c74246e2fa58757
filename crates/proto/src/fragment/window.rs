//! A sliding window of bits behind the newest message number: stores which messages are finished.

use alloc::boxed::Box;
use alloc::vec;
use core::slice;

/// Stores for each of the newest [`Window::span`] numbers whether it is closed (delivered or given up). Every
/// older number counts as closed: a number that leaves the window is never opened again.
#[derive(Debug)]
pub(super) struct Window {
    bits: Bits,
    /// The newest number that was closed, plus one. All numbers from here on are open.
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

    /// Memory of its own, in bytes.
    pub(super) fn room_bytes(&self) -> usize {
        match &self.bits {
            Bits::One(_) => 0,
            Bits::Many(words) => size_of_val(&**words),
        }
    }

    /// The newest number that was closed, plus one.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Number of message numbers that it stores one by one.
    pub(super) fn span(&self) -> u64 {
        self.bits.words().len() as u64 * 64
    }

    /// Whether no fragment of `number` may be taken any more. The largest number is never open, so that there
    /// always is a next one.
    pub(super) fn is_closed(&self, number: u64) -> bool {
        self.is_marked(number) || self.is_behind(number) || number == u64::MAX
    }

    /// Whether `number` is stored as closed.
    pub(super) fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = self.place(number);
        number < self.end && !self.is_behind(number) && self.bits.words()[word] & bit != 0
    }

    /// Whether `number` is older than the window.
    pub(super) fn is_behind(&self, number: u64) -> bool {
        self.end.saturating_sub(number) > self.span()
    }

    /// Closes `number`, and drops the numbers that leave the window. Takes at most one pass over the words of
    /// the window.
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
            self.open(self.end, end);
        }
        self.end = end;
    }

    /// Opens `from` to `end`, less than a window apart; a word at a time, as a number may be far ahead.
    fn open(&mut self, from: u64, end: u64) {
        let mut first = from;
        while first < end {
            let next = (first / 64 + 1).saturating_mul(64).min(end);
            let (word, bit) = self.place(first);
            // Bits from `first` on, without those from `next` on where that lies in the same word.
            let above = if next.is_multiple_of(64) { 0 } else { u64::MAX << (next % 64) };
            self.bits.words_mut()[word] &= !(bit.wrapping_neg() & !above);
            first = next;
        }
    }

    fn place(&self, number: u64) -> (usize, u64) {
        let word = (number / 64) as usize & (self.bits.words().len() - 1);
        (word, 1 << (number % 64))
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;
    use crate::signalling::SplitMix64;

    /// Compared with a set of all closed numbers: steps of every length, within a word, over words, over the
    /// whole window.
    #[test]
    fn it_stores_exactly_the_closed_ones_of_the_newest_numbers() {
        for (seed, span) in (0..).zip([1, 64, 65, 256, 1_024]) {
            let mut window = Window::new(span);
            let mut closed = BTreeSet::new();
            let mut random = SplitMix64::new(seed);
            for _ in 0..2_000 {
                let step = random.next() % [2, 70, window.span() + 70][(random.next() % 3) as usize];
                let number = (window.end + step).saturating_sub(random.next() % 2 * (window.span() / 2));
                window.close(number);
                closed.insert(number);
                for back in 0..window.span().min(window.end) {
                    let number = window.end - 1 - back;
                    assert_eq!(
                        window.is_closed(number),
                        closed.contains(&number),
                        "seed {seed}: {number} of {window:?}"
                    );
                }
                assert!(!window.is_closed(window.end), "seed {seed}: what is newer is open");
            }
        }
    }

    /// The window stores at least as many numbers as were requested. It rounds them up to whole words and
    /// their count up to a power of two; the first word costs no memory of its own.
    #[test]
    fn it_stores_at_least_the_requested_amount() {
        for (asked, span) in [(0, 64), (1, 64), (64, 64), (65, 128), (129, 256), (256, 256), (1_000, 1_024)] {
            let mut window = Window::new(asked);
            assert_eq!(window.span(), span, "{asked}");
            assert_eq!(window.room_bytes() as u64, if span == 64 { 0 } else { span / 8 });
            (0..span).for_each(|number| window.close(number));
            assert!(!window.is_behind(0) && window.is_marked(0) && window.end() == span);
            window.close(span);
            assert!(window.is_behind(0) && !window.is_marked(0) && window.is_closed(0));
        }
    }

    /// The same at the end of all numbers: the last bit of the last word is still that of a number a window
    /// before.
    #[test]
    fn it_stores_the_last_numbers_as_all_others() {
        for span in [64, 128] {
            for back in 0..=span + 2 {
                let mut window = Window::new(span as u32);
                let first = u64::MAX - 1 - back;
                window.close(first);
                window.close(u64::MAX - 1);
                assert_eq!((window.end(), window.is_marked(first)), (u64::MAX, back < span), "{span} {back}");
                assert_eq!(window.is_behind(first), back >= span, "{span} {back}");
                for number in u64::MAX - span..u64::MAX {
                    let closed = number == first || number == u64::MAX - 1;
                    assert_eq!(window.is_closed(number), closed, "{span} {back}: {number}");
                }
                assert!(window.is_closed(u64::MAX) && !window.is_marked(u64::MAX));
            }
        }
    }

    /// A window that starts again at a number has all numbers from there on open and all before it closed.
    /// This holds at the last number, too.
    #[test]
    fn it_starts_again_anywhere() {
        for number in [0, 1, 63, 64, 65, 1_000, u64::MAX - 64, u64::MAX - 1] {
            let mut window = Window::new(128);
            window.close(7);
            window.restart(number);
            assert!((1..200).all(|back| number < back || window.is_closed(number - back)), "{number}");
            assert!(
                (0..200).all(|on| number + 1 >= u64::MAX - on || !window.is_closed(number + on)),
                "{number}"
            );
            assert!(window.is_closed(u64::MAX), "there is always a next one");
            window.close(number);
            assert!(window.is_marked(number) && window.end() == number + 1);
        }
    }
}
