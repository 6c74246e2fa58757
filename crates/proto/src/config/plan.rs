//! A static schedule, as `punctual plan` writes it and a host loads it: each flow's place in the order of
//! `rmdp`, and its reservation in a period (RTU 3).
//!
//! A host holds the whole plan from its start on. A channel that names a flow takes over the flow's
//! reservation; its packets find their rate group through the channel's handler, without a search.

use alloc::vec::Vec;

use punctual_analysis::activation::policed;
use punctual_analysis::{Activation, Class, Contract, Demand, FlowName, Nanos, Urgency};
use serde::{Deserialize, Serialize};

use crate::ids::Name;

/// Version of a plan's file.
pub const PLAN_VERSION: u32 = 1;

/// The file of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// A part for each host.
    pub host: Vec<HostPlan>,
}

/// The flows that one host serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// The host.
    pub name: Name,
    /// Flows that are planned on the host.
    pub flow: Vec<PlannedFlow>,
}

/// A planned flow on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedFlow {
    /// Name of the flow.
    pub name: FlowName,
    /// Time between two expiries of the flow's timer, as a contract would state it.
    pub period_ns: Nanos,
    /// Packets of a period.
    pub packets: u32,
    /// Processor time that the packets of a period cost together.
    pub cost_ns: Nanos,
    /// Longest part of `cost_ns` that nothing preempts.
    pub unit_ns: Nanos,
    /// Time after the timer by which the packets are processed.
    pub deadline_ns: Nanos,
    /// The rate group: the policed period of its fastest flow.
    pub rate_ns: Nanos,
    /// The place in it.
    pub place: u8,
}

impl PlannedFlow {
    /// Time after the timer by which a period's packets are processed: before the next expiry.
    pub fn deadline(&self) -> Nanos {
        self.deadline_ns.min(policed(self.period_ns))
    }

    /// The demand of the flow for the processor.
    pub fn demand(&self, release_latency: Nanos) -> Demand {
        Demand {
            cost: self.cost_ns,
            unit_cost_max: self.unit_ns.min(self.cost_ns),
            period: policed(self.period_ns),
            release_latency,
            early: Nanos::ZERO,
            urgency: Urgency { class: Class::Guaranteed, rate: self.rate_ns, place: self.place },
            soft: None,
        }
    }

    /// The contract of a channel that uses this flow, as it is served here.
    pub fn serving(&self, contract: &Contract) -> Contract {
        let activation = Activation::Periodic { period: self.period_ns, packets: self.packets };
        Contract { activation, ..*contract }
    }
}
