//! Models of a configuration for admission: the processor, a link, the cost of each path.

use punctual_analysis::{Cpu, Interference, Link, Nanos, PathCosts, Ppm};

use super::{CpuConfig, CpuCosts, LinkConfig};
use crate::ids::Role;
use crate::limits::HEADER_BYTES;

/// The cost of one path through the processor.
pub const fn path_costs(costs: &CpuCosts, role: Role) -> PathCosts {
    match role {
        Role::Source => PathCosts {
            message: costs.send_message,
            packet: costs.send_packet,
            packet_later: costs.send_packet_later,
            kib: costs.copy_kib,
        },
        // The packets may arrive one by one behind the source.
        Role::Forwarder => PathCosts::one_by_one(Nanos::ZERO, costs.forward_packet, costs.copy_kib),
        Role::Sink => PathCosts::one_by_one(costs.deliver_message, costs.receive_packet, costs.copy_kib),
    }
}

/// The model of the processor for admission, where no packet has more than `fragment_bytes` of payload. Work
/// beyond a budget runs as best effort, one quantum at a time, at either end of a channel.
pub fn cpu_model(cpu: &CpuConfig, fragment_bytes: u32) -> Cpu {
    let costs = &cpu.costs;
    let longest = costs.send_packet.max(costs.forward_packet).max(costs.receive_packet);
    let packet = longest + costs.copy_kib * u64::from(fragment_bytes).div_ceil(1_024);
    Cpu {
        utilisation_max: cpu.utilisation_max,
        best_effort_share_min: cpu.best_effort_share_min,
        interference: Interference { sigma: cpu.burst(), rho: cpu.interference.rho },
        best_effort_unit: (packet * u64::from(cpu.quantum_packets.max(1))
            + costs.send_message.max(costs.deliver_message))
        .max(cpu.best_effort_call_max),
        quantum_packets: cpu.quantum_packets,
    }
}

/// The model of a link for admission.
pub fn link_model(link: &LinkConfig) -> Link {
    Link {
        rate: link.paced_rate(),
        rate_error: Ppm(0),
        overhead_bytes: link.overhead_bytes + HEADER_BYTES as u32,
        mtu_wire_bytes: link.packet_bytes_max + link.overhead_bytes,
        best_effort_wire_bytes: link.best_effort_bytes_max() + link.overhead_bytes,
        pipeline_depth: link.pipeline_depth,
        pacing: link.pace,
        reaction: link.reaction,
        interference: link.interference,
        best_effort_share_min: link.best_effort_share_min,
    }
}
