//! The daemon's end of a connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use punctual_ipc::socket::discard_unread;
use rustix::net::{Shutdown, shutdown};

/// A connected socket. Before it closes, it shuts the socket down for both ends and reads the unread packets.
///
/// Freeing a packet wakes all threads that wait at the other end. A close frees all packets in one system
/// call. If the kernel does not preempt system calls, no other thread runs on that CPU meanwhile, not even a
/// real-time thread: with a million waiters and ten requests for 1.7 s. So waiters are woken once, by the
/// shutdown, and have time to leave. Each packet is freed by a system call of its own.
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
        // A client that is gone already needs no notice.
        let _ = shutdown(&self.0, Shutdown::Both);
        discard_unread(&self.0);
    }
}
