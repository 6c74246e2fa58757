//! Measured costs of protocol work at run time, beside what admission assumes: an online check of the profile
//! (ADR 0013). A few counters for each path, constant work for each unit, no allocation.
//!
//! A unit's own time is no evidence: the first units after an idle time find cold caches, which admission
//! charges once per busy period ([`CpuCosts::cold_start`]). The guarantee needs that in no part of a busy
//! period the units together take more than their charges, the cold start, and the burst of interference. So
//! the record follows the sum of the time beyond the units' costs; a unit overruns if it takes that sum
//! beyond the limit (the cumulative sum of Page 1954; ADR 0024).
//!
//! [`CpuCosts::cold_start`]: crate::config::CpuCosts::cold_start

use punctual_analysis::Nanos;

use super::overrun_tolerance::OverrunTolerance;
use crate::api::{BusyRecord, PathRecord, WakeRecord, WorkKind};

/// Steps in which a unit's time is counted, as a share of what is assumed for it.
const STEPS_PER_WHOLE: u64 = 16;
/// Up to four times what is assumed; the last step holds everything beyond.
const STEPS: usize = 4 * STEPS_PER_WHOLE as usize;
/// Overruns of one path that are tolerated in any case.
const OVERRUNS_TOLERATED: u64 = 100;
/// An overrun is an accident if it happens to at most one in this many units of a path. Interrupts and the
/// platform cause such overruns: a halted CPU takes some 100 us longer for its first units in 1 of 30 to 150
/// of them. If a cost is too low, at least every second unit overruns.
const OVERRUN_UNITS: u64 = 20;
/// Warm units of a path after which half of them are evidence of its cost.
const UNITS_TELLING: u32 = 1_000;
/// The window is halved when it holds this many units, so that old units count less and less.
const WINDOW_UNITS: u32 = 1 << 16;

/// Half of the latest wake-ups are dropped when there are this many.
const WINDOW_WAKES: u32 = 1_024;
/// Fewest wake-ups that are evidence.
const WAKES_TELLING: u32 = 20;
/// A late wake-up is an accident of interrupts and the platform if it happens to at most one in this many
/// wake-ups.
const WAKES_PER_LATE: u32 = 20;

/// Histogram of times relative to the assumed time.
#[derive(Clone, Copy, Debug)]
struct Shares {
    steps: [u32; STEPS],
    window: u32,
}

impl Shares {
    const NEW: Self = Self { steps: [0; STEPS], window: 0 };

    fn add(&mut self, took: Nanos, assumed: Nanos) {
        let step = took.0.saturating_mul(STEPS_PER_WHOLE) / assumed.0.max(1);
        self.steps[step.min(STEPS as u64 - 1) as usize] += 1;
        self.window += 1;
        if self.window >= WINDOW_UNITS {
            self.steps.iter_mut().for_each(|count| *count /= 2);
            self.window = self.steps.iter().sum();
        }
    }

    /// The relative time, in percent, that `per_mille` of the window did not exceed.
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

/// Units that followed another unit of their path in a busy period, which has fetched their code and data.
#[derive(Clone, Copy, Debug)]
struct Warm {
    units: u32,
    /// Warm units that took more than the assumed time.
    costly: u32,
}

impl Warm {
    const NEW: Self = Self { units: 0, costly: 0 };

    fn add(&mut self, is_costly: bool) {
        self.units += 1;
        self.costly += u32::from(is_costly);
        if self.units >= WINDOW_UNITS {
            (self.units, self.costly) = (self.units / 2, self.costly / 2);
        }
    }

    /// Whether half of them took more than the assumed time, and they are many.
    const fn costs_too_much(&self) -> bool {
        self.units >= UNITS_TELLING && self.costly >= self.units.div_ceil(2)
    }
}

/// The record of one path of protocol work.
#[derive(Clone, Copy, Debug)]
struct Path {
    units: u64,
    first: u64,
    overruns: u64,
    max: Nanos,
    max_assumed: Nanos,
    /// Relative times of units that followed others in a busy period.
    shares: Shares,
    warm: Warm,
    /// Recent overruns.
    accidents: OverrunTolerance,
}

impl Path {
    const NEW: Self = Self {
        units: 0,
        first: 0,
        overruns: 0,
        max: Nanos::ZERO,
        max_assumed: Nanos::ZERO,
        shares: Shares::NEW,
        warm: Warm::NEW,
        accidents: OverrunTolerance::NEW,
    };

    /// `allowed`: time that busy periods may take beyond their units' costs; `elapsed`: the record's time.
    fn add(&mut self, (took, assumed): (Nanos, Nanos), judged: UnitVerdict, allowed: Nanos, elapsed: Nanos) {
        self.units += 1;
        self.first += u64::from(judged.is_first);
        self.overruns += u64::from(judged.is_overrun);
        if judged.is_overrun {
            self.accidents.add(judged.beyond, allowed, elapsed);
        }
        if took > self.max {
            (self.max, self.max_assumed) = (took, assumed);
        }
        if !judged.is_first {
            self.shares.add(took, assumed);
        }
        if judged.is_warm {
            self.warm.add(took > assumed);
        }
    }

    /// Whether guarantees are at risk. Either the overruns are too many for accidents, by their share of the
    /// units or by their recent time, first units included. Or the units cost more than is charged, and none
    /// was late only because the busy periods were short: admission would continue to reserve time that does
    /// not exist.
    fn is_at_risk(&self, elapsed: Nanos) -> bool {
        let overruns = self.overruns.saturating_mul(OVERRUN_UNITS);
        self.overruns > OVERRUNS_TOLERATED && overruns >= self.units
            || self.accidents.are_too_many(elapsed)
            || self.warm.costs_too_much()
    }
}

/// Verdict on a unit within its busy period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnitVerdict {
    /// True if nothing ran before the unit.
    is_first: bool,
    /// True if a unit of its path ran before it.
    is_warm: bool,
    /// True if the busy period has taken more than admission assumes with this unit.
    is_overrun: bool,
    /// Time by which the busy period has taken more, if it has.
    beyond: Nanos,
}

/// The present busy period.
#[derive(Clone, Copy, Debug)]
struct BusyPeriod {
    /// Time that its units have taken beyond their costs, since it began or since the excess was zero.
    excess: Nanos,
    /// The largest excess.
    excess_max: Nanos,
    /// True if nothing has run since the processor was idle.
    begins: bool,
    /// For each path, whether a unit of it has run in the busy period.
    ran: [bool; KINDS.len()],
}

impl BusyPeriod {
    /// `allowed`: time that it may take beyond its units' costs.
    fn judge(&mut self, index: usize, took: Nanos, assumed: Nanos, allowed: Nanos) -> UnitVerdict {
        self.excess = match KINDS[index] {
            // Best effort runs only if no guaranteed work waits, so for that work it is idle time; but its
            // last unit may block guaranteed work.
            WorkKind::BestEffort => (self.excess - took).max(took - assumed),
            _ => (self.excess + took) - assumed,
        };
        let excess = self.excess;
        let is_overrun = took > assumed && excess > allowed;
        self.excess_max = self.excess_max.max(excess);
        // The excess of an accident (a hole, an interrupt) is counted once and then dropped, so that later
        // units are not charged for it.
        self.excess = excess.min(allowed);
        let is_first = core::mem::take(&mut self.begins);
        let is_warm = core::mem::replace(&mut self.ran[index], true);
        UnitVerdict { is_first, is_warm, is_overrun, beyond: excess - allowed }
    }

    /// Notes that the processor was idle for `span`. Work that was delayed by an overrun is delayed by that
    /// much less. (Any idle time ends a busy period. The record warns of a processor that is hardly idle
    /// before it has no idle time left.)
    ///
    /// Returns the longest time that the busy period which ends here took beyond its units' costs.
    fn idle(&mut self, span: Nanos) -> Option<Nanos> {
        self.excess = self.excess - span;
        if self.begins || span == Nanos::ZERO {
            return None;
        }
        self.begins = true;
        self.ran = [false; KINDS.len()];
        Some(core::mem::take(&mut self.excess_max))
    }
}

/// Records of all paths.
#[derive(Clone, Debug)]
pub(super) struct WorkRecord {
    paths: [Path; 4],
    busy: BusyPeriod,
    /// Time of recorded work and idle spans: this record's time.
    elapsed: Nanos,
    /// Busy periods by their largest excess beyond their units' costs.
    periods: Shares,
    periods_count: u64,
    excess_max: Nanos,
    wake_late_max: Nanos,
    wakes_late: u64,
    wakes: u64,
    wakes_recent: Recent,
}

/// The latest wake-ups, and the late ones among them.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    wakes: u32,
    late: u32,
}

impl Recent {
    fn add(&mut self, late: bool) {
        self.wakes += 1;
        self.late += u32::from(late);
        if self.wakes >= WINDOW_WAKES {
            self.wakes /= 2;
            self.late /= 2;
        }
    }

    const fn is_at_risk(self) -> bool {
        self.wakes >= WAKES_TELLING && self.late * WAKES_PER_LATE > self.wakes
    }
}

impl WorkRecord {
    pub const fn new() -> Self {
        Self {
            paths: [Path::NEW; KINDS.len()],
            busy: BusyPeriod {
                excess: Nanos::ZERO,
                excess_max: Nanos::ZERO,
                begins: true,
                ran: [false; KINDS.len()],
            },
            elapsed: Nanos::ZERO,
            periods: Shares::NEW,
            periods_count: 0,
            excess_max: Nanos::ZERO,
            wake_late_max: Nanos::ZERO,
            wakes_late: 0,
            wakes: 0,
            wakes_recent: Recent { wakes: 0, late: 0 },
        }
    }

    /// Records that a unit of `kind` took `took`, where `assumed` is assumed, and `allowed` more for a busy
    /// period. Returns whether it is an overrun, or one of many that cost too much. Signalling is
    /// interference and has no record.
    pub fn add(&mut self, kind: WorkKind, took: Nanos, assumed: Nanos, allowed: Nanos) -> bool {
        self.elapsed += took;
        let Some(index) = index_of(kind) else { return false };
        let judged = self.busy.judge(index, took, assumed, allowed);
        self.paths[index].add((took, assumed), judged, allowed, self.elapsed);
        judged.is_overrun || took > assumed && self.paths[index].warm.costs_too_much()
    }

    /// Notes that the processor was idle for `span`; `allowed` is the time that busy periods may take beyond
    /// their units' costs.
    pub fn add_idle(&mut self, span: Nanos, allowed: Nanos) {
        self.elapsed += span;
        let Some(excess) = self.busy.idle(span) else { return };
        self.periods.add(excess, allowed);
        self.periods_count += 1;
        self.excess_max = self.excess_max.max(excess);
    }

    /// Whether a path's units take more than admission assumes, too often for accidents.
    pub fn is_at_risk(&self, kind: WorkKind) -> bool {
        index_of(kind).is_some_and(|index| self.paths[index].is_at_risk(self.elapsed))
    }

    /// Records a wake-up by time that was `late`.
    pub fn add_wake(&mut self, late: Nanos, release_latency: Nanos) {
        self.wakes += 1;
        self.wakes_late += u64::from(late > release_latency);
        self.wakes_recent.add(late > release_latency);
        self.wake_late_max = self.wake_late_max.max(late);
    }

    pub fn overruns(&self) -> u64 {
        self.paths.iter().map(|path| path.overruns).sum()
    }

    /// `release_latency`: the one that admission assumes.
    pub fn wakes(&self, release_latency: Nanos) -> WakeRecord {
        let Recent { wakes: recent, late: recent_late } = self.wakes_recent;
        WakeRecord {
            wakes: self.wakes,
            late: self.wakes_late,
            late_max: self.wake_late_max,
            recent,
            recent_late,
            release_latency,
            at_risk: self.wakes_recent.is_at_risk(),
        }
    }

    /// `allowed`: time that a busy period may take beside its units' costs.
    pub fn busy(&self, allowed: Nanos) -> BusyRecord {
        BusyRecord {
            periods: self.periods_count,
            p50_percent: self.periods.percent(500),
            p99_percent: self.periods.percent(990),
            excess_max: self.excess_max,
            allowed,
        }
    }

    /// Records of all paths, for `status`.
    pub fn paths(&self) -> impl Iterator<Item = PathRecord> + '_ {
        KINDS.into_iter().zip(&self.paths).map(|(kind, path)| PathRecord {
            kind,
            units: path.units,
            first: path.first,
            overruns: path.overruns,
            p50_percent: path.shares.percent(500),
            p99_percent: path.shares.percent(990),
            max: path.max,
            max_assumed: path.max_assumed,
            at_risk: path.is_at_risk(self.elapsed),
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
    const COLD: Nanos = Nanos::from_micros(40);
    const IDLE: Nanos = Nanos::from_millis(40);

    fn of(record: &WorkRecord, kind: WorkKind) -> PathRecord {
        record.paths().find(|path| path.kind == kind).expect("every path has a record")
    }

    /// `count` units of `took` where 8 us are assumed, `idle` before each.
    fn run(record: &mut WorkRecord, kind: WorkKind, count: u64, took: Nanos, idle: Nanos) -> u64 {
        (0..count)
            .filter(|_| {
                record.add_idle(idle, COLD);
                record.add(kind, took, US(8), COLD)
            })
            .count() as u64
    }

    #[test]
    fn units_that_follow_others_are_counted_by_path_and_share() {
        let mut record = WorkRecord::new();
        record.add_idle(IDLE, COLD);
        record.add(WorkKind::Receive, US(30), US(8), COLD);
        for n in 0..1_000 {
            record.add(WorkKind::Send, if n < 985 { US(4) } else { US(15) }, US(8), COLD);
        }
        assert!(!record.add(WorkKind::Signalling, US(900), US(1), COLD));
        let send = of(&record, WorkKind::Send);
        assert_eq!((send.units, send.first, send.max, send.max_assumed), (1_000, 0, US(15), US(8)));
        assert_eq!((send.p50_percent, send.p99_percent), (56, 193));
        let receive = of(&record, WorkKind::Receive);
        assert_eq!((receive.units, receive.first, receive.p50_percent), (1, 1, 0));
        // Of equal longest ones the first is reported.
        record.add(WorkKind::Send, US(15), US(9), COLD);
        let send = of(&record, WorkKind::Send);
        assert_eq!((send.units, send.max, send.max_assumed), (1_001, US(15), US(8)));
    }

    /// A video stream: each of its units finds cold caches.
    #[test]
    fn cold_units_of_idle_processors_are_no_risk() {
        let mut record = WorkRecord::new();
        assert_eq!(run(&mut record, WorkKind::Send, 50_000, US(32), IDLE), 0);
        assert!(!record.is_at_risk(WorkKind::Send));
        record.add_idle(IDLE, COLD);
        let busy = record.busy(COLD);
        assert_eq!((busy.periods, busy.excess_max, busy.allowed), (50_000, US(24), COLD));
        assert_eq!((busy.p50_percent, busy.p99_percent), (62, 62), "24 of 40 us");
    }

    #[test]
    fn cold_units_beyond_what_is_charged_for_them_are_a_risk() {
        let mut record = WorkRecord::new();
        assert_eq!(run(&mut record, WorkKind::Send, 1_000, US(49), IDLE), 1_000);
        assert!(record.is_at_risk(WorkKind::Send));
    }

    /// Units that exceed their cost when they are cold are no risk while they follow one another.
    #[test]
    fn units_that_follow_others_may_take_their_costs_and_one_cold_start() {
        let mut record = WorkRecord::new();
        // The excess of 5 units of 8 us each fits into the cold start; all others overrun.
        assert_eq!(run(&mut record, WorkKind::Forward, 1_000, US(16), Nanos::ZERO), 995);
        assert!(record.is_at_risk(WorkKind::Forward));
        assert!(!record.is_at_risk(WorkKind::Send), "the other path keeps its time");
    }

    /// At twice the cost the record warns before the processor has no idle time left.
    #[test]
    fn overruns_that_idle_time_does_not_make_up_for_are_a_risk() {
        let mut record = WorkRecord::new();
        assert_eq!(run(&mut record, WorkKind::Receive, 10_000, US(16), US(9)), 0);
        assert!(run(&mut record, WorkKind::Receive, 10_000, US(16), US(7)) > 9_000);
        assert!(record.is_at_risk(WorkKind::Receive));
    }

    /// Twenty channels, each unit at twice its cost, in busy periods of a few units: the excess never exceeds
    /// the cold start, although half of the reserved time does not exist.
    #[test]
    fn units_that_always_cost_too_much_are_a_risk_however_short_their_busy_periods() {
        let mut record = WorkRecord::new();
        let periods = |record: &mut WorkRecord, count: u32, took: Nanos| {
            for _ in 0..count {
                record.add_idle(IDLE, COLD);
                // The other path's first unit finds cold caches and is no evidence.
                record.add(WorkKind::Send, US(12), US(8), COLD);
                for _ in 0..4 {
                    record.add(WorkKind::Receive, took, US(8), COLD);
                }
            }
        };
        periods(&mut record, 333, US(16));
        assert!(!record.is_at_risk(WorkKind::Receive), "999 warm units prove nothing");
        periods(&mut record, 1, US(16));
        let path = of(&record, WorkKind::Receive);
        assert_eq!((path.overruns, path.at_risk), (0, true));
        assert!(record.add(WorkKind::Receive, US(9), US(8), COLD), "the channel is told");
        // Costs are as charged: the older units are dropped.
        periods(&mut record, 40_000, US(8));
        assert!(!record.is_at_risk(WorkKind::Receive) && !record.is_at_risk(WorkKind::Send));
    }

    #[test]
    fn risk_is_more_than_accidents() {
        let mut record = WorkRecord::new();
        for n in 0..50_000_u64 {
            let took = if n % 200 == 0 { Nanos::from_millis(9) } else { US(2) };
            record.add_idle(Nanos::from_millis(15), COLD);
            record.add(WorkKind::Forward, took, US(8), COLD);
        }
        assert_eq!(of(&record, WorkKind::Forward).overruns, 250, "each once, nobody else is to blame");
        assert!(!record.is_at_risk(WorkKind::Forward), "one in two hundred, less than one in twenty");
    }

    /// Each unit is the first of its busy period, and few of them overrun: their number and duration in time
    /// are the evidence. A forwarder of 1,000 packets a second whose CPU other programs use.
    #[test]
    fn first_units_that_overrun_again_and_again_are_a_risk() {
        let mut record = WorkRecord::new();
        for n in 0..60_000_u64 {
            // 1,148 overruns, 0.1 to 4.1 ms long.
            let took = if n % 52 == 0 && n / 52 < 1_148 { US(100 + n / 52 * 37 % 4_001) } else { US(4) };
            record.add_idle(Nanos::from_millis(1) - took, COLD);
            record.add(WorkKind::Forward, took, US(5), COLD);
        }
        let path = of(&record, WorkKind::Forward);
        assert_eq!((path.first > 50_000, path.overruns), (true, 1_148));
        assert!(path.overruns * OVERRUN_UNITS < path.units, "far from one in twenty");
        assert!(path.at_risk && !of(&record, WorkKind::Send).at_risk);
        record.add_idle(Nanos::from_secs(60), COLD);
        assert!(!of(&record, WorkKind::Forward).at_risk, "a minute later it is over");
    }

    /// An idle shared machine: each first unit finds cold caches, 1 in 30 comes 100 us late, and three times in ten seconds
    /// the hypervisor takes the CPU away for 4 to 13 ms while a unit runs.
    #[test]
    fn an_idle_shared_machine_is_no_risk() {
        let mut record = WorkRecord::new();
        for n in 0..600_000_u64 {
            let took = match n {
                n if n % 3_333 == 0 => Nanos::from_millis(4 + n / 3_333 % 10),
                n if n % 30 == 0 => US(130),
                _ => US(30),
            };
            record.add_idle(Nanos::from_millis(1) - took, COLD);
            record.add(WorkKind::Forward, took, US(5), COLD);
            assert!(!record.is_at_risk(WorkKind::Forward), "after {n} ms");
        }
        assert!(of(&record, WorkKind::Forward).overruns > 20_000);
    }

    /// A unit of best effort may block once; later units do not inherit the excess of other best-effort
    /// units.
    #[test]
    fn best_effort_is_idle_time_for_all_others() {
        let mut record = WorkRecord::new();
        for _ in 0..1_000 {
            assert!(!record.add(WorkKind::BestEffort, US(20), US(8), COLD));
            assert!(!record.add(WorkKind::Send, US(20), US(8), COLD));
        }
        assert!(record.add(WorkKind::BestEffort, US(49), US(8), COLD));
        assert!(record.add(WorkKind::Send, US(9), US(8), COLD), "blocked for longer than is assumed");
        // The last unit counts as far as it took more than is assumed, or as far as it did not make up for
        // what was before it.
        for (before, took, left) in [(0, 48, 40), (40, 10, 30), (40, 8, 32), (20, 30, 22), (20, 100, 92)] {
            let mut record = WorkRecord::new();
            record.add(WorkKind::Send, US(8 + before), US(8), COLD);
            assert_eq!(record.add(WorkKind::BestEffort, US(took), US(8), COLD), left > 40, "{before} {took}");
            let left = left.min(40);
            assert_eq!(record.busy.excess, US(left), "{before} {took}");
            assert!(!record.add(WorkKind::Receive, US(48 - left), US(8), COLD), "{before} {took}");
            assert!(record.add(WorkKind::Forward, US(8) + Nanos(1), US(8), COLD), "{before} {took}");
        }
    }

    #[test]
    fn absurd_times_land_in_the_last_step_and_old_ones_fade() {
        let mut record = WorkRecord::new();
        record.add(WorkKind::Send, US(1), US(16), COLD);
        record.add(WorkKind::Send, Nanos::MAX, Nanos::ZERO, COLD);
        assert_eq!(of(&record, WorkKind::Send).p99_percent, 400);
        for _ in 0..3 * WINDOW_UNITS {
            record.add(WorkKind::Send, US(1), US(16), COLD);
        }
        assert_eq!(of(&record, WorkKind::Send).p99_percent, 12);
    }

    #[test]
    fn late_wakes_are_those_beyond_the_release_latency() {
        let mut record = WorkRecord::new();
        record.add_wake(US(150), US(200));
        record.add_wake(US(250), US(200));
        let reported = record.wakes(US(200));
        assert_eq!(
            (reported.wakes, reported.late, reported.late_max, reported.at_risk),
            (2, 1, US(250), false),
            "two prove nothing"
        );
    }

    #[test]
    fn wake_ups_of_which_a_sizeable_part_is_late_are_at_risk_until_that_is_over() {
        let mut record = WorkRecord::new();
        let mut wake = |times: u32, late: Nanos| {
            (0..times).for_each(|_| record.add_wake(late, US(200)));
            record.wakes(US(200))
        };
        assert!(!wake(10_000, US(50)).at_risk);
        assert!(!wake(10, US(900)).at_risk, "accidents");
        let standstill = wake(308, Nanos::from_millis(225));
        assert!(standstill.at_risk && standstill.recent_late >= 154, "{standstill:?}");
        let over = wake(4_000, US(50));
        assert!(!over.at_risk && over.late == 318 && over.recent < WINDOW_WAKES, "{over:?}");
    }

    /// Half of a thousand warm units are evidence, not fewer, and not a part of fewer units. A unit that
    /// takes exactly the assumed time does not exceed it, and first units do not count.
    #[test]
    fn half_of_a_thousand_warm_units_are_enough_evidence() {
        let at_risk = |costly: u32, cheap: u32| {
            let mut record = WorkRecord::new();
            for n in 0..costly + cheap {
                record.add_idle(IDLE, COLD);
                record.add(WorkKind::Send, US(9), US(8), COLD);
                record.add(WorkKind::Send, if n < costly { US(8) + Nanos(1) } else { US(8) }, US(8), COLD);
            }
            let path = of(&record, WorkKind::Send);
            assert_eq!(
                (path.units, path.first),
                (u64::from(2 * (costly + cheap)), u64::from(costly + cheap))
            );
            path.at_risk
        };
        assert!(at_risk(500, 500) && at_risk(501, 500) && at_risk(1_000, 0));
        assert!(!at_risk(499, 501) && !at_risk(500, 499) && !at_risk(999, 0) && !at_risk(500, 501));
        // A channel is told of units that take longer than is assumed, no others.
        let mut record = WorkRecord::new();
        for took in core::iter::repeat_n(US(8) + Nanos(1), 1_001).chain([US(8)]) {
            record.add_idle(IDLE, COLD);
            record.add(WorkKind::Forward, US(8), US(8), COLD);
            let told = record.add(WorkKind::Forward, took, US(8), COLD);
            let units = record.paths[index_of(WorkKind::Forward).expect("it has a record")].warm.units;
            assert_eq!(told, units >= 1_000 && took > US(8), "{units} {took}");
        }
        // The latest units count: when the window is full, half of the counts remain.
        let mut warm = Warm::NEW;
        (1..WINDOW_UNITS).for_each(|unit| warm.add(unit < 10_000));
        assert_eq!((warm.units, warm.costly), (WINDOW_UNITS - 1, 9_999));
        warm.add(true);
        assert_eq!((warm.units, warm.costly), (WINDOW_UNITS / 2, 5_000));
        assert!(at_risk(32_768, 32_768) && !at_risk(32_768, 65_540));
    }

    /// More than a hundred overruns that are at least one of twenty units are evidence; a unit overruns
    /// beyond the allowed time, not at it.
    #[test]
    fn more_than_a_hundred_overruns_in_one_of_twenty_units_are_enough_evidence() {
        let at_risk = |overruns: u64, others: u64| {
            let mut record = WorkRecord::new();
            // The busy period has taken exactly the allowed time, then one nanosecond more.
            assert_eq!(run(&mut record, WorkKind::Forward, others, US(48), IDLE), 0);
            assert_eq!(run(&mut record, WorkKind::Forward, overruns, US(48) + Nanos(1), IDLE), overruns);
            assert_eq!((record.overruns(), of(&record, WorkKind::Forward).overruns), (overruns, overruns));
            assert_eq!(record.is_at_risk(WorkKind::Forward), of(&record, WorkKind::Forward).at_risk);
            assert!(!record.is_at_risk(WorkKind::Signalling), "it has no record");
            record.is_at_risk(WorkKind::Forward)
        };
        assert!(at_risk(101, 0) && at_risk(101, 101 * 19) && at_risk(300, 300 * 19));
        assert!(!at_risk(100, 0) && !at_risk(101, 101 * 19 + 1) && !at_risk(300, 300 * 19 + 1));
    }

    /// Idle time reduces the excess, to the nanosecond; a span of zero does not end a busy period.
    #[test]
    fn a_busy_period_ends_with_any_idle_time() {
        let mut record = WorkRecord::new();
        record.add(WorkKind::Send, US(40), US(8), COLD);
        record.add_idle(Nanos::ZERO, COLD);
        assert!(!record.add(WorkKind::Send, US(16), US(8), COLD), "40 us of 40");
        assert_eq!((record.busy(COLD).periods, of(&record, WorkKind::Send).first), (0, 1));
        record.add_idle(Nanos(999), COLD);
        record.add_idle(US(1_000), COLD);
        let busy = record.busy(COLD);
        assert_eq!((busy.periods, busy.excess_max, busy.p50_percent), (1, US(40), 106));
        assert!(!record.add(WorkKind::Receive, US(48), US(8), COLD), "all of it is made up for");
        record.add_idle(US(1), COLD);
        // 39 of 40 us are left.
        assert!(!record.add(WorkKind::Receive, US(9), US(8), COLD));
        record.add_idle(US(1), COLD);
        assert!(record.add(WorkKind::Receive, US(9) + Nanos(1), US(8), COLD));
        assert!(!record.add(WorkKind::Receive, US(8), US(8), COLD), "what is beyond was counted once");
        assert_eq!((of(&record, WorkKind::Receive).first, record.busy(COLD).excess_max), (3, US(40)));
        record.add_idle(US(1), COLD);
        assert_eq!((record.busy(COLD).periods, record.busy(COLD).excess_max), (4, US(40) + Nanos(1)));
    }

    /// A share is reported at its place in order: the value that this many of a thousand units did not
    /// exceed, in sixteenths of what is assumed.
    #[test]
    fn shares_are_reported_in_order() {
        let mut shares = Shares::NEW;
        assert_eq!((shares.percent(500), shares.percent(0)), (0, 0));
        // A sixteenth of a nanosecond is a step, and nothing that is assumed counts as a nanosecond.
        for (took, assumed, percent) in
            [(2, 0, 206), (2, 1, 206), (2, 2, 106), (1, 2, 56), (4, 1, 400), (400, 1, 400)]
        {
            let mut one = Shares::NEW;
            one.add(Nanos(took), Nanos(assumed));
            assert_eq!(one.percent(1_000), percent, "{took} of {assumed}");
        }
        // The last of two thousand is the longest.
        let mut many = Shares::NEW;
        (0..2_000).for_each(|unit| many.add(US(if unit < 1_999 { 1 } else { 32 }), US(16)));
        assert_eq!([999, 1_000].map(|per_mille| many.percent(per_mille)), [12, 206]);
        for sixteenth in 0..10 {
            shares.add(US(sixteenth), US(16));
        }
        let reported = [1, 100, 101, 500, 501, 900, 1_000].map(|per_mille| shares.percent(per_mille));
        assert_eq!(reported, [6, 6, 12, 31, 37, 56, 62]);
        shares.add(Nanos(15_999), US(16));
        shares.add(US(16), US(16));
        assert_eq!((shares.percent(910), shares.percent(1_000)), (100, 106));
        (12..WINDOW_UNITS - 1).for_each(|_| shares.add(US(63), US(16)));
        assert_eq!((shares.window, shares.percent(10)), (WINDOW_UNITS - 1, 400));
        shares.add(US(64), US(16));
        // Half of each step is dropped: a step with one unit becomes empty.
        assert_eq!(
            (shares.window, shares.steps[63], shares.percent(1)),
            ((WINDOW_UNITS - 11) / 2, 32_762, 400)
        );
    }

    /// Of a thousand units half are no reason for another median, and ten are none for another p99; one more
    /// is. The same for busy periods.
    #[test]
    fn reported_quantiles_are_the_median_and_the_99th_of_a_hundred() {
        let reported = |costly: u32| {
            let mut record = WorkRecord::new();
            for n in 0..1_000 {
                let took = if n < costly { US(7) } else { US(1) };
                record.add(WorkKind::Send, US(0), US(8), COLD);
                record.add(WorkKind::Receive, took, US(8), COLD);
                record.add(WorkKind::Send, US(8) + took * 5, US(8), COLD);
                record.add_idle(IDLE, COLD);
            }
            let (receive, busy) = (of(&record, WorkKind::Receive), record.busy(COLD));
            assert_eq!((receive.units, receive.first, busy.periods), (1_000, 0, 1_000));
            [receive.p50_percent, receive.p99_percent, busy.p50_percent, busy.p99_percent]
        };
        let (small, large) = (reported(0), reported(1_000));
        assert!(small.iter().zip(&large).all(|(small, large)| small < large), "{small:?} {large:?}");
        assert_eq!(reported(10), small);
        assert_eq!(reported(11), [small[0], large[1], small[2], large[3]]);
        assert_eq!(reported(500), [small[0], large[1], small[2], large[3]]);
        assert_eq!(reported(501), large);
    }

    /// More than one late wake-up in twenty, of at least twenty, is evidence.
    #[test]
    fn more_than_one_late_wake_up_in_twenty_is_enough_evidence() {
        let reported = |late: u32, punctual: u32| {
            let mut record = WorkRecord::new();
            (0..late).for_each(|_| record.add_wake(US(200) + Nanos(1), US(200)));
            (0..punctual).for_each(|_| record.add_wake(US(200), US(200)));
            record.wakes(US(200))
        };
        assert!(reported(2, 18).at_risk && reported(2, 37).at_risk && reported(20, 0).at_risk);
        assert!(
            !reported(1, 19).at_risk
                && !reported(2, 38).at_risk
                && !reported(19, 0).at_risk
                && !reported(0, 0).at_risk
        );
        let full = reported(100, 924);
        assert_eq!((full.wakes, full.late, full.recent, full.recent_late), (1_024, 100, 512, 50));
        assert_eq!((full.release_latency, full.late_max), (US(200), US(200) + Nanos(1)));
        assert_eq!((reported(100, 923).recent, reported(100, 925).recent), (1_023, 513));
    }
}
