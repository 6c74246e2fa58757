//! Buffers of simulated hosts. Payload is a function of (channel, message), so a message needs no memory at
//! its sender and every byte can be checked at its receiver.
//!
//! Owns the rings between an application and its node, counted slot by slot. A node that drops a message, a
//! slot or a ring returns it here at once, so leaked objects are detected.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use punctual_analysis::Instant;
use punctual_proto::memory::{Inbox, Memory, MessageInfo, MessageRead, MessageWrite, Outbox};

use crate::dice::mix;
use crate::filters::Held;

/// Smallest message that identifies itself: it begins with the channel's key and the message's index.
pub const MESSAGE_BYTES_MIN: u32 = 16;

/// A message's identity; its bytes follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Key of the channel.
    pub key: u64,
    /// Index of the message.
    pub index: u64,
}

impl Content {
    fn word(self, position: u64) -> [u8; 8] {
        match position {
            0 => self.key,
            1 => self.index,
            n => mix(self.key.rotate_left(40) ^ self.index.rotate_left(20) ^ n),
        }
        .to_le_bytes()
    }

    /// Writes the bytes from `offset` on.
    pub fn write(self, offset: u32, out: &mut [u8]) {
        let first = u64::from(offset / 8);
        let missing = (8 - offset as usize % 8) % 8;
        let (head, rest) = out.split_at_mut(missing.min(out.len()));
        if !head.is_empty() {
            head.copy_from_slice(&self.word(first)[8 - missing..][..head.len()]);
        }
        let first = first + u64::from(missing > 0);
        let (words, tail) = rest.as_chunks_mut::<8>();
        let tail_at = first + words.len() as u64;
        for (position, word) in (first..).zip(words) {
            *word = self.word(position);
        }
        tail.copy_from_slice(&self.word(tail_at)[..tail.len()]);
    }

    /// The identity in `bytes`.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let key = bytes.get(..8)?.try_into().ok()?;
        let index = bytes.get(8..16)?.try_into().ok()?;
        Some(Self { key: u64::from_le_bytes(key), index: u64::from_le_bytes(index) })
    }

    /// Index of the first byte that differs from the sent one.
    pub fn first_difference(self, bytes: &[u8]) -> Option<usize> {
        let (words, tail) = bytes.as_chunks::<8>();
        let differs = |(position, word): (usize, &[u8; 8])| *word != self.word(position as u64);
        let at = words.iter().enumerate().position(differs).unwrap_or(words.len());
        let got = words.get(at).map_or(tail, |word| word);
        let sent = self.word(at as u64);
        got.iter().zip(&sent).position(|(got, sent)| got != sent).map(|wrong| at * 8 + wrong)
    }
}

thread_local! {
    static EFFORT: Cell<u64> = const { Cell::new(0) };
}

/// Operations on buffers by nodes of this thread since its start.
pub fn effort() -> u64 {
    EFFORT.get()
}

fn operation() {
    EFFORT.set(EFFORT.get() + 1);
}

/// The family of simulated buffers.
#[derive(Debug)]
pub struct SimMemory;

impl Memory for SimMemory {
    type Frame = SimFrame;
    type Outbox = SimOutbox;
    type Inbox = SimInbox;
}

/// A host's receive buffers: dropping a frame returns its buffer.
pub type FramePool = Rc<RefCell<Vec<Vec<u8>>>>;

/// A frame in a receive buffer.
#[derive(Debug)]
pub struct SimFrame {
    bytes: Vec<u8>,
    pool: FramePool,
    /// Counter of the frames of its path.
    held: Option<Held>,
    /// Counter of the frames that the node holds.
    taken: Option<Held>,
}

impl SimFrame {
    /// A copy of `bytes` in a buffer of `pool`.
    pub fn new(bytes: &[u8], pool: &FramePool) -> Self {
        let mut buffer = pool.borrow_mut().pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        Self { bytes: buffer, pool: pool.clone(), held: None, taken: None }
    }

    /// `held`, which counts the frame already, is decremented when the frame is dropped.
    pub fn counted_in(mut self, held: Option<Held>) -> Self {
        self.held = held;
        self
    }

    /// The node takes the frame: counted in `taken` until it is dropped or handed on.
    pub fn taken_by(mut self, taken: &Held) -> Self {
        taken.set(taken.get() + 1);
        self.taken = Some(taken.clone());
        self
    }

    /// The node has handed the frame on.
    pub fn give_up(&mut self) {
        if let Some(taken) = self.taken.take() {
            taken.set(taken.get() - 1);
        }
    }
}

impl AsRef<[u8]> for SimFrame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for SimFrame {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for SimFrame {
    fn drop(&mut self) {
        operation();
        self.give_up();
        self.pool.borrow_mut().push(std::mem::take(&mut self.bytes));
        if let Some(held) = &self.held {
            held.set(held.get() - 1);
        }
    }
}

#[derive(Debug)]
struct OutRing {
    key: u64,
    slots: u32,
    used: u32,
    queued: VecDeque<(Payload, u32, Instant)>,
}

/// What a message holds.
#[derive(Clone, Debug)]
enum Payload {
    /// Bytes that follow from its identity.
    Of(Content),
    /// Bytes that cannot be computed again: a segment.
    Bytes(Rc<[u8]>),
}

/// An application's outgoing ring; both sides hold a clone.
#[derive(Clone, Debug)]
pub struct SimOutbox(Rc<RefCell<OutRing>>);

impl SimOutbox {
    /// A ring for `slots` messages of channel `key`.
    pub fn new(key: u64, slots: u32) -> Self {
        Self(Rc::new(RefCell::new(OutRing { key, slots, used: 0, queued: VecDeque::new() })))
    }

    /// The application sends message `index` at `sent` on its host's clock; false if the ring is full.
    pub fn send(&self, index: u64, len: u32, sent: Instant) -> bool {
        let mut ring = self.0.borrow_mut();
        let free = ring.used < ring.slots;
        if free {
            ring.used += 1;
            let content = Payload::Of(Content { key: ring.key, index });
            ring.queued.push_back((content, len, sent));
        }
        free
    }

    /// Puts a message of these bytes; false if the ring is full.
    pub fn send_bytes(&self, bytes: &[u8], sent: Instant) -> bool {
        let mut ring = self.0.borrow_mut();
        let free = ring.used < ring.slots;
        if free {
            ring.used += 1;
            ring.queued.push_back((Payload::Bytes(bytes.into()), bytes.len() as u32, sent));
        }
        free
    }

    /// Whether there is room for a message.
    pub fn has_room(&self) -> bool {
        let ring = self.0.borrow();
        ring.used < ring.slots
    }

    /// Whether another handle of the ring exists.
    pub fn is_held(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }

    /// The application has terminated: drops the messages that it had sent.
    pub fn empty(&self) {
        let mut ring = self.0.borrow_mut();
        ring.used -= ring.queued.len() as u32;
        ring.queued.clear();
    }

    /// Messages that a node has taken and not returned.
    pub fn taken(&self) -> u32 {
        let ring = self.0.borrow();
        ring.used - ring.queued.len() as u32
    }
}

impl Outbox for SimOutbox {
    type Message = SimMessage;

    fn take(&mut self, _: Instant) -> Option<(SimMessage, Instant)> {
        operation();
        let mut ring = self.0.borrow_mut();
        let (payload, len, sent) = ring.queued.pop_front()?;
        Some((SimMessage { payload, len, ring: self.0.clone() }, sent))
    }

    fn is_ready(&self) -> bool {
        !self.0.borrow().queued.is_empty()
    }
}

/// A message that the node has taken from a ring.
#[derive(Debug)]
pub struct SimMessage {
    payload: Payload,
    len: u32,
    ring: Rc<RefCell<OutRing>>,
}

impl MessageRead for SimMessage {
    fn len(&self) -> u32 {
        self.len
    }
    fn copy_to(&self, offset: u32, out: &mut [u8]) {
        operation();
        match &self.payload {
            Payload::Of(content) => content.write(offset, out),
            Payload::Bytes(bytes) => {
                out.copy_from_slice(&bytes[offset as usize..offset as usize + out.len()])
            }
        }
    }
}

impl Drop for SimMessage {
    fn drop(&mut self) {
        operation();
        self.ring.borrow_mut().used -= 1;
    }
}

/// A message that a node has delivered, until the simulator has checked it.
#[derive(Debug)]
pub struct Delivered {
    /// Key of the inbox that delivered it.
    pub inbox: u64,
    /// Information of the node about it.
    pub info: MessageInfo,
    slot: SimSlot,
}

impl Delivered {
    /// The reassembled message.
    pub fn bytes(&self) -> &[u8] {
        let len = (self.info.len as usize).min(self.slot.bytes.len());
        &self.slot.bytes[..len]
    }
}

/// The shared store of one host's inboxes for delivered messages and free buffers.
#[derive(Clone, Debug, Default)]
pub struct Deliveries(Rc<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    delivered: RefCell<Vec<Delivered>>,
    spare: RefCell<Vec<Vec<u8>>>,
}

impl Deliveries {
    /// Messages delivered since the last call.
    pub fn take(&self) -> Vec<Delivered> {
        self.0.delivered.take()
    }
}

#[derive(Debug)]
struct InRing {
    key: u64,
    message_bytes_max: u32,
    host: Deliveries,
    slots: u32,
    used: u32,
}

/// An application's incoming ring.
#[derive(Debug)]
pub struct SimInbox(Rc<RefCell<InRing>>);

impl SimInbox {
    /// A ring for `slots` messages of a `host`.
    pub fn new(key: u64, slots: u32, message_bytes_max: u32, host: &Deliveries) -> Self {
        let ring = InRing { key, message_bytes_max, host: host.clone(), slots, used: 0 };
        Self(Rc::new(RefCell::new(ring)))
    }

    /// Another handle to the same ring, for observation.
    pub fn watch(&self) -> InboxWatch {
        InboxWatch(self.0.clone())
    }
}

/// Observes a ring that a node owns.
#[derive(Debug)]
pub struct InboxWatch(Rc<RefCell<InRing>>);

impl InboxWatch {
    /// Whether a handle other than an observer's exists.
    pub fn is_held(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }
}

impl Inbox for SimInbox {
    type Slot = SimSlot;

    fn reserve(&mut self) -> Option<SimSlot> {
        operation();
        let mut ring = self.0.borrow_mut();
        if ring.used >= ring.slots {
            return None;
        }
        ring.used += 1;
        let mut bytes = ring.host.0.spare.borrow_mut().pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(ring.message_bytes_max as usize, 0);
        Some(SimSlot { bytes, ring: self.0.clone() })
    }

    fn publish(&mut self, slot: SimSlot, info: MessageInfo) {
        operation();
        let ring = self.0.borrow();
        ring.host.0.delivered.borrow_mut().push(Delivered { inbox: ring.key, info, slot });
    }
}

/// A slot in which a message is reassembled; dropping it frees it.
#[derive(Debug)]
pub struct SimSlot {
    bytes: Vec<u8>,
    ring: Rc<RefCell<InRing>>,
}

impl MessageWrite for SimSlot {
    fn copy_from(&mut self, offset: u32, bytes: &[u8]) {
        operation();
        let start = (offset as usize).min(self.bytes.len());
        let end = (start + bytes.len()).min(self.bytes.len());
        self.bytes[start..end].copy_from_slice(&bytes[..end - start]);
    }
}

impl Drop for SimSlot {
    fn drop(&mut self) {
        operation();
        let mut ring = self.ring.borrow_mut();
        ring.used -= 1;
        ring.host.0.spare.borrow_mut().push(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_however_it_is_cut() {
        let content = Content { key: 3, index: 9 };
        let mut whole = [0; 100];
        content.write(0, &mut whole);
        let mut pieces = [0; 100];
        for (start, end) in [(0, 13), (13, 14), (14, 64), (64, 100)] {
            content.write(start as u32, &mut pieces[start..end]);
        }
        assert_eq!(whole, pieces);
        assert_eq!(Content::read(&whole), Some(content));
        assert_eq!(content.first_difference(&whole), None);
        whole[77] ^= 1;
        assert_eq!(content.first_difference(&whole), Some(77));
    }

    #[test]
    fn a_ring_slot_is_used_until_its_message_is_dropped() {
        let outbox = SimOutbox::new(1, 1);
        let mut node_side = outbox.clone();
        assert!(outbox.send(0, 20, Instant(5)) && !outbox.send(1, 20, Instant(6)));
        let (message, sent) = node_side.take(Instant(7)).expect("one waits");
        assert_eq!((message.len(), sent, node_side.is_ready()), (20, Instant(5), false));
        assert!(!outbox.send(1, 20, Instant(6)), "still in use by the node");
        drop(message);
        assert!(outbox.send(1, 20, Instant(7)));
    }

    #[test]
    fn an_inbox_refuses_when_full_and_cuts_what_is_too_long() {
        let host = Deliveries::default();
        let mut inbox = SimInbox::new(8, 1, 20, &host);
        let mut slot = inbox.reserve().expect("free");
        assert!(inbox.reserve().is_none());
        slot.copy_from(16, &[7; 100]);
        inbox.publish(slot, MessageInfo { len: 20, ..MessageInfo::default() });
        assert!(inbox.reserve().is_none(), "until the application has read it");
        let read = host.take().pop().expect("delivered");
        assert_eq!(read.bytes()[15..], [0, 7, 7, 7, 7]);
        drop(read);
        assert!(inbox.reserve().is_some());
    }
}
