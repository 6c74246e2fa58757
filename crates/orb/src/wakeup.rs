//! Wakes a thread that polls descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that is readable from [`Wakeup::wake`] to [`Wakeup::clear`].
#[derive(Debug)]
pub(crate) struct Wakeup(OwnedFd);

impl Wakeup {
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the thread that polls.
    pub fn wake(&self) {
        // It fails only if the thread is awake by it already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// The thread is awake. What others did before they woke it is visible to it now.
    pub fn clear(&self) {
        // It fails only if nobody woke it.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8][..]);
    }
}

/// It wakes whoever waits for a future, too.
impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        Self::wake(&self);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
