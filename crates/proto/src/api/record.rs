//! Measured durations of protocol work beside what admission assumes, as `status` shows them.

use punctual_analysis::Nanos;
use serde::{Deserialize, Serialize};

use super::WorkKind;

/// The record that `status` shows of one path of protocol work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRecord {
    /// Which path through the protocol code.
    pub kind: WorkKind,
    /// Units of work that were done.
    pub units: u64,
    /// Units before which the processor was idle, so that its caches were cold.
    pub first: u64,
    /// Units that took longer than admission assumes, in a busy period that had no time left for it.
    pub overruns: u64,
    /// Time that half of the latest units took at most, in percent of what admission assumes, in steps of
    /// 6 %. The first units of busy periods are left out. 0: there were no others.
    pub p50_percent: u32,
    /// The same percentage for 99 of 100 of these units; 400 also means anything above.
    pub p99_percent: u32,
    /// Longest time that a unit took.
    pub max: Nanos,
    /// Time that admission assumes for that longest unit.
    pub max_assumed: Nanos,
    /// True if overruns are too many for accidents, or if half of the units that followed others of the path
    /// take more than is charged: guarantees are at risk.
    pub at_risk: bool,
}

/// Busy periods, beside what admission assumes for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyRecord {
    /// Busy periods that have ended: the processor was idle before and after each.
    pub periods: u64,
    /// Time that half of the latest busy periods took at most beyond their units' costs, in percent of
    /// `allowed`.
    pub p50_percent: u32,
    /// The same percentage for 99 of 100 of these busy periods; 400 also means anything above.
    pub p99_percent: u32,
    /// Longest time that a busy period took beyond its units' costs.
    pub excess_max: Nanos,
    /// The time that admission allows for: cold caches, and the burst of interference.
    pub allowed: Nanos,
}

/// Wake-ups, beside the release latency that admission assumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeRecord {
    /// Wake-ups by time.
    pub wakes: u64,
    /// Wake-ups that came later than the release latency.
    pub late: u64,
    /// How late the latest wake-up came.
    pub late_max: Nanos,
    /// Wake-ups that the next count covers: the latest ones, at most a thousand.
    #[serde(default)]
    pub recent: u32,
    /// Wake-ups among the `recent` ones that came later than the release latency.
    #[serde(default)]
    pub recent_late: u32,
    /// Release latency that admission assumes.
    #[serde(default)]
    pub release_latency: Nanos,
    /// More than one in twenty of the latest wake-ups came late: guarantees are at risk.
    #[serde(default)]
    pub at_risk: bool,
}
