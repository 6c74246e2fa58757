//! Ends of channels at this host: owns their states and the resources that they hold.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_analysis::Contract;
use punctual_ipc::api::{ApiError, Resource};
use punctual_ipc::ring::RingHandles;
use punctual_ipc::ring::incoming::InboxHealth;
use punctual_ipc::ring::outgoing::OutboxHealth;
use punctual_proto::api::{RtuClass, RtuId, UserId};
use punctual_proto::ids::ChannelId;

use super::cleanup::Abandoned;
use super::requests::tcp::TcpEndpoint;
use super::requests::upcalls::Registering;
use super::ringers::Held;
use super::waiting::Requester;
use super::{ClientId, Host, Service};

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
    TcpListener { class: RtuClass, call: Option<u64> },
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

impl<H: Host> Service<H> {
    /// Closes the channels whose rings applications broke, which no other part detects. Gives back the memory
    /// of rings that are gone.
    pub fn close_broken(&mut self) {
        self.alarm.clear();
        self.collect_freed();
        let broken: Vec<ChannelId> = self
            .ends
            .iter()
            .filter(|(_, end)| !end.broken && end.health.as_ref().is_some_and(Health::is_broken))
            .map(|(id, _)| *id)
            .collect();
        for channel in broken {
            self.counters.broken_rings += 1;
            if let Some(end) = self.ends.get_mut(&channel) {
                end.broken = true;
                self.cleanup.add(end.account, [Abandoned::Channel(channel)]);
            }
        }
    }

    /// Requests that the node close a channel, on behalf of its application. A best-effort end is gone at
    /// once.
    pub(super) fn close_end(&mut self, channel: ChannelId) {
        // `Unknown` means that the node has closed it already: its event is on the way.
        let _ = self.on_node(move |node, now| node.close(channel, now));
        self.after_end(channel);
    }

    /// Has this much of the processor's memory ready for the bursts of all channels.
    pub(super) fn expect_room(&mut self, bytes: u64) {
        if bytes != self.room_bytes {
            self.room_bytes = bytes;
            self.host.expect_room(bytes);
        }
    }

    /// Charges `bytes`, the node's memory for an open channel, to its user's quota: a source's burst is
    /// charged already.
    pub(super) fn count_room(&mut self, channel: ChannelId, bytes: u64) -> Result<(), ApiError> {
        let Some(end) = self.ends.get_mut(&channel) else { return Ok(()) };
        let more = bytes.saturating_sub(end.room_bytes + end.more_bytes);
        self.accounts.take(end.account, Resource::BufferBytes, more)?;
        end.more_bytes += more;
        Ok(())
    }

    /// Removes a channel's end and gives back its resources.
    pub(super) fn release_end(&mut self, channel: ChannelId) -> Option<End> {
        self.end_co_schedule(channel);
        let mut end = self.ends.remove(&channel)?;
        match &end.stage {
            Stage::Incoming { asker: Some(asker), .. } => self.waiting.remove(end.account, asker, channel),
            _ => self.accounts.give_back(end.account, Resource::Channels, 1),
        }
        self.accounts.give_back(end.account, Resource::BufferBytes, end.room_bytes + end.more_bytes);
        self.expect_room(self.room_bytes - end.room_bytes);
        self.bury(end.account, end.health.take(), end.doorbell.take(), end.held);
        Some(end)
    }
}
