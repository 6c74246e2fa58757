//! A table of valid configurations: every key with numbers at all its limits, and the error for invalid ones
//! (docs/adr/0049).

#[path = "common/written.rs"]
mod written;

use std::fmt::{Debug, Write};

use punctual_proto::config::NodeConfig;
use punctual_proto::ids::NodeId;
use punctual_proto::{BitRate, Nanos, Ppm};
use punctual_rig::{line_config, name, trimmed};
use written::is_as_written;

#[derive(Default)]
struct Table(String);

impl Table {
    fn row(&mut self, what: &str, answer: &impl Debug) {
        writeln!(self.0, "{what}: {}", trimmed(answer)).expect("a text");
    }
}

type Change = fn(&mut NodeConfig, u64);

/// A key of a configuration, and how a number is put there.
const KEYS: &[(&str, Change)] = &[
    ("fragment", |c, n| c.fragment_bytes = n as u32),
    ("fragment_low_latency", |c, n| c.fragment_low_latency_bytes = Some(n as u32)),
    ("clock_tolerance", |c, n| c.clock_tolerance = Ppm(n as u32)),
    ("quantum", |c, n| c.cpu.quantum_packets = n as u32),
    ("cpu_share_max", |c, n| c.cpu.utilisation_max = Ppm(n as u32)),
    ("cpu best_effort_share_min", |c, n| c.cpu.best_effort_share_min = Ppm(n as u32)),
    ("best_effort_cpu_cap", |c, n| c.cpu.best_effort_cpu_cap = Ppm(n as u32)),
    ("best_effort_flow_cpu_cap", |c, n| c.cpu.best_effort_flow_cpu_cap = Ppm(n as u32)),
    ("rate", |c, n| c.links[0].rate = BitRate(n)),
    ("rate_error", |c, n| c.links[0].rate_error = Ppm(n as u32)),
    ("packet", |c, n| c.links[1].packet_bytes_max = n as u32),
    ("packet_best_effort", |c, n| c.links[1].packet_best_effort_bytes_max = Some(n as u32)),
    ("pipeline_depth", |c, n| c.links[0].pipeline_depth = n as u32),
    ("propagation_min", |c, n| c.links[0].propagation_min = Nanos(n)),
    ("propagation_max", |c, n| {
        (c.links[0].propagation_min, c.links[0].propagation_max) = (Nanos(1), Nanos(n))
    }),
    ("interference", |c, n| c.links[0].interference.rho = Ppm(n as u32)),
    ("best_effort_share_min", |c, n| c.links[0].best_effort_share_min = Ppm(n as u32)),
    ("best_effort_cap", |c, n| c.links[0].best_effort_cap = Ppm(n as u32)),
    ("best_effort_flow_cap", |c, n| c.links[0].best_effort_flow_cap = Ppm(n as u32)),
    ("frames", |c, n| c.links[0].frames = n as u32),
    ("neighbour", |c, n| c.links[0].neighbour = NodeId(n as u32)),
    ("id", |c, n| c.id = NodeId(n as u32)),
    ("directory", |c, n| c.directory[2].1 = NodeId(n as u32)),
    ("name in the directory", |c, n| c.directory[2].0 = name(["h1", "h2", "h3", "x"][n as usize % 4])),
    ("lease", |c, n| c.signalling.lease = Nanos(n)),
    ("hello", |c, n| c.signalling.hello_interval = Nanos(n)),
    ("retransmit", |c, n| c.signalling.retransmit = Nanos(n)),
    ("consent_timeout", |c, n| c.signalling.consent_timeout = Nanos(n)),
    ("grace", |c, n| c.signalling.grace = Nanos(n)),
    ("retransmits_max", |c, n| c.signalling.retransmits_max = n as u32),
    ("packets_per_second", |c, n| c.signalling.packets_per_second = n as u32),
    ("via", |c, n| c.routes[0].via = vec![NodeId(n as u32)]),
    ("via, behind 1", |c, n| c.routes[0].via = vec![NodeId(1), NodeId(n as u32)]),
    ("long via", |c, n| {
        c.routes[0].via =
            (0..n.min(40)).map(|hop| if hop == 0 { NodeId(1) } else { NodeId(99 + hop as u32) }).collect()
    }),
    ("links", |c, n| c.links.resize(n.min(80) as usize, c.links[1].clone())),
];

#[test]
fn configurations_are_accepted_within_their_ranges() {
    let mut table = Table::default();
    let numbers = [
        0,
        1,
        2,
        3,
        4,
        7,
        8,
        9,
        14,
        15,
        16,
        17,
        31,
        32,
        33,
        63,
        64,
        65,
        128,
        191,
        192,
        193,
        255,
        256,
        500,
        1_200,
        1_400,
        1_463,
        1_464,
        1_465,
        9_000,
        65_000,
        65_535,
        65_536,
        49_999,
        50_000,
        200_000,
        200_001,
        499_999,
        500_000,
        949_999,
        950_000,
        950_001,
        999_999,
        1_000_000,
        1_000_001,
        4_000_000_000,
        20_000_000_000,
    ];
    for (key, change) in KEYS {
        for number in numbers {
            let mut config = line_config(1, 3, BitRate(40_000_000));
            change(&mut config, number);
            let answer = config.check().map_err(|error| error.to_string());
            // Valid values are left out, because most are valid.
            if let Err(error) = &answer {
                table.row(&format!("{key} = {number}"), error);
            }
            if answer.is_ok() && ["packet", "packet_best_effort", "rate_error", "interference"].contains(key)
            {
                let links = config.links.iter().map(|link| {
                    let sizes = (link.best_effort_bytes_max(), link.signal_bytes_max());
                    (
                        link.paced_rate(),
                        link.paced_beside(Ppm(90_000)),
                        link.delay_beside(Ppm(90_000)),
                        sizes,
                        link.follows(),
                    )
                });
                table.row(&format!("{key} = {number}"), &links.collect::<Vec<_>>());
            }
        }
    }
    is_as_written("configurations", &table.0);
}
