//! Wakes the thread of a reactor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::counted::Mutex;

/// What other threads tell the thread of a reactor.
#[derive(Debug)]
pub(crate) struct Bell {
    event: OwnedFd,
    is_stopped: AtomicBool,
    /// Connections with bytes that their socket did not take.
    unsent: Mutex<Vec<u64>>,
}

impl Bell {
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, is_stopped: AtomicBool::new(false), unsent: Mutex::default() })
    }

    /// Wakes the reactor.
    pub fn ring(&self) {
        // It fails only if it rings already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// It does not ring any more. Whoever rang before has been heard.
    pub fn hush(&self) {
        // It fails only if it does not ring.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8][..]);
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
        self.event.as_fd()
    }
}
