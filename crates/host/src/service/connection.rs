//! The daemon's end of a connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use punctual_ipc::socket::discard_unread;
use rustix::net::{Shutdown, shutdown};

/// A connected socket. Before it closes it tells the other end, and reads what waits for it.
///
/// Freeing a packet wakes all who wait at the other end. A close frees all packets in one system call. Where the kernel does
/// not preempt system calls, nobody else runs on that CPU meanwhile, also no real-time thread: beside a million waiters and
/// ten requests for 1.7 s. So waiters are woken once, by the shutdown, and have time to go; and each packet is freed by a
/// call of its own.
#[derive(Debug)]
pub(super) struct Connection(OwnedFd);

impl Connection {
    pub(super) const fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A client that is gone already needs to be told nothing.
        let _ = shutdown(&self.0, Shutdown::Both);
        discard_unread(&self.0);
    }
}
