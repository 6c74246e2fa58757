//! TCP connections of a host's own, as clients see them.

use std::fmt;
use std::net::SocketAddr;

use punctual_proto::Nanos;
use punctual_proto::api::{RtuClass, UserId};
use punctual_proto::ids::ChannelId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a TCP connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(rename_all = "kebab-case")]
pub enum TcpEnd {
    /// Both sides closed it.
    #[error("both ends closed the connection")]
    Closed,
    /// The peer reset it.
    #[error("the peer reset the connection")]
    Reset,
    /// The peer refused it.
    #[error("the peer refused the connection: it has no listener at that port")]
    Refused,
    /// The peer did not answer in time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The network reports that the peer cannot be reached.
    #[error("the peer cannot be reached")]
    Unreachable,
    /// The program, or this host, ended it at once.
    #[error("the connection was aborted at this host")]
    Aborted,
}

/// States of a connection (RFC 9293 3.3.2), without LISTEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the RFC describes them")]
pub enum TcpState {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

impl fmt::Display for TcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
        })
    }
}

/// A setting of a connection that may change while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpSetting {
    /// Send small segments at once, without waiting for acknowledgements (no Nagle, RFC 9293 3.7.4).
    NoDelay(bool),
    /// Idle time after which a keep-alive segment is sent (RFC 9293 3.8.4), at least 100 ms; `None`: none is sent.
    KeepAlive(Option<Nanos>),
    /// Time to live or hop limit, 1 to 255; 0 counts as 64.
    HopLimit(u8),
    /// Longest time that the peer may leave data unacknowledged before the connection ends (RFC 9293 3.8.3).
    UserTimeout(Nanos),
}

/// The settings of a connection as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSettings {
    /// See [`TcpSetting::NoDelay`].
    pub nodelay: bool,
    /// See [`TcpSetting::KeepAlive`].
    pub keep_alive: Option<Nanos>,
    /// See [`TcpSetting::HopLimit`].
    pub hop_limit: u8,
    /// See [`TcpSetting::UserTimeout`].
    pub user_timeout: Nanos,
    /// Bytes of the connection that may be received and not read.
    pub receive_bytes: u64,
    /// Bytes of the connection that may be sent and not acknowledged.
    pub send_bytes: u64,
}

/// Length of a packet on a reserved path, and of a message of both its channels, in bytes: every path of IPv6 carries it (RFC
/// 8200 5).
pub const PATH_PACKET_BYTES: u32 = 1_280;

/// The channels of a TCP connection whose packets are messages (ADR 0055).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpPath {
    /// The channel that takes packets to the peer.
    pub outgoing: ChannelId,
    /// The channel that brings packets.
    pub incoming: ChannelId,
    /// Each packet is at the peer's input handler within this of its logical arrival. `None`: nothing is promised, because of
    /// the class, or because a host of the route cannot keep its promise now.
    pub sending: Option<Nanos>,
    /// Bound of packets that come from the peer.
    pub receiving: Option<Nanos>,
}

/// A TCP listener of a host's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpListenerStatus {
    /// Handle of the listener.
    pub channel: ChannelId,
    /// User whose program has it.
    pub user: UserId,
    /// This host's address and port.
    pub local: SocketAddr,
    /// Class of the connections that it accepts.
    pub class: RtuClass,
    /// Connections that may wait for the program.
    pub backlog: u32,
    /// Connections whose handshake is not complete.
    #[serde(default)]
    pub half_open: u32,
    /// Open connections that wait for the program.
    #[serde(default)]
    pub waiting: u32,
    /// SYNs that were answered by a cookie (RFC 4987), because too many connections were half-open.
    #[serde(default)]
    pub cookies: u64,
    /// SYNs that got no reply, because too many connections waited for the program.
    #[serde(default)]
    pub unanswered: u64,
}

/// A TCP connection of a host's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpConnectionStatus {
    /// Handle of the connection.
    pub channel: ChannelId,
    /// User whose program has it.
    pub user: UserId,
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub peer: SocketAddr,
    /// Class of both handlers.
    pub class: RtuClass,
    /// Its channels, if its path is reserved; `None`: what is promised is this host's part.
    #[serde(default)]
    pub path: Option<TcpPath>,
    /// State of the connection.
    pub state: TcpState,
    /// Why it ended, if it has.
    pub ended: Option<TcpEnd>,
    /// Segments that came.
    pub segments_in: u64,
    /// Segments that were made.
    pub segments_out: u64,
    /// What admission has granted to the input handler, for segments within the class's budget: the longest delay from the driver
    /// until the program has what they bring. `None` for best effort, and after a demotion.
    #[serde(default)]
    pub bound_in: Option<Nanos>,
    /// The same of the output handler: from the release of a segment until its last bit has left.
    #[serde(default)]
    pub bound_out: Option<Nanos>,
    /// Segments that came and were not processed: broken, or of no use.
    pub dropped: u64,
    /// Mean delay of segments on this host so far: from the driver until the program has what they bring. `None` before the first
    /// segment.
    #[serde(default)]
    pub delay_mean: Option<Nanos>,
    /// Longest such delay.
    #[serde(default)]
    pub delay_max: Option<Nanos>,
    /// Bytes that were received and not given to the program.
    pub readable_bytes: u64,
    /// Bytes that the peer has not acknowledged.
    pub unacknowledged_bytes: u64,
    /// Segments of data that were sent again.
    #[serde(default)]
    pub resent: u64,
    /// Bytes that the peer takes now beyond those that it has acknowledged.
    #[serde(default)]
    pub send_window_bytes: u64,
    /// Bytes that this end takes now.
    #[serde(default)]
    pub receive_window_bytes: u64,
    /// The connection's settings as they are now.
    #[serde(default)]
    pub settings: TcpSettings,
}
