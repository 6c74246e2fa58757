//! Messages on their way out of this host: which fragments are made, which the link has not sent yet.
//!
//! Owns the messages (and so their ring slots) until the link has sent the last fragment. Bounded by
//! `messages_max`; all memory is taken at the start.

use alloc::collections::VecDeque;

use punctual_analysis::Instant;

use crate::fragment::Fragmentation;
use crate::memory::MessageRead;

/// One message: its ring slot, and how far it is.
#[derive(Debug)]
struct Entry<T> {
    message: Option<T>,
    wire_number: u64,
    bytes: u32,
    cut: Fragmentation,
    logical_arrival: Instant,
    fragments_made: u16,
    /// How many are to be made: all, unless the rest was dropped.
    fragments_wanted: u16,
    /// Made and not yet sent.
    unsent: u16,
}

/// A fragment that is to be made next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// The message's place in this queue.
    pub number: u64,
    /// Its number in the channel.
    pub wire_number: u64,
    /// Index within the message.
    pub index: u16,
    /// Count of the message's fragments.
    pub fragments: u16,
    /// Length of the message.
    pub message_bytes: u32,
    /// Length of this fragment.
    pub bytes: u32,
    /// l of the message.
    pub logical_arrival: Instant,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Outgoing<T> {
    messages: VecDeque<Entry<T>>,
    /// Number of `messages[0]`.
    first: u64,
    /// Index of the first message that has fragments to be made.
    head: u32,
    messages_max: u32,
    fragment_bytes: u32,
}

impl<T: MessageRead> Outgoing<T> {
    pub fn new(messages_max: u32, fragment_bytes: u32) -> Self {
        let messages_max = messages_max.max(1);
        Self {
            messages: VecDeque::with_capacity(messages_max as usize),
            first: 0,
            head: 0,
            messages_max,
            fragment_bytes,
        }
    }

    pub fn is_full(&self) -> bool {
        self.messages.len() >= self.messages_max as usize
    }
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes a message in that has `wire_number` in its channel; the caller has looked at `is_full`. `false`
    /// where it cannot be cut (too many fragments); it is dropped then.
    pub fn push(&mut self, message: T, wire_number: u64, logical_arrival: Instant) -> bool {
        let bytes = message.len();
        let Some(cut) = Fragmentation::new(bytes, self.fragment_bytes) else { return false };
        self.messages.push_back(Entry {
            message: Some(message),
            wire_number,
            bytes,
            cut,
            logical_arrival,
            fragments_made: 0,
            fragments_wanted: cut.fragments(),
            unsent: 0,
        });
        true
    }

    /// The fragment to be made next.
    pub fn peek(&self) -> Option<Fragment> {
        let entry = self.messages.get(self.head as usize)?;
        self.fragment(self.first + u64::from(self.head), entry.fragments_made)
    }

    /// Marks the fragment of `peek` as made; it is unsent until `sent`.
    pub fn made(&mut self) {
        if let Some(entry) = self.messages.get_mut(self.head as usize) {
            entry.fragments_made += 1;
            entry.unsent += 1;
            self.advance_head();
        }
    }

    /// Makes no more fragments of the message of `peek`: its receiver will see a gap.
    pub fn drop_rest(&mut self) {
        if let Some(entry) = self.messages.get_mut(self.head as usize) {
            entry.fragments_wanted = entry.fragments_made;
            self.advance_head();
            self.retire();
        }
    }

    /// Fragment `index` of message `number`, as `peek` gave it; `None` where it is gone.
    pub fn fragment(&self, number: u64, index: u16) -> Option<Fragment> {
        let entry = self.entry(number)?;
        Some(Fragment {
            number,
            wire_number: entry.wire_number,
            index,
            fragments: entry.cut.fragments(),
            message_bytes: entry.bytes,
            bytes: entry.cut.extent(index)?.len,
            logical_arrival: entry.logical_arrival,
        })
    }

    /// Copies fragment `index` of message `number`; `None` where it is gone or does not fit.
    pub fn copy_to(&self, number: u64, index: u16, out: &mut [u8]) -> Option<usize> {
        let entry = self.entry(number)?;
        let extent = entry.cut.extent(index)?;
        let out = out.get_mut(..extent.len as usize)?;
        entry.message.as_ref()?.copy_to(extent.offset, out);
        Some(out.len())
    }

    /// The link has sent a fragment of message `number`; `true` when that was the message's last.
    pub fn sent(&mut self, number: u64) -> bool {
        let Some(index) = number.checked_sub(self.first) else { return false };
        let Some(entry) = self.messages.get_mut(index as usize) else { return false };
        entry.unsent = entry.unsent.saturating_sub(1);
        let done = entry.unsent == 0 && entry.fragments_made == entry.fragments_wanted;
        if done {
            entry.message = None;
            self.retire();
        }
        done
    }

    fn entry(&self, number: u64) -> Option<&Entry<T>> {
        self.messages.get(number.checked_sub(self.first)? as usize)
    }

    fn advance_head(&mut self) {
        while self.messages.get(self.head as usize).is_some_and(|m| m.fragments_made == m.fragments_wanted) {
            self.head += 1;
        }
    }

    /// Forgets finished messages in front. Each is forgotten once: constant work a message.
    fn retire(&mut self) {
        while self.head > 0 && self.messages.front().is_some_and(|m| m.unsent == 0) {
            self.messages.pop_front();
            self.first += 1;
            self.head -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use alloc::vec;
    use alloc::vec::Vec;

    struct Bytes(Rc<Vec<u8>>);
    impl MessageRead for Bytes {
        fn len(&self) -> u32 {
            self.0.len() as u32
        }
        fn copy_to(&self, offset: u32, out: &mut [u8]) {
            out.copy_from_slice(&self.0[offset as usize..offset as usize + out.len()]);
        }
    }

    #[test]
    fn slots_are_freed_when_the_last_fragment_is_sent() {
        let first = Rc::new((0..250u8).collect::<Vec<_>>());
        let mut queue = Outgoing::new(2, 100);
        assert!(queue.push(Bytes(first.clone()), 0, Instant(7)));
        assert!(queue.push(Bytes(Rc::new(vec![9; 10])), 5, Instant(8)));
        assert!(queue.is_full());
        let mut seen = Vec::new();
        while let Some(fragment) = queue.peek() {
            seen.push((fragment.wire_number, fragment.index, fragment.bytes));
            queue.made();
        }
        assert_eq!(seen, [(0, 0, 100), (0, 1, 100), (0, 2, 50), (5, 0, 10)]);
        let mut out = [0; 100];
        assert_eq!(queue.copy_to(0, 2, &mut out), Some(50));
        assert_eq!(out[..50], first[200..]);
        // Out of order: message 1 is sent first, its slot is free, and numbers stay right.
        assert!(queue.sent(1));
        assert!(!queue.sent(0));
        assert!(!queue.sent(0));
        assert_eq!(Rc::strong_count(&first), 2);
        assert!(queue.sent(0));
        assert_eq!(Rc::strong_count(&first), 1);
        assert!(queue.is_empty());
        assert!(!queue.sent(0), "a late completion of a forgotten message changes nothing");
    }

    #[test]
    fn a_dropped_rest_leaves_a_gap_and_frees_the_slot() {
        let mut queue = Outgoing::new(4, 100);
        assert!(queue.push(Bytes(Rc::new(vec![1; 250])), 0, Instant(0)));
        assert!(queue.push(Bytes(Rc::new(vec![2; 10])), 2, Instant(2)));
        queue.made();
        queue.drop_rest();
        assert_eq!(queue.peek().map(|f| f.wire_number), Some(2));
        assert!(queue.sent(0));
        queue.made();
        assert!(queue.sent(1));
        assert!(queue.is_empty());
    }
}
