//! Soft channels beside hard ones, in whole ticks: the share of messages that miss, over random phases of the
//! sources, is at most the ratio that `statistical` permits.
//!
//! Soft sources use all that they declare: a burst at the peak, then nothing until the mean allows the next
//! one; their phases are independent. Hard channels send as much and as early as they may, in step with each
//! other. All cycles end together, so that the whole is one round, measured after one round of warm-up.

use std::collections::BTreeMap;

use punctual_analysis::{
    Blocking, Class, Demand, Interference, Nanos, Ppb, Ppm, Soft, StageKey, StageModel, Urgency,
    policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::stage::TICK_NS;

/// Every cycle divides it.
const ROUND_TICKS: usize = 480;
/// Drawn phases of all sources.
const PHASES: usize = 96;
const CHANNELS_MAX: u64 = 96;

#[derive(Clone, Debug)]
struct Channel {
    cost: u32,
    bound_ns: i64,
    /// When messages are there, and their e, in ticks of a round, phase 0.
    arrivals: Vec<(usize, usize)>,
    cycle: usize,
    is_soft: bool,
}

/// The result for one set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub soft_channels: usize,
    /// Messages of soft channels, and those that missed.
    pub messages: u64,
    pub misses: u64,
    pub hard_misses: u64,
    /// The share that may miss.
    pub borne: f64,
    /// Standard deviation of the share of misses that was found.
    pub deviation: f64,
    /// The part of their bounds within which all but the share that may miss were done.
    pub needed: f64,
}

impl Outcome {
    pub fn share(&self) -> f64 {
        self.misses as f64 / self.messages.max(1) as f64
    }

    /// Whether there are more misses than permitted, beyond five standard deviations.
    pub fn is_broken(&self) -> bool {
        self.hard_misses > 0 || self.share() > self.borne + 5.0 * self.deviation
    }
}

fn ticks(count: usize) -> Nanos {
    Nanos(count as u64 * TICK_NS as u64)
}

fn demand(cost: u32, period: usize, early: usize, soft: Option<Soft>) -> Demand {
    Demand {
        cost: ticks(cost as usize),
        unit_cost_max: ticks(1),
        period: ticks(period),
        release_latency: Nanos::ZERO,
        early: ticks(early),
        urgency: Urgency::of_period(Class::Guaranteed, ticks(period)),
        soft,
    }
}

fn pick<T: Copy>(rng: &mut SmallRng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// A hard channel: all messages that may arrive within `early` arrive at its begin.
fn hard(rng: &mut SmallRng) -> (Demand, Channel) {
    let period = pick(rng, &[24, 30, 48, 60, 96]);
    let early = pick(rng, &[0, 0, 48, 120]);
    let cost = rng.random_range(1..=(period / 4) as u32);
    let gathered = |at: usize| at.checked_div(early).map_or(at, |heap| heap * early);
    let arrivals = (0..ROUND_TICKS).step_by(period).map(|at| (gathered(at), at)).collect();
    (
        demand(cost, period, early, None),
        Channel { cost, bound_ns: 0, arrivals, cycle: ROUND_TICKS, is_soft: false },
    )
}

/// A soft channel: bursts of `burst` messages at the peak, one burst a cycle.
fn soft(miss_ratio: Ppb, rng: &mut SmallRng) -> (Demand, Channel) {
    let (cycle, burst) = pick(rng, &[(120, 1), (240, 2), (240, 4), (480, 4), (480, 8)]);
    let period = pick(rng, &[2, 4, 10]);
    let cost = 1;
    let mean_period = cycle / burst;
    // In any time t at most 1 + (t + over)/mean messages: the burst itself needs the most.
    let over = (burst - 1) * mean_period - (burst - 1) * period;
    let declared =
        Soft { mean_period: ticks(mean_period), mean_over: ticks(over), jitter: Nanos::ZERO, miss_ratio };
    let arrivals = (0..ROUND_TICKS / cycle)
        .flat_map(|n| (0..burst).map(move |k| n * cycle + k * period))
        .map(|at| (at, at))
        .collect();
    (demand(cost, period, 0, Some(declared)), Channel { cost, bound_ns: 0, arrivals, cycle, is_soft: true })
}

/// Some hard channels, then soft ones up to the first refusal.
fn admitted(miss_ratio: Ppb, best_effort: u32, rng: &mut SmallRng) -> Vec<Channel> {
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort: ticks(best_effort as usize) },
        interference: Interference::default(),
        utilisation_limit: Ppm(980_000),
    };
    let mut policy = policy_by_name("statistical", model).expect("a policy of ours");
    let mut channels = Vec::new();
    let hard_wanted = rng.random_range(0..=2);
    let few = rng.random_bool(0.5);
    let wanted = if few { hard_wanted + 3 } else { CHANNELS_MAX };
    for key in 0..wanted {
        let (demand, channel) = if key < hard_wanted { hard(rng) } else { soft(miss_ratio, rng) };
        let limit = ticks(rng.random_range(20..=240));
        let Ok(offer) = policy.offer(&demand, limit) else { continue };
        policy.hold(StageKey(key), &demand, offer.bound).expect("what was offered holds");
        channels.push(Channel { bound_ns: offer.bound.0 as i64, ..channel });
    }
    channels
}

/// Results of the second of two rounds.
#[derive(Default)]
struct Round {
    hard_misses: u64,
    /// For each soft message, the part of its bound that it took.
    parts: Vec<f64>,
}

/// The arrivals of a round: arrival time, how much later its e is, and channel.
fn round_of(channels: &[Channel], phases: &[usize]) -> Vec<(usize, usize, usize)> {
    let mut coming = Vec::new();
    for (index, channel) in channels.iter().enumerate() {
        let moved = |&(at, e): &(usize, usize)| ((at + phases[index]) % ROUND_TICKS, e - at, index);
        coming.extend(channel.arrivals.iter().map(moved));
    }
    coming.sort_unstable();
    coming
}

/// Simulates two rounds: hard before soft, then by deadline, best effort when nothing waits.
fn simulate(channels: &[Channel], phases: &[usize], best_effort: u32) -> Round {
    let one = round_of(channels, phases);
    let both = (0..2)
        .flat_map(|round| one.iter().map(move |&(at, ahead, of)| (at + round * ROUND_TICKS, ahead, of)));
    let (mut coming, mut ready, mut now) = (both.enumerate().peekable(), BTreeMap::new(), 0);
    let mut found = Round::default();
    while coming.peek().is_some() || !ready.is_empty() {
        while let Some((number, (at, ahead, of))) = coming.next_if(|&(_, (at, ..))| at <= now) {
            let channel = &channels[of];
            let e_ns = (at + ahead) as i64 * TICK_NS;
            ready.insert((channel.is_soft, e_ns + channel.bound_ns, number), (channel.cost, e_ns, of));
        }
        let Some(mut first) = ready.first_entry() else {
            now += best_effort.max(1) as usize;
            continue;
        };
        now += 1;
        first.get_mut().0 -= 1;
        if first.get().0 == 0 {
            let ((is_soft, due_ns, _), (_, e_ns, of)) = first.remove_entry();
            let done_ns = now as i64 * TICK_NS;
            found.hard_misses += u64::from(!is_soft && done_ns > due_ns);
            if is_soft && e_ns >= ROUND_TICKS as i64 * TICK_NS {
                found.parts.push((done_ns - e_ns) as f64 / channels[of].bound_ns as f64);
            }
        }
    }
    found
}

/// Fills and simulates the stage of a seed; `None` if no soft channel is admitted.
pub fn check(seed: u64) -> Option<Outcome> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let miss_ratio = Ppb::new(pick(&mut rng, &[1_000_000, 50_000_000, 200_000_000, 400_000_000]))?;
    let best_effort = rng.random_range(1..=2);
    let channels = admitted(miss_ratio, best_effort, &mut rng);
    let soft_channels = channels.iter().filter(|channel| channel.is_soft).count();
    if soft_channels == 0 {
        return None;
    }
    let mut outcome = Outcome { soft_channels, borne: miss_ratio.as_f64(), ..Outcome::default() };
    let (mut parts, mut squares) = (Vec::new(), 0.0);
    for _ in 0..PHASES {
        let phases: Vec<usize> = channels
            .iter()
            .map(|channel| if channel.is_soft { rng.random_range(0..channel.cycle) } else { 0 })
            .collect();
        let found = simulate(&channels, &phases, best_effort);
        let misses = found.parts.iter().filter(|&&part| part > 1.0).count() as u64;
        squares += (misses as f64 / found.parts.len() as f64).powi(2);
        outcome.misses += misses;
        outcome.messages += found.parts.len() as u64;
        outcome.hard_misses += found.hard_misses;
        parts.extend(found.parts);
    }
    parts.sort_unstable_by(f64::total_cmp);
    let last = ((parts.len() as f64 * (1.0 - outcome.borne)).ceil() as usize).clamp(1, parts.len());
    outcome.needed = parts[last - 1];
    let variance = squares / PHASES as f64 - outcome.share().powi(2);
    outcome.deviation = (variance.max(0.0) / PHASES as f64).sqrt();
    Some(outcome)
}
