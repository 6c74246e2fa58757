//! One stream of an experiment, the same in both worlds.

use punctual::{Contract, Nanos, Rate};

use crate::loads::{Arrivals, Class, Content};

/// A stream: its content, its ends and its contract.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    /// Name of the stream in tables, and of its port.
    pub name: &'static str,
    /// The source host.
    pub from: &'static str,
    /// The sink host.
    pub to: &'static str,
    /// `None`: best effort.
    pub contract: Option<Contract>,
    /// Messages of the stream.
    pub content: Content,
    /// When they are sent.
    pub arrivals: Arrivals,
    /// Whether its receiver runs in the real-time class if there is one.
    pub receiver_real_time: bool,
    /// The stream that answers each message of this one, by name; the answers have no source of their own.
    pub answered_by: Option<&'static str>,
}

impl StreamSpec {
    /// A guaranteed stream from a to b.
    pub fn guaranteed(name: &'static str, contract: Contract, content: Content, arrivals: Arrivals) -> Self {
        Self {
            contract: Some(contract),
            receiver_real_time: true,
            ..Self::best_effort(name, content, arrivals)
        }
    }

    /// A best-effort stream from a to b.
    pub fn best_effort(name: &'static str, content: Content, arrivals: Arrivals) -> Self {
        Self {
            name,
            from: "a",
            to: "b",
            contract: None,
            content,
            arrivals,
            receiver_real_time: false,
            answered_by: None,
        }
    }

    /// The promise, if any.
    pub fn deadline(&self) -> Option<Nanos> {
        self.contract.map(|contract| contract.deadline)
    }

    /// Guaranteed senders run in the real-time class, in both worlds, if there is one.
    pub const fn sender_class(&self, real_time: bool) -> Class {
        if real_time && self.contract.is_some() { Class::RealTime } else { Class::Ordinary }
    }

    /// The receiver's class.
    pub const fn receiver_class(&self, real_time: bool) -> Class {
        if real_time && self.receiver_real_time { Class::RealTime } else { Class::Ordinary }
    }
}

/// A contract of whole milliseconds and messages per second.
///
/// # Panics
/// If the figures are out of range: they are constants of experiments.
pub fn contract(bytes: u32, per_second: u64, burst: u32, deadline_ms: u64) -> Contract {
    let rate = Rate::per_second(per_second).expect("a rate of an experiment");
    Contract::new(bytes, rate, burst, Nanos::from_millis(deadline_ms)).expect("a contract of an experiment")
}
