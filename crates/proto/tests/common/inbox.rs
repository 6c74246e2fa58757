//! An incoming ring.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use punctual_proto::api::ChannelCounters;
use punctual_proto::memory::{Inbox, MessageInfo, MessageWrite};

use super::Shown;

#[derive(Default)]
pub struct InRing {
    pub received: VecDeque<(Vec<u8>, MessageInfo)>,
    pub free: Vec<Vec<u8>>,
    pub shown: Shown,
    /// For a ring that delivers messages in turns; `None`: it delivers each at once.
    pub turns: Option<Turns>,
}

impl InRing {
    fn may_show(&self) -> bool {
        self.turns.as_ref().is_none_or(|turns| turns.is_eager || self.received.is_empty())
    }
    /// Delivers a message that waits for its turn; `false` if there is none.
    fn show_next(&mut self) -> bool {
        let Some(message) = self.turns.as_mut().and_then(|turns| turns.waiting.pop_front()) else {
            return false;
        };
        self.received.push_back(message);
        true
    }
    /// Messages that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.turns.as_ref().map_or(0, |turns| turns.waiting.len())
    }
}

/// A message is shown once the application has taken the one before.
#[derive(Default)]
pub struct Turns {
    waiting: VecDeque<(Vec<u8>, MessageInfo)>,
    /// The application takes each message as it is shown.
    pub is_eager: bool,
}

impl Turns {
    /// Most messages that are delivered in one turn.
    pub const SHOWN_AT_ONCE: usize = 3;
}

#[derive(Clone)]
pub struct TestInbox(pub Rc<RefCell<InRing>>);

impl TestInbox {
    pub fn new(messages: usize, bytes: usize) -> Self {
        let mut ring = InRing {
            received: VecDeque::with_capacity(messages),
            free: Vec::with_capacity(messages),
            shown: Shown::default(),
            turns: None,
        };
        ring.free.extend((0..messages).map(|_| vec![0; bytes]));
        Self(Rc::new(RefCell::new(ring)))
    }
    /// Reads all messages, and frees their slots.
    pub fn take_all(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while self.recv(|bytes, _| all.push(bytes.to_vec())) {}
        all
    }
    /// Reads a message and frees its slot.
    pub fn recv(&self, read: impl FnOnce(&[u8], MessageInfo)) -> bool {
        let mut ring = self.0.borrow_mut();
        let Some((bytes, info)) = ring.received.pop_front() else { return false };
        read(&bytes[..info.len as usize], info);
        ring.free.push(bytes);
        true
    }
}
pub struct TestSlot {
    bytes: Vec<u8>,
    ring: Rc<RefCell<InRing>>,
}
impl MessageWrite for TestSlot {
    fn copy_from(&mut self, offset: u32, bytes: &[u8]) {
        self.bytes[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }
}
impl Drop for TestSlot {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.ring.borrow_mut().free.push(std::mem::take(&mut self.bytes));
        }
    }
}
impl Inbox for TestInbox {
    type Slot = TestSlot;
    fn reserve(&mut self) -> Option<TestSlot> {
        let bytes = self.0.borrow_mut().free.pop()?;
        Some(TestSlot { bytes, ring: self.0.clone() })
    }
    fn publish(&mut self, mut slot: TestSlot, info: MessageInfo) {
        let message = (std::mem::take(&mut slot.bytes), info);
        let mut ring = self.0.borrow_mut();
        let waits = ring.waiting() > 0 || !ring.may_show();
        match &mut ring.turns {
            Some(turns) if waits => turns.waiting.push_back(message),
            _ => ring.received.push_back(message),
        }
    }
    fn resume(&mut self) -> bool {
        let mut ring = self.0.borrow_mut();
        let all = (0..Turns::SHOWN_AT_ONCE).all(|_| ring.may_show() && ring.show_next());
        all && ring.waiting() > 0
    }
    fn show_one(&mut self) -> bool {
        self.0.borrow_mut().show_next()
    }
    fn touch(&mut self) -> bool {
        self.0.borrow_mut().shown.touch()
    }
    fn show(&mut self, counters: &ChannelCounters) {
        self.0.borrow_mut().shown.show(counters);
    }
    fn outdate(&mut self) {
        self.0.borrow_mut().shown.outdated += 1;
    }
}
impl std::fmt::Debug for TestInbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestInbox")
    }
}
