//! When the PDUs of a program's handler are released, and how many of them one call may have.

use alloc::collections::VecDeque;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};

use crate::api::RtuClass;

/// The budget of a handler.
#[derive(Debug)]
pub(super) enum Releases {
    /// At most B PDUs in any window of one interval.
    Sporadic(Sporadic),
    /// At most B PDUs in each period of the clock.
    Timed(Timed),
}

impl Releases {
    /// The budget of a class; `None` for best effort. Allocates the memory that it needs.
    pub fn of(class: RtuClass) -> Option<Self> {
        let sporadic = class.windows().map(|(window, units)| Self::Sporadic(Sporadic::new(window, units)));
        sporadic.or_else(|| class.periods().map(|(period, units)| Self::Timed(Timed::new(period, units))))
    }

    /// e: time at which the next PDU is released, for a handler that has had work since `since`.
    pub fn release(&self, since: Instant, now: Instant) -> Instant {
        match self {
            Self::Sporadic(sporadic) => sporadic.release(since, 0),
            Self::Timed(timed) => timed.release(since, now),
        }
    }

    /// PDUs that are released by `now`, at most `quantum`.
    pub fn released(&self, since: Instant, now: Instant, quantum: u32) -> u32 {
        match self {
            Self::Sporadic(sporadic) => sporadic.released(since, now, quantum),
            Self::Timed(timed) => timed.released(since, now, quantum),
        }
    }

    /// Charges the PDUs that a call has processed, perhaps more than were released. Returns e of the first.
    pub fn charge(&mut self, since: Instant, now: Instant, units: u32) -> Instant {
        let first = self.release(since, now);
        match self {
            Self::Sporadic(sporadic) => sporadic.charge(since, units),
            Self::Timed(timed) => timed.charge(now, units),
        }
        first
    }
}

/// e(i) = max(ready, e(i - B) + interval): no window of an interval has more than B.
#[derive(Debug)]
pub(super) struct Sporadic {
    interval: Nanos,
    /// e of the last B PDUs, the oldest first; fewer at the start.
    releases: VecDeque<Instant>,
    units: usize,
}

impl Sporadic {
    pub fn new(interval: Nanos, units: u32) -> Self {
        Self { interval, releases: VecDeque::with_capacity(units as usize), units: units as usize }
    }

    /// e of the PDU that is `ahead` places behind the next one, at most B - 1.
    fn release(&self, since: Instant, ahead: usize) -> Instant {
        let oldest = (self.releases.len() + ahead).checked_sub(self.units);
        let oldest = oldest.and_then(|index| self.releases.get(index));
        let oldest = oldest.filter(|_| !active(Mutation::LowDelayWithoutBudget));
        oldest.map_or(since, |oldest| since.max(*oldest + self.interval))
    }

    fn released(&self, since: Instant, now: Instant, quantum: u32) -> u32 {
        let most = (quantum as usize).min(self.units);
        (0..most).take_while(|ahead| self.release(since, *ahead) <= now).count() as u32
    }

    fn charge(&mut self, since: Instant, units: u32) {
        for _ in 0..units {
            self.take(since);
        }
    }

    /// e of the next PDU, which comes at `since`.
    pub fn take(&mut self, since: Instant) -> Instant {
        let release = self.release(since, 0);
        if self.releases.len() == self.units {
            self.releases.pop_front();
        }
        self.releases.push_back(release);
        release
    }
}

/// Released at multiples of the period, B PDUs each time.
#[derive(Debug)]
pub(super) struct Timed {
    period: Nanos,
    units: u32,
    /// Begin of the period that was charged last.
    charged: Option<Instant>,
    done: u32,
}

impl Timed {
    const fn new(period: Nanos, units: u32) -> Self {
        Self { period, units, charged: None, done: 0 }
    }

    const fn begin(&self, now: Instant) -> Instant {
        Instant(now.0 - now.0 % self.period.0)
    }

    /// PDUs that the period of `now` has left.
    fn left(&self, now: Instant) -> u32 {
        match self.charged {
            Some(charged) if charged >= self.begin(now) => self.units.saturating_sub(self.done),
            _ => self.units,
        }
    }

    fn release(&self, since: Instant, now: Instant) -> Instant {
        let first = Instant(since.0.div_ceil(self.period.0).saturating_mul(self.period.0));
        let present = self.begin(now);
        let present = if self.left(now) == 0 { present + self.period } else { present };
        first.max(present)
    }

    fn released(&self, since: Instant, now: Instant, quantum: u32) -> u32 {
        if self.release(since, now) > now { 0 } else { quantum.min(self.left(now)) }
    }

    fn charge(&mut self, now: Instant, units: u32) {
        let begin = self.begin(now);
        if self.charged != Some(begin) {
            (self.charged, self.done) = (Some(begin), 0);
        }
        self.done = self.done.saturating_add(units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;
    const AT: fn(u64) -> Instant = |ms| Instant(ms * 1_000_000);

    #[test]
    fn no_window_has_more_than_the_budget() {
        let mut releases = Releases::of(RtuClass::LowDelay { interval: MS(10), units: 2, priority: None })
            .expect("a budget");
        assert_eq!(releases.charge(AT(0), AT(0), 1), AT(0));
        assert_eq!(releases.charge(AT(9), AT(9), 1), AT(9), "the second of the window");
        assert_eq!(releases.release(AT(9), AT(9)), AT(10), "the first one's window is over then");
        assert_eq!((releases.released(AT(9), AT(9), 4), releases.released(AT(9), AT(10), 4)), (0, 1));
        assert_eq!(releases.charge(AT(9), AT(10), 1), AT(10));
        assert_eq!(releases.release(AT(9), AT(10)), AT(19), "a token bucket would let one go at 15");
        assert_eq!(releases.released(AT(25), AT(25), 4), 2);
    }

    #[test]
    fn what_was_taken_without_leave_is_paid_for_later() {
        let mut releases = Releases::of(RtuClass::LowDelay { interval: MS(10), units: 1, priority: None })
            .expect("a budget");
        releases.charge(AT(0), AT(0), 3);
        assert_eq!(releases.release(AT(1), AT(1)), AT(30));
        let mut timed = Releases::of(RtuClass::periodic(MS(10), 2)).expect("a budget");
        timed.charge(AT(0), AT(0), 5);
        assert_eq!(timed.release(AT(0), AT(1)), AT(10), "a period begins with its own budget");
    }

    #[test]
    fn a_period_serves_what_was_there_when_it_began() {
        let mut releases = Releases::of(RtuClass::periodic(MS(10), 3)).expect("a budget");
        assert_eq!(releases.release(AT(1), AT(1)), AT(10));
        assert_eq!((releases.released(AT(1), AT(9), 2), releases.released(AT(1), AT(10), 2)), (0, 2));
        assert_eq!(releases.charge(AT(1), AT(10), 2), AT(10));
        assert_eq!(releases.released(AT(1), AT(11), 2), 1, "no call crosses the end of a budget");
        releases.charge(AT(1), AT(11), 1);
        assert_eq!((releases.release(AT(1), AT(12)), releases.released(AT(1), AT(12), 2)), (AT(20), 0));
        assert_eq!(releases.release(AT(1), AT(45)), AT(40), "an old one counts in the present period");
    }

    /// However long a pace is kept, it remembers as many releases as it has units: the memory that it was made with.
    #[test]
    fn a_pace_remembers_no_more_than_its_units() {
        for units in [1, 2, 7] {
            let mut pace = Sporadic::new(MS(10), units);
            let room = pace.releases.capacity();
            for n in 0..1_000 {
                pace.take(AT(n));
                assert_eq!(pace.releases.len(), (n as usize + 1).min(units as usize), "{units} units");
            }
            assert_eq!(pace.releases.capacity(), room, "{units} units: nothing is allocated on the way");
        }
    }
}
