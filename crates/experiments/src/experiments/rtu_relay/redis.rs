//! redis-server on b and redis-benchmark on a.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use anyhow::{bail, ensure};
use punctual::Nanos;
use punctual_os::clock::{duration, now};
use serde_json::{Value, json};

use super::LOADS;
use super::between::{Process, World};

const CLIENTS: &str = "16";
const STARTED_WITHIN: Nanos = Nanos::from_secs(10);

/// Whether both programs are installed.
pub(super) fn is_installed() -> bool {
    let runs = |program| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    runs("redis-server") && runs("redis-benchmark")
}

/// One run: command, requests a second, and percentiles in us.
struct Found {
    command: String,
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

/// A server behind what is between, and what its runs found by load. Fields drop in this order.
pub(super) struct Figures {
    pub name: &'static str,
    _server: Process,
    world: World,
    found: [Vec<Found>; LOADS.len()],
}

impl Figures {
    /// Starts the server of a world.
    pub fn start(name: &'static str, world: World) -> anyhow::Result<Self> {
        let (bind, port) = (world.server_address(), world.port());
        let far = world.pair().far_place()?.clone();
        let server = far.within(|| {
            let (bind, port) = (bind.to_string(), port.to_string());
            let mut command = Command::new("redis-server");
            command.args(["--bind", &bind, "--port", &port, "--save", "", "--protected-mode", "no"]);
            Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
        })?;
        let figures = Self { name, _server: Process(server), world, found: Default::default() };
        let until = now() + STARTED_WITHIN;
        while far.within(|| Ok(TcpStream::connect((bind, port)).is_err()))? {
            ensure!(now() < until, "redis-server does not listen");
            std::thread::sleep(duration(Nanos::from_millis(10)));
        }
        Ok(figures)
    }

    /// Runs the benchmark once.
    pub fn round(&mut self, load: usize, requests: u32) -> anyhow::Result<()> {
        let (address, port) = (self.world.pair().address.to_string(), self.world.port().to_string());
        let requests = requests.to_string();
        let output = self.world.pair().place.within(|| {
            let mut command = Command::new("timeout");
            command.args([
                "60",
                "redis-benchmark",
                "-h",
                &address,
                "-p",
                &port,
                "-n",
                &requests,
                "-c",
                CLIENTS,
            ]);
            Ok(command.args(["-t", "set,get", "-d", "64", "--csv"]).stdin(Stdio::null()).output()?)
        })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("redis-benchmark: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        let found = text.lines().filter_map(parse).collect::<Vec<_>>();
        ensure!(found.len() == 2, "redis-benchmark printed {text}");
        self.found[load].extend(found);
        Ok(())
    }

    /// The medians of the runs under a load, a row for each command.
    pub fn rows(&self, load: usize) -> Vec<Value> {
        let row = |command: &str| {
            let of: Vec<&Found> = self.found[load].iter().filter(|found| found.command == command).collect();
            let median = |value: fn(&Found) -> f64| {
                let mut values: Vec<f64> = of.iter().map(|found| value(found)).collect();
                values.sort_by(f64::total_cmp);
                values.get(values.len() / 2).copied()
            };
            let rate = median(|found| found.rate)?;
            Some(json!({
                "what": format!("redis {command}, {CLIENTS} clients"),
                "samples": of.len(),
                "requests_per_s": rate.round(),
                "p50_us": median(|found| found.p50_us),
                "p99_us": median(|found| found.p99_us),
                "max_us": median(|found| found.max_us),
            }))
        };
        ["SET", "GET"].into_iter().filter_map(row).collect()
    }
}

/// A row `"SET","requests a second","avg_latency_ms","min","p50","p95","p99","max"`; `None` for its head.
fn parse(line: &str) -> Option<Found> {
    let fields: Vec<&str> = line.split(',').map(|field| field.trim_matches('"')).collect();
    let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
    let us = |at: usize| Some(number(at)? * 1e3);
    Some(Found {
        command: (*fields.first()?).to_owned(),
        rate: number(1)?,
        p50_us: us(4)?,
        p99_us: us(6)?,
        max_us: us(7)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_redis_benchmark_is_read() {
        let head = r#""test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms""#;
        assert!(parse(head).is_none());
        let row = r#""GET","81300.81","0.335","0.096","0.327","0.455","0.567","1.191""#;
        let found = parse(row).expect("a row");
        assert_eq!((found.command.as_str(), found.rate), ("GET", 81_300.81));
        assert_eq!([found.p50_us, found.p99_us, found.max_us].map(f64::round), [327.0, 567.0, 1_191.0]);
    }
}
