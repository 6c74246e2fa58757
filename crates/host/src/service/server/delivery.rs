//! Sends packets to clients: at once if they have room, when it is their user's turn, and for the last time.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use punctual_ipc::socket::{self, Packet};
use punctual_ipc::wake::timespec;
use punctual_proto::api::UserId;
use punctual_trial::{Defence, holds};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendFlags, Shutdown, shutdown};

use super::super::backlog::Cost;
use super::super::descriptors_in_flight::CutConnection;
use super::super::turn_budget::{TIME_MAX, TurnBudget};
use super::{ClientId, Host, Server, Session, since};

/// Interval between two checks of descriptors that were on their way to programs.
const LOOK: Duration = Duration::from_millis(100);
/// Number of cut connections that are checked at a time.
const DEPARTED_LOOKS: usize = 64;
/// How long the last packets may take when the server stops.
const CLOSING_TIME: Duration = Duration::from_millis(200);

impl<H: Host> Server<H> {
    /// Gives back descriptors that programs have read meanwhile. It checks only some of the connections that
    /// were cut at a time.
    pub(super) fn check_in_flight(&mut self) {
        let clients: Vec<ClientId> = self.sessions.keys().copied().collect();
        clients.into_iter().for_each(|client| self.check_client(client));
        for _ in 0..self.departed.len().min(DEPARTED_LOOKS) {
            let Some(mut departed) = self.departed.pop_front() else { break };
            let landed = departed.flight.recount(&departed.socket);
            if departed.flight.is_over() {
                // The connection's own descriptor goes back, too.
                self.service.give_back_aloft(departed.account, landed + 1);
            } else {
                self.service.give_back_aloft(departed.account, landed);
                self.departed.push_back(departed);
            }
        }
        let is_over =
            self.departed.is_empty() && self.sessions.values().all(|session| session.flight.is_over());
        self.check_at = (!is_over).then(|| Instant::now() + LOOK);
    }

    /// Gives back descriptors that this client has read meanwhile.
    pub(super) fn check_client(&mut self, client: ClientId) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        let landed = session.flight.recount(&session.socket);
        if let Some(account) = self.service.account_of(client).filter(|_| landed > 0) {
            self.service.give_back_aloft(account, landed);
        }
    }

    /// Sends `packet` to the client's socket; `WouldBlock` also if it is not its user's turn.
    fn put(&mut self, client: ClientId, packet: &Packet) -> io::Result<()> {
        let Some(account) = self.service.account_of(client) else { return Ok(()) };
        let Some(session) = self.sessions.get_mut(&client) else { return Ok(()) };
        if !self.turn.may_send(account) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let begun = Instant::now();
        let sent = socket::send(&session.socket, packet, SendFlags::DONTWAIT);
        let took = since(begun);
        session.slow = took >= TIME_MAX;
        self.turn.count_sending(account, took);
        if session.slow {
            // The user is charged even if no request of theirs has caused it.
            self.service.charge(account);
        }
        sent?;
        session.flight.sent(packet);
        if !packet.descriptors.is_empty() {
            self.service.count_aloft(account, packet.descriptors.len() as u64);
            self.check_at.get_or_insert_with(|| Instant::now() + LOOK);
        }
        Ok(())
    }

    /// Sends a packet into the client's socket, or queues it behind its backlog.
    pub(super) fn send(&mut self, client: ClientId, packet: Packet) {
        let Some(session) = self.sessions.get(&client).filter(|session| !session.deaf) else { return };
        if self.is_silent() {
            return;
        }
        let held = session.unread.cost().bytes;
        if session.unread.is_empty() {
            match self.put(client, &packet) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return self.deafen(client),
                Err(error) if is_refused(&error) => return self.service.undelivered(client, &packet),
                Err(_) => return self.cut(client),
            }
        }
        let more = Cost::of(&packet);
        if !self.service.take_unread(client, held, more) {
            self.service.count_not_reading();
            return self.cut(client);
        }
        let session = self.sessions.get_mut(&client);
        if session.is_some_and(|session| session.unread.push(packet).is_err()) {
            // Out of descriptors or memory: the notice to the client cannot be stored.
            self.service.give_back_unread(client, more);
            self.cut(client);
        }
    }

    /// Notes that the client reads no more.
    fn deafen(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.deaf = true;
        }
    }

    /// The next packet that waits for a client.
    fn next_unread(&mut self, client: ClientId) -> io::Result<Option<Packet>> {
        self.sessions.get_mut(&client).map_or(Ok(None), |session| session.unread.pop())
    }

    /// Sends as much of the client's backlog as its socket takes; `false`: sending fails.
    fn drain(&mut self, client: ClientId) -> bool {
        loop {
            let packet = match self.next_unread(client) {
                Ok(Some(packet)) => packet,
                Ok(None) => return true,
                Err(_) => return false,
            };
            match self.put(client, &packet) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(session) = self.sessions.get_mut(&client) {
                        session.unread.put_back(packet);
                    }
                    return true;
                }
                Err(error) if is_refused(&error) => self.service.undelivered(client, &packet),
                Err(_) => return false,
            }
        }
    }

    /// Sends the client's backlog, as [`Self::drain`] does. Cuts the connection if that fails or if it is at
    /// its end.
    pub(super) fn flush(&mut self, client: ClientId) {
        let Some(before) = self.sessions.get(&client).map(|session| session.unread.cost()) else { return };
        let goes_on = self.drain(client);
        let Some(session) = self.sessions.get_mut(&client) else { return };
        session.unread.give_back();
        let (after, ends) = (session.unread.cost(), session.ending && session.unread.is_empty());
        self.service.give_back_unread(client, before - after);
        if !goes_on || ends {
            self.cut(client);
        }
    }

    pub(super) fn forget_unread(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(&client) {
            let unread = std::mem::take(&mut session.unread);
            self.service.give_back_unread(client, unread.cost());
        }
    }

    /// Keeps a connection that was cut while descriptors are on their way to the process at the other end, or
    /// while its client reads why.
    pub(super) fn part(&mut self, session: Session, account: UserId) {
        let Session { socket, flight, ending, deaf, .. } = session;
        // A client that was sent the reason of its end gets the time to read it, whatever it requests
        // meanwhile.
        let reads = ending && !deaf;
        if !flight.is_over() && holds(Defence::DescriptorsAloft) {
            // The client sees the end of file behind the unread packets. A disconnected client is not
            // affected.
            let _ = shutdown(&socket, if reads { Shutdown::Write } else { Shutdown::Both });
            self.service.count_aloft(account, 1);
            self.departed.push_back(CutConnection { account, socket, flight });
            self.check_at.get_or_insert_with(|| Instant::now() + LOOK);
        } else if reads {
            self.refused_connections.linger(socket);
        }
    }

    /// The server stops, and the time for its last news is over.
    fn is_silent(&self) -> bool {
        self.silent_at.is_some_and(|at| at <= Instant::now()) && holds(Defence::SendingTurns)
    }

    /// Stops the engine (which tears every channel down) and delivers the last news, for a bounded time.
    pub(super) fn close_down(&mut self) {
        self.listening = None;
        self.service.host().stop();
        let until = Instant::now() + CLOSING_TIME;
        self.silent_at = Some(until);
        // Ends with an error: the engine has stopped and every event is read.
        while self.service.handle_next_event().is_ok() {
            self.apply_effects();
        }
        self.apply_effects();
        while self.sessions.values().any(|session| !session.unread.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            let waiting: Vec<ClientId> = self
                .sessions
                .iter()
                .filter(|(_, session)| !session.unread.is_empty())
                .map(|(id, _)| *id)
                .collect();
            let mut set: Vec<PollFd<'_>> = waiting
                .iter()
                .filter_map(|id| self.sessions.get(id))
                .map(|session| PollFd::from_borrowed_fd(session.socket.as_fd(), PollFlags::OUT))
                .collect();
            if left.is_zero() || poll(&mut set, Some(&timespec(left))).is_err() {
                return;
            }
            drop(set);
            self.turn = TurnBudget::default();
            for client in waiting {
                if self.is_silent() {
                    return;
                }
                self.flush(client);
            }
        }
    }
}

/// Whether the kernel refused the packet for its descriptors alone.
fn is_refused(error: &io::Error) -> bool {
    socket::too_many_on_their_way(error) && holds(Defence::DescriptorsAloft)
}
