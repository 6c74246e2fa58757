//! How far an application that runs on the engine's thread may be trusted with it.

use punctual_proto::Nanos;

/// Overruns that may be accidents (a hole, an interrupt) before a handler is demoted.
const OVERRUNS_TOLERATED: u64 = 3;
/// Calls in time that make up for one of them.
const CALLS_FORGIVING: u64 = 1_024;

/// Counts overruns of a declared time; some are forgiven.
#[derive(Debug)]
pub(crate) struct OverrunAllowance {
    declared: Nanos,
    calls: u64,
    /// Overruns that are forgiven.
    grace: u64,
}

impl OverrunAllowance {
    /// The allowance of a handler that declares to take no longer than `declared`.
    pub(crate) const fn new(declared: Nanos) -> Self {
        Self { declared, calls: 0, grace: OVERRUNS_TOLERATED }
    }

    /// Whether it has overrun lately.
    pub(crate) const fn is_suspect(&self) -> bool {
        self.grace < OVERRUNS_TOLERATED
    }

    /// Whether `took` is longer than was declared.
    pub(crate) fn is_over(&self, took: Nanos) -> bool {
        took > self.declared
    }

    /// Notes that the handler had the thread for `took`. Returns whether that was too long, and whether it
    /// may have the thread again.
    pub(crate) fn judge(&mut self, took: Nanos) -> (bool, bool) {
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS_FORGIVING) {
            self.grace = (self.grace + 1).min(OVERRUNS_TOLERATED);
        }
        let late = self.is_over(took);
        let is_tolerated = !late || self.grace > 0;
        if late {
            self.grace = self.grace.saturating_sub(1);
        }
        (late, is_tolerated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_overruns_is_suspect_until_it_has_kept_its_time_for_long() {
        let mut allowance = OverrunAllowance::new(Nanos(10));
        assert_eq!((allowance.judge(Nanos(10)), allowance.is_suspect()), ((false, true), false));
        assert_eq!((allowance.judge(Nanos(11)), allowance.is_suspect()), ((true, true), true));
        for _ in 0..CALLS_FORGIVING {
            assert_eq!(allowance.judge(Nanos(10)), (false, true));
        }
        assert!(!allowance.is_suspect());
    }
}
