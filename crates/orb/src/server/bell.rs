//! Wakes the thread of a reactor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::counted::Mutex;
use crate::wakeup::Wakeup;

/// What other threads tell the thread of a reactor.
#[derive(Debug)]
pub(crate) struct Bell {
    wakeup: Wakeup,
    is_stopped: AtomicBool,
    /// Connections with bytes that their socket did not take.
    unsent: Mutex<Vec<u64>>,
}

impl Bell {
    pub fn new() -> io::Result<Self> {
        Ok(Self { wakeup: Wakeup::new()?, is_stopped: AtomicBool::new(false), unsent: Mutex::default() })
    }

    /// Wakes the reactor.
    pub fn ring(&self) {
        self.wakeup.wake();
    }

    /// The reactor is awake, and looks at everything that it was woken for.
    pub fn clear(&self) {
        self.wakeup.clear();
    }

    /// The reactor is to end.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.ring();
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// This connection has bytes that its socket did not take.
    pub fn has_unsent(&self, connection: u64) {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        self.ring();
    }

    /// The connections of which that was told.
    pub fn take_unsent(&self) -> Vec<u64> {
        std::mem::take(&mut *self.unsent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}
