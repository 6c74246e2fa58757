//! The API on its sockets: one thread, one `poll`.
//!
//! Nothing that a client does can stall it: sockets do not block, each client gets a bounded number of requests
//! a turn and a bounded queue of packets that it has not read; beyond that its connection is cut.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with};

use super::{ClientId, Effect, Host, Service};
use crate::api::{FromDaemon, PACKET_BYTES_MAX, Quotas};
use crate::socket::{self, Packet, Peer};
use crate::wake::timespec;

/// Requests taken from one client in a turn.
const REQUESTS_PER_TURN: usize = 16;
/// Packets that may wait for a client to read.
const UNREAD_MAX: usize = 1_024;
/// How long no connection is accepted after descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long the last packets may take when the server stops.
const FAREWELL: Duration = Duration::from_millis(200);

struct Session {
    socket: OwnedFd,
    unread: VecDeque<Packet>,
    /// Cut it once `unread` is empty.
    ending: bool,
}

/// A service and its sockets.
pub struct Server<H: Host> {
    service: Service<H>,
    listening: Option<OwnedFd>,
    sessions: BTreeMap<ClientId, Session>,
    accept_after: Option<Instant>,
    buffer: Vec<u8>,
}

/// What `poll` said.
#[derive(Default)]
struct Ready {
    stop: bool,
    accept: bool,
    alarm: bool,
    read: Vec<ClientId>,
    write: Vec<ClientId>,
}

impl<H: Host> Server<H> {
    /// Around a running engine; `listening` is a non-blocking socket that programs connect to.
    ///
    /// # Errors
    /// Where the engine has stopped or descriptors run out.
    pub fn new(host: H, quotas: Quotas, listening: Option<OwnedFd>) -> io::Result<Self> {
        let mut service = Service::new(host, quotas)?;
        if listening.is_some() {
            service.keep_apart();
        }
        Ok(Self {
            service,
            listening,
            sessions: BTreeMap::new(),
            accept_after: None,
            buffer: vec![0; PACKET_BYTES_MAX],
        })
    }

    /// Takes a connected socket on.
    ///
    /// # Errors
    /// Where its peer's credentials cannot be read.
    pub fn add_session(&mut self, socket: OwnedFd) -> io::Result<()> {
        match self.service.connect(Peer::of(&socket)?) {
            Ok(client) => {
                self.sessions.insert(client, Session { socket, unread: VecDeque::new(), ending: false });
            }
            Err(error) => {
                let packet = Packet::new(&FromDaemon::Answer { id: 0, result: Err(error) }, Vec::new())?;
                // A fresh socket has room; one that is closed already needs no reason.
                let _ = socket::send(&socket, &packet, SendFlags::DONTWAIT);
            }
        }
        Ok(())
    }

    /// Serves until `stop` is readable, then stops the engine and tells every client.
    ///
    /// # Errors
    /// Where waiting itself fails, or the engine fails.
    pub fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            let ready = self.wait(stop)?;
            if ready.stop {
                self.farewell();
                return Ok(());
            }
            if ready.accept {
                self.accept();
            }
            for client in ready.read {
                self.read(client);
            }
            if ready.alarm {
                self.service.close_broken();
            }
            if self.service.handle_events().is_err() {
                self.apply_effects();
                return Err(io::Error::other("the engine has stopped by itself; see its log"));
            }
            for client in ready.write {
                self.flush(client);
            }
            self.apply_effects();
        }
    }

    fn wait(&mut self, stop: BorrowedFd<'_>) -> io::Result<Ready> {
        let pause = self.accept_after.map(|after| after.saturating_duration_since(Instant::now()));
        let accepting = self.listening.as_ref().filter(|_| pause.is_none_or(|pause| pause.is_zero()));
        let mut set = vec![
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(self.service.host().events(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.service.alarm().as_fd(), PollFlags::IN),
        ];
        let fixed = set.len();
        for session in self.sessions.values() {
            let write = if session.unread.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            set.push(PollFd::from_borrowed_fd(session.socket.as_fd(), PollFlags::IN | write));
        }
        if let Some(listening) = accepting {
            set.push(PollFd::from_borrowed_fd(listening.as_fd(), PollFlags::IN));
        }
        let timeout = pause.filter(|_| accepting.is_none()).map(timespec);
        match poll(&mut set, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = Ready { stop: !set[0].revents().is_empty(), ..Ready::default() };
        ready.alarm = !set[2].revents().is_empty();
        for (client, entry) in self.sessions.keys().zip(&set[fixed..]) {
            let happened = entry.revents();
            if happened.contains(PollFlags::OUT) {
                ready.write.push(*client);
            }
            if happened.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                ready.read.push(*client);
            }
        }
        ready.accept = accepting.is_some() && set.last().is_some_and(|entry| !entry.revents().is_empty());
        Ok(ready)
    }

    fn accept(&mut self) {
        let Some(listening) = &self.listening else { return };
        self.accept_after = None;
        match accept_with(listening, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            // Credentials of a fresh connection can be read; if not, it is closed.
            Ok(socket) => drop(self.add_session(socket)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => {}
            // Out of descriptors or memory: the connection stays in the backlog for a moment.
            Err(_) => self.accept_after = Instant::now().checked_add(ACCEPT_PAUSE),
        }
    }

    fn read(&mut self, client: ClientId) {
        for _ in 0..REQUESTS_PER_TURN {
            let Some(session) = self.sessions.get(&client).filter(|session| !session.ending) else { return };
            match socket::receive(&session.socket, &mut self.buffer, RecvFlags::DONTWAIT) {
                Ok(Some(packet)) => match packet.parse() {
                    Ok(call) => self.service.handle(client, call),
                    Err(error) => self.service.reject(client, error.to_string()),
                },
                Ok(None) => return self.cut(client),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.service.reject(client, error.to_string());
                }
                Err(_) => return self.cut(client),
            }
            self.apply_effects();
        }
    }

    fn apply_effects(&mut self) {
        while let Some(effect) = self.service.next_effect() {
            match effect {
                Effect::Send(client, packet) => {
                    let Some(session) = self.sessions.get_mut(&client) else { continue };
                    session.unread.push_back(packet);
                    self.flush(client);
                }
                Effect::Cut(client) => {
                    if let Some(session) = self.sessions.get_mut(&client) {
                        session.ending = true;
                        self.flush(client);
                    }
                }
            }
        }
    }

    /// Sends as much as the client's socket takes.
    fn flush(&mut self, client: ClientId) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        while let Some(packet) = session.unread.front() {
            match socket::send(&session.socket, packet, SendFlags::DONTWAIT) {
                Ok(()) => drop(session.unread.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return self.cut(client),
            }
        }
        if session.unread.len() > UNREAD_MAX {
            self.service.count_not_reading();
            self.cut(client);
        } else if session.ending && session.unread.is_empty() {
            self.cut(client);
        }
    }

    fn cut(&mut self, client: ClientId) {
        self.sessions.remove(&client);
        self.service.disconnect(client);
    }

    /// Stops the engine (which tears every channel down) and delivers the last news, for a bounded time.
    fn farewell(&mut self) {
        self.listening = None;
        self.service.host().stop();
        // Ends with an error: the engine has stopped and every event is read.
        while self.service.handle_events().is_ok() {}
        self.apply_effects();
        let until = Instant::now() + FAREWELL;
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
            waiting.into_iter().for_each(|client| self.flush(client));
        }
    }
}
