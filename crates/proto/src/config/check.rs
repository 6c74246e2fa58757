//! Checks of a node's configuration: a contradiction is an error with its fix, before the node starts. A
//! program that reads the parts from a file checks each part where it is read, and reports the line.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use punctual_analysis::{Activation, BitRate, Nanos, Ppm, pairs_text};
use thiserror::Error;

use super::{CpuConfig, LinkConfig, NodeConfig, RouteConfig, RunPolicy, SignallingConfig};
use crate::ids::NodeId;
use crate::limits::{
    BEST_EFFORT_PACKET_BYTES_MIN, CLOCK_TOLERANCE_PPM_MAX, FRAGMENT_BYTES_MAX, FRAGMENT_BYTES_MIN,
    FRAMES_MIN, HEADER_BYTES, LINKS_MAX, PIPELINE_DEPTH_MAX, ROUTE_NODES_MAX, SIGNAL_BYTES_MAX,
};

/// The configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}")]
pub struct NodeConfigError {
    /// What is wrong, and what would be valid.
    pub what: String,
}

impl NodeConfigError {
    /// The same error, with the wrong part of the configuration, `part`, in front.
    fn of(self, part: &str) -> Self {
        Self { what: format!("{part}{}", self.what) }
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), NodeConfigError> {
    if holds { Ok(()) } else { Err(NodeConfigError { what: what() }) }
}

impl NodeConfig {
    /// Checks everything.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), NodeConfigError> {
        check(self)
    }
}

fn check(config: &NodeConfig) -> Result<(), NodeConfigError> {
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
    config.cpu.check().map_err(|error| error.of("processor "))?;
    ensure(config.links.len() <= LINKS_MAX, || format!("more than {LINKS_MAX} links"))?;
    let mut neighbours = BTreeSet::new();
    let fragment_bytes = config.fragment_bytes.max(config.fragment_low_latency_bytes.unwrap_or(0));
    for link in &config.links {
        let of_link = |error: NodeConfigError| error.of(&format!("link {}: ", link.name));
        link.check(fragment_bytes, config.id).map_err(of_link)?;
        let known = config.directory.iter().any(|(_, id)| *id == link.neighbour);
        ensure(known, || {
            format!("link {}: neighbour {} is not in the directory", link.name, link.neighbour)
        })?;
        ensure(neighbours.insert(link.neighbour), || {
            format!("two links to node {}: keep one a neighbour", link.neighbour)
        })?;
    }
    for route in &config.routes {
        let of_route = |error: NodeConfigError| error.of(&format!("route via {:?}: ", route.via));
        route.check(config.id, &config.links).map_err(of_route)?;
    }
    config.signalling.check().map_err(|error| error.of("signalling "))
}

fn check_directory(config: &NodeConfig) -> Result<(), NodeConfigError> {
    ensure(config.id != NodeId(0), || "node id 0: ids start at 1".into())?;
    let mut names = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for (name, id) in &config.directory {
        ensure(*id != NodeId(0), || format!("host \"{name}\" has id 0: ids start at 1"))?;
        ensure(names.insert(name), || format!("host \"{name}\" is listed twice in the directory"))?;
        ensure(ids.insert(*id), || format!("node id {id} is given twice in the directory"))?;
    }
    let own = config.directory.iter().any(|(name, id)| *name == config.name && *id == config.id);
    ensure(own, || format!("this host (\"{}\", id {}) is not in the directory", config.name, config.id))
}

impl CpuConfig {
    /// Checks it alone.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), NodeConfigError> {
        ensure(self.admission.run == self.run, || {
            let (run, admission) = (self.run.name(), self.admission.name);
            format!("policy {run} does not match admission {admission}: pair {}", pairs_text())
        })?;
        ensure(self.best_effort_cpu_cap > Ppm(0), || {
            "best_effort_cpu_cap is nothing: give more than \"0%\"".into()
        })?;
        ensure(self.best_effort_flow_cpu_cap > Ppm(0), || {
            "best_effort_flow_cpu_cap is nothing: give more than \"0%\"".into()
        })?;
        self.check_plan()?;
        ensure(self.quantum_packets >= 1, || "quantum = 0: give 1 or more".into())?;
        ensure(self.utilisation_max > Ppm(0), || "cpu_share_max is nothing: give more than \"0%\"".into())?;
        ensure(self.utilisation_max <= Ppm::ONE, || {
            "cpu_share_max is more than 100 %: give at most \"100%\"".into()
        })?;
        ensure(self.best_effort_share_min < self.utilisation_max, || {
            "best_effort_share_min leaves channels nothing of cpu_share_max: give less, or a larger cpu_share_max".into()
        })
    }

    fn check_plan(&self) -> Result<(), NodeConfigError> {
        ensure(self.plan.is_empty() || self.run == RunPolicy::Rmdp, || {
            format!(
                "plan is served in the order of rmdp: set policy = \"rmdp\" instead of \"{}\"",
                self.run.name()
            )
        })?;
        let mut planned = BTreeSet::new();
        for flow in &self.plan {
            ensure(planned.insert(flow.name), || format!("plan: flow \"{}\" is listed twice", flow.name))?;
            let activation = Activation::Periodic { period: flow.period_ns, packets: flow.packets };
            let invalid = |error| NodeConfigError {
                what: format!("plan: flow \"{}\" of the plan: {error}", flow.name),
            };
            activation.validate(Nanos::MAX).map_err(invalid)?;
        }
        Ok(())
    }
}

impl LinkConfig {
    /// Checks it as a link of host `own` whose longest fragments are of `fragment_bytes`.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self, fragment_bytes: u32, own: NodeId) -> Result<(), NodeConfigError> {
        ensure(self.neighbour != own, || "neighbour is this host: name the host at the other end".into())?;
        ensure(self.rate > BitRate(0), || "rate 0: give more".into())?;
        ensure(self.rate_error < Ppm(500_000), || {
            "rate_error is 50 % or more: give less, and a rate that the link keeps".into()
        })?;
        ensure((1..=PIPELINE_DEPTH_MAX).contains(&self.pipeline_depth), || {
            format!("pipeline_depth {}: give 1 to {PIPELINE_DEPTH_MAX}", self.pipeline_depth)
        })?;
        self.check_packets(fragment_bytes)?;
        ensure(self.frames >= FRAMES_MIN, || format!("{} frames: give {FRAMES_MIN} or more", self.frames))?;
        ensure(self.propagation_min <= self.propagation_max, || {
            "propagation_min is longer than propagation_max: exchange them".into()
        })?;
        let taken = self.best_effort_share_min.0.saturating_add(self.interference.rho.0);
        ensure(taken < Ppm::ONE.0, || {
            "best_effort_share_min and interference_share (or kernel_rate) leave channels nothing: give less"
                .into()
        })?;
        ensure(self.best_effort_cap > Ppm(0), || "best_effort_cap is nothing: give more than \"0%\"".into())?;
        ensure(self.best_effort_flow_cap > Ppm(0), || {
            "best_effort_flow_cap is nothing: give more than \"0%\"".into()
        })
    }

    fn check_packets(&self, fragment_bytes: u32) -> Result<(), NodeConfigError> {
        let most = self.packet_bytes_max;
        let needed = fragment_bytes.saturating_add(HEADER_BYTES as u32).max(SIGNAL_BYTES_MAX as u32);
        ensure(most >= needed, || {
            format!(
                "packet of {most} B holds neither a fragment with its header nor signalling: give {needed} B or more, or a \
                 smaller fragment"
            )
        })?;
        let bytes = self.best_effort_bytes_max();
        ensure((BEST_EFFORT_PACKET_BYTES_MIN..=most).contains(&bytes), || {
            format!(
                "packet_best_effort of {bytes} B: give {BEST_EFFORT_PACKET_BYTES_MIN} B to {most} B, the largest packet"
            )
        })
    }
}

impl RouteConfig {
    /// Checks it as a route of host `own`, which has these links.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self, own: NodeId, links: &[LinkConfig]) -> Result<(), NodeConfigError> {
        let via = &self.via;
        ensure(links.iter().any(|link| via.first() == Some(&link.neighbour)), || {
            "via begins with a host that no [[link]] leads to: name a neighbour first".into()
        })?;
        ensure(via.len() < ROUTE_NODES_MAX, || {
            format!("via is too long: name fewer than {ROUTE_NODES_MAX} hosts")
        })?;
        ensure(!via.contains(&own), || "via passes this host: leave it out".into())?;
        let mut seen = BTreeSet::new();
        ensure(via.iter().all(|node| seen.insert(*node)), || "via passes a host twice: leave one out".into())
    }
}

impl SignallingConfig {
    /// Checks it alone.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), NodeConfigError> {
        ensure(self.packets_per_second >= 1, || "packets_per_second = 0: give 1 or more".into())?;
        let times = [
            ("lease", self.lease),
            ("hello", self.hello_interval),
            ("retransmit", self.retransmit),
            ("consent_timeout", self.consent_timeout),
        ];
        for (key, time) in times {
            ensure(time >= Nanos::from_millis(1), || {
                format!("{key} is below a millisecond: give \"1ms\" or more")
            })?;
        }
        ensure(self.retransmits_max >= 1, || "retransmits_max = 0: give 1 or more".into())
    }
}
