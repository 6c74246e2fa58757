//! Passes events of the node to the thread that serves the applications.
//!
//! The processor only tries the lock (see [`crate::command`]) and keeps the events that it could not pass.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use punctual_os::wait::Doorbell;
use punctual_proto::api::Event;

use crate::error::EngineGone;

struct Queue {
    events: VecDeque<Event>,
    closed: bool,
}

/// The receiver of a node's events. Clones compete for them.
#[derive(Clone)]
pub struct Events {
    shared: Arc<SharedQueue>,
}

struct SharedQueue {
    queue: Mutex<Queue>,
    doorbell: Doorbell,
}

impl Events {
    pub(crate) fn new() -> std::io::Result<Self> {
        let queue = Mutex::new(Queue { events: VecDeque::new(), closed: false });
        Ok(Self { shared: Arc::new(SharedQueue { queue, doorbell: Doorbell::new()? }) })
    }

    /// The next event, `None` if there is none yet.
    ///
    /// # Errors
    /// `EngineGone` once the engine has stopped and every event was read.
    pub fn try_next(&self) -> Result<Option<Event>, EngineGone> {
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let event = queue.events.pop_front();
        if queue.closed {
            return event.map(Some).ok_or(EngineGone);
        }
        if queue.events.is_empty() {
            self.shared.doorbell.reset();
        }
        Ok(event)
    }

    /// Moves `from` over; `false` if that has to be tried again in a moment.
    pub(crate) fn try_put(&self, from: &mut VecDeque<Event>) -> bool {
        if from.is_empty() {
            return true;
        }
        let mut queue = match self.shared.queue.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        queue.events.append(from);
        drop(queue);
        self.shared.doorbell.ring();
        true
    }

    /// The last events; none will come after them.
    pub(crate) fn close(&self, from: &mut VecDeque<Event>) {
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.events.append(from);
        queue.closed = true;
        drop(queue);
        self.shared.doorbell.ring();
    }
}

impl AsFd for Events {
    /// Readable while there may be events, and permanently once the engine has ended. Do not read the
    /// descriptor; [`try_next`] does.
    ///
    /// [`try_next`]: Events::try_next
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.doorbell.as_fd()
    }
}
