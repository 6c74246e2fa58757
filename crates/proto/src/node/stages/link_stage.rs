//! The admission state of one link, and how it begins: with the link's own signalling.

use alloc::boxed::Box;
use alloc::format;

use punctual_analysis::{AdmissionPolicy, Contract, Nanos, Ppm};

use super::buffers::Pool;
use super::models::hold_signalling;
use super::{LinkAdmission, LinkStage};
use crate::api::RateRefusal;
use crate::config::{self, NodeConfigError, link_model};
use crate::limits::{FRAMES_GUARANTEED_DIVISOR, SIGNAL_PERIODS_BESIDE_KERNEL};

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
