//! Stages: the cost of a message on a link or a CPU, and the other work there.
//!
//! [`Link`] and [`Cpu`] convert a contract into a [`Demand`] and themselves into a [`StageModel`], the part
//! of a stage that an admission policy needs.

use serde::{Deserialize, Serialize};

use crate::contract::Contract;
use crate::mutation::{Mutation, active};
use crate::policy::{Class, Demand, Urgency};
use crate::statistical::Soft;
use crate::units::{BitRate, Nanos, Ppm};

/// Work that our scheduler does not order: at most `sigma + rho·t` in any time t.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interference {
    /// Burst.
    pub sigma: Nanos,
    /// Proportion.
    pub rho: Ppm,
}

impl Interference {
    /// The most that it takes of a time `t`.
    pub const fn within(&self, t: Nanos) -> Nanos {
        Nanos(self.sigma.0.saturating_add(self.rho.of(t).0))
    }
}

/// How long work that has begun, or was handed over, blocks more urgent work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blocking {
    /// One unit is outstanding: blocking is the largest unit of less urgent work, of which `best_effort` is
    /// always a part.
    LargestUnit {
        /// Largest best-effort unit.
        best_effort: Nanos,
    },
    /// Several units are outstanding: blocking is P·MTU/rate + delta, whatever the units are.
    Pipeline(Nanos),
}

impl Blocking {
    /// Blocking when `unit` is the largest among the less urgent channels (zero if there is none).
    pub fn by(&self, unit: Nanos) -> Nanos {
        match *self {
            Self::LargestUnit { best_effort } => best_effort.max(unit),
            Self::Pipeline(_) if unit == Nanos::ZERO && active(Mutation::DeadlineFilterAtDepthTwo) => {
                Nanos::ZERO
            }
            Self::Pipeline(span) => span,
        }
    }
}

/// The model of a stage for an admission policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageModel {
    /// Blocking by less urgent work.
    pub blocking: Blocking,
    /// Other work than ours; its rho counts as used.
    pub interference: Interference,
    /// Most that channels and interference may use together.
    pub utilisation_limit: Ppm,
}

/// Evidence that the adapter has sent a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// The clock: GCRA at the link's rate less its error. For virtual, bridged or shared links.
    #[default]
    Clock,
    /// The driver's completions.
    Completion,
}

/// A link out of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Measured drain rate.
    pub rate: BitRate,
    /// Error of the rate. All times are computed at the rate less this error.
    pub rate_error: Ppm,
    /// Bytes on the wire that each packet adds to its payload: our header, UDP, IP, Ethernet, preamble, gap.
    pub overhead_bytes: u32,
    /// Largest packet with all of those: U as bytes.
    pub mtu_wire_bytes: u32,
    /// Largest best-effort packet with all of those, at most the largest packet.
    pub best_effort_wire_bytes: u32,
    /// P: packets' worth of bytes that may be handed over and not yet sent, at least 1.
    pub pipeline_depth: u32,
    /// Event that drives the pipeline: completions or the clock.
    pub pacing: Pacing,
    /// delta: reaction time to a completion or to the clock.
    pub reaction: Nanos,
    /// Kernel traffic beside us.
    pub interference: Interference,
    /// Share of the link that cannot be reserved.
    pub best_effort_share_min: Ppm,
}

impl Link {
    /// The rate that all computations use.
    pub const fn rate_assured(&self) -> BitRate {
        self.rate.less(self.rate_error)
    }

    /// Bytes that a message takes on the wire in fragments of `fragment_bytes`.
    pub fn wire_bytes(&self, message_bytes: u32, fragment_bytes: u32) -> u64 {
        let packets = message_bytes.div_ceil(fragment_bytes.max(1)).max(1);
        u64::from(message_bytes) + u64::from(packets) * u64::from(self.overhead_bytes)
    }

    /// The time that `wire_bytes` in packets no larger than the MTU are charged: drain time, and the idle
    /// time of the link during the reaction to each completion or tick.
    pub fn cost_of(&self, wire_bytes: u64) -> Nanos {
        let mtu = u64::from(self.mtu_wire_bytes.max(1));
        let depth = u64::from(self.pipeline_depth.max(1));
        let drain = self.rate_assured().time_of(wire_bytes);
        // The time that the window covers during the reaction, and the bytes that one reaction is charged to.
        // With completions the largest guaranteed packet s is assumed to be an MTU, the worst case.
        let (covered_bytes, charged_bytes) = match self.pacing {
            _ if depth == 1 => return drain + self.reaction * wire_bytes.div_ceil(mtu),
            Pacing::Completion => ((depth - 2) * mtu, (depth - 1) * mtu),
            Pacing::Clock => ((depth - 1) * mtu, (depth - 1) * mtu),
        };
        let idle = self.reaction - self.rate_assured().time_of(covered_bytes);
        let extra = (u128::from(idle.0) * u128::from(wire_bytes)).div_ceil(u128::from(charged_bytes));
        drain + Nanos(u64::try_from(extra).unwrap_or(u64::MAX))
    }

    /// The demand of a channel for this link. `horizon` is h(k), `release_latency` r.
    pub fn demand(
        &self,
        contract: &Contract,
        fragment_bytes: u32,
        release_latency: Nanos,
        horizon: Nanos,
    ) -> Demand {
        let bytes = contract.message_bytes_max;
        let packets = u64::from(contract.packets_max(fragment_bytes));
        let largest = u64::from(bytes.min(fragment_bytes)) + u64::from(self.overhead_bytes);
        let reactions = match self.pipeline_depth {
            0 | 1 => self.reaction * packets,
            _ => Nanos::ZERO,
        };
        let whole = self.wire_bytes(bytes, fragment_bytes);
        let cost = match self.pipeline_depth {
            0 | 1 => self.rate_assured().time_of(whole) + reactions,
            _ => self.cost_of(whole),
        };
        Demand {
            cost,
            unit_cost_max: self.cost_of(largest).min(cost),
            period: contract.policed_interval(),
            release_latency: counted(release_latency),
            early: horizon,
            urgency: Urgency::of_period(Class::Guaranteed, contract.policed_interval()),
            soft: Soft::of(contract),
        }
    }

    /// The terms that add up to the cost of one message.
    pub fn cost_parts(&self, contract: &Contract, fragment_bytes: u32) -> CostParts {
        let cost = self.demand(contract, fragment_bytes, Nanos::ZERO, Nanos::ZERO).cost;
        let bytes = self.wire_bytes(contract.message_bytes_max, fragment_bytes);
        let drain = self.rate_assured().time_of(bytes).min(cost);
        CostParts::Link { drain, reaction: cost - drain }
    }

    /// P·MTU/rate + delta: the longest time that packets which were handed over before block a packet.
    pub fn pipeline_time(&self) -> Nanos {
        let packets = self.pipeline_depth.max(1) - u32::from(active(Mutation::BlockingOffByOnePacket));
        let window = u64::from(packets) * u64::from(self.mtu_wire_bytes);
        self.rate_assured().time_of(window) + self.reaction
    }

    /// The model of the link for admission.
    pub fn model(&self) -> StageModel {
        let blocking = match self.pipeline_depth {
            0 | 1 => {
                Blocking::LargestUnit { best_effort: self.cost_of(u64::from(self.best_effort_wire_bytes)) }
            }
            _ => Blocking::Pipeline(self.pipeline_time()),
        };
        StageModel {
            blocking,
            interference: self.interference,
            utilisation_limit: Ppm(1_000_000 - self.best_effort_share_min.0.min(1_000_000)),
        }
    }

    /// Longest time from hand-over until the last bit of a packet leaves, with `outstanding_bytes` handed
    /// over, its own bytes included: drain time + sigma + rho·(sigma + P·U)/(1 - rho).
    pub fn departure_latest(&self, outstanding_bytes: u64) -> Nanos {
        let Interference { sigma, rho } = self.interference;
        let window = u64::from(self.pipeline_depth.max(1)) * u64::from(self.mtu_wire_bytes);
        let exposed = u128::from((sigma + self.rate_assured().time_of(window)).0);
        let kept = u128::from(1_000_000 - rho.0.min(999_999));
        let stretched = (exposed * u128::from(rho.0)).div_ceil(kept);
        let stretched = Nanos(u64::try_from(stretched).unwrap_or(u64::MAX));
        self.rate_assured().time_of(outstanding_bytes) + sigma + stretched
    }
}

/// Costs of one path through the CPU (send, forward or receive), from a profile (ADR 0013).
///
/// Packets that are processed without other work in between are a *run*: the first finds cold caches and
/// displaced code, the later ones do not (CLIPS table 4: 181 us and 77 us).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCosts {
    /// Once per message: taking it from an application, or delivering it.
    pub message: Nanos,
    /// The first packet of a run; each packet where runs are not certain.
    pub packet: Nanos,
    /// Each later packet of a run; counts as `packet` if it is larger.
    pub packet_later: Nanos,
    /// Each started KiB of payload that is copied.
    pub kib: Nanos,
}

impl PathCosts {
    /// Costs of a path whose packets may all arrive one by one.
    pub const fn one_by_one(message: Nanos, packet: Nanos, kib: Nanos) -> Self {
        Self { message, packet, packet_later: packet, kib }
    }

    /// Cost of one run of `packets` packets with `bytes` of payload in all, if a message begins or ends in
    /// the run.
    pub fn of(&self, packets: u32, bytes: u64) -> Nanos {
        self.parts(packets, packets, bytes.div_ceil(1_024)).sum()
    }

    /// A message of `packets` packets in runs of `run` packets (the last may be shorter), `kib` KiB in all.
    fn parts(&self, packets: u32, run: u32, kib: u64) -> CostParts {
        let runs = packets.div_ceil(run.max(1));
        CostParts::Cpu {
            message: self.message,
            first_packets: self.packet * u64::from(runs),
            later_packets: self.packet_later.min(self.packet) * u64::from(packets - runs),
            copy: self.kib * kib,
        }
    }
}

/// The terms of the cost of one largest message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostParts {
    /// The cost of a message on a processor.
    Cpu {
        /// Cost that a message has once.
        message: Nanos,
        /// Cost of the first packets of its runs.
        first_packets: Nanos,
        /// Cost of the later packets of its runs.
        later_packets: Nanos,
        /// Cost of copying the payload.
        copy: Nanos,
    },
    /// The cost of a message on a link.
    Link {
        /// Time that the message's bytes take at the assured rate.
        drain: Nanos,
        /// Idle time of the link during the reactions to completions or to the clock.
        reaction: Nanos,
    },
}

impl Default for CostParts {
    fn default() -> Self {
        Self::Link { drain: Nanos::ZERO, reaction: Nanos::ZERO }
    }
}

impl CostParts {
    /// C.
    pub fn sum(&self) -> Nanos {
        match *self {
            Self::Cpu { message, first_packets, later_packets, copy } => {
                message + first_packets + later_packets + copy
            }
            Self::Link { drain, reaction } => drain + reaction,
        }
    }
}

/// The processor that does a node's protocol work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Most that all real-time work may take (at most 0.95).
    pub utilisation_max: Ppm,
    /// Share of the CPU that cannot be reserved.
    pub best_effort_share_min: Ppm,
    /// Driver work, timers, signalling: not ordered by us.
    pub interference: Interference,
    /// Longest unit of best-effort work.
    pub best_effort_unit: Nanos,
    /// b_p: packets finished before a yield is honoured, at least 1.
    pub quantum_packets: u32,
}

impl Cpu {
    /// The demand of a channel for this CPU. `horizon` is h(k), `release_latency` r.
    pub fn demand(
        &self,
        contract: &Contract,
        fragment_bytes: u32,
        costs: &PathCosts,
        release_latency: Nanos,
        horizon: Nanos,
    ) -> Demand {
        let packets = contract.packets_max(fragment_bytes).max(1);
        let run = packets.min(self.quantum_packets.max(1));
        let kib = packet_kib(contract, fragment_bytes);
        Demand {
            cost: self.cost_parts(contract, fragment_bytes, costs).sum(),
            unit_cost_max: costs.parts(run, run, kib * u64::from(run)).sum(),
            period: contract.policed_interval(),
            release_latency: counted(release_latency),
            early: horizon,
            urgency: Urgency::of_period(Class::Guaranteed, contract.policed_interval()),
            soft: Soft::of(contract),
        }
    }

    /// The terms that add up to the cost of one message. Its runs are assumed to be quanta: the processor may
    /// do other work between any two of them, so each begins with a first packet. The source waits for the
    /// slots of a whole quantum, so only a message's last run is shorter. Every packet is charged for its
    /// copy by itself.
    pub fn cost_parts(&self, contract: &Contract, fragment_bytes: u32, costs: &PathCosts) -> CostParts {
        let packets = contract.packets_max(fragment_bytes).max(1);
        let kib = packet_kib(contract, fragment_bytes);
        costs.parts(packets, self.quantum_packets, kib * u64::from(packets))
    }

    /// The model of the processor for admission.
    pub fn model(&self) -> StageModel {
        let kept = 1_000_000 - self.best_effort_share_min.0.min(1_000_000);
        StageModel {
            blocking: Blocking::LargestUnit { best_effort: self.best_effort_unit },
            interference: self.interference,
            utilisation_limit: Ppm(self.utilisation_max.0.min(kept)),
        }
    }
}

/// r, as demands count it: an injected fault leaves it out.
pub(crate) fn counted(release_latency: Nanos) -> Nanos {
    if active(Mutation::ReleaseLatencyLeftOut) { Nanos::ZERO } else { release_latency }
}

/// Number of KiB that a largest packet starts.
fn packet_kib(contract: &Contract, fragment_bytes: u32) -> u64 {
    u64::from(contract.message_bytes_max.min(fragment_bytes)).div_ceil(1_024)
}
