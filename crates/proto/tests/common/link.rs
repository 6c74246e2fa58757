//! A link that drains a byte in a nanosecond, as its scheduler sees it.

use punctual_proto::config::{Interference, Pacing};
use punctual_proto::linksched::LinkParameters;
use punctual_proto::{BitRate, Ppm};

pub const MTU: u32 = 1_000;

pub fn parameters() -> LinkParameters {
    LinkParameters {
        rate: BitRate(8_000_000_000),
        mtu_wire_bytes: MTU,
        best_effort_wire_bytes: MTU,
        pipeline_depth: 2,
        pace: Pacing::Completion,
        interference: Interference::default(),
        best_effort_flow_cap: Ppm::ONE,
        best_effort_cap: Ppm::ONE,
        best_effort_flow_bytes_max: 100_000,
        best_effort_flows_max: 8,
        best_effort_packets_max: 64,
    }
}
