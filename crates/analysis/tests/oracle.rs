//! Response times against the crate `response-time-analysis`, whose theorems are verified in Coq.
//!
//! Time there is in ticks and blocking is C - 1, so `Convention::Ticks` must agree exactly; the text-book
//! convention must never be below it, and must equal it without blocking.

use punctual_analysis::Nanos;
use punctual_analysis::rta::{Convention, Preemption, Task, edf, fixed_priority};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use response_time_analysis as oracle;

use oracle::arrival::Sporadic;
use oracle::demand::RBF;
use oracle::time::{Duration, Service};
use oracle::wcet::Scalar;

/// Random sets of one model and one policy; six of these make a run.
const SETS: u64 = 4_000;
/// Beyond 100,000 the oracle's debug build does not check itself by brute force.
const LIMIT: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
enum Model {
    Preemptive,
    Limited,
    NonPreemptive,
}

fn random_task(rng: &mut SmallRng, tasks: u64, model: Model) -> Task {
    let period = rng.random_range(5..=200);
    let cost = rng.random_range(1..=(period * 2 / tasks).max(1));
    let deadline = rng.random_range(cost..=period + period / 2);
    let jitter = if rng.random_bool(0.4) { rng.random_range(0..=period * 3 / 2) } else { 0 };
    let preemption = match model {
        Model::Preemptive => Preemption::Full,
        Model::Limited => Preemption::BetweenUnits(Nanos(rng.random_range(1..=cost))),
        Model::NonPreemptive => Preemption::None,
    };
    Task::new(Nanos(cost), Nanos(period), Nanos(deadline), preemption).with_jitter(Nanos(jitter))
}

fn random_set(seed: u64, model: Model) -> Vec<Task> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let tasks = rng.random_range(2..=6);
    (0..tasks).map(|_| random_task(&mut rng, tasks, model)).collect()
}

fn curve(task: &Task) -> Sporadic {
    Sporadic::new(Duration::from(task.period.0), Duration::from(task.jitter.0))
}
fn wcet(task: &Task) -> Scalar {
    Scalar::new(Service::from(task.cost.0))
}
fn demand(task: &Task) -> RBF<Sporadic, Scalar> {
    RBF::new(curve(task), wcet(task))
}
fn answer(found: oracle::fixed_point::SearchResult) -> Option<Nanos> {
    found.ok().map(|response| Nanos(u64::from(response)))
}

/// Checks a set and its answer, except sets whose busy period is longer than the oracle's limit.
fn check(
    model: Model,
    ours: impl Fn(&[Task], Convention) -> Vec<Option<Nanos>>,
    theirs: impl Fn(&[Task]) -> Vec<Option<Nanos>>,
) {
    let (mut bounded, mut blocked) = (0, 0);
    for seed in 0..SETS {
        let set = random_set(seed, model);
        let ticks = ours(&set, Convention::Ticks);
        assert_eq!(ticks, theirs(&set), "seed {seed} {model:?} {set:#?}");
        for (ticks, book) in ticks.iter().zip(ours(&set, Convention::TextBook)) {
            let (Some(ticks), Some(book)) = (*ticks, book) else { continue };
            assert!(book >= ticks, "seed {seed} {model:?} {set:#?}");
            bounded += 1;
            blocked += u64::from(book > ticks);
        }
    }
    assert!(bounded > SETS, "most sets must have answers: {bounded}");
    let blocks = !matches!(model, Model::Preemptive);
    assert_eq!(blocks, blocked > SETS / 2, "{blocked}");
}

fn lower_segment(set: &[Task], index: usize) -> u64 {
    set[index + 1..].iter().map(|task| task.segment_max.0.saturating_sub(1)).max().unwrap_or(0)
}

fn check_fixed_priority(model: Model) {
    let ours =
        |set: &[Task], convention| fixed_priority::response_times(set, Nanos::ZERO, convention).unwrap();
    let theirs =
        |set: &[Task]| (0..set.len()).map(|index| fixed_priority_by_oracle(set, index, model)).collect();
    check(model, ours, theirs);
}

fn fixed_priority_by_oracle(set: &[Task], index: usize, model: Model) -> Option<Nanos> {
    use oracle::fixed_priority as fp;
    let own = &set[index];
    let higher: Vec<_> = set[..index].iter().map(demand).collect();
    let (limit, arrivals) = (Duration::from(LIMIT), curve(own));
    let blocking_bound = Service::from(lower_segment(set, index));
    answer(match model {
        Model::Preemptive => fp::fully_preemptive::dedicated_uniproc_rta(&demand(own), &higher, limit),
        Model::Limited => {
            let last_np_segment = Service::from(own.segment_last.0);
            let own = fp::limited_preemptive::TaskUnderAnalysis {
                wcet: wcet(own),
                arrivals: &arrivals,
                last_np_segment,
                blocking_bound,
            };
            fp::limited_preemptive::dedicated_uniproc_rta(&own, &higher, limit)
        }
        Model::NonPreemptive => {
            let own = fp::fully_nonpreemptive::TaskUnderAnalysis {
                wcet: wcet(own),
                arrivals: &arrivals,
                blocking_bound,
            };
            fp::fully_nonpreemptive::dedicated_uniproc_rta(&own, &higher, limit)
        }
    })
}

fn check_edf(model: Model) {
    let ours = |set: &[Task], convention| edf::response_times(set, Nanos::ZERO, convention).unwrap();
    let theirs = |set: &[Task]| (0..set.len()).map(|index| edf_by_oracle(set, index, model)).collect();
    check(model, ours, theirs);
}

fn edf_by_oracle(set: &[Task], index: usize, model: Model) -> Option<Nanos> {
    use oracle::edf::{fully_nonpreemptive as np, fully_preemptive as p, limited_preemptive as lp};
    let own = &set[index];
    let limit = Duration::from(LIMIT);
    let curves: Vec<_> = set.iter().map(curve).collect();
    let demands: Vec<_> = set.iter().map(demand).collect();
    let others = || (0..set.len()).filter(|&other| other != index);
    let due = |task: usize| Duration::from(set[task].deadline.0);
    answer(match model {
        Model::Preemptive => {
            let task = |task: usize| p::TaskUnderAnalysis { rbf: &demands[task], deadline: due(task) };
            p::dedicated_uniproc_rta(&task(index), &others().map(task).collect::<Vec<_>>(), limit)
        }
        Model::Limited => {
            let other = |task: usize| lp::InterferingTask {
                rbf: &demands[task],
                deadline: due(task),
                max_np_segment: Service::from(set[task].segment_max.0),
            };
            let own = lp::TaskUnderAnalysis {
                wcet: wcet(own),
                arrivals: &curves[index],
                deadline: due(index),
                last_np_segment: Service::from(own.segment_last.0),
            };
            lp::dedicated_uniproc_rta(&own, &others().map(other).collect::<Vec<_>>(), limit)
        }
        Model::NonPreemptive => {
            let task = |task: usize| np::Task {
                wcet: wcet(&set[task]),
                arrivals: &curves[task],
                deadline: due(task),
            };
            np::dedicated_uniproc_rta(&task(index), &others().map(task).collect::<Vec<_>>(), limit)
        }
    })
}

#[test]
fn fixed_priority_preemptive() {
    check_fixed_priority(Model::Preemptive);
}
#[test]
fn fixed_priority_limited_preemptive() {
    check_fixed_priority(Model::Limited);
}
#[test]
fn fixed_priority_non_preemptive() {
    check_fixed_priority(Model::NonPreemptive);
}
#[test]
fn edf_preemptive() {
    check_edf(Model::Preemptive);
}
#[test]
fn edf_limited_preemptive() {
    check_edf(Model::Limited);
}
#[test]
fn edf_non_preemptive() {
    check_edf(Model::NonPreemptive);
}

/// The offer of `rmdp`, in any order of admission: the oracle's response time with all channels of the same
/// or a more urgent rate ahead, and the largest unit of the others as blocking.
#[test]
fn rmdp_offers_the_response_time_by_class_and_period() {
    use oracle::fixed_priority::limited_preemptive as lp;
    use punctual_analysis::{
        Blocking, Class, Demand, Interference, Ppm, StageKey, StageModel, Urgency, policy_by_name,
    };
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort: Nanos(1) },
        interference: Interference::default(),
        utilisation_limit: Ppm::ONE,
    };
    let (mut offered, mut shared) = (0, 0);
    for seed in 0..SETS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut policy = policy_by_name("rmdp", model).unwrap();
        let mut held: Vec<Demand> = Vec::new();
        for key in 0..8 {
            let period = Nanos(rng.random_range(1..=12) * 20);
            let cost = Nanos(rng.random_range(1..=period.0 / 6));
            let unit_cost_max = Nanos(rng.random_range(1..=cost.0));
            let class = if rng.random_bool(0.25) { Class::LowLatency } else { Class::Guaranteed };
            let (release_latency, early) = (Nanos::ZERO, Nanos::ZERO);
            let urgency = Urgency::of_period(class, period);
            let demand = Demand { cost, unit_cost_max, period, release_latency, early, urgency, soft: None };
            let Ok(offer) = policy.offer(&demand, Nanos(LIMIT)) else { continue };
            let rate = |demand: &Demand| demand.urgency;
            let curve = |demand: &Demand| Sporadic::new(Duration::from(demand.period.0), Duration::from(0));
            let ahead: Vec<_> = (held.iter().filter(|other| rate(other) <= rate(&demand)))
                .map(|other| RBF::new(curve(other), Scalar::new(Service::from(other.cost.0))))
                .collect();
            let behind = held.iter().filter(|other| rate(other) > rate(&demand));
            let blocking = behind.map(|other| other.unit_cost_max).max().unwrap_or_default().max(Nanos(1));
            let own = lp::TaskUnderAnalysis {
                wcet: Scalar::new(Service::from(cost.0)),
                arrivals: &curve(&demand),
                last_np_segment: Service::from(if unit_cost_max == cost { cost.0 } else { 1 }),
                blocking_bound: Service::from(blocking.0),
            };
            let theirs = answer(lp::dedicated_uniproc_rta(&own, &ahead, Duration::from(LIMIT)));
            assert_eq!(Some(offer.bound), theirs, "seed {seed}, {demand:?} beside {held:?}");
            offered += 1;
            shared += u64::from(held.iter().any(|other| rate(other) == rate(&demand)));
            // Wide enough to tolerate the following channels.
            policy.hold(StageKey(key), &demand, Nanos(LIMIT)).unwrap();
            held.push(demand);
        }
    }
    assert!(offered > 4 * SETS && shared > SETS / 4, "{offered} offers, {shared} of a shared rate");
}
