//! Files that people write. Each is refused in one line, or means something that can be used.

use std::path::Path;

use punctual_analysis::Nanos;
use punctual_analysis::suggest::Trace;
use punctual_analysis::suggest::{Packets, choices};
use punctual_proto::config::NodeConfig;
use punctual_proto::ids::Epoch;
use punctual_proto::node::Node;
use punctual_sim::Topology;
use punctual_sim::memory::SimMemory;

use crate::net::START;

/// A file in a folder that does not exist.
const NOWHERE: &str = "/nonexistent/punctual/file.toml";
/// Buffers that are worth making for a try, in link frames.
const FRAMES_MAX: u32 = 1 << 16;

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

fn one_line(error: &str) {
    assert!(!error.trim_end().contains('\n') && !error.is_empty(), "not one line: {error:?}");
}

/// The daemon's configuration: an accepted one can create a node.
pub fn config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match punctual_host::config::parse(text, Path::new(NOWHERE)) {
        Err(error) => one_line(&error.to_string()),
        Ok(config) => {
            if config.node.links.iter().map(|link| link.frames).fold(0, u32::saturating_add) > FRAMES_MAX {
                return;
            }
            let node = NodeConfig { epoch: Epoch(1), ..config.node };
            if let Err(error) = Node::<SimMemory>::new(node, 1, START) {
                one_line(&error.to_string());
            }
        }
    }
}

/// Task sets of `punctual analyze`.
pub fn analyze(data: &[u8]) {
    let Some(text) = text(data) else { return };
    answered(punctual_cli::files::analyze(text));
}

/// Flows of `punctual plan`.
pub fn plan(data: &[u8]) {
    let Some(text) = text(data) else { return };
    answered(punctual_cli::files::plan(text, Path::new("/nonexistent/punctual")));
}

fn answered<E: std::fmt::Display>(answer: Result<String, E>) {
    match answer {
        Ok(json) => assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}"),
        Err(error) => one_line(&error.to_string()),
    }
}

/// Networks of `punctual sim`.
pub fn topology(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(topology) = Topology::parse(text) else { return };
    let hosts = topology.positions();
    for channel in &topology.channels {
        assert!(hosts.contains_key(channel.from.as_str()) && hosts.contains_key(channel.to.as_str()));
    }
}

/// Profiles of machines.
pub fn profile(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match punctual_engine::profile::Profile::parse(text, Path::new(NOWHERE)) {
        Err(error) => one_line(&error.to_string()),
        Ok(profile) => {
            let costs = profile.costs.cpu_costs();
            assert!(costs.send_packet > Nanos::ZERO && costs.send_packet < Nanos::from_secs(1));
        }
    }
}

/// Traces of frames that `punctual suggest` reads.
pub fn trace(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match Trace::parse_csv(text) {
        Err(error) => one_line(&error.to_string()),
        Ok(trace) => {
            for choice in choices(&trace, Nanos::from_millis(80), &Packets::default()) {
                choice.contract.validate().expect("a contract that is suggested is one");
            }
        }
    }
}
