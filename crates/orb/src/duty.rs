//! What a thread must not do, and what it does while it waits.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::transport::{Deadline, left};
use crate::wakeup::Wakeup;

/// Work that a thread has while it waits for a reply.
pub(crate) trait Meanwhile {
    /// Whether the thread may do it now.
    fn may_work(&self) -> bool;

    /// The thread is going to wait.
    fn begin(&self);

    /// Becomes readable when there is work.
    fn when_readable(&self) -> BorrowedFd<'_>;

    /// In how long there is work at the latest.
    fn next_event(&self, now: Instant) -> Option<Duration>;

    /// Does what is there, without waiting for more.
    fn work(&self);
}

thread_local! {
    static MEANWHILE: RefCell<Vec<Rc<dyn Meanwhile>>> = const { RefCell::new(Vec::new()) };
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// This thread serves many connections: requests that an adapter holds wait without it.
pub(crate) fn never_wait_for_adapters() {
    MAY_WAIT.set(false);
}

/// Whether this thread may wait for an adapter.
pub(crate) fn may_wait_for_adapters() -> bool {
    MAY_WAIT.get()
}

/// This thread does this, too, while it waits for a reply.
pub(crate) fn add_meanwhile(work: Rc<dyn Meanwhile>) {
    MEANWHILE.with_borrow_mut(|all| all.push(work));
}

/// This thread does nothing any more while it waits.
pub(crate) fn forget_meanwhile() {
    drop(MEANWHILE.take());
}

fn works() -> Vec<Rc<dyn Meanwhile>> {
    MEANWHILE.with_borrow(|all| all.iter().filter(|work| work.may_work()).cloned().collect())
}

/// What wakes this thread if it has work meanwhile. Without such work it may wait as it likes.
pub(crate) fn wakeup_for_work() -> Option<Arc<Wakeup>> {
    if works().is_empty() { None } else { Wakeup::new().ok().map(Arc::new) }
}

/// Does what this thread does while it waits, until there is something to read. Without such work, it does nothing.
///
/// # Errors
/// `TimedOut`; those of waiting.
pub(crate) fn work_until_readable(awaited: impl AsFd, deadline: Deadline) -> io::Result<()> {
    let works = works();
    if works.is_empty() {
        return Ok(());
    }
    works.iter().for_each(|work| work.begin());
    loop {
        let now = Instant::now();
        let events = works.iter().filter_map(|work| work.next_event(now));
        let until = left(deadline)?.into_iter().chain(events).min();
        let of_work = works.iter().map(|work| work.when_readable());
        let all = std::iter::once(awaited.as_fd()).chain(of_work);
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, until.and_then(|until| Timespec::try_from(until).ok()).as_ref()) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
        works.iter().for_each(|work| work.work());
    }
}
