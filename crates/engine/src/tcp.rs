//! TCP of this host's own, whose segments the processor makes and processes in handlers of the node (RTU 4.3, 5.2, 6;
//! ADR 0054): begun from any thread, run on the processor's own.
//!
//! The caller holds the local port (`punctual_link::kernel::PortHold`) from before the connection begins until
//! [`TcpEvent::Over`].

use std::net::SocketAddr;

use punctual_link::{Inlet, NextHop};
use punctual_proto::Nanos;
use punctual_proto::api::{RtuNumber, RtuRefusal, RtuSending, RtuTerms};
use punctual_proto::ids::{ChannelId, LinkId};
use punctual_proto::memory::{Inbox, Outbox};
pub use punctual_tcp::endsystem::{ListeningStatus, Rings, Segments};
pub use punctual_tcp::{
    ACK_SEGMENTS_MAX, Config as TcpConfig, Ended, EphemeralPorts, Flow, Secrets, Setting as TcpSetting,
    State as TcpState, SynCounts,
};
use thiserror::Error;

use crate::memory::HostMemory;

/// Number of connections and listeners of an engine, and their secret.
#[derive(Clone, Copy, Debug)]
pub struct TcpLimits {
    /// Seed of sequence numbers, timestamps and cookies (RFC 6528): unpredictable in a real host.
    pub secret: [u8; 16],
    /// Connections at once: as many flows as the links' drivers know.
    pub connections_max: u32,
    /// Listeners at once: as many as the links' drivers know.
    pub listeners_max: u32,
    /// Connections over channels at once.
    pub paths_max: u32,
}

/// What a handler of TCP asks of the node, and what bounds its packets in the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpTerms {
    /// Terms of the handler that processes segments.
    pub input: RtuTerms,
    /// Terms of the handler that makes segments.
    pub output: RtuTerms,
    /// What the output handler sends: to the link, as large as the largest segment.
    pub sending: RtuSending,
    /// Bounds of its packets before they cost a buffer.
    pub inlet: Inlet,
}

/// A connection of an engine. A number is used again when its connection is over; then the count differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TcpId {
    /// Number of the connection and of its flow in the driver.
    pub(crate) index: u32,
    /// Connections of the engine before this one.
    pub(crate) count: u64,
}

/// What answers late segments of a link's connections in TIME-WAIT.
pub struct TcpTimeWait<O: Outbox> {
    /// Terms of the handler: best effort.
    pub terms: RtuTerms,
    /// What it sends: to the link, as large as the largest segment.
    pub sending: RtuSending,
    /// The ring of segments: the end that the node reads.
    pub segments_out: O,
    /// Its other end.
    pub segments_in: Box<dyn Segments + Send>,
}

/// Status of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpStatus {
    /// What its protocol knows.
    pub connection: punctual_tcp::endsystem::Status,
    /// What admission has granted to its handlers.
    pub bounds: TcpBounds,
}

/// Bounds of the handlers of a connection, for segments within its class's budget. `None` before admission has decided, for best
/// effort, after a demotion, and where only late segments can come: the handlers are given back then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpBounds {
    /// From a segment's arrival at the driver until the program has what it brings.
    pub input: Option<Nanos>,
    /// From a segment's release until its last bit has left.
    pub output: Option<Nanos>,
}

/// The parts of one connection that its owner makes.
pub struct TcpParts<O: Outbox, I: Inbox> {
    /// Terms of both handlers.
    pub terms: TcpTerms,
    /// The program's rings.
    pub rings: Rings<HostMemory<O, I>>,
    /// The ring of segments: the end that the node reads.
    pub segments_out: O,
    /// Its other end, which the output handler fills.
    pub segments_in: Box<dyn Segments + Send>,
    /// Called on the processor's thread: it must not wait.
    pub notify: Box<dyn FnMut(TcpEvent) + Send>,
}

/// What is left of a connection, for its owner to drop: that takes time and system calls.
pub struct EndedConnection(#[allow(dead_code, reason = "it is only dropped")] pub(crate) Box<dyn Send>);

/// Puts the rings of a connection that is over where their owner drops them.
pub(crate) type DisposeRings<O, I> = fn(Rings<HostMemory<O, I>>) -> Box<dyn Send>;

/// A refusal, with the parts that their owner drops.
pub(crate) type Refused = (TcpRefusal, EndedConnection);

/// What happened to a connection.
pub enum TcpEvent {
    /// The handshake is over.
    Open,
    /// Admission or the driver refuses a connection that a listener has opened: its peer gets no answer any more.
    Refused(TcpRefusal),
    /// The connection ended; its program may still read.
    Ended(Ended),
    /// Only late segments of the peer can come: its rings and its handlers were given back, its port was not.
    TimeWait(EndedConnection),
    /// Its buffers were given back, too: the peer has closed, and only TIME-WAIT is left.
    Rests,
    /// All was given back: the port is free.
    Over(EndedConnection),
}

/// Why admission refuses a handler of TCP, and what it offers, in words of connections.
fn refusal_text(refusal: &RtuRefusal) -> String {
    match refusal {
        RtuRefusal::Range { what: RtuNumber::Units | RtuNumber::Packets, most, .. } => {
            format!(
                "an interval or a period has 1 to {most} segments: give units in this range, a lower rate or a shorter period"
            )
        }
        RtuRefusal::Processor(stage) | RtuRefusal::Link(stage) => {
            match stage.period_possible.or(stage.bound_possible) {
                Some(period) => {
                    format!("{refusal}; this handler alone would be granted as many segments every {period}")
                }
                None => refusal.to_string(),
            }
        }
        _ => refusal.to_string(),
    }
}

/// Why a connection or a listener cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TcpRefusal {
    /// The engine runs no TCP.
    #[error(
        "no link of this host carries TCP connections: set flows_max in a [[link]] whose driver supports it"
    )]
    NoTcp,
    /// All connections that the driver has room for exist, or the flow exists already.
    #[error(
        "all {0} connections are in use, or one from this port to this peer exists: close one, or raise flows_max"
    )]
    Exhausted(u32),
    /// All listeners that the driver has room for exist.
    #[error("all {0} listeners are in use: end one, or raise listeners_max")]
    ListenersExhausted(u32),
    /// Admission refused a handler.
    #[error("admission refused the {handler} handler: {}", refusal_text(refusal))]
    Handler {
        /// Which of them.
        handler: &'static str,
        /// Why.
        refusal: RtuRefusal,
    },
    /// The driver refused the flow.
    #[error("the driver: {0}")]
    Driver(String),
}

/// A connection to begin.
pub struct TcpConnect<O: Outbox, I: Inbox> {
    /// Both ends; the caller holds the local port.
    pub flow: Flow,
    /// The link that it runs over.
    pub link: LinkId,
    /// The way to the peer ([`EngineHandle::next_hop`](crate::EngineHandle::next_hop)).
    pub hop: NextHop,
    /// Settings of the connection.
    pub config: TcpConfig,
    /// The rest.
    pub parts: TcpParts<O, I>,
}

/// A connection over two channels to begin (ADR 0055). The caller gives the outgoing channel the other end of `segments` as
/// its ring, and has the incoming one delivered by [`crate::direct::deliver`].
pub struct TcpJoin<O: Outbox, I: Inbox> {
    /// Both ends.
    pub flow: Flow,
    /// The channel that brings its packets.
    pub incoming: ChannelId,
    /// How soon to check whether a ring that was full has room.
    pub pause: Nanos,
    /// Settings of the connection.
    pub config: TcpConfig,
    /// Terms of the input and of the output handler; what the latter sends is in the channel's contract.
    pub terms: [RtuTerms; 2],
    /// The program's rings.
    pub rings: Rings<HostMemory<O, I>>,
    /// The ring of segments, which the output handler fills.
    pub segments: Box<dyn Segments + Send>,
    /// Called on the processor's thread: it must not wait.
    pub notify: Box<dyn FnMut(TcpEvent) + Send>,
}

/// A listener to begin.
pub struct TcpListen<O: Outbox> {
    /// Address and port; the caller holds them.
    pub local: SocketAddr,
    /// The link that it listens on.
    pub link: LinkId,
    /// Settings of its connections.
    pub config: TcpConfig,
    /// Connections that may be half-open, and that may wait to be adopted.
    pub backlog: u32,
    /// Terms of its handler.
    pub terms: RtuTerms,
    /// What it sends.
    pub sending: RtuSending,
    /// Bounds of its packets before they cost a buffer: of everybody who is not connected.
    pub inlet: Inlet,
    /// The ring of segments: the end that the node reads.
    pub segments_out: O,
    /// Its other end.
    pub segments_in: Box<dyn Segments + Send>,
    /// Called on the processor's thread when a connection waits to be adopted: it must not wait.
    pub notify: Box<dyn FnMut() + Send>,
}

/// The result of [`EngineHandle::accept_tcp`](crate::EngineHandle::accept_tcp).
pub enum Accepted<O: Outbox, I: Inbox> {
    /// A connection was adopted: its number and its two ends.
    One(TcpId, Flow),
    /// None waits; here are the parts.
    None(Box<TcpParts<O, I>>),
}
