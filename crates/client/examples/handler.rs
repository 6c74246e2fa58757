//! A program's code in the run queue of the protocol (RTU 5): a timed handler takes a sample in each period, and a low-delay
//! handler computes an answer to each. Both are admitted beside the channels, with bounds that the program prints.
//!
//!     cargo run -p punctual --example handler

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual::config::parse;
use punctual::rtu::{Class, Cost, Progress, Rtu, Terms};
use punctual::{Endsystem, HostConfig, Nanos};
use punctual_link::{Link, MemoryLink, MemoryOptions};

type Failure = Box<dyn std::error::Error>;

/// Time between two samples.
const PERIOD: Nanos = Nanos::from_millis(2);

fn config() -> Result<HostConfig, Failure> {
    let text = r#"
        node.name = "a"
        processor.best_effort_host = true
        processor.profile_measure = false
        signalling.key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        host = [{ name = "a", id = 1 }, { name = "b", id = 2 }]
        link = [{ name = "l", neighbour = "b", driver = "memory", rate = "400Mbit/s" }]
    "#;
    Ok(parse(text, Path::new("handler.toml"))?)
}

/// Terms of a handler with one data unit in each `span`.
fn terms(class: Class) -> Terms {
    let cost = Cost { run: Nanos::from_micros(2), unit: Nanos::from_micros(8) };
    Terms { class, deadline: None, quantum: 1, cost }
}

/// The sampler, which is called in each period, and the receiver of its samples, which it wakes.
pub fn sample(host: &Endsystem) -> Result<(Rtu, Receiver<u64>), Failure> {
    let samples = Arc::new(Mutex::new(Vec::with_capacity(16)));
    let (sender, receiver) = channel();
    let theirs = Arc::clone(&samples);
    let low = Class::LowDelay { interval: PERIOD, units: 2, priority: None };
    let answers = host.register(terms(low), move |_| {
        let mut samples = theirs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sample) = samples.pop() else { return Progress::default() };
        // The receiver of samples is gone only when the program ends: the error is ignored.
        let _ = sender.send(sample);
        Progress { units: 1, more: !samples.is_empty() }
    })?;
    println!("low delay: done within {:?} of being made ready", answers.grant().bound);
    let mut count = 0;
    let timed = Class::periodic(PERIOD, 1);
    let sampler = host.register(terms(timed), move |_| {
        count += 1;
        samples.lock().unwrap_or_else(PoisonError::into_inner).push(count);
        // Both run on the processor: this takes no system call.
        let _ = answers.make_ready();
        Progress { units: 1, more: true }
    })?;
    println!("guaranteed: done within {:?} of each period's begin", sampler.grant().bound);
    sampler.make_ready()?;
    Ok((sampler, receiver))
}

/// A host whose link has no neighbour: handlers need none.
pub fn host() -> Result<Endsystem, Failure> {
    let (link, _) = MemoryLink::pair(MemoryOptions::default())?;
    Ok(Endsystem::embedded_with(&config()?, vec![Box::new(link) as Box<dyn Link>])?)
}

fn main() -> Result<(), Failure> {
    let host = host()?;
    let (sampler, receiver) = sample(&host)?;
    for _ in 0..500 {
        receiver.recv_timeout(Duration::from_secs(5))?;
    }
    for status in host.handlers()? {
        println!("{:?}: {:?}", status.terms.class, status.counters);
    }
    drop(sampler);
    Ok(())
}
