//! The words between a [`Node`](super) and what drives it: requests, events, refusals, status.

mod account;
mod breach;
mod directory;
mod filter;
mod lost;
mod rate;
mod record;
mod refusal;
mod status;

pub use crate::config::WorkKind;
pub use crate::ids::Role;
pub use account::Account;
pub use breach::{Breach, BrokenStage, Cause, LateArrivals, LateStage, SeenIn, StageName};
pub use filter::{FilterChange, PathFilter};
pub use lost::{LostAt, LostWhy, Passed, Tally, Thrown};
pub use rate::{MeasuredRate, RateRefusal, RateStatus};
pub use record::{BusyRecord, PathRecord, WakeRecord};
pub use refusal::{ChannelRefusal, HostName, RefuseCause, name_of};
pub use status::{
    ChannelCounters, ChannelPage, ChannelStatus, DegradedPlace, DropCounters, ForeignVersion, KernelShare,
    LinkStatus, NodeStatus,
};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use punctual_analysis::{Contract, ContractError, CostParts, Explanation, Nanos, Ppm};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{CostSource, CpuCosts, Degraded};
use crate::ids::{Address, ChannelId, LinkId, ListenerId, Name, NodeId};

/// Who asks, for quotas and for the receiver's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// Of `made_of.interference`, what cold caches take at the beginning of a busy period.
    pub cold_start: Nanos,
    /// What `cost` is made of.
    pub cost_parts: CostParts,
    /// Where the costs of a processor come from.
    pub costs_from: CostSource,
    /// Utilisation of the stage with this channel.
    pub utilisation: Ppm,
    /// Bytes of buffers reserved behind this stage.
    pub buffer_bytes: u64,
    /// Why the bound is no guarantee, if it is none.
    #[serde(default)]
    pub degraded: Option<Degraded>,
}

/// A yes: what is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Every message is delivered by its logical arrival plus this.
    pub deadline: Nanos,
    /// So far ahead of its logical arrival a message keeps the contract: what a sender's timer may be late by.
    #[serde(default)]
    pub jitter_allowance: Nanos,
    /// The smallest end-to-end bound that the route could have given.
    pub bound_possible: Nanos,
    /// Stage by stage, from the source on.
    pub stages: Vec<StageGrant>,
    /// The nodes, source and destination included.
    pub route: Vec<NodeId>,
    /// Their names, as the source knows them.
    #[serde(default)]
    pub hosts: Vec<HostName>,
    /// Messages that the source's ring must hold: B + ceil((a + d) / I'), a the jitter allowance, d the bounds of the source's
    /// own stages together.
    pub outbox_messages: u32,
}

impl Grant {
    /// Hosts on the way, by name, whose bounds are no guarantees; with one of them nothing is guaranteed.
    pub fn degraded_by(&self) -> Vec<String> {
        let hosts = degraded(&self.stages);
        hosts_of(&hosts).into_iter().map(|node| name_of(&self.hosts, node)).collect()
    }

    /// A place on the way, by name: `link a-r`, or `host r`.
    pub fn place(&self, stage: &StageName) -> String {
        let host = name_of(&self.hosts, stage.node);
        match stage.towards {
            Some(towards) => format!("link {host}-{}", name_of(&self.hosts, towards)),
            None => format!("host {host}"),
        }
    }

    /// The same with the reasons, a line each.
    pub fn degraded_why(&self) -> Vec<String> {
        let line =
            |DegradedHost { node, why }: &DegradedHost| format!("{}: {why}", name_of(&self.hosts, *node));
        degraded(&self.stages).iter().map(line).collect()
    }
}

/// A host whose bounds are no guarantees, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DegradedHost {
    /// Which.
    pub node: NodeId,
    /// Why.
    pub why: Degraded,
}

/// What of `stages` is no guarantee: each host with each reason once, in the order of the route.
pub fn degraded(stages: &[StageGrant]) -> Vec<DegradedHost> {
    let mut hosts = Vec::new();
    for StageGrant { node, degraded, .. } in stages {
        let host = degraded.map(|why| DegradedHost { node: *node, why });
        hosts.extend(host.filter(|host| !hosts.contains(host)));
    }
    hosts
}

/// The hosts, each once, in their order.
pub fn hosts_of(degraded: &[DegradedHost]) -> Vec<NodeId> {
    let mut nodes = Vec::new();
    for DegradedHost { node, .. } in degraded {
        if !nodes.contains(node) {
            nodes.push(*node);
        }
    }
    nodes
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
    /// Not in the directory, but another host is.
    #[error(
        "host \"{asked}\" is not in the directory: did you mean \"{like}\"? Else add it to [[host]] in the configuration"
    )]
    UnknownHostLike {
        /// What was given.
        asked: Name,
        /// What the directory has.
        like: Name,
    },
    /// A channel from a host to itself.
    #[error("\"{0}\" is this host: a channel leads to another one; ask from there, or name another host")]
    Itself(Name),
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
    /// This user's requests have their share of the table.
    #[error("too many requests of this user wait for their answers: wait for some of them, then ask again")]
    Crowded,
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
    /// Closed by the application at the other end.
    Peer,
    /// A link or node on the way is down.
    PathLost,
    /// The other host restarted.
    PeerRestarted,
    /// The driver of a link on the way would not let its packets in.
    FilterRefused,
    /// The kernel of a host on the way does not give the processor the time that admission has given away.
    RuntimeRefused,
    /// The application at this end is gone without having closed it.
    Vanished,
    /// The application at the other end is gone without having closed it.
    PeerVanished,
    /// This host is shutting down.
    Stopped,
    /// The other host is shutting down, or one on the way.
    PeerStopped,
    /// The reservation was not refreshed in time by the source.
    LeaseOver,
}

impl CloseReason {
    /// What the other end is told of an end for this reason here.
    pub const fn told(self) -> Self {
        match self {
            Self::Local => Self::Peer,
            Self::Vanished => Self::PeerVanished,
            Self::Stopped => Self::PeerStopped,
            other => other,
        }
    }

    /// In words, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Local => "closed at this end",
            Self::Peer => "closed by the application at the other end",
            Self::PathLost => "a link or node on the way is down",
            Self::PeerRestarted => "the other host restarted",
            Self::Vanished => "this application is gone without having closed it",
            Self::PeerVanished => {
                "the application at the other end is gone without having closed it: killed or crashed"
            }
            Self::Stopped => "this host's daemon is shutting down",
            Self::PeerStopped => "the daemon of the other host, or of one on the way, was shut down",
            Self::LeaseOver => "its reservation was not refreshed in time",
            Self::FilterRefused => {
                "a link's driver would not let its packets in: see the log of the hosts on the way"
            }
            Self::RuntimeRefused => {
                "the kernel of a host on the way does not give its processor enough time: see that host's log"
            }
        }
    }
}

/// What a channel's sink has of it: its last word to the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Messages that its application was given.
    pub delivered: u64,
    /// Those of them that were surely delivered later than their deadline, by the clocks of the hosts on the way.
    pub late: u64,
    /// Those whose deadline lay within the clocks' error of their delivery.
    pub perhaps_late: u64,
    /// Those of which nobody knows, since the clocks of the hosts were not known yet.
    pub unmeasured: u64,
    /// Messages that are missing before the last one that came.
    pub lost: u64,
    /// Where most of those were lost that the source has sent, as far as the hosts on the way have said.
    pub lost_at: Option<LostAt>,
    /// Messages of which the first packet was taken in at the sink.
    pub received: u64,
    /// What came to the sink's host, and what that threw away.
    pub passed: Passed,
    /// The longest from a logical arrival to the delivery, by the clocks as they are known.
    pub latency_max: Nanos,
}

/// Something that a channel's application should know; counted, told at most once per kind until read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// Messages broke the contract, beyond its jitter allowance, and were delayed, dropped or demoted.
    Policed,
    /// A message was surely delivered later than its deadline.
    Late,
    /// The receiver did not free its ring; messages were dropped.
    Overrun,
    /// The profile's costs are exceeded: guarantees are at risk.
    ProfileAtRisk,
}

/// What became of a link, for whoever runs the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The neighbour is there.
    Up,
    /// The neighbour is silent, or what was said to it was not heard.
    Down,
    /// The neighbour was there all the time, and has forgotten what was agreed with it: it restarted, or gave us up.
    Restarted,
    /// Signalling that does not authenticate, or is not from that neighbour to this node: another key, or other ids.
    Unauthenticated {
        /// All of them so far.
        packets: u64,
    },
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
    /// Nobody waits any more for the answer to [`Event::Requested`]: its time is over, or it gave way to others.
    RequestOver {
        /// Which request.
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
        /// At the source: what the sink has of it; `None` where that was not to be learnt.
        receipt: Option<Receipt>,
    },
    /// Admission has decided something for a channel of this host's, or for one that passes it, away from the processor.
    Decided {
        /// Which.
        channel: ChannelId,
        /// How long that took.
        took: Nanos,
    },
    /// A stage on a channel's way breaks its promise, or keeps it again.
    Stage {
        /// Which channel, of an end here; `None`: said once for the host, of its own stages and of those that its channels
        /// pass.
        channel: Option<ChannelId>,
        /// Which stage, and what is known of it.
        stage: BrokenStage,
        /// It has kept its promise for a lease.
        healed: bool,
    },
    /// A stage was late, and is not broken for it: said at once, then once a minute, or when it is twice as late.
    Late(LateStage),
    /// What became of a link.
    Link {
        /// Which.
        link: LinkId,
        /// What.
        change: LinkChange,
    },
    /// A measurement of what a link drains has ended.
    Rate {
        /// Which.
        link: LinkId,
        /// What it drains, or why that was not to be learnt.
        result: Result<MeasuredRate, RateRefusal>,
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
    /// Declared time of the application's handler that runs within it.
    pub application: Nanos,
}

impl Work {
    /// The cost that admission assumes for it; unbounded where it counts as interference.
    pub fn declared_cost(&self, costs: &CpuCosts) -> Nanos {
        match self.kind {
            WorkKind::Signalling => Nanos::MAX,
            kind => costs.of_unit(kind, self.packets, self.bytes, self.message_edge) + self.application,
        }
    }
}

/// What to hand to a link's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<F> {
    /// Which of the two ports it goes to.
    pub port: Port,
    /// Bytes that it takes on the wire: what `handle_sent` must give back.
    pub wire_bytes: u32,
    /// Where its bytes are.
    pub packet: PacketOut<F>,
}

/// The bytes of a packet that goes out, from our header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOut<F> {
    /// So many were written to the buffer that was given.
    Written(usize),
    /// A received frame that passes through, with its new header: to be sent as it is.
    Frame(F),
}

impl<F: AsRef<[u8]>> PacketOut<F> {
    /// Brings the packet to `out`, the buffer that was given, and says how long it is: for drivers that send
    /// only from their own buffers.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        match self {
            Self::Written(len) => *len,
            Self::Frame(frame) => {
                let bytes = frame.as_ref();
                out[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
        }
    }
}

/// The two well-known ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// Data of channels and best effort.
    Data,
    /// RTCOP and HELLO.
    Signalling,
}
