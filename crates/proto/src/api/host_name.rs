//! Names of hosts in reports to applications.

use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};

use crate::ids::{Name, NodeId};

/// The name of a node's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostName {
    /// The node.
    pub node: NodeId,
    /// Name of the node's host.
    pub name: Name,
}

/// The name of a node's host if it is among `hosts`.
pub fn name_of(hosts: &[HostName], node: NodeId) -> String {
    let known = hosts.iter().find(|host| host.node == node);
    known.map_or_else(|| alloc::format!("node {node}"), |host| host.name.to_string())
}
