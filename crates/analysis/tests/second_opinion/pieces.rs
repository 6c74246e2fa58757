//! A message that is declared as one unit although its packets are served as they arrive: other work runs
//! between them.

use punctual_analysis::{
    Blocking, Class, Demand, Interference, Nanos, Ppm, StageKey, StageModel, Urgency, policy_by_name,
};

use crate::search::search;
use crate::stage::{Channel, Gate, Order, Stage, TICK_NS};

const STATES_MAX: usize = 10_000;

fn demand(cost_ticks: u64, period_ticks: u64) -> Demand {
    let (cost, period) = (Nanos(cost_ticks * TICK_NS as u64), Nanos(period_ticks * TICK_NS as u64));
    Demand {
        cost,
        unit_cost_max: cost,
        period,
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::of_period(Class::Guaranteed, period),
        soft: None,
    }
}

/// Whether a message of packets of 3 ticks and 1, beside one of a tick every 3, keeps the bound that `rmdp` offers it.
fn keeps_its_bound(asked: Demand) -> bool {
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort: Nanos::ZERO },
        interference: Interference::default(),
        utilisation_limit: Ppm::ONE,
    };
    let stage =
        Stage { order: Order::Rank, gate: Gate::Alone, reaction: 0, best_effort: 0, sigma: 0, rho: 0 };
    let mut policy = policy_by_name("rmdp", model).expect("a policy of ours");
    let wide = Nanos(50 * TICK_NS as u64);
    policy.hold(StageKey(0), &demand(1, 3), wide).expect("an empty stage");
    let bound = policy.offer(&asked, wide).expect("there is room").bound;
    let often = Channel {
        period: 3,
        late: 0,
        early: 0,
        units: vec![1],
        apart: false,
        bound_ns: wide.0 as i64,
        rank: 0,
    };
    let pieces = Channel {
        period: 20,
        units: vec![3, 1],
        apart: true,
        bound_ns: bound.0 as i64,
        rank: 1,
        ..often.clone()
    };
    let found = search(&stage, &[often, pieces], STATES_MAX);
    assert!(found.complete || found.late.is_some());
    found.late.is_none()
}

#[test]
fn a_message_that_is_served_in_pieces_is_admitted_as_such() {
    assert!(keeps_its_bound(demand(4, 20).in_pieces()));
    assert!(!keeps_its_bound(demand(4, 20)), "the search sees the difference");
}
