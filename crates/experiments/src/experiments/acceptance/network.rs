//! Channels over a path of stages: admitted hop by hop as signalling does it, the leftover shared in some way.

use punctual_analysis::sharing::{ShareStage, Sharing};
use punctual_analysis::{
    Admission, AdmissionPolicy, Blocking, Class, Demand, Interference, Nanos, Ppm, StageKey, StageModel,
    Urgency,
};
use punctual_proto::signalling::SplitMix64;

/// Deterministic dice.
pub struct Dice(SplitMix64);

impl Dice {
    /// Makes random numbers from a seed.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d))
    }

    /// A random number from 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.0.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly between two values.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    /// Evenly in the logarithm.
    pub fn log_between(&mut self, low: f64, high: f64) -> f64 {
        (self.between(low.ln(), high.ln())).exp()
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.0.next() % bound.max(1) as u64) as usize
    }
}

/// A channel that requests admission.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// The first stage that it passes, and the one behind the last.
    pub stages: (usize, usize),
    /// Time between messages.
    pub period: Nanos,
    /// D.
    pub deadline: Nanos,
    /// Packets of a message.
    pub packets: u64,
    /// Time of a packet at a stage of speed 1.
    pub packet: Nanos,
}

/// Stages in a row.
pub struct Path {
    stages: Vec<Box<dyn AdmissionPolicy>>,
    speeds: Vec<f64>,
    admitted: u64,
}

/// A packet of full length at speed 1: 1,500 B at 100 Mbit/s.
const PACKET_NS: f64 = 120_000.0;

/// How the bounds of a newcomer are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundChoice {
    /// Hop by hop.
    Shared(Sharing),
    /// The search that sees the whole path: see [`Path::search`].
    Search,
}

impl Path {
    /// Empty stages of these speeds.
    pub fn new(policy: Admission, speeds: &[f64]) -> Self {
        let stage = |speed: &f64| {
            (policy.build)(StageModel {
                blocking: Blocking::LargestUnit { best_effort: Nanos((PACKET_NS / speed) as u64) },
                interference: Interference { sigma: Nanos::from_micros(20), rho: Ppm(10_000) },
                utilisation_limit: Ppm(950_000),
            })
        };
        Self { stages: speeds.iter().map(stage).collect(), speeds: speeds.to_vec(), admitted: 0 }
    }

    /// The demand at a stage.
    pub fn demand(&self, newcomer: &Newcomer, stage: usize) -> Demand {
        let unit = Nanos((newcomer.packet.0 as f64 / self.speeds[stage]).ceil() as u64);
        Demand {
            cost: unit * newcomer.packets,
            unit_cost_max: unit,
            period: newcomer.period,
            release_latency: Nanos::from_micros(20),
            early: Nanos::ZERO,
            urgency: Urgency::of_period(Class::Guaranteed, newcomer.period),
            soft: None,
        }
    }

    /// The smallest bounds, if they fit into D.
    fn offers(&mut self, newcomer: &Newcomer) -> Option<Vec<Nanos>> {
        let mut left = newcomer.deadline;
        let mut offers = Vec::new();
        for stage in newcomer.stages.0..newcomer.stages.1 {
            let demand = self.demand(newcomer, stage);
            let bound = self.stages[stage].offer(&demand, left).ok()?.bound;
            left = left.checked_sub(bound)?;
            offers.push(bound);
        }
        Some(offers)
    }

    /// Admits or refuses.
    pub fn open(&mut self, newcomer: &Newcomer, choice: BoundChoice) -> bool {
        let Some(offers) = self.offers(newcomer) else { return false };
        let key = StageKey(self.admitted);
        let first = newcomer.stages.0;
        for (index, &bound) in offers.iter().enumerate() {
            let demand = self.demand(newcomer, first + index);
            if self.stages[first + index].hold(key, &demand, bound).is_err() {
                (first..first + index).for_each(|stage| {
                    self.stages[stage].release(key);
                });
                return false;
            }
        }
        self.admitted += 1;
        match choice {
            BoundChoice::Shared(sharing) => self.relax(key, newcomer, &offers, sharing),
            BoundChoice::Search => self.search(key, newcomer, &offers),
        }
        true
    }

    fn known(&self, newcomer: &Newcomer, offers: &[Nanos]) -> Vec<ShareStage> {
        let first = newcomer.stages.0;
        let known = |(index, &offered): (usize, &Nanos)| ShareStage {
            offered,
            cost: self.demand(newcomer, first + index).cost,
            load: self.stages[first + index].utilisation(),
        };
        offers.iter().enumerate().map(known).collect()
    }

    /// ACCEPT: from the last stage to the first, each takes its share of the rest or passes it on.
    fn relax(&mut self, key: StageKey, newcomer: &Newcomer, offers: &[Nanos], sharing: Sharing) {
        let known = self.known(newcomer, offers);
        let mut left = newcomer.deadline - offers.iter().copied().sum();
        for index in (0..offers.len()).rev() {
            let share = sharing.of_last(left, &known[..=index]);
            if self.stages[newcomer.stages.0 + index].relax(key, offers[index] + share).is_ok() {
                left = left - share;
            }
        }
    }

    /// What probes along all stages are offered, together: the smaller, the more room is left.
    fn room(&mut self, newcomer: &Newcomer) -> f64 {
        let mut sum = 0.0;
        for scale in [1, 4] {
            for stage in newcomer.stages.0..newcomer.stages.1 {
                let mut demand = self.demand(newcomer, stage);
                demand.cost = Nanos(demand.cost.0 * scale / 2 + 1);
                demand.unit_cost_max = demand.unit_cost_max.min(demand.cost);
                let limit = Nanos::from_secs(10);
                let bound = self.stages[stage].offer(&demand, limit).map_or(limit, |offer| offer.bound);
                sum += bound.0 as f64;
            }
        }
        sum
    }

    fn set(&mut self, key: StageKey, newcomer: &Newcomer, bounds: &[Nanos]) {
        for (index, &bound) in bounds.iter().enumerate() {
            // If it is refused, the old bound stays, which is shorter.
            let _ = self.stages[newcomer.stages.0 + index].relax(key, bound);
        }
    }

    /// The reference: it sees every stage as it is. Of all ways of sharing it takes the one after which two probes
    /// along the path (half and twice the newcomer) are offered the smallest bounds; then it moves parts of the
    /// leftover from stage to stage, halving the part, for as long as that makes room.
    fn search(&mut self, key: StageKey, newcomer: &Newcomer, offers: &[Nanos]) {
        let known = self.known(newcomer, offers);
        let left = newcomer.deadline - offers.iter().copied().sum();
        let mut best: Option<(f64, Vec<Nanos>)> = None;
        for sharing in Sharing::ALL {
            let shares = sharing.shares(left, &known);
            let bounds: Vec<Nanos> =
                offers.iter().zip(&shares).map(|(&offer, &share)| offer + share).collect();
            self.set(key, newcomer, &bounds);
            let room = self.room(newcomer);
            if best.as_ref().is_none_or(|(least, _)| room < *least) {
                best = Some((room, bounds));
            }
        }
        let Some((mut least, mut bounds)) = best else { return };
        let mut part = left.0 / 4;
        while part > left.0 / 64 && part > 0 {
            let mut moved = false;
            for from in 0..bounds.len() {
                for to in 0..bounds.len() {
                    if from == to || bounds[from].0 < offers[from].0 + part {
                        continue;
                    }
                    let mut tried = bounds.clone();
                    tried[from] = Nanos(tried[from].0 - part);
                    tried[to] += Nanos(part);
                    self.set(key, newcomer, &tried);
                    let room = self.room(newcomer);
                    if room < least * (1.0 - 1e-6) {
                        (least, bounds, moved) = (room, tried, true);
                    }
                }
            }
            if !moved {
                part /= 2;
            }
        }
        self.set(key, newcomer, &bounds);
    }
}

/// The differences between the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One stage is slower than all others.
    Bottleneck,
    /// One stage is far slower than all others.
    Sharp,
    /// All the same.
    Equal,
    /// All the same, but one is half used by channels that pass no other stage.
    Loaded,
    /// Anything between.
    Mixed,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Sharp, Self::Bottleneck, Self::Equal, Self::Loaded, Self::Mixed];
}

/// The speeds of a path: the slowest is 1.
pub fn speeds(shape: Shape, stages: usize, dice: &mut Dice) -> Vec<f64> {
    let slowest = dice.below(stages);
    let mut speed = |index: usize| match shape {
        _ if index == slowest => 1.0,
        Shape::Equal | Shape::Loaded => 1.0,
        Shape::Bottleneck => dice.between(2.5, 5.0),
        Shape::Sharp => dice.between(15.0, 30.0),
        Shape::Mixed => dice.log_between(1.0, 5.0),
    };
    (0..stages).map(&mut speed).collect()
}

/// A channel: some over the whole path, some over a part of it.
pub fn newcomer(speeds: &[f64], crossing: f64, dice: &mut Dice) -> Newcomer {
    let count = speeds.len();
    let stages = if dice.share() < crossing {
        let first = dice.below(count);
        (first, first + 1 + dice.below(count - first))
    } else {
        (0, count)
    };
    let period = Nanos(dice.log_between(5e6, 100e6) as u64);
    let packets = 1 + (dice.log_between(0.002, 0.05) * period.0 as f64 / PACKET_NS) as u64;
    let alone: f64 =
        speeds[stages.0..stages.1].iter().map(|speed| (packets as f64 + 2.0) * PACKET_NS / speed).sum();
    // From tight to loose, relative to its processing time alone and its period.
    let deadline = Nanos((alone + dice.log_between(0.1, 2.0) * period.0 as f64) as u64);
    Newcomer { stages, period, deadline, packets, packet: Nanos(PACKET_NS as u64) }
}

/// Channels until they would use `load` of the slowest stage, and how many of them a path takes: accepted, offered.
pub fn accepted(
    policy: Admission,
    choice: BoundChoice,
    shape: Shape,
    stages: usize,
    load: f64,
    seed: u64,
) -> (u64, u64) {
    let mut dice = Dice::new(seed);
    let speeds = speeds(shape, stages, &mut dice);
    let crossing = [0.0, 0.5][dice.below(2)];
    let mut path = Path::new(policy, &speeds);
    let mut used = vec![0.0; stages];
    if shape == Shape::Loaded {
        let busy = dice.below(stages);
        while used[busy] < 0.5 * load {
            let own = Newcomer { stages: (busy, busy + 1), ..newcomer(&speeds, 0.0, &mut dice) };
            let own = Newcomer { deadline: Nanos(own.deadline.0 / stages as u64 + own.period.0 / 4), ..own };
            let demand = path.demand(&own, busy);
            used[busy] += demand.cost.0 as f64 / demand.period.0 as f64;
            path.open(&own, choice);
        }
    }
    let (mut taken, mut offered) = (0, 0);
    loop {
        let newcomer = newcomer(&speeds, crossing, &mut dice);
        let (first, end) = newcomer.stages;
        for (stage, used) in used.iter_mut().enumerate().take(end).skip(first) {
            let demand = path.demand(&newcomer, stage);
            *used += demand.cost.0 as f64 / demand.period.0 as f64;
        }
        if used.iter().any(|used| *used > load) {
            return (taken, offered);
        }
        offered += 1;
        taken += u64::from(path.open(&newcomer, choice));
    }
}
