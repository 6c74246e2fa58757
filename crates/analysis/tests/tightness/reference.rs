//! Admission by the verified analyses.

use punctual_analysis::Nanos;
use response_time_analysis as oracle;

use oracle::arrival::Sporadic;
use oracle::demand::RBF;
use oracle::time::{Duration, Service};
use oracle::wcet::Scalar;

use crate::kinds::{Asked, Stage};

/// Longest busy period that is analysed, in ticks.
const LIMIT: u64 = 20_000_000;
/// Longer than any deadline.
const NEVER: u64 = 1 << 40;
/// Interference comes in chunks of this many ticks.
const CHUNK: u64 = 20;

type Demand = RBF<Sporadic, Scalar>;

fn curve(asked: &Asked) -> Sporadic {
    Sporadic::new(Duration::from(asked.demand.period.0), Duration::from(asked.demand.release_latency.0))
}

fn wcet(asked: &Asked) -> Scalar {
    Scalar::new(Service::from(asked.demand.cost.0))
}

/// The last unit of a largest message, which is not preempted.
fn last_unit(asked: &Asked) -> Service {
    let (cost, unit) = (asked.demand.cost.0, asked.demand.unit_cost_max.0);
    Service::from(cost - unit * (cost.div_ceil(unit) - 1))
}

/// Chunks with a jitter that makes them a burst of sigma at first.
fn interference(stage: &Stage) -> Option<Demand> {
    let model = stage.model.interference;
    if model.rho.0 == 0 {
        return None;
    }
    let every = (CHUNK * 1_000_000).div_ceil(u64::from(model.rho.0));
    let jitter = (model.sigma.0 / CHUNK).saturating_sub(1) * every;
    let arrivals = Sporadic::new(Duration::from(every), Duration::from(jitter));
    Some(RBF::new(arrivals, Scalar::new(Service::from(CHUNK))))
}

/// Whether EDF keeps every bound.
pub fn edf(stage: &Stage, held: &[Asked]) -> bool {
    use oracle::edf::limited_preemptive as lp;
    let curves: Vec<_> = held.iter().map(curve).collect();
    let demands: Vec<Demand> = held.iter().map(|asked| RBF::new(curve(asked), wcet(asked))).collect();
    let due = |asked: &Asked| asked.bound.0.saturating_sub(asked.demand.release_latency.0);
    let beside = interference(stage);
    // Best effort, or what is in the adapter: less urgent than anything.
    let blocker =
        RBF::new(Sporadic::new(Duration::from(NEVER), Duration::from(0)), Scalar::new(Service::from(1)));
    let blocking = stage.model.blocking.by(Nanos::ZERO);
    let depends = stage.model.blocking.by(Nanos(u64::MAX >> 1)) != blocking;
    let longest = |asked: &Asked| if depends { asked.demand.unit_cost_max.0 } else { 0 };
    (0..held.len()).all(|index| {
        let own = lp::TaskUnderAnalysis {
            wcet: wcet(&held[index]),
            arrivals: &curves[index],
            deadline: Duration::from(due(&held[index])),
            last_np_segment: last_unit(&held[index]),
        };
        let other = |other: usize| lp::InterferingTask {
            rbf: &demands[other],
            deadline: Duration::from(due(&held[other])),
            max_np_segment: Service::from(longest(&held[other])),
        };
        let mut others: Vec<_> = (0..held.len()).filter(|&other| other != index).map(other).collect();
        others.push(lp::InterferingTask {
            rbf: &blocker,
            deadline: Duration::from(NEVER / 2),
            max_np_segment: Service::from(blocking.0),
        });
        if let Some(rbf) = &beside {
            let (deadline, max_np_segment) = (Duration::from(1), Service::from(0));
            others.push(lp::InterferingTask { rbf, deadline, max_np_segment });
        }
        let response = lp::dedicated_uniproc_rta(&own, &others, Duration::from(LIMIT));
        response.is_ok_and(|response| u64::from(response) <= due(&held[index]))
    })
}

/// Whether some order of fixed priorities keeps every bound: from the lowest place on, any channel that
/// tolerates a place takes it (Audsley 1991). This holds with limited pre-emption too, because blocking
/// depends on the set of channels behind and not on their order.
pub fn best_order(stage: &Stage, held: &[Asked]) -> bool {
    let mut ahead: Vec<usize> = (0..held.len()).collect();
    // The longest bound first: mostly it is the one.
    ahead.sort_by_key(|&index| held[index].bound - held[index].demand.release_latency);
    let mut unit = Nanos::ZERO;
    while !ahead.is_empty() {
        let bears = |&place: &usize| keeps_last(stage, held, &ahead, place, unit);
        let Some(place) = (0..ahead.len()).rev().find(bears) else { return false };
        unit = unit.max(held[ahead.remove(place)].demand.unit_cost_max);
    }
    true
}

/// Whether the channel at `place` keeps its bound behind all others of `ahead`, with units of `unit` behind it.
fn keeps_last(stage: &Stage, held: &[Asked], ahead: &[usize], place: usize, unit: Nanos) -> bool {
    use oracle::fixed_priority::limited_preemptive as lp;
    let own = &held[ahead[place]];
    let mut higher: Vec<Demand> = ahead
        .iter()
        .filter(|&&other| other != ahead[place])
        .map(|&other| RBF::new(curve(&held[other]), wcet(&held[other])))
        .collect();
    higher.extend(interference(stage));
    let arrivals = curve(own);
    let task = lp::TaskUnderAnalysis {
        wcet: wcet(own),
        arrivals: &arrivals,
        last_np_segment: last_unit(own),
        blocking_bound: Service::from(stage.model.blocking.by(unit).0.saturating_sub(1)),
    };
    let due = own.bound.0.saturating_sub(own.demand.release_latency.0);
    let response = lp::dedicated_uniproc_rta(&task, &higher, Duration::from(LIMIT));
    response.is_ok_and(|response| u64::from(response) <= due)
}
