//! The words between a [`Node`](super) and what drives it: requests, events, refusals, status.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use punctual_analysis::{
    Contract, ContractError, Delivery, Explanation, Instant, Nanos, Ppm, Refusal, RefusalReason,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::config::CpuCosts;
use crate::ids::{Address, ChannelId, Cookie, LinkId, ListenerId, Name, NodeId, PathId};

/// Who asks, for quotas and for the receiver's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UserId(pub u32);

/// Which resource on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageKind {
    /// Protocol processing at the source.
    SourceCpu,
    /// Protocol processing at a forwarder.
    ForwardCpu,
    /// Protocol processing at the sink.
    SinkCpu,
    /// The link out of a node.
    Link,
}

impl fmt::Display for StageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourceCpu => "source CPU",
            Self::ForwardCpu => "forwarder CPU",
            Self::SinkCpu => "sink CPU",
            Self::Link => "link",
        })
    }
}

/// One stage of an admitted (or probed) channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageGrant {
    /// On which host.
    pub node: NodeId,
    /// Which resource there.
    pub kind: StageKind,
    /// The smallest bound that it offered.
    pub offered: Nanos,
    /// d(k): the bound it holds now, with its share of the leftover.
    pub bound: Nanos,
    /// p_max behind it.
    pub propagation_max: Nanos,
    /// C: cost of one largest message here.
    pub cost: Nanos,
    /// What `offered` is made of.
    pub made_of: Explanation,
    /// Utilisation of the stage with this channel.
    pub utilisation: Ppm,
    /// Bytes of buffers reserved behind this stage.
    pub buffer_bytes: u64,
}

/// A yes: what is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Every message is delivered by its logical arrival plus this.
    pub deadline: Nanos,
    /// The smallest end-to-end bound that the route could have given.
    pub bound_possible: Nanos,
    /// Stage by stage, from the source on.
    pub stages: Vec<StageGrant>,
    /// The nodes, source and destination included.
    pub route: Vec<NodeId>,
    /// Messages that the source's ring must hold: B + ceil(d(1) / I').
    pub outbox_messages: u32,
}

/// Why a channel was refused, in one place on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum RefuseCause {
    /// A stage's admission said no.
    #[error("{kind}: {refusal}")]
    Stage {
        /// Which resource.
        kind: StageKind,
        /// Its reason and nearest offer.
        refusal: Refusal,
    },
    /// Buffer memory of the node is used up.
    #[error("buffers: {0}")]
    Buffers(RefusalReason),
    /// Nobody listens there.
    #[error("nobody listens on \"{0}\"")]
    NoListener(Name),
    /// The receiving application said no.
    #[error("the receiver refused: {0}")]
    Receiver(String),
    /// The receiving application did not answer.
    #[error("the receiver did not answer in time")]
    ReceiverSilent,
    /// The next hop is down or not a neighbour.
    #[error("node {0} cannot be reached from here")]
    Unreachable(NodeId),
    /// The sum of the smallest bounds is beyond the deadline.
    #[error("the route's smallest end-to-end bound is {possible}, wanted {wanted}")]
    Deadline {
        /// Smallest possible.
        possible: Nanos,
        /// Asked for.
        wanted: Nanos,
    },
    /// Channel numbers or table space are used up.
    #[error("no room for another channel")]
    Exhausted,
    /// The contract cannot be carried (too many fragments, packet larger than a link's).
    #[error("the contract cannot be carried here: {0}")]
    Unsuitable(String),
    /// Signalling timed out.
    #[error("no answer from the network")]
    Timeout,
}

/// A no: which hop, why, and what it could offer instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("node {node}: {cause}")]
pub struct ChannelRefusal {
    /// The hop.
    pub node: NodeId,
    /// Why.
    pub cause: RefuseCause,
    /// The nearest contract that would probably be accepted, if any.
    pub offer: Option<Contract>,
}

/// A request that cannot even be tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum RequestError {
    /// The contract is out of range.
    #[error("contract: {0}")]
    Contract(#[from] ContractError),
    /// Not in the directory.
    #[error("host \"{0}\" is not in the directory: add it to [[host]] in the configuration")]
    UnknownHost(Name),
    /// No route.
    #[error("no route to \"{0}\": add a [[route]] or a link to it")]
    NoRoute(Name),
    /// A second listener.
    #[error("somebody listens on \"{0}\" already: choose another name or close it")]
    NameTaken(Name),
    /// No such channel or listener, or not in a state for this.
    #[error("no such channel or listener")]
    Unknown,
    /// A message longer than the contract.
    #[error("message of {bytes} B is longer than the contract's {bytes_max} B")]
    TooLong {
        /// Its length.
        bytes: u32,
        /// What the contract allows.
        bytes_max: u32,
    },
    /// Table space is used up.
    #[error("no room for another channel: close one")]
    Exhausted,
}

/// Opening a channel from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The listener.
    pub to: Address,
    /// Traffic and wish.
    pub contract: Contract,
    /// On whose behalf.
    pub user: UserId,
    /// Only ask what would be offered; holds nothing, asks no application.
    pub probe: bool,
    /// Answers a receiver's request (see [`Event::Requested`]); the token came with it.
    pub token: Option<u64>,
}

/// What the receiver's agent sees before it consents (CLIPS 4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The channel's handle here.
    pub channel: ChannelId,
    /// Who listens.
    pub listener: ListenerId,
    /// The source host.
    pub from: Name,
    /// On whose behalf there.
    pub user: UserId,
    /// What it asks for.
    pub contract: Contract,
    /// Messages that the receiver's ring must hold to keep the promise.
    pub inbox_messages: u32,
    /// The token of our own request, where this answers one.
    pub token: Option<u64>,
}

/// Why a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CloseReason {
    /// Closed at this end.
    Local,
    /// Closed by the other end.
    Peer,
    /// A link or node on the way is down, or the reservation ran out.
    PathLost,
    /// The other host restarted.
    PeerRestarted,
}

/// Something that a channel's application should know; counted, told at most once per kind until read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// Messages broke the contract and were delayed, dropped or demoted.
    Policed,
    /// A message missed its bound.
    Late,
    /// The receiver did not free its ring; messages were dropped.
    Overrun,
    /// The profile's costs are exceeded: guarantees are at risk.
    ProfileAtRisk,
}

/// What the node tells its driver, for applications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Yes. The source attaches its outbox with [`super`]'s `attach_outbox` and may send.
    Opened {
        /// Which.
        channel: ChannelId,
        /// What is promised.
        grant: Grant,
    },
    /// No.
    Refused {
        /// Which.
        channel: ChannelId,
        /// Where, why, and what instead.
        refusal: ChannelRefusal,
    },
    /// A probe's answer; nothing is held.
    Probed {
        /// Which.
        channel: ChannelId,
        /// What would be granted or why not.
        answer: Result<Grant, ChannelRefusal>,
    },
    /// The agent must consent or refuse.
    Incoming(Incoming),
    /// The channel that the agent consented to is established: `accept` may return it.
    Established {
        /// Which.
        channel: ChannelId,
    },
    /// A receiver asks this host's application `port` to open a channel to it.
    Requested {
        /// Who listens here.
        listener: ListenerId,
        /// Where to open it to.
        to: Address,
        /// With what contract.
        contract: Contract,
        /// On whose behalf there.
        user: UserId,
        /// To be given back with the open request.
        token: u64,
    },
    /// Our request to a source was refused or nobody heard it.
    RequestFailed {
        /// Which request.
        token: u64,
        /// Why.
        refusal: ChannelRefusal,
    },
    /// The channel is gone; its rings may be dropped once read out.
    Closed {
        /// Which.
        channel: ChannelId,
        /// Why.
        reason: CloseReason,
    },
    /// See [`Notice`].
    Notice {
        /// Which.
        channel: ChannelId,
        /// What.
        notice: Notice,
    },
}

/// One unit of protocol work: what the processor does without being pre-empted.
#[derive(Debug, PartialEq, Eq)]
pub struct Work {
    /// Whose.
    pub handler: u32,
    /// Which path through the code, for the cost model.
    pub kind: WorkKind,
    /// Packets in this unit.
    pub packets: u32,
    /// Payload bytes that it copies.
    pub bytes: u32,
    /// Whether it begins or ends a message (the extra per message).
    pub message_edge: bool,
}

impl Work {
    /// The cost that admission assumes for it; unbounded where it counts as interference.
    pub fn declared_cost(&self, costs: &CpuCosts) -> Nanos {
        match self.kind {
            WorkKind::Signalling => Nanos::MAX,
            kind => costs.of_unit(kind, self.packets, self.bytes, self.message_edge),
        }
    }
}

/// The paths that a profile measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkKind {
    /// Source: fragment.
    Send,
    /// Forwarder: pass on.
    Forward,
    /// Sink: reassemble, deliver.
    Receive,
    /// Best-effort packet, any of the three.
    BestEffort,
    /// RTCOP and HELLO.
    Signalling,
}

/// What to hand to a link's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes written to the frame, from our header on.
    pub len: usize,
    /// Which of the two ports it goes to.
    pub port: Port,
    /// Bytes that it takes on the wire: what `handle_sent` must give back.
    pub wire_bytes: u32,
}

/// The two well-known ports (design 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// Data of channels and best effort.
    Data,
    /// RTCOP and HELLO.
    Signalling,
}

/// What a channel's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It starts here.
    Source,
    /// It passes through.
    Forwarder,
    /// It ends here.
    Sink,
}

/// Counters of one channel at one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelCounters {
    /// Messages taken in (source) or begun (elsewhere).
    pub messages_in: u64,
    /// Messages handed to the link completely, or delivered.
    pub messages_out: u64,
    /// Payload bytes of those.
    pub bytes_out: u64,
    /// Messages delayed by policing at the source.
    pub delayed: u64,
    /// Messages dropped by policing at the source.
    pub dropped: u64,
    /// Packets or messages demoted to best effort.
    pub demoted: u64,
    /// Messages that missed their bound at this end.
    pub misses: u64,
    /// Messages never completed (a fragment was lost) .
    pub incomplete: u64,
    /// Messages lost since the receiver's ring was full.
    pub overruns: u64,
    /// Packets dropped for want of slots or buffers.
    pub overflows: u64,
    /// Largest latency observed at the sink, from the logical arrival as far as this host can tell.
    pub latency_max: Nanos,
    /// Most slots or messages of the reservation in use at once.
    pub occupancy_max: u32,
}

/// A channel as `channels` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// Local handle.
    pub channel: ChannelId,
    /// Name on every hop.
    pub path: PathId,
    /// What this host is to it.
    pub role: Role,
    /// Source host's name.
    pub from: String,
    /// Listener.
    pub to: Address,
    /// The contract.
    pub contract: Contract,
    /// Local stages.
    pub stages: Vec<StageGrant>,
    /// State of signalling (`open`, `creating`, ...).
    pub state: String,
    /// How it is delivered.
    pub delivery: Delivery,
    /// Counters.
    pub counters: ChannelCounters,
}

/// A link as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Index.
    pub link: LinkId,
    /// Name.
    pub name: String,
    /// The neighbour.
    pub neighbour: NodeId,
    /// Whether HELLOs come.
    pub alive: bool,
    /// The neighbour's clock less ours, and the error bound of that; `None` before the first round trip.
    pub clock_offset_ns: Option<(i64, u64)>,
    /// Smallest round trip measured.
    pub round_trip_min: Option<Nanos>,
    /// Given away to channels.
    pub utilisation: Ppm,
    /// Guaranteed packets sent.
    pub packets_guaranteed: u64,
    /// Best-effort packets sent.
    pub packets_best_effort: u64,
    /// Signalling packets sent.
    pub packets_signalling: u64,
    /// Bytes sent, on the wire.
    pub wire_bytes: u64,
    /// Best-effort packets dropped at this link's queue.
    pub best_effort_dropped: u64,
}

/// Packets that were thrown away at the edge, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCounters {
    /// Shorter than a header, or inconsistent lengths.
    pub malformed: u64,
    /// Another version of the protocol.
    pub version: u64,
    /// No such path here.
    pub unknown_path: u64,
    /// The cookie is not the channel's.
    pub wrong_cookie: u64,
    /// From another link than the channel's.
    pub wrong_link: u64,
    /// Signalling that does not authenticate.
    pub unauthenticated: u64,
    /// Signalling that was seen before.
    pub replayed: u64,
    /// No reserved buffer was free.
    pub no_buffer: u64,
    /// Best effort to a port that nobody has bound, or to an unknown host.
    pub no_receiver: u64,
}

/// All of `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// This node.
    pub id: NodeId,
    /// Its name.
    pub name: Name,
    /// Channels that start, pass or end here.
    pub channels: u32,
    /// Of the CPU, given away.
    pub cpu_utilisation: Ppm,
    /// Bytes of buffers reserved.
    pub buffer_bytes: u64,
    /// Links.
    pub links: Vec<LinkStatus>,
    /// Dropped at the edge.
    pub drops: DropCounters,
    /// Handlers that overran their declared time.
    pub overruns: u64,
    /// Signalling messages retransmitted.
    pub retransmissions: u64,
    /// This host's time.
    pub now: Instant,
}

/// What a local driver needs to fill the drop map of an early demultiplexer; also for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFilter {
    /// The path.
    pub path: PathId,
    /// Its cookie.
    pub cookie: Cookie,
    /// Where it comes in.
    pub link: LinkId,
}
