//! The policies that come with Punctual, each an [`AdmissionPolicy`] of one stage.
//!
//! Each belongs to one run-time order: `edf` and `d-order` to EDF, `statistical` to EDF with soft channels
//! behind all others, `fixed-priority` to the levels of [`level`], `rmdp` to classes and periods, `fifo` to FIFO. Sums are exact integers; all work per decision is bounded.

pub mod edf;
mod fifo;
mod nearest;
pub mod ranked;
mod share;
pub mod statistical;
#[cfg(test)]
mod testing;

use alloc::boxed::Box;
use alloc::string::String;
use core::str::FromStr;

use thiserror::Error;

pub use edf::Edf;
pub use fifo::Fifo;
pub use ranked::{LEVELS, Ranked, level};
pub use statistical::Statistical;

use crate::policy::{AdmissionPolicy, Refusal, RefusalReason};
use crate::stage::StageModel;

/// The policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// [`Edf`].
    Edf,
    /// [`Ranked::d_order`].
    DOrder,
    /// [`Ranked::fixed_priority`].
    FixedPriority,
    /// [`Ranked::rmdp`].
    Rmdp,
    /// [`Statistical`].
    Statistical,
    /// [`Fifo`].
    Fifo,
}

/// No such policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no admission policy \"{name}\": use edf, d-order, fixed-priority, rmdp, statistical or fifo")]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
}

impl PolicyKind {
    /// An empty stage under this policy.
    pub fn build(self, model: StageModel) -> Box<dyn AdmissionPolicy> {
        match self {
            Self::Edf => Box::new(Edf::new(model)),
            Self::DOrder => Box::new(Ranked::d_order(model)),
            Self::FixedPriority => Box::new(Ranked::fixed_priority(model)),
            Self::Rmdp => Box::new(Ranked::rmdp(model)),
            Self::Statistical => Box::new(Statistical::new(model)),
            Self::Fifo => Box::new(Fifo::new(&model)),
        }
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        match name {
            "edf" => Ok(Self::Edf),
            "d-order" => Ok(Self::DOrder),
            "fixed-priority" => Ok(Self::FixedPriority),
            "rmdp" => Ok(Self::Rmdp),
            "statistical" => Ok(Self::Statistical),
            "fifo" => Ok(Self::Fifo),
            _ => Err(UnknownPolicy { name: name.into() }),
        }
    }
}

/// An empty stage under the policy called `name`.
///
/// # Errors
/// Where there is no such policy.
pub fn policy_by_name(name: &str, model: StageModel) -> Result<Box<dyn AdmissionPolicy>, UnknownPolicy> {
    name.parse::<PolicyKind>().map(|kind| kind.build(model))
}

/// The refusal of a change to a channel that is not held.
fn not_held() -> Refusal {
    Refusal { reason: RefusalReason::Others, bound_possible: None, period_possible: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blocking, Interference, Nanos, Ppm};

    #[test]
    fn policies_are_found_by_name() {
        let blocking = Blocking::Pipeline(Nanos::ZERO);
        let interference = Interference::default();
        let model = StageModel { blocking, interference, utilisation_limit: Ppm::ONE };
        for name in ["edf", "d-order", "fixed-priority", "rmdp", "statistical", "fifo"] {
            assert_eq!(policy_by_name(name, model).unwrap().name(), name);
        }
        let unknown = policy_by_name("rr", model).unwrap_err();
        assert!(alloc::format!("{unknown}").contains("\"rr\""));
    }
}
