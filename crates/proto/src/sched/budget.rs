//! The part of a handler's budget that is left.

use alloc::boxed::Box;

use punctual_analysis::{Instant, Nanos};

use super::parameters::{Budget, Trigger};

/// The account of one handler. Without a budget it never runs out. It is boxed because few handlers have one.
#[derive(Debug)]
pub(super) struct Account(Option<Box<Budgeted>>);

#[derive(Debug)]
struct Budgeted {
    budget: Budget,
    trigger: Trigger,
    /// Begin of the period that is charged; `None` before the first.
    began: Option<Instant>,
    left_packets: u32,
}

impl Account {
    pub(super) fn new(budget: Option<Budget>, trigger: Trigger) -> Self {
        let budgeted = |budget| Box::new(Budgeted { budget, trigger, began: None, left_packets: 0 });
        Self(budget.map(budgeted))
    }

    /// Earliest time at which work that arrives at `eligible` may begin.
    pub(super) fn release(&self, eligible: Instant) -> Instant {
        match self.0.as_deref() {
            Some(Budgeted { trigger: Trigger::Periodic, budget, .. }) => {
                let period = budget.period.0.max(1);
                Instant(eligible.0.div_ceil(period).saturating_mul(period))
            }
            _ => eligible,
        }
    }

    /// Begins a new period if the head PDU, eligible since `eligible`, or the clock belongs to one.
    pub(super) fn renew(&mut self, eligible: Instant, now: Instant) {
        let Some(Budgeted { budget, trigger, began, left_packets }) = self.0.as_deref_mut() else { return };
        let begins = match trigger {
            Trigger::Reactive => eligible,
            Trigger::Refilled => now,
            Trigger::Periodic => Instant(now.0 - now.0 % budget.period.0.max(1)),
        };
        if began.is_none_or(|began| begins >= began + budget.period.max(Nanos(1))) {
            *began = Some(begins);
            *left_packets = budget.packets;
        }
    }

    /// Deadline in the charged period of the head PDU, whose own deadline is `deadline`.
    pub(super) fn due(&self, deadline: Instant) -> Instant {
        match self.0.as_deref() {
            Some(Budgeted { trigger: Trigger::Periodic, budget, began: Some(began), .. }) => {
                deadline.min(*began + budget.deadline)
            }
            _ => deadline,
        }
    }

    pub(super) fn charge(&mut self, packets: u32) {
        if let Some(Budgeted { left_packets, .. }) = self.0.as_deref_mut() {
            *left_packets = left_packets.saturating_sub(packets);
        }
    }

    /// Packets of the next unit, if a quantum has `quantum_packets`: no unit crosses the end of a budget.
    pub(super) fn unit_packets(&self, quantum_packets: u32) -> u32 {
        match self.0.as_deref() {
            None => quantum_packets,
            Some(Budgeted { budget, left_packets: 0, .. }) => quantum_packets.min(budget.packets),
            Some(Budgeted { left_packets, .. }) => quantum_packets.min(*left_packets),
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        matches!(self.0.as_deref(), Some(Budgeted { began: Some(_), left_packets: 0, .. }))
    }

    /// Time at which the clock begins the next period, with a new budget and a new deadline.
    pub(super) fn refills(&self) -> Option<Instant> {
        match self.0.as_deref() {
            Some(Budgeted { trigger, budget, began: Some(began), .. }) if *trigger != Trigger::Reactive => {
                Some(*began + budget.period.max(Nanos(1)))
            }
            _ => None,
        }
    }
}
