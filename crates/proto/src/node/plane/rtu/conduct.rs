//! Whether a program's handler keeps to its declaration. Violations are counted; a handler with too many is
//! demoted (RTU 3.2 leaves the consequence open).

use punctual_analysis::{Instant, Nanos, Ppm};

use crate::api::{Misconduct, UpcallDone};
use crate::limits::{RTU_VIOLATION_SPAN, RTU_VIOLATIONS_MAX};

/// The time that one handler took beyond its declaration.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    /// Time that its calls took beyond their declaration, less what idle time has made up for.
    excess: Nanos,
    checked_at: Instant,
    /// The processor's idle time that was already credited.
    idle_seen: Nanos,
    violations: Violations,
}

/// Violations in the current interval of time and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Violations {
    began: Instant,
    present: u32,
    former: u32,
}

impl Violations {
    fn add(&mut self, now: Instant) -> u32 {
        match now.since(self.began).0 / RTU_VIOLATION_SPAN.0 {
            0 => {}
            1 => *self = Self { began: self.began + RTU_VIOLATION_SPAN, present: 0, former: self.present },
            _ => *self = Self { began: now, present: 0, former: 0 },
        }
        self.present += 1;
        self.present + self.former
    }
}

/// Disturbances of a call that its handler does not cause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disturbance {
    /// Burst of interference, and cold caches.
    pub burst: Nanos,
    /// Share of interference.
    pub rho: Ppm,
    /// Idle time of the processor since its start.
    pub idle: Nanos,
}

/// Verdict on one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub overran: bool,
    pub ignored_yield: bool,
    /// Why the handler must be demoted, if it must be.
    pub demote: Option<Misconduct>,
}

impl Conduct {
    /// Checks a call that started at `began` and had `given` PDUs, for which its handler has `declared` a time. The
    /// node's own work to send lies between `began` and `now`. It does not count as the handler's time.
    pub fn judge(
        &mut self,
        done: &UpcallDone,
        (given, declared): (u32, Nanos),
        disturbance: Disturbance,
        (began, now): (Instant, Instant),
    ) -> Verdict {
        let Disturbance { burst, rho, idle } = disturbance;
        // Idle time makes up for the delay of other handlers; interference takes its share of all time. Its share of the call
        // may come at the call's end: time before the call cannot pay for it.
        let paid = (idle - self.idle_seen) + rho.of(began.since(self.checked_at));
        (self.checked_at, self.idle_seen) = (now, idle);
        self.excess = ((self.excess - paid) + done.took) - declared - rho.of(now.since(began));
        let overran = done.took > declared && self.excess > burst;
        self.excess = self.excess.min(burst);
        let ignored_yield = done.units > given;
        let why = match (ignored_yield, overran) {
            (true, _) => Some(Misconduct::IgnoredYield),
            (_, true) => Some(Misconduct::Overrun),
            _ => None,
        };
        let demote = why.filter(|_| self.violations.add(now) >= RTU_VIOLATIONS_MAX);
        Verdict { overran, ignored_yield, demote }
    }

    /// Whether the handler may have delayed itself.
    pub fn is_in_excess(&self) -> bool {
        self.excess > Nanos::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Nanos = Nanos::from_micros;
    const AT: fn(u64) -> Instant = |ms| Instant(ms * 1_000_000);
    const QUIET: Disturbance = Disturbance { burst: Nanos::from_micros(40), rho: Ppm(0), idle: Nanos::ZERO };

    /// Checks a call that ends at `at`.
    fn until(at: Instant, done: &UpcallDone) -> (Instant, Instant) {
        (Instant(at.0.saturating_sub(done.took.0)), at)
    }

    fn call(took: Nanos) -> UpcallDone {
        UpcallDone { units: 1, more: false, took }
    }

    /// One PDU, declared at 20 us, and no idle time.
    fn judge(conduct: &mut Conduct, done: &UpcallDone, at: Instant) -> Verdict {
        conduct.judge(done, (1, US(20)), QUIET, until(at, done))
    }

    #[test]
    fn a_call_that_is_disturbed_now_and_then_is_no_overrun() {
        let mut conduct = Conduct::default();
        for n in 0..1_000 {
            let took = if n % 10 == 0 { US(50) } else { US(15) };
            let verdict = judge(&mut conduct, &call(took), AT(n));
            assert_eq!(verdict, Verdict::default(), "call {n}");
        }
    }

    #[test]
    fn calls_that_are_always_a_little_longer_are_found() {
        let mut conduct = Conduct::default();
        let calls = (0..).take_while(|n| judge(&mut conduct, &call(US(21)), AT(*n)).demote.is_none());
        assert_eq!(calls.count() as u32, 40 + RTU_VIOLATIONS_MAX - 1, "after the burst, one each time");
    }

    #[test]
    fn idle_time_pays_for_cold_calls() {
        let mut conduct = Conduct::default();
        for n in 0..1_000 {
            let idle = Disturbance { idle: US(30) * n, ..QUIET };
            assert_eq!(
                conduct.judge(&call(US(45)), (1, US(20)), idle, until(AT(n), &call(US(45)))),
                Verdict::default()
            );
        }
    }

    #[test]
    fn misconduct_counts_for_a_spell_and_the_next() {
        let mut conduct = Conduct::default();
        let greedy = UpcallDone { units: 2, ..call(US(5)) };
        let span = RTU_VIOLATION_SPAN.0 / 1_000_000;
        for n in 0..50 {
            let verdict = judge(&mut conduct, &greedy, AT(n * span / 3));
            assert!(verdict.ignored_yield && verdict.demote.is_none(), "at most six in two spells: {n}");
        }
        let demoted = (0..RTU_VIOLATIONS_MAX)
            .find_map(|n| judge(&mut conduct, &greedy, AT(50 * span / 3 + u64::from(n))).demote);
        assert_eq!(demoted, Some(Misconduct::IgnoredYield));
    }

    /// A violation counts in its interval and in the next one, which begins where the first ends. After a pause the
    /// intervals begin anew.
    #[test]
    fn violations_are_counted_by_intervals() {
        let (mut violations, span) = (Violations::default(), RTU_VIOLATION_SPAN.0);
        let at =
            [0, span - 1, span, 2 * span - 1, 2 * span, 3 * span, 5 * span + 7, 6 * span + 6, 6 * span + 7];
        let counted = at.map(|ns| violations.add(Instant(ns)));
        assert_eq!(counted, [1, 2, 3, 4, 3, 2, 1, 2, 3]);
    }

    /// The node sends for 200 us, in which interference of 10 % has 20 us more. They fall into the next call.
    #[test]
    fn interference_has_its_share_of_what_the_node_sends() {
        let mut conduct = Conduct::default();
        let busy = Disturbance { rho: Ppm(100_000), ..QUIET };
        let at = |us: u64| Instant(1_000_000_000 + us * 1_000);
        let first = conduct.judge(&call(US(60)), (1, US(20)), busy, (at(0), at(260)));
        assert_eq!(first, Verdict::default(), "the whole burst");
        let second = conduct.judge(&call(US(46)), (1, US(20)), busy, (at(260), at(306)));
        assert_eq!(second, Verdict::default(), "26 us of the last 306");
        let third = conduct.judge(&call(US(30)), (1, US(20)), busy, (at(306), at(336)));
        assert!(third.overran, "7 us are left");
    }
}
