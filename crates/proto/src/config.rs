//! The configuration with which a node starts. Plain data; `Node::new` checks it.

mod check;
mod degraded;
mod link;
mod models;
pub mod plan;
mod processor;
mod signalling;

use alloc::vec::Vec;

use punctual_analysis::{Activation, Contract, Nanos, Ppm};
pub use punctual_analysis::{Admission, Interference, Pacing, RunPolicy};
use serde::{Deserialize, Serialize};

pub use self::check::NodeConfigError;
pub use self::degraded::Degraded;
pub use self::link::{KernelTraffic, LinkConfig};
pub use self::models::{cpu_model, link_model, path_costs};
pub use self::processor::{CostSource, CpuConfig, CpuCosts, WorkKind};
pub use self::signalling::{SignallingConfig, WhileBroken};
use crate::ids::{Epoch, Name, NodeId};
use crate::limits;

/// Everything about one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// This node.
    pub id: NodeId,
    /// Name of this node in the directory.
    pub name: Name,
    /// Epoch of this node, which identifies the time since its last restart.
    pub epoch: Epoch,
    /// Payload of a packet of channels that start here, in bytes.
    pub fragment_bytes: u32,
    /// The same for low-latency channels; `None`: the same value. Smaller ones block others less, and cost
    /// more headers.
    pub fragment_low_latency_bytes: Option<u32>,
    /// Tolerance of this host's clock; rho is twice the domain's.
    pub clock_tolerance: Ppm,
    /// The links, in the order of their `LinkId`s.
    pub links: Vec<LinkConfig>,
    /// The processor.
    pub cpu: CpuConfig,
    /// Every host of the domain, this one included.
    pub directory: Vec<(Name, NodeId)>,
    /// Candidate routes, the preferred first.
    pub routes: Vec<RouteConfig>,
    /// Times and keys of signalling.
    pub signalling: SignallingConfig,
    /// Most bytes of buffers that channels may reserve here.
    pub buffer_bytes_max: u64,
    /// How long before l + D an `at-deadline` message is delivered: time for the wake-up of the receiver.
    pub wakeup_margin: Nanos,
}

impl NodeConfig {
    /// Payload of a packet of a channel with this contract that starts here.
    pub fn fragment_bytes_of(&self, contract: &Contract) -> u32 {
        match contract.activation {
            Activation::LowLatency { .. } => self.fragment_low_latency_bytes.unwrap_or(self.fragment_bytes),
            Activation::Deadline | Activation::Periodic { .. } => self.fragment_bytes,
        }
    }
}

/// The nodes of a route, without this one, the destination last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteConfig {
    /// The next nodes in order; the last is the destination.
    pub via: Vec<NodeId>,
}

/// The largest payload of a packet that a node with these `links` makes, at most `fragment_bytes`, or passes on.
pub fn payload_bytes_max(fragment_bytes: u32, links: &[LinkConfig]) -> u32 {
    let of = |link: &LinkConfig| link.packet_bytes_max.saturating_sub(limits::HEADER_BYTES as u32);
    links.iter().map(of).fold(fragment_bytes, u32::max)
}
