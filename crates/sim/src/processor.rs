//! A host's processor: costs of units of protocol work, and disturbances.
//!
//! Costs are at or below the charges of admission, often equal to them. Cold caches after a wake-up make the
//! next units longer, by at most the charge for that. Driver work, signalling and all other work that the
//! node does not order is interference and stays within the configured bound.

use punctual_analysis::Nanos;
use punctual_proto::api::{Work, WorkKind};
use punctual_proto::config::{CpuConfig, CpuCosts};

use crate::bucket::Bucket;
use crate::dice::Dice;
use crate::time::SimTime;

/// A local clock may run fast: durations measured by it must stay within the assumed cost too.
const COST_PPM_MAX: u64 = 999_000;
const COST_PPM_MIN: u64 = 300_000;

/// Bytes of a largest default fragment, for the cost of a largest unit.
const UNIT_BYTES: u32 = 1_400;

/// The largest unit that the processor may be working on.
pub fn unit_cost_max(cpu: &CpuConfig) -> Nanos {
    let packets = cpu.quantum_packets.max(1);
    cpu.costs.of_unit(WorkKind::BestEffort, packets, packets * UNIT_BYTES, true)
}

/// The processor of one host.
#[derive(Clone, Debug)]
pub struct Processor {
    costs: CpuCosts,
    interference: Bucket,
    wake_max: Nanos,
    /// Remaining time of cold caches since the wake-up.
    cold: Nanos,
    /// True if all work takes as long as allowed.
    slow: bool,
    /// Real costs in percent of honest ones.
    cost_percent: u64,
    dice: Dice,
}

impl Processor {
    /// A processor that keeps its configuration `cpu`, unless `cost_percent` is above 100.
    pub fn new(cpu: &CpuConfig, wake_max: Nanos, cost_percent: u32, dice: Dice) -> Self {
        let interference = Bucket::new(cpu.interference);
        let cost_percent = u64::from(cost_percent);
        Self { costs: cpu.costs, interference, wake_max, cold: Nanos::ZERO, slow: false, cost_percent, dice }
    }

    /// Sets the percentage of honest costs that all work takes from now on.
    pub fn set_cost_percent(&mut self, percent: u32) {
        self.cost_percent = u64::from(percent);
    }

    /// This processor with all times as long as allowed, if `slow`.
    #[must_use]
    pub fn at_its_slowest(self, slow: bool) -> Self {
        Self { slow, ..self }
    }

    /// Time from an event until the sleeping processor handles it.
    pub fn wake_up(&mut self) -> Nanos {
        self.cold = self.real(self.costs.cold_start);
        let least = if self.slow { self.wake_max } else { Nanos::ZERO };
        self.dice.span(least, self.wake_max)
    }

    /// Duration of `work`, begun at `now`.
    pub fn time_of(&mut self, work: &Work, now: SimTime) -> Nanos {
        let cost =
            self.costs.of_unit(work.kind, work.packets, work.bytes, work.message_edge) + work.application;
        let most = self.real(cost);
        let least = if self.slow { most } else { Nanos(most.0 * COST_PPM_MIN / 1_000_000) };
        let own = self.dice.span(least, most);
        if work.kind == WorkKind::Signalling {
            return self.interference.take(now, own);
        }
        own + self.warmed_up() + self.interrupted(now)
    }

    /// The longest true duration of work whose assumed cost is `cost`.
    fn real(&self, cost: Nanos) -> Nanos {
        Nanos(cost.0 * COST_PPM_MAX / 1_000_000 * self.cost_percent / 100)
    }

    /// Additional time of a unit because of cold caches.
    fn warmed_up(&mut self) -> Nanos {
        if self.cold == Nanos::ZERO {
            return Nanos::ZERO;
        }
        let least = if self.slow { self.cold } else { Nanos::ZERO };
        let took = self.dice.span(least, self.cold);
        self.cold = self.cold - took;
        took
    }

    /// Time that driver work takes from a unit, sometimes all that the bound allows.
    fn interrupted(&mut self, now: SimTime) -> Nanos {
        let available = self.interference.available(now);
        let wanted = match self.dice.between(0, 31) {
            _ if self.slow => available,
            0 => available,
            1..=7 => Nanos(self.dice.between(0, available.0 / 4)),
            _ => Nanos::ZERO,
        };
        self.interference.take(now, wanted)
    }
}

#[cfg(test)]
mod tests {
    use punctual_proto::ids::HandlerId;

    use super::*;

    fn work(kind: WorkKind) -> Work {
        Work {
            handler: HandlerId(0),
            kind,
            packets: 1,
            bytes: 1_400,
            message_edge: true,
            application: Nanos::ZERO,
        }
    }

    #[test]
    fn honest_costs_stay_below_what_is_assumed_and_come_near() {
        let cpu = CpuConfig { interference: Default::default(), ..CpuConfig::default() };
        let mut honest = Processor::new(&cpu, Nanos(10), 100, Dice::new(1, 1));
        let assumed = cpu.costs.of_unit(WorkKind::Send, 1, 1_400, true);
        let drawn: Vec<_> = (0..1_000).map(|t| honest.time_of(&work(WorkKind::Send), SimTime(t))).collect();
        let most = drawn.into_iter().max().unwrap_or_default();
        assert!(most <= assumed && most.0 * 100 >= assumed.0 * 99, "{most} of {assumed}");
        let mut slow = Processor::new(&cpu, Nanos(10), 300, Dice::new(1, 1));
        assert!((0..1_000).any(|t| slow.time_of(&work(WorkKind::Send), SimTime(t)) > assumed * 2));
    }

    #[test]
    fn cold_caches_take_what_is_charged_once_a_busy_period() {
        let cpu = CpuConfig { interference: Default::default(), ..CpuConfig::default() };
        let unit = work(WorkKind::Send);
        let assumed = cpu.costs.of_unit(unit.kind, unit.packets, unit.bytes, unit.message_edge);
        let mut slow = Processor::new(&cpu, Nanos(10), 100, Dice::new(1, 1)).at_its_slowest(true);
        for _ in 0..3 {
            slow.wake_up();
            let [first, second] = [(); 2].map(|()| slow.time_of(&unit, SimTime(0)));
            assert_eq!(first - second, Nanos(cpu.costs.cold_start.0 * COST_PPM_MAX / 1_000_000));
            assert!(first > assumed && second <= assumed, "{first} and {second}");
        }
        let mut usual = Processor::new(&cpu, Nanos(10), 100, Dice::new(1, 1));
        usual.wake_up();
        let took: Nanos = (0..100).map(|_| usual.time_of(&unit, SimTime(0))).sum();
        assert!(took <= assumed * 100 + cpu.costs.cold_start);
    }

    #[test]
    fn signalling_is_within_the_interference() {
        let cpu = CpuConfig::default();
        let mut processor = Processor::new(&cpu, Nanos(10), 100, Dice::new(1, 1));
        let sum: Nanos = (0..100).map(|_| processor.time_of(&work(WorkKind::Signalling), SimTime(0))).sum();
        assert_eq!(sum, cpu.interference.sigma);
    }
}
