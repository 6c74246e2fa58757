//! Requests within requests: while a servant waits for a reply, its thread serves others.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::Reactor;
use crate::duty::Meanwhile;

/// This is the thread of a reactor that calls servants.
impl Meanwhile for Reactor {
    /// Requests that are too deep are refused.
    fn may_work(&self) -> bool {
        true
    }

    fn begin(&self) {
        self.leave_served_alone();
    }

    fn when_readable(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn next_event(&self, now: Instant) -> Option<Duration> {
        self.next_look(now)
    }

    fn work(&self) {
        self.turn(Some(Duration::ZERO));
    }
}

impl Reactor {
    /// The connection whose request waits for another call is read again when that request is served.
    fn leave_served_alone(&self) {
        if let Some(connection) = self.served.borrow().last() {
            // It fails if the connection was not awaited.
            let _ = self.wait_for(connection, EventFlags::empty());
        }
    }
}
