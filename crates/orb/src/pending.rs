//! Outcomes that come later: as a future of any executor, by polling, or to a callback.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::counted::Mutex;
use crate::duty::{wakeup_for_work, work_until_readable};
use crate::outcome::Outcome;
use crate::transport::Deadline;

type Callback<T, E> = Box<dyn FnOnce(Result<T, E>) + Send>;

enum State<T, E> {
    Waiting(Option<Waker>),
    Calls(Callback<T, E>),
    Ready(Result<T, E>),
    Taken,
}

struct Slot<T, E> {
    state: Mutex<State<T, E>>,
    ready: Condvar,
}

impl<T, E> Slot<T, E> {
    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the outcome if it is there.
fn take<T, E>(state: &mut State<T, E>) -> Option<Result<T, E>> {
    match std::mem::replace(state, State::Taken) {
        State::Ready(outcome) => Some(outcome),
        other => {
            *state = other;
            None
        }
    }
}

/// The outcome of a call that does not wait. It is a future; the connection's reader wakes its task.
#[must_use = "the reply is lost if nobody asks for it"]
pub struct Pending<T, E>(Arc<Slot<T, E>>);

impl<T, E> fmt::Debug for Pending<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending(ready: {})", self.is_ready())
    }
}

/// The other end of a [`Pending`].
pub(crate) struct Promise<T, E> {
    slot: Arc<Slot<T, E>>,
    read: fn(Outcome<'_>) -> Result<T, E>,
}

impl<T, E> Pending<T, E> {
    pub(crate) fn new(read: fn(Outcome<'_>) -> Result<T, E>) -> (Self, Promise<T, E>) {
        let slot = Arc::new(Slot { state: Mutex::new(State::Waiting(None)), ready: Condvar::new() });
        (Self(Arc::clone(&slot)), Promise { slot, read })
    }

    /// Whether the outcome is there.
    pub fn is_ready(&self) -> bool {
        matches!(*self.0.lock(), State::Ready(_))
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    /// Those of the call.
    pub fn wait(self) -> Result<T, E> {
        // A thread that serves requests goes on with it.
        let _ = self.work_until_ready(None);
        let mut state = self.0.lock();
        loop {
            if let Some(outcome) = take(&mut state) {
                return outcome;
            }
            state = self.0.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the outcome at most so long: if it is not there, the answer can be asked again.
    ///
    /// # Errors
    /// `self` if the outcome is not there yet.
    pub fn wait_for(self, timeout: Duration) -> Result<Result<T, E>, Self> {
        let end = Instant::now() + timeout;
        let _ = self.work_until_ready(Some(end));
        let mut state = self.0.lock();
        loop {
            if let Some(outcome) = take(&mut state) {
                return Ok(outcome);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                return Err(self);
            }
            state = self.0.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Does what this thread does while it waits for a reply, if it has such work, until the outcome is there.
    fn work_until_ready(&self, deadline: Deadline) -> io::Result<()> {
        let Some(wakeup) = wakeup_for_work() else { return Ok(()) };
        let mut state = self.0.lock();
        if !matches!(*state, State::Waiting(_)) {
            return Ok(());
        }
        *state = State::Waiting(Some(Waker::from(Arc::clone(&wakeup))));
        drop(state);
        work_until_readable(&*wakeup, deadline)
    }

    /// Calls `callback` with the outcome: in the thread that reads it, or at once if it is there.
    pub fn on_reply(self, callback: impl FnOnce(Result<T, E>) + Send + 'static) {
        let mut state = self.0.lock();
        match take(&mut state) {
            Some(outcome) => {
                drop(state);
                callback(outcome);
            }
            None => *state = State::Calls(Box::new(callback)),
        }
    }
}

impl<T, E> Promise<T, E> {
    /// The outcome is there.
    pub fn fulfil(self, outcome: Outcome<'_>) {
        let outcome = (self.read)(outcome);
        let mut state = self.slot.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Calls(callback) => {
                drop(state);
                callback(outcome);
            }
            State::Waiting(waker) => {
                *state = State::Ready(outcome);
                drop(state);
                self.slot.ready.notify_all();
                waker.into_iter().for_each(Waker::wake);
            }
            State::Ready(_) | State::Taken => {}
        }
    }
}

impl<T, E> Future for Pending<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match take(&mut state) {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                *state = State::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}
