//! Lookup of hosts by name in a configuration's directory.

use alloc::string::String;
use alloc::vec::Vec;

use super::{HostName, RequestError, name_of};
use crate::config::NodeConfig;
use crate::ids::{Name, NodeId};

impl NodeConfig {
    /// Another host of the directory.
    ///
    /// # Errors
    /// If the directory does not have the host, or if it is this one.
    pub fn resolve(&self, host: &Name) -> Result<NodeId, RequestError> {
        match self.directory.iter().find(|(name, _)| name == host) {
            Some((_, node)) if *node == self.id => Err(RequestError::Itself(host.clone())),
            Some((_, node)) => Ok(*node),
            None => {
                let others = self.directory.iter().filter(|(_, node)| *node != self.id);
                Err(match host.slip_of(others.map(|(name, _)| name)) {
                    Some(like) => RequestError::UnknownHostLike { asked: host.clone(), like: like.clone() },
                    None => RequestError::UnknownHost(host.clone()),
                })
            }
        }
    }

    /// Names of nodes from the directory, each once.
    pub fn names_of(&self, nodes: &[NodeId]) -> Vec<HostName> {
        let known = self.directory.iter().filter(|(_, node)| nodes.contains(node));
        known.map(|(name, node)| HostName { node: *node, name: name.clone() }).collect()
    }

    /// The display name of a host.
    pub fn host_name(&self, node: NodeId) -> String {
        name_of(&self.names_of(&[node]), node)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use punctual_analysis::{Nanos, Ppm};

    use super::*;
    use crate::config::{CpuConfig, SignallingConfig};
    use crate::ids::Epoch;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn config() -> NodeConfig {
        NodeConfig {
            id: NodeId(1),
            name: name("relay"),
            epoch: Epoch(1),
            fragment_bytes: 1_400,
            fragment_low_latency_bytes: None,
            clock_tolerance: Ppm(100),
            links: Vec::new(),
            cpu: CpuConfig::default(),
            directory: [("relay", 1), ("camera", 2), ("screen", 3)]
                .map(|(host, id)| (name(host), NodeId(id)))
                .into(),
            routes: Vec::new(),
            signalling: SignallingConfig::default(),
            buffer_bytes_max: 0,
            wakeup_margin: Nanos::ZERO,
        }
    }

    /// Another host is found by its name. A slip of the pen is told the host that it is like: never this one,
    /// to which no channel leads.
    #[test]
    fn other_hosts_are_found_and_suggested() {
        let config = config();
        let resolve = |host: &str| config.resolve(&name(host));
        assert_eq!(resolve("camera"), Ok(NodeId(2)));
        assert_eq!(resolve("screen"), Ok(NodeId(3)));
        assert_eq!(resolve("relay"), Err(RequestError::Itself(name("relay"))));
        for (asked, like) in [("camara", "camera"), ("scren", "screen")] {
            let (asked, like) = (name(asked), name(like));
            assert_eq!(config.resolve(&asked), Err(RequestError::UnknownHostLike { asked, like }));
        }
        for other in ["relai", "xylophone"] {
            assert_eq!(resolve(other), Err(RequestError::UnknownHost(name(other))));
        }
    }

    #[test]
    fn hosts_are_named_once_in_the_order_of_the_directory() {
        let config = config();
        let names = |nodes: &[u32]| -> Vec<_> {
            let nodes: Vec<_> = nodes.iter().copied().map(NodeId).collect();
            config.names_of(&nodes).into_iter().map(|host| (host.node.0, host.name.to_string())).collect()
        };
        assert_eq!(names(&[3, 1, 3, 9]), [(1, "relay".into()), (3, "screen".into())]);
        assert_eq!(names(&[]), []);
        assert_eq!([2, 9].map(|node| config.host_name(NodeId(node))), ["camera", "node 9"]);
    }
}
