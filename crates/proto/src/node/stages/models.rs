//! The contract of signalling, and the longest packet of this host.

use alloc::format;

use punctual_analysis::{AdmissionPolicy, Contract, Demand, Nanos, Rate};

use super::SIGNALLING_KEY;
use crate::config::NodeConfigError;
use crate::config::{self, NodeConfig};
use crate::limits::SIGNAL_BYTES_MAX;

/// The largest payload of a packet that this node makes or forwards.
pub(super) fn fragment_bytes_max(config: &NodeConfig) -> u32 {
    config::payload_bytes_max(config.fragment_bytes, &config.links)
}

/// The contract of signalling: one largest packet per period, due within it.
pub(super) fn signal_contract(config: &NodeConfig) -> Result<Contract, NodeConfigError> {
    let rate = signal_rate(config)?;
    Contract::new(SIGNAL_BYTES_MAX as u32, rate, 1, rate.interval()).map_err(|_| no_rate())
}

/// How often a link's signalling channel may send.
pub(in crate::node) fn signal_rate(config: &NodeConfig) -> Result<Rate, NodeConfigError> {
    config.signalling.rate().ok_or_else(no_rate)
}

fn no_rate() -> NodeConfigError {
    NodeConfigError { what: "signalling packets_per_second: give 1 to 1000000".into() }
}

/// Holds signalling with a bound of whole periods if that is feasible, because it is not urgent.
pub(super) fn hold_signalling(
    policy: &mut dyn AdmissionPolicy,
    demand: &Demand,
    periods: u64,
    stage: &str,
) -> Result<Nanos, NodeConfigError> {
    let bound = demand.period * periods;
    policy.hold(SIGNALLING_KEY, demand, bound).map(|()| bound).map_err(|refusal| NodeConfigError {
        what: format!(
            "{stage} cannot carry its own signalling ({refusal}): lower signalling packets_per_second"
        ),
    })
}
