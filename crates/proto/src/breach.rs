//! Whether a stage keeps its promise: late events in the last second, and the time since which they are too
//! many for accidents (ADR 0026).
//!
//! A single late event is counted and reported at once. It proves nothing about the next minute, because an
//! interrupt or a hypervisor may have caused it. A stage is *broken* once it was late in [`WATCH_SLOTS_LATE`]
//! of the last [`WATCH_SLOTS`] slots of [`WATCH_SLOT`]; it has *healed* when it has not been late for a
//! lease. Work and memory are constant.

use punctual_analysis::{Instant, Nanos};
use serde::{Deserialize, Serialize};

use crate::limits::{WATCH_LONG_SLOT, WATCH_LONG_SLOTS, WATCH_SLOT, WATCH_SLOTS, WATCH_SLOTS_LATE};

/// Late events of one stage.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    slots: [Slot; WATCH_SLOTS],
    /// Slots of the last minute, for reports to users, which are less frequent.
    long: [Slot; WATCH_LONG_SLOTS],
    /// Lateness since the node started.
    total: Lateness,
    broken: Option<Broken>,
}

/// Number of late events, and the largest lateness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    /// Number of late events.
    pub times: u64,
    /// The largest lateness.
    pub by_max: Nanos,
}

impl Lateness {
    fn add(&mut self, by: Nanos) {
        self.times += 1;
        self.by_max = self.by_max.max(by);
    }
    fn and(self, other: Self) -> Self {
        Self { times: self.times + other.times, by_max: self.by_max.max(other.by_max) }
    }
}

/// A span of [`WATCH_SLOT`] or [`WATCH_LONG_SLOT`].
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Number of the slot, counted from the clock's origin.
    number: u64,
    late: Lateness,
}

/// Records a late event by `by` in the slot of `now`.
fn note(slots: &mut [Slot], span: Nanos, by: Nanos, now: Instant) {
    let number = now.0 / span.0;
    let index = (number % slots.len() as u64) as usize;
    let slot = &mut slots[index];
    if slot.number != number {
        *slot = Slot { number, late: Lateness::default() };
    }
    slot.late.add(by);
}

/// Slots with late events that are not too old for `slots`.
fn recent(slots: &[Slot], span: Nanos, now: Instant) -> impl Iterator<Item = &Slot> {
    let newest = now.0 / span.0;
    let is_recent = move |slot: &&Slot| newest.saturating_sub(slot.number) < slots.len() as u64;
    slots.iter().filter(|slot| slot.late.times > 0).filter(is_recent)
}

#[derive(Clone, Copy, Debug)]
struct Broken {
    since: Instant,
    /// Time of the last late event.
    last: Instant,
}

impl Watch {
    /// Records a late event by `by`. Returns whether this breaks a stage that was not broken.
    pub fn late(&mut self, by: Nanos, now: Instant) -> bool {
        note(&mut self.slots, WATCH_SLOT, by, now);
        note(&mut self.long, WATCH_LONG_SLOT, by, now);
        self.total.add(by);
        if let Some(broken) = &mut self.broken {
            broken.last = now;
            return false;
        }
        let breaks = self.slots_late(now) >= WATCH_SLOTS_LATE;
        if breaks {
            self.broken = Some(Broken { since: now, last: now });
        }
        breaks
    }

    /// Removes the late events of the last second that have had no consequence yet.
    pub fn forget_recent(&mut self) {
        self.slots = Default::default();
    }

    /// Whether a broken stage has kept its promise for `lease`; it then counts as healed.
    pub fn heals(&mut self, lease: Nanos, now: Instant) -> bool {
        let heals = self.heals_at(lease).is_some_and(|at| at <= now);
        if heals {
            self.broken = None;
        }
        heals
    }

    /// Time at which a broken stage heals, unless it is late again.
    pub fn heals_at(&self, lease: Nanos) -> Option<Instant> {
        self.broken.map(|broken| broken.last + lease)
    }

    /// Time since which the stage is broken; `None` if it is not.
    pub fn broken_since(&self) -> Option<Instant> {
        self.broken.map(|broken| broken.since)
    }

    /// Whether there was a late event in the last second, or the stage is broken.
    pub fn is_stirred(&self, now: Instant) -> bool {
        self.broken.is_some() || self.slots_late(now) > 0
    }

    /// Lateness in the last second.
    pub fn recent(&self, now: Instant) -> Lateness {
        let slots = recent(&self.slots, WATCH_SLOT, now);
        slots.fold(Lateness::default(), |sum, slot| sum.and(slot.late))
    }

    /// Late events in the last minute, the present slot included.
    pub fn last_minute(&self, now: Instant) -> Lateness {
        let slots = recent(&self.long, WATCH_LONG_SLOT, now);
        slots.fold(Lateness::default(), |sum, slot| sum.and(slot.late))
    }

    /// Lateness since the start.
    pub const fn total(&self) -> Lateness {
        self.total
    }

    fn slots_late(&self, now: Instant) -> usize {
        recent(&self.slots, WATCH_SLOT, now).count()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const LEASE: Nanos = Nanos::from_secs(20);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(millis)
    }

    #[test]
    fn accidents_are_counted_and_break_nothing() {
        let mut watch = Watch::default();
        for second in 0..60 {
            // Twice a second, and many at a time.
            for millis in [0, 1, 2, 50, 500] {
                assert!(!watch.late(Nanos(millis + 1), at(second * 1_000 + millis)));
            }
        }
        assert_eq!(watch.total(), Lateness { times: 300, by_max: Nanos(501) });
        assert_eq!(watch.recent(at(59_900)), Lateness { times: 5, by_max: Nanos(501) });
        assert_eq!(watch.recent(at(61_000)), Lateness::default());
        assert_eq!(watch.last_minute(at(59_999)), Lateness { times: 300, by_max: Nanos(501) });
        assert_eq!(watch.last_minute(at(101_000)).times, 50, "of the ten seconds before the last fifty");
        assert_eq!(watch.last_minute(at(110_000)), Lateness::default());
        assert_eq!(watch.broken_since(), None);
    }

    #[test]
    fn what_is_late_again_and_again_is_broken_until_it_keeps_its_promise_for_a_lease() {
        let mut watch = Watch::default();
        let broken = (0..10).map(|n| watch.late(Nanos(7), at(n * 100 + 5))).collect::<Vec<_>>();
        assert_eq!(broken.iter().filter(|broken| **broken).count(), 1, "said once");
        assert_eq!(broken.iter().position(|broken| *broken), Some(WATCH_SLOTS_LATE - 1));
        assert_eq!(watch.broken_since(), Some(at(205)));
        assert!(!watch.heals(LEASE, at(905 + 19_999)));
        watch.late(Nanos(1), at(10_000));
        assert_eq!(watch.heals_at(LEASE), Some(at(30_000)));
        assert!(!watch.heals(LEASE, at(29_999)) && watch.heals(LEASE, at(30_000)));
        assert!(!watch.heals(LEASE, at(90_000)), "said once");
        assert_eq!(watch.broken_since(), None);
    }

    #[test]
    fn a_slot_counts_for_a_second_and_a_long_one_for_a_minute() {
        let begin = at(1_000_000);
        let last = |slots: usize, slot: Nanos| begin + slot * slots as u64;
        let mut watch = Watch::default();
        watch.late(Nanos(3), begin);
        let (recent, minute) = (|at| watch.recent(at).times, |at| watch.last_minute(at).times);
        assert_eq!(recent(last(WATCH_SLOTS, WATCH_SLOT) - Nanos(1)), 1);
        assert_eq!(recent(last(WATCH_SLOTS, WATCH_SLOT)), 0);
        assert_eq!(minute(last(WATCH_LONG_SLOTS, WATCH_LONG_SLOT) - Nanos(1)), 1);
        assert_eq!(minute(last(WATCH_LONG_SLOTS, WATCH_LONG_SLOT)), 0);
    }

    /// What is forgotten neither counts as recent nor breaks a stage later. Totals and the report of the last minute keep it.
    #[test]
    fn what_is_forgotten_has_no_consequence_and_stays_in_the_counts() {
        let mut watch = Watch::default();
        let late = |watch: &mut Watch, n: usize| watch.late(Nanos(7), at(50_000 + n as u64 * 100));
        for n in 0..WATCH_SLOTS_LATE - 1 {
            assert!(!late(&mut watch, n));
        }
        watch.forget_recent();
        let now = at(50_000 + WATCH_SLOTS_LATE as u64 * 100);
        assert_eq!((watch.recent(now), watch.is_stirred(now)), (Lateness::default(), false));
        let counted = Lateness { times: WATCH_SLOTS_LATE as u64 - 1, by_max: Nanos(7) };
        assert_eq!((watch.last_minute(now), watch.total()), (counted, counted));
        assert!(!late(&mut watch, WATCH_SLOTS_LATE), "one late slot is no breach");
        assert_eq!(watch.broken_since(), None);
    }

    /// A watch is stirred for a second after a late event, and while the stage is broken.
    #[test]
    fn a_watch_is_stirred_for_a_second_or_while_it_is_broken() {
        let mut watch = Watch::default();
        assert!(!watch.is_stirred(at(0)) && !watch.is_stirred(at(5_000)));
        watch.late(Nanos(9), at(5_000));
        assert!(watch.is_stirred(at(5_000)) && watch.is_stirred(at(5_999)) && !watch.is_stirred(at(6_000)));
        (0..10).for_each(|n| {
            watch.late(Nanos(7), at(7_000 + n * 100));
        });
        assert!(watch.is_stirred(at(7_900)) && watch.is_stirred(at(20_000)));
        watch.forget_recent();
        assert!(watch.is_stirred(at(7_900)), "it is broken whatever was late lately");
        assert!(watch.heals(LEASE, at(27_900)) && !watch.is_stirred(at(27_900)));
    }
}
