//! Application and protocol handlers in one run queue (RTU 5.2): the protocol's handler of a channel hands over a message and
//! makes the application's handler ready, which runs in its class, before the next message of a burst. The program prints the
//! order that it has seen, and sends each result onward on slots of its own.
//!
//!     cargo run -p punctual --example alternation

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual::config::parse;
use punctual::rtu::{Class, Cost, Progress, Terms};
use punctual::{Consent, Contract, Endsystem, HostConfig, Nanos, Rate, Receiver};
use punctual_link::{Link, MemoryLink, MemoryOptions};

type Failure = Box<dyn std::error::Error>;

/// Messages of the burst.
pub const BURST: u64 = 8;
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// What has run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// The protocol's handler, for the message of this number.
    Protocol(u64),
    /// The application's, for the same.
    Application(u64),
}

fn config(name: &str, neighbour: &str) -> Result<HostConfig, Failure> {
    let text = format!(
        r#"
        node.name = "{name}"
        processor.best_effort_host = true
        processor.profile_measure = false
        signalling = {{ key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", hello = "1s" }}
        host = [{{ name = "a", id = 1 }}, {{ name = "b", id = 2 }}]
        link = [{{ name = "l", neighbour = "{neighbour}", driver = "memory", rate = "400Mbit/s",
                  prediction_error = "500ms" }}]
        "#
    );
    Ok(parse(&text, Path::new("alternation.toml"))?)
}

/// Hosts a and b, which see one another.
fn hosts() -> Result<[Endsystem; 2], Failure> {
    let (to_b, to_a) = MemoryLink::pair(MemoryOptions::default())?;
    let start = |name, neighbour, link: MemoryLink| -> Result<Endsystem, Failure> {
        Ok(Endsystem::embedded_with(&config(name, neighbour)?, vec![Box::new(link) as Box<dyn Link>])?)
    };
    let hosts = [start("a", "b", to_b)?, start("b", "a", to_a)?];
    let until = Instant::now() + PATIENCE;
    for host in &hosts {
        while !host.status()?.node.links[0].alive {
            if Instant::now() > until {
                return Err("the hosts never saw one another".into());
            }
            std::thread::yield_now();
        }
    }
    Ok(hosts)
}

/// The results that `b` sends back come to this port of `a`.
fn results(a: &Endsystem) -> Result<Receiver, Failure> {
    let mut results = a.bind_best_effort("results", 8)?;
    results.set_recv_timeout(Some(PATIENCE));
    Ok(results)
}

/// Sends a burst from a to b, where both handlers run; returns what ran, in order, and the results that a has got.
pub fn run() -> Result<(Vec<Ran>, Vec<u64>), Failure> {
    let [a, b] = hosts()?;
    let mut results = results(&a)?;
    let (ran, queue) =
        (Arc::new(Mutex::new(Vec::with_capacity(64))), Arc::new(Mutex::new(VecDeque::with_capacity(64))));
    // One data unit for each message, with one packet for its result.
    let terms = Terms {
        class: Class::LowDelay { interval: Nanos::from_millis(20), units: BURST as u32, priority: None },
        deadline: None,
        quantum: 1,
        cost: Cost { run: Nanos::from_micros(2), unit: Nanos::from_micros(10) },
    };
    let (seen, messages) = (Arc::clone(&ran), Arc::clone(&queue));
    let application = b.register_sending(terms, "results@a", (1, 8), move |_, sender| {
        let mut messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(number): Option<u64> = messages.pop_front() else { return Progress::default() };
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(Ran::Application(number));
        // A ring that is full holds more than was promised to leave in time: the result is lost then.
        let _ = sender.send(&(number * number).to_le_bytes());
        Progress { units: 1, more: !messages.is_empty() }
    })?;
    println!("done within {:?}, sent within {:?}", application.grant().bound, application.grant().sent);

    let listener = b.listen_direct("numbers", Nanos::from_micros(20), |_| Consent::Accept)?;
    let rate = Rate::per_second(50).ok_or("a rate")?;
    let mut channel = a.open("numbers@b", Contract::new(8, rate, BURST as u32, Nanos::from_secs(1))?)?;
    let seen = Arc::clone(&ran);
    let _protocol = listener.accept()?.on_message(move |_, info, _| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(Ran::Protocol(info.number));
        queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(info.number);
        // Both run on the processor: this takes no system call. An error means that the host is gone.
        let _ = application.make_ready();
    })?;
    for number in 0..BURST {
        channel.send(&number.to_le_bytes())?;
    }
    let mut squares = Vec::new();
    let mut bytes = [0; 8];
    for _ in 0..BURST {
        results.recv(&mut bytes)?;
        squares.push(u64::from_le_bytes(bytes));
    }
    let ran = ran.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((ran, squares))
}

fn main() -> Result<(), Failure> {
    let (ran, squares) = run()?;
    println!("{ran:?}");
    println!("results: {squares:?}");
    Ok(())
}
