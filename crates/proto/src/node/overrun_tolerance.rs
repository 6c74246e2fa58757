//! Decides whether the latest overruns of one path are accidents of the platform, or more than that (ADR
//! 0024).
//!
//! A platform may stop the processor for some milliseconds a few times in ten seconds, whatever the load. So
//! overruns are counted per time, not per unit: with many units, their share is not meaningful. Time is the
//! sum of the recorded work and idle spans.

use punctual_analysis::Nanos;

/// Overruns of the last one to two of these count.
const WINDOW: Nanos = Nanos::from_secs(30);
/// An overrun is grave if it takes this many times longer than busy periods are allowed,
const GRAVE_TIMES: u64 = 10;
/// and at least this long: idle processors wake some 100 us late in 1 of 30 units.
const GRAVE_MIN: Nanos = Nanos::from_micros(500);
/// Most grave overruns in one to two windows. A platform has 10 to 30 in a minute.
const GRAVE_TOLERATED: u32 = 100;
/// The most that all overruns of one to two windows may take beyond what is allowed: 1 % of two. A platform takes 0.2 to
/// 0.7 % in holes.
const BEYOND_TOLERATED: Nanos = Nanos::from_millis(600);

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    grave: u32,
    beyond: Nanos,
}

/// State of the tolerance (see the module).
#[derive(Clone, Copy, Debug)]
pub(super) struct OverrunTolerance {
    present: Window,
    former: Window,
    /// The record's time at which the present window began.
    begun: Nanos,
}

impl OverrunTolerance {
    pub const NEW: Self = {
        let none = Window { grave: 0, beyond: Nanos::ZERO };
        Self { present: none, former: none, begun: Nanos::ZERO }
    };

    /// Adds an overrun that took `beyond` more than the `allowed` time, at the record's time `elapsed`.
    pub fn add(&mut self, beyond: Nanos, allowed: Nanos, elapsed: Nanos) {
        *self = self.at(elapsed);
        self.present.beyond += beyond;
        self.present.grave += u32::from(beyond >= GRAVE_MIN.max(allowed * GRAVE_TIMES));
    }

    /// Whether the recent overruns are too many for accidents.
    pub fn are_too_many(&self, elapsed: Nanos) -> bool {
        let Self { present, former, .. } = self.at(elapsed);
        present.grave + former.grave > GRAVE_TOLERATED || present.beyond + former.beyond > BEYOND_TOLERATED
    }

    /// The accidents that count at the time `elapsed`. Those of the previous window count in one more window,
    /// then no longer.
    fn at(&self, elapsed: Nanos) -> Self {
        let spells = (elapsed - self.begun).0 / WINDOW.0;
        let begun = self.begun + WINDOW * spells;
        match spells {
            0 => *self,
            1 => Self { present: Window::default(), former: self.present, begun },
            _ => Self { begun, ..Self::NEW },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Nanos = Nanos::from_micros(40);

    fn every(interval: Nanos, count: u64, beyond: impl Fn(u64) -> Nanos) -> OverrunTolerance {
        let mut accidents = OverrunTolerance::NEW;
        (0..count).for_each(|n| accidents.add(beyond(n), ALLOWED, interval * n));
        accidents
    }

    #[test]
    fn holes_of_a_shared_machine_are_accidents_for_ever() {
        // 4 to 13 ms, three in ten seconds, for an hour.
        let interval = Nanos::from_millis(3_300);
        let hole = |n: u64| Nanos::from_millis(4 + n * 7 % 10);
        for count in [1, 20, 1_090] {
            assert!(!every(interval, count, hole).are_too_many(interval * count), "{count}");
        }
        // Late wake-ups of an idle processor at 1 kHz, one in thirty.
        let late = |_| Nanos::from_micros(110);
        assert!(!every(Nanos::from_millis(30), 10_000, late).are_too_many(Nanos::from_secs(300)));
    }

    #[test]
    fn many_grave_ones_or_much_time_are_none_and_pass() {
        let grave = every(Nanos::from_millis(250), 101, |_| Nanos::from_micros(500));
        assert!(grave.are_too_many(Nanos::from_secs(26)), "101 in 25 s");
        assert!(grave.are_too_many(Nanos::from_secs(59)));
        assert!(!grave.are_too_many(Nanos::from_secs(60)), "that is over");
        let long = every(Nanos::from_millis(50), 1_000, |_| Nanos::from_micros(650));
        assert!(long.are_too_many(Nanos::from_secs(50)), "1.3 % of the time");
        let small = every(Nanos::from_millis(5), 2_000, |_| Nanos::from_micros(310));
        assert!(small.are_too_many(Nanos::from_secs(10)), "none of them is grave, together they are 6 %");
    }

    /// More than a hundred grave overruns, each ten times the allowance and at least half a millisecond.
    #[test]
    fn a_hundred_grave_ones_are_tolerated() {
        let too_many = |count, beyond, allowed| {
            let mut accidents = OverrunTolerance::NEW;
            (0..count).for_each(|_| accidents.add(beyond, allowed, Nanos::ZERO));
            accidents.are_too_many(Nanos::ZERO)
        };
        let grave = Nanos::from_micros(500);
        assert!(!too_many(100, grave, ALLOWED) && too_many(101, grave, ALLOWED));
        assert!(!too_many(101, grave - Nanos(1), ALLOWED), "shorter ones are not grave");
        let allowed = Nanos::from_micros(60);
        assert!(!too_many(101, Nanos(599_999), allowed) && too_many(101, Nanos::from_micros(600), allowed));
        let third = Nanos::from_millis(200);
        assert!(!too_many(3, third, third) && too_many(4, third, third), "600 ms of two spells");
    }

    /// An overrun counts in its window and in the next one, whatever the record's time is then.
    #[test]
    fn accidents_of_two_spells_count() {
        let mut accidents = OverrunTolerance::NEW;
        let part = Nanos::from_millis(301);
        accidents.add(part, part, WINDOW - Nanos(1));
        assert!(!accidents.are_too_many(WINDOW));
        accidents.add(part, part, WINDOW);
        let over = [WINDOW, WINDOW * 2 - Nanos(1), WINDOW * 2].map(|elapsed| accidents.are_too_many(elapsed));
        assert_eq!(over, [true, true, false], "the first is forgotten in the third spell");
        accidents.add(part, part, WINDOW * 2 + Nanos(5));
        assert!(accidents.are_too_many(WINDOW * 3 - Nanos(1)) && !accidents.are_too_many(WINDOW * 3));
        accidents.add(part, part, WINDOW * 9);
        assert!(!accidents.are_too_many(WINDOW * 9), "nothing is left of what is long ago");
    }
}
