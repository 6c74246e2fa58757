//! redis-server with redis-benchmark and redis-cli.

use crate::Size;
use crate::process::{run as run_program, run_with};
use crate::table::Figures;
use crate::world::World;

const PORT: u16 = 6_379;

pub fn run(world: &World, size: Size) -> Result<Figures, String> {
    let (port, folder) = (PORT.to_string(), world.folder.display().to_string());
    let server =
        ["redis-server", "--port", &port, "--bind", world.server_address(), "--save", "", "--dir", &folder];
    let _server = world.serve(PORT, &[&server[..], &["--protected-mode", "no"]].concat())?;
    world.relay(PORT, "best-effort");
    value(world, &port)?;
    let mut figures = Vec::new();
    let requests = size.pick("5000", "100000");
    for (what, options) in [("50 connections", &["-c", "50"][..]), ("1 connection", &["-c", "1"])] {
        let fewer = if options[1] == "1" { size.pick("1000", "20000") } else { requests };
        let ends =
            ["-h", world.client_address(), "-p", &port, "-n", fewer, "-t", "set,get", "-d", "64", "--csv"];
        let out =
            run_program(world.client_host(), 120, &[&["redis-benchmark"][..], &ends, options].concat())?;
        figures.extend(rows(&String::from_utf8_lossy(&out), what)?);
    }
    Ok(figures)
}

/// Writes a large value and reads it back.
fn value(world: &World, port: &str) -> Result<(), String> {
    let value: Vec<u8> = (0..4_u32 << 20).map(|at| b'a' + (at % 23) as u8).collect();
    let client = ["redis-cli", "-h", world.client_address(), "-p", port];
    let set = run_with(world.client_host(), 60, &[&client[..], &["-x", "set", "key"]].concat(), &value)?;
    let mut got = run_program(world.client_host(), 60, &[&client[..], &["get", "key"]].concat())?;
    // redis-cli ends what it prints with a line end.
    got.pop();
    if set.starts_with(b"OK") && got == value {
        return Ok(());
    }
    Err(format!("redis-cli: {} B of {}", got.len(), value.len()))
}

/// Rows `"SET","requests a second","avg_latency_ms","min","p50","p95","p99","max"`.
fn rows(csv: &str, what: &str) -> Result<Figures, String> {
    let mut figures = Vec::new();
    for line in csv.lines().filter(|line| line.starts_with("\"SET") || line.starts_with("\"GET")) {
        let fields: Vec<_> = line.split(',').map(|field| field.trim_matches('"')).collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        let (Some(rate), Some(p50), Some(p99)) = (number(1), number(4), number(6)) else {
            return Err(format!("redis-benchmark printed {line}"));
        };
        figures.push((format!("{}, {what}", fields[0]), "1/s", rate));
        figures.push((format!("{}, {what}, p50", fields[0]), "us", p50 * 1e3));
        figures.push((format!("{}, {what}, p99", fields[0]), "us", p99 * 1e3));
    }
    if figures.len() == 6 { Ok(figures) } else { Err(format!("redis-benchmark printed {csv}")) }
}
