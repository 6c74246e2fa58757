//! One stream of an experiment, the same in both worlds.

use punctual::{Contract, Nanos, Rate};

use crate::loads::{Arrivals, Class, Content};

/// What is sent, from where to where, under which contract.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    /// Its name in tables; also the port's.
    pub name: &'static str,
    /// The source host.
    pub from: &'static str,
    /// The sink host.
    pub to: &'static str,
    /// `None`: best effort.
    pub contract: Option<Contract>,
    /// Its messages.
    pub content: Content,
    /// When they are sent.
    pub arrivals: Arrivals,
    /// The stream that answers each message of this one, by name; it has no source of its own.
    pub answered_by: Option<&'static str>,
}

impl StreamSpec {
    /// A guaranteed stream from a to b.
    pub fn guaranteed(name: &'static str, contract: Contract, content: Content, arrivals: Arrivals) -> Self {
        Self { name, from: "a", to: "b", contract: Some(contract), content, arrivals, answered_by: None }
    }

    /// A best-effort stream from a to b.
    pub fn best_effort(name: &'static str, content: Content, arrivals: Arrivals) -> Self {
        Self { name, from: "a", to: "b", contract: None, content, arrivals, answered_by: None }
    }

    /// The promise, if any.
    pub fn deadline(&self) -> Option<Nanos> {
        self.contract.map(|contract| contract.deadline)
    }

    /// Guaranteed applications run in the real-time class, in both worlds, where there is one.
    pub const fn class(&self, real_time: bool) -> Class {
        if real_time && self.contract.is_some() { Class::RealTime } else { Class::Ordinary }
    }
}

/// A contract of whole milliseconds and messages per second.
///
/// # Panics
/// Where the figures are out of range: they are constants of experiments.
pub fn contract(bytes: u32, per_second: u64, burst: u32, deadline_ms: u64) -> Contract {
    let rate = Rate::per_second(per_second).expect("a rate of an experiment");
    Contract::new(bytes, rate, burst, Nanos::from_millis(deadline_ms)).expect("a contract of an experiment")
}
