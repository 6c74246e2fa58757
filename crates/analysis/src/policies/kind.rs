//! The properties of an admission policy beside its arithmetic. Each policy defines them once, for all code
//! that configures or calls it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use core::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};
use thiserror::Error;

use super::{edf, fifo, ranked, statistical};
use crate::policy::AdmissionPolicy;
use crate::stage::StageModel;

/// The run order of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunPolicy {
    /// EDF: the handler whose head message has the earliest deadline is served first.
    #[default]
    Edf,
    /// Fixed priorities in 32 levels; FIFO within a level.
    FixedPriority,
    /// By class (low latency, guaranteed, best effort), then by period, the shorter first; FIFO within a
    /// period (RTU 3).
    Rmdp,
    /// FIFO, the baseline for experiments.
    Fifo,
}

impl RunPolicy {
    /// All run orders.
    pub const ALL: [Self; 4] = [Self::Edf, Self::FixedPriority, Self::Rmdp, Self::Fifo];

    /// Name of the order, as the configuration spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Edf => "edf",
            Self::FixedPriority => "fixed-priority",
            Self::Rmdp => "rmdp",
            Self::Fifo => "fifo",
        }
    }

    /// The included policies whose bounds hold under this order; the first is the default.
    pub fn admissions(self) -> impl Iterator<Item = Admission> {
        Admission::ALL.into_iter().filter(move |admission| admission.run == self)
    }
}

/// The public properties of an admission policy. A program that embeds an engine may bring its own: see
/// [`Admission::new`].
#[derive(Debug)]
pub struct Policy {
    /// Name of the policy, as the configuration spells it (`edf`, `d-order`, ...).
    pub name: &'static str,
    /// The order of serving under which its bounds hold. Links serve by deadline.
    pub run: RunPolicy,
    /// True if the policy's decisions depend on how early messages may come
    /// ([`Demand::early`](crate::Demand::early)). Otherwise it is not notified of a change.
    pub counts_early: bool,
    /// True if the policy computes response times in the order in which channels are served. It must then be
    /// given messages in several pieces with pauses between them as such.
    pub has_fixed_order: bool,
    /// True if the policy's bounds hold while the remaining part of the link changes, as it does if kernel
    /// traffic has a share that follows admission. Such a policy computes with sums of densities alone.
    pub bears_changing_share: bool,
    /// Builds the policy for an empty stage.
    pub build: fn(StageModel) -> Box<dyn AdmissionPolicy>,
}

/// The policy that admits channels to a stage. Two policies are the same if their names are.
#[derive(Clone, Copy)]
pub struct Admission(&'static Policy);

impl Admission {
    /// Demand-bound test; run time EDF.
    pub const EDF: Self = Self(&edf::POLICY);
    /// The papers' D_order; run time EDF.
    pub const D_ORDER: Self = Self(&ranked::D_ORDER);
    /// Fixed-priority response times; run time fixed priority.
    pub const FIXED_PRIORITY: Self = Self(&ranked::FIXED_PRIORITY);
    /// Response times by class and period; run time `rmdp`.
    pub const RMDP: Self = Self(&ranked::RMDP);
    /// `edf` for hard channels, probabilities for soft ones; run time EDF, soft channels behind.
    pub const STATISTICAL: Self = Self(&statistical::POLICY);
    /// No policy: everything is admitted. For experiments only; run time FIFO.
    pub const FIFO: Self = Self(&fifo::POLICY);

    /// Included policies, which a configuration can name.
    pub const ALL: [Self; 6] =
        [Self::EDF, Self::D_ORDER, Self::FIXED_PRIORITY, Self::RMDP, Self::STATISTICAL, Self::FIFO];

    const NAMES: [&str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = Self::ALL[at].0.name;
            at += 1;
        }
        names
    };

    /// A policy of an embedding program. Its name must be none of [`Admission::ALL`].
    pub const fn new(policy: &'static Policy) -> Self {
        Self(policy)
    }
}

impl Deref for Admission {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        self.0
    }
}

impl Default for Admission {
    fn default() -> Self {
        Self::EDF
    }
}

impl PartialEq for Admission {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Admission {}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// There is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no admission policy \"{name}\": use {}", one_of(Admission::NAMES))]
pub struct UnknownPolicy {
    /// The requested name.
    pub name: String,
}

impl FromStr for Admission {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|admission| admission.name == name);
        found.ok_or_else(|| UnknownPolicy { name: name.into() })
    }
}

impl Serialize for Admission {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Admission {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|_| D::Error::unknown_variant(&name, &Self::NAMES))
    }
}

/// An empty stage under the policy called `name`.
///
/// # Errors
/// If there is no such policy.
pub fn policy_by_name(name: &str, model: StageModel) -> Result<Box<dyn AdmissionPolicy>, UnknownPolicy> {
    name.parse::<Admission>().map(|admission| (admission.build)(model))
}

/// "edf, d-order or statistical": a list of choices for messages.
pub fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<_> = names.into_iter().collect();
    match (names.pop(), names.is_empty()) {
        (None, _) => String::new(),
        (Some(last), true) => last.to_string(),
        (Some(last), false) => format!("{} or {last}", names.join(", ")),
    }
}

/// The valid pairs of run order and policy: "edf with edf, d-order or statistical, fixed-priority with ...".
pub fn pairs_text() -> String {
    let pair = |run: RunPolicy| {
        format!("{} with {}", run.name(), one_of(run.admissions().map(|admission| admission.name)))
    };
    RunPolicy::ALL.map(pair).join(", ")
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
            assert_eq!(policy_by_name(name, model).unwrap().admission().name, name);
        }
        let unknown = policy_by_name("rr", model).unwrap_err();
        assert_eq!(
            format!("{unknown}"),
            "no admission policy \"rr\": use edf, d-order, fixed-priority, rmdp, statistical or fifo"
        );
    }

    #[test]
    fn each_order_of_serving_has_a_policy_of_its_own() {
        let of_own_name = |run: RunPolicy| run.admissions().next().map(|admission| admission.name);
        for run in RunPolicy::ALL {
            assert_eq!(of_own_name(run), Some(run.name()));
        }
        assert_eq!(
            pairs_text(),
            "edf with edf, d-order or statistical, fixed-priority with fixed-priority, rmdp with rmdp, fifo with fifo"
        );
    }
}
