//! The processor of a node: its costs, its run order and its limits.

use alloc::vec::Vec;

use punctual_analysis::{Admission, Interference, Nanos, Ppm, RunPolicy};
use serde::{Deserialize, Serialize};

use super::degraded::Degraded;
use super::plan::PlannedFlow;

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

impl CpuConfig {
    /// Why the costs are no guarantee; `None` if they are one.
    pub const fn degraded(&self) -> Option<Degraded> {
        match self.costs_from {
            _ if self.best_effort_host => Some(Degraded::NoRealTime),
            CostSource::Foreign { .. } => Some(Degraded::ForeignCosts),
            CostSource::Configured | CostSource::Measured { .. } => None,
        }
    }

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
