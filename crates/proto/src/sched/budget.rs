//! What is left of a handler's budget.

use alloc::boxed::Box;

use punctual_analysis::{Instant, Nanos};

use super::parameters::{Budget, Trigger};

/// The account of one handler. Without a budget it never runs out.
#[derive(Debug)]
pub(super) struct Account {
    /// Boxed: few have one.
    budget: Option<Box<Budget>>,
    trigger: Trigger,
    /// When the period that is charged began; none before the first.
    began: Option<Instant>,
    left_packets: u32,
}

impl Account {
    pub(super) fn new(budget: Option<Budget>, trigger: Trigger) -> Self {
        Self { budget: budget.map(Box::new), trigger, began: None, left_packets: 0 }
    }

    /// When work that arrives at `eligible` may begin.
    pub(super) fn release(&self, eligible: Instant) -> Instant {
        match (self.trigger, &self.budget) {
            (Trigger::Periodic, Some(budget)) => {
                let period = budget.period.0.max(1);
                Instant(eligible.0.div_ceil(period).saturating_mul(period))
            }
            _ => eligible,
        }
    }

    /// Begins a new period where the head PDU, eligible since `eligible`, or the clock belongs to one.
    pub(super) fn renew(&mut self, eligible: Instant, now: Instant) {
        let Some(budget) = &self.budget else { return };
        let begins = match self.trigger {
            Trigger::Reactive => eligible,
            Trigger::Refilled => now,
            Trigger::Periodic => Instant(now.0 - now.0 % budget.period.0.max(1)),
        };
        if self.began.is_none_or(|began| begins >= began + budget.period.max(Nanos(1))) {
            self.began = Some(begins);
            self.left_packets = budget.packets;
        }
    }

    /// When the head PDU, due by `deadline` itself, is due in the period that is charged.
    pub(super) fn due(&self, deadline: Instant) -> Instant {
        match (self.trigger, &self.budget, self.began) {
            (Trigger::Periodic, Some(budget), Some(began)) => deadline.min(began + budget.deadline),
            _ => deadline,
        }
    }

    pub(super) fn charge(&mut self, packets: u32) {
        self.left_packets = self.left_packets.saturating_sub(packets);
    }

    /// Packets of the next unit, where a quantum has so many: no unit crosses the end of a budget.
    pub(super) fn unit_packets(&self, quantum_packets: u32) -> u32 {
        match (&self.budget, self.left_packets) {
            (None, _) => quantum_packets,
            (Some(budget), 0) => quantum_packets.min(budget.packets),
            (Some(_), left) => quantum_packets.min(left),
        }
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.began.is_some() && self.left_packets == 0
    }

    /// When the clock begins the next period, with a new budget and a new deadline.
    pub(super) fn refills(&self) -> Option<Instant> {
        match (self.trigger, &self.budget, self.began) {
            (Trigger::Periodic | Trigger::Refilled, Some(budget), Some(began)) => {
                Some(began + budget.period.max(Nanos(1)))
            }
            _ => None,
        }
    }
}
