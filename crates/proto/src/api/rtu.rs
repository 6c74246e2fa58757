//! Programs' handlers: their terms, grants and counters (RTU 3; ADR 0051).
//!
//! A handler that belongs to no channel is a real-time upcall: the node decides when it runs and for how many
//! data units (PDUs), and the node's driver calls it.

use punctual_analysis::{Nanos, Ppm, Refusal, RunPolicy};
use thiserror::Error;

use super::Breach;
use crate::limits::{RTU_HANDLERS_MAX, RTU_PRIORITIES, RTU_UNITS_MAX};

/// Id of a program's handler; never reused before the node restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RtuId(pub u64);

/// Class of a program's handler: when it may run, and for how long (RTU 3.1, 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtuClass {
    /// Runs as soon as it has work. PDUs beyond the budget run as best effort.
    LowDelay {
        /// Length of the window of the budget.
        interval: Nanos,
        /// The budget: PDUs in any window.
        units: u32,
        /// Place among low-delay handlers under `rmdp`, 0 the most urgent, at most [`RTU_PRIORITIES`] - 1. `None`: by the
        /// interval, among the low-latency channels. Only under `rmdp`.
        priority: Option<u8>,
    },
    /// Runs in each period, from the period's begin on.
    Guaranteed {
        /// T: time between two releases; they are multiples of it on the host's clock.
        period: Nanos,
        /// B_p: most PDUs in a period.
        units: u32,
    },
    /// Runs in time that no other work needs.
    BestEffort,
}

/// Processor time that a body declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtuCost {
    /// Time that each call takes, however many PDUs it has.
    pub run: Nanos,
    /// Time that each PDU takes.
    pub unit: Nanos,
}

impl RtuCost {
    /// Time of one call with so many PDUs.
    pub fn of(self, units: u32) -> Nanos {
        self.run + self.unit * u64::from(units)
    }
}

/// The requirements of a program's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtuTerms {
    /// Class of the handler.
    pub class: RtuClass,
    /// Longest time from a PDU's release to its end. `None`: the period or interval. Without meaning for best effort.
    pub deadline: Option<Nanos>,
    /// b_p: PDUs of one call at most, at least 1.
    pub quantum: u32,
    /// Declared time of the body.
    pub cost: RtuCost,
}

impl RtuTerms {
    /// PDUs of the budget and the time that it is for; `None` for best effort.
    pub const fn budget(&self) -> Option<(u32, Nanos)> {
        match self.class {
            RtuClass::LowDelay { interval, units, .. } => Some((units, interval)),
            RtuClass::Guaranteed { period, units } => Some((units, period)),
            RtuClass::BestEffort => None,
        }
    }
}

/// An accepted program's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtuGrant {
    /// Longest time from a PDU's release (with its budget) to its end, the body's declared time included.
    /// `None` for best effort, which has no guarantee.
    pub bound: Option<Nanos>,
    /// Utilisation of the processor that admission has reserved now.
    pub cpu_utilisation: Ppm,
}

/// A refused program's handler, with what could be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RtuRefusal {
    /// A number is out of its range.
    #[error("{what}: give {least} to {most}")]
    Range {
        /// The number, by the name of its field.
        what: &'static str,
        /// Least value; times in nanoseconds.
        least: u64,
        /// Largest value.
        most: u64,
    },
    /// The processor's run order has neither classes nor budgets.
    #[error("the processor serves in the order \"{}\", which has no classes: set another run policy", .0.name())]
    NoClasses(RunPolicy),
    /// The processor's run order cannot honour a priority.
    #[error("a priority needs the run policy \"rmdp\", the processor has \"{}\": leave the priority out", .0.name())]
    NoPriorities(RunPolicy),
    /// One call takes longer than best effort may block all other work.
    #[error("a call of {call} is longer than a unit of best effort may be ({call_max}): {}", quantum_text(*quantum_possible))]
    Call {
        /// Time of one call, the node's part included.
        call: Nanos,
        /// The longest that it may take.
        call_max: Nanos,
        /// PDUs of a call that would fit; 0 if none does.
        quantum_possible: u32,
    },
    /// Admission of the processor refused.
    #[error("the processor: {0}")]
    Processor(Refusal),
    /// The processor breaks its promise, and the operator has configured that nothing is admitted meanwhile.
    #[error("the processor breaks its promise now")]
    Broken(Breach),
    /// The limit of handlers is reached.
    #[error("{RTU_HANDLERS_MAX} handlers are registered already: remove one")]
    Exhausted,
}

fn quantum_text(quantum: u32) -> alloc::string::String {
    match quantum {
        0 => "declare less time for it, or register it as guaranteed".into(),
        fits => alloc::format!("set its quantum to {fits}"),
    }
}

impl RtuRefusal {
    /// The refusal of a number of PDUs.
    pub(crate) const fn units(what: &'static str) -> Self {
        Self::Range { what, least: 1, most: RTU_UNITS_MAX as u64 }
    }

    /// The refusal of a priority.
    pub(crate) const fn priority() -> Self {
        Self::Range { what: "priority", least: 0, most: RTU_PRIORITIES as u64 - 1 }
    }
}

/// The result of one call of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpcallDone {
    /// PDUs that it processed.
    pub units: u32,
    /// Whether more work is ready.
    pub more: bool,
    /// Time that the body alone took.
    pub took: Nanos,
}

/// Why a handler was demoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misconduct {
    /// Its calls took longer than it has declared.
    Overrun,
    /// It processed more PDUs than it was given: it ignored the request to yield.
    IgnoredYield,
}

/// An event of a program's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtuEvent {
    /// It is registered and may be made ready.
    Granted(RtuId, RtuGrant),
    /// It is not registered.
    Refused(RtuId, RtuRefusal),
    /// It runs in the background from now on.
    Demoted(RtuId, Misconduct),
}

/// Counters of a program's handler: its work, and how it was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtuCounters {
    /// Calls of its body.
    pub calls: u64,
    /// PDUs within its budget.
    pub units: u64,
    /// PDUs beyond the budget, or of best effort.
    pub units_beyond: u64,
    /// Calls that took longer than declared, beyond what disturbances explain.
    pub overruns: u64,
    /// Calls that processed more PDUs than they were given.
    pub yields_ignored: u64,
    /// PDUs within the budget that were done later than promised.
    pub late: u64,
    /// Largest lateness of these.
    pub late_max: Nanos,
    /// Longest call of the body.
    pub took_max: Nanos,
}

/// Status of one program's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtuStatus {
    /// The handler.
    pub id: RtuId,
    /// Its terms.
    pub terms: RtuTerms,
    /// Its bound; `None` while it waits for the reply of admission, for best effort, and once it is demoted.
    pub bound: Option<Nanos>,
    /// Why it was demoted, if it was.
    pub demoted: Option<Misconduct>,
    /// Its counters.
    pub counters: RtuCounters,
}
