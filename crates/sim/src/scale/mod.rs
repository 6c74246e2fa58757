//! Large networks: the cost of channels by their number. Real nodes on a ring of perfect links, so that only
//! the nodes' work is measured. Time is virtual; the CPU time and memory of the machine are measured.
//!
//! Every node has only those others in its directory that it communicates with, as in a large domain: its
//! cost may depend on its own channels only.

mod queues;
mod ring;

use punctual_analysis::Nanos;
use serde::{Deserialize, Serialize};

use crate::resident::resident_bytes;
use crate::scenario::ScenarioError;

pub use queues::scheduler_ns;

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Nodes on the ring, at least [`NODES_MIN`].
    pub nodes: usize,
    /// Channels that start at each node.
    pub channels_per_node: usize,
}

/// Smallest ring: the longest channels use three links and must not meet themselves.
pub const NODES_MIN: usize = 5;

/// Measured costs of a network of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Nodes.
    pub nodes: usize,
    /// Channels that were open in the end.
    pub channels: u64,
    /// Channels that were refused.
    pub refused: u64,
    /// Hosts on the routes of all channels, both ends included.
    pub channel_hops: u64,
    /// Time of all establishments, in seconds of one core.
    pub establish_s: f64,
    /// Establishments per second and core.
    pub established_per_s: f64,
    /// Signalling packets until all were open, per channel and hop.
    pub signals_per_hop: f64,
    /// Signalling packets per node and second of virtual time once all channels are open: refreshes and
    /// HELLOs.
    pub signals_per_node_s: f64,
    /// Memory of an open channel at one host, in bytes: growth of the process.
    pub bytes_per_hop: f64,
    /// Time to serve one packet at one hop, everything included, in nanoseconds of one core.
    pub packet_ns: f64,
    /// Packets over links in that measurement.
    pub packet_hops: u64,
}

/// Duration of the steady state, with several refreshes.
const STEADY: Nanos = Nanos::from_secs(50);

/// Reads the CPU time that the calling thread has used. The simulator itself reads no clock.
pub type CpuClock = fn() -> Nanos;

/// Opens all channels, observes the steady state, sends a message on each.
///
/// # Errors
/// If a configuration cannot be used, a channel stays half open, or a message is lost.
pub fn measure(size: Size, cpu: CpuClock) -> Result<Found, ScenarioError> {
    let mut ring = ring::Ring::new(size)?;
    ring.settle()?;
    let (memory, signals) = (resident_bytes(), ring.signals());
    let began = cpu();
    let (channels, refused) = ring.open_all()?;
    let establish_s = (cpu() - began).as_secs_f64();
    let channel_hops = ring.channel_hops();
    let hops = channel_hops.max(1) as f64;
    let bytes_per_hop = resident_bytes().saturating_sub(memory) as f64 / hops;
    let signals_per_hop = (ring.signals() - signals) as f64 / hops;
    let signals = ring.signals();
    ring.run(STEADY)?;
    let steady = (ring.signals() - signals) as f64;
    let packets = ring.packets();
    let began = cpu();
    ring.send_all()?;
    let packet_hops = ring.packets() - packets;
    Ok(Found {
        nodes: size.nodes,
        channels,
        refused,
        channel_hops,
        establish_s,
        established_per_s: channels as f64 / establish_s,
        signals_per_hop,
        signals_per_node_s: steady / size.nodes as f64 / (STEADY.0 as f64 / 1e9),
        bytes_per_hop,
        packet_ns: (cpu() - began).as_secs_f64() * 1e9 / packet_hops.max(1) as f64,
        packet_hops,
    })
}

/// The power of x with which the y grow: the slope of the least-squares line through the logarithms.
pub fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let mean = |value: fn(&(f64, f64)) -> f64| logs.iter().map(value).sum::<f64>() / logs.len() as f64;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let above: f64 = logs.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let below: f64 = logs.iter().map(|p| (p.0 - x) * (p.0 - x)).sum();
    above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_found() {
        let of = |f: fn(f64) -> f64| exponent(&[10.0, 100.0, 1e3, 1e4].map(|x| (x, f(x))));
        assert!((of(|x| 3.0 * x) - 1.0).abs() < 1e-9 && (of(|x| x * x) - 2.0).abs() < 1e-9);
        assert!((1.05..1.3).contains(&of(|x| x * x.ln())));
    }

    #[test]
    fn a_small_ring_opens_and_carries_everything() {
        let found = measure(Size { nodes: 6, channels_per_node: 6 }, || Nanos::ZERO).expect("runs");
        assert_eq!((found.channels, found.refused), (36, 0), "{found:?}");
        // One, two and three links in turn: 2, 3 and 4 hosts.
        assert_eq!((found.channel_hops, found.packet_hops), (36 * 3, 36 * 2), "{found:?}");
        assert!(found.signals_per_node_s > 0.0 && found.signals_per_hop >= 1.0, "{found:?}");
    }
}
