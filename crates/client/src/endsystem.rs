//! This host as an application uses it: it registers names and opens channels.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_ipc::api::{Answer, HostStatus, Request, SOCKET_DEFAULT};
use punctual_ipc::ring::{RingHandles, RingShape};
use punctual_proto::api::{ChannelStatus, Grant, RateStatus};
use punctual_proto::ids::{Address, Name};
use punctual_proto::{Contract, Nanos};

use crate::agents;
use crate::agents::{Agent, Consent, IncomingRequest};
use crate::channel::{Channel, Opened, Opening};
use crate::connection::{Connection, Waiter, dial, lock};
use crate::error::{ConnectError, Error, OpenError};
use crate::listener::{Listener, ListenerQueue};
use crate::receiver::Receiver;

/// Names the daemon's socket if it is not the default one.
pub const SOCKET_VARIABLE: &str = "PUNCTUAL_SOCKET";
/// Bytes that the ring of a best-effort flow holds at least.
const BEST_EFFORT_RING_BYTES: u32 = 1 << 20;

/// This host. Cheap to clone; it exists as long as its channels and listeners.
#[derive(Clone)]
pub struct Endsystem {
    pub(crate) connection: Arc<Connection>,
}

impl Endsystem {
    /// Connects to this host's daemon (rtcInit): at `$PUNCTUAL_SOCKET`, or else `/run/punctual/api.sock`.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect() -> Result<Self, ConnectError> {
        let path =
            std::env::var_os(SOCKET_VARIABLE).map_or_else(|| PathBuf::from(SOCKET_DEFAULT), PathBuf::from);
        Self::connect_to(path)
    }

    /// Connects to the daemon at `path`.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect_to(path: impl AsRef<Path>) -> Result<Self, ConnectError> {
        let path = path.as_ref();
        let socket = dial(path).map_err(|cause| ConnectError::dialling(path, cause))?;
        Ok(Self { connection: Connection::start(socket, None)? })
    }

    /// The host's name.
    pub fn host(&self) -> &str {
        &self.connection.host
    }

    /// Registers a name to which peers can open channels (rtcRegisterPort). For each request, `agent`
    /// receives the requester and its contract, and consents or refuses. It runs on a thread of this
    /// endsystem.
    ///
    /// # Errors
    /// If the name is invalid or taken, or the daemon refuses it.
    pub fn listen(
        &self,
        name: &str,
        agent: impl FnMut(&IncomingRequest) -> Consent + Send + 'static,
    ) -> Result<Listener, Error> {
        self.listen_boxed(Name::new(name)?, Nanos::ZERO, Box::new(agent))
    }

    /// Does what [`Endsystem::listen`] does for channels whose messages an embedded endsystem handles on the
    /// engine's own thread (see [`Receiver::on_message`]). The handler takes at most `handler_time` for each
    /// message, and channels are admitted with that. Through a daemon, handlers run in this process and
    /// nothing is charged for them.
    ///
    /// # Errors
    /// See [`Endsystem::listen`].
    pub fn listen_direct(
        &self,
        name: &str,
        handler_time: Nanos,
        agent: impl FnMut(&IncomingRequest) -> Consent + Send + 'static,
    ) -> Result<Listener, Error> {
        let handler_time = if self.connection.embedded.is_some() { handler_time } else { Nanos::ZERO };
        self.listen_boxed(Name::new(name)?, handler_time, Box::new(agent))
    }

    pub(crate) fn listen_boxed(
        &self,
        name: Name,
        handler_time: Nanos,
        agent: Agent,
    ) -> Result<Listener, Error> {
        self.listen_into(name, Arc::new(ListenerQueue::new(agent, handler_time)))
    }

    /// Listens with a queue that listeners may share.
    pub(crate) fn listen_into(&self, name: Name, queue: Arc<ListenerQueue>) -> Result<Listener, Error> {
        let request = Request::Listen { port: name.clone(), handler_time: queue.handler_time };
        let theirs = Arc::clone(&queue);
        match self.connection.shared.ask(request, |sender| Waiter::Listen(sender, theirs))?.0? {
            Answer::Listening { listener: id } => {
                Ok(Listener { connection: Arc::clone(&self.connection), id, name, queue })
            }
            _ => Err(Error::Unexpected),
        }
    }

    /// Opens a guaranteed channel to `port@host` (rtcCreateConnection) and waits for the network's answer.
    ///
    /// # Errors
    /// [`OpenError::Refused`] with the hop, its reason and its nearest offer.
    pub fn open(&self, peer: &str, contract: Contract) -> Result<Channel, OpenError> {
        let to = peer.parse::<Address>()?;
        let shared = &self.connection.shared;
        let reply = shared.ask(Request::Open { to, contract, token: None }, Waiter::Caller)?;
        Channel::new(&self.connection, Opened::from_reply(shared, reply, &contract)?)
    }

    /// Opens a channel, as [`Endsystem::open`] does, without waiting for the network's answer.
    ///
    /// # Errors
    /// If the request cannot even be made.
    pub fn open_nonblocking(&self, peer: &str, contract: Contract) -> Result<Opening, OpenError> {
        let to = peer.parse::<Address>()?;
        Ok(Opening::start(&self.connection, to, contract)?)
    }

    /// Returns what `open` would return: the bound and its parts. Reserves nothing, and does not call the
    /// receiver's agent.
    ///
    /// # Errors
    /// [`OpenError::Refused`] as `open` would.
    pub fn probe(&self, peer: &str, contract: Contract) -> Result<Grant, OpenError> {
        let to = peer.parse::<Address>()?;
        match self.connection.shared.call(Request::Probe { to, contract })?.0 {
            Answer::Probed { answer } => answer.map_err(|refusal| OpenError::refused(refusal, &contract)),
            _ => Err(Error::Unexpected.into()),
        }
    }

    /// Requests that the program listening at `source` (`port@host`) open a channel to this endsystem, and
    /// waits for it. The source needs an agent for this ([`Listener::on_request`]).
    ///
    /// # Errors
    /// [`OpenError::Refused`] if the source or the network refused.
    pub fn request(&self, source: &str, contract: Contract) -> Result<Receiver, OpenError> {
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let source = source.parse::<Address>()?;
        let number = ASKED.fetch_add(1, Ordering::Relaxed);
        let reply_to = Name::new(&format!("ask.{}.{number}", std::process::id()))?;
        // Accept only the contract that this request named.
        let agent = move |incoming: &IncomingRequest| match incoming.contract == contract {
            true => Consent::Accept,
            false => Consent::refuse("this is not the contract that was asked for"),
        };
        let listener = self.listen_boxed(reply_to, Nanos::ZERO, Box::new(agent))?;
        self.request_to(&listener, source, contract)
    }

    /// Requests a channel from `source` to `listener`, and waits for it.
    pub(crate) fn request_to(
        &self,
        listener: &Listener,
        source: Address,
        contract: Contract,
    ) -> Result<Receiver, OpenError> {
        let reply_to = listener.name.clone();
        let shared = &self.connection.shared;
        let Answer::Asked { token } = shared.call(Request::Ask { source, reply_to, contract })?.0 else {
            return Err(Error::Unexpected.into());
        };
        match listener.queue.accept_or(|| lock(&shared.failed_asks).remove(&token))? {
            Ok(accepted) => Ok(Receiver::new(&self.connection, accepted)?),
            Err(refusal) => Err(OpenError::refused(refusal, &contract)),
        }
    }

    /// Opens a best-effort flow to `port@host` (rdata_send). It has no guarantee. Messages have up to
    /// `message_bytes_max` bytes.
    ///
    /// # Errors
    /// If the host is unknown or the daemon refuses.
    pub fn best_effort(&self, peer: &str, message_bytes_max: u32) -> Result<Channel, OpenError> {
        let to = peer.parse::<Address>()?;
        let ring = best_effort_ring(message_bytes_max)?;
        let shared = &self.connection.shared;
        let (answer, descriptors) = shared.call(Request::OpenBestEffort { to, ring })?;
        Channel::new(&self.connection, Opened::from_answer(shared, answer, descriptors)?)
    }

    /// Receives best-effort flows to `name` at this host (rdata_recv).
    ///
    /// # Errors
    /// If the name is invalid or taken, or the daemon refuses it.
    pub fn bind_best_effort(&self, name: &str, message_bytes_max: u32) -> Result<Receiver, Error> {
        let ring = best_effort_ring(message_bytes_max)?;
        let request = Request::BindBestEffort { port: Name::new(name)?, ring };
        match self.connection.shared.call(request)? {
            (Answer::Ring { channel, ring }, descriptors) => {
                let handles = RingHandles { shape: ring, descriptors };
                let ring = agents::attach(&self.connection.shared, channel, handles)?;
                Receiver::attach(&self.connection, channel, ring, None)
            }
            _ => Err(Error::Unexpected),
        }
    }

    /// Why this endsystem is served no more; `None` while it is. Asks the daemon nothing. An engine in this process serves as long
    /// as it is there.
    pub fn ended(&self) -> Option<Error> {
        self.connection.shared.over()
    }

    /// Whether channels can come from a host: whether this host's directory has it.
    ///
    /// # Errors
    /// If the name is invalid, not in the directory, or this host's; or the daemon is gone.
    pub fn check_host(&self, host: &str) -> Result<(), Error> {
        match self.connection.shared.call(Request::Resolve { host: Name::new(host)? })?.0 {
            Answer::Resolved { .. } => Ok(()),
            _ => Err(Error::Unexpected),
        }
    }

    /// Measures the rate at which a link of this host drains towards its neighbour, and returns the result.
    /// It takes half a second, and longer if it repeats the measurement for a better figure. It disturbs no
    /// channel: it is refused while a channel uses the link, and a program that opens one meanwhile waits.
    ///
    /// # Errors
    /// If there is no such link, channels use it, the neighbour does not answer, this user lacks permission,
    /// or the daemon is gone.
    pub fn measure_rate(&self, link: &str) -> Result<RateStatus, Error> {
        match self.connection.shared.call(Request::MeasureRate { link: link.into() })?.0 {
            Answer::Rate(rate) => Ok(rate),
            _ => Err(Error::Unexpected),
        }
    }

    /// The host's state: links, utilisation, counters, quotas, handlers of programs.
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn status(&self) -> Result<HostStatus, Error> {
        let Answer::Status(status) = self.connection.shared.call(Request::Status)?.0 else {
            return Err(Error::Unexpected);
        };
        let mut status = *status;
        while status.more_users {
            let after = status.users.last().map(|held| held.user);
            let Answer::Users { users, more } = self.connection.shared.call(Request::Users { after })?.0
            else {
                return Err(Error::Unexpected);
            };
            status.more_users = more && !users.is_empty();
            status.users.extend(users);
        }
        if std::mem::take(&mut status.more_handlers) {
            status.handlers = self.connection.shared.handlers()?;
        }
        Ok(status)
    }

    /// Every channel that starts at, passes or ends at this host.
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn channels(&self) -> Result<Vec<ChannelStatus>, Error> {
        let (mut all, mut after): (Vec<ChannelStatus>, _) = (Vec::new(), None);
        loop {
            match self.connection.shared.call(Request::Channels { after })?.0 {
                Answer::Channels { channels, seen, more } => {
                    let stuck = seen == after;
                    all.extend(channels);
                    if !more || stuck {
                        return Ok(all);
                    }
                    after = seen;
                }
                _ => return Err(Error::Unexpected),
            }
        }
    }
}

/// The ring of a best-effort flow: at least four messages, at least [`BEST_EFFORT_RING_BYTES`].
fn best_effort_ring(message_bytes_max: u32) -> Result<RingShape, Error> {
    let slots = BEST_EFFORT_RING_BYTES.div_ceil(message_bytes_max.max(1)).clamp(4, 1_024);
    Ok(RingShape::new(slots, message_bytes_max)?)
}
