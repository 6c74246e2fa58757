//! Measures round trips between two engines in one process. Handlers on the engines' own threads answer, so
//! no thread has to be woken: the result is the cost of one pass through the stack.
//!
//!     cargo run --release -p punctual --example round_trip -- [memory|udp] [ROUND_TRIPS] [SPIN_US]
//!
//! It needs two CPUs and the right to use `SCHED_FIFO`. With `BEST_EFFORT_HOST` set it uses ordinary threads,
//! which other threads may pre-empt.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use punctual::config::parse;
use punctual::{Consent, Contract, Endsystem, HostConfig, Nanos, Rate, now};
use punctual_link::{Link, MemoryLink, MemoryOptions};

type Failure = Box<dyn std::error::Error>;

fn config(name: &str, us: u8, them: u8, driver: &str, cpu: u32, spin: Nanos) -> Result<HostConfig, Failure> {
    let neighbour = if name == "a" { "b" } else { "a" };
    let addresses = match driver {
        "udp" => {
            format!("local = \"127.0.0.{us}\", peer = \"127.0.0.{them}\",")
        }
        _ => String::new(),
    };
    let text = format!(
        r#"
        node.name = "{name}"
        processor = {{ cpu = {cpu}, costs = {{ send_message = "200ns", send_packet = "200ns",
                      receive_packet = "200ns", deliver_message = "200ns", copy_kib = "50ns" }} }}
        signalling.key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        host = [{{ name = "a", id = 1 }}, {{ name = "b", id = 2 }}]
        link = [{{ name = "wire", neighbour = "{neighbour}", driver = "{driver}", rate = "10Gbit/s", {addresses}
                  prediction_error = "2ms", propagation_max = "10us", pace = "completion", reaction = "500ns" }}]
        "#
    );
    let mut config = parse(&text, Path::new("example.toml"))?;
    if std::env::var_os("BEST_EFFORT_HOST").is_some() {
        config.run_on_best_effort_host();
    }
    config.spin = spin;
    Ok(config)
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let driver = arguments.next().unwrap_or_else(|| "memory".into());
    let count: u32 = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let spin = Nanos::from_micros(arguments.next().map_or(Ok(50_000), |text| text.parse())?);
    let (of_a, of_b) = (config("a", 1, 2, &driver, 0, spin)?, config("b", 2, 1, &driver, 1, spin)?);
    let (a, b) = match driver.as_str() {
        "udp" => (Endsystem::embedded(&of_a)?, Endsystem::embedded(&of_b)?),
        _ => {
            let (to_b, to_a) = MemoryLink::pair(MemoryOptions::default())?;
            let boxed = |link: MemoryLink| vec![Box::new(link) as Box<dyn Link>];
            (Endsystem::embedded_with(&of_a, boxed(to_b))?, Endsystem::embedded_with(&of_b, boxed(to_a))?)
        }
    };
    while !(a.status()?.node.links[0].alive && b.status()?.node.links[0].alive) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let rate = Rate::per_second(400_000).ok_or("a rate")?;
    let contract = Contract::new(64, rate, 4, Nanos::from_millis(3))?;
    let declared = Nanos::from_micros(1);
    let (pings, pongs) = (
        b.listen_direct("ping", declared, |_| Consent::Accept)?,
        a.listen_direct("pong", declared, |_| Consent::Accept)?,
    );
    let (mut there, mut back) = (a.open("ping@b", contract)?, b.open("pong@a", contract)?);
    let echo = pings.accept()?.on_message(move |message, _, reply| {
        // A full queue ends the run with an error.
        let _ = reply.send(&mut back, message);
    })?;
    let (done, wait) = mpsc::sync_channel(1);
    let mut trips: Vec<u64> = Vec::with_capacity(count as usize);
    let first = now().0.to_le_bytes();
    there.send(&first)?;
    let reception = pongs.accept()?.on_message(move |message, _, reply| {
        let at = now().0;
        let sent = message.try_into().map_or(at, u64::from_le_bytes);
        if trips.len() < trips.capacity() {
            trips.push(at - sent);
            let _ = reply.send(&mut there, &now().0.to_le_bytes());
        } else {
            let _ = done.try_send(std::mem::take(&mut trips));
        }
    })?;
    let started = Instant::now();
    let mut trips = wait.recv_timeout(Duration::from_secs(60))?;
    trips.sort_unstable();
    let at = |part: f64| trips[((trips.len() - 1) as f64 * part) as usize];
    println!(
        "{driver}: {} round trips in {:.1} s; ns p10 {} p50 {} p90 {} p99 {}; direct {} {}, overruns {} {}",
        trips.len(),
        started.elapsed().as_secs_f64(),
        at(0.1),
        at(0.5),
        at(0.9),
        at(0.99),
        echo.is_direct(),
        reception.is_direct(),
        echo.overruns(),
        reception.overruns(),
    );
    Ok(())
}
