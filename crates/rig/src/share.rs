//! What both ends of a ring share, and how: on one thread, or behind a lock.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;

use punctual_proto::api::ChannelCounters;

/// What an application can read at its ring at any time.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    is_touched: bool,
    /// As they were shown last.
    pub counters: ChannelCounters,
    /// How often the node has marked the rest of the channel's state as out of date.
    pub outdated: u64,
    /// How often counters were shown.
    pub times: u64,
}

impl Shown {
    pub(crate) fn touch(&mut self) -> bool {
        !std::mem::replace(&mut self.is_touched, true)
    }
    pub(crate) fn show(&mut self, counters: &ChannelCounters) {
        assert!(self.is_touched, "shown although nothing was counted");
        *self = Self { is_touched: false, counters: *counters, times: self.times + 1, ..*self };
    }
}

/// What both ends of a ring share.
pub struct State<T> {
    pub(crate) queued: VecDeque<(Vec<u8>, T)>,
    pub(crate) free: Vec<Vec<u8>>,
    /// A message that comes as soon as the other side has found the ring empty.
    pub(crate) behind_check: Option<(Vec<u8>, T)>,
    pub(crate) shown: Shown,
    /// The thread that waits for messages.
    pub(crate) reader: Option<Thread>,
    /// Of an incoming ring that shows messages in turns; `None`: it shows each at once.
    pub(crate) turns: Option<Turns<T>>,
}

/// A message is shown after the application has taken the one before.
pub(crate) struct Turns<T> {
    held_back: VecDeque<(Vec<u8>, T)>,
    /// The application takes each message as soon as it is shown.
    is_eager: bool,
}

impl<T> State<T> {
    /// A ring with `buffers` of `bytes` each.
    pub(crate) fn new(buffers: usize, bytes: usize) -> Self {
        Self {
            queued: VecDeque::with_capacity(buffers),
            free: (0..buffers).map(|_| vec![0; bytes]).collect(),
            behind_check: None,
            shown: Shown::default(),
            reader: None,
            turns: None,
        }
    }

    /// The oldest message in the ring. If there is none, one that waited for this check comes now.
    pub(crate) fn take(&mut self) -> Option<(Vec<u8>, T)> {
        let oldest = self.queued.pop_front();
        if oldest.is_none() {
            self.queued.extend(self.behind_check.take());
        }
        oldest
    }

    /// From now on, messages are shown in turns.
    pub(crate) fn show_in_turns(&mut self) {
        self.turns = Some(Turns { held_back: VecDeque::new(), is_eager: false });
    }

    /// See [`Turns`].
    ///
    /// # Panics
    /// If messages are not shown in turns.
    pub(crate) fn become_eager(&mut self) {
        self.turns.as_mut().expect("messages are shown in turns").is_eager = true;
    }

    /// Messages that are not yet shown.
    pub(crate) fn held_back(&self) -> usize {
        self.turns.as_ref().map_or(0, |turns| turns.held_back.len())
    }

    /// Whether a message can be shown now.
    pub(crate) fn may_show(&self) -> bool {
        self.turns.as_ref().is_none_or(|turns| turns.is_eager || self.queued.is_empty())
    }

    /// Shows the oldest message that is held back; `false` if there is none.
    pub(crate) fn show_next(&mut self) -> bool {
        let Some(message) = self.turns.as_mut().and_then(|turns| turns.held_back.pop_front()) else {
            return false;
        };
        self.queued.push_back(message);
        true
    }

    /// Adds a message, which is shown at once or held back.
    pub(crate) fn publish(&mut self, message: (Vec<u8>, T)) {
        let is_next = self.may_show() && self.held_back() == 0;
        match &mut self.turns {
            Some(turns) if !is_next => turns.held_back.push_back(message),
            _ => self.queued.push_back(message),
        }
    }
}

/// How both ends of a ring share its state.
pub trait Share<T>: Clone + From<State<T>> {
    /// Calls `work` with the state.
    fn with<R>(&self, work: impl FnOnce(&mut State<T>) -> R) -> R;
}

/// For an application on the thread of its node. Costs few instructions.
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
