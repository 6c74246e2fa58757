//! What protocol work was seen to take beside what admission assumes, as `status` shows it.

use punctual_analysis::Nanos;
use serde::{Deserialize, Serialize};

use super::WorkKind;

/// What `status` shows of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRecord {
    /// Which.
    pub kind: WorkKind,
    /// Units of work.
    pub units: u64,
    /// Those of them before which the processor was idle: cold ones.
    pub first: u64,
    /// Units that took longer than admission assumes, in a busy period that had nothing left for it.
    pub overruns: u64,
    /// Half of the latest units that were not the first took at most so many percent of what is assumed, in steps of 6 %;
    /// 0: there were none.
    pub p50_percent: u32,
    /// 99 of 100 did; 400 stands for anything beyond.
    pub p99_percent: u32,
    /// The longest unit.
    pub max: Nanos,
    /// What is assumed for that one.
    pub max_assumed: Nanos,
    /// Overruns are no accident any more, or half of the units that followed others of the path take more than is
    /// charged: guarantees are at risk.
    pub at_risk: bool,
}

/// Busy periods beside what admission assumes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyRecord {
    /// Busy periods that have ended: the processor was idle before and after each.
    pub periods: u64,
    /// What half of the latest ones took at most beyond their units' costs, in percent of `allowed`.
    pub p50_percent: u32,
    /// What 99 of 100 did; 400 stands for anything beyond.
    pub p99_percent: u32,
    /// The most that one took.
    pub excess_max: Nanos,
    /// What admission allows for: cold caches, and the burst of interference.
    pub allowed: Nanos,
}

/// Wake-ups beside the release latency that admission assumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeRecord {
    /// Wake-ups by time.
    pub wakes: u64,
    /// Those that came later than the release latency.
    pub late: u64,
    /// The latest.
    pub late_max: Nanos,
    /// So many are the latest of them, a thousand at most.
    #[serde(default)]
    pub recent: u32,
    /// Those of them that came later than the release latency.
    #[serde(default)]
    pub recent_late: u32,
    /// What admission counts with.
    #[serde(default)]
    pub release_latency: Nanos,
    /// More than one in twenty of the latest came late: guarantees are at risk.
    #[serde(default)]
    pub at_risk: bool,
}
