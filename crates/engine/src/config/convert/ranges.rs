//! Values that contradict others, or that nothing can be done with: told when the file is read, with their keys. The node
//! refuses them, too, when it is made, in its own words.

use punctual_proto::ids::NodeId;
use punctual_proto::node::config::{CpuConfig, LinkConfig, RouteConfig, SignallingConfig};
use punctual_proto::{Nanos, Ppm, limits};

/// Shortest time of signalling.
const SIGNALLING_TIME_MIN: Nanos = Nanos::from_millis(1);
/// `rate_error` stays below.
const RATE_ERROR_END: Ppm = Ppm(500_000);

type Checked = Result<(), String>;

/// The first line that does not hold.
fn first<const N: usize>(lines: [(bool, &str); N]) -> Checked {
    match lines.into_iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, line)) => Err(line.into()),
    }
}

/// `[processor]`.
pub(super) fn processor(cpu: &CpuConfig) -> Checked {
    let none = Ppm(0);
    first([
        (cpu.quantum_packets > 0, "quantum = 0: give 1 or more"),
        (cpu.best_effort_cpu_cap > none, "best_effort_cpu_cap is nothing: give more than \"0%\""),
        (cpu.best_effort_flow_cpu_cap > none, "best_effort_flow_cpu_cap is nothing: give more than \"0%\""),
        (cpu.utilisation_max > none, "cpu_share_max is nothing: give more than \"0%\""),
        (
            cpu.best_effort_share_min < cpu.utilisation_max,
            "best_effort_share_min leaves channels nothing of cpu_share_max: give less, or a larger cpu_share_max",
        ),
    ])
}

/// `[[link]]`.
pub(super) fn link(link: &LinkConfig, fragment_bytes: u32, own: NodeId) -> Checked {
    let none = Ppm(0);
    let taken = link.best_effort_share_min.0.saturating_add(link.interference.rho.0);
    first([
        (link.neighbour != own, "neighbour is this host: name the host at the other end"),
        (
            link.rate_error < RATE_ERROR_END,
            "rate_error is a half or more: give less, and a rate that it keeps",
        ),
        (
            link.propagation_min <= link.propagation_max,
            "propagation_min is longer than propagation_max: exchange them",
        ),
        (
            taken < Ppm::ONE.0,
            "best_effort_share_min and interference_share (or kernel_rate) leave channels nothing: give less",
        ),
        (link.best_effort_cap > none, "best_effort_cap is nothing: give more than \"0%\""),
        (link.best_effort_flow_cap > none, "best_effort_flow_cap is nothing: give more than \"0%\""),
    ])?;
    let needed =
        fragment_bytes.saturating_add(limits::HEADER_BYTES as u32).max(limits::SIGNAL_BYTES_MAX as u32);
    if link.packet_bytes_max < needed {
        let bytes = link.packet_bytes_max;
        return Err(format!(
            "packet of {bytes} B holds neither a fragment with its header nor signalling: give {needed} B or more, or a \
             smaller fragment"
        ));
    }
    Ok(())
}

/// `[signalling]`.
pub(super) fn signalling(signalling: &SignallingConfig) -> Checked {
    let long = |time: Nanos| time >= SIGNALLING_TIME_MIN;
    first([
        (signalling.packets_per_second > 0, "packets_per_second = 0: give 1 or more"),
        (signalling.retransmits_max > 0, "retransmits_max = 0: give 1 or more"),
        (long(signalling.lease), "lease is below a millisecond: give \"1ms\" or more"),
        (long(signalling.hello_interval), "hello is below a millisecond: give \"1ms\" or more"),
        (long(signalling.retransmit), "retransmit is below a millisecond: give \"1ms\" or more"),
        (long(signalling.consent_timeout), "consent_timeout is below a millisecond: give \"1ms\" or more"),
    ])
}

/// `[[route]]`, which is not empty.
pub(super) fn route(route: &RouteConfig, own: NodeId, links: &[LinkConfig]) -> Checked {
    let via = &route.via;
    let is_neighbour = links.iter().any(|link| via.first() == Some(&link.neighbour));
    let is_simple = (1..via.len()).all(|at| !via[..at].contains(&via[at]));
    first([
        (is_neighbour, "via begins with a host that no [[link]] leads to: name a neighbour first"),
        (!via.contains(&own), "via passes this host: leave it out"),
        (is_simple, "via passes a host twice: leave one out"),
        (via.len() < limits::ROUTE_NODES_MAX, "via is too long: name fewer hosts"),
    ])
}
