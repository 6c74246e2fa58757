//! The order of `rmdp`: low latency first, then the shorter period (RTU 3; Liu and Layland 1973).

use alloc::vec::Vec;
use core::ops::Range;

use super::{BOUND_MAX, Ranked, Slot};
use crate::policy::{Demand, Urgency};
use crate::stage::StageModel;
use crate::units::Nanos;

impl Ranked {
    /// The entries of one urgency.
    pub(super) fn at_rate(&self, wanted: Urgency) -> Range<usize> {
        let start = self.entries.partition_point(|entry| entry.demand.urgency < wanted);
        start..self.entries.partition_point(|entry| entry.demand.urgency <= wanted)
    }

    /// The only place that a channel can have: behind those of its rate, if all channels from there on
    /// tolerate it.
    pub(super) fn slot_at_rate(&self, demand: &Demand, tolerated_from: usize) -> Option<Slot> {
        let peers = self.at_rate(demand.urgency);
        (peers.start >= tolerated_from).then_some(Slot { end: peers.end, urgent: peers.start })
    }
}

/// Response times of `demands` under `rmdp`, from the effective arrival, all together on one stage; `None` if
/// one is unbounded.
pub fn response_times(model: StageModel, demands: &[Demand]) -> Vec<Option<Nanos>> {
    let policy = Ranked::rmdp(model);
    let response = |index: usize| {
        let own = &demands[index];
        let mut ahead = policy.kinds.clone();
        let mut unit = Nanos::ZERO;
        for (_, other) in demands.iter().enumerate().filter(|&(other, _)| other != index) {
            if other.urgency <= own.urgency {
                let kind = ahead.kind(&policy.traffic(other));
                ahead.add(kind);
            } else {
                unit = unit.max(other.unit_cost_max);
            }
        }
        policy.place(own, &ahead, model.blocking.by(unit)).response(BOUND_MAX)
    };
    (0..demands.len()).map(response).collect()
}
