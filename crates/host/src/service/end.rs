//! One end of a channel, a handler or a TCP connection: how far it has come, and the resources that it holds.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_analysis::Contract;
use punctual_engine::tcp::Flow;
use punctual_ipc::ring::RingHandles;
use punctual_ipc::ring::incoming::InboxHealth;
use punctual_ipc::ring::outgoing::OutboxHealth;
use punctual_proto::api::{RtuClass, RtuId, UserId};
use punctual_proto::ids::ChannelId;

use super::ClientId;
use super::waiting::Requester;

/// How far a channel's end has come.
pub(super) enum Stage {
    /// The network has not answered; this call waits for it.
    Opening { call: u64, contract: Contract },
    /// A dry run waits for the network's answer, and this call waits for it.
    Probing { call: u64, contract: Contract },
    /// The agent has not answered. `asker` occupies a waiting place, and nothing is charged to the quotas.
    /// `None`: the channel is charged to the quota already, since the agent has requested it.
    Incoming { contract: Contract, messages: u32, asker: Option<Requester> },
    /// Rings are attached.
    Open,
    /// The channel carries packets of this TCP connection. The program has no access to it any more.
    Joined { connection: ChannelId },
    /// A best-effort end: the node sends no event when it is closed.
    BestEffort,
    /// A handler that waits for the answer of admission.
    Registering(Box<Registering>),
    /// A handler of a program. `reports`: the ring back, until the program has asked for it. No event follows when it is
    /// closed.
    Handler { handler: RtuId, reports: Option<RingHandles> },
    /// A capture of packets. No event follows when it is closed.
    Capture,
    /// A TCP connection.
    Tcp(Box<TcpEndpoint>),
    /// A TCP listener, with the class of its connections. `call`: waits for the answer of admission.
    TcpListener { local: SocketAddr, class: RtuClass, backlog: u32, call: Option<u64> },
}

/// A handler that waits for admission.
pub(super) struct Registering {
    pub(super) call: u64,
    pub(super) handler: RtuId,
    pub(super) calls: RingHandles,
    pub(super) reports: RingHandles,
    pub(super) priority: Option<u8>,
}

/// The channels of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    pub(super) outgoing: ChannelId,
    pub(super) incoming: ChannelId,
}

/// A connection of a program.
pub(super) struct TcpEndpoint {
    pub(super) class: RtuClass,
    /// The peer that was asked for; `None`: it is accepted.
    pub(super) peer: Option<SocketAddr>,
    /// The call that waits until it is open.
    pub(super) call: Option<u64>,
    /// The ring that brings bytes, and the ring back, until the program has them.
    pub(super) inbox: Option<RingHandles>,
    pub(super) outbox: Option<RingHandles>,
    /// The doorbell of the ring back, until the processor watches it.
    pub(super) doorbell: Option<OwnedFd>,
    pub(super) flow: Option<Flow>,
    pub(super) is_open: bool,
    /// Channels of the connection, if its path is reserved.
    pub(super) path: Option<Joined>,
}

/// The quota that a ring, or a doorbell of it, takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub bytes: u64,
    pub descriptors: u64,
}

impl Held {
    /// This and `other` together.
    pub const fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, descriptors: self.descriptors + other.descriptors }
    }
}

/// One end of a channel on this host.
pub(super) struct End {
    /// `None`: the client is gone, and the node has not closed the end yet.
    pub(super) client: Option<ClientId>,
    /// User whose quotas are charged for the end.
    pub(super) account: UserId,
    pub(super) stage: Stage,
    /// Resources that the end's ring and doorbells take.
    pub(super) held: Held,
    /// Bytes of the processor's heap that the node has for the messages of a burst.
    pub(super) room_bytes: u64,
    /// Bytes of the processor's heap for everything else that the end has beside its ring, once that is
    /// known.
    pub(super) more_bytes: u64,
    /// Held until the node is done with the ring: unmapping it is work for this thread, not for the processor.
    pub(super) health: Option<Health>,
    /// Doorbell that the processor watches. It is held here so that the processor is not the one that closes
    /// it.
    pub(super) doorbell: Option<Arc<OwnedFd>>,
    /// The ring was found broken, and the channel is being closed for it.
    pub(super) broken: bool,
    /// Name of the channel, and its destination or origin, for the log.
    pub(super) what: String,
}

impl End {
    pub(super) fn new(client: ClientId, account: UserId, stage: Stage, what: String) -> Self {
        Self {
            client: Some(client),
            account,
            stage,
            held: Held::default(),
            room_bytes: 0,
            more_bytes: 0,
            health: None,
            doorbell: None,
            broken: false,
            what,
        }
    }
}

/// Whether the application keeps the rules of its ring.
pub(super) enum Health {
    Outbox(OutboxHealth),
    Inbox(InboxHealth),
    /// Reports of a handler, and its calls; or both rings of a TCP connection.
    Both(OutboxHealth, InboxHealth),
}

impl Health {
    pub(super) fn is_broken(&self) -> bool {
        match self {
            Self::Outbox(health) => health.is_broken(),
            Self::Inbox(health) => health.is_broken(),
            Self::Both(reports, calls) => reports.is_broken() || calls.is_broken(),
        }
    }

    pub(super) fn is_alone(&self) -> bool {
        match self {
            Self::Outbox(health) => health.is_alone(),
            Self::Inbox(health) => health.is_alone(),
            Self::Both(reports, calls) => reports.is_alone() && calls.is_alone(),
        }
    }

    pub(super) fn accept(&self) -> std::io::Result<()> {
        match self {
            Self::Outbox(health) => health.accept(),
            Self::Inbox(health) => health.accept(),
            Self::Both(reports, calls) => reports.accept().and_then(|()| calls.accept()),
        }
    }
}
