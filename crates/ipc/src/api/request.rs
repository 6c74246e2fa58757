//! Requests of clients.

use std::net::SocketAddr;

use punctual_analysis::{Contract, Nanos};
use punctual_proto::api::{RtuClass, RtuId, RtuTerms, UserId};
use punctual_proto::ids::{Address, ChannelId, ListenerId, Name};
use serde::{Deserialize, Serialize};

use super::{CaptureWish, TcpSetting};
use crate::ring::RingShape;

/// A client's request. Each variant names the papers' routine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// First of all (rtcInit).
    Hello {
        /// [`super::VERSION`].
        version: u32,
        /// The program, for `status`.
        program: String,
    },
    /// Takes a name (rtcRegisterPort).
    Listen {
        /// The name.
        port: Name,
        /// What an embedding program declares for handling each message on the processor. A daemon, which runs no handlers of
        /// programs, refuses all but zero.
        #[serde(default)]
        handler_time: Nanos,
    },
    /// Gives it back; open channels stay (rtcUnRegisterPort).
    Unlisten {
        /// Handle of the listener.
        listener: ListenerId,
    },
    /// Opens a channel (rtcCreateConnection). Answered when the network has.
    Open {
        /// Address of the listener.
        to: Address,
        /// Contract of the channel.
        contract: Contract,
        /// Token from [`super::Push::Requested`], if this answers a receiver's request.
        token: Option<u64>,
    },
    /// Returns what would be offered, and reserves nothing.
    Probe {
        /// Address of the listener.
        to: Address,
        /// Contract of the channel.
        contract: Contract,
    },
    /// Requests a channel from a source to our listener `reply_to`.
    Ask {
        /// The source's listener.
        source: Address,
        /// Name that the source must open the channel to: a listener of this client.
        reply_to: Name,
        /// Contract of the channel.
        contract: Contract,
    },
    /// Refuses a receiver's request.
    RefuseAsk {
        /// Token of the request, from [`super::Push::Requested`].
        token: u64,
        /// Why the request is refused.
        why: String,
    },
    /// Accepts [`super::Push::Incoming`].
    Consent {
        /// Handle of the channel.
        channel: ChannelId,
        /// How long the program may take no message without losing one; `None`: the daemon's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stall: Option<Nanos>,
    },
    /// Refuses [`super::Push::Incoming`].
    Refuse {
        /// Handle of the channel.
        channel: ChannelId,
        /// Why the channel is refused.
        why: String,
    },
    /// Ends a channel (rtcDestroyConnection), or a handler.
    Close {
        /// Handle of the channel.
        channel: ChannelId,
    },
    /// Gives a thread of this client, which takes the messages of a channel, the priority of that channel.
    CoSchedule {
        /// Handle of the channel, which must end here.
        channel: ChannelId,
        /// Thread id that the kernel uses for the thread.
        thread: u32,
    },
    /// The client has mapped and sealed the file of the channel's ring that it writes. Before this the daemon
    /// does not read the file.
    Attached {
        /// Handle of the channel.
        channel: ChannelId,
    },
    /// Has a channel that ends here give a message only when the one before is taken, from now on.
    Alternate {
        /// Handle of the channel.
        channel: ChannelId,
    },
    /// A flow without promises (rdata_send).
    OpenBestEffort {
        /// Address of the port.
        to: Address,
        /// Ring of this end.
        ring: RingShape,
    },
    /// Receives flows without promises (rdata_recv).
    BindBestEffort {
        /// The name.
        port: Name,
        /// Ring of this end.
        ring: RingShape,
    },
    /// Whether the host's directory has another host.
    Resolve {
        /// Name of the host to find.
        host: Name,
    },
    /// Measures the rate at which a link drains towards its neighbour; for root and the daemon's own user.
    /// The answer follows when the measurement is done.
    MeasureRate {
        /// The link's name.
        link: String,
    },
    /// State of the host.
    Status,
    /// Users of the host after a given one, as many as fit. For a status that reports more users than it
    /// contains.
    Users {
        /// The last user that the client has.
        after: Option<UserId>,
    },
    /// Channels of the host after a handle, as many as fit.
    Channels {
        /// Handle at which the page before has ended.
        after: Option<ChannelId>,
    },
    /// Registers a handler of this program, which is called by messages in a ring (RTU 3). Answered when admission has.
    Register {
        /// What the handler asks for.
        terms: RtuTerms,
        /// Thread id that the kernel uses for the thread of this client that is called: it gets the priority that the host
        /// maps the handler's class to, if it maps one. `None`: it stays as it is.
        thread: Option<u32>,
    },
    /// The ring in which the program of a handler reports. Once, and `Attached` follows.
    Reports {
        /// Handle of the handler.
        channel: ChannelId,
    },
    /// Connects by TCP of this host's own. Answered when the connection is open, or refused.
    ConnectTcp {
        /// The peer's address and port.
        peer: SocketAddr,
        /// Class of both handlers of the connection, whose data units are segments.
        class: RtuClass,
    },
    /// Listens for TCP connections at an address of this host. Answered when admission has.
    ListenTcp {
        /// Address and port.
        local: SocketAddr,
        /// Class of the listener's handler and of the handlers of each connection.
        class: RtuClass,
        /// Connections that wait to be accepted at most.
        backlog: u32,
    },
    /// Accepts a connection of a listener. Answered when there is one.
    AcceptTcp {
        /// Handle of the listener.
        channel: ChannelId,
    },
    /// Makes a TCP connection of two open channels of this program, which it can use no more: each packet is a message. Both
    /// ends do this. Answered as `ConnectTcp`.
    JoinTcp {
        /// The channel to the peer.
        outgoing: ChannelId,
        /// The channel from the peer.
        incoming: ChannelId,
        /// The peer's host.
        peer: Name,
        /// This end's port and the peer's, at least 1.
        ports: [u16; 2],
        /// Class of both handlers of the connection, whose data units are segments.
        class: RtuClass,
        /// Whether this end listened.
        accepts: bool,
    },
    /// The ring in which the program of a TCP connection writes. Once, and `Attached` follows.
    TcpOutbox {
        /// Handle of the connection.
        channel: ChannelId,
    },
    /// Closes the program's direction of a TCP connection behind what it has written. `Close` closes both.
    ShutdownTcp {
        /// Handle of the connection.
        channel: ChannelId,
    },
    /// Ends a TCP connection at once: its peer is reset.
    ResetTcp {
        /// Handle of the connection.
        channel: ChannelId,
    },
    /// Changes a setting of a TCP connection.
    SetTcp {
        /// Handle of the connection.
        channel: ChannelId,
        /// The setting.
        setting: TcpSetting,
    },
    /// State of one TCP connection.
    TcpStatus {
        /// Handle of the connection.
        channel: ChannelId,
    },
    /// TCP connections of the host after one, as many as fit.
    TcpConnections {
        /// The last one that is known.
        after: Option<ChannelId>,
    },
    /// TCP listeners of the host after one, as many as fit.
    TcpListeners {
        /// The last one that is known.
        after: Option<ChannelId>,
    },
    /// Copies packets of this host into a ring; for root, the daemon's own user and those that the configuration names.
    Capture {
        /// Which packets.
        wish: CaptureWish,
    },
    /// Handlers of the host after one, as many as fit.
    Handlers {
        /// The last one that is known.
        after: Option<RtuId>,
    },
    /// State of one channel (rtcGetParameter).
    Channel {
        /// Handle of the channel.
        channel: ChannelId,
    },
    /// Gives up a call of `ConnectTcp` that is not answered yet: the connection ends, and what it holds is given back. The call is
    /// answered all the same.
    CancelTcp {
        /// Number of the call.
        call: u64,
    },
}
