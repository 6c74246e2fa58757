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
    /// Epoch of this node, which identifies the time since its last restart.
    pub epoch: Epoch,
    /// Payload of a packet of channels that start here, in bytes.
    pub fragment_bytes: u32,
    /// The same for low-latency channels; `None`: the same value. Smaller ones block others less, and cost
    /// more headers.
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
    /// How long before l + D an `at-deadline` message is delivered: time for the wake-up of the receiver.
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

/// The nodes of a route, without this one, the destination last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteConfig {
    /// The next nodes in order; the last is the destination.
    pub via: Vec<NodeId>,
}

/// Other traffic that leaves by the link's device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelTraffic {
    /// Nothing goes out except what [`LinkConfig::interference`] states.
    #[default]
    Bounded,
    /// Bounded as in [`Self::Bounded`], and the kernel's packets are sent behind all of Punctual's. Best
    /// effort leaves them half of what is not reserved.
    Behind,
    /// The other traffic is not bounded: what is promised across the link is no guarantee.
    Unbounded,
}

/// A point-to-point link to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Display name: the interface or the driver's name for it.
    pub name: String,
    /// The node at the other end.
    pub neighbour: NodeId,
    /// Measured drain rate.
    pub rate: BitRate,
    /// Error of the rate. Admission and pacing use the rate less this error.
    pub rate_error: Ppm,
    /// The rate is not known yet: [`Self::rate`] is the largest that a measurement tries. It is measured once
    /// the neighbour is up, and until then nothing is admitted across the link.
    pub rate_auto: bool,
    /// The largest rate that a measurement tries, if it is larger than [`Self::rate`].
    pub rate_ceiling: Option<BitRate>,
    /// Largest packet, from our header on, in bytes.
    pub packet_bytes_max: u32,
    /// Largest best-effort packet, from our header on; `None`: the same as `packet_bytes_max`. Signalling
    /// packets are not larger either.
    pub packet_best_effort_bytes_max: Option<u32>,
    /// Bytes on the wire that each packet adds: UDP, IP, Ethernet, preamble, gap.
    pub overhead_bytes: u32,
    /// Largest packets' worth of bytes that may be handed over and not yet sent.
    pub pipeline_depth: u32,
    /// Event that drives the pipeline: completions or the clock.
    pub pace: Pacing,
    /// delta: reaction time to a completion or to the clock.
    pub reaction: Nanos,
    /// Shortest propagation to the neighbour's driver.
    pub propagation_min: Nanos,
    /// Longest propagation to the neighbour's driver.
    pub propagation_max: Nanos,
    /// How much later than predicted by slack the receive time there may be: kernel and driver jitter.
    pub prediction_error: Nanos,
    /// Kernel traffic beside us.
    pub interference: Interference,
    /// What is known of the kernel traffic.
    pub kernel_traffic: KernelTraffic,
    /// The largest share for kernel traffic while the admitted channels allow it: the host's shaper follows
    /// ([`crate::node::Node::poll_shaper`]). Admission assumes `interference`. If this is no larger than rho
    /// of `interference`, the kernel always has rho.
    pub kernel_share_max: Ppm,
    /// Share of the link that cannot be reserved.
    pub best_effort_share_min: Ppm,
    /// Most of the link's rate that one best-effort flow may take; `Ppm::ONE` is no cap.
    pub best_effort_flow_cap: Ppm,
    /// Most of the link's rate that best effort as a whole may take; `Ppm::ONE` is no cap.
    pub best_effort_cap: Ppm,
    /// Bytes that each best-effort flow may queue here.
    pub best_effort_flow_bytes_max: u32,
    /// Frames that the driver receives into. Packets that pass through keep theirs until they are sent.
    pub frames: u32,
    /// Admission policy of this link.
    pub admission: Admission,
}

/// Costs of protocol processing on this host (ADR 0013), which a profile measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCosts {
    /// Taking a message from an application, and the extra cost of its first packet.
    pub send_message: Nanos,
    /// The first packet of a run at the source: earlier work may have displaced its code and data from the
    /// caches.
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
    /// The time that a busy period takes beyond its units, because it begins with cold caches: charged once,
    /// as interference.
    pub cold_start: Nanos,
}

/// Origin of the costs of the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostSource {
    /// The costs are configured, or the defaults.
    #[default]
    Configured,
    /// A profile of this machine.
    Measured {
        /// Margin that was added to the measured costs.
        margin: Ppm,
        /// Measured in about a second as the host started, not by `punctual profile`.
        short: bool,
    },
    /// The profile of another machine or version, used because the configuration requires it: it guarantees
    /// nothing.
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
    /// Origin of the costs.
    pub costs_from: CostSource,
    /// The host runs without a real-time class: bounds that include it are no guarantees.
    pub best_effort_host: bool,
    /// r: longest time from an arrival until the processor handles it.
    pub release_latency: Nanos,
    /// Most of the CPU that all real-time work may take.
    pub utilisation_max: Ppm,
    /// Share of the CPU that cannot be reserved.
    pub best_effort_share_min: Ppm,
    /// Driver work, timers, signalling: not ordered by us.
    pub interference: Interference,
    /// Run-time order.
    pub run: RunPolicy,
    /// Admission policy of the processor.
    pub admission: Admission,
    /// b_p: PDUs finished before a yield is honoured.
    pub quantum_packets: u32,
    /// Longest call of a best-effort handler that is to be admitted, if it is longer than a quantum of packets: everything
    /// else may be blocked for so long.
    pub best_effort_call_max: Nanos,
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
    /// Other traffic of the link's device is not bounded.
    KernelTraffic,
    /// The stage breaks its promise now; the channels across it are guaranteed again once it has healed.
    Broken,
}

impl Degraded {
    /// The name in machine-readable output.
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
    /// Why the costs are no guarantee; `None` if they are one.
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
    /// Longest time of the receiving application to consent to an incoming channel.
    pub consent_timeout: Nanos,
    /// Shortest time that a closing channel may take to drain, and longest time for all channels of a host
    /// that stops. A channel that is closed otherwise may take the time that the last message of its ring
    /// needs: its position in the ring times I, and D.
    pub grace: Nanos,
    /// Rate of the implicit signalling channel of each link, in packets a second.
    pub packets_per_second: u32,
    /// Handling of requests across a stage of this host that breaks its promise.
    pub while_broken: WhileBroken,
}

/// Handling of a request for a channel across a stage that breaks its promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhileBroken {
    /// The channel is granted as degraded: nothing is guaranteed, and both ends get the name of the stage.
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
    /// Forwarder: forward.
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
    /// The cost that admission assumes for one unit of work of `packets` packets and `bytes` payload; `edge`:
    /// a message begins or ends in it.
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

    /// The node's own part of a call of a program's handler: as much as delivering a message to a program.
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
    /// The most that a busy period may take beside its units' costs, without its share of interference: sigma
    /// of the interference, and cold caches. A busy period begins when the processor is idle, so it has one
    /// cold start, however many messages are in it.
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
            best_effort_call_max: Nanos::ZERO,
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
    /// The rate that our packets are paced and charged at: the measured one less its error and, where the
    /// clock paces, less what kernel traffic may take of it. With completions the adapter limits us by
    /// itself. A clock that also used the kernel's share would fill the adapter's queue without limit.
    pub fn paced_rate(&self) -> BitRate {
        let drained = self.rate.less(self.rate_error);
        match self.pace {
            Pacing::Clock => drained.less(self.interference.rho),
            Pacing::Completion => drained,
        }
    }

    /// Whether the kernel's share follows admission. Only our clock can make room for it, and only sums of
    /// densities hold while it changes, so the run order must be EDF.
    pub fn follows(&self) -> bool {
        let by_deadline = self.admission.bears_changing_share;
        self.kernel_share_max > self.interference.rho && self.pace == Pacing::Clock && by_deadline
    }

    /// The rate that our packets are paced at while kernel traffic has `share` of the link.
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

    /// Why the link's bounds are no guarantee; `None` if they are one.
    pub fn degraded(&self) -> Option<Degraded> {
        (self.kernel_traffic == KernelTraffic::Unbounded).then_some(Degraded::KernelTraffic)
    }

    /// Largest best-effort packet, from our header on.
    pub fn best_effort_bytes_max(&self) -> u32 {
        self.packet_best_effort_bytes_max.unwrap_or(self.packet_bytes_max)
    }

    /// Largest signalling packet: signalling blocks other classes no longer than best effort does.
    pub fn signal_bytes_max(&self) -> u32 {
        self.best_effort_bytes_max().min(limits::SIGNAL_BYTES_MAX as u32)
    }

    /// A link with the defaults for all values but its neighbour and rate.
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
