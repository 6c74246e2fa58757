//! The engine's side of a connection: in this process, or in a daemon's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use punctual_ipc::api::{Answer, Request, TcpSetting};
use punctual_ipc::ring::{InboxReader, OutboxWriter, RingHandles, RingShape};
use punctual_proto::api::{RequestError, RtuClass};
use punctual_proto::ids::ChannelId;

use super::patience::{Nothing, Patience};
use super::rings::Rings;
use super::{Ended, State, Status, TcpError};
use crate::connection::{Connection, Reply, may_wait};
use crate::error::Error;
use crate::events::ChannelEvents;
use crate::processor::is_processor;

/// See the module.
pub(super) enum Side {
    #[cfg(feature = "embedded")]
    Embedded(super::embedded::Connected),
    Remote(Remote),
}

/// A connection at a daemon.
pub(super) struct Remote {
    channel: ChannelId,
    events: Arc<ChannelEvents>,
    /// The question for its status that waits for an answer.
    asked: Option<Receiver<Reply>>,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it is looked at where it was returned")]
pub(super) enum Known {
    /// Nothing yet: the answer has not come.
    Nothing,
    /// It is over.
    Over,
    /// Its status.
    Is(Status),
}

impl Known {
    fn of(status: Option<Status>) -> Self {
        status.map_or(Self::Over, Self::Is)
    }
}

impl Side {
    /// The program has used its rings. At a daemon the doorbell does this.
    #[cfg_attr(not(feature = "embedded"), expect(unused_variables, reason = "only an engine is told"))]
    pub fn ready(&self, connection: &Connection) -> Result<(), TcpError> {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(connected) => connected.ready(connection),
            Self::Remote(_) => Ok(()),
        }
    }

    /// Closes the program's direction.
    pub fn shutdown(&self, connection: &Connection) -> Result<(), TcpError> {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(connected) => connected.shutdown(connection),
            Self::Remote(remote) => remote.tell(connection, Request::ShutdownTcp { channel: remote.channel }),
        }
    }

    /// Resets the peer.
    pub fn abort(&self, connection: &Connection) -> Result<(), TcpError> {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(connected) => connected.abort(connection),
            Self::Remote(remote) => remote.tell(connection, Request::ResetTcp { channel: remote.channel }),
        }
    }

    /// Changes a setting of the connection.
    pub fn set(&self, connection: &Connection, setting: TcpSetting) -> Result<(), TcpError> {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(connected) => connected.set(connection, setting),
            Self::Remote(remote) => {
                remote.tell(connection, Request::SetTcp { channel: remote.channel, setting })
            }
        }
    }

    /// The stream is dropped.
    pub fn release(&self, connection: &Connection) {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(connected) => connected.release(connection),
            Self::Remote(remote) => {
                connection.shared.forget(remote.channel);
                connection.shared.send_unanswered(Request::Close { channel: remote.channel });
            }
        }
    }

    pub fn status(&self, connection: &Connection) -> Result<Option<Status>, TcpError> {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(connected) => connected.status(connection),
            Self::Remote(remote) => {
                match connection.shared.call(Request::TcpStatus { channel: remote.channel })?.0 {
                    Answer::TcpStatus(status) => Ok(status.map(Status::from)),
                    _ => Err(Error::Unexpected.into()),
                }
            }
        }
    }

    /// The status, if it is known within `wait`. An answer that comes later is the next call's: a daemon that is stopped stops no
    /// program that has a time to keep to.
    pub fn known_within(&mut self, connection: &Connection, wait: Duration) -> Result<Known, TcpError> {
        let remote = match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(connected) => return connected.status(connection).map(Known::of),
            Self::Remote(remote) => remote,
        };
        may_wait().map_err(Error::from)?;
        let shared = &connection.shared;
        let answer = match remote.asked.take() {
            Some(answer) => answer,
            None => shared.start_call(Request::TcpStatus { channel: remote.channel })?.1,
        };
        match answer.recv_timeout(wait) {
            Ok((result, _)) => match result.map_err(Error::from)? {
                Answer::TcpStatus(status) => Ok(Known::of(status.map(Status::from))),
                _ => Err(Error::Unexpected.into()),
            },
            Err(RecvTimeoutError::Timeout) => {
                remote.asked = Some(answer);
                Ok(Known::Nothing)
            }
            Err(RecvTimeoutError::Disconnected) => Err(shared.end().into()),
        }
    }

    /// Forgets the question of [`Self::known_within`]: its answer may be of a time before what is asked for next.
    pub fn ask_anew(&mut self) {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(_) => {}
            Self::Remote(remote) => remote.asked = None,
        }
    }

    /// Why the connection ended, if that is known here.
    pub fn ended(&mut self) -> Option<Ended> {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(connected) => connected.ended(),
            Self::Remote(remote) => remote.events.tcp_end(),
        }
    }
}

/// A program's end of a connection, which is released when it is dropped.
pub(super) struct LocalEnd {
    side: Side,
    /// See [`TcpStream::set_linger`](super::TcpStream::set_linger).
    pub(super) linger: Option<Duration>,
    /// The process that it belongs to: a copy in a forked child ends nothing.
    process: u32,
    /// Dropped last: the engine may go with it.
    connection: Arc<Connection>,
}

impl LocalEnd {
    pub fn new(connection: &Arc<Connection>, side: Side) -> Self {
        Self { side, linger: None, process: std::process::id(), connection: Arc::clone(connection) }
    }

    pub const fn is_remote(&self) -> bool {
        matches!(self.side, Side::Remote(_))
    }

    /// The connection of the engine in this process.
    #[cfg(feature = "embedded")]
    pub const fn id(&self) -> Option<punctual_engine::tcp::TcpId> {
        match &self.side {
            Side::Embedded(connected) => Some(connected.id()),
            Side::Remote(_) => None,
        }
    }

    #[cfg(feature = "embedded")]
    pub fn host(&self) -> Result<&punctual_host::EmbeddedHost, TcpError> {
        self.connection.embedded.as_ref().ok_or(TcpError::NotEmbedded)
    }

    pub fn ready(&self) -> Result<(), TcpError> {
        self.side.ready(&self.connection)
    }

    pub fn shutdown(&self) -> Result<(), TcpError> {
        self.side.shutdown(&self.connection)
    }

    pub fn abort(&self) -> Result<(), TcpError> {
        self.side.abort(&self.connection)
    }

    pub fn set(&self, setting: TcpSetting) -> Result<(), TcpError> {
        self.side.set(&self.connection, setting)
    }

    pub fn status(&self) -> Result<Option<Status>, TcpError> {
        self.side.status(&self.connection)
    }

    pub fn known_within(&mut self, wait: Duration) -> Result<Known, TcpError> {
        self.side.known_within(&self.connection, wait)
    }

    pub fn ask_anew(&mut self) {
        self.side.ask_anew();
    }

    pub fn ended(&mut self) -> Option<Ended> {
        self.side.ended()
    }

    /// Waits until the peer has acknowledged the end, or for so long.
    fn linger(&mut self, time: Duration) -> Result<(), TcpError> {
        self.shutdown()?;
        let until = Instant::now().checked_add(time);
        let is_acknowledged =
            |status: &Status| matches!(status.state, State::FinWait2 | State::TimeWait | State::Closed);
        loop {
            let known = self.known_within(left(until))?;
            let is_over = match known {
                Known::Nothing => false,
                Known::Over => true,
                Known::Is(status) => is_acknowledged(&status),
            };
            if is_over || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
            // The peer's acknowledgement does not wake this thread.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The time until then. `None`: a time that nobody lives to see.
pub(super) fn left(until: Option<Instant>) -> Duration {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    left.unwrap_or(Duration::MAX)
}

impl Drop for LocalEnd {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // An error means that the engine, and the connection with it, are gone.
        let _ = match self.linger {
            Some(Duration::ZERO) => self.abort(),
            Some(time) if !is_processor() => self.linger(time),
            _ => Ok(()),
        };
        self.side.release(&self.connection);
    }
}

impl Remote {
    fn tell(&self, connection: &Connection, request: Request) -> Result<(), TcpError> {
        connection.shared.send_unanswered(request);
        connection.shared.over().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Attaches to both rings of a connection that is open.
fn attach(
    connection: &Connection,
    (channel, shape): (ChannelId, RingShape),
    descriptors: Vec<std::os::fd::OwnedFd>,
) -> Result<(Remote, Rings), Error> {
    let shared = &connection.shared;
    let mut inbox = InboxReader::attach(RingHandles { shape, descriptors })?;
    let (Answer::Ring { ring: shape, .. }, descriptors) = shared.call(Request::TcpOutbox { channel })? else {
        return Err(Error::Unexpected);
    };
    let outbox = OutboxWriter::attach(RingHandles { shape, descriptors })?;
    inbox.set_doorbell(outbox.doorbell().map_err(Error::Socket)?);
    let events = shared.events_of(channel);
    // Where the daemon goes, threads that wait for bytes or for room wake.
    events.add_closer(inbox.closer());
    events.add_closer(outbox.closer());
    shared.announce_attached(channel)?;
    Ok((Remote { channel, events, asked: None }, Rings { outbox, inbox }))
}

/// The daemon's answer to a program that connects. One that waits no longer gives the connection up.
pub(super) fn ask_to_connect(
    connection: &Connection,
    peer: SocketAddr,
    class: RtuClass,
    patience: &mut Patience<'_>,
) -> Result<Reply, TcpError> {
    let shared = &connection.shared;
    may_wait().map_err(Error::from)?;
    let (call, answer) = shared.start_call(Request::ConnectTcp { peer, class })?;
    match patience.receive(&answer) {
        Ok(reply) => Ok(reply),
        Err(Nothing::Gone) => Err(shared.end().into()),
        Err(Nothing::GivenUp) if shared.abandon(call) => {
            shared.send_unanswered(Request::CancelTcp { call });
            Err(TcpError::Late(peer))
        }
        // It has come in the meantime.
        Err(Nothing::GivenUp) => Ok(shared.wait(&answer)?),
    }
}

/// A connection with its rings, this host's address and the peer's.
pub(super) type Opened = (Side, Rings, [SocketAddr; 2]);

/// A connection of the engine in this process.
#[cfg(feature = "embedded")]
pub(super) fn embedded((connected, rings, ends): super::embedded::Opened) -> Opened {
    (Side::Embedded(connected), rings, ends)
}

/// The connection of a daemon's answer.
pub(super) fn connected(connection: &Connection, (result, descriptors): Reply) -> Result<Opened, TcpError> {
    let Answer::TcpConnected { channel, local, peer, ring } = result.map_err(Error::from)? else {
        return Err(Error::Unexpected.into());
    };
    match attach(connection, (channel, ring), descriptors) {
        Ok((remote, rings)) => Ok((Side::Remote(remote), rings, [local, peer])),
        // It was reset in the meantime, and the daemon has given it back.
        Err(Error::Request(RequestError::Unknown)) => Err(TcpError::Peer { peer, why: Ended::Reset }),
        Err(error) => {
            connection.shared.send_unanswered(Request::Close { channel });
            Err(error.into())
        }
    }
}
