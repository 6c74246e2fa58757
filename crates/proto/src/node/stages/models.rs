//! What admission sees of this host: its processor, its links, the cost of each path, and signalling as a channel.

use alloc::format;

use punctual_analysis::{
    AdmissionPolicy, Contract, Cpu, Demand, Interference, Link, Nanos, Pacing, PathCosts, Ppm, Rate,
};

use super::super::api::Role;
use super::super::check::NodeConfigError;
use super::super::config::{self, LinkConfig, NodeConfig, Pace};
use super::SIGNALLING_KEY;
use crate::limits::{HEADER_BYTES, SIGNAL_BYTES_MAX};

/// What one path through the processor costs.
pub(in crate::node) const fn path_costs(costs: &config::CpuCosts, role: Role) -> PathCosts {
    match role {
        Role::Source => PathCosts {
            message: costs.send_message,
            packet: costs.send_packet,
            packet_later: costs.send_packet_later,
            kib: costs.copy_kib,
        },
        // After the source packets may come one by one.
        Role::Forwarder => PathCosts::one_by_one(Nanos::ZERO, costs.forward_packet, costs.copy_kib),
        Role::Sink => PathCosts::one_by_one(costs.deliver_message, costs.receive_packet, costs.copy_kib),
    }
}

/// The processor as admission sees it, where no packet has more than `fragment_bytes` of payload. What exceeds a
/// budget runs as best effort, a quantum at once, at either end of a channel.
pub(in crate::node) fn cpu_model(cpu: &config::CpuConfig, fragment_bytes: u32) -> Cpu {
    let costs = &cpu.costs;
    let longest = costs.send_packet.max(costs.forward_packet).max(costs.receive_packet);
    let packet = longest + costs.copy_kib * u64::from(fragment_bytes).div_ceil(1_024);
    Cpu {
        utilisation_max: cpu.utilisation_max,
        best_effort_share_min: cpu.best_effort_share_min,
        interference: Interference { sigma: cpu.burst(), rho: cpu.interference.rho },
        best_effort_unit: packet * u64::from(cpu.quantum_packets.max(1))
            + costs.send_message.max(costs.deliver_message),
        quantum_packets: cpu.quantum_packets,
    }
}

/// The largest payload of a packet that this node makes or passes on.
pub(super) fn fragment_bytes_max(config: &NodeConfig) -> u32 {
    config::payload_bytes_max(config.fragment_bytes, &config.links)
}

pub(crate) fn link_model(link: &LinkConfig) -> Link {
    Link {
        rate: link.paced_rate(),
        rate_error: Ppm(0),
        overhead_bytes: link.overhead_bytes + HEADER_BYTES as u32,
        mtu_wire_bytes: link.packet_bytes_max + link.overhead_bytes,
        best_effort_wire_bytes: link.best_effort_bytes_max() + link.overhead_bytes,
        pipeline_depth: link.pipeline_depth,
        pacing: match link.pace {
            Pace::Clock => Pacing::Clock,
            Pace::Completion => Pacing::Completion,
        },
        reaction: link.reaction,
        interference: Interference { sigma: link.interference.sigma, rho: link.interference.rho },
        best_effort_share_min: link.best_effort_share_min,
    }
}

/// Signalling as a channel: one largest packet a period, due within it.
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

/// Holds signalling with a bound of whole periods where that is feasible: it is in no hurry.
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
