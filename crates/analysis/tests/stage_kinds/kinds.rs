//! The kinds of stages, the contracts that ask there, and what a message is made of on each.

use punctual_analysis::{
    BitRate, Class, Contract, Cpu, Demand, Interference, Link, Nanos, Pacing, PathCosts, Ppm, Rate,
    StageModel, Urgency,
};
use rand::Rng;
use rand::rngs::SmallRng;

pub use crate::kind::{KINDS, Kind};

pub const FRAGMENT_BYTES: u32 = 1_400;

#[derive(Clone, Copy, Debug)]
pub enum Stage {
    Link(Link, Nanos),
    Cpu(Kind, Cpu, PathCosts, Nanos),
}

/// A part of a message that is served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes on a wire.
    Packet(u32),
    /// Time of a processor.
    Run(Nanos),
}

impl Stage {
    pub fn draw(kind: Kind, rng: &mut SmallRng) -> Self {
        let interference = if rng.random_bool(0.3) {
            Interference::default()
        } else {
            Interference {
                sigma: Nanos(rng.random_range(40_000..800_000)),
                rho: Ppm(rng.random_range(1_000..80_000)),
            }
        };
        // A wake-up, or what is nearly the shortest interval.
        let latest = if rng.random_bool(0.25) { 4_500_000 } else { 300_000 };
        let release_latency = Nanos(rng.random_range(0..latest));
        let us =
            |rng: &mut SmallRng, least: u64, most: u64| Nanos(rng.random_range(least * 1_000..=most * 1_000));
        match kind {
            Kind::LinkDepthOne | Kind::LinkDepthTwo | Kind::LinkByClock => {
                let best_effort_wire_bytes =
                    if rng.random_bool(0.5) { 1_530 } else { rng.random_range(300..1_530) };
                let link = Link {
                    rate: BitRate(rng.random_range(10..=100) * 1_000_000),
                    rate_error: Ppm(rng.random_range(0..20_000)),
                    overhead_bytes: 130,
                    mtu_wire_bytes: 1_530,
                    best_effort_wire_bytes,
                    pipeline_depth: match kind {
                        Kind::LinkDepthOne => 1,
                        _ => rng.random_range(2..=4),
                    },
                    pacing: if kind == Kind::LinkByClock { Pacing::Clock } else { Pacing::Completion },
                    reaction: us(rng, 0, 300),
                    interference,
                    best_effort_share_min: Ppm(rng.random_range(10_000..100_000)),
                };
                Self::Link(link, release_latency)
            }
            Kind::SourceCpu | Kind::ForwardCpu | Kind::SinkCpu => {
                let packet = us(rng, 20, 300);
                let passes = kind == Kind::ForwardCpu;
                let message = if passes { Nanos::ZERO } else { us(rng, 0, 300) };
                let kib = if passes { Nanos::ZERO } else { us(rng, 0, 10) };
                let mut costs = PathCosts::one_by_one(message, packet, kib);
                if kind == Kind::SourceCpu {
                    costs.packet_later = Nanos(packet.0 / rng.random_range(1..=4));
                }
                let quantum_packets = rng.random_range(1..=4);
                let cpu = Cpu {
                    utilisation_max: Ppm(950_000),
                    best_effort_share_min: Ppm(rng.random_range(10_000..100_000)),
                    interference,
                    best_effort_unit: (packet + kib * 2) * u64::from(quantum_packets) + message,
                    quantum_packets,
                };
                Self::Cpu(kind, cpu, costs, release_latency)
            }
        }
    }

    pub fn model(&self) -> StageModel {
        match self {
            Self::Link(link, _) => link.model(),
            Self::Cpu(_, cpu, ..) => cpu.model(),
        }
    }

    /// A contract of some percent of the stage: S, and its demand.
    pub fn ask(&self, rng: &mut SmallRng) -> (u32, Demand) {
        let interval = Nanos::from_millis(rng.random_range(5..60));
        let wanted = rng.random_range(0.002..0.13) * interval.0 as f64;
        // The sum of all stages before: some intervals at the end of a long route.
        let ahead = [0, 0, 15_000_000, 4 * interval.0][rng.random_range(0..4)];
        let early = Nanos(rng.random_range(0..=ahead));
        let class = if rng.random_bool(0.2) { Class::LowLatency } else { Class::Guaranteed };
        let demand_of = |bytes: u32| {
            let contract = Contract::new(bytes, Rate::every(interval).unwrap(), 1, interval).unwrap();
            let demand = match self {
                Self::Link(link, latency) => link.demand(&contract, FRAGMENT_BYTES, *latency, early),
                Self::Cpu(_, cpu, costs, latency) => {
                    cpu.demand(&contract, FRAGMENT_BYTES, costs, *latency, early)
                }
            };
            Demand { urgency: Urgency::of_period(class, demand.period), ..demand }
        };
        let mut bytes = rng.random_range(40..200);
        while (demand_of(bytes + bytes / 4).cost.0 as f64) < wanted {
            bytes += bytes / 4;
        }
        (bytes, demand_of(bytes))
    }

    /// The units of a message of `bytes`.
    pub fn units(&self, bytes: u32) -> Vec<Unit> {
        let packets: Vec<u32> = (0..bytes.div_ceil(FRAGMENT_BYTES))
            .map(|index| (bytes - index * FRAGMENT_BYTES).min(FRAGMENT_BYTES))
            .collect();
        match self {
            Self::Link(link, _) => {
                packets.iter().map(|bytes| Unit::Packet(bytes + link.overhead_bytes)).collect()
            }
            Self::Cpu(kind, cpu, costs, _) => {
                let runs = packets.chunks(cpu.quantum_packets as usize);
                let last = runs.len() - 1;
                let edge = if *kind == Kind::SourceCpu { 0 } else { last };
                runs.enumerate()
                    .map(|(index, run)| {
                        let copies: u64 = run.iter().map(|bytes| u64::from(bytes.div_ceil(1_024))).sum();
                        let later = costs.packet_later * (run.len() as u64 - 1);
                        let message = if index == edge { costs.message } else { Nanos::ZERO };
                        Unit::Run(costs.packet + later + costs.kib * copies + message)
                    })
                    .collect()
            }
        }
    }
}
