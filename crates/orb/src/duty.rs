//! What a thread must not do, and what it does while it waits.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use crate::transport::{Deadline, Stream};

/// Has other work for its thread while that waits for a reply.
pub(crate) trait Meanwhile {
    /// Does its work until there is something to read.
    ///
    /// # Errors
    /// `TimedOut`; those of waiting.
    fn work_until_readable(&self, stream: &Stream, deadline: Deadline) -> io::Result<()>;
}

thread_local! {
    static MEANWHILE: RefCell<Option<Rc<dyn Meanwhile>>> = const { RefCell::new(None) };
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

/// This thread does this while it waits for a reply.
pub(crate) fn set_meanwhile(work: Option<Rc<dyn Meanwhile>>) {
    MEANWHILE.set(work);
}

/// Does what this thread does while it waits, until there is something to read. Without such work, it does nothing.
pub(crate) fn work_until_readable(stream: &Stream, deadline: Deadline) -> io::Result<()> {
    match MEANWHILE.with_borrow(Clone::clone) {
        Some(work) => work.work_until_readable(stream, deadline),
        None => Ok(()),
    }
}
