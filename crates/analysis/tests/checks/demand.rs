//! Admission of EDF, against the demand-bound test by brute force: every step of demand up to the end of the
//! longest busy period, one after the other. Messages may become ready late by almost their period, and
//! stages may be almost full.

use punctual_analysis::{
    Blocking, Class, Demand, Interference, Nanos, Ppm, StageKey, StageModel, Urgency, policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const CHANNELS_MAX: u64 = 8;
const BOUND_MAX: Nanos = Nanos::from_secs(2);
/// A busy period that is longer is not walked through.
const BUSY_NS_MAX: u64 = 4_000_000_000;
const MICRO: u64 = 1_000;

/// A channel that was admitted, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Channel {
    cost: u64,
    unit: u64,
    period: u64,
    late: u64,
    bound: u64,
}

fn random_model(rng: &mut SmallRng) -> StageModel {
    let blocking = if rng.random_bool(0.5) {
        Blocking::LargestUnit { best_effort: Nanos(rng.random_range(0..600) * MICRO) }
    } else {
        Blocking::Pipeline(Nanos(rng.random_range(0..1_000) * MICRO))
    };
    let interference = if rng.random_bool(0.5) {
        Interference::default()
    } else {
        Interference {
            sigma: Nanos(rng.random_range(0..500) * MICRO),
            rho: Ppm(rng.random_range(0..100_000)),
        }
    };
    StageModel { blocking, interference, utilisation_limit: Ppm(rng.random_range(700_000..=999_000)) }
}

/// Release latencies up to nine tenths of the period: half of them zero, a quarter small.
fn random_demand(rng: &mut SmallRng) -> Demand {
    let period = Nanos(rng.random_range(2..=60) * 1_000 * MICRO);
    let cost = Nanos(rng.random_range(10 * MICRO..=period.0 / 3));
    let unit_cost_max = Nanos(rng.random_range(10 * MICRO..=1_200 * MICRO)).min(cost);
    let release_latency = Nanos(match rng.random_range(0..4) {
        0 | 1 => 0,
        2 => rng.random_range(0..period.0 / 30),
        _ => rng.random_range(0..period.0 / 10 * 9),
    });
    let urgency = Urgency::of_period(Class::Guaranteed, period);
    Demand { cost, unit_cost_max, period, release_latency, early: Nanos::ZERO, urgency, soft: None }
}

/// Fills a stage under `edf`; half of the channels get more than the least bound.
fn admitted(model: StageModel, rng: &mut SmallRng) -> Vec<Channel> {
    let mut policy = policy_by_name("edf", model).expect("a policy of ours");
    let mut channels = Vec::new();
    for key in 0..CHANNELS_MAX {
        let demand = random_demand(rng);
        let Ok(offer) = policy.offer(&demand, BOUND_MAX) else { continue };
        let wider = offer.bound + Nanos(rng.random_range(0..=demand.period.0));
        let bound = if rng.random_bool(0.5) { wider } else { offer.bound };
        policy.hold(StageKey(key), &demand, bound).expect("what was offered holds, and more");
        let Demand { cost, unit_cost_max, period, release_latency, .. } = demand;
        channels.push(Channel {
            cost: cost.0,
            unit: unit_cost_max.0,
            period: period.0,
            late: release_latency.0,
            bound: bound.0,
        });
    }
    channels
}

/// The cost of all messages that become ready from 0 on and are due by `t`.
fn demand(channels: &[Channel], t: u64) -> u64 {
    let due = |c: &Channel| (t + c.late).checked_sub(c.bound).map_or(0, |since| since / c.period + 1);
    channels.iter().map(|channel| due(channel) * channel.cost).sum()
}

/// The largest unit that is less urgent than what is due by `t` and may have begun before.
fn blocking(channels: &[Channel], model: &StageModel, t: u64) -> u64 {
    let unit = channels.iter().filter(|c| c.bound - c.late > t).map(|c| c.unit).max().unwrap_or(0);
    match model.blocking {
        Blocking::LargestUnit { best_effort } => best_effort.0.max(unit),
        Blocking::Pipeline(span) => span.0,
    }
}

/// An upper bound on busy periods; `None` if it is too long to analyse.
fn busy_period(channels: &[Channel], model: &StageModel) -> Option<u64> {
    let blocking = blocking(channels, model, 0);
    let mut busy = 1;
    loop {
        let work: u64 = channels.iter().map(|c| (busy + c.late).div_ceil(c.period) * c.cost).sum();
        let next = blocking + model.interference.within(Nanos(busy)).0 + work;
        if next <= busy {
            return Some(busy);
        }
        busy = next;
        if busy > BUSY_NS_MAX {
            return None;
        }
    }
}

/// For one random stage that EDF has filled, a time by which the due demand exceeds the time.
pub fn overdue(seed: u64) -> Option<String> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let model = random_model(&mut rng);
    let channels = admitted(model, &mut rng);
    let end = busy_period(&channels, &model)?.max(channels.iter().map(|c| c.bound).max()?);
    let steps = channels.iter().flat_map(|c| ((c.bound - c.late)..=end).step_by(c.period as usize));
    let needed =
        |t| demand(&channels, t) + blocking(&channels, &model, t) + model.interference.within(Nanos(t)).0;
    steps.filter(|&t| needed(t) > t).min().map(|t| {
        format!("edf admits {} channels of which {} ns are due within {t} ns", channels.len(), needed(t))
    })
}
