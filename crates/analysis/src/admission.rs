//! The properties of an admission policy beside its arithmetic. Each policy defines them once, for all code
//! that configures or calls it.

use alloc::boxed::Box;
use core::fmt;
use core::ops::Deref;

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
    /// A policy of an embedding program. Its name must be none of [`Admission::ALL`].
    pub const fn new(policy: &'static Policy) -> Self {
        Self(policy)
    }

    /// The policy's properties; callable in constants.
    pub(crate) const fn policy(self) -> &'static Policy {
        self.0
    }
}

impl Deref for Admission {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        self.0
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
