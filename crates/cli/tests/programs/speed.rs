//! iperf3 in both directions, and sockperf's ping-pong.

use serde_json::Value;

use crate::Size;
use crate::process::run;
use crate::table::Figures;
use crate::world::World;

const IPERF_PORT: u16 = 5_201;
const SOCKPERF_PORT: u16 = 11_111;

pub fn iperf(world: &World, size: Size) -> Result<Figures, String> {
    let port = IPERF_PORT.to_string();
    let _server = world.serve(IPERF_PORT, &["iperf3", "-s", "-B", world.server_address(), "-p", &port])?;
    world.relay(IPERF_PORT, "best-effort");
    let seconds = size.pick("1", "5");
    let mut figures = Vec::new();
    for (what, options) in [
        ("to the server", &[][..]),
        ("to the client", &["-R"]),
        ("to the server, 8 connections", &["-P", "8"]),
        ("to the client, 8 connections", &["-R", "-P", "8"]),
    ] {
        let line = ["iperf3", "-c", world.client_address(), "-p", &port, "-t", seconds, "-J"];
        let out = run(world.client_host(), 60, &[&line[..], options].concat())?;
        let report: Value = serde_json::from_slice(&out).map_err(|error| error.to_string())?;
        let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
        let bits = bits.filter(|bits| *bits > 0.0).ok_or_else(|| format!("iperf3: {}", report["error"]))?;
        figures.push((what.to_owned(), "MB/s", bits / 8e6));
    }
    Ok(figures)
}

pub fn sockperf(world: &World, size: Size) -> Result<Figures, String> {
    let port = SOCKPERF_PORT.to_string();
    let server = ["sockperf", "server", "--tcp", "-i", world.server_address(), "-p", &port];
    let _server = world.serve(SOCKPERF_PORT, &server)?;
    world.relay(SOCKPERF_PORT, "low-delay --interval 10ms --units 24");
    let ends = ["sockperf", "ping-pong", "--tcp", "-i", world.client_address(), "-p", &port];
    let options = ["-t", size.pick("1", "5"), "--mps", "1000", "-m", "64", "--full-rtt"];
    let out = run(world.client_host(), 60, &[&ends[..], &options].concat())?;
    let out = String::from_utf8_lossy(&out).into_owned();
    let mut figures = Vec::new();
    for (percentile, name) in [("50.000", "p50"), ("99.000", "p99"), ("99.900", "p99.9")] {
        let line = out.lines().find(|line| line.contains(&format!("percentile {percentile}")));
        let value = line.and_then(|line| line.rsplit('=').next()?.trim().parse().ok());
        let value = value.ok_or_else(|| format!("sockperf printed {out}"))?;
        figures.push((format!("64 B, 1,000/s, round trip {name}"), "us", value));
    }
    Ok(figures)
}
