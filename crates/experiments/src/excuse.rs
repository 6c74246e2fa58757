//! Which late samples a platform hole excuses (GUARANTEES, Assumptions), and when a run proves nothing.
//!
//! A hole excuses a late sample only if the hole is between its logical arrival and its delivery, or while
//! the backlog of the hole must still drain: for at most the hole's length times g / (1 - g), with g the
//! guaranteed load. Figures with and without are always shown side by side.

use punctual_analysis::{Instant, Nanos, Ppm};
use serde::{Deserialize, Serialize};

/// Maximum share of a run's time that holes may take before it proves nothing.
pub const HOLE_SHARE_MAX: Ppm = Ppm(20_000);
/// Maximum share of the samples that holes may excuse before the run proves nothing.
pub const EXCUSED_SHARE_MAX: Ppm = Ppm(10_000);
/// The rule in words, for reports.
pub const RULE: &str = "A late message is excused only if the platform took the CPU away between its logical \
arrival and its delivery, or while the backlog of that hole still drained (hole length times g/(1-g), g the \
guaranteed load). Holes are seen by a SCHED_FIFO 98 thread per CPU; RT throttling is no hole. Holes over 2 % of \
the CPUs' time or more than 1 % of samples excused: inconclusive.";

/// A span in which the platform gave a CPU no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hole {
    /// When the CPU should have run.
    pub start: Instant,
    /// When it ran again.
    pub end: Instant,
}

impl Hole {
    /// How long.
    pub const fn length(&self) -> Nanos {
        self.end.since(self.start)
    }
}

/// The observations of the CPUs' watchers (`witness`).
#[derive(Clone, Debug, Default)]
pub struct WatcherRecords {
    /// Holes of all CPUs, merged, ascending.
    pub holes: Vec<Hole>,
    /// The CPUs' time that they watched: their number times the run's length.
    pub cpu_time: Nanos,
    /// What of it the holes took, each CPU counted.
    pub taken: Nanos,
}

impl WatcherRecords {
    /// Both together: runs one after the other.
    pub fn add(&mut self, other: Self) {
        self.holes.extend(other.holes);
        self.cpu_time += other.cpu_time;
        self.taken += other.taken;
    }
}

/// The holes of all CPUs as one ascending sequence without overlaps: a machine that lacks one CPU has a hole.
pub fn merge(mut holes: Vec<Hole>) -> Vec<Hole> {
    holes.sort_by_key(|hole| hole.start);
    let mut merged: Vec<Hole> = Vec::with_capacity(holes.len());
    for hole in holes {
        match merged.last_mut() {
            Some(last) if hole.start <= last.end => last.end = last.end.max(hole.end),
            _ => merged.push(hole),
        }
    }
    merged
}

/// The spans in which lateness is the platform's, for one guaranteed load.
#[derive(Clone, Debug)]
pub struct Excuses {
    /// Ascending, disjoint: hole and the draining of its backlog.
    spans: Vec<Hole>,
    holes: Vec<Hole>,
}

impl Excuses {
    /// Makes the excuses from the merged holes and g, the guaranteed load as a proportion of the tightest
    /// resource.
    pub fn new(holes: &[Hole], guaranteed_load: Ppm) -> Self {
        let mut spans: Vec<Hole> = Vec::with_capacity(holes.len());
        for hole in holes {
            let undrained = spans.last().map_or(Nanos::ZERO, |last| last.end.since(hole.start));
            let drain = drain_time(hole.length() + undrained, guaranteed_load).max(undrained);
            let end = hole.end + drain;
            match spans.last_mut() {
                Some(last) if hole.start <= last.end => last.end = last.end.max(end),
                _ => spans.push(Hole { start: hole.start, end }),
            }
        }
        Self { spans, holes: holes.to_vec() }
    }

    /// Whether a sample that arrived (logically) at `logical` and was delivered late at `delivered` is excused.
    pub fn covers(&self, logical: Instant, delivered: Instant) -> bool {
        let first = self.spans.partition_point(|span| span.end < logical);
        self.spans.get(first).is_some_and(|span| span.start <= delivered)
    }

    /// The arrivals that a hole may affect, if a message is due `deadline` after its arrival: ascending,
    /// disjoint spans.
    pub fn touched(&self, deadline: Nanos) -> Vec<(Instant, Instant)> {
        let mut touched: Vec<(Instant, Instant)> = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            let from = span.start - deadline;
            match touched.last_mut() {
                Some(last) if from <= last.1 => last.1 = span.end,
                _ => touched.push((from, span.end)),
            }
        }
        touched
    }

    /// The last hole that began before `at`.
    pub fn last_before(&self, at: Instant) -> Option<&Hole> {
        self.holes[..self.holes.partition_point(|hole| hole.start < at)].last()
    }
}

/// length * g / (1 - g); without end where g reaches the whole.
fn drain_time(length: Nanos, load: Ppm) -> Nanos {
    let free = Ppm::ONE.0.saturating_sub(load.0);
    if free == 0 {
        return Nanos::MAX;
    }
    let ns = u128::from(length.as_u64()) * u128::from(load.0) / u128::from(free);
    Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// The effect of the holes on a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HoleSummary {
    /// How many.
    pub count: usize,
    /// CPU time that they took, in milliseconds.
    pub total_ms: f64,
    /// The longest, in milliseconds.
    pub longest_ms: f64,
    /// Share of the CPUs' time in the run that holes took.
    pub share: f64,
    /// Samples that they excuse.
    pub excused: u64,
    /// All samples of guaranteed channels.
    pub samples: u64,
    /// Whether the run proves nothing.
    pub inconclusive: bool,
    /// The rule, in words.
    pub rule: String,
}

/// Sums up; `excused` of `samples` guaranteed messages are.
pub fn summarise(testimony: &WatcherRecords, samples: u64, excused: u64) -> HoleSummary {
    let WatcherRecords { holes, cpu_time, taken } = testimony;
    let longest = holes.iter().map(Hole::length).max().unwrap_or_default();
    let over = |part: u64, whole: u64, limit: Ppm| {
        u128::from(part) * 1_000_000 > u128::from(whole) * u128::from(limit.0)
    };
    HoleSummary {
        count: holes.len(),
        total_ms: taken.as_millis_f64(),
        longest_ms: longest.as_millis_f64(),
        share: taken.as_u64() as f64 / cpu_time.as_u64().max(1) as f64,
        excused,
        samples,
        inconclusive: over(taken.as_u64(), cpu_time.as_u64(), HOLE_SHARE_MAX)
            || over(excused, samples, EXCUSED_SHARE_MAX),
        rule: RULE.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn hole(start_ms: u64, end_ms: u64) -> Hole {
        Hole { start: Instant(start_ms * MS), end: Instant(end_ms * MS) }
    }
    fn at(ms: u64) -> Instant {
        Instant(ms * MS)
    }

    #[test]
    fn a_hole_excuses_messages_around_it_and_those_behind_its_backlog() {
        // g = 0.5: a hole of 10 ms drains for another 10 ms.
        let excuses = Excuses::new(&[hole(100, 110)], Ppm(500_000));
        assert!(excuses.covers(at(95), at(115)), "the hole lies inside");
        assert!(excuses.covers(at(105), at(112)), "arrived during the hole");
        assert!(excuses.covers(at(119), at(140)), "arrived while the backlog drained");
        assert!(!excuses.covers(at(121), at(140)), "the backlog was gone");
        assert!(!excuses.covers(at(50), at(99)), "delivered before the hole");
        assert_eq!(excuses.last_before(at(300)), Some(&hole(100, 110)));
        assert_eq!(excuses.last_before(at(100)), None);
    }

    #[test]
    fn without_guaranteed_load_there_is_no_backlog() {
        let excuses = Excuses::new(&[hole(100, 110)], Ppm(0));
        assert!(excuses.covers(at(110), at(120)));
        assert!(!excuses.covers(at(111), at(120)));
    }

    #[test]
    fn a_second_hole_in_the_backlog_adds_to_it() {
        let excuses = Excuses::new(&[hole(100, 110), hole(115, 120)], Ppm(500_000));
        // 110 + 10 = 120; at 115 5 ms are undrained, so 120 + (5 + 5) = 130.
        assert!(excuses.covers(at(130), at(150)));
        assert!(!excuses.covers(at(131), at(150)));
    }

    #[test]
    fn what_holes_may_touch_is_disjoint() {
        let excuses = Excuses::new(&[hole(100, 110), hole(115, 120), hole(200, 201)], Ppm(0));
        assert_eq!(excuses.touched(Nanos::from_millis(10)), [(at(90), at(120)), (at(190), at(201))]);
        assert_eq!(excuses.touched(Nanos::ZERO).len(), 3);
    }

    #[test]
    fn holes_of_two_cpus_merge() {
        let merged = merge(vec![hole(20, 25), hole(1, 4), hole(3, 6), hole(6, 7)]);
        assert_eq!(merged, [hole(1, 7), hole(20, 25)]);
    }

    #[test]
    fn the_limits_are_two_and_one_per_cent() {
        let of = |taken_ms, samples, excused| {
            let taken = Nanos::from_millis(taken_ms);
            let testimony =
                WatcherRecords { holes: vec![hole(0, taken_ms)], cpu_time: Nanos::from_secs(1), taken };
            summarise(&testimony, samples, excused).inconclusive
        };
        assert!(!of(20, 100, 1), "both at their limits");
        assert!(of(21, 100, 0), "2.1 % of the time");
        assert!(of(1, 100, 2), "2 % of the samples");
    }

    #[test]
    fn a_full_load_never_drains() {
        let excuses = Excuses::new(&[hole(100, 101)], Ppm::ONE);
        assert!(excuses.covers(at(1_000_000), at(1_000_001)));
    }
}
