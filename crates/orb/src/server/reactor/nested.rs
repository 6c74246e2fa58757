//! Requests within requests: while a servant waits for a reply, its thread serves others.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, poll};

use super::{Reactor, timespec};
use crate::duty::Meanwhile;
use crate::transport::{Deadline, Stream, left};

impl Meanwhile for Reactor {
    /// Serves requests: this is the thread of a reactor that calls servants.
    fn work_until_readable(&self, stream: &Stream, deadline: Deadline) -> io::Result<()> {
        self.leave_served_alone();
        loop {
            let now = Instant::now();
            let until = [left(deadline)?, self.next_event(now)].into_iter().flatten().min();
            let mut fds = [PollFd::new(stream, PollFlags::IN), PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut fds, until.and_then(timespec).as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            self.turn(Some(Duration::ZERO));
        }
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
