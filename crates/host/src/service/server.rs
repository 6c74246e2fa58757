//! The API on its sockets: one thread, one `poll`.
//!
//! No action of a client can stall it: sockets do not block, and each user gets a bounded number of requests
//! a turn. Packets that a client does not read wait within its user's quota of bytes. While packets wait for
//! it, or too many for its user's other programs, no more of its requests are taken, so that its own socket
//! fills. Further pushes then cut its connection. A user whose requests have used up their share of the
//! processor waits until the share has grown again; a user whose connections have used up theirs is not
//! connected.

mod delivery;
mod door;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use punctual_analysis::Nanos;
use punctual_ipc::api::{PACKET_BYTES_MAX, Quotas};
use punctual_ipc::socket;
use punctual_ipc::wake::timespec;
use punctual_trial::{Defence, holds};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::RecvFlags;

use super::backlog::Backlog;
use super::connection::Connection;
use super::descriptors_in_flight::{CutConnection, DescriptorsInFlight};
use super::refused_connections::{RefusedConnections, Spare};
use super::turn_budget::TurnBudget;
use super::{ClientId, Effect, Host, Service};

/// Events of the node handled in a turn.
const EVENTS_PER_TURN: usize = 64;
/// Pause before the next attempt to find out which files of rings are gone, after the kernel did not report
/// it.
const COLLECT_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Session {
    socket: Connection,
    unread: Backlog,
    flight: DescriptorsInFlight,
    /// Cut it once `unread` is empty.
    ending: bool,
    /// True if the last send took long, because of the waiters at the other end.
    slow: bool,
    /// True if the client no longer reads: its earlier requests are still handled, and nothing is sent to it.
    deaf: bool,
}

impl Session {
    fn new(socket: Connection) -> Self {
        Self {
            socket,
            unread: Backlog::default(),
            flight: DescriptorsInFlight::default(),
            ending: false,
            slow: false,
            deaf: false,
        }
    }
}

/// A service and its sockets.
pub struct Server<H: Host> {
    service: Service<H>,
    listening: Option<OwnedFd>,
    sessions: BTreeMap<ClientId, Session>,
    /// Refused connections that have not read why.
    refused_connections: RefusedConnections,
    /// Connections that were cut and have not read what was sent with descriptors.
    departed: VecDeque<CutConnection>,
    /// When to check next which descriptors have been read.
    check_at: Option<Instant>,
    /// The kernel did not report which files of rings are gone: the time of the next attempt.
    collect_at: Option<Instant>,
    spare: Spare,
    accept_after: Option<Instant>,
    /// The client that is served first in the next turn, if it has a request, so that every client gets a
    /// turn.
    first: Option<ClientId>,
    buffer: Vec<u8>,
    turn: TurnBudget,
    /// The server stops: after this time no packet is sent.
    silent_at: Option<Instant>,
}

/// Result of `poll`.
#[derive(Default)]
struct Ready {
    stop: bool,
    accept: bool,
    alarm: bool,
    /// Something has happened to a TCP connection.
    tcp: bool,
    /// Whether files of rings are gone.
    gone: bool,
    read: Vec<ClientId>,
    hung_up: Vec<ClientId>,
    write: Vec<ClientId>,
    /// For each connection in the refused_connections, whether it is gone.
    left: Vec<bool>,
}

impl<H: Host> Server<H> {
    /// Creates the server of a running engine; `listening` is a non-blocking socket that programs connect to.
    ///
    /// # Errors
    /// If the engine has stopped or descriptors run out.
    pub fn new(host: H, quotas: Quotas, listening: Option<OwnedFd>) -> io::Result<Self> {
        let mut service = Service::new(host, quotas)?;
        if listening.is_some() {
            service.keep_apart()?;
        }
        Ok(Self {
            service,
            listening,
            sessions: BTreeMap::new(),
            refused_connections: RefusedConnections::default(),
            departed: VecDeque::new(),
            check_at: None,
            collect_at: None,
            spare: Spare::new()?,
            accept_after: None,
            first: None,
            buffer: vec![0; PACKET_BYTES_MAX],
            turn: TurnBudget::default(),
            silent_at: None,
        })
    }

    /// Serves until `stop` is readable, then stops the engine and notifies every client.
    ///
    /// # Errors
    /// If waiting itself fails, or the engine fails.
    pub fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            let ready = self.wait(stop)?;
            // The wait, and the part of the last turn that belongs to no user.
            self.service.discard_time();
            self.turn = TurnBudget::default();
            if ready.stop {
                self.close_down();
                return Ok(());
            }
            if ready.accept {
                self.accept();
            }
            self.refused_connections.clear(&ready.left);
            if ready.gone {
                self.collect_gone();
            }
            if self.check_at.is_some_and(|at| at <= Instant::now()) {
                self.check_in_flight();
            }
            self.service.discard_time();
            self.service.end_some();
            self.hang_up(&ready.hung_up);
            self.read_all(&ready.read);
            if ready.alarm {
                self.service.close_broken();
            }
            if ready.tcp {
                self.service.handle_tcp();
            }
            if self.handle_events().is_err() {
                self.apply_effects();
                return Err(io::Error::other("the engine has stopped by itself; see its log"));
            }
            for client in ready.write {
                self.flush(client);
            }
            self.apply_effects();
        }
    }

    /// Gives back the quota of ring files that are gone. If the kernel does not report which, tries later.
    fn collect_gone(&mut self) {
        let collected = self.service.collect_gone();
        if let (Err(error), None) = (&collected, self.collect_at) {
            tracing::warn!(
                "cannot find out which ring files are still in use ({error}): they count in their users' \
                 quotas until that works; if this continues, raise the limit of descriptors (LimitNOFILE)"
            );
        }
        self.collect_at = collected.err().and_then(|_| Instant::now().checked_add(COLLECT_PAUSE));
    }

    /// Handles some of the node's events. If more are left, its descriptor stays readable.
    fn handle_events(&mut self) -> Result<(), super::HostGone> {
        for _ in 0..EVENTS_PER_TURN {
            if !self.service.handle_next_event()? {
                break;
            }
            self.apply_effects();
        }
        Ok(())
    }

    /// The events to poll for at a client's socket, and how long the client is not to be served.
    fn interest(&self, client: ClientId, session: &Session) -> (PollFlags, Option<Duration>) {
        if !session.unread.is_empty() && holds(Defence::BoundedUnread) {
            // What takes long to send is paid for.
            let wait = self.service.wait_of(client).filter(|_| session.slow && holds(Defence::SendingTurns));
            return match wait {
                Some(wait) => (PollFlags::empty(), Some(Duration::from_nanos(wait.0))),
                None => (PollFlags::OUT, None),
            };
        }
        if session.ending || !self.service.has_room_for(client) || self.service.is_leaving(client) {
            return (PollFlags::empty(), None);
        }
        match self.service.wait_of(client) {
            Some(wait) => (PollFlags::empty(), Some(Duration::from_nanos(wait.0))),
            None => (PollFlags::IN, None),
        }
    }

    fn wait(&mut self, stop: BorrowedFd<'_>) -> io::Result<Ready> {
        let pause = self.accept_after.map(|after| after.saturating_duration_since(Instant::now()));
        let accepting = self.listening.as_ref().filter(|_| pause.is_none_or(|pause| pause.is_zero()));
        let mut timeout = pause.filter(|_| accepting.is_none());
        let next_check = self.check_at.map(|at| at.saturating_duration_since(Instant::now()));
        let collect = self.collect_at.map(|at| at.saturating_duration_since(Instant::now()));
        timeout = [timeout, next_check, collect].into_iter().flatten().min();
        if self.service.has_left() {
            timeout = Some(Duration::ZERO);
        }
        let mut set = vec![
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(self.service.host().events(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.service.alarm().as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.service.tcp_alarm().as_fd(), PollFlags::IN),
        ];
        let alarmed = set.len();
        let watcher = self.service.watcher().filter(|_| collect.is_none());
        set.extend(watcher.map(|watcher| PollFd::from_borrowed_fd(watcher, PollFlags::IN)));
        let fixed = set.len();
        for (client, session) in &self.sessions {
            let (interest, wait) = self.interest(*client, session);
            timeout = [timeout, wait].into_iter().flatten().min();
            set.push(PollFd::from_borrowed_fd(session.socket.as_fd(), interest));
        }
        let sessions = fixed..set.len();
        timeout = [timeout, self.refused_connections.watch(&mut set)].into_iter().flatten().min();
        let refused_connections = sessions.end..set.len();
        if let Some(listening) = accepting {
            set.push(PollFd::from_borrowed_fd(listening.as_fd(), PollFlags::IN));
        }
        match poll(&mut set, timeout.map(timespec).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = Ready { stop: !set[0].revents().is_empty(), ..Ready::default() };
        ready.alarm = !set[2].revents().is_empty();
        ready.tcp = !set[3].revents().is_empty();
        ready.gone = set[alarmed..fixed].iter().any(|entry| !entry.revents().is_empty())
            || self.collect_at.is_some_and(|at| at <= Instant::now());
        ready.left = set[refused_connections].iter().map(|entry| !entry.revents().is_empty()).collect();
        for (client, entry) in self.sessions.keys().zip(&set[sessions]) {
            let happened = entry.revents();
            if happened.contains(PollFlags::OUT) {
                ready.write.push(*client);
            }
            if happened.intersects(PollFlags::HUP | PollFlags::ERR) {
                ready.hung_up.push(*client);
            } else if happened.contains(PollFlags::IN) {
                ready.read.push(*client);
            }
        }
        ready.accept = accepting.is_some() && set.last().is_some_and(|entry| !entry.revents().is_empty());
        Ok(ready)
    }

    /// Takes the requests of the clients that have some. The client that is first in one turn is the last in
    /// the next.
    fn read_all(&mut self, ready: &[ClientId]) {
        let begin = self.first.map_or(0, |first| ready.partition_point(|client| *client < first));
        for client in ready[begin..].iter().chain(&ready[..begin]) {
            self.read(*client);
        }
        let begun = ready[begin..].iter().chain(&ready[..begin]).next();
        self.first = begun.map(|client| client.next());
    }

    /// Whether the next request of `client` may be taken.
    fn may_ask(&self, client: ClientId) -> bool {
        let session = self.sessions.get(&client);
        session.is_some_and(|session| self.interest(client, session).0 == PollFlags::IN)
    }

    /// Takes requests of a client for as long as it is its user's turn; whether it may have more.
    fn read(&mut self, client: ClientId) -> bool {
        while let Some(account) = self.service.account_of(client) {
            if !self.turn.may(account) {
                return true;
            }
            if !self.may_ask(client) {
                return false;
            }
            let (begun, sending) = (Instant::now(), self.turn.sending(account));
            let more = self.read_one(client);
            self.apply_effects();
            self.service.charge(account);
            if !more {
                return false;
            }
            let sending = self.turn.sending(account) - sending;
            self.turn.count(account, Nanos(since(begun).0.saturating_sub(sending.0)));
        }
        false
    }

    /// Takes a client's next request; `false`: there was none, or it is cut.
    fn read_one(&mut self, client: ClientId) -> bool {
        self.check_client(client);
        let Some(session) = self.sessions.get(&client) else { return false };
        match socket::receive_bare(&session.socket, &mut self.buffer, RecvFlags::DONTWAIT) {
            Ok(Some(packet)) => match packet.parse() {
                Ok(call) => self.service.handle(client, call),
                Err(error) => self.service.reject(client, error.to_string()),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.service.reject(client, error.to_string());
            }
            Ok(None) | Err(_) => {
                self.cut(client);
                return false;
            }
        }
        true
    }

    /// Handles clients that have disconnected: their earlier requests are handled, as far as their users'
    /// shares allow, in as many turns as that takes. Then their connections are cut.
    fn hang_up(&mut self, gone: &[ClientId]) {
        for client in gone {
            let account = self.service.account_of(*client);
            if self.service.is_leaving(*client) || account.is_some_and(|account| !self.turn.may(account)) {
                continue;
            }
            self.forget_unread(*client);
            if let Some(session) = self.sessions.get_mut(client) {
                session.deaf = true;
            }
            if !self.read(*client) {
                let begun = Instant::now();
                self.cut(*client);
                if let Some(account) = account {
                    self.turn.count(account, since(begun));
                }
            }
        }
    }

    fn apply_effects(&mut self) {
        while let Some(effect) = self.service.next_effect() {
            match effect {
                Effect::Send(client, packet) => self.send(client, packet),
                Effect::Cut(client) => {
                    if let Some(session) = self.sessions.get_mut(&client) {
                        session.ending = true;
                        self.flush(client);
                    }
                }
            }
        }
    }

    /// Ends a connection, at its user's expense.
    fn cut(&mut self, client: ClientId) {
        self.forget_unread(client);
        self.check_client(client);
        let account = self.service.account_of(client);
        let session = self.sessions.remove(&client);
        self.service.disconnect(client);
        if let (Some(session), Some(account)) = (session, account) {
            self.part(session, account);
            self.service.charge_connection(account);
        }
    }
}

fn since(begun: Instant) -> Nanos {
    Nanos(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
