//! Refused connections that have not read the reason yet, and a spare descriptor: if descriptors run out, the service can still
//! accept a connection and see whose it is.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use punctual_ipc::api::{ApiError, FromDaemon};
use punctual_ipc::socket::{self, Packet, Peer};
use punctual_proto::api::UserId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::net::{SendFlags, SocketFlags, accept_with};

use super::connection::Connection;
use super::quota::is_privileged;

/// Refused connections that are kept at once; the oldest goes first.
const LINGERING_MAX: usize = 32;
/// Time that a refused connection has to read why.
const LINGER: Duration = Duration::from_secs(1);

/// Refused connections. One that is closed while something of its client's is unread gives it an error in place of the
/// reason; so they stay until the client is gone, or for a while.
#[derive(Debug, Default)]
pub(super) struct RefusedConnections(VecDeque<(Connection, Instant)>);

impl RefusedConnections {
    /// Sends the reason why a connection is refused.
    pub(super) fn refuse(&mut self, socket: Connection, why: &Packet) {
        // A fresh socket has room; one that is closed already needs no reason.
        let _ = socket::send(&socket, why, SendFlags::DONTWAIT);
        self.linger(socket);
    }

    /// Keeps a connection that was sent the reason of its end. Its client sees the end of file after that
    /// reason.
    pub(super) fn linger(&mut self, socket: Connection) {
        if self.0.len() >= LINGERING_MAX {
            self.0.pop_front();
        }
        // A client that is gone sees nothing.
        let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Write);
        self.0.push_back((socket, Instant::now() + LINGER));
    }

    /// Adds them to what is waited for; how long at most.
    pub(super) fn watch<'a>(&'a self, set: &mut Vec<PollFd<'a>>) -> Option<Duration> {
        // These sockets are watched for their end of file only: data from the clients is ignored.
        let none = PollFlags::empty();
        set.extend(self.0.iter().map(|(socket, _)| PollFd::from_borrowed_fd(socket.as_fd(), none)));
        self.0.front().map(|(_, until)| until.saturating_duration_since(Instant::now()))
    }

    /// Lets those go that are gone, as [`Self::watch`] has them in order, or have had their time.
    pub(super) fn clear(&mut self, gone: &[bool]) {
        let (now, mut gone) = (Instant::now(), gone.iter());
        self.0.retain(|(_, until)| !gone.next().copied().unwrap_or(false) && *until > now);
    }
}

/// Root has the last descriptor.
#[derive(Debug)]
pub(super) struct NoSpare;

/// A descriptor that is given up for a moment where no other is left.
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
    pub(super) fn accept(&mut self, listening: &OwnedFd) -> Result<Option<OwnedFd>, NoSpare> {
        self.0.take().ok_or(NoSpare)?;
        let accepted = accept_with(listening, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok();
        let kept = accepted.and_then(|socket| {
            let peer = Peer::of(&socket).ok()?;
            if is_privileged(UserId(peer.user)) {
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
        // Gone where the place was given to root: then the next one waits.
        self.renew();
        Ok(kept)
    }

    /// Has one again where descriptors are there.
    pub(super) fn renew(&mut self) {
        if self.0.is_none() {
            self.0 = eventfd(0, EventfdFlags::CLOEXEC).ok();
        }
    }
}
