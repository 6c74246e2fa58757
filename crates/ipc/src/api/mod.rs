//! Messages between client and daemon: JSON, one value per packet of a `SOCK_SEQPACKET` socket.
//!
//! The client sends first ([`Request::Hello`] with the version). Every [`Call`] gets exactly one
//! [`FromDaemon::Answer`] with its number, possibly much later (`Open` waits for the network). Pushes come in
//! between. Descriptors travel with the answers that carry a [`RingShape`].

mod capture;
mod engine;
mod error;
mod quotas;
mod request;
mod status;
mod tcp;

use std::net::SocketAddr;

use punctual_analysis::Contract;
use punctual_proto::api::{
    BrokenStage, ChannelRefusal, ChannelStatus, CloseReason, Grant, Notice, RateStatus, Receipt, RtuGrant,
    RtuId, UserId,
};
use punctual_proto::ids::{Address, ChannelId, ListenerId, Name, NodeId};
use serde::{Deserialize, Serialize};

use crate::ring::RingShape;

pub use capture::{CaptureWish, CapturedLink};
pub use engine::{ClassStatus, DriverDrops, DriverStatus, EngineStatus, Facts, ProfileStatus};
pub use error::ApiError;
pub use quotas::{Quotas, Resource, UserStatus};
pub use request::Request;
pub use status::{ApiStatus, Audit, HandlerStatus, HostStatus, Waiting, WrongCount};
pub use tcp::{
    PATH_PACKET_BYTES, TcpConnectionStatus, TcpEnd, TcpListenerStatus, TcpPath, TcpSetting, TcpSettings,
    TcpState,
};

/// Version of this API, which the client sends first. Version 2: more reasons for the end of a channel, and
/// what its sink has received. 3: latencies by the hosts' clocks, and the stage that broke its promise;
/// entries of incoming rings have their clock error. 4: drain rates of links. 5: pages of channels report
/// where they end; packets that wait for a client and the cost of its requests are within quotas; rings
/// consist of two files, one for each writer, which programs seal; doorbells are sockets. 6: a channel's
/// counters are in the daemon's file of its ring. 7: descriptors are within quotas. 8: handlers of programs;
/// everything else is unchanged. 9: TCP of the host's own; everything else is unchanged. 10: captures, TCP over channels, options of
/// TCP connections; everything else is unchanged. 11: calls of `ConnectTcp` can be given up; everything else is unchanged.
pub const VERSION: u32 = 11;
/// Oldest version of a client that the daemon serves: later versions only add to it.
pub const VERSION_OLDEST: u32 = 7;
/// Largest packet either way.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;
/// Most descriptors with a packet.
pub const DESCRIPTORS_MAX: usize = 4;
/// Path of the socket that the daemon listens on unless configured otherwise.
pub const SOCKET_DEFAULT: &str = "/run/punctual/api.sock";
/// Longest text in a request (a reason, a program's name), in bytes.
pub const TEXT_BYTES_MAX: usize = 256;

/// A numbered request; the number comes back with the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Chosen by the client, unique among its open calls.
    pub id: u64,
    /// The request.
    pub request: Request,
}

/// A packet from the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromDaemon {
    /// The answer to a call.
    Answer {
        /// Number of the call; 0 if it could not be read.
        id: u64,
        /// The answer.
        result: Result<Answer, ApiError>,
    },
    /// A message that the client did not request.
    Push(Push),
}

/// Answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The answer to `Hello`.
    Hello {
        /// This node.
        node: NodeId,
        /// Name of this node.
        name: Name,
    },
    /// The answer to requests that are done and return nothing.
    Done,
    /// The answer to `Listen`.
    Listening {
        /// The handle.
        listener: ListenerId,
    },
    /// The answer to `Open`. The outgoing ring's descriptors come with it.
    Opened {
        /// The handle.
        channel: ChannelId,
        /// The grant of the channel.
        grant: Grant,
        /// The ring.
        ring: RingShape,
    },
    /// The answer to `Probe`.
    Probed {
        /// The grant that the channel would get, or the refusal.
        answer: Result<Grant, ChannelRefusal>,
    },
    /// The answer to `Ask`: the request has been sent.
    Asked {
        /// Token of the request; `Incoming` or `AskFailed` brings it back.
        token: u64,
    },
    /// The answer to `Register`. The descriptors of the ring that brings the calls come with it.
    Registered {
        /// The handle, with which the handler is closed.
        channel: ChannelId,
        /// The handler, as `status` shows it.
        handler: RtuId,
        /// What is promised to it.
        grant: RtuGrant,
        /// The thread's `SCHED_FIFO` priority now; `None` if the host maps none to the handler's class.
        priority: Option<u8>,
        /// The ring.
        ring: RingShape,
    },
    /// The answer to `Handlers`.
    Handlers {
        /// Handlers in the order of their ids.
        handlers: Vec<HandlerStatus>,
        /// Whether there are more behind the last one.
        more: bool,
    },
    /// The answer to `ConnectTcp` and `AcceptTcp`: the connection is open. The descriptors of the ring that brings its bytes
    /// come with it.
    TcpConnected {
        /// The handle.
        channel: ChannelId,
        /// This host's address and port.
        local: SocketAddr,
        /// The peer's address and port.
        peer: SocketAddr,
        /// The ring.
        ring: RingShape,
    },
    /// The answer to `ListenTcp`.
    TcpListening {
        /// The handle.
        channel: ChannelId,
    },
    /// The answer to `Capture`. The descriptors of the ring that brings the packets come with it.
    Capturing {
        /// The handle, with which the capture is closed.
        channel: ChannelId,
        /// The ring.
        ring: RingShape,
        /// All links, in the order of their numbers.
        links: Vec<CapturedLink>,
    },
    /// The answer to `TcpStatus`; `None`: the connection is over.
    TcpStatus(Option<TcpConnectionStatus>),
    /// The answer to `TcpConnections`.
    TcpConnections {
        /// Connections in the order of their handles.
        connections: Vec<TcpConnectionStatus>,
        /// Whether there are more behind the last one.
        more: bool,
    },
    /// The answer to `TcpListeners`.
    TcpListeners {
        /// Listeners in the order of their handles.
        listeners: Vec<TcpListenerStatus>,
        /// Whether there are more behind the last one.
        more: bool,
    },
    /// The answer to `CoSchedule`.
    CoScheduled {
        /// The thread's `SCHED_FIFO` priority now.
        priority: u8,
    },
    /// The answer to `Alternate`. The doorbell's descriptor comes with it.
    Alternates,
    /// The answer to `Consent`, `OpenBestEffort`, `BindBestEffort`, `Reports` and `TcpOutbox`. The ring's descriptors come with it.
    Ring {
        /// The handle.
        channel: ChannelId,
        /// The ring.
        ring: RingShape,
    },
    /// The answer to `Resolve`.
    Resolved {
        /// Node id of the host.
        node: NodeId,
    },
    /// The answer to `MeasureRate`: the current result for the link's rate.
    Rate(RateStatus),
    /// The answer to `Status`.
    Status(Box<HostStatus>),
    /// The answer to `Users`.
    Users {
        /// Users in the order of their ids.
        users: Vec<UserStatus>,
        /// Whether there are more behind the last one.
        more: bool,
    },
    /// The answer to `Channels`.
    Channels {
        /// Channels in the order of their handles.
        channels: Vec<ChannelStatus>,
        /// The last handle that was examined, whether its channel is open or not: the next page begins after
        /// it.
        seen: Option<ChannelId>,
        /// Whether there are more behind that.
        more: bool,
    },
    /// The answer to `Channel`.
    Channel(Box<ChannelStatus>),
}

/// Notices that a client gets without asking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Push {
    /// A peer requests to open a channel to a listener: the client replies `Consent` or `Refuse`.
    Incoming {
        /// The handle.
        channel: ChannelId,
        /// The listener that the channel leads to.
        listener: ListenerId,
        /// Name of the source host.
        from: Name,
        /// User at the source host on whose behalf the channel is opened.
        user: UserId,
        /// Contract of the channel.
        contract: Contract,
        /// Token of this client's own request that the channel answers, if it does.
        token: Option<u64>,
    },
    /// An incoming channel is established.
    Established {
        /// Handle of the channel.
        channel: ChannelId,
    },
    /// A receiver wants a channel from here: `Open` with the token, or `RefuseAsk`.
    Requested {
        /// The listener that the channel was requested for.
        listener: ListenerId,
        /// Address that the channel must be opened to.
        to: Address,
        /// Contract of the wanted channel.
        contract: Contract,
        /// User at the receiver's host on whose behalf the request is made.
        user: UserId,
        /// Token that `Open` or `RefuseAsk` must give back.
        token: u64,
    },
    /// A request to a source failed.
    AskFailed {
        /// Token of the request, as `Asked` returned it.
        token: u64,
        /// Why the request failed.
        refusal: ChannelRefusal,
    },
    /// A channel is gone.
    Closed {
        /// Handle of the channel.
        channel: ChannelId,
        /// Why the channel ended.
        reason: CloseReason,
        /// At the source: how many messages the sink got. `None` if there was no report.
        receipt: Option<Receipt>,
    },
    /// A stage on a channel's way breaks its promise, or keeps it again.
    Stage {
        /// Handle of the channel.
        channel: ChannelId,
        /// The stage, and the likely cause.
        stage: BrokenStage,
        /// True if the stage has kept its promise for a lease.
        healed: bool,
    },
    /// A TCP connection ended. What has come is still in its ring.
    TcpEnded {
        /// Handle of the connection.
        channel: ChannelId,
        /// Why it ended.
        why: TcpEnd,
    },
    /// An event of a channel.
    Notice {
        /// Handle of the channel.
        channel: ChannelId,
        /// The notice.
        notice: Notice,
    },
}
