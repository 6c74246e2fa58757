//! Checks of a node's configuration: what contradicts itself is an error with its fix, before anything runs.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use punctual_analysis::{Activation, BitRate, Nanos, Ppm};
use thiserror::Error;

use super::config::{Admission, LinkConfig, NodeConfig, RouteConfig, RunPolicy};
use crate::ids::NodeId;
use crate::limits::{
    BEST_EFFORT_PACKET_BYTES_MIN, CLOCK_TOLERANCE_PPM_MAX, FRAGMENT_BYTES_MAX, FRAGMENT_BYTES_MIN,
    FRAMES_MIN, HEADER_BYTES, LINKS_MAX, PIPELINE_DEPTH_MAX, ROUTE_NODES_MAX, SIGNAL_BYTES_MAX,
};

/// The configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}")]
pub struct NodeConfigError {
    /// What is wrong and what would be right.
    pub what: String,
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), NodeConfigError> {
    if holds { Ok(()) } else { Err(NodeConfigError { what: what() }) }
}

/// Checks everything.
///
/// # Errors
/// The first contradiction.
pub(super) fn check(config: &NodeConfig) -> Result<(), NodeConfigError> {
    check_directory(config)?;
    let fragments = FRAGMENT_BYTES_MIN..=FRAGMENT_BYTES_MAX;
    for bytes in [Some(config.fragment_bytes), config.fragment_low_latency_bytes].into_iter().flatten() {
        ensure(fragments.contains(&bytes), || {
            format!("fragment size {bytes} B: give {FRAGMENT_BYTES_MIN} to {FRAGMENT_BYTES_MAX} B")
        })?;
    }
    ensure(config.clock_tolerance <= Ppm(CLOCK_TOLERANCE_PPM_MAX), || {
        let given = config.clock_tolerance.0;
        format!("clock tolerance {given} ppm: give at most {CLOCK_TOLERANCE_PPM_MAX}")
    })?;
    check_cpu(config)?;
    ensure(config.links.len() <= LINKS_MAX, || format!("more than {LINKS_MAX} links"))?;
    let mut neighbours = BTreeSet::new();
    for link in &config.links {
        check_link(config, link)?;
        ensure(neighbours.insert(link.neighbour), || {
            format!("two links to node {}: keep one a neighbour", link.neighbour)
        })?;
    }
    config.routes.iter().try_for_each(|route| check_route(config, route, &neighbours))?;
    check_signalling(config)
}

fn check_directory(config: &NodeConfig) -> Result<(), NodeConfigError> {
    ensure(config.id != NodeId(0), || "node id 0: ids start at 1".into())?;
    let mut names = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for (name, id) in &config.directory {
        ensure(*id != NodeId(0), || format!("host \"{name}\" has id 0: ids start at 1"))?;
        ensure(names.insert(name), || format!("host \"{name}\" stands twice in the directory"))?;
        ensure(ids.insert(*id), || format!("node id {id} is given twice in the directory"))?;
    }
    let own = config.directory.iter().any(|(name, id)| *name == config.name && *id == config.id);
    ensure(own, || format!("this host (\"{}\", id {}) is not in the directory", config.name, config.id))
}

fn check_cpu(config: &NodeConfig) -> Result<(), NodeConfigError> {
    let cpu = &config.cpu;
    let matched = matches!(
        (cpu.run, cpu.admission),
        (RunPolicy::Edf, Admission::Edf | Admission::DOrder | Admission::Statistical)
            | (RunPolicy::FixedPriority, Admission::FixedPriority)
            | (RunPolicy::Rmdp, Admission::Rmdp)
            | (RunPolicy::Fifo, Admission::Fifo)
    );
    ensure(matched, || {
        format!(
            "processor policy {:?} does not match admission {:?}: pair edf with edf, d-order or statistical, fixed-priority \
             with fixed-priority, rmdp with rmdp, fifo with fifo",
            cpu.run, cpu.admission
        )
    })?;
    ensure(cpu.best_effort_cpu_cap > Ppm(0), || "processor best_effort_cpu_cap of 0".into())?;
    ensure(cpu.best_effort_flow_cpu_cap > Ppm(0), || "processor best_effort_flow_cpu_cap of 0".into())?;
    ensure(cpu.plan.is_empty() || cpu.run == RunPolicy::Rmdp, || {
        format!(
            "a plan is served in the order of rmdp: set processor policy = \"rmdp\" instead of {:?}",
            cpu.run
        )
    })?;
    let mut planned = BTreeSet::new();
    for flow in &cpu.plan {
        ensure(planned.insert(flow.name), || format!("flow \"{}\" stands twice in the plan", flow.name))?;
        let activation = Activation::Periodic { period: flow.period_ns, packets: flow.packets };
        let invalid =
            |error| NodeConfigError { what: format!("flow \"{}\" of the plan: {error}", flow.name) };
        activation.validate(Nanos::MAX).map_err(invalid)?;
    }
    ensure(cpu.quantum_packets >= 1, || "processor quantum of 0 packets: give at least 1".into())?;
    ensure(cpu.utilisation_max <= Ppm::ONE && cpu.utilisation_max > Ppm(0), || {
        "processor utilisation_max: give more than 0 and at most 1".into()
    })?;
    ensure(cpu.best_effort_share_min < cpu.utilisation_max, || {
        "processor best_effort_share_min leaves nothing for channels".into()
    })
}

fn check_link(config: &NodeConfig, link: &LinkConfig) -> Result<(), NodeConfigError> {
    let name = &link.name;
    ensure(link.rate > BitRate(0), || format!("link {name}: rate 0"))?;
    ensure(link.rate_error < Ppm(500_000), || format!("link {name}: rate_error of a half or more"))?;
    ensure((1..=PIPELINE_DEPTH_MAX).contains(&link.pipeline_depth), || {
        format!("link {name}: pipeline_depth {}: give 1 to {PIPELINE_DEPTH_MAX}", link.pipeline_depth)
    })?;
    let fragment = config.fragment_bytes.max(config.fragment_low_latency_bytes.unwrap_or(0));
    let needed = (fragment + HEADER_BYTES as u32).max(SIGNAL_BYTES_MAX as u32);
    ensure(link.packet_bytes_max >= needed, || {
        format!(
            "link {name}: its packets hold {} B, fragments and signalling need {needed} B",
            link.packet_bytes_max
        )
    })?;
    let packets = BEST_EFFORT_PACKET_BYTES_MIN..=link.packet_bytes_max;
    ensure(packets.contains(&link.best_effort_bytes_max()), || {
        format!(
            "link {name}: best-effort packets of {} B: give {BEST_EFFORT_PACKET_BYTES_MIN} B to {} B, its largest packet",
            link.best_effort_bytes_max(),
            link.packet_bytes_max
        )
    })?;
    ensure(link.frames >= FRAMES_MIN, || {
        format!("link {name}: {} frames: give {FRAMES_MIN} or more", link.frames)
    })?;
    ensure(link.propagation_min <= link.propagation_max, || {
        format!("link {name}: propagation_min is longer than propagation_max")
    })?;
    let taken = link.best_effort_share_min.0.saturating_add(link.interference.rho.0);
    ensure(taken < 1_000_000, || {
        format!("link {name}: best_effort_share_min and interference leave nothing for channels")
    })?;
    ensure(link.best_effort_cap > Ppm(0), || format!("link {name}: best_effort_cap of 0"))?;
    ensure(link.best_effort_flow_cap > Ppm(0), || format!("link {name}: best_effort_flow_cap of 0"))?;
    let known = config.directory.iter().any(|(_, id)| *id == link.neighbour);
    ensure(known && link.neighbour != config.id, || {
        format!("link {name}: neighbour {} is not another host of the directory", link.neighbour)
    })
}

fn check_route(
    config: &NodeConfig,
    route: &RouteConfig,
    neighbours: &BTreeSet<NodeId>,
) -> Result<(), NodeConfigError> {
    let first = route.via.first();
    ensure(first.is_some_and(|first| neighbours.contains(first)), || {
        format!("route via {:?}: its first node is no neighbour", route.via)
    })?;
    ensure(route.via.len() < ROUTE_NODES_MAX, || {
        format!("route via {:?}: longer than {ROUTE_NODES_MAX} nodes", route.via)
    })?;
    let mut seen = BTreeSet::from([config.id]);
    let simple = route.via.iter().all(|node| seen.insert(*node));
    ensure(simple, || format!("route via {:?}: a node stands twice on it", route.via))
}

fn check_signalling(config: &NodeConfig) -> Result<(), NodeConfigError> {
    let s = &config.signalling;
    ensure(s.packets_per_second >= 1, || "signalling packets_per_second of 0".into())?;
    let spans = [s.lease, s.hello_interval, s.retransmit, s.consent_timeout];
    ensure(spans.iter().all(|span| *span >= Nanos::from_millis(1)), || {
        "signalling times below a millisecond".into()
    })?;
    ensure(s.retransmits_max >= 1, || "signalling retransmits_max of 0".into())
}
