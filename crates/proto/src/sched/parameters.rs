//! What an executor is told about handlers.

use punctual_analysis::{Instant, Nanos};

/// Names a handler of one executor; valid from `add` to `remove`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerId(pub u32);

/// What kind of work a handler does, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// RTCOP and HELLO; budgeted, so that a flood of it starves nobody.
    Signalling,
    /// Channels with a low-latency activation: before all others under `rmdp`, like them under other orders.
    LowLatency,
    /// Channels.
    Guaranteed,
    /// Soft channels: by deadline, after all that are hard. Only under `edf`; like channels under other orders.
    Soft,
    /// Best effort and demoted packets.
    BestEffort,
    /// What may wait for everything else; also what exceeds a budget.
    Background,
}

/// What makes a handler eligible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// Work: from its effective arrival on.
    #[default]
    Reactive,
    /// Work, with a budget that the clock refills as soon as it is used again, a period after it was begun: for work
    /// without an effective arrival of its own. The head of what exceeds it does not wait in the background for good.
    Refilled,
    /// A timer: from the first multiple of the budget's period at or after the work's arrival on; due, under
    /// `edf`, by the budget's deadline from the timer on.
    Periodic,
}

/// What a handler may do at its own urgency; beyond it, it runs in the background (CLIPS 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// PDUs in each period.
    pub packets: u32,
    /// Length of a period. Reactive: a new period begins with the first activation whose effective arrival is
    /// at least this much later than the one that began the last period. Late work therefore spends the
    /// budget of its own period and not of the next one. Refilled: a new period begins with the first PDU
    /// that is done this much later. Periodic: periods follow the clock.
    pub period: Nanos,
    /// Periodic: by when, from the timer on, a period's PDUs are done; at most the period. Reactive: without
    /// meaning, the head PDU says when it is due.
    pub deadline: Nanos,
}

/// A handler's place in the order of handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerParameters {
    /// Class of the handler.
    pub class: Class,
    /// Rank of a guaranteed handler under fixed priority, 0 the most urgent; from
    /// [`PRIORITY_LEVELS`](crate::limits::PRIORITY_LEVELS) - 3 on all are one level.
    pub level: u8,
    /// Period of the handler. Under `rmdp` the shorter period goes first within a class.
    pub period: Nanos,
    /// Place of the handler. Under `rmdp` the smaller place goes first within a class and period (a planned
    /// flow's place in its rate group).
    pub place: u8,
    /// b_p: PDUs finished before a yield is honoured (RTU 3), and a best-effort handler's turn; at least 1.
    pub quantum_packets: u32,
    /// Budget of the handler. `None`: it may use all the time that there is.
    pub budget: Option<Budget>,
    /// Timer or work.
    pub trigger: Trigger,
}

/// A handler's head PDU: when it may be processed and how urgent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Effective arrival e, less what the stage may be early.
    pub eligible: Instant,
    /// e + d of its message.
    pub deadline: Instant,
}
