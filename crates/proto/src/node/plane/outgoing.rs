//! Messages on their way out of this host: which fragments were made, and which the link has not sent yet.
//!
//! A queue owns the messages (and so their ring slots) until the link has sent the last fragment. They are in
//! one slab of the node, which has room for as many as all queues may hold. Room that was never used takes no
//! memory.

use punctual_analysis::Instant;

use crate::fragment::Fragmentation;
use crate::memory::MessageRead;
use crate::slab::{Fifo, Linked, Next, Slab};

/// A message in an outgoing queue: its ring slot, and its progress.
#[derive(Debug)]
pub(in crate::node) struct Entry<T> {
    message: Option<T>,
    wire_number: u64,
    arrival: Arrival,
    bytes: u32,
    cut: Fragmentation,
    /// The message behind this one in its queue.
    next: Next,
    fragments_made: u16,
    /// Made and not yet sent.
    unsent: u16,
}

impl<T> Linked for Entry<T> {
    fn next_mut(&mut self) -> &mut Next {
        &mut self.next
    }
    fn next(&self) -> Next {
        self.next
    }
}

impl<T> Entry<T> {
    /// Whether all its fragments are made.
    const fn is_made(&self) -> bool {
        self.fragments_made == self.cut.fragments()
    }

    /// Fragment `index` of it, where it is message `number` of its queue.
    fn fragment(&self, number: u64, index: u16) -> Option<Fragment> {
        Some(Fragment {
            number,
            wire_number: self.wire_number,
            index,
            fragments: self.cut.fragments(),
            message_bytes: self.bytes,
            bytes: self.cut.extent(index)?.len,
            arrival: self.arrival,
        })
    }
}

/// The messages of all queues of a node.
pub(in crate::node) type Messages<T> = Slab<Entry<T>>;

/// Memory that the room for one message takes, in bytes.
pub(in crate::node) const fn room_bytes<T: MessageRead>() -> usize {
    Messages::<T>::ITEM_BYTES
}

/// A fragment that is to be made next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct Fragment {
    /// The message's place in this queue.
    pub number: u64,
    /// Number of the message in the channel.
    pub wire_number: u64,
    /// Index within the message.
    pub index: u16,
    /// Count of the message's fragments.
    pub fragments: u16,
    /// Length of the message.
    pub message_bytes: u32,
    /// Length of this fragment.
    pub bytes: u32,
    /// When the message came.
    pub arrival: Arrival,
}

/// Logical arrival of a message, computed in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct Arrival {
    /// l, from which stages serve the message: not before this host could know of it.
    pub logical: Instant,
    /// l computed only from the times that the application reports; the message's lateness is measured from
    /// it.
    pub claimed: Instant,
}

impl Arrival {
    /// An arrival without delay at this host.
    pub const fn at(logical: Instant) -> Self {
        Self { logical, claimed: logical }
    }
}

/// The queue.
#[derive(Debug)]
pub(in crate::node) struct Outgoing {
    messages: Fifo,
    /// Number of the first of them.
    first: u64,
    /// Number of messages in the queue.
    len: u32,
    messages_max: u32,
    fragment_bytes: u32,
    /// Number of messages whose fragments are all made, and position of the message behind them.
    made: u32,
    head: Next,
}

impl Outgoing {
    /// A queue for `messages_max` (1 or more) messages; reserves room for them in `messages`.
    pub fn new<T: MessageRead>(messages: &mut Messages<T>, messages_max: u32, fragment_bytes: u32) -> Self {
        messages.add_room(messages_max);
        Self {
            messages: Fifo::EMPTY,
            first: 0,
            len: 0,
            messages_max,
            fragment_bytes,
            made: 0,
            head: Next::NONE,
        }
    }

    /// Frees all messages and the room of a short queue.
    pub fn dissolve<T: MessageRead>(mut self, messages: &mut Messages<T>) {
        while self.forget_first(messages) {}
        self.give_room_back(messages);
    }

    /// Frees the first message, whatever its state. Afterwards only this call is allowed on the queue.
    /// Returns whether there was a message.
    pub fn forget_first<T: MessageRead>(&mut self, messages: &mut Messages<T>) -> bool {
        let is_any = messages.pop(&mut self.messages).is_some();
        self.len -= u32::from(is_any);
        is_any
    }

    /// Frees the queue's room; called once, when the queue is empty.
    pub fn give_room_back<T: MessageRead>(&mut self, messages: &mut Messages<T>) {
        messages.remove_room(core::mem::take(&mut self.messages_max));
    }

    /// Memory that the queue's room takes, in bytes.
    pub const fn room_bytes<T: MessageRead>(&self) -> u64 {
        self.messages_max as u64 * room_bytes::<T>() as u64
    }

    /// Messages for which there is room.
    pub const fn room(&self) -> u32 {
        self.messages_max.saturating_sub(self.len)
    }
    pub const fn is_full(&self) -> bool {
        self.len >= self.messages_max
    }
    pub const fn len(&self) -> u32 {
        self.len
    }
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues a message with number `wire_number` in its channel. The caller must have checked `is_full`.
    /// Returns `false` and drops the message if it would need too many fragments.
    pub fn push<T: MessageRead>(
        &mut self,
        messages: &mut Messages<T>,
        message: T,
        wire_number: u64,
        arrival: Arrival,
    ) -> bool {
        let bytes = message.len();
        let Some(cut) = Fragmentation::new(bytes, self.fragment_bytes) else { return false };
        let entry = Entry {
            message: Some(message),
            wire_number,
            arrival,
            bytes,
            cut,
            next: Next::NONE,
            fragments_made: 0,
            unsent: 0,
        };
        let place = messages.push(&mut self.messages, entry);
        if self.head == Next::NONE {
            self.head = place;
        }
        self.len += 1;
        true
    }

    /// Whether a fragment is ready to be made.
    pub fn has_head<T: MessageRead>(&self, messages: &Messages<T>) -> bool {
        messages.at(self.head).is_some()
    }

    /// The fragment to be made next.
    pub fn peek<T: MessageRead>(&self, messages: &Messages<T>) -> Option<Fragment> {
        let entry = messages.at(self.head)?;
        entry.fragment(self.first + u64::from(self.made), entry.fragments_made)
    }

    /// Marks the fragment of `peek` as made; it is unsent until `sent`.
    pub fn made<T: MessageRead>(&mut self, messages: &mut Messages<T>) {
        if let Some(entry) = messages.at_mut(self.head) {
            entry.fragments_made += 1;
            entry.unsent += 1;
            self.advance_head(messages);
        }
    }

    /// Fragment `index` of message `number`, as `peek` returned it; `None` if the message is freed.
    pub fn fragment<T: MessageRead>(
        &self,
        messages: &Messages<T>,
        number: u64,
        index: u16,
    ) -> Option<Fragment> {
        messages.at(self.place(messages, number)?)?.fragment(number, index)
    }

    /// Copies fragment `index` of message `number`; `None` if the message is freed or the fragment does not
    /// fit.
    pub fn copy_to<T: MessageRead>(
        &self,
        messages: &Messages<T>,
        number: u64,
        index: u16,
        out: &mut [u8],
    ) -> Option<usize> {
        let entry = messages.at(self.place(messages, number)?)?;
        let extent = entry.cut.extent(index)?;
        let out = out.get_mut(..extent.len as usize)?;
        entry.message.as_ref()?.copy_to(extent.offset, out);
        Some(out.len())
    }

    /// Notes that the link has sent a fragment of message `number`; `true` if that was the message's last.
    pub fn sent<T: MessageRead>(&mut self, messages: &mut Messages<T>, number: u64) -> bool {
        let place = self.place(messages, number);
        let Some(entry) = place.and_then(|place| messages.at_mut(place)) else { return false };
        entry.unsent = entry.unsent.saturating_sub(1);
        let done = entry.unsent == 0 && entry.is_made();
        if done {
            entry.message = None;
            self.retire(messages);
        }
        done
    }

    /// Position of message `number`. Packets leave in the order of their messages, so it is the first one or
    /// close to it.
    fn place<T: MessageRead>(&self, messages: &Messages<T>, number: u64) -> Option<Next> {
        messages.place(&self.messages, number.checked_sub(self.first)?)
    }

    fn advance_head<T: MessageRead>(&mut self, messages: &Messages<T>) {
        while let Some(entry) = messages.at(self.head).filter(|entry| entry.is_made()) {
            self.head = entry.next();
            self.made += 1;
        }
    }

    /// Frees finished messages at the head. Each message is freed once, so the work per message is constant.
    fn retire<T: MessageRead>(&mut self, messages: &mut Messages<T>) {
        while self.made > 0 && messages.front(&self.messages).is_some_and(|m| m.unsent == 0) {
            messages.pop(&mut self.messages);
            self.first += 1;
            self.len -= 1;
            self.made -= 1;
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
        let mut messages = Messages::new();
        let mut queue = Outgoing::new(&mut messages, 2, 100);
        assert!(queue.push(&mut messages, Bytes(first.clone()), 0, Arrival::at(Instant(7))));
        assert!(queue.push(&mut messages, Bytes(Rc::new(vec![9; 10])), 5, Arrival::at(Instant(8))));
        assert!(queue.is_full());
        let mut seen = Vec::new();
        while let Some(fragment) = queue.peek(&messages) {
            seen.push((fragment.wire_number, fragment.index, fragment.bytes));
            queue.made(&mut messages);
        }
        assert_eq!(seen, [(0, 0, 100), (0, 1, 100), (0, 2, 50), (5, 0, 10)]);
        let mut out = [0; 100];
        assert_eq!(queue.copy_to(&messages, 0, 2, &mut out), Some(50));
        assert_eq!(out[..50], first[200..]);
        // Out of order: message 1 is sent first, its slot is freed, and numbers stay correct.
        assert!(queue.sent(&mut messages, 1));
        assert!(!queue.sent(&mut messages, 0));
        assert!(!queue.sent(&mut messages, 0));
        assert_eq!(Rc::strong_count(&first), 2);
        assert!(queue.sent(&mut messages, 0));
        assert_eq!(Rc::strong_count(&first), 1);
        assert!(queue.is_empty());
        assert!(!queue.sent(&mut messages, 0), "a late completion of a forgotten message changes nothing");
    }

    #[test]
    fn where_nothing_is_queued_nothing_is_made() {
        let mut messages = Messages::<Bytes>::new();
        let mut queue = Outgoing::new(&mut messages, 2, 100);
        queue.made(&mut messages);
        assert!(queue.is_empty() && queue.peek(&messages).is_none() && !queue.sent(&mut messages, 0));
    }

    /// A message has 65,535 fragments at most: one that would have more is given back to its application, and takes no room.
    #[test]
    fn what_cannot_be_cut_is_not_queued() {
        let mut messages = Messages::new();
        let mut queue = Outgoing::new(&mut messages, 2, 100);
        let longest = crate::limits::FRAGMENTS_MAX as usize * 100;
        for (len, fits) in [(longest + 1, false), (longest, true)] {
            let bytes = Rc::new(vec![0; len]);
            assert_eq!(queue.push(&mut messages, Bytes(bytes.clone()), 0, Arrival::at(Instant(0))), fits);
            assert_eq!((queue.is_empty(), queue.peek(&messages).is_none()), (!fits, !fits), "{len}");
            assert_eq!(Rc::strong_count(&bytes), 1 + usize::from(fits), "{len}");
        }
    }
}
