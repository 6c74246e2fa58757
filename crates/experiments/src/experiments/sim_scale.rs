//! The cost of channels by their number: networks of up to 10,000 nodes with a million channels, nodes with a
//! growing number of channels of their own, and the link scheduler alone. Real nodes in virtual time on
//! perfect links.
//!
//! Each network is measured in a process of its own, so that its memory is its own.

use anyhow::Context;
use punctual_os::clock::thread_cpu;
use punctual_os::interrupt;
use punctual_sim::scale::{Found, Size, exponent, scheduler_ns};
use serde_json::json;

use super::{Measured, Wanted, worker};
use crate::report::{Check, Plot, Series};

/// Channels that start at a node of the large networks.
const CHANNELS_PER_NODE: usize = 100;
/// Nodes of the networks with a growing number of channels per node.
const NODES: usize = 5;
/// Maximum memory per channel and hop.
const BYTES_PER_HOP_MAX: f64 = 1_024.0;
/// Maximum exponent of the growth beyond n log n, which caches of limited size cause. n^1.5 would leave 0.4,
/// n^2 0.9.
const BEYOND_N_LOG_N_MAX: f64 = 0.2;
/// Maximum growth from each decade to the next, beside n log n: n^1.5 would grow by 2.5, n^2 by 8.
const DECADE_GROWTH_MAX: f64 = 2.0;
/// Maximum exponent of the work per packet: log n, and caches.
const PACKET_EXPONENT_MAX: f64 = 0.3;
/// Maximum exponent of costs that depend only on a node's own channels.
const OWN_EXPONENT_MAX: f64 = 0.05;

/// A network.
struct Point {
    series: &'static str,
    channels_per_node: usize,
    found: Found,
}

impl Point {
    /// Time to establish a channel.
    fn establish_us(&self) -> f64 {
        self.found.establish_s * 1e6 / self.found.channels.max(1) as f64
    }
}

/// Runs it.
pub fn run(conditions: &Wanted) -> anyhow::Result<Measured> {
    let decades = |from: u32, len| (from..from + len).map(|power| 10_usize.pow(power)).collect::<Vec<_>>();
    let sizes = conditions.pick(vec![10, 20], decades(1, 3), decades(1, 4));
    let flows = decades(2, conditions.pick(2, 4, 5));
    let columns = "series, nodes, channels_per_node, channels, established_per_s, establish_us, \
             signals_per_hop, signals_per_node_s, bytes_per_hop, packet_ns";
    let mut measured = Measured::new("channels", columns);
    let of_network =
        |&nodes: &usize| point("network", Size { nodes, channels_per_node: CHANNELS_PER_NODE }, conditions);
    let of_node =
        |&channels_per_node: &usize| point("node", Size { nodes: NODES, channels_per_node }, conditions);
    let networks = sizes.iter().map(of_network).collect::<anyhow::Result<Vec<_>>>()?;
    let owns = sizes.iter().map(of_node).collect::<anyhow::Result<Vec<_>>>()?;
    for point in networks.iter().chain(&owns) {
        let Point { series, channels_per_node, found } = point;
        let establish_us = point.establish_us();
        measured.add([
            json!({ "series": series, "channels_per_node": channels_per_node, "establish_us": establish_us }),
            json!(found),
        ]);
    }
    let mut schedulers = Vec::new();
    for channels in flows {
        conditions.progress(format_args!("link scheduler, {channels} channels"));
        interrupt::check()?;
        let packet_ns =
            scheduler_ns(channels, if conditions.quick { 300_000 } else { 2_000_000 }, thread_cpu)?;
        schedulers.push((channels as f64, packet_ns));
        measured.add([json!({ "series": "scheduler", "channels": channels, "packet_ns": packet_ns })]);
    }
    judge(&mut measured, &networks, &owns, &schedulers);
    measured.plot = Some(plot(&networks, &owns, schedulers));
    Ok(measured)
}

fn point(series: &'static str, size: Size, conditions: &Wanted) -> anyhow::Result<Point> {
    let Size { nodes, channels_per_node } = size;
    conditions.progress(format_args!("{nodes} nodes, {channels_per_node} channels each"));
    interrupt::check()?;
    let found: Found = worker::outcome_of(&worker::Work::Network(size))
        .with_context(|| format!("{nodes} nodes with {channels_per_node} channels each"))?;
    Ok(Point { series, channels_per_node, found })
}

fn judge(measured: &mut Measured, networks: &[Point], owns: &[Point], schedulers: &[(f64, f64)]) {
    let most = |y: fn(&Found) -> f64| networks.iter().chain(owns).map(|p| y(&p.found)).fold(0.0, f64::max);
    let memory = networks.last().map_or(f64::INFINITY, |p| p.found.bytes_per_hop);
    let (signals, to_establish) =
        (fit(networks, |found| found.signals_per_node_s), fit(networks, |found| found.signals_per_hop));
    for (name, value, limit) in [
        ("channels refused", most(|found| found.refused as f64), 0.0),
        ("memory of a channel at one host, B", memory, BYTES_PER_HOP_MAX),
        ("signals of a node grow with the network by the power of", signals, OWN_EXPONENT_MAX),
        (
            "signals to establish a channel grow with the network by the power of",
            to_establish,
            OWN_EXPONENT_MAX,
        ),
        (
            "the link scheduler's work for a packet grows with its channels by the power of",
            exponent(schedulers),
            PACKET_EXPONENT_MAX,
        ),
    ] {
        measured.at_most(name, value, limit);
    }
    for (points, what) in [(networks, "the network"), (owns, "a node's own channels")] {
        measured.checks.extend(growth(points, what));
    }
}

/// Checks of the costs that must not grow with `what` beyond their limits.
fn growth(points: &[Point], what: &str) -> [Check; 4] {
    let establishing = by_n_log_n(points);
    let packets = fit(points, |found| found.packet_ns);
    let memory = fit(points, |found| found.bytes_per_hop);
    let over = "establishing all channels, over n log n, grows";
    let of_all = format!("{over} with {what} by the power of");
    let of_decades = format!("{over} from a decade of {what} to the next by");
    [
        Check::at_most(of_all, exponent(&establishing), BEYOND_N_LOG_N_MAX),
        Check::at_most(of_decades, growth_max(&establishing), DECADE_GROWTH_MAX),
        Check::at_most(
            format!("serving a packet grows with {what} by the power of"),
            packets,
            PACKET_EXPONENT_MAX,
        ),
        Check::at_most(
            format!("memory of a channel grows with {what} by the power of"),
            memory,
            OWN_EXPONENT_MAX,
        ),
    ]
}

/// The exponent with which y grows with the number of channels.
fn fit(points: &[Point], y: fn(&Found) -> f64) -> f64 {
    exponent(&points.iter().map(|p| (p.found.channels as f64, y(&p.found))).collect::<Vec<_>>())
}

/// Channels, and the time to establish them over n log n.
fn by_n_log_n(points: &[Point]) -> Vec<(f64, f64)> {
    let point = |p: &Point| {
        let n = p.found.channels as f64;
        (n, p.found.establish_s / (n * n.ln()))
    };
    points.iter().map(point).collect()
}

/// The largest factor from one point to the next.
fn growth_max(points: &[(f64, f64)]) -> f64 {
    points.windows(2).map(|pair| pair[1].1 / pair[0].1).fold(0.0, f64::max)
}

fn plot(networks: &[Point], owns: &[Point], schedulers: Vec<(f64, f64)>) -> Plot {
    let line = |name: &str, colour, dashed, points: &[Point], y: fn(&Point) -> f64| {
        Series::new(name, colour, points.iter().map(|p| (p.found.channels as f64, y(p)))).dashed(dashed)
    };
    let bytes = |p: &Point| p.found.bytes_per_hop;
    let packet = |p: &Point| p.found.packet_ns;
    let signals = "signals of a node a second (network grows)";
    let series = [
        line("to establish, us (network grows)", 0, false, networks, Point::establish_us),
        line("to establish, us (five nodes)", 0, true, owns, Point::establish_us),
        line("memory at a host, B (network grows)", 1, false, networks, bytes),
        line("a packet at a host, ns (network grows)", 2, false, networks, packet),
        line("a packet at a host, ns (five nodes)", 2, true, owns, packet),
        line(signals, 3, false, networks, |p| p.found.signals_per_node_s),
        Series::new("the link scheduler alone, ns a packet", 4, schedulers),
    ];
    Plot::log_log("what a channel costs by the number of channels", "channels", "see the legend", series)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(establish_s: fn(f64) -> f64) -> Vec<Point> {
        let point = |n: f64| Point {
            series: "network",
            channels_per_node: 100,
            found: Found {
                channels: n as u64,
                establish_s: establish_s(n),
                packet_ns: 5_000.0,
                bytes_per_hop: 1_000.0,
                ..Found::default()
            },
        };
        [1e3, 1e4, 1e5, 1e6].map(point).into()
    }

    fn passes(establish_s: fn(f64) -> f64) -> bool {
        growth(&points(establish_s), "n").iter().all(|check| check.ok)
    }

    #[test]
    fn n_log_n_passes_and_more_does_not() {
        assert!(passes(|n| n * 1e-4) && passes(|n| n * n.ln() * 1e-5));
        assert!(!passes(|n| n.powf(1.4) * 1e-5), "n^1.4");
        assert!(!passes(|n| n * n * 1e-9 + n * 1e-4), "n^2 that shows late");
    }
}
