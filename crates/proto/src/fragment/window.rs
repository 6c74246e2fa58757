//! Which message numbers are over: a sliding window of bits behind the newest number.

use alloc::boxed::Box;
use alloc::vec;

/// Remembers for the newest [`Window::span`] numbers whether each is closed (delivered or given up). Every
/// number older than that counts as closed: forgetting never opens a number again.
#[derive(Debug)]
pub(super) struct Window {
    bits: Box<[u64]>,
    /// One more than the newest number that was closed; all from here on are open.
    end: u64,
}

impl Window {
    /// A window over at least `span` numbers.
    pub(super) fn new(span: u32) -> Self {
        let words = (span as usize).div_ceil(64).next_power_of_two();
        Self { bits: vec![0; words].into_boxed_slice(), end: 0 }
    }

    /// Numbers that it remembers one by one.
    pub(super) fn span(&self) -> u64 {
        self.bits.len() as u64 * 64
    }

    /// Whether nothing of `number` may be taken in any more. The very last number is never open, so that
    /// there always is a next one.
    pub(super) fn is_closed(&self, number: u64) -> bool {
        self.is_marked(number) || self.is_behind(number) || number == u64::MAX
    }

    /// Whether `number` is remembered as closed.
    pub(super) fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = self.place(number);
        number < self.end && !self.is_behind(number) && self.bits[word] & bit != 0
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
            self.bits[word] |= bit;
        }
    }

    /// Starts again at `number`: it and all behind it are open, all before it closed.
    pub(super) fn restart(&mut self, number: u64) {
        self.bits.fill(u64::MAX);
        self.end = number;
    }

    /// Moves the window on so that it covers `number`.
    fn advance(&mut self, number: u64) {
        let end = number.saturating_add(1);
        if end <= self.end {
            return;
        }
        if end - self.end >= self.span() {
            self.bits.fill(0);
        } else {
            for fresh in self.end..end {
                let (word, bit) = self.place(fresh);
                self.bits[word] &= !bit;
            }
        }
        self.end = end;
    }

    fn place(&self, number: u64) -> (usize, u64) {
        let word = (number / 64) as usize & (self.bits.len() - 1);
        (word, 1 << (number % 64))
    }
}
