//! The included policies, each an [`AdmissionPolicy`](crate::AdmissionPolicy) of one stage.
//!
//! To add a policy, write a module with a [`Policy`](crate::Policy), and add a line to the table below. Each
//! policy belongs to one run-time order: `edf` and `d-order` to EDF, `statistical` to EDF with soft channels behind
//! all others, `fixed-priority` to the levels of [`level`], `rmdp` to classes and periods, `fifo` to FIFO.
//! Sums are exact integers; all work per decision is bounded.

#[macro_use]
mod all;
mod nearest;
mod share;
#[cfg(test)]
mod testing;

// For each module: its policies, each with what it is and the order of serving at run time.
policies! {
    pub mod edf: EDF = "Demand-bound test; run time EDF.";
    pub mod ranked:
        D_ORDER = "The papers' D_order; run time EDF.",
        FIXED_PRIORITY = "Fixed-priority response times; run time fixed priority.",
        RMDP = "Response times by class and period; run time `rmdp`.";
    pub mod statistical:
        STATISTICAL = "`edf` for hard channels, probabilities for soft ones; run time EDF, soft channels behind.";
    mod fifo: FIFO = "No policy: everything is admitted. For experiments only; run time FIFO.";
}

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
