//! The kinds of stages and the channels that ask there, in ticks of a microsecond.

use punctual_analysis::{
    BitRate, Blocking, Contract, Cpu, Demand, Interference, Link, Nanos, Pacing, PathCosts, Ppm, Rate,
    StageModel,
};
use rand::Rng;
use rand::rngs::SmallRng;

pub use crate::kind::{KINDS, Kind};

const FRAGMENT_BYTES: u32 = 1_400;
const TICK_NS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
enum Costs {
    Link(Link),
    Cpu(Cpu, PathCosts),
}

/// A stage in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    pub model: StageModel,
    costs: Costs,
    release_latency: Nanos,
}

/// A channel that requests a bound, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub demand: Demand,
    pub bound: Nanos,
}

impl Asked {
    pub fn share(&self) -> f64 {
        self.demand.cost.0 as f64 / self.demand.period.0 as f64
    }
}

fn ticks(span: Nanos) -> Nanos {
    Nanos(span.0.div_ceil(TICK_NS))
}

impl Stage {
    pub fn draw(kind: Kind, rng: &mut SmallRng) -> Self {
        let interference = if rng.random_bool(0.5) {
            Interference::default()
        } else {
            // Whole chunks of 20 ticks: a staircase of the reference has them too.
            Interference {
                sigma: Nanos(rng.random_range(1..=20) * 20_000),
                rho: Ppm(rng.random_range(1..=4) * 20_000),
            }
        };
        let costs = match kind {
            Kind::LinkDepthOne | Kind::LinkDepthTwo | Kind::LinkByClock => Costs::Link(Link {
                rate: BitRate(rng.random_range(20..=100) * 1_000_000),
                rate_error: Ppm(10_000),
                overhead_bytes: 130,
                mtu_wire_bytes: 1_530,
                best_effort_wire_bytes: 1_530,
                pipeline_depth: if kind == Kind::LinkDepthOne { 1 } else { 2 },
                pacing: if kind == Kind::LinkByClock { Pacing::Clock } else { Pacing::Completion },
                reaction: Nanos::from_micros(rng.random_range(0..100)),
                interference,
                best_effort_share_min: Ppm(50_000),
            }),
            Kind::SourceCpu | Kind::ForwardCpu | Kind::SinkCpu => {
                let us = |rng: &mut SmallRng, least, most| Nanos::from_micros(rng.random_range(least..=most));
                let packet = us(rng, 20, 200);
                let message = if kind == Kind::ForwardCpu { Nanos::ZERO } else { us(rng, 0, 200) };
                let kib = if kind == Kind::ForwardCpu { Nanos::ZERO } else { us(rng, 0, 5) };
                let mut costs = PathCosts::one_by_one(message, packet, kib);
                if kind == Kind::SourceCpu {
                    costs.packet_later = packet / 2;
                }
                let cpu = Cpu {
                    utilisation_max: Ppm(950_000),
                    best_effort_share_min: Ppm(50_000),
                    interference,
                    best_effort_unit: packet + message,
                    quantum_packets: rng.random_range(1..=4),
                };
                Costs::Cpu(cpu, costs)
            }
        };
        let seen = match costs {
            Costs::Link(link) => link.model(),
            Costs::Cpu(cpu, _) => cpu.model(),
        };
        let blocking = match seen.blocking {
            Blocking::LargestUnit { best_effort } => {
                Blocking::LargestUnit { best_effort: ticks(best_effort) }
            }
            Blocking::Pipeline(span) => Blocking::Pipeline(ticks(span)),
        };
        let interference = Interference { sigma: ticks(seen.interference.sigma), rho: seen.interference.rho };
        let release_latency = Nanos(rng.random_range(0..200) * TICK_NS);
        Self { model: StageModel { blocking, interference, ..seen }, costs, release_latency }
    }

    /// The share that all channels may use together.
    pub fn free_share(&self) -> f64 {
        f64::from(self.model.utilisation_limit.0 - self.model.interference.rho.0) / 1e6
    }

    pub fn ask(&self, rng: &mut SmallRng) -> Asked {
        let interval = Nanos::from_micros(rng.random_range(5_000..60_000));
        // Some 2 to 12 % of the stage.
        let share = rng.random_range(0.02..0.12);
        let demand_of = |bytes: u32| {
            let rate = Rate::every(interval).unwrap();
            let contract = Contract::new(bytes, rate, 1, interval).unwrap();
            match &self.costs {
                Costs::Link(link) => {
                    link.demand(&contract, FRAGMENT_BYTES, self.release_latency, Nanos::ZERO)
                }
                Costs::Cpu(cpu, costs) => {
                    cpu.demand(&contract, FRAGMENT_BYTES, costs, self.release_latency, Nanos::ZERO)
                }
            }
        };
        let wanted = (interval.0 as f64 * share) as u64;
        let mut bytes = 100;
        while bytes < 600_000 && demand_of(bytes * 5 / 4).cost.0 < wanted {
            bytes = bytes * 5 / 4;
        }
        let demand = demand_of(bytes);
        let demand = Demand {
            cost: ticks(demand.cost),
            unit_cost_max: ticks(demand.unit_cost_max),
            period: Nanos(demand.period.0 / TICK_NS),
            release_latency: ticks(demand.release_latency),
            ..demand
        };
        let least = (demand.release_latency + demand.cost + self.model.blocking.by(Nanos::ZERO)).0 as f64;
        let most = (demand.period.0 as f64 * 1.2).max(least * 1.5);
        let bound = Nanos((least.ln() + rng.random_range(0.05..1.0) * (most / least).ln()).exp() as u64);
        Asked { demand, bound }
    }
}
