//! Parameters of handlers.

use punctual_analysis::{Instant, Nanos};

/// Kind of work of a handler, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// RTCOP and HELLO; budgeted, so that a flood of it starves no other handler.
    Signalling,
    /// Channels with a low-latency activation: before all others under `rmdp`, equal to them under other
    /// orders.
    LowLatency,
    /// Channels.
    Guaranteed,
    /// Soft channels: by deadline, after all hard channels. Only under `edf`; equal to channels under other
    /// orders.
    Soft,
    /// Best effort and demoted packets.
    BestEffort,
    /// Work that may wait for all other work, and work beyond a budget.
    Background,
}

/// Event that makes a handler eligible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// Work: eligible from its effective arrival on.
    #[default]
    Reactive,
    /// Work, with a budget that the clock refills as soon as it is used again, a period after it was begun:
    /// for work without an effective arrival of its own. The head of the work beyond the budget does not wait
    /// in the background forever.
    Refilled,
    /// A timer: eligible from the first multiple of the budget's period at or after the work's arrival on.
    /// Under `edf` its deadline is the budget's deadline after the timer.
    Periodic,
}

/// The PDUs that a handler may process at its own urgency; beyond them, it runs in the background (CLIPS
/// 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// PDUs in each period.
    pub packets: u32,
    /// Length of a period. Reactive: a new period begins with the first activation whose effective arrival is
    /// at least this much later than the one that began the last period. Late work therefore spends the
    /// budget of its own period and not of the next one. Refilled: a new period begins with the first PDU
    /// that is done this much later. Periodic: periods follow the clock.
    pub period: Nanos,
    /// Periodic: time from the timer until a period's PDUs are done; at most the period. Reactive: no
    /// meaning, because the head PDU has its own deadline.
    pub deadline: Nanos,
}

/// A handler's place in the order of handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerParameters {
    /// Class of the handler.
    pub class: Class,
    /// Rank of a guaranteed handler under fixed priority, 0 the most urgent; ranks from
    /// [`PRIORITY_LEVELS`](crate::limits::PRIORITY_LEVELS) - 3 on share one level.
    pub level: u8,
    /// Period of the handler. Under `rmdp` the shorter period goes first within a class.
    pub period: Nanos,
    /// Place of the handler. Under `rmdp` the smaller place goes first within a class and period (a planned
    /// flow's place in its rate group).
    pub place: u8,
    /// b_p: PDUs finished before a yield is honoured (RTU 3), and a best-effort handler's turn; at least 1.
    pub quantum_packets: u32,
    /// Budget of the handler. `None`: no limit.
    pub budget: Option<Budget>,
    /// Timer or work.
    pub trigger: Trigger,
}

/// A handler's head PDU: its eligible time and its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Effective arrival e, less what the stage may be early.
    pub eligible: Instant,
    /// e + d of its message.
    pub deadline: Instant,
}
