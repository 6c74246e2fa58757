//! Requests within requests: while a servant waits for a reply, its thread serves others.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, poll};

use super::{Reactor, timespec};
use crate::transport::{Deadline, Stream, left};

thread_local! {
    static OF_THREAD: RefCell<Option<Rc<Reactor>>> = const { RefCell::new(None) };
}

/// This thread has this reactor, whose servants may wait for replies.
pub(super) fn set_of_thread(reactor: Option<Rc<Reactor>>) {
    OF_THREAD.set(reactor);
}

/// Serves requests until there is something to read, if this is the thread of a reactor that calls servants.
pub(crate) fn serve_until_readable(stream: &Stream, deadline: Deadline) -> io::Result<()> {
    let Some(reactor) = OF_THREAD.with_borrow(Clone::clone) else { return Ok(()) };
    reactor.leave_served_alone();
    loop {
        let now = Instant::now();
        let until = [left(deadline)?, reactor.next_event(now)].into_iter().flatten().min();
        let mut fds = [PollFd::new(stream, PollFlags::IN), PollFd::new(&reactor.epoll, PollFlags::IN)];
        match poll(&mut fds, until.and_then(timespec).as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
        reactor.turn(Some(Duration::ZERO));
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
