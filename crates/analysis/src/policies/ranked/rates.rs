//! The order of `rmdp`: low latency first, then the shorter period (RTU 3; Liu and Layland 1973).

use core::ops::Range;

use super::{Ranked, Slot};
use crate::policy::{Class, Demand};
use crate::units::Nanos;

/// What orders two channels: the smaller goes first, and nothing but the channel itself decides.
pub(super) fn rate(demand: &Demand) -> (Class, Nanos) {
    (demand.class, demand.period)
}

impl Ranked {
    /// The entries of one class and period.
    pub(super) fn at_rate(&self, wanted: (Class, Nanos)) -> Range<usize> {
        let start = self.entries.partition_point(|entry| rate(&entry.demand) < wanted);
        start..self.entries.partition_point(|entry| rate(&entry.demand) <= wanted)
    }

    /// The only place that a channel can have: behind those of its rate, if everybody from there on bears it.
    pub(super) fn slot_at_rate(&self, demand: &Demand, tolerated_from: usize) -> Option<Slot> {
        let peers = self.at_rate(rate(demand));
        (peers.start >= tolerated_from).then_some(Slot { end: peers.end, urgent: peers.start })
    }
}
