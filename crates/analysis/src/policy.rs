//! The admission interface of every stage: a policy accepts with a bound, or refuses with the nearest offer.
//!
//! A policy owns the set of channels of one stage. `offer` changes nothing; `hold`, `relax` and `release` do.
//! Decisions are incremental: they do not recompute what the newcomer cannot change.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::admission::Admission;
use crate::statistical::Soft;
use crate::units::{Nanos, Ppm};

/// Class of a channel, which determines the order under `rmdp` (RTU 3). No other policy uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The channel precedes all guaranteed ones.
    LowLatency,
    /// The channel's place follows from its period.
    #[default]
    Guaranteed,
}

/// Order under `rmdp`, the smaller the earlier: by class, then the shorter period, then the place from a
/// plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Urgency {
    /// Class of the channel.
    pub class: Class,
    /// The rate group: the channel's own period, or a shorter one from a plan.
    pub rate: Nanos,
    /// Place of the channel in its rate group: 0 without a plan, at most [`PLACES_MAX`].
    pub place: u8,
}

/// Last place in a rate group that has an order of its own.
pub const PLACES_MAX: u8 = 63;

impl Urgency {
    /// The urgency that follows from the period alone.
    pub const fn of_period(class: Class, period: Nanos) -> Self {
        Self { class, rate: period, place: 0 }
    }
}

/// Demand of one channel on one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// C: the cost of a whole message here.
    pub cost: Nanos,
    /// The largest non-preemptible unit of it (a packet on a link, a quantum of PDUs on a CPU).
    pub unit_cost_max: Nanos,
    /// I': the period.
    pub period: Nanos,
    /// r: longest time from the effective arrival to being ready to be served.
    pub release_latency: Nanos,
    /// How early a message may be served (the horizon): jitter for fixed-priority policies, ignored by `edf`.
    pub early: Nanos,
    /// Place of the channel in the order of `rmdp`. No other policy uses it.
    pub urgency: Urgency,
    /// The mean rate and miss ratio of a soft channel; only `statistical` uses them, other policies admit its
    /// peak.
    pub soft: Option<Soft>,
}

impl Demand {
    /// This demand for a message whose packets are served as they arrive, where a unit is all packets that
    /// are present. Such a message is more than one unit, however long a unit may be. Fixed orders need this
    /// information (a message of one unit is safe from all others once it has begun); EDF does not.
    #[must_use]
    pub fn in_pieces(self) -> Self {
        Self { cost: self.cost.max(self.unit_cost_max + Nanos(1)), ..self }
    }
}

/// One stage's acceptance: it can bound the channel by `bound`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// d: the smallest bound that the stage can promise, at most the requested limit.
    pub bound: Nanos,
}

/// Why a stage refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum RefusalReason {
    /// All that may be reserved is reserved.
    #[error(
        "{:.1} % of the stage would be reserved, the limit is {:.1} %",
        f64::from(*wanted_ppm) / 1e4, f64::from(*limit_ppm) / 1e4
    )]
    Utilisation {
        /// Utilisation with the newcomer, in ppm.
        wanted_ppm: u32,
        /// Share that may be reserved, in ppm.
        limit_ppm: u32,
    },
    /// The channel could be served, but not within the limit.
    #[error("it needs {} at least, and {limit} of the deadline are left for it", possible.at_least())]
    Bound {
        /// Smallest feasible bound.
        possible: Nanos,
        /// Largest bound that was allowed.
        limit: Nanos,
    },
    /// An admitted channel would miss its bound.
    #[error("an admitted channel would miss its bound")]
    Others,
    /// Buffer memory is used up.
    #[error("{wanted_bytes} B of buffers wanted, {free_bytes} B free")]
    Buffers {
        /// Requested bytes.
        wanted_bytes: u64,
        /// Free bytes.
        free_bytes: u64,
    },
}

/// One stage's refusal, with its nearest offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{reason}")]
pub struct Refusal {
    /// Why the stage refuses.
    pub reason: RefusalReason,
    /// The smallest bound that this stage could promise for the same traffic, if any.
    pub bound_possible: Option<Nanos>,
    /// The shortest period (largest rate) that it could serve within the limit, if any.
    pub period_possible: Option<Nanos>,
}

/// Id of a channel within one stage; chosen by the caller, unique there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StageKey(pub u64);

/// The terms of a bound: the longest wait of a message of the channel, part by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// r: the time until it is ready to be served.
    pub release_latency: Nanos,
    /// Less urgent work that has begun.
    pub blocking: Nanos,
    /// Work that our scheduler does not order.
    pub interference: Nanos,
    /// The channel's own messages.
    pub own: Nanos,
    /// Time that more urgent work of other channels takes.
    pub others: Nanos,
}

/// Admission of one stage. Object-safe, so that an embedding program can bring its own.
pub trait AdmissionPolicy: core::fmt::Debug + Send {
    /// The smallest bound for a newcomer, at most `bound_limit`; holds nothing.
    ///
    /// # Errors
    /// A refusal with its reason and the nearest feasible offer.
    fn offer(&mut self, demand: &Demand, bound_limit: Nanos) -> Result<Offer, Refusal>;

    /// Reserves for `key` with `bound`, which must be feasible (it is tested), in place of its present
    /// reservation; that stays if this is refused.
    ///
    /// # Errors
    /// A refusal if the bound is not feasible (any more).
    fn hold(&mut self, key: StageKey, demand: &Demand, bound: Nanos) -> Result<(), Refusal>;

    /// Moves the bound of a held channel; on an error the old bound stays.
    ///
    /// # Errors
    /// The refusal of a newcomer whose bound would break the bound of another channel.
    fn relax(&mut self, key: StageKey, bound: Nanos) -> Result<(), Refusal>;

    /// Releases the reservation of `key`; `false` if it had none.
    fn release(&mut self, key: StageKey) -> bool;

    /// The bound that `key` holds.
    fn bound(&self, key: StageKey) -> Option<Nanos>;

    /// The terms of the bound that `offer` would return; `None` if it would refuse.
    fn explain(&mut self, demand: &Demand, bound_limit: Nanos) -> Option<Explanation>;

    /// Run-time rank under fixed priorities, 0 the most urgent; `None` under another order, or if `key` holds
    /// nothing.
    fn rank(&self, _key: StageKey) -> Option<usize> {
        None
    }

    /// Whether the reservation of `key` is soft: served after all hard channels, before best effort.
    fn is_soft(&self, _key: StageKey) -> bool {
        false
    }

    /// Drops everything that speeds up the next decision; changes no decision. For benchmarks.
    fn drop_caches(&mut self);

    /// Share of the stage that all held channels use together.
    fn utilisation(&self) -> Ppm;

    /// Number of channels that are held.
    fn len(&self) -> usize;

    /// Whether no channel is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The properties of this policy beside its arithmetic.
    fn admission(&self) -> Admission;
}
