//! The admission state of one link, and how it begins: with the link's own signalling.

use alloc::boxed::Box;
use alloc::format;

use punctual_analysis::{AdmissionPolicy, Contract, Demand, Link, Nanos, Ppm};

use super::buffers::Pool;
use super::models::hold_signalling;
use crate::api::{Breach, RateRefusal};
use crate::config::{self, Admission, Degraded, NodeConfigError, link_model};
use crate::limits::{FRAMES_GUARANTEED_DIVISOR, SIGNAL_PERIODS_BESIDE_KERNEL};

/// Admission state of one link, without its policy.
pub(super) struct LinkStage {
    pub(super) model: Link,
    pub(super) admission: Admission,
    /// Reserved utilisation, as of the last time that the policies were here.
    pub(super) utilisation: Ppm,
    pub(super) propagation_max: Nanos,
    pub(super) packet_bytes_max: u32,
    pub(super) packet_best_effort_bytes_max: u32,
    pub(super) signal_bound: Nanos,
    pub(super) signal_demand: Demand,
    /// Why its bounds are no guarantees.
    pub(super) degraded: Option<Degraded>,
    /// Frames that channels may reserve, and frames that are reserved.
    pub(super) frames_max: u32,
    pub(super) frames: u32,
    pub(super) pool: Pool,
    /// The breach, if the link breaks its promise.
    pub(super) breach: Option<Breach>,
    /// Why the drain rate of the link is unknown; `None` if it is known.
    pub(super) rate_unknown: Option<RateRefusal>,
}

/// Admission of one link, which already holds the link's signalling.
pub(super) struct LinkAdmission {
    pub(super) model: Link,
    pub(super) policy: Box<dyn AdmissionPolicy>,
    pub(super) signal_demand: Demand,
    pub(super) signal_bound: Nanos,
}

pub(super) fn link_admission(
    link: &config::LinkConfig,
    signal: &Contract,
    release_latency: Nanos,
) -> Result<LinkAdmission, NodeConfigError> {
    let model = link_model(link);
    let mut policy = (link.admission.build)(model.model());
    let bytes = link.signal_bytes_max();
    let of_link = Contract { message_bytes_max: bytes, ..*signal };
    let signal_demand = model.demand(&of_link, bytes, release_latency, Nanos::ZERO);
    // If the kernel's share follows admission, the shortest bound limits that share.
    let periods = if link.follows() { SIGNAL_PERIODS_BESIDE_KERNEL } else { 1 };
    let name = format!("link {}", link.name);
    let signal_bound = hold_signalling(policy.as_mut(), &signal_demand, periods, &name)?;
    Ok(LinkAdmission { model, policy, signal_demand, signal_bound })
}

/// A link that holds only its signalling, and its policy.
pub(super) fn link_stage(
    link: &config::LinkConfig,
    admission: LinkAdmission,
) -> (Box<dyn AdmissionPolicy>, LinkStage) {
    let LinkAdmission { model, policy, signal_demand, signal_bound } = admission;
    let stage = LinkStage {
        model,
        admission: link.admission,
        utilisation: Ppm(0),
        propagation_max: link.propagation_max,
        packet_bytes_max: link.packet_bytes_max,
        packet_best_effort_bytes_max: link.best_effort_bytes_max(),
        signal_bound,
        signal_demand,
        degraded: link.degraded(),
        frames_max: link.frames / FRAMES_GUARANTEED_DIVISOR,
        frames: 0,
        pool: Pool::default(),
        breach: None,
        rate_unknown: link.rate_auto.then_some(RateRefusal::NoNeighbour),
    };
    (policy, stage)
}
