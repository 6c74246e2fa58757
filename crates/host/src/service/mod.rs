//! Connects requests of applications with events of the node. Owns the table of which client owns which
//! listener, channel and ring.
//!
//! One thread owns a [`Service`]. It does no I/O except for making rings. Messages to clients collect in its
//! outbox, which the [`server`] empties. Every channel handle belongs to exactly one client (or to none, if
//! that client is gone and the network has not answered yet). When a client disconnects, its listeners and
//! channels are closed (module `cleanup`). Quotas are charged from the request until the node reports that the
//! channel is closed.

mod acceptance;
mod audit;
mod backlog;
mod charges;
mod cleanup;
mod clients;
mod co_schedule;
mod connection;
mod descriptors_in_flight;
mod end;
mod ends;
mod events;
mod files;
mod host;
mod quota;
mod rate;
mod refused_connections;
mod requests;
mod resting;
mod ringers;
pub mod server;
mod share;
mod subordinates;
mod turn_budget;
mod unread;
mod waiting;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use punctual_analysis::{Instant, Nanos};
use punctual_ipc::api::{ApiStatus, Quotas};
use punctual_ipc::socket::Packet;
use punctual_ipc::wake::{Alarm, Doorbell};
use punctual_proto::ids::{ChannelId, LinkId, ListenerId, Name};
use rustix::process::getrlimit;

use self::charges::{CALL_COST, cpu_time};
use self::cleanup::Cleanup;
use self::clients::Client;
use self::co_schedule::CoScheduled;
use self::end::{End, Health, Stage};
use self::files::Files;
use self::quota::Accounts;
use self::resting::Resting;
use self::ringers::Ringers;
use self::share::{CONNECTIONS_DEPTH, REQUESTS_DEPTH, Shares};
use self::subordinates::Subordinates;
use self::waiting::Waiting;

pub use acceptance::{ACCEPT_BYTES_MAX, ACCEPT_MESSAGES_MAX, ACCEPT_TIME, STALL_DEFAULT};
pub use clients::ClientId;
pub use host::{Host, HostGone};

/// An action on a client's connection.
#[derive(Debug)]
pub enum Effect {
    /// Send this.
    Send(ClientId, Packet),
    /// Send the queued packets, then cut it.
    Cut(ClientId),
}

/// See the module.
pub struct Service<H: Host> {
    host: H,
    node: punctual_proto::ids::NodeId,
    name: Name,
    accounts: Accounts,
    shares: Shares,
    /// Shares of users in the time that their connections take.
    connections: Shares,
    subordinates: Subordinates,
    /// Time that the processor has spent on the user who is currently served, and that was not charged yet.
    spent: Cell<Nanos>,
    /// CPU time of the serving thread when it was last read.
    served: Nanos,
    ringers: Ringers,
    /// Files of rings that were handed over.
    files: Files,
    clients: HashMap<ClientId, Client>,
    next_client: u64,
    listeners: HashMap<ListenerId, (ClientId, Name)>,
    ends: HashMap<ChannelId, End>,
    /// Handles of the node's that no end has.
    handles: Vec<ChannelId>,
    /// Ends among `ends` that wait for consent.
    waiting: Waiting,
    /// Connections among `ends` that give way to others.
    resting: Resting,
    /// Bytes of the processor's memory that the bursts of all ends take together.
    room_bytes: u64,
    /// Threads at the priority of their channels.
    co_scheduled: HashMap<ChannelId, CoScheduled<H::Scheduling>>,
    /// Requests of remote receivers that were passed to a client here, by token.
    requested: HashMap<u64, ClientId>,
    /// Requests of clients here to sources elsewhere, by token.
    asked: HashMap<u64, ClientId>,
    /// Objects of disconnected clients that are still to be ended.
    cleanup: Cleanup,
    /// Calls that wait for a link's measurement.
    measuring: Vec<(LinkId, ClientId, u64)>,
    counters: ApiStatus,
    effects: VecDeque<Effect>,
    alarm: Alarm,
    /// Rings when something has happened to a TCP connection: often, so that nothing else is looked at then.
    tcp_alarm: Alarm,
    started: Instant,
}

impl<H: Host> Service<H> {
    /// Creates the service of a running engine.
    ///
    /// # Errors
    /// If the engine has stopped already, descriptors run out, or the kernel does not report doorbells.
    pub fn new(host: H, quotas: Quotas) -> std::io::Result<Self> {
        Doorbell::check()?;
        let about = host.call(|node, now| node.status(now)).map_err(std::io::Error::other)?;
        let counters = ApiStatus {
            descriptors_max: getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX),
            descriptors_needed: quotas.descriptors_needed(about.links.len()),
            ..ApiStatus::default()
        };
        Ok(Self {
            host,
            node: about.id,
            name: about.name,
            accounts: Accounts::new(quotas),
            shares: Shares::new(quotas.request_share, REQUESTS_DEPTH),
            connections: Shares::new(quotas.request_share, CONNECTIONS_DEPTH),
            subordinates: Subordinates::of_system(),
            spent: Cell::new(Nanos::ZERO),
            served: cpu_time(),
            ringers: Ringers::default(),
            files: Files::default(),
            clients: HashMap::new(),
            next_client: 1,
            listeners: HashMap::new(),
            ends: HashMap::new(),
            handles: Vec::new(),
            waiting: Waiting::new(&quotas),
            resting: Resting::default(),
            room_bytes: 0,
            co_scheduled: HashMap::new(),
            requested: HashMap::new(),
            asked: HashMap::new(),
            cleanup: Cleanup::default(),
            measuring: Vec::new(),
            counters,
            effects: VecDeque::new(),
            alarm: Alarm::new()?,
            tcp_alarm: Alarm::new()?,
            started: punctual_ipc::ring::now(),
        })
    }

    /// The next action on a connection, in order.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The engine.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Readable when a ring was broken, or is gone.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Readable when [`Self::handle_tcp`] has work.
    pub fn tcp_alarm(&self) -> &Alarm {
        &self.tcp_alarm
    }
}
