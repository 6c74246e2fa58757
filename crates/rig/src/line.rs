//! Hosts `h1`..`hN` in a line: their configuration and their first moment.

use punctual_proto::config::{CpuConfig, LinkConfig, NodeConfig, RouteConfig, SignallingConfig};
use punctual_proto::ids::{Epoch, Name, NodeId};
use punctual_proto::{BitRate, Instant, Nanos, Ppm};

/// When the virtual time of a line begins.
pub const START: Instant = Instant(1_000_000_000);

/// A valid name.
///
/// # Panics
/// If `text` is no valid name.
pub fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// Host `index` (from 0) of a line of `hosts`, every link at `rate`.
pub fn line_config(index: usize, hosts: usize, rate: BitRate) -> NodeConfig {
    let id = |i: usize| NodeId(i as u32 + 1);
    let mut links = Vec::new();
    let mut routes = Vec::new();
    if index > 0 {
        links.push(LinkConfig::new("left", id(index - 1), rate));
        routes.extend((0..index).map(|to| RouteConfig { via: (to..index).rev().map(id).collect() }));
    }
    if index + 1 < hosts {
        links.push(LinkConfig::new("right", id(index + 1), rate));
        routes.extend((index + 1..hosts).map(|to| RouteConfig { via: (index + 1..=to).map(id).collect() }));
    }
    NodeConfig {
        id: id(index),
        name: name(&format!("h{}", index + 1)),
        epoch: Epoch(1),
        fragment_bytes: 1_400,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(100),
        links,
        cpu: CpuConfig::default(),
        directory: (0..hosts).map(|i| (name(&format!("h{}", i + 1)), id(i))).collect(),
        routes,
        signalling: SignallingConfig::default(),
        buffer_bytes_max: 64 << 20,
        wakeup_margin: Nanos::from_micros(200),
    }
}
