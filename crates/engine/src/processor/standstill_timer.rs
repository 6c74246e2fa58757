//! A timer that detects when the processor was not running.
//!
//! On a host where channels start, no other event detects that: the processor notices messages when it polls,
//! and other timers are rare. So while channels start here, this timer is due every few milliseconds (less
//! often without work). A host without such channels has no timer and keeps sleeping.

use punctual_proto::{Instant, Nanos};

/// Span between two checks while there is work. A standstill of this length is always seen, and a shorter one
/// by chance; what delays messages is a standstill that happens again and again.
const SPAN: Nanos = Nanos::from_millis(7);
/// Span between two checks while there is no work: some sixty wake-ups a second. It is a prime number of
/// milliseconds, so that it does not run in step with periodic work.
const SPAN_QUIET: Nanos = Nanos::from_millis(17);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StandstillTimer {
    due: Option<Instant>,
    /// True if something was done since the time was set.
    busy: bool,
}

impl StandstillTimer {
    /// Time of the next check, at the latest.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Notes that something was done.
    pub const fn work(&mut self) {
        self.busy = true;
    }

    /// Checks the timer at `at`: returns how late the check is, and sets the next time. `watches`: there is a
    /// channel that starts here.
    pub fn check(&mut self, at: Instant, watches: bool) -> Option<Nanos> {
        match self.due {
            Some(due) if due > at => return None,
            None if !watches => return None,
            _ => {}
        }
        let late = self.due.take().map(|due| at.since(due));
        if watches {
            self.set(at);
        }
        late
    }

    /// Sets the next time, for a caller that has already reported how late the check is.
    pub fn seen(&mut self, at: Instant) {
        if self.due.is_some_and(|due| due <= at) {
            self.set(at);
        }
    }

    /// Records that no check was necessary until `at`.
    pub fn begin(&mut self, at: Instant) {
        if self.due.is_some() {
            self.set(at);
        }
    }

    fn set(&mut self, at: Instant) {
        let span = if std::mem::take(&mut self.busy) { SPAN } else { SPAN_QUIET };
        self.due = Some(at + span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Instant = Instant(1_000_000_000);

    #[test]
    fn a_host_that_watches_nothing_has_no_timer() {
        let mut standstill = StandstillTimer::default();
        assert_eq!((standstill.check(BEGIN, false), standstill.due()), (None, None));
        assert_eq!((standstill.check(BEGIN, true), standstill.due()), (None, Some(BEGIN + SPAN_QUIET)));
        let end = BEGIN + SPAN_QUIET;
        assert_eq!(
            (standstill.check(end, false), standstill.due()),
            (Some(Nanos::ZERO), None),
            "the last channel has gone"
        );
    }

    #[test]
    fn a_late_check_reports_its_lateness_once() {
        let mut standstill = StandstillTimer::default();
        standstill.check(BEGIN, true);
        standstill.work();
        let due = BEGIN + SPAN_QUIET;
        assert_eq!(standstill.check(due - Nanos(1), true), None);
        let late = Nanos::from_millis(8);
        assert_eq!(standstill.check(due + late, true), Some(late));
        assert_eq!(standstill.due(), Some(due + late + SPAN), "sooner, since there is work");
        assert_eq!(standstill.check(due + late, true), None);
        // A late timer that was reported elsewhere already.
        standstill.seen(due + late + SPAN + late);
        assert_eq!(standstill.check(due + late + SPAN + late, true), None);
    }

    #[test]
    fn a_timer_without_work_is_not_late() {
        let mut standstill = StandstillTimer::default();
        standstill.check(BEGIN, true);
        let back = BEGIN + Nanos::from_secs(1);
        standstill.begin(back);
        assert_eq!(standstill.check(back, true), None);
    }

    #[test]
    fn an_idle_sender_activates_its_host_at_most_sixty_times_a_second() {
        let mut standstill = StandstillTimer::default();
        let mut at = BEGIN;
        let mut wakes = 0;
        while at < BEGIN + Nanos::from_secs(1) {
            standstill.check(at, true);
            at = standstill.due().expect("a channel is open");
            wakes += 1;
        }
        assert!(wakes <= 60, "{wakes}");
    }
}
