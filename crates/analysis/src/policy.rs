//! The one interface of admission for every stage: a policy says yes with a bound, or no with the nearest offer.
//!
//! A policy owns the set of channels of one stage. `offer` changes nothing; `hold`, `relax` and `release` do.
//! Decisions are incremental: they do not recompute what the newcomer cannot change.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::policies::Admission;
use crate::statistical::Soft;
use crate::units::{Nanos, Ppm};

/// Class of a channel, which decides who goes first under `rmdp` (RTU 3). No other policy uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The channel goes before all guaranteed ones.
    LowLatency,
    /// The channel's place follows from its period.
    #[default]
    Guaranteed,
}

/// Who goes first under `rmdp`, the smaller the earlier: by class, then the shorter period, then the place that a
/// plan gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Urgency {
    /// Class of the channel.
    pub class: Class,
    /// The rate group: the channel's own period, or a shorter one where a plan says so.
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
    /// How early a message may be served (the horizon): jitter to fixed-priority policies, ignored by `edf`.
    pub early: Nanos,
    /// Place of the channel in the order of `rmdp`. No other policy uses it.
    pub urgency: Urgency,
    /// What the channel bears and declares where its guarantee is soft; only `statistical` asks, others admit
    /// its peak.
    pub soft: Option<Soft>,
}

impl Demand {
    /// This demand for a message whose packets are served as they come, where a unit is all the packets that
    /// are there. Such a message is more than one unit, however long a unit may be. Fixed orders need to know
    /// this (a message of one unit is safe from all others once it has begun); EDF does not.
    #[must_use]
    pub fn in_pieces(self) -> Self {
        Self { cost: self.cost.max(self.unit_cost_max + Nanos(1)), ..self }
    }
}

/// A yes of one stage: it can bound the channel by `bound`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// d: the smallest bound that the stage can promise, at most the limit that was asked for.
    pub bound: Nanos,
}

/// Why a stage says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum RefusalReason {
    /// Everything that may be given away is given away.
    #[error(
        "the stage would be used to {:.1} %, {:.1} % may be given away",
        f64::from(*wanted_ppm) / 1e4, f64::from(*limit_ppm) / 1e4
    )]
    Utilisation {
        /// Utilisation with the newcomer, in ppm.
        wanted_ppm: u32,
        /// Share that may be given away, in ppm.
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
        /// Wanted.
        wanted_bytes: u64,
        /// Free.
        free_bytes: u64,
    },
}

/// A no of one stage, with the nearest that it could do instead.
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

/// Names a channel within one stage; chosen by the caller, unique there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StageKey(pub u64);

/// What a bound is made of: the longest wait that a message of the channel can meet, part by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// r: until it is ready to be served.
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

    /// Reserves for `key` with `bound`, which must be feasible (it is tested), in place of what it holds; that stays where
    /// this is refused.
    ///
    /// # Errors
    /// A refusal where the bound is not feasible (any more).
    fn hold(&mut self, key: StageKey, demand: &Demand, bound: Nanos) -> Result<(), Refusal>;

    /// Moves the bound of a held channel; on an error the old bound stays.
    ///
    /// # Errors
    /// The refusal of a newcomer whose bound would break the bound of another channel.
    fn relax(&mut self, key: StageKey, bound: Nanos) -> Result<(), Refusal>;

    /// Gives back what `key` holds; `false` if it held nothing.
    fn release(&mut self, key: StageKey) -> bool;

    /// The bound that `key` holds.
    fn bound(&self, key: StageKey) -> Option<Nanos>;

    /// What the bound that `offer` would give is made of; `None` if it would refuse.
    fn explain(&mut self, demand: &Demand, bound_limit: Nanos) -> Option<Explanation>;

    /// Run-time rank under fixed priorities, 0 the most urgent; `None` if the order is another or `key`
    /// holds nothing.
    fn rank(&self, _key: StageKey) -> Option<usize> {
        None
    }

    /// Whether what `key` holds is soft: to be served after all that is not, before best effort.
    fn is_soft(&self, _key: StageKey) -> bool {
        false
    }

    /// Drops everything that speeds up the next decision; changes no decision. For benchmarks.
    fn drop_caches(&mut self);

    /// Share of the stage that all held channels use together.
    fn utilisation(&self) -> Ppm;

    /// Number of channels that are held.
    fn len(&self) -> usize;

    /// Whether none is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The policy that this is, beside its arithmetic.
    fn admission(&self) -> Admission;
}
