//! TCP whose path is reserved: each packet is a message of one of two channels, which this module opens (ADR 0055). The host's
//! service joins them to a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use punctual_analysis::{Contract, Nanos, Policing, Rate};
use punctual_ipc::api::{PATH_PACKET_BYTES, Request};
use punctual_proto::api::RtuClass;
use punctual_proto::ids::{Address, ChannelId, ListenerId, Name};

use super::side::connected;
use super::{Qos, TcpError, TcpStream};
use crate::agents::{Agent, ChannelRequest, Consent, IncomingRequest};
use crate::channel::Channel;
use crate::connection::{Connection, Waiter, lock};
use crate::endsystem::Endsystem;
use crate::error::{Error, OpenError};
use crate::listener::{Listener, ListenerQueue, Next};
use crate::receiver::Receiver;

/// First port of connections that begin here (RFC 6335 6: dynamic ports).
const PORT_FIRST: u16 = 49_152;
/// Ports that are tried.
const PORT_TRIES: u16 = 64;
/// How long a peer may take to open its channel.
const PAIR_WAIT: Duration = Duration::from_secs(10);
/// The channel of a best-effort connection carries so little: what exceeds that is best effort.
const LEAST: Nanos = Nanos::from_secs(1);

/// The contract of each of both channels.
fn contract(class: RtuClass, deadline: Option<Nanos>) -> Result<Contract, TcpError> {
    let (interval, burst, within, policing) = match class {
        RtuClass::LowDelay { interval, units, .. } => {
            (Nanos(interval.0 / u64::from(units.max(1))), units, interval, Policing::Demote)
        }
        // One a period is margin: a queue that a late call leaves behind gets shorter.
        RtuClass::Guaranteed { period, units, .. } => {
            (Nanos(period.0 / (u64::from(units) + 1)), units, period, Policing::Delay)
        }
        RtuClass::BestEffort => (LEAST, 1, LEAST, Policing::Demote),
    };
    let rate =
        Rate::every(interval).ok_or_else(|| TcpError::Qos("more than a packet a nanosecond".into()))?;
    let contract = Contract::new(PATH_PACKET_BYTES, rate, burst, deadline.unwrap_or(within));
    Ok(Contract { policing, ..contract.map_err(|error| TcpError::Qos(error.to_string()))? })
}

/// Packets of a guaranteed period whose contract is no more than `offer`; `None` if no packet fits.
pub(super) fn units_within(period: Nanos, offer: &Contract) -> Option<u64> {
    let by_rate = period.0.checked_div(offer.interval().0)?.checked_sub(1)?;
    (offer.message_bytes_max >= PATH_PACKET_BYTES).then(|| by_rate.min(offer.burst_messages_max.into()))
}

/// Name of a listener.
fn listening(port: u16) -> Result<Name, Error> {
    Ok(Name::new(&format!("tcp.{port}"))?)
}

/// Name of the channel to a listener of one connection: from this port of that host.
fn forward(port: u16, from: u16, host: &str) -> Result<Name, Error> {
    Ok(Name::new(&format!("tcp.{port}.{from}.{host}"))?)
}

/// The port in the name of a listener.
fn port_of(name: &Name) -> Option<u16> {
    name.as_str().strip_prefix("tcp.")?.parse().ok().filter(|port| *port > 0)
}

/// Both channels of a connection, and its ends.
struct Pair {
    outgoing: Channel,
    incoming: Receiver,
    peer: Name,
    /// This end's port and the peer's.
    ports: [u16; 2],
    accepts: bool,
}

/// Makes a connection of two channels. They are the host's from then on; if it fails, they are closed.
fn join(connection: &Arc<Connection>, pair: Pair, class: RtuClass) -> Result<TcpStream, TcpError> {
    let Pair { outgoing, incoming, peer, ports, accepts } = pair;
    let (out, back): (ChannelId, ChannelId) = (outgoing.id(), incoming.id());
    let request = Request::JoinTcp { outgoing: out, incoming: back, peer, ports, class, accepts };
    let reply = connection.shared.ask(request, Waiter::Caller)?;
    Ok(TcpStream::new(connection, connected(connection, reply)?))
}

impl Endsystem {
    /// Connects to `peer` (`PORT@HOST`, a host of the directory) by TCP whose path is reserved, and waits until the connection
    /// is open. Each direction is a channel with the quality of service as its contract; a packet is at the other end's input
    /// handler within `deadline` (`None`: the period or the interval).
    ///
    /// # Errors
    /// See [`TcpError`]: [`TcpError::Path`] has the hop that refuses, why, and what it could offer.
    pub fn connect_tcp_reserved(
        &self,
        peer: &str,
        qos: Qos,
        deadline: Option<Nanos>,
    ) -> Result<TcpStream, TcpError> {
        let Address { port: name, host } = peer.parse::<Address>().map_err(Error::from)?;
        let there: u16 = name.as_str().parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            TcpError::Qos(format!(
                "{peer}: write PORT@HOST, with a port of 1 to 65535 and a host of the directory"
            ))
        })?;
        let class = qos.class();
        let contract = contract(class, deadline)?;
        let (here, listener) = self.take_port(contract)?;
        let source = Address { port: listening(there)?, host: host.clone() };
        let incoming = self.request_to(&listener, source, contract)?;
        let to = Address { port: forward(there, here, self.host())?, host: host.clone() };
        let outgoing = self.open(&to.to_string(), contract)?;
        let pair = Pair { outgoing, incoming, peer: host, ports: [here, there], accepts: false };
        let stream = join(&self.connection, pair, class)?;
        Ok(stream.holding(listener))
    }

    /// A port that no connection of this host has, held by a listener on its name.
    fn take_port(&self, contract: Contract) -> Result<(u16, Listener), TcpError> {
        let first =
            PORT_FIRST + (std::process::id() as u16 ^ self.connection.next_port()) % (u16::MAX - PORT_FIRST);
        let mut last = None;
        for at in 0..PORT_TRIES {
            let port = PORT_FIRST + (first - PORT_FIRST + at) % (u16::MAX - PORT_FIRST);
            // Only the channel that was asked for.
            let agent: Agent =
                Box::new(move |incoming: &IncomingRequest| match incoming.contract == contract {
                    true => Consent::Accept,
                    false => Consent::refuse("this is not the contract that was asked for"),
                });
            match self.listen_boxed(listening(port)?, Nanos::ZERO, agent) {
                Ok(listener) => return Ok((port, listener)),
                Err(error @ Error::Request(_)) => last = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.map_or(TcpError::Gone, TcpError::from))
    }

    /// Accepts TCP connections whose path is reserved at a port of this host, from hosts of the directory: those that ask for
    /// this quality of service with this deadline (see [`Endsystem::connect_tcp_reserved`]). At most `backlog` of them wait.
    ///
    /// # Errors
    /// See [`TcpError`].
    pub fn bind_tcp_reserved(
        &self,
        port: u16,
        qos: Qos,
        deadline: Option<Nanos>,
        backlog: u32,
    ) -> Result<PathListener, TcpError> {
        let class = qos.class();
        let contract = contract(class, deadline)?;
        let accepts = move |incoming: &IncomingRequest| match incoming.contract == contract {
            true => Consent::Accept,
            false => Consent::refuse("this is not the contract that was asked for"),
        };
        let queue = Arc::new(ListenerQueue::new(Box::new(accepts), Nanos::ZERO));
        let listener = self.listen_into(listening(port)?, Arc::clone(&queue))?;
        let pending = Arc::new(Mutex::new(Pending::default()));
        let asked = Asked { endsystem: self.clone(), queue, port, contract, backlog };
        let theirs = Arc::clone(&pending);
        // The agent holds the queue that holds it, until the listener is dropped.
        listener.on_request(move |request| asked.answer(request, &theirs));
        Ok(PathListener { connection: Arc::clone(&self.connection), listener, class, port, pending })
    }
}

/// Accepts connections whose path is reserved. Dropping it ends it; the connections that were accepted stay.
pub struct PathListener {
    connection: Arc<Connection>,
    listener: Listener,
    class: RtuClass,
    port: u16,
    pending: Arc<Mutex<Pending>>,
}

/// Connections of which not all channels are there, by the listener of the channel that comes.
#[derive(Default)]
struct Pending(HashMap<ListenerId, Half>);

/// Half a connection.
struct Half {
    listener: Listener,
    from: Address,
    since: Instant,
    outgoing: Option<Channel>,
    incoming: Option<Receiver>,
}

/// What the agent for requests of channels knows.
struct Asked {
    endsystem: Endsystem,
    queue: Arc<ListenerQueue>,
    port: u16,
    contract: Contract,
    backlog: u32,
}

impl Asked {
    /// A peer asks for the channel to it: from now on it may open the one from it.
    fn answer(&self, request: &ChannelRequest, pending: &Mutex<Pending>) -> Consent {
        let Some(from) = port_of(&request.to.port) else {
            return Consent::refuse("this is a port of TCP: the peer's name is tcp.PORT");
        };
        if request.contract != self.contract {
            return Consent::refuse(
                "another quality of service was asked for than this listener has: use the same class, rate, period and \
                 deadline at both ends",
            );
        }
        let mut pending = lock(pending);
        pending.0.retain(|_, half| half.since.elapsed() < PAIR_WAIT);
        if pending.0.len() >= self.backlog.max(1) as usize {
            return Consent::refuse("too many connections are being opened: try again");
        }
        let listened = forward(self.port, from, request.to.host.as_str())
            .and_then(|name| self.endsystem.listen_into(name, Arc::clone(&self.queue)));
        match listened {
            Ok(listener) => {
                let (from, since) = (request.to.clone(), Instant::now());
                let half = Half { listener, from, since, outgoing: None, incoming: None };
                pending.0.insert(half.listener.id, half);
                Consent::Accept
            }
            Err(error) => Consent::refuse(error.to_string()),
        }
    }
}

impl PathListener {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// See [`TcpError`]. A peer whose channels cannot be opened does not end the listener.
    pub fn accept(&self) -> Result<TcpStream, TcpError> {
        self.next(None)?.ok_or(TcpError::Gone)
    }

    /// Waits for the next connection for at most `timeout`; `None` if none came.
    ///
    /// # Errors
    /// See [`PathListener::accept`].
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<TcpStream>, TcpError> {
        self.next(Instant::now().checked_add(timeout))
    }

    /// Port of the listener.
    pub const fn port(&self) -> u16 {
        self.port
    }

    fn next(&self, until: Option<Instant>) -> Result<Option<TcpStream>, TcpError> {
        loop {
            let Some(next) = self.listener.queue.next(until)? else { return Ok(None) };
            if let Some(half) = self.complete(next)?
                && let (Some(outgoing), Some(incoming), Some(theirs)) =
                    (half.outgoing, half.incoming, port_of(&half.from.port))
            {
                let peer = half.from.host;
                let pair = Pair { outgoing, incoming, peer, ports: [self.port, theirs], accepts: true };
                return join(&self.connection, pair, self.class).map(Some);
            }
        }
    }

    /// Adds a channel; returns the connection that has both now.
    fn complete(&self, next: Next) -> Result<Option<Half>, TcpError> {
        let mut pending = lock(&self.pending);
        let id = match next {
            Next::Accepted(accepted) => {
                let (id, receiver) = (accepted.listener, Receiver::new(&self.connection, accepted)?);
                let is_from =
                    |half: &Half| receiver.request().is_some_and(|it| it.from == half.from.host.as_str());
                let Some(half) = pending.0.get_mut(&id).filter(|half| is_from(half)) else { return Ok(None) };
                half.incoming = Some(receiver);
                id
            }
            Next::Source(opened, request) => {
                let of = pending.0.iter().find(|(_, half)| half.from == request.to).map(|(id, _)| *id);
                let Some(id) = of else { return Ok(None) };
                match opened.and_then(|opened| Channel::new(&self.connection, opened)) {
                    Ok(channel) => {
                        if let Some(half) = pending.0.get_mut(&id) {
                            half.outgoing = Some(channel);
                        }
                    }
                    // The peer has the reason.
                    Err(_) => drop(pending.0.remove(&id)),
                }
                id
            }
        };
        let is_whole = |half: &Half| half.outgoing.is_some() && half.incoming.is_some();
        Ok(pending.0.get(&id).is_some_and(is_whole).then(|| pending.0.remove(&id)).flatten())
    }
}

impl Drop for PathListener {
    fn drop(&mut self) {
        // The agent and what waits hold this endsystem.
        *lock(&self.listener.queue.source_agent) = None;
        lock(&self.pending).0.clear();
    }
}

impl From<OpenError> for TcpError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Failed(error) => error.into(),
            refused @ OpenError::Refused { .. } => Self::Path(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_becomes_a_contract() {
        let ms = Nanos::from_millis;
        let of = |class, deadline| contract(class, deadline).expect("a contract");
        let guaranteed = of(RtuClass::periodic(ms(10), 9), None);
        assert_eq!((guaranteed.interval(), guaranteed.burst_messages_max), (ms(1), 9));
        assert_eq!((guaranteed.deadline, guaranteed.policing), (ms(10), Policing::Delay));
        assert_eq!(guaranteed.message_bytes_max, 1_280);
        let low = of(RtuClass::LowDelay { interval: ms(8), units: 4, priority: None }, Some(ms(3)));
        assert_eq!((low.interval(), low.deadline, low.policing), (ms(2), ms(3), Policing::Demote));
        let best = of(RtuClass::BestEffort, None);
        assert_eq!((best.interval(), best.burst_messages_max), (ms(1_000), 1));
        let never = contract(RtuClass::periodic(Nanos(100), 9), None);
        assert!(matches!(never, Err(TcpError::Qos(_))), "{never:?}");
    }

    #[test]
    fn names_have_the_ports() {
        assert_eq!(listening(80).expect("a name").as_str(), "tcp.80");
        assert_eq!(forward(80, 50_000, "a").expect("a name").as_str(), "tcp.80.50000.a");
        let port = |text| port_of(&Name::new(text).expect("a name"));
        assert_eq!([port("tcp.80"), port("tcp.0"), port("tcp.x"), port("cam")], [Some(80), None, None, None]);
    }
}
