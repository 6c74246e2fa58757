//! The grant of a channel, stage by stage.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use punctual_analysis::{CostParts, Explanation, Nanos, Ppm};
use serde::{Deserialize, Serialize};

use super::StageName;
use super::host_name::{HostName, name_of};
use crate::config::{CostSource, Degraded};
use crate::ids::{NodeId, Role};

/// The kind of resource that a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageKind {
    /// Protocol processing at the source.
    SourceCpu,
    /// Protocol processing at a forwarder.
    ForwardCpu,
    /// Protocol processing at the sink.
    SinkCpu,
    /// The link out of a node.
    Link,
}

impl StageKind {
    /// The processor at a hop of this role.
    pub const fn cpu(role: Role) -> Self {
        match role {
            Role::Source => Self::SourceCpu,
            Role::Forwarder => Self::ForwardCpu,
            Role::Sink => Self::SinkCpu,
        }
    }
}

impl fmt::Display for StageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourceCpu => "source CPU",
            Self::ForwardCpu => "forwarder CPU",
            Self::SinkCpu => "sink CPU",
            Self::Link => "link",
        })
    }
}

/// The grant of one stage of the route to a channel that is admitted or probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageGrant {
    /// Host that the stage belongs to.
    pub node: NodeId,
    /// The kind of resource on that host.
    pub kind: StageKind,
    /// The smallest bound that the stage offered.
    pub offered: Nanos,
    /// d(k): the bound it holds now, with its share of the leftover.
    pub bound: Nanos,
    /// p_max behind it.
    pub propagation_max: Nanos,
    /// C: cost of one largest message here.
    pub cost: Nanos,
    /// The terms that add up to `offered`.
    pub made_of: Explanation,
    /// Part of `made_of.interference` that cold caches take at the beginning of a busy period.
    pub cold_start: Nanos,
    /// The terms that add up to `cost`.
    pub cost_parts: CostParts,
    /// Origin of a processor's costs.
    pub costs_from: CostSource,
    /// Utilisation of the stage with this channel.
    pub utilisation: Ppm,
    /// Bytes of buffers reserved behind this stage.
    pub buffer_bytes: u64,
    /// Why the bound is no guarantee; `None` if it is one.
    #[serde(default)]
    pub degraded: Option<Degraded>,
}

/// An accepted channel: what is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Every message is delivered by its logical arrival plus this.
    pub deadline: Nanos,
    /// How far ahead of its logical arrival a message may come without breaking the contract. It covers the
    /// lateness of the sender's timer.
    #[serde(default)]
    pub jitter_allowance: Nanos,
    /// The smallest end-to-end bound that the route could have given.
    pub bound_possible: Nanos,
    /// Stage by stage, from the source on.
    pub stages: Vec<StageGrant>,
    /// The nodes, source and destination included.
    pub route: Vec<NodeId>,
    /// The names of `route`, from the source's directory.
    #[serde(default)]
    pub hosts: Vec<HostName>,
    /// Messages that the source's ring must hold: B + ceil((a + d) / I'), a the jitter allowance, d the bounds of the source's
    /// own stages together.
    pub outbox_messages: u32,
}

impl Grant {
    /// Hosts of the route, by name, whose bounds are no guarantees; with one of them nothing is guaranteed.
    pub fn degraded_by(&self) -> Vec<String> {
        let hosts = degraded(&self.stages);
        hosts_of(&hosts).into_iter().map(|node| name_of(&self.hosts, node)).collect()
    }

    /// The name of a stage of the route: `link a-r`, or `host r`.
    pub fn place(&self, stage: &StageName) -> String {
        let host = name_of(&self.hosts, stage.node);
        match stage.towards {
            Some(towards) => format!("link {host}-{}", name_of(&self.hosts, towards)),
            None => format!("host {host}"),
        }
    }

    /// The hosts of the route whose bounds are no guarantees, each with its reason: one line for each.
    pub fn degraded_why(&self) -> Vec<String> {
        let line =
            |DegradedHost { node, why }: &DegradedHost| format!("{}: {why}", name_of(&self.hosts, *node));
        degraded(&self.stages).iter().map(line).collect()
    }
}

/// A host whose bounds are no guarantees, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DegradedHost {
    /// The host.
    pub node: NodeId,
    /// Why its bounds are no guarantees.
    pub why: Degraded,
}

/// Each host among `stages` with each reason why its bounds are no guarantees, once, in the order of the
/// route.
pub fn degraded(stages: &[StageGrant]) -> Vec<DegradedHost> {
    let mut hosts = Vec::new();
    for StageGrant { node, degraded, .. } in stages {
        let host = degraded.map(|why| DegradedHost { node: *node, why });
        hosts.extend(host.filter(|host| !hosts.contains(host)));
    }
    hosts
}

/// The hosts, each once, in their order.
pub fn hosts_of(degraded: &[DegradedHost]) -> Vec<NodeId> {
    let mut nodes = Vec::new();
    for DegradedHost { node, .. } in degraded {
        if !nodes.contains(node) {
            nodes.push(*node);
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with two reasons is listed by name once.
    #[test]
    fn a_host_with_two_reasons_is_named_once() {
        let host = |node, why| DegradedHost { node: NodeId(node), why };
        let degraded =
            [host(3, Degraded::NoRealTime), host(1, Degraded::NoRealTime), host(3, Degraded::Broken)];
        assert_eq!(hosts_of(&degraded), [NodeId(3), NodeId(1)]);
    }

    /// Every reason of every host is listed once, in the order of the route, whatever stages it has in common
    /// with others.
    #[test]
    fn each_reason_of_each_host_is_listed_once() {
        let stage = |node, degraded| StageGrant {
            node: NodeId(node),
            kind: StageKind::Link,
            offered: Nanos(1),
            bound: Nanos(1),
            propagation_max: Nanos::ZERO,
            cost: Nanos(1),
            made_of: Explanation::default(),
            cold_start: Nanos::ZERO,
            cost_parts: CostParts::default(),
            costs_from: CostSource::default(),
            utilisation: Ppm(0),
            buffer_bytes: 0,
            degraded,
        };
        let (slow, broken) = (Some(Degraded::NoRealTime), Some(Degraded::Broken));
        let stages =
            [(3, slow), (3, slow), (1, None), (1, broken), (2, slow), (3, broken), (2, slow), (4, None)];
        let stages = stages.map(|(node, why)| stage(node, why)).to_vec();
        let listed: Vec<_> = degraded(&stages).iter().map(|host| (host.node.0, host.why)).collect();
        let expected = [
            (3, Degraded::NoRealTime),
            (1, Degraded::Broken),
            (2, Degraded::NoRealTime),
            (3, Degraded::Broken),
        ];
        assert_eq!(listed, expected);
        let name =
            |node, name| HostName { node: NodeId(node), name: crate::ids::Name::new(name).expect("a name") };
        let grant = Grant {
            deadline: Nanos(1),
            jitter_allowance: Nanos::ZERO,
            bound_possible: Nanos(1),
            stages,
            route: [3, 1, 2, 4].map(NodeId).to_vec(),
            hosts: [name(3, "c"), name(1, "a"), name(2, "b")].to_vec(),
            outbox_messages: 1,
        };
        assert_eq!(grant.degraded_by(), ["c", "a", "b"]);
        let lines = expected.map(|(node, why)| format!("{}: {why}", ["", "a", "b", "c"][node as usize]));
        assert_eq!(grant.degraded_why(), lines);
    }
}
