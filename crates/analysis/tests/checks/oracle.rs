//! Reservations of a policy, against the response times of the crate `response-time-analysis` (verified in
//! Coq).
//!
//! Sets are small, filled until utilisation or bounds refuse. Every bound that is held must be at least the
//! oracle's response time at the channel's place in the order, blocking counted in full (as in textbooks).

use punctual_analysis::{
    AdmissionPolicy, Blocking, Class, Demand, Interference, Nanos, Ppm, StageKey, StageModel, Urgency,
    policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use response_time_analysis as oracle;

use oracle::arrival::Sporadic;
use oracle::demand::RBF;
use oracle::time::{Duration, Service};
use oracle::wcet::Scalar;

/// Beyond it the oracle gives up.
const LIMIT: u64 = 10_000_000;
/// Largest bound that is requested.
const BOUND_MAX: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Channel {
    demand: Demand,
    bound: Nanos,
    /// Where fixed priorities have a place for it.
    rank: Option<usize>,
}

fn random_demand(rng: &mut SmallRng, channels: u64) -> Demand {
    let period = Nanos(rng.random_range(5..=200) * 1_000);
    let cost = Nanos(rng.random_range(1..=(period.0 * 2 / channels).max(1)));
    // Half of the messages are one packet.
    let unit_cost_max = if rng.random_bool(0.5) { cost } else { Nanos(rng.random_range(1..=cost.0)) };
    let class = if rng.random_bool(0.2) { Class::LowLatency } else { Class::Guaranteed };
    let (release_latency, early) = (Nanos::ZERO, Nanos::ZERO);
    let urgency = Urgency::of_period(class, period);
    Demand { cost, unit_cost_max, period, release_latency, early, urgency, soft: None }
}

/// Fills a stage under `policy`; half of the channels get more than the least bound.
fn fill(policy: &mut dyn AdmissionPolicy, rng: &mut SmallRng) -> Vec<Channel> {
    let wanted = rng.random_range(2..=6);
    let mut demands = Vec::new();
    for key in 0..wanted {
        let demand = random_demand(rng, wanted);
        let Ok(offer) = policy.offer(&demand, Nanos(BOUND_MAX)) else { continue };
        let wider = offer.bound + Nanos(rng.random_range(0..=2 * demand.period.0));
        let relaxed = rng.random_bool(0.5) && policy.hold(StageKey(key), &demand, wider).is_ok();
        if relaxed || policy.hold(StageKey(key), &demand, offer.bound).is_ok() {
            demands.push((StageKey(key), demand));
        }
    }
    let channel = |&(key, demand): &(StageKey, Demand)| {
        let bound = policy.bound(key)?;
        Some(Channel { demand, bound, rank: policy.rank(key) })
    };
    demands.iter().filter_map(channel).collect()
}

fn curve(demand: &Demand) -> Sporadic {
    Sporadic::new(Duration::from(demand.period.0), Duration::from(0))
}
fn work(demand: &Demand) -> RBF<Sporadic, Scalar> {
    RBF::new(curve(demand), Scalar::new(Service::from(demand.cost.0)))
}
/// A message of several packets may end in a packet of any size.
fn last_segment(demand: &Demand) -> Service {
    Service::from(if demand.unit_cost_max == demand.cost { demand.cost.0 } else { 1 })
}
fn answer(found: oracle::fixed_point::SearchResult) -> Option<Nanos> {
    found.ok().map(|response| Nanos(u64::from(response)))
}

/// Whether `other` precedes `own` under fixed priorities or may: channels of one place delay each other.
fn is_ahead(policy: &str, other: &Channel, own: &Channel) -> bool {
    match policy {
        "rmdp" => other.demand.urgency <= own.demand.urgency,
        _ => other.rank <= own.rank,
    }
}

fn by_fixed_priority(policy: &str, set: &[Channel], index: usize, best_effort: Nanos) -> Option<Nanos> {
    use oracle::fixed_priority::limited_preemptive as lp;
    let own = &set[index];
    let others = || set.iter().enumerate().filter(|&(other, _)| other != index).map(|(_, other)| other);
    let ahead: Vec<_> =
        others().filter(|other| is_ahead(policy, other, own)).map(|other| work(&other.demand)).collect();
    let behind = others().filter(|other| !is_ahead(policy, other, own));
    let unit = behind.map(|other| other.demand.unit_cost_max).max().unwrap_or_default();
    let task = lp::TaskUnderAnalysis {
        wcet: Scalar::new(Service::from(own.demand.cost.0)),
        arrivals: &curve(&own.demand),
        last_np_segment: last_segment(&own.demand),
        blocking_bound: Service::from(unit.max(best_effort).0),
    };
    answer(lp::dedicated_uniproc_rta(&task, &ahead, Duration::from(LIMIT)))
}

fn by_edf(set: &[Channel], index: usize) -> Option<Nanos> {
    use oracle::edf::limited_preemptive as lp;
    let works: Vec<_> = set.iter().map(|channel| work(&channel.demand)).collect();
    // Segments block by all but a tick.
    let segment = |unit: Nanos| Service::from(unit.0 + 1);
    let others: Vec<_> = (0..set.len())
        .filter(|&other| other != index)
        .map(|other| lp::InterferingTask {
            rbf: &works[other],
            deadline: Duration::from(set[other].bound.0),
            max_np_segment: segment(set[other].demand.unit_cost_max),
        })
        .collect();
    let own = &set[index];
    let task = lp::TaskUnderAnalysis {
        wcet: Scalar::new(Service::from(own.demand.cost.0)),
        arrivals: &curve(&own.demand),
        deadline: Duration::from(own.bound.0),
        last_np_segment: last_segment(&own.demand),
    };
    answer(lp::dedicated_uniproc_rta(&task, &others, Duration::from(LIMIT)))
}

/// A set of the policy of this name: a channel whose bound is below the oracle's response time.
pub fn broken_bound(policy: &str, seed: u64) -> Option<String> {
    let mut rng = SmallRng::seed_from_u64(seed);
    // To the oracle only tasks block under EDF.
    let best_effort = Nanos(if policy == "edf" { 0 } else { rng.random_range(1..=12_000) });
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort },
        interference: Interference::default(),
        utilisation_limit: Ppm::ONE,
    };
    let mut stage = policy_by_name(policy, model).expect("a policy of ours");
    let set = fill(stage.as_mut(), &mut rng);
    (0..set.len()).find_map(|index| {
        let response = match policy {
            "edf" => by_edf(&set, index),
            _ => by_fixed_priority(policy, &set, index, best_effort),
        };
        let Channel { demand, bound, .. } = set[index];
        // If the busy period is too long for it, the oracle has no answer.
        let late = response.filter(|&response| response > bound)?;
        Some(format!(
            "{policy} promises {} of {} every {} within {}, the oracle's response time is {}",
            demand.cost.0, demand.unit_cost_max.0, demand.period.0, bound.0, late.0
        ))
    })
}
