//! Random stages of small whole numbers, each filled by a policy: the requests, and the reservations.

use punctual_analysis::{
    AdmissionPolicy, BitRate, Blocking, Class, Contract, Demand, Interference, Link, Nanos, Pacing, Ppm,
    Rate, StageKey, StageModel, Urgency, policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::stage::{Channel, Gate, Order, PARTS, Stage, TICK_NS};

/// Longest bound that is requested, in ticks.
const BOUND_TICKS_MAX: i64 = 90;
const MICROPARTS: u32 = 1_000_000 / PARTS as u32;

pub const POLICIES: [&str; 5] = ["edf", "d-order", "fixed-priority", "rmdp", "statistical"];

/// Kind of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A processor.
    Processor,
    /// A link that completions drive.
    Completions,
    /// A link that the clock drives.
    Clock,
}

/// A stage and the channels that a policy holds there.
#[derive(Clone, Debug)]
pub struct Set {
    pub policy: &'static str,
    pub kind: Kind,
    pub stage: Stage,
    pub channels: Vec<Channel>,
    /// The channel that was admitted last, if it has its smallest possible bound.
    pub least: Option<usize>,
    pub demands: Vec<Demand>,
    pub model: StageModel,
}

const fn ticks(count: u64) -> Nanos {
    Nanos(count * TICK_NS as u64)
}

/// The link whose byte takes a tick, with that kernel traffic.
struct Wire {
    link: Link,
}

/// The kind of a stage, before any channel is admitted.
enum Made {
    Processor { best_effort: u8 },
    Link(Wire),
}

pub fn pick<T: Copy>(rng: &mut SmallRng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

fn draw_interference(rng: &mut SmallRng) -> (i16, i16) {
    if rng.random_bool(0.5) {
        return (0, 0);
    }
    (rng.random_range(0..=2) * PARTS, rng.random_range(0..=5))
}

fn draw_link(kind: Kind, (sigma, rho): (i16, i16), rng: &mut SmallRng) -> Wire {
    let mtu = rng.random_range(1..=3);
    let pacing = if kind == Kind::Clock { Pacing::Clock } else { Pacing::Completion };
    Wire {
        link: Link {
            rate: BitRate(8_000_000_000 / TICK_NS as u64),
            rate_error: Ppm(0),
            overhead_bytes: 0,
            mtu_wire_bytes: mtu,
            best_effort_wire_bytes: rng.random_range(1..=mtu),
            pipeline_depth: pick(rng, &[1, 2, 2, 2, 3]),
            pacing,
            reaction: ticks(rng.random_range(0..=2)),
            interference: interference(sigma, rho),
            best_effort_share_min: Ppm(rng.random_range(0..=10) * 10_000),
        },
    }
}

fn interference(sigma: i16, rho: i16) -> Interference {
    Interference {
        sigma: Nanos((i64::from(sigma) * TICK_NS / i64::from(PARTS)) as u64),
        rho: Ppm(rho as u32 * MICROPARTS),
    }
}

/// The model of the stage for the policy, and its actual behaviour.
fn stage_of(
    kind: Kind,
    made: &Made,
    (sigma, rho): (i16, i16),
    policy: &str,
    rng: &mut SmallRng,
) -> (StageModel, Stage) {
    let order = match policy {
        "fixed-priority" | "rmdp" => Order::Rank,
        _ => Order::Deadline,
    };
    match made {
        Made::Processor { best_effort } => {
            let model = StageModel {
                blocking: Blocking::LargestUnit { best_effort: ticks((*best_effort).into()) },
                interference: interference(sigma, rho),
                utilisation_limit: Ppm(rng.random_range(850_000..=1_000_000)),
            };
            (model, Stage { order, gate: Gate::Alone, reaction: 0, best_effort: *best_effort, sigma, rho })
        }
        Made::Link(Wire { link }) => {
            let (depth, mtu) = (link.pipeline_depth as u8, link.mtu_wire_bytes as u8);
            let gate = match (kind, depth) {
                (Kind::Clock, _) => Gate::Clock((depth - 1) * mtu),
                (_, 1) => Gate::Alone,
                _ => Gate::Window(depth * mtu),
            };
            let reaction = (link.reaction.0 as i64 / TICK_NS) as u8;
            let best_effort = link.best_effort_wire_bytes as u8;
            (link.model(), Stage { order, gate, reaction, best_effort, sigma, rho })
        }
    }
}

/// The units of a message of `cost` ticks: as long as allowed, or of any length. A message that is declared
/// as one unit has one.
fn units_of(cost: u8, longest: u8, rng: &mut SmallRng) -> Vec<u8> {
    let any = longest < cost && rng.random_bool(0.3);
    let mut units = Vec::new();
    let mut left = cost;
    while left > 0 {
        let most = left.min(longest);
        let unit = if any { rng.random_range(1..=most) } else { most };
        units.push(unit);
        left -= unit;
    }
    units
}

/// A newcomer: its demand, and the units of its messages.
fn draw_demand(made: &Made, order: Order, wanted: u64, rng: &mut SmallRng) -> (Demand, Channel) {
    let period: u8 = rng.random_range(3..=10);
    let cost = rng.random_range(1..=(u64::from(period) * 5 / 4 / wanted).clamp(1, 6)) as u8;
    let late = pick(rng, &[0, 0, 1, period / 2, period]);
    let early = pick(rng, &[0, 0, 0, 2, period]);
    let (release_latency, horizon) = (ticks(late.into()), ticks(early.into()));
    let class = if rng.random_bool(0.2) { Class::LowLatency } else { Class::Guaranteed };
    let span = ticks(period.into());
    let apart = matches!(made, Made::Processor { .. }) && cost > 1 && rng.random_bool(0.3);
    let (demand, units) = match made {
        Made::Processor { .. } => {
            let longest = if apart { cost } else { rng.random_range(1..=cost) };
            let demand = Demand {
                cost: ticks(cost.into()),
                unit_cost_max: ticks(longest.into()),
                period: span,
                release_latency,
                early: horizon,
                urgency: Urgency::default(),
                soft: None,
            };
            (demand, if apart { units_of(cost, cost - 1, rng) } else { units_of(cost, longest, rng) })
        }
        Made::Link(Wire { link }) => {
            let rate = Rate::every(span).expect("not zero");
            let contract =
                Contract::new(cost.into(), rate, 1, Nanos::from_secs(1)).expect("a small contract");
            let demand = link.demand(&contract, link.mtu_wire_bytes, release_latency, horizon);
            let longest = link.mtu_wire_bytes as u8;
            let whole = vec![longest; usize::from(cost / longest)];
            let rest = Some(cost % longest).filter(|&rest| rest > 0);
            (demand, whole.into_iter().chain(rest).collect())
        }
    };
    // Periods are whole ticks: the margin of the policed interval is left out.
    let demand = Demand { period: span, urgency: Urgency::of_period(class, span), ..demand };
    let demand = if apart && order == Order::Rank { demand.in_pieces() } else { demand };
    let channel = Channel {
        period: period as i8,
        late: late as i8,
        early: early as i8,
        apart,
        units,
        bound_ns: 0,
        rank: 0,
    };
    (demand, channel)
}

/// The order at run time if deadlines do not determine it.
fn rank_of(policy: &str, demand: &Demand, bound_ns: i64) -> u64 {
    match policy {
        "rmdp" => u64::from(demand.urgency.class != Class::LowLatency) << 60 | demand.urgency.rate.0,
        // Half octaves of bounds from 64 us (2^16 ns) on, thirty of them.
        _ => (1..30).filter(|level| (bound_ns as u128).pow(2) >= 1 << (32 + level)).count() as u64,
    }
}

/// The set of a seed.
pub fn draw(seed: u64) -> Set {
    let mut rng = SmallRng::seed_from_u64(seed);
    let rng = &mut rng;
    let policy = pick(rng, &POLICIES);
    let kind = pick(rng, &[Kind::Processor, Kind::Completions, Kind::Clock]);
    // A clock paces at what the kernel leaves of the wire.
    let kernel = if kind == Kind::Clock { (0, 0) } else { draw_interference(rng) };
    let made = match kind {
        Kind::Processor => Made::Processor { best_effort: rng.random_range(0..=4) },
        _ => Made::Link(draw_link(kind, kernel, rng)),
    };
    let (model, stage) = stage_of(kind, &made, kernel, policy, rng);
    let mut admission = policy_by_name(policy, model).expect("a policy of ours");
    let mut set = Set { policy, kind, stage, channels: Vec::new(), least: None, demands: Vec::new(), model };
    let wanted = pick(rng, &[1, 2, 2, 2, 3, 3, 3, 4]);
    for key in 0..wanted {
        let (demand, channel) = draw_demand(&made, stage.order, wanted, rng);
        set.ask(admission.as_mut(), StageKey(key), demand, channel, rng);
    }
    set
}

impl Set {
    /// Requests a channel, with the smallest bound or a wider one.
    fn ask(
        &mut self,
        admission: &mut dyn AdmissionPolicy,
        key: StageKey,
        demand: Demand,
        channel: Channel,
        rng: &mut SmallRng,
    ) {
        let limit = ticks(BOUND_TICKS_MAX as u64);
        let Ok(offer) = admission.offer(&demand, limit) else { return };
        let wider = offer.bound + ticks(rng.random_range(1..=8));
        let wider = Nanos(wider.0 - wider.0 % TICK_NS as u64);
        let relaxed = rng.random_bool(0.4) && admission.hold(key, &demand, wider).is_ok();
        if !relaxed {
            admission.hold(key, &demand, offer.bound).expect("what was offered holds");
        }
        let bound_ns = admission.bound(key).expect("it is held").0 as i64;
        let rank = rank_of(self.policy, &demand, bound_ns);
        self.least = (!relaxed).then_some(self.channels.len());
        self.channels.push(Channel { bound_ns, rank, ..channel });
        self.demands.push(demand);
    }

    /// Whether more was reserved than allowed, by exact fractions; the kernel's share counts.
    pub fn gives_too_much_away(&self) -> bool {
        let product: u128 = self.demands.iter().map(|demand| u128::from(demand.period.0)).product();
        let used: u128 = self
            .demands
            .iter()
            .map(|demand| product / u128::from(demand.period.0) * u128::from(demand.cost.0))
            .sum();
        let kernel = u128::from(self.model.interference.rho.0) * product;
        !self.demands.is_empty()
            && used * 1_000_000 + kernel > u128::from(self.model.utilisation_limit.0) * product
    }
}
