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
