//! Rings of applications and frames of drivers: buffers that circulate between those who fill them and those who empty
//! them. Once made, nothing allocates.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant as RealTime};

use punctual_proto::Instant;
use punctual_proto::api::ChannelCounters;
use punctual_proto::memory::{Inbox, Memory, MessageInfo, MessageRead, MessageWrite, Outbox};

/// What the application at a ring reads without asking.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    is_touched: bool,
    /// As they were shown last.
    pub counters: ChannelCounters,
    /// How often what is said of the channel beside the counters has changed.
    pub outdated: u64,
    /// How often counters were shown.
    pub times: u64,
}

impl Shown {
    fn touch(&mut self) -> bool {
        !std::mem::replace(&mut self.is_touched, true)
    }
    fn show(&mut self, counters: &ChannelCounters) {
        assert!(self.is_touched, "shown though nothing was counted");
        *self = Self { is_touched: false, counters: *counters, times: self.times + 1, ..*self };
    }
}

/// What both ends of a ring share.
pub struct State<T> {
    queued: VecDeque<(Vec<u8>, T)>,
    free: Vec<Vec<u8>>,
    shown: Shown,
    /// Who waits for messages.
    reader: Option<Thread>,
}

/// How both ends of a ring share its state.
pub trait Share<T>: Clone + From<State<T>> {
    /// Does something with it.
    fn with<R>(&self, work: impl FnOnce(&mut State<T>) -> R) -> R;
}

/// For an application on its node's thread. Costs hardly any instructions.
pub struct SameThread<T>(Rc<RefCell<State<T>>>);

/// For an application on another thread.
pub struct OtherThread<T>(Arc<Mutex<State<T>>>);

impl<T> Clone for SameThread<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> From<State<T>> for SameThread<T> {
    fn from(state: State<T>) -> Self {
        Self(Rc::new(RefCell::new(state)))
    }
}

impl<T> Share<T> for SameThread<T> {
    fn with<R>(&self, work: impl FnOnce(&mut State<T>) -> R) -> R {
        work(&mut self.0.borrow_mut())
    }
}

impl<T> Clone for OtherThread<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> From<State<T>> for OtherThread<T> {
    fn from(state: State<T>) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }
}

impl<T> Share<T> for OtherThread<T> {
    fn with<R>(&self, work: impl FnOnce(&mut State<T>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Buffers of one size. Full ones are queued with what is known of them (`T`); clones are the same ring.
pub struct Ring<T, S: Share<T> = SameThread<T>> {
    shared: S,
    known: PhantomData<fn() -> T>,
}

/// An application's outgoing ring; with each message, when it was sent.
pub type TestOutbox = Ring<Instant>;
/// An application's incoming ring.
pub type TestInbox = Ring<MessageInfo>;
/// An outgoing ring whose application is on another thread.
pub type RemoteOutbox = Ring<Instant, OtherThread<Instant>>;
/// An incoming ring whose application is on another thread.
pub type RemoteInbox = Ring<MessageInfo, OtherThread<MessageInfo>>;
/// A driver's frames; none is queued here.
pub type Pool = Ring<()>;
/// A frame from a [`Pool`].
pub type Frame = Buffer<()>;

impl<T, S: Share<T>> Clone for Ring<T, S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), known: PhantomData }
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
        let free = (0..buffers).map(|_| vec![0; bytes]).collect();
        let queued = VecDeque::with_capacity(buffers);
        let state = State { queued, free, shown: Shown::default(), reader: None };
        Self { shared: state.into(), known: PhantomData }
    }

    fn with<R>(&self, work: impl FnOnce(&mut State<T>) -> R) -> R {
        self.shared.with(work)
    }

    fn buffer(&self, bytes: Vec<u8>) -> Buffer<T, S> {
        Buffer { bytes: Some(bytes), ring: self.clone() }
    }

    /// Buffers that nobody uses.
    pub fn free(&self) -> usize {
        self.with(|state| state.free.len())
    }

    /// Messages that are queued.
    pub fn waiting(&self) -> usize {
        self.with(|state| state.queued.len())
    }

    /// What the application sees of its channel.
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

    /// Puts `copies` of a message in whatever the ring's size, as a hostile application can.
    pub fn stuff(&self, message: &[u8], copies: usize, now: Instant) {
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
}

impl RemoteInbox {
    /// Waits until `count` messages are there.
    ///
    /// # Panics
    /// If they do not come in time.
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
            assert!(!left.is_zero(), "{} of {count} messages came", self.waiting());
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

/// A buffer that somebody uses. Dropping it gives it back to its ring.
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
        let (bytes, sent) = self.with(|state| state.queued.pop_front())?;
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
            state.queued.push_back((bytes, info));
            if let Some(reader) = state.reader.take() {
                reader.unpark();
            }
        });
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
