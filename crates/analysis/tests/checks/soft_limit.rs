//! Soft channels at the limit of what `statistical` admits, with the exact share of messages that miss.
//!
//! A channel under watch sends rarely. One or two others send bursts, as often as admission lets them. All
//! bursts and the message under watch together need one tick more than its bound: it misses if and only if it
//! meets every burst. The phases of the others are independent and uniform; a message is tried in all of them, so
//! the share is exact. Here the bound of `statistical` is almost exact, too: Chernoff's bound of the probability
//! that all of some variables are at their maximum is that probability, and no other window can be too short. What
//! remains of the difference: windows grow in steps of a sixteenth, and one of them counts what is due by its end.

#![allow(dead_code)] // One program that includes this file looks for faults, another at how much is used.

use punctual_analysis::{
    Blocking, Class, Demand, Interference, Nanos, Ppb, Ppm, Soft, StageKey, StageModel, Urgency,
    policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A power of two, so that bounds of few binary digits are not rounded.
const TICK_NS: u64 = 1_024;
/// The channel under watch meets itself in no window.
const RARE: u64 = 1 << 30;
/// Longest cycle of the others, in bounds of the channel under watch.
const CYCLE_MAX: u64 = 4_000;

/// Largest distance of the bound from the end of the window before, as a part of it.
const BEHIND_MAX: f64 = 0.004;

/// A stage; all times in ticks.
#[derive(Clone, Copy, Debug)]
struct Stage {
    /// The bound of the channel under watch, and that of the others.
    bound: u64,
    bound_of_others: u64,
    others: usize,
    /// Messages of a burst, one a tick, and the cost of each.
    burst: u64,
    cost: u64,
    miss_ratio: Ppb,
}

/// What became of the channel under watch.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The share of its messages that may miss, and the share that misses.
    pub allowed: f64,
    pub missed: f64,
}

impl Outcome {
    /// The part of the allowed misses that happens.
    pub fn used(&self) -> f64 {
        self.missed / self.allowed
    }
}

/// A message; `is_watched` comes last, so that of two that are due at once the other one is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Message {
    due: i64,
    is_watched: bool,
    at: i64,
    left: i64,
}

fn ticks(count: u64) -> Nanos {
    Nanos(count * TICK_NS)
}

fn demand(cost: u64, period: u64, mean_period: u64, mean_over: u64, miss_ratio: Ppb) -> Demand {
    let (mean_period, mean_over) = (ticks(mean_period), ticks(mean_over));
    Demand {
        cost: ticks(cost),
        unit_cost_max: ticks(1),
        period: ticks(period),
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::of_period(Class::Guaranteed, ticks(period)),
        soft: Some(Soft { mean_period, mean_over, jitter: Nanos::ZERO, miss_ratio }),
    }
}

impl Stage {
    /// A stage whose bound is right behind the end of a window.
    fn draw(rng: &mut SmallRng) -> Self {
        loop {
            let stage = Self::any(rng);
            if stage.behind_a_window() < BEHIND_MAX {
                return stage;
            }
        }
    }

    /// How far the bound is behind the end of the window before, as a part of it.
    fn behind_a_window(&self) -> f64 {
        let ends = std::iter::successors(Some(self.bound_of_others as f64), |end| Some(end + end / 16.0));
        let bound = self.bound as f64;
        let last = ends.take_while(|&end| end < bound).last();
        last.map_or(1.0, |end| (bound - end) / bound)
    }

    /// One burst with a ratio down to 1 in 1,000, or two with one down to 1 in 20, so that all phases can be
    /// tried.
    fn any(rng: &mut SmallRng) -> Self {
        let others = rng.random_range(1..=2);
        let (scale, tenths) = if others == 1 { (16, 3.0) } else { (4, 1.3) };
        let bound = rng.random_range(16..32) * scale;
        let burst = rng.random_range(1..=2);
        let bursts_part = rng.random_range(0.3..0.5);
        let cost = (bound as f64 * bursts_part / (others as u64 * burst) as f64) as u64;
        let miss_ratio = 10_f64.powf(-rng.random_range(0.7..tenths));
        let miss_ratio = Ppb::new((miss_ratio * 1e9) as u32).expect("above zero");
        let bound_of_others = whole(others as u64 * burst * cost + burst);
        Self { bound, bound_of_others, others, burst, cost, miss_ratio }
    }

    fn bursts(&self) -> u64 {
        self.others as u64 * self.burst * self.cost
    }

    /// With the bursts and a unit of best effort it needs one tick more than the bound.
    fn watched_cost(&self) -> u64 {
        self.bound - self.bursts()
    }

    /// Whether all channels are admitted if the others send a burst each `cycle`.
    fn admits(&self, cycle: u64) -> bool {
        let model = StageModel {
            blocking: Blocking::LargestUnit { best_effort: ticks(1) },
            interference: Interference::default(),
            utilisation_limit: Ppm::ONE,
        };
        let mut policy = policy_by_name("statistical", model).expect("a policy of ours");
        let mean = cycle / self.burst;
        let over = (self.burst - 1) * (mean - 1);
        let often = Ppb::new(999_999_999).expect("above zero");
        let other = demand(self.cost, if self.burst == 1 { mean } else { 1 }, mean, over, often);
        let watched = demand(self.watched_cost(), RARE, RARE, 0, self.miss_ratio);
        let mut key = 0..;
        let mut hold = |demand: &Demand, bound: u64| {
            let key = StageKey(key.next().expect("endless"));
            policy.hold(key, demand, ticks(bound)).is_ok()
        };
        (0..self.others).all(|_| hold(&other, self.bound_of_others)) && hold(&watched, self.bound)
    }

    /// The shortest cycle that is admitted, a multiple of the burst.
    fn cycle(&self) -> Option<u64> {
        let (mut refused, mut admitted) = (self.bound, self.bound * CYCLE_MAX / self.burst);
        if self.admits(refused * self.burst) || !self.admits(admitted * self.burst) {
            return None;
        }
        while admitted - refused > 1 {
            let middle = refused.midpoint(admitted);
            if self.admits(middle * self.burst) { admitted = middle } else { refused = middle }
        }
        Some(admitted * self.burst)
    }

    /// Whether a message that comes at 0 misses while the others' bursts begin at these times, and a cycle before.
    fn misses(&self, begins: &[u64], cycle: u64) -> bool {
        let message = |begin: i64, number: u64| {
            let at = begin + number as i64;
            Message { due: at + self.bound_of_others as i64, is_watched: false, at, left: self.cost as i64 }
        };
        let mut messages: Vec<Message> = begins
            .iter()
            .flat_map(|&begin| [begin as i64 - cycle as i64, begin as i64])
            .flat_map(|begin| (0..self.burst).map(move |number| message(begin, number)))
            .collect();
        let left = self.watched_cost() as i64;
        messages.push(Message { due: self.bound as i64, is_watched: true, at: 0, left });
        done(&mut messages) > self.bound as i64
    }

    /// The share of all phases in which the message misses.
    fn missed(&self, cycle: u64) -> f64 {
        let mut begins = vec![0; self.others];
        let mut misses = 0_u64;
        for phase in 0..cycle.pow(self.others as u32) {
            let mut rest = phase;
            for begin in &mut begins {
                (*begin, rest) = (rest % cycle, rest / cycle);
            }
            misses += u64::from(self.misses(&begins, cycle));
        }
        misses as f64 / (cycle as f64).powi(self.others as i32)
    }
}

/// The next bound that has five binary digits at most.
fn whole(least: u64) -> u64 {
    let dropped = least.ilog2().saturating_sub(4);
    least.div_ceil(1 << dropped) << dropped
}

/// When the message under watch is done: by deadline, in units of a tick. A unit of best effort has just begun
/// whenever the stage was idle.
fn done(messages: &mut Vec<Message>) -> i64 {
    messages.sort_unstable();
    let mut now = i64::MIN;
    loop {
        let next = messages.iter().map(|message| message.at).min().unwrap_or(now);
        if next > now {
            now = next + 1;
        }
        // The first that is there, until it is done or one that is due sooner comes.
        let first = messages.iter().position(|message| message.at <= now).expect("the next one is there");
        let sooner = messages[..first].iter().map(|message| message.at).min().unwrap_or(i64::MAX);
        let served = messages[first].left.min(sooner.saturating_sub(now));
        now += served;
        messages[first].left -= served;
        if messages[first].left == 0 && messages.remove(first).is_watched {
            return now;
        }
    }
}

/// The stage of a seed; `None` if its ratio cannot be reached.
pub fn outcome(seed: u64) -> Option<Outcome> {
    let stage = Stage::draw(&mut SmallRng::seed_from_u64(seed));
    let cycle = stage.cycle()?;
    Some(Outcome { allowed: stage.miss_ratio.as_f64(), missed: stage.missed(cycle) })
}

/// More messages miss than may.
pub fn exceeded(seed: u64) -> Option<String> {
    let Outcome { allowed, missed } = outcome(seed)?;
    (missed > allowed).then(|| format!("{missed:.5} of the messages miss, {allowed:.5} may"))
}
