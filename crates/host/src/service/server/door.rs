//! Connections that come in: many in a turn, since all users wait in one line, and each at the expense of who connects. Users
//! who have connected more than their share allows are turned away, which takes the least time.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use punctual_ipc::api::FromDaemon;
use punctual_ipc::socket::{self, Packet, Peer};
use punctual_trial::{Defence, holds};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::super::connection::Connection;
use super::{Host, Server, Session};

/// Connections that are accepted in a turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Once accepting has taken this long in a turn, the rest waits for the next turn.
const ACCEPT_TIME_MAX: Duration = Duration::from_millis(1);
/// How long no connection is accepted after descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

impl<H: Host> Server<H> {
    /// Adds a connected socket. If its user has connected too often, closes it without an answer.
    ///
    /// # Errors
    /// If the credentials of the peer cannot be read.
    pub fn add_session(&mut self, socket: OwnedFd) -> io::Result<()> {
        let peer = Peer::of(&socket)?;
        let socket = Connection::new(socket);
        let Some(account) = self.service.admit(&peer) else {
            drop(socket);
            self.service.discard_time();
            return Ok(());
        };
        let added = socket::bound_sending(&socket).and_then(|()| match self.service.connect(peer, account) {
            Ok(client) => {
                self.sessions.insert(client, Session::new(socket));
                Ok(())
            }
            Err(error) => {
                let packet = Packet::new(&FromDaemon::Answer { id: 0, result: Err(error) }, Vec::new())?;
                self.refused_connections.refuse(socket, &packet);
                Ok(())
            }
        });
        self.service.charge_connection(account);
        added
    }

    /// Accepts the waiting connections, or the first of them.
    pub(super) fn accept(&mut self) {
        self.accept_after = None;
        self.service.discard_time();
        let begun = Instant::now();
        for _ in 0..ACCEPTS_PER_TURN {
            if !self.accept_one() || begun.elapsed() >= ACCEPT_TIME_MAX {
                return;
            }
        }
    }

    /// Whether more may wait.
    fn accept_one(&mut self) -> bool {
        let Some(listening) = &self.listening else { return false };
        let wait =
            if holds(Defence::SendsWithoutWaiting) { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
        match accept_with(listening, SocketFlags::CLOEXEC | wait) {
            // Credentials of a fresh connection can be read; if not, it is closed.
            Ok(socket) => {
                self.spare.renew();
                let _ = self.add_session(socket);
                true
            }
            Err(Errno::AGAIN) => false,
            Err(Errno::CONNABORTED | Errno::INTR) => true,
            // Out of descriptors: the spare one is used to identify the user, and a place is kept for root.
            Err(Errno::MFILE | Errno::NFILE) if holds(Defence::SpareDescriptor) => {
                match self.spare.accept(listening) {
                    Ok(Some(socket)) => {
                        let _ = self.add_session(socket);
                    }
                    // A client that is sent away has no session that could be charged.
                    Ok(None) => self.service.discard_time(),
                    Err(_) => return self.pause(),
                }
                false
            }
            // Out of memory: the connection stays in the backlog for a moment.
            Err(_) => self.pause(),
        }
    }

    /// Accepts no connections for a while.
    fn pause(&mut self) -> bool {
        self.accept_after = Instant::now().checked_add(ACCEPT_PAUSE);
        false
    }
}
