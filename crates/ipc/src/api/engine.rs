//! Status of a host's processor and of the drivers of its links.

use std::fmt;
use std::path::PathBuf;

use punctual_proto::config::CostSource;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The processor's thread, and the drivers of its links. Counters begin at the start of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// The processor has no real-time class: nothing is guaranteed.
    pub best_effort_host: bool,
    /// Scheduling class of the processor's thread.
    pub class: ClassStatus,
    /// Times at which the kernel gave it no larger runtime: channels were refused or closed for it.
    pub runtimes_refused: u64,
    /// Times at which it slept and woke.
    pub wakes: u64,
    /// Turns of its loop.
    pub loops: u64,
    /// The longest turn, in ns.
    pub loop_ns_max: u64,
    /// Units of protocol work.
    pub work_units: u64,
    /// Wake-ups more than a millisecond after the requested time.
    pub late_wakes: u64,
    /// The largest delay of a timed wake-up, in ns after the requested time.
    pub wake_late_ns_max: u64,
    /// Times at which a link could not be read since its pool of frames was in use.
    pub receive_pool_dry: u64,
    /// Times at which a packet had to wait for room in a driver.
    pub driver_full: u64,
    /// Times at which the node wanted to run at once and then did no work.
    pub stalls: u64,
    /// Links that failed permanently.
    pub links_failed: u64,
    /// Channels that could not be added to a driver, or not removed from it.
    pub filters_failed: u64,
    /// System calls that the host's threads made and that are not in their lists.
    pub system_calls_refused: u64,
    /// Times at which the processor waited for memory.
    pub heap_waits: u64,
    /// The profile that the processor's costs come from.
    pub profile: ProfileStatus,
    /// The links, in the order of the configuration.
    pub links: Vec<DriverStatus>,
}

/// How the processor's thread is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum ClassStatus {
    /// `SCHED_FIFO`.
    Fifo {
        /// 1 to 99.
        priority: u8,
    },
    /// `SCHED_DEADLINE`.
    Deadline {
        /// CPU time in each period, in ns.
        runtime_ns: u64,
        /// Length of a period, in ns.
        period_ns: u64,
    },
    /// An ordinary thread.
    #[default]
    BestEffort,
}

/// The source of the costs of a processor's work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileStatus {
    /// The source of the costs.
    pub costs_from: CostSource,
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Time at which it was measured.
    pub measured: Option<String>,
    /// Summary of the profile in one line, for people.
    pub summary: String,
    /// Packets that a handler finishes before it yields: as configured, or as many as fit.
    pub quantum_packets: u32,
    /// Times in the configuration that are too short for what was measured, one line each with the fix.
    pub warnings: Vec<String>,
}

impl fmt::Display for ProfileStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

/// A link's driver, and its counters since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverStatus {
    /// The link.
    pub name: String,
    /// The driver and its mode, for people.
    pub mode: String,
    /// True if the link has failed permanently.
    pub failed: bool,
    /// Further facts about the link, for people.
    pub facts: Facts,
    /// Traffic of other senders on its device in the last second, in bits a second; `None` if it is not
    /// watched, or not known yet.
    pub foreign_bps: Option<u64>,
    /// Packets received.
    pub packets_in: u64,
    /// Packets handed to the medium.
    pub packets_out: u64,
    /// Packets lost since a queue of the driver or of the kernel was full, on either way.
    pub overflows: u64,
    /// Packets that the kernel refused to send.
    pub send_errors: u64,
    /// Times at which sending had to wait for room in the kernel.
    pub send_waits: u64,
    /// Times at which no buffer was left for an arrived packet.
    pub pool_dry: u64,
    /// Packets longer than a buffer.
    pub truncated: u64,
    /// Packets that were dropped before they took a buffer, by reason.
    pub drops: DriverDrops,
}

/// Packets that a driver dropped before they took a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverDrops {
    /// Packets beyond what a token bucket lets through.
    pub policed: u64,
    /// Packets that are not Punctual's.
    pub malformed: u64,
    /// Packets of a path that no channel here has.
    pub unknown: u64,
    /// Packets with another cookie than their channel's.
    pub wrong_cookie: u64,
    /// Packets that came while all buffers of their class were in use.
    pub no_buffer: u64,
    /// Packets of a channel that arrived after its time had expired.
    pub expired: u64,
    /// Packets that were seen before.
    pub replayed: u64,
    /// IP fragments of packets for this host's own TCP.
    #[serde(default)]
    pub fragmented: u64,
}

impl DriverDrops {
    /// Packets that were dropped for any reason.
    pub const fn total(&self) -> u64 {
        let Self { policed, malformed, unknown, wrong_cookie, no_buffer, expired, replayed, fragmented } =
            *self;
        policed + malformed + unknown + wrong_cookie + no_buffer + expired + replayed + fragmented
    }
}

/// Names and values, in an order for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(Vec<(String, String)>);

impl Facts {
    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Facts {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(facts: I) -> Self {
        Self(facts.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Facts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Facts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names and values")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Facts, M::Error> {
                let mut facts = Vec::new();
                while let Some(fact) = map.next_entry()? {
                    facts.push(fact);
                }
                Ok(Facts(facts))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::{ClassStatus, Facts};

    #[test]
    fn facts_keep_their_order() {
        let facts: Facts = [("queue", "2"), ("device", "eth0")].into_iter().collect();
        let text = serde_json::to_string(&facts).expect("JSON");
        assert_eq!(text, r#"{"queue":"2","device":"eth0"}"#);
        assert_eq!(serde_json::from_str::<Facts>(&text).expect("facts"), facts);
        assert_eq!((facts.get("device"), facts.get("driver")), (Some("eth0"), None));
    }

    #[test]
    fn classes_are_shown_by_name() {
        let text = |class: ClassStatus| serde_json::to_string(&class).expect("JSON");
        assert_eq!(text(ClassStatus::Fifo { priority: 80 }), r#"{"name":"fifo","priority":80}"#);
        let deadline = ClassStatus::Deadline { runtime_ns: 5, period_ns: 9 };
        assert_eq!(text(deadline), r#"{"name":"deadline","runtime_ns":5,"period_ns":9}"#);
        assert_eq!(text(ClassStatus::BestEffort), r#"{"name":"best-effort"}"#);
    }
}
