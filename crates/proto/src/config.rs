//! The configuration with which a node starts. Plain data; `Node::new` checks it.

mod check;
mod models;
pub mod plan;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use punctual_analysis::{Activation, BitRate, Contract, Nanos, Ppm, Rate};
pub use punctual_analysis::{Admission, Interference, Pacing, RunPolicy};
use serde::{Deserialize, Serialize};

pub use self::check::NodeConfigError;
pub use self::models::{cpu_model, link_model, path_costs};
use self::plan::PlannedFlow;
use crate::ids::{Epoch, Name, NodeId};
use crate::limits;

/// Everything about one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// This node.
    pub id: NodeId,
    /// Name of this node in the directory.
    pub name: Name,
    /// This life.
    pub epoch: Epoch,
    /// Payload of a packet of channels that start here, in bytes.
    pub fragment_bytes: u32,
    /// Likewise of low-latency channels; `None`: the same. Smaller ones block others less, and cost more headers.
    pub fragment_low_latency_bytes: Option<u32>,
    /// Tolerance of this host's clock; rho is twice the domain's.
    pub clock_tolerance: Ppm,
    /// The links, in the order of their `LinkId`s.
    pub links: Vec<LinkConfig>,
    /// The processor.
    pub cpu: CpuConfig,
    /// Every host of the domain, this one included.
    pub directory: Vec<(Name, NodeId)>,
    /// Candidate routes, the preferred first.
    pub routes: Vec<RouteConfig>,
    /// Times and keys of signalling.
    pub signalling: SignallingConfig,
    /// Most bytes of buffers that channels may reserve here.
    pub buffer_bytes_max: u64,
    /// How much before l + D an `at-deadline` message is handed over: the wake-up of the receiver.
    pub wakeup_margin: Nanos,
}

impl NodeConfig {
    /// Payload of a packet of a channel with this contract that starts here.
    pub fn fragment_bytes_of(&self, contract: &Contract) -> u32 {
        match contract.activation {
            Activation::LowLatency { .. } => self.fragment_low_latency_bytes.unwrap_or(self.fragment_bytes),
            Activation::Deadline | Activation::Periodic { .. } => self.fragment_bytes,
        }
    }
}

/// Nodes to pass on the way, without this one, the destination last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteConfig {
    /// The next nodes in order; the last is the destination.
    pub via: Vec<NodeId>,
}

/// What else goes out by the link's device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelTraffic {
    /// Nothing goes out except what [`LinkConfig::interference`] states.
    #[default]
    Bounded,
    /// Bounded as in [`Self::Bounded`], and the kernel's packets are sent behind all of Punctual's. Best
    /// effort leaves them half of what is not given away.
    Behind,
    /// Nobody bounds the other traffic: what is promised across the link is no guarantee.
    Unbounded,
}

/// A point-to-point link to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// For people: the interface or what the driver calls it.
    pub name: String,
    /// The node at the other end.
    pub neighbour: NodeId,
    /// Measured drain rate.
    pub rate: BitRate,
    /// Error of the rate. Admission and pacing use the rate less this error.
    pub rate_error: Ppm,
    /// Nobody knows the rate yet: [`Self::rate`] is the most that a measurement tries. It is measured once the neighbour is
    /// there, and until then nothing is admitted across the link.
    pub rate_auto: bool,
    /// The most that a measurement tries, if that is more than [`Self::rate`].
    pub rate_ceiling: Option<BitRate>,
    /// Largest packet, from our header on, in bytes.
    pub packet_bytes_max: u32,
    /// Largest best-effort packet likewise; `None`: the same. Signalling's are no longer either.
    pub packet_best_effort_bytes_max: Option<u32>,
    /// Bytes on the wire that each packet adds: UDP, IP, Ethernet, preamble, gap.
    pub overhead_bytes: u32,
    /// Largest packets' worth of bytes that may be handed over and not yet sent.
    pub pipeline_depth: u32,
    /// What drives the pipeline: completions or the clock.
    pub pace: Pacing,
    /// delta: reaction time to a completion or to the clock.
    pub reaction: Nanos,
    /// Shortest propagation to the neighbour's driver.
    pub propagation_min: Nanos,
    /// Longest propagation to the neighbour's driver.
    pub propagation_max: Nanos,
    /// How far the receive time there may lie after what slack predicts: kernel and driver jitter.
    pub prediction_error: Nanos,
    /// Kernel traffic beside us.
    pub interference: Interference,
    /// What is known of it.
    pub kernel_traffic: KernelTraffic,
    /// The most that kernel traffic is given while what is admitted allows it: the host's shaper follows
    /// ([`crate::node::Node::poll_shaper`]). Admission keeps what `interference` says. No more than its rho: the kernel has
    /// that.
    pub kernel_share_max: Ppm,
    /// Share of the link that cannot be given away.
    pub best_effort_share_min: Ppm,
    /// Most of the link's rate that one best-effort flow may take; `Ppm::ONE` is no cap.
    pub best_effort_flow_cap: Ppm,
    /// Most of the link's rate that best effort as a whole may take; `Ppm::ONE` is no cap.
    pub best_effort_cap: Ppm,
    /// Bytes that each best-effort flow may queue here.
    pub best_effort_flow_bytes_max: u32,
    /// Frames that the driver receives into: packets passing through keep theirs until they are sent.
    pub frames: u32,
    /// Admission of this link.
    pub admission: Admission,
}

/// Costs of protocol processing on this host (ADR 0013): what a profile measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCosts {
    /// Taking a message from an application and the first packet's extra.
    pub send_message: Nanos,
    /// The first packet of a run at the source: whatever ran before may have displaced its code and data.
    pub send_packet: Nanos,
    /// Each later packet of a run at the source.
    pub send_packet_later: Nanos,
    /// Each packet at a forwarder.
    pub forward_packet: Nanos,
    /// Each packet at the sink.
    pub receive_packet: Nanos,
    /// Handing a message to the receiver.
    pub deliver_message: Nanos,
    /// Each 1,024 payload bytes that are copied.
    pub copy_kib: Nanos,
    /// What a busy period takes beyond its units, since it begins with cold caches: charged once, as interference.
    pub cold_start: Nanos,
}

/// Where the costs of the processor come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostSource {
    /// Somebody wrote the costs down, or they are the defaults.
    #[default]
    Configured,
    /// A profile of this machine.
    Measured {
        /// Margin that was added to the measured costs.
        margin: Ppm,
        /// Measured in about a second as the host started, not by `punctual profile`.
        short: bool,
    },
    /// The profile of another machine or version, used since that was asked for: nothing is guaranteed by it.
    Foreign {
        /// Margin that was added to the measured costs.
        margin: Ppm,
    },
}

/// The processor that does this node's protocol work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Costs that admission charges.
    pub costs: CpuCosts,
    /// Where the costs come from.
    pub costs_from: CostSource,
    /// The host runs without a real-time class: bounds that include it are no guarantees.
    pub best_effort_host: bool,
    /// r: longest time from an arrival to the processor's looking at it.
    pub release_latency: Nanos,
    /// Most of the CPU that all real-time work may take.
    pub utilisation_max: Ppm,
    /// Share of the CPU that cannot be given away.
    pub best_effort_share_min: Ppm,
    /// Driver work, timers, signalling: not ordered by us.
    pub interference: Interference,
    /// Run-time order.
    pub run: RunPolicy,
    /// Admission policy of the processor.
    pub admission: Admission,
    /// b_p: PDUs finished before a yield is honoured.
    pub quantum_packets: u32,
    /// Most of the CPU that best-effort processing as a whole may take; `Ppm::ONE` is no cap.
    pub best_effort_cpu_cap: Ppm,
    /// Most of the CPU that one best-effort flow may take, wherever it starts; `Ppm::ONE` is no cap.
    pub best_effort_flow_cpu_cap: Ppm,
    /// This host's part of a static schedule; only with `rmdp`.
    pub plan: Vec<PlannedFlow>,
}

/// Why a bound is no guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Degraded {
    /// The processor runs without a real-time class.
    NoRealTime,
    /// The processor's costs were measured on another machine or by another version.
    ForeignCosts,
    /// Nobody bounds what else goes out by the link's device.
    KernelTraffic,
    /// The stage breaks its promise now; a channel across it is none of these once it has healed.
    Broken,
}

impl Degraded {
    /// A word for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoRealTime => "no-real-time",
            Self::ForeignCosts => "foreign-costs",
            Self::KernelTraffic => "kernel-traffic",
            Self::Broken => "broken",
        }
    }
}

impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRealTime => "no real-time class",
            Self::ForeignCosts => "costs of another machine",
            Self::KernelTraffic => "kernel traffic beside a link is not bounded",
            Self::Broken => "a stage breaks its promise now",
        })
    }
}

impl CpuConfig {
    /// Why what is promised here is no guarantee, if it is none.
    pub const fn degraded(&self) -> Option<Degraded> {
        match self.costs_from {
            _ if self.best_effort_host => Some(Degraded::NoRealTime),
            CostSource::Foreign { .. } => Some(Degraded::ForeignCosts),
            CostSource::Configured | CostSource::Measured { .. } => None,
        }
    }
}

/// Times and keys of RTCOP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignallingConfig {
    /// Authenticates signalling within the domain (keyed BLAKE3).
    pub domain_key: [u8; 32],
    /// A reservation that is not refreshed for this long is freed.
    pub lease: Nanos,
    /// Interval between HELLOs.
    pub hello_interval: Nanos,
    /// First retransmission after this; doubles.
    pub retransmit: Nanos,
    /// Retransmissions before a peer is given up.
    pub retransmits_max: u32,
    /// How long the receiving application may think about an incoming channel.
    pub consent_timeout: Nanos,
    /// How long a closing channel may drain at least, and all of a host that stops at most. A channel that is closed
    /// otherwise may take what the last message of its ring needs: its place in it times I, and D.
    pub grace: Nanos,
    /// Rate of the implicit signalling channel of each link, in packets a second.
    pub packets_per_second: u32,
    /// What is asked for across a stage of this host that breaks its promise.
    pub while_broken: WhileBroken,
}

/// What happens to a request for a channel across a stage that breaks its promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhileBroken {
    /// The channel is granted as degraded: nothing is guaranteed, and both ends are told which stage.
    #[default]
    Degrade,
    /// The channel is refused with the breach as the reason.
    Refuse,
}

impl Default for SignallingConfig {
    fn default() -> Self {
        Self {
            domain_key: [0; 32],
            lease: limits::LEASE_DEFAULT,
            hello_interval: limits::HELLO_INTERVAL_DEFAULT,
            retransmit: Nanos::from_millis(100),
            retransmits_max: 6,
            consent_timeout: Nanos::from_secs(10),
            grace: Nanos::from_millis(500),
            packets_per_second: 50,
            while_broken: WhileBroken::default(),
        }
    }
}

impl SignallingConfig {
    /// Rate of the implicit signalling channel of each link; `None` if [`Self::packets_per_second`] is no
    /// valid rate.
    pub fn rate(&self) -> Option<Rate> {
        Rate::per_second(self.packets_per_second.into())
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
    /// Call of a program's handler: the node's part of it. The body's declared time is added.
    Upcall,
}

impl CpuCosts {
    /// What admission assumes for one unit of work of `packets` packets and `bytes` payload; `edge`: a message
    /// begins or ends in it.
    pub fn of_unit(&self, kind: WorkKind, packets: u32, bytes: u32, edge: bool) -> Nanos {
        let copy = Nanos((u128::from(self.copy_kib.0) * u128::from(bytes) / 1_024) as u64);
        let (packet, message) = match kind {
            WorkKind::Send => {
                let later =
                    self.send_packet_later.min(self.send_packet) * u64::from(packets.saturating_sub(1));
                let first = self.send_packet * u64::from(packets.min(1));
                return first + later + copy + if edge { self.send_message } else { Nanos::ZERO };
            }
            WorkKind::Forward => (self.forward_packet, Nanos::ZERO),
            WorkKind::Receive => (self.receive_packet, self.deliver_message),
            WorkKind::Upcall => return self.dispatch(),
            WorkKind::BestEffort | WorkKind::Signalling => (
                self.send_packet.max(self.forward_packet).max(self.receive_packet),
                self.send_message.max(self.deliver_message),
            ),
        };
        packet * u64::from(packets) + copy + if edge { message } else { Nanos::ZERO }
    }

    /// The node's own part of a call of a program's handler: as much as handing a message to a program.
    pub const fn dispatch(&self) -> Nanos {
        self.deliver_message
    }
}

impl Default for CpuCosts {
    /// Generous for a machine of the 2020s with kernel UDP sockets; `profile` measures the real ones.
    fn default() -> Self {
        Self {
            send_message: Nanos::from_micros(8),
            send_packet: Nanos::from_micros(8),
            send_packet_later: Nanos::from_micros(8),
            forward_packet: Nanos::from_micros(12),
            receive_packet: Nanos::from_micros(8),
            deliver_message: Nanos::from_micros(8),
            copy_kib: Nanos(500),
            cold_start: Nanos::from_micros(40),
        }
    }
}

impl CpuConfig {
    /// Most that a busy period may take beside its units' costs, its share of interference apart: what is not ordered by
    /// us, and cold caches. What is looked at begins when the processor has nothing to do, so it has one cold start,
    /// however many messages are in it.
    pub fn burst(&self) -> Nanos {
        self.interference.sigma + self.costs.cold_start
    }
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self {
            costs: CpuCosts::default(),
            costs_from: CostSource::Configured,
            best_effort_host: false,
            release_latency: Nanos::from_micros(200),
            utilisation_max: Ppm(950_000),
            best_effort_share_min: Ppm(50_000),
            interference: Interference { sigma: Nanos::from_micros(100), rho: Ppm(50_000) },
            run: RunPolicy::Edf,
            admission: Admission::EDF,
            quantum_packets: 1,
            best_effort_cpu_cap: Ppm::ONE,
            best_effort_flow_cpu_cap: Ppm::ONE,
            plan: Vec::new(),
        }
    }
}

/// The largest payload of a packet that a node with these `links` makes, at most `fragment_bytes`, or passes on.
pub fn payload_bytes_max(fragment_bytes: u32, links: &[LinkConfig]) -> u32 {
    let of = |link: &LinkConfig| link.packet_bytes_max.saturating_sub(limits::HEADER_BYTES as u32);
    links.iter().map(of).max().unwrap_or(0).max(fragment_bytes)
}

impl LinkConfig {
    /// The rate that our packets are paced and charged at: the measured one less its error and, where the clock
    /// paces, less what kernel traffic may take of it. With completions the adapter holds us back by itself;
    /// a clock that gave away the kernel's share as well would pile up packets in the adapter without end.
    pub fn paced_rate(&self) -> BitRate {
        let drained = self.rate.less(self.rate_error);
        match self.pace {
            Pacing::Clock => drained.less(self.interference.rho),
            Pacing::Completion => drained,
        }
    }

    /// Whether the kernel's share follows admission. Only our clock can make room for it, and only sums of densities hold
    /// while it changes: the order must be that of deadlines.
    pub fn follows(&self) -> bool {
        let by_deadline = self.admission.bears_changing_share;
        self.kernel_share_max > self.interference.rho && self.pace == Pacing::Clock && by_deadline
    }

    /// What our packets are paced at while kernel traffic has `share` of the link.
    pub fn paced_beside(&self, share: Ppm) -> BitRate {
        self.rate.less(self.rate_error).less(share)
    }

    /// Longest time by which kernel packets of this share may delay a departure where the clock paces,
    /// whatever the order in which the adapter takes their packets and ours.
    pub fn delay_beside(&self, share: Ppm) -> Nanos {
        let kept = u128::from(1_000_000 - share.0.min(999_999));
        let delay = (u128::from(self.interference.sigma.0) * 1_000_000).div_ceil(kept);
        Nanos(u64::try_from(delay).unwrap_or(u64::MAX))
    }

    /// Why what is promised across it is no guarantee, if it is none.
    pub fn degraded(&self) -> Option<Degraded> {
        (self.kernel_traffic == KernelTraffic::Unbounded).then_some(Degraded::KernelTraffic)
    }

    /// Largest best-effort packet, from our header on.
    pub fn best_effort_bytes_max(&self) -> u32 {
        self.packet_best_effort_bytes_max.unwrap_or(self.packet_bytes_max)
    }

    /// Largest signalling packet: no class blocks longer than best effort for its sake.
    pub fn signal_bytes_max(&self) -> u32 {
        self.best_effort_bytes_max().min(limits::SIGNAL_BYTES_MAX as u32)
    }

    /// A link with the defaults for everything but its neighbour and rate.
    pub fn new(name: &str, neighbour: NodeId, rate: BitRate) -> Self {
        Self {
            name: name.into(),
            neighbour,
            rate,
            rate_error: Ppm(10_000),
            rate_auto: false,
            rate_ceiling: None,
            packet_bytes_max: limits::FRAGMENT_BYTES_DEFAULT + limits::HEADER_BYTES as u32,
            packet_best_effort_bytes_max: None,
            overhead_bytes: 66,
            pipeline_depth: 2,
            pace: Pacing::Clock,
            reaction: Nanos::from_micros(100),
            propagation_min: Nanos::ZERO,
            propagation_max: Nanos::from_micros(200),
            prediction_error: Nanos::from_micros(500),
            interference: Interference::default(),
            kernel_traffic: KernelTraffic::Bounded,
            kernel_share_max: Ppm(0),
            best_effort_share_min: Ppm(50_000),
            best_effort_flow_cap: Ppm::ONE,
            best_effort_cap: Ppm::ONE,
            best_effort_flow_bytes_max: 256 * 1024,
            frames: limits::FRAMES_DEFAULT,
            admission: Admission::EDF,
        }
    }
}
