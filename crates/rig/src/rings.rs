//! Rings of applications and frames of drivers: buffers that circulate between a writer and a reader. After they are
//! created, nothing allocates.

use std::fmt;
use std::marker::PhantomData;
use std::thread;
use std::time::{Duration, Instant as RealTime};

use punctual_proto::Instant;
use punctual_proto::api::ChannelCounters;
use punctual_proto::memory::{Inbox, Memory, MessageInfo, MessageRead, MessageWrite, Outbox};

use crate::share::{OtherThread, SameThread, Share, Shown, State};

/// Messages that a ring which shows them in turns shows in one step at most.
pub const SHOWN_AT_ONCE: usize = 3;

/// Buffers of one size. Full ones are queued with their metadata (`T`); clones are the same ring.
pub struct Ring<T, S: Share<T> = SameThread<T>> {
    shared: S,
    metadata: PhantomData<fn() -> T>,
}

/// An application's outgoing ring; with each message, when it was sent.
pub type TestOutbox = Ring<Instant>;
/// An application's incoming ring.
pub type TestInbox = Ring<MessageInfo>;
/// An outgoing ring whose application is on another thread.
pub type RemoteOutbox = Ring<Instant, OtherThread<Instant>>;
/// An incoming ring whose application is on another thread.
pub type RemoteInbox = Ring<MessageInfo, OtherThread<MessageInfo>>;
/// A driver's frames. They are never queued.
pub type Pool = Ring<()>;
/// A frame from a [`Pool`].
pub type Frame = Buffer<()>;

impl<T, S: Share<T>> Clone for Ring<T, S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), metadata: PhantomData }
    }
}

impl<T, S: Share<T>> fmt::Debug for Ring<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ring")
    }
}

impl<T, S: Share<T>> Ring<T, S> {
    /// A ring with `buffers` of `bytes` each.
    pub fn new(buffers: usize, bytes: usize) -> Self {
        Self { shared: State::new(buffers, bytes).into(), metadata: PhantomData }
    }

    fn with<R>(&self, work: impl FnOnce(&mut State<T>) -> R) -> R {
        self.shared.with(work)
    }

    fn buffer(&self, bytes: Vec<u8>) -> Buffer<T, S> {
        Buffer { bytes: Some(bytes), ring: self.clone() }
    }

    /// Buffers that are not in use.
    pub fn free(&self) -> usize {
        self.with(|state| state.free.len())
    }

    /// Messages in the ring that the other side has not taken.
    pub fn waiting(&self) -> usize {
        self.with(|state| state.queued.len())
    }

    /// What the application can read of its channel.
    pub fn shown(&self) -> Shown {
        self.with(|state| state.shown.clone())
    }
}

impl<S: Share<Instant>> Ring<Instant, S> {
    /// Sends a message. `false` if the ring is full: the application would block.
    pub fn send(&self, message: &[u8], now: Instant) -> bool {
        self.with(|state| {
            let Some(mut buffer) = state.free.pop() else { return false };
            buffer.clear();
            buffer.extend_from_slice(message);
            state.queued.push_back((buffer, now));
            true
        })
    }

    /// Sends a message as soon as the node has found the ring empty: after its check, and before it looks again.
    ///
    /// # Panics
    /// If the ring is full.
    pub fn send_behind_check(&self, message: &[u8], now: Instant) {
        self.with(|state| {
            let mut buffer = state.free.pop().expect("room");
            buffer.clear();
            buffer.extend_from_slice(message);
            state.behind_check = Some((buffer, now));
        });
    }

    /// Adds `copies` of a message even if the ring is full, as a hostile application can.
    pub fn push_beyond_room(&self, message: &[u8], copies: usize, now: Instant) {
        self.with(|state| state.queued.extend((0..copies).map(|_| (message.to_vec(), now))));
    }
}

impl<S: Share<MessageInfo>> Ring<MessageInfo, S> {
    /// Reads the oldest message and frees its buffer. `false` if there is none.
    pub fn recv(&self, read: impl FnOnce(&[u8], MessageInfo)) -> bool {
        self.with(|state| {
            let Some((bytes, info)) = state.queued.pop_front() else { return false };
            read(&bytes[..info.len as usize], info);
            state.free.push(bytes);
            true
        })
    }

    /// Reads all messages, and frees their buffers.
    pub fn take_all(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while self.recv(|bytes, _| all.push(bytes.to_vec())) {}
        all
    }

    /// From now on, each message is shown after the application has taken the one before.
    pub fn show_in_turns(&self) {
        self.with(State::show_in_turns);
    }

    /// In a ring that shows messages in turns: the application takes each one as soon as it is shown.
    ///
    /// # Panics
    /// If the ring does not show messages in turns.
    pub fn become_eager(&self) {
        self.with(State::become_eager);
    }

    /// Messages that are not yet shown.
    pub fn held_back(&self) -> usize {
        self.with(|state| state.held_back())
    }
}

impl RemoteInbox {
    /// Waits until the ring has `count` messages.
    ///
    /// # Panics
    /// If they do not arrive in time.
    pub fn wait(&self, count: usize, patience: Duration) {
        let until = RealTime::now() + patience;
        let there = || {
            self.with(|state| {
                state.reader = Some(thread::current());
                state.queued.len()
            })
        };
        while there() < count {
            let left = until.saturating_duration_since(RealTime::now());
            assert!(!left.is_zero(), "{} of {count} messages arrived", self.waiting());
            thread::park_timeout(left);
        }
    }
}

impl Pool {
    /// A frame with these bytes.
    ///
    /// # Panics
    /// If no frame is free.
    pub fn frame(&self, bytes: &[u8]) -> Frame {
        let mut frame = self.with(|state| state.free.pop()).expect("the test's pool has a frame");
        frame.clear();
        frame.extend_from_slice(bytes);
        self.buffer(frame)
    }
}

/// A buffer in use. Dropping it gives it back to its ring.
pub struct Buffer<T, S: Share<T> = SameThread<T>> {
    bytes: Option<Vec<u8>>,
    ring: Ring<T, S>,
}

impl<T, S: Share<T>> AsRef<[u8]> for Buffer<T, S> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_deref().expect("it has its bytes until it is queued")
    }
}

impl<T, S: Share<T>> AsMut<[u8]> for Buffer<T, S> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes.as_deref_mut().expect("it has its bytes until it is queued")
    }
}

impl<T, S: Share<T>> Drop for Buffer<T, S> {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.ring.with(|state| state.free.push(bytes));
        }
    }
}

impl<S: Share<Instant>> MessageRead for Buffer<Instant, S> {
    fn len(&self) -> u32 {
        self.as_ref().len() as u32
    }
    fn copy_to(&self, offset: u32, out: &mut [u8]) {
        out.copy_from_slice(&self.as_ref()[offset as usize..offset as usize + out.len()]);
    }
}

impl<S: Share<MessageInfo>> MessageWrite for Buffer<MessageInfo, S> {
    fn copy_from(&mut self, offset: u32, bytes: &[u8]) {
        self.as_mut()[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }
}

impl<S: Share<Instant>> Outbox for Ring<Instant, S> {
    type Message = Buffer<Instant, S>;
    fn take(&mut self, _: Instant) -> Option<(Self::Message, Instant)> {
        let (bytes, sent) = self.with(State::take)?;
        Some((self.buffer(bytes), sent))
    }
    fn is_ready(&self) -> bool {
        self.waiting() > 0
    }
    fn touch(&mut self) -> bool {
        self.with(|state| state.shown.touch())
    }
    fn show(&mut self, counters: &ChannelCounters) {
        self.with(|state| state.shown.show(counters));
    }
    fn outdate(&mut self) {
        self.with(|state| state.shown.outdated += 1);
    }
}

impl<S: Share<MessageInfo>> Inbox for Ring<MessageInfo, S> {
    type Slot = Buffer<MessageInfo, S>;
    fn reserve(&mut self) -> Option<Self::Slot> {
        let bytes = self.with(|state| state.free.pop())?;
        Some(self.buffer(bytes))
    }
    fn publish(&mut self, mut slot: Self::Slot, info: MessageInfo) {
        let Some(bytes) = slot.bytes.take() else { return };
        self.with(|state| {
            state.publish((bytes, info));
            if let Some(reader) = state.reader.take() {
                reader.unpark();
            }
        });
    }
    fn unread(&self) -> u64 {
        self.waiting() as u64
    }
    fn resume(&mut self) -> bool {
        self.with(|state| {
            let all = (0..SHOWN_AT_ONCE).all(|_| state.may_show() && state.show_next());
            all && state.held_back() > 0
        })
    }
    fn show_one(&mut self) -> bool {
        self.with(State::show_next)
    }
    fn touch(&mut self) -> bool {
        self.with(|state| state.shown.touch())
    }
    fn show(&mut self, counters: &ChannelCounters) {
        self.with(|state| state.shown.show(counters));
    }
    fn outdate(&mut self) {
        self.with(|state| state.shown.outdated += 1);
    }
}

/// The buffers of a host that runs in the rig.
pub struct TestMemory;

impl Memory for TestMemory {
    type Frame = Frame;
    type Outbox = TestOutbox;
    type Inbox = TestInbox;
}
