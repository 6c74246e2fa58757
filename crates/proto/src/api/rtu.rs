//! Programs' handlers: their terms, grants and counters (RTU 3; ADR 0051).
//!
//! A handler that belongs to no channel is a real-time upcall: the node decides when it runs and for how many
//! data units (PDUs), and the node's driver calls it.

use core::fmt;

use punctual_analysis::{Nanos, Ppm, Refusal, RunPolicy};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Breach, RateRefusal};
use crate::ids::{Address, LinkId};
use crate::limits::{
    HEADER_BYTES, RAW_TAG_BYTES, RTU_HANDLERS_MAX, RTU_PACKETS_MAX, RTU_PRIORITIES, RTU_UNITS_MAX,
};

/// Identifies a program's handler; never reused while the node exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RtuId(pub u64);

/// Class of a program's handler: when it may run, and how much then (RTU 3.1, 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum RtuClass {
    /// Runs as soon as it has work. PDUs beyond the budget run as best effort.
    LowDelay {
        /// Length of the window of the budget.
        interval: Nanos,
        /// The budget: PDUs in any window.
        units: u32,
        /// Place among low-delay handlers, 0 the most urgent, at most [`RTU_PRIORITIES`] - 1. `None`: the interval gives the
        /// place, among the low-latency channels. Only the run order `rmdp` accepts a priority.
        priority: Option<u8>,
    },
    /// Processes at most its budget of PDUs in each period, and never more.
    Guaranteed {
        /// T: length of the period.
        period: Nanos,
        /// B_p: most PDUs in a period.
        units: u32,
        /// When work is released.
        #[serde(default, skip_serializing_if = "RtuActivation::is_periodic")]
        activation: RtuActivation,
    },
    /// Runs in time that no other work needs.
    BestEffort,
}

/// When a guaranteed handler is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RtuActivation {
    /// At multiples of the period on the host's clock: each release serves what came before it (RTU 3.1).
    #[default]
    Periodic,
    /// When a PDU comes, at most B_p times in any window of the length of the period. So a PDU that comes once a period
    /// need not wait for the period to begin. Handlers with shorter periods precede, as for periodic handlers:
    /// rate-monotonic analysis holds for sporadic tasks, too (Sprunt, Sha and Lehoczky 1989).
    Sporadic,
}

impl RtuActivation {
    const fn is_periodic(&self) -> bool {
        matches!(self, Self::Periodic)
    }
}

impl RtuClass {
    /// Guaranteed, released at the begin of each period.
    pub const fn periodic(period: Nanos, units: u32) -> Self {
        Self::Guaranteed { period, units, activation: RtuActivation::Periodic }
    }

    /// Length of a window, and PDUs of the budget in any such window. `None` if the budget counts by periods of the
    /// clock, or if there is none.
    pub const fn windows(self) -> Option<(Nanos, u32)> {
        match self {
            Self::LowDelay { interval, units, .. } => Some((interval, units)),
            Self::Guaranteed { period, units, activation: RtuActivation::Sporadic } => Some((period, units)),
            _ => None,
        }
    }

    /// Period of the clock, and PDUs of the budget in each period. `None` if the budget counts by windows, or if there
    /// is none.
    pub const fn periods(self) -> Option<(Nanos, u32)> {
        match self {
            Self::Guaranteed { period, units, activation: RtuActivation::Periodic } => Some((period, units)),
            _ => None,
        }
    }

    /// The same class; a guaranteed handler is released when its PDUs come.
    pub const fn sporadic(self) -> Self {
        match self {
            Self::Guaranteed { period, units, .. } => {
                Self::Guaranteed { period, units, activation: RtuActivation::Sporadic }
            }
            _ => self,
        }
    }
}

/// Processor time that a body declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// The terms that a program's handler asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtuTerms {
    /// Class of the handler.
    pub class: RtuClass,
    /// Longest time from a PDU's release until its processing ends. `None`: the period or interval. Ignored for best
    /// effort.
    pub deadline: Option<Nanos>,
    /// b_p: PDUs of one call at most, at least 1.
    pub quantum: u32,
    /// Declared time of the body.
    pub cost: RtuCost,
}

impl RtuTerms {
    /// The budget: a number of PDUs, and the time for which it holds. `None` for best effort.
    pub const fn budget(&self) -> Option<(u32, Nanos)> {
        match self.class {
            RtuClass::LowDelay { interval, units, .. } => Some((units, interval)),
            RtuClass::Guaranteed { period, units, .. } => Some((units, period)),
            RtuClass::BestEffort => None,
        }
    }
}

/// Destination of the packets of a program's handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RtuTarget {
    /// To a best-effort port. The node writes the header.
    Port(Address),
    /// Over a link, unchanged: IP packets of other protocols than Punctual's. A tag of [`RAW_TAG_BYTES`] follows each
    /// packet in the ring: a little-endian number that is not sent. It tells the node's driver where the packet goes
    /// ([`PacketOut::Raw`](super::PacketOut::Raw)).
    Link(LinkId),
}

/// What a program's handler sends: messages of one packet each. On this host's link, packets within the handler's budget
/// have reserved slots and are served like a channel's. On later hosts they are best effort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtuSending {
    /// Destination of the packets.
    pub to: RtuTarget,
    /// Largest number of packets that one PDU sends. All PDUs of a budget together send at most [`RTU_PACKETS_MAX`].
    pub packets: u32,
    /// Largest payload of a packet, in bytes; with [`RtuTarget::Link`] the largest packet without its tag. Longer messages
    /// are dropped.
    pub payload_bytes: u32,
}

impl RtuSending {
    /// Bytes of each packet beside its payload: Punctual's header, or the tag.
    pub const fn header_bytes(&self) -> u32 {
        match self.to {
            RtuTarget::Port(_) => HEADER_BYTES as u32,
            RtuTarget::Link(_) => RAW_TAG_BYTES as u32,
        }
    }
}

/// Status of what a handler sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtuSent {
    /// The link that the handler sends on.
    pub link: LinkId,
    /// Longest time from a PDU's release to the departure of its packets, within the budget. `None`: not guaranteed.
    pub bound: Option<Nanos>,
    /// Packets that were queued within the budget.
    pub packets: u64,
    /// Packets that were queued as best effort.
    pub packets_beyond: u64,
    /// Messages that were longer than declared.
    pub too_long: u64,
    /// Slots on the link: number of packets that may wait or be in transmission at once.
    pub slots: u32,
    /// Largest number of slots that were in use at once.
    pub slots_used_max: u32,
}

/// Admission's grant to a program's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtuGrant {
    /// Longest time from a PDU's release until its processing ends, with the declared time of the body.
    /// `None` for best effort, which has no guarantee.
    pub bound: Option<Nanos>,
    /// Longest time from that release to the departure of the last bit that the PDU sends. `None` if it is not
    /// guaranteed, or if the handler sends nothing.
    pub sent: Option<Nanos>,
    /// Reserved capacity of the processor, with this handler.
    pub cpu_utilisation: Ppm,
}

/// A field of a handler's terms that holds a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "they are the names of fields")]
pub enum RtuNumber {
    Quantum,
    Units,
    Period,
    Deadline,
    Cost,
    Priority,
    Packets,
    PayloadBytes,
}

impl fmt::Display for RtuNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quantum => "quantum",
            Self::Units => "units",
            Self::Period => "period",
            Self::Deadline => "deadline",
            Self::Cost => "cost",
            Self::Priority => "priority",
            Self::Packets => "packets",
            Self::PayloadBytes => "payload_bytes",
        })
    }
}

/// Refusal of a program's handler, with what could be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(rename_all = "kebab-case")]
pub enum RtuRefusal {
    /// A number is out of its range.
    #[error("{what}: give {least} to {most}")]
    Range {
        /// Field whose value is out of range.
        what: RtuNumber,
        /// Least value; times in nanoseconds.
        least: u64,
        /// Largest value.
        most: u64,
    },
    /// The processor's run order has neither classes nor budgets.
    #[error("the processor serves in the order \"{}\", which has no classes: set another run policy", .0.name())]
    NoClasses(RunPolicy),
    /// The processor's run order does not use priorities.
    #[error("a priority needs the run policy \"rmdp\", the processor has \"{}\": leave the priority out", .0.name())]
    NoPriorities(RunPolicy),
    /// One call takes longer than best effort may block all other work.
    #[error("a call of {call} is longer than a unit of best effort may be ({call_max}): {}", quantum_text(*quantum_possible))]
    Call {
        /// Time of one call, the node's part included.
        call: Nanos,
        /// The longest that it may take.
        call_max: Nanos,
        /// PDUs in a call that would be short enough; 0 if even one is too many.
        quantum_possible: u32,
    },
    /// Admission of the processor refused.
    #[error("the processor: {0}")]
    Processor(Refusal),
    /// Admission of the outgoing link refused.
    #[error("the link: {0}")]
    Link(Refusal),
    /// No route leads to the handler's destination.
    #[error("the host that it sends to is not known here, or no route leads to it: see the configuration")]
    NoRoute,
    /// The rate of the link is unknown, or is being measured.
    #[error("the rate of the link is not known: {0}")]
    Rate(RateRefusal),
    /// A stage breaks its bound, and the operator has configured that nothing is admitted meanwhile.
    #[error("the processor or the link breaks its promise now")]
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
    pub(crate) const fn units(what: RtuNumber) -> Self {
        Self::Range { what, least: 1, most: RTU_UNITS_MAX as u64 }
    }

    /// The refusal of a number of packets.
    pub(crate) const fn packets() -> Self {
        Self::Range { what: RtuNumber::Packets, least: 1, most: RTU_PACKETS_MAX as u64 }
    }

    /// The refusal of a priority.
    pub(crate) const fn priority() -> Self {
        Self::Range { what: RtuNumber::Priority, least: 0, most: RTU_PRIORITIES as u64 - 1 }
    }
}

/// What a body returns from one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtuProgress {
    /// Data units (PDUs) that the body processed. More than it was given means that it ignored the request to yield.
    pub units: u32,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// The result of one call of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpcallDone {
    /// PDUs that the body processed.
    pub units: u32,
    /// Whether more work is ready.
    pub more: bool,
    /// Time that the body alone took.
    pub took: Nanos,
}

/// Why a handler was demoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Misconduct {
    /// The handler's calls took longer than declared.
    Overrun,
    /// The handler processed more PDUs than it was given: it ignored the request to yield.
    IgnoredYield,
}

/// An event of a program's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtuEvent {
    /// The handler is registered and may be made ready.
    Granted(RtuId, RtuGrant),
    /// The handler was refused and is not registered.
    Refused(RtuId, RtuRefusal),
    /// The handler was demoted: from now on it runs in the background.
    Demoted(RtuId, Misconduct),
}

/// Counters of a program's handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtuCounters {
    /// Calls of its body.
    pub calls: u64,
    /// PDUs within the budget. For a program in another process: those that it was given.
    pub units: u64,
    /// PDUs beyond the budget, or of best effort.
    pub units_beyond: u64,
    /// Calls that took longer than declared, beyond what disturbances explain.
    pub overruns: u64,
    /// Calls that processed more PDUs than they were given.
    pub yields_ignored: u64,
    /// PDUs within the budget that were done later than promised.
    pub late: u64,
    /// Largest lateness of such PDUs.
    pub late_max: Nanos,
    /// Longest call of the body.
    pub took_max: Nanos,
    /// Ignored reports of a program in another process: they fit no call.
    pub reports_unmatched: u64,
}

/// Status of one program's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtuStatus {
    /// The handler.
    pub id: RtuId,
    /// The handler's terms.
    pub terms: RtuTerms,
    /// The granted bound. `None` before admission has decided, for best effort, and after a demotion.
    pub bound: Option<Nanos>,
    /// Why it was demoted, if it was.
    pub demoted: Option<Misconduct>,
    /// The handler's counters.
    pub counters: RtuCounters,
    /// What the handler has sent; `None` if it sends nothing.
    pub sent: Option<RtuSent>,
}
