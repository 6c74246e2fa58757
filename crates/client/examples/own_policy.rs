//! A program that embeds an engine and brings its own admission policy: `edf` with at most two channels.
//!
//! Run it with `cargo run -p punctual --example own_policy`. A policy owns the record of what one stage has given away. Here
//! the stage is the processor of host a. A [`Policy`] describes the policy, and an [`AdmissionPolicy`] decides.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual::config::parse;
use punctual::policy::{
    Admission, AdmissionPolicy, Demand, Explanation, Offer, Policy, Refusal, RefusalReason, RunPolicy,
    StageKey,
};
use punctual::{Channel, Consent, Contract, Endsystem, HostConfig, Nanos, OpenError, Ppm, Rate};
use punctual_link::{MemoryLink, MemoryOptions};

/// Two channels, and the channel of the host's own signalling, which every stage holds.
const HELD_MAX: usize = 3;

static AT_MOST_TWO: Policy = Policy {
    name: "at-most-two",
    // These are properties of `edf`, to which this policy delegates.
    run: RunPolicy::Edf,
    counts_early: false,
    has_fixed_order: false,
    bears_changing_share: true,
    build: |model| Box::new(AtMostTwo { edf: (Admission::EDF.build)(model) }),
};

#[derive(Debug)]
struct AtMostTwo {
    edf: Box<dyn AdmissionPolicy>,
}

impl AtMostTwo {
    fn is_full(&self) -> Result<(), Refusal> {
        let reason = RefusalReason::Others;
        let full = Refusal { reason, bound_possible: None, period_possible: None };
        if self.edf.len() < HELD_MAX { Ok(()) } else { Err(full) }
    }
}

impl AdmissionPolicy for AtMostTwo {
    fn offer(&mut self, demand: &Demand, bound_limit: Nanos) -> Result<Offer, Refusal> {
        self.is_full()?;
        self.edf.offer(demand, bound_limit)
    }

    fn hold(&mut self, key: StageKey, demand: &Demand, bound: Nanos) -> Result<(), Refusal> {
        if self.edf.bound(key).is_none() {
            self.is_full()?;
        }
        self.edf.hold(key, demand, bound)
    }

    fn relax(&mut self, key: StageKey, bound: Nanos) -> Result<(), Refusal> {
        self.edf.relax(key, bound)
    }

    fn release(&mut self, key: StageKey) -> bool {
        self.edf.release(key)
    }

    fn bound(&self, key: StageKey) -> Option<Nanos> {
        self.edf.bound(key)
    }

    fn explain(&mut self, demand: &Demand, bound_limit: Nanos) -> Option<Explanation> {
        self.edf.explain(demand, bound_limit)
    }

    fn drop_caches(&mut self) {
        self.edf.drop_caches();
    }

    fn utilisation(&self) -> Ppm {
        self.edf.utilisation()
    }

    fn len(&self) -> usize {
        self.edf.len()
    }

    fn admission(&self) -> Admission {
        Admission::new(&AT_MOST_TWO)
    }
}

/// Configures two hosts in this process. They run without a real-time class, so that every user can run this
/// example.
fn config(name: &str, neighbour: &str) -> Result<HostConfig, Box<dyn Error>> {
    let text = format!(
        r#"
        node.name = "{name}"
        processor = {{ best_effort_host = true, profile_measure = false }}
        signalling.key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        host = [{{ name = "a", id = 1 }}, {{ name = "b", id = 2 }}]
        link = [{{ name = "l", neighbour = "{neighbour}", driver = "memory", rate = "100Mbit/s", prediction_error = "500ms" }}]
        "#
    );
    Ok(parse(&text, Path::new("own_policy.toml"))?)
}

/// Opens channels from host a until one is refused. Returns the open channels, and why the next one was refused.
pub fn open_until_refused() -> Result<(Vec<Channel>, OpenError), Box<dyn Error>> {
    let (to_b, to_a) = MemoryLink::pair(MemoryOptions::default())?;
    let mut of_a = config("a", "b")?;
    of_a.node.cpu.admission = Admission::new(&AT_MOST_TWO);
    let a = Endsystem::embedded_with(&of_a, vec![Box::new(to_b)])?;
    let b = Endsystem::embedded_with(&config("b", "a")?, vec![Box::new(to_a)])?;
    let until = Instant::now() + Duration::from_secs(20);
    while !(a.status()?.node.links[0].alive && b.status()?.node.links[0].alive) {
        if Instant::now() > until {
            return Err("the hosts never saw one another".into());
        }
        std::thread::yield_now();
    }
    let _listener = b.listen("sink", |_| Consent::Accept)?;
    let contract = Contract::new(100, Rate::per_second(10).ok_or("a rate")?, 1, Nanos::from_millis(1_500))?;
    let mut channels = Vec::new();
    loop {
        match a.open("sink@b", contract) {
            Ok(channel) => channels.push(channel),
            Err(refused) => return Ok((channels, refused)),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (channels, refused) = open_until_refused()?;
    println!("{} channels, then: {refused}", channels.len());
    Ok(())
}
