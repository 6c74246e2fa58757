//! The included policies, each an [`AdmissionPolicy`](crate::AdmissionPolicy) of one stage.
//!
//! To add a policy, write a module with a [`Policy`](crate::Policy), and add a line to
//! [`Admission::ALL`](crate::Admission::ALL). Each policy
//! belongs to one run-time order: `edf` and `d-order` to EDF, `statistical` to EDF with soft channels behind
//! all others, `fixed-priority` to the levels of [`level`], `rmdp` to classes and periods, `fifo` to FIFO.
//! Sums are exact integers; all work per decision is bounded.

mod all;
pub mod edf;
mod fifo;
mod nearest;
pub mod ranked;
mod share;
pub mod statistical;
#[cfg(test)]
mod testing;

pub use all::{UnknownPolicy, one_of, pairs_text, policy_by_name};
pub use edf::Edf;
pub use fifo::Fifo;
pub use ranked::{LEVELS, Ranked, level};
pub use statistical::Statistical;

use crate::policy::{Refusal, RefusalReason};

/// The refusal of a change to a channel that is not held.
fn not_held() -> Refusal {
    Refusal { reason: RefusalReason::Others, bound_possible: None, period_possible: None }
}
