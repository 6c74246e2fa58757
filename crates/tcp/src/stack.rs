//! The connections and listeners of one host, for tests and simulations: segments find their connection by
//! flow. Connections are polled for work one after the other, as an executor does.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use punctual_analysis::Instant;

use crate::config::Config;
use crate::connection::{Connection, Received};
use crate::icmp;
use crate::listener::{Answer, Listener};
use crate::ports::EphemeralPorts;
use crate::secrets::Secrets;
use crate::wire::{self, Flow, Malformed, Segment};

/// Id of a connection of a [`Stack`]; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// Why a connection cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Every port to that destination is taken.
    #[error("no local port is free for {0}: close connections to it, or connect from another address")]
    NoPort(SocketAddr),
    /// The addresses are invalid for a connection.
    #[error(
        "{0} cannot be connected to from this address: both must be unicast addresses of one IP version, with a port"
    )]
    Address(SocketAddr),
}

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// An existing connection, or one that the packet opened.
    Connection(ConnectionId),
    /// A listener, or an ICMP error that quotes one of our segments.
    Handled,
    /// No connection or listener: a reset is in the reply, unless the packet was one.
    ForNobody,
}

struct Port {
    listener: Listener,
    ready: VecDeque<ConnectionId>,
    room: usize,
}

/// TCP of one host.
pub struct Stack {
    secrets: Secrets,
    ports: EphemeralPorts,
    flows: BTreeMap<Flow, ConnectionId>,
    connections: BTreeMap<ConnectionId, Connection>,
    listeners: BTreeMap<SocketAddr, Port>,
    next: u64,
}

impl Stack {
    /// A stack without connections.
    pub fn new(secrets: Secrets) -> Self {
        let (flows, connections, listeners) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { secrets, ports: EphemeralPorts::default(), flows, connections, listeners, next: 0 }
    }

    /// Listens at `local` with at most `backlog` half-open connections and as many that wait for `accept`.
    pub fn listen(&mut self, local: SocketAddr, config: &Config, backlog: usize) {
        let port =
            Port { listener: Listener::new(config, backlog), ready: VecDeque::new(), room: backlog.max(1) };
        self.listeners.insert(local, port);
    }

    /// Begins to connect from `local`, at an automatically chosen port, to `remote`.
    ///
    /// # Errors
    ///
    /// No port is free, or the addresses are invalid for a connection.
    pub fn connect(
        &mut self,
        now: Instant,
        local: IpAddr,
        remote: SocketAddr,
        config: &Config,
    ) -> Result<ConnectionId, ConnectError> {
        let flow = |port| Flow { local: SocketAddr::new(local, port), remote };
        let (flows, listeners) = (&self.flows, &self.listeners);
        let is_free = |port| !flows.contains_key(&flow(port)) && !listeners.contains_key(&flow(port).local);
        let port =
            self.ports.choose(&self.secrets, local, remote, is_free).ok_or(ConnectError::NoPort(remote))?;
        let connection = Connection::connect(flow(port), config, &self.secrets, now);
        Ok(self.add(connection.ok_or(ConnectError::Address(remote))?))
    }

    fn add(&mut self, connection: Connection) -> ConnectionId {
        let id = ConnectionId(self.next);
        self.next += 1;
        self.flows.insert(connection.flow(), id);
        self.connections.insert(id, connection);
        id
    }

    /// The oldest connection that was opened at `local` and not accepted yet.
    pub fn accept(&mut self, local: SocketAddr) -> Option<ConnectionId> {
        self.listeners.get_mut(&local)?.ready.pop_front()
    }

    /// A connection.
    pub fn get(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    /// All connections, including those in TIME-WAIT.
    pub fn ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.connections.keys().copied()
    }

    /// Removes a connection; its flow is free again.
    pub fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        if self.flows.get(&connection.flow()) == Some(&id) {
            self.flows.remove(&connection.flow());
        }
        Some(connection)
    }

    /// Processes one IP packet; a packet that must leave at once is in `reply`, which is empty otherwise.
    ///
    /// # Errors
    ///
    /// The packet is neither a segment nor an ICMP error of a connection.
    pub fn input(
        &mut self,
        now: Instant,
        packet: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Result<Arrival, Malformed> {
        reply.clear();
        let segment = match wire::parse(packet) {
            Err(Malformed::Protocol) => return self.input_icmp(now, packet),
            checked => checked?,
        };
        if let Some(&id) = self.flows.get(&segment.flow)
            && let Some(connection) = self.connections.get_mut(&id)
        {
            if connection.input_checked(now, &segment, packet, reply) != Received::ForNobody {
                return Ok(Arrival::Connection(id));
            }
            // The connection is over, and its flow is free; the program may still read received data.
            self.flows.remove(&segment.flow);
        }
        Ok(self.input_unknown(now, &segment, packet, reply))
    }

    fn input_icmp(&mut self, now: Instant, packet: &[u8]) -> Result<Arrival, Malformed> {
        let quote = icmp::parse(packet).ok_or(Malformed::Protocol)?;
        let id = self.flows.get(&quote.flow).copied();
        if let Some(connection) = id.and_then(|id| self.connections.get_mut(&id)) {
            connection.icmp(now, &quote);
        }
        Ok(Arrival::Handled)
    }

    fn input_unknown(
        &mut self,
        now: Instant,
        segment: &Segment,
        packet: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Arrival {
        let Some(port) = self.listeners.get_mut(&segment.flow.local) else {
            wire::reset_for(segment, reply);
            return Arrival::ForNobody;
        };
        let has_room = port.ready.len() < port.room;
        let Answer::Opened(opening) = port.listener.input(now, segment, &self.secrets, has_room, reply)
        else {
            return Arrival::Handled;
        };
        let Some(mut connection) = Connection::accept(&opening, port.listener.config(), &self.secrets, now)
        else {
            return Arrival::Handled;
        };
        connection.input_checked(now, segment, packet, reply);
        let id = self.add(connection);
        if let Some(port) = self.listeners.get_mut(&segment.flow.local) {
            port.ready.push_back(id);
        }
        Arrival::Connection(id)
    }

    /// Makes one segment that is due, of a listener or a connection, in `packet`; returns whether there was
    /// one.
    pub fn output(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        let secrets = &self.secrets;
        self.listeners.values_mut().any(|port| port.listener.output(now, secrets, packet))
            || self.connections.values_mut().any(|connection| connection.output(now, packet))
    }

    /// Time at which `output` has work next.
    pub fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        let listeners = self.listeners.values().filter_map(|port| port.listener.next_deadline());
        let listeners = listeners.min().map(|at| at.max(now));
        let connections =
            self.connections.values_mut().filter_map(|connection| connection.next_deadline(now)).min();
        [listeners, connections].into_iter().flatten().min()
    }
}
