//! What protocol work was seen to cost while it ran, beside what admission assumes: the profile checked online
//! (design 9). A few counters for each path, constant work for each unit, no allocation.

use punctual_analysis::Nanos;
use serde::{Deserialize, Serialize};

use super::api::WorkKind;

/// Steps in which a unit's time is counted, as a share of what is assumed for it.
const STEPS_PER_WHOLE: u64 = 16;
/// Up to four times what is assumed; the last step holds everything beyond.
const STEPS: usize = 4 * STEPS_PER_WHOLE as usize;
/// Overruns of one path that prove nothing.
const OVERRUNS_TOLERATED: u64 = 100;
/// One overrun in so many units of a path is an accident.
const OVERRUN_UNITS: u64 = 100;
/// The window is halved when it holds so many units: what was seen long ago counts less and less.
const WINDOW_UNITS: u32 = 1 << 16;

/// One path.
#[derive(Clone, Copy, Debug)]
struct Path {
    units: u64,
    overruns: u64,
    max: Nanos,
    max_assumed: Nanos,
    /// Units of the window by the share of what is assumed that they took.
    steps: [u32; STEPS],
    window: u32,
}

impl Path {
    const NEW: Self = Self {
        units: 0,
        overruns: 0,
        max: Nanos::ZERO,
        max_assumed: Nanos::ZERO,
        steps: [0; STEPS],
        window: 0,
    };

    fn add(&mut self, took: Nanos, assumed: Nanos) -> bool {
        self.units += 1;
        let step = took.0.saturating_mul(STEPS_PER_WHOLE) / assumed.0.max(1);
        self.steps[usize::try_from(step).unwrap_or(STEPS - 1).min(STEPS - 1)] += 1;
        self.window += 1;
        if self.window >= WINDOW_UNITS {
            self.steps.iter_mut().for_each(|count| *count /= 2);
            self.window = self.steps.iter().sum();
        }
        if took > self.max {
            (self.max, self.max_assumed) = (took, assumed);
        }
        let over = took > assumed;
        self.overruns += u64::from(over);
        over
    }

    fn is_at_risk(&self) -> bool {
        self.overruns > OVERRUNS_TOLERATED && self.overruns.saturating_mul(OVERRUN_UNITS) >= self.units
    }

    /// The share of what is assumed, in percent, that `per_mille` of the window's units did not exceed.
    fn percent(&self, per_mille: u64) -> u32 {
        let wanted = (u64::from(self.window) * per_mille).div_ceil(1_000);
        let mut seen = 0;
        for (step, count) in self.steps.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted && self.window > 0 {
                return ((step as u64 + 1) * 100 / STEPS_PER_WHOLE) as u32;
            }
        }
        0
    }
}

/// All paths.
#[derive(Clone, Debug)]
pub(super) struct WorkRecord {
    paths: [Path; 4],
    wake_late_max: Nanos,
    wakes_late: u64,
    wakes: u64,
}

/// What `status` shows of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRecord {
    /// Which.
    pub kind: WorkKind,
    /// Units of work.
    pub units: u64,
    /// Units that took longer than admission assumes.
    pub overruns: u64,
    /// Half of the latest units took at most so many percent of what is assumed, in steps of 6 %.
    pub p50_percent: u32,
    /// 99 of 100 did; 400 stands for anything beyond.
    pub p99_percent: u32,
    /// The longest unit.
    pub max: Nanos,
    /// What is assumed for that one.
    pub max_assumed: Nanos,
    /// Overruns are no accident any more: guarantees are at risk.
    pub at_risk: bool,
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
}

impl WorkRecord {
    pub const fn new() -> Self {
        Self { paths: [Path::NEW; 4], wake_late_max: Nanos::ZERO, wakes_late: 0, wakes: 0 }
    }

    /// A unit of `kind` took `took` where `assumed` is assumed; says whether that is an overrun. Signalling is
    /// interference and has no record.
    pub fn add(&mut self, kind: WorkKind, took: Nanos, assumed: Nanos) -> bool {
        index_of(kind).is_some_and(|index| self.paths[index].add(took, assumed))
    }

    /// Whether the overruns of a path are no accident.
    pub fn is_at_risk(&self, kind: WorkKind) -> bool {
        index_of(kind).is_some_and(|index| self.paths[index].is_at_risk())
    }

    /// A wake-up by time came `late` after its time.
    pub fn add_wake(&mut self, late: Nanos, release_latency: Nanos) {
        self.wakes += 1;
        self.wakes_late += u64::from(late > release_latency);
        self.wake_late_max = self.wake_late_max.max(late);
    }

    pub fn overruns(&self) -> u64 {
        self.paths.iter().map(|path| path.overruns).sum()
    }

    pub fn wakes(&self) -> WakeRecord {
        WakeRecord { wakes: self.wakes, late: self.wakes_late, late_max: self.wake_late_max }
    }

    /// For `status`.
    pub fn paths(&self) -> impl Iterator<Item = PathRecord> + '_ {
        KINDS.into_iter().zip(&self.paths).map(|(kind, path)| PathRecord {
            kind,
            units: path.units,
            overruns: path.overruns,
            p50_percent: path.percent(500),
            p99_percent: path.percent(990),
            max: path.max,
            max_assumed: path.max_assumed,
            at_risk: path.is_at_risk(),
        })
    }
}

const KINDS: [WorkKind; 4] = [WorkKind::Send, WorkKind::Forward, WorkKind::Receive, WorkKind::BestEffort];

fn index_of(kind: WorkKind) -> Option<usize> {
    KINDS.iter().position(|known| *known == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Nanos = Nanos::from_micros;

    fn of(record: &WorkRecord, kind: WorkKind) -> PathRecord {
        record.paths().find(|path| path.kind == kind).expect("every path has a record")
    }

    #[test]
    fn units_are_counted_by_path_and_share() {
        let mut record = WorkRecord::new();
        for n in 0..1_000 {
            let took = if n < 985 { US(4) } else { US(15) };
            assert_eq!(record.add(WorkKind::Send, took, US(8)), n >= 985);
        }
        record.add(WorkKind::Receive, US(1), US(8));
        assert!(!record.add(WorkKind::Signalling, US(900), US(1)));
        let send = of(&record, WorkKind::Send);
        assert_eq!((send.units, send.overruns, send.max, send.max_assumed), (1_000, 15, US(15), US(8)));
        assert_eq!((send.p50_percent, send.p99_percent), (56, 193));
        assert_eq!(of(&record, WorkKind::Receive).units, 1);
        assert_eq!(record.overruns(), 15);
    }

    #[test]
    fn risk_is_more_than_accidents() {
        let mut record = WorkRecord::new();
        for n in 0..50_000_u64 {
            record.add(WorkKind::Forward, if n % 200 == 0 { US(9) } else { US(2) }, US(8));
        }
        assert!(!record.is_at_risk(WorkKind::Forward), "one in two hundred");
        for _ in 0..1_000 {
            record.add(WorkKind::Forward, US(9), US(8));
        }
        assert!(record.is_at_risk(WorkKind::Forward));
        assert!(!record.is_at_risk(WorkKind::Send), "the other path keeps its time");
    }

    #[test]
    fn absurd_times_land_in_the_last_step_and_old_ones_fade() {
        let mut record = WorkRecord::new();
        record.add(WorkKind::Send, Nanos::MAX, Nanos::ZERO);
        assert_eq!(of(&record, WorkKind::Send).p99_percent, 400);
        for _ in 0..3 * WINDOW_UNITS {
            record.add(WorkKind::Send, US(1), US(16));
        }
        assert_eq!(of(&record, WorkKind::Send).p99_percent, 12);
    }

    #[test]
    fn late_wakes_are_those_beyond_the_release_latency() {
        let mut record = WorkRecord::new();
        record.add_wake(US(150), US(200));
        record.add_wake(US(250), US(200));
        assert_eq!(record.wakes(), WakeRecord { wakes: 2, late: 1, late_max: US(250) });
    }
}
