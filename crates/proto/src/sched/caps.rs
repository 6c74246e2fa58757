//! Caps on best-effort processing: on its total, on each flow, and on all protocol processing; and the times in which it
//! gives way to programs.
//!
//! Charges are the declared costs of completed work. The caller refunds the time that a unit did not take, so
//! that generous costs leave no idle time unused. Only best effort and work beyond budgets ever waits:
//! guaranteed work is within what admission has reserved, and that is within the cap of all work.

use punctual_analysis::{Instant, Nanos, Ppm};

use crate::limits::{BEST_EFFORT_PAUSE, CPU_CAP_WINDOW};

/// A share of the processor, as a token bucket of [`CPU_CAP_WINDOW`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    share: Ppm,
    /// Time at which all completed work is paid for.
    tat: Instant,
}

impl Bucket {
    /// `None` if the share is no cap.
    pub(crate) fn of(share: Ppm) -> Option<Self> {
        (share < Ppm::ONE).then_some(Self { share, tat: Instant::ZERO })
    }

    /// Charges `cost`; returns the time until which the bucket is empty.
    pub(crate) fn charge(&mut self, cost: Nanos, now: Instant) -> Option<Instant> {
        self.tat = self.tat.max(now) + self.price(cost);
        self.spent_until(now)
    }

    /// Refunds `saved`, the part of the last charge that was not used.
    fn refund(&mut self, saved: Nanos) {
        self.tat = self.tat - self.price(saved);
    }

    /// Time in which the share earns `cost`. A share of nothing counts as a millionth.
    fn price(&self, cost: Nanos) -> Nanos {
        let share = self.share.0.max(1);
        // All but absurd costs (five hours) fit; a division of 128 bits takes several times as long.
        if let Some(parts) = cost.0.checked_mul(1_000_000) {
            return Nanos(parts.div_ceil(share.into()));
        }
        let paid = (u128::from(cost.0) * 1_000_000).div_ceil(share.into());
        Nanos(u64::try_from(paid).unwrap_or(u64::MAX))
    }

    /// Time until which the bucket is empty; `None` if it is not.
    pub(crate) fn spent_until(&self, now: Instant) -> Option<Instant> {
        Some(self.tat - CPU_CAP_WINDOW).filter(|until| *until > now)
    }
}

/// The caps of one processor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Caps {
    all: Option<Bucket>,
    best_effort: Option<Bucket>,
    /// Whether the last charge was for best effort: a refund goes to the same buckets.
    last_was_best_effort: bool,
    /// Time until which best effort waits for its caps.
    throttled: Option<Instant>,
    best_effort_pause: BestEffortPause,
}

/// The pause in which best effort leaves the CPU to programs: at most half of the time, however often programs are woken.
#[derive(Clone, Copy, Debug, Default)]
struct BestEffortPause {
    until: Option<Instant>,
    /// Best effort does not pause again before this time.
    not_before: Instant,
}

impl Caps {
    pub(super) fn new(all: Ppm, best_effort: Ppm) -> Self {
        Self { all: Bucket::of(all), best_effort: Bucket::of(best_effort), ..Self::default() }
    }

    /// Charges completed work of `cost`.
    pub(super) fn charge(&mut self, cost: Nanos, is_best_effort: bool, now: Instant) {
        self.last_was_best_effort = is_best_effort;
        let all = self.all.as_mut().and_then(|bucket| bucket.charge(cost, now));
        let own = self.best_effort.as_mut().filter(|_| is_best_effort);
        let own = own.and_then(|bucket| bucket.charge(cost, now));
        // `None` orders before any time.
        self.throttled = self.throttled.max(all).max(own);
    }

    /// Refunds `saved`, the part of the last charged work that was not used.
    pub(super) fn refund(&mut self, saved: Nanos, now: Instant) {
        let was_best_effort = self.last_was_best_effort;
        if let Some(bucket) = &mut self.all {
            bucket.refund(saved);
        }
        if let Some(bucket) = self.best_effort.as_mut().filter(|_| was_best_effort) {
            bucket.refund(saved);
        }
        let spent_until = |bucket: Option<Bucket>| bucket.and_then(|bucket| bucket.spent_until(now));
        self.throttled = spent_until(self.all).max(spent_until(self.best_effort));
    }

    /// Clears a wait that is over.
    pub(super) fn settle(&mut self, now: Instant) {
        self.throttled = self.throttled.filter(|until| *until > now);
        self.best_effort_pause.until = self.best_effort_pause.until.filter(|until| *until > now);
    }

    /// Best effort waits for [`BEST_EFFORT_PAUSE`] from `now` on, unless it has just done so: then it may run for as long as it waited.
    pub(super) fn pause_best_effort(&mut self, now: Instant) {
        if now >= self.best_effort_pause.not_before {
            self.best_effort_pause = BestEffortPause {
                until: Some(now + BEST_EFFORT_PAUSE),
                not_before: now + BEST_EFFORT_PAUSE * 2,
            };
        }
    }

    /// Time until which best effort waits, as far as `settle` knows; `None` if it does not wait.
    pub(super) fn throttled(&self) -> Option<Instant> {
        self.throttled.max(self.best_effort_pause.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A share earns a charge in the time cost / share, rounded up to the nanosecond, for any size.
    #[test]
    fn a_share_earns_a_cost_in_its_time() {
        let price = |share, cost| Bucket::of(Ppm(share)).expect("a cap").price(Nanos(cost)).0;
        for (share, cost, paid) in [
            (500_000, 0, 0),
            (500_000, 1_000_000, 2_000_000),
            (999_999, 999_999, 1_000_000),
            (3, 1, 333_334),
            (2, 1, 500_000),
            (1, 1, 1_000_000),
            (1, 1 << 44, 1_000_000 << 44),
            // Less than a share can be counts as the least.
            (0, 1, 1_000_000),
            (0, 1 << 50, u64::MAX),
            (10_000, 1 << 50, 100 << 50),
            (250_000, 1 << 61, 1 << 63),
            (900_000, (1 << 50) + 1, 1_250_999_896_491_806),
            (1, 1 << 50, u64::MAX),
        ] {
            assert_eq!(price(share, cost), paid, "{cost} of {share} ppm");
        }
    }
}
