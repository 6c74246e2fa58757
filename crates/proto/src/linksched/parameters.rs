//! The interface types of a link scheduler: parameters, keys, packets in and out, counters.

use punctual_analysis::{BitRate, Instant, Nanos, Ppm};

use crate::config::{Interference, LinkConfig, Pacing};
use crate::limits;

/// The parameters of a link for its scheduler; see [`LinkParameters::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkParameters {
    /// Drain rate that is paced at: [`LinkConfig::paced_rate`].
    pub rate: BitRate,
    /// U: the largest packet with all overhead, in bytes; larger ones are refused.
    pub mtu_wire_bytes: u32,
    /// The largest best-effort packet with all overhead, in bytes.
    pub best_effort_wire_bytes: u32,
    /// P: largest packets' worth of bytes that may be handed over and not yet sent; at least 1.
    pub pipeline_depth: u32,
    /// Event that drives the pipeline: completions or the clock.
    pub pace: Pacing,
    /// Kernel traffic beside us: moves the latest departure.
    pub interference: Interference,
    /// Most of the rate that one best-effort flow may take; [`Ppm::ONE`] is no cap.
    pub best_effort_flow_cap: Ppm,
    /// Most of the rate that best effort as a whole may take; [`Ppm::ONE`] is no cap.
    pub best_effort_cap: Ppm,
    /// Bytes on the wire that one best-effort flow may queue.
    pub best_effort_flow_bytes_max: u32,
    /// Best-effort flows that may be stored at once.
    pub best_effort_flows_max: u32,
    /// Best-effort packets that may be queued at once, all flows together.
    pub best_effort_packets_max: u32,
}

impl LinkParameters {
    /// The parameters of a configured link, with the bounds of [`limits`] for best effort.
    pub fn of(config: &LinkConfig) -> Self {
        Self {
            rate: config.paced_rate(),
            mtu_wire_bytes: config.packet_bytes_max.saturating_add(config.overhead_bytes),
            best_effort_wire_bytes: config.best_effort_bytes_max().saturating_add(config.overhead_bytes),
            pipeline_depth: config.pipeline_depth.max(1),
            pace: config.pace,
            interference: config.interference,
            best_effort_flow_cap: config.best_effort_flow_cap,
            best_effort_cap: config.best_effort_cap,
            best_effort_flow_bytes_max: config.best_effort_flow_bytes_max,
            best_effort_flows_max: limits::BEST_EFFORT_FLOWS_MAX,
            best_effort_packets_max: limits::BEST_EFFORT_PACKETS_MAX,
        }
    }
}

/// Dense index of a guaranteed channel at one link; valid from `add_channel` to `remove_channel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowIndex(pub u32);

/// Identifies a best-effort flow at one link; chosen by the caller. A demoted channel is a flow of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BestEffortKey(pub u64);

/// The scheduling parameters of a guaranteed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guaranteed {
    /// e: effective arrival at this stage (ARCHITECTURE, Terms). Does not decrease within a channel.
    pub effective: Instant,
    /// e + d: local deadline. Does not decrease within a channel.
    pub deadline: Instant,
    /// Bytes that it takes on the wire, overhead included.
    pub wire_bytes: u32,
}

/// Queue that a packet which is handed over comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The packet is guaranteed and comes from queue 1.
    Guaranteed {
        /// The channel that the packet belongs to.
        flow: FlowIndex,
        /// Local deadline of the packet: e + d.
        deadline: Instant,
    },
    /// The packet is best effort and comes from queue 2.
    BestEffort {
        /// The best-effort flow that the packet belongs to.
        key: BestEffortKey,
    },
}

/// A packet to hand to the adapter now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled<P> {
    /// The caller's reference.
    pub packet: P,
    /// Class of the packet: the queue that it comes from.
    pub class: Class,
    /// Bytes that it takes on the wire; pass them to `complete`.
    pub wire_bytes: u32,
    /// The latest time at which its last bit leaves the adapter; slack is computed from it.
    pub departure_latest: Instant,
}

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OverflowReason {
    /// The channel has no slot free.
    Slots,
    /// The channel was never added, or was removed.
    UnknownFlow,
    /// Larger than the link's largest packet of its class.
    PacketBytes,
    /// The best-effort flow has its share of bytes or packets queued.
    FlowFull,
    /// The queue cannot store any more best-effort flows.
    Flows,
}

/// A packet that was refused and is returned: the caller drops the rest of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow<P> {
    /// The packet.
    pub packet: P,
    /// Why the packet was not taken.
    pub reason: OverflowReason,
}

/// Counters of a link scheduler since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Guaranteed packets handed over.
    pub guaranteed_packets: u64,
    /// Bytes of these packets on the wire.
    pub guaranteed_bytes: u64,
    /// Best-effort packets handed over.
    pub best_effort_packets: u64,
    /// Bytes of these packets on the wire.
    pub best_effort_bytes: u64,
    /// Guaranteed packets whose latest departure lies after their deadline.
    pub late_packets: u64,
    /// Guaranteed packets refused.
    pub guaranteed_overflows: u64,
    /// Best-effort packets refused.
    pub best_effort_overflows: u64,
}

/// How a channel uses its slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Slots in use.
    pub slots_used: u32,
    /// Most slots ever in use at once.
    pub slots_used_max: u32,
    /// Slots that it has.
    pub slots: u32,
}

/// The time that bytes take at a rate, as a multiplication: one division for each packet costs more than the
/// rest of its hand-over.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteTime {
    /// Nanoseconds a byte in 2^-20, rounded up: never faster than the rate.
    ns_per_byte_q20: u64,
}

impl ByteTime {
    const FRACTION_BITS: u32 = 20;

    pub(super) fn of(rate: BitRate) -> Self {
        let ns = (8_000_000_000u128 << Self::FRACTION_BITS).div_ceil(u128::from(rate.0.max(1)));
        Self { ns_per_byte_q20: u64::try_from(ns).unwrap_or(u64::MAX) }
    }

    /// The time of `bytes`, rounded up; saturates.
    pub(super) fn time_of(self, bytes: u64) -> Nanos {
        let q20 = u128::from(bytes) * u128::from(self.ns_per_byte_q20);
        let ns = q20.div_ceil(1 << Self::FRACTION_BITS);
        Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// The bytes that take at most `span`.
    pub(super) fn bytes_in(self, span: Nanos) -> u64 {
        let bytes = (u128::from(span.0) << Self::FRACTION_BITS) / u128::from(self.ns_per_byte_q20);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}
