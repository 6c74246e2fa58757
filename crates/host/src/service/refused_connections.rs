//! Refused connections whose reason was not read yet, and a spare descriptor: if descriptors run out, the
//! service can still accept a connection and identify its user.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use punctual_ipc::api::{ApiError, FromDaemon};
use punctual_ipc::socket::{self, Packet, Peer};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::net::{SendFlags, SocketFlags, accept_with};

use super::connection::Connection;
use super::quota::is_privileged;

/// Refused connections that are kept at once; the oldest goes first.
const LINGERING_MAX: usize = 32;
/// Time that a refused connection has to read why.
const LINGER: Duration = Duration::from_secs(1);

/// Refused connections. If one were closed while it has unread data of its client, the client would get an
/// error in place of the reason. So they stay until the client is gone, or for a limited time.
#[derive(Debug, Default)]
pub(super) struct RefusedConnections(VecDeque<(Connection, Instant)>);

impl RefusedConnections {
    /// Sends the reason why a connection is refused.
    pub(super) fn refuse(&mut self, socket: Connection, why: &Packet) {
        // A fresh socket has room; a closed one needs no reason.
        let _ = socket::send(&socket, why, SendFlags::DONTWAIT);
        self.linger(socket);
    }

    /// Keeps a connection that was sent the reason of its end. Its client sees the end of file after that
    /// reason.
    pub(super) fn linger(&mut self, socket: Connection) {
        if self.0.len() >= LINGERING_MAX {
            self.0.pop_front();
        }
        // A disconnected client is not affected.
        let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Write);
        self.0.push_back((socket, Instant::now() + LINGER));
    }

    /// Adds them to the descriptors to poll; returns the maximum time to wait.
    pub(super) fn watch<'a>(&'a self, set: &mut Vec<PollFd<'a>>) -> Option<Duration> {
        // These sockets are watched for their end of file only: data from the clients is ignored.
        let none = PollFlags::empty();
        set.extend(self.0.iter().map(|(socket, _)| PollFd::from_borrowed_fd(socket.as_fd(), none)));
        self.0.front().map(|(_, until)| until.saturating_duration_since(Instant::now()))
    }

    /// Drops the connections that are gone, in the order of [`Self::watch`], or whose time has expired.
    pub(super) fn clear(&mut self, gone: &[bool]) {
        let (now, mut gone) = (Instant::now(), gone.iter());
        self.0.retain(|(_, until)| !gone.next().copied().unwrap_or(false) && *until > now);
    }
}

/// Root has the last descriptor.
#[derive(Debug)]
pub(super) struct NoSpareDescriptor;

/// A descriptor that is closed for a moment if no other is left.
#[derive(Debug)]
pub(super) struct Spare(Option<OwnedFd>);

impl Spare {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Some(eventfd(0, EventfdFlags::CLOEXEC)?)))
    }

    /// Accepts a connection in place of the spare descriptor. A connection of root is returned. Any other
    /// gets the reason and is closed.
    ///
    /// # Errors
    /// If there is no spare descriptor: root has it.
    pub(super) fn accept(&mut self, listening: &OwnedFd) -> Result<Option<OwnedFd>, NoSpareDescriptor> {
        self.0.take().ok_or(NoSpareDescriptor)?;
        let accepted = accept_with(listening, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok();
        let kept = accepted.and_then(|socket| {
            let peer = Peer::of(&socket).ok()?;
            if is_privileged(peer.user) {
                return Some(socket);
            }
            let why = ApiError::Ring(
                "the daemon has no descriptor left: close some connections, or raise its limit \
                 (LimitNOFILE)"
                    .into(),
            );
            if let Ok(packet) = Packet::new(&FromDaemon::Answer { id: 0, result: Err(why) }, Vec::new()) {
                let _ = socket::send(&socket, &packet, SendFlags::DONTWAIT);
            }
            drop(Connection::new(socket));
            None
        });
        // Fails if root took the descriptor: then the next connection waits.
        self.renew();
        Ok(kept)
    }

    /// Opens the spare descriptor again if descriptors are available.
    pub(super) fn renew(&mut self) {
        if self.0.is_none() {
            self.0 = eventfd(0, EventfdFlags::CLOEXEC).ok();
        }
    }
}
