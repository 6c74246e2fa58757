//! Results of a run, and their JSON form for scripts.

use std::ops::AddAssign;

use punctual_analysis::Nanos;
use serde::{Deserialize, Serialize};

use crate::resident::Reading;
use crate::trace::Timeline;

/// A violation of a checked property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The seed that reproduces it.
    pub seed: u64,
    /// Description, place and (virtual) time.
    pub what: String,
}

/// The result of one seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Messages of admitted channels that were delivered.
    pub messages: u64,
    /// Conforming messages that were delivered after l + D while no fault touched their channel.
    pub misses: u64,
    /// Channels that were admitted.
    pub admitted: u64,
    /// Channels that were refused.
    pub refused: u64,
    /// Channels that were refused because a neighbour uses another version.
    pub refused_versions: u64,
    /// Messages of soft channels, of independent sources and untouched by faults.
    pub soft_messages: u64,
    /// Soft messages that missed.
    pub soft_misses: u64,
    /// Misses that their contracts permit, in thousandths.
    pub soft_borne_milli: u64,
    /// Receivers' requests that were completed: a channel, or a refusal.
    pub requests: u64,
    /// Best-effort messages that were delivered.
    pub best_effort: u64,
    /// Packets that went over links.
    pub packets: u64,
    /// Messages that a fault touched: they have no promise.
    pub excused: u64,
    /// Packets of open soft channels that hosts had dropped as expired at the time of a comparison.
    pub expired: u64,
    /// Changes of rate by shapers of kernel traffic.
    pub shaped: u64,
    /// Programs' handlers that hosts were granted.
    pub handlers: u64,
    /// Calls of programs' handlers.
    pub upcalls: u64,
    /// Packets of programs' handlers that were promised to leave in time.
    pub upcall_packets: u64,
    /// Reports of timeliness compared with the truth.
    pub reported: TimelinessCounts,
    /// Largest latency of a conforming message in percent of its channel's deadline.
    pub tightness_percent: u64,
    /// Virtual time that passed.
    pub elapsed: Nanos,
    /// All violations; the first [`VIOLATIONS_KEPT`] of a run.
    pub violations: Vec<Violation>,
    /// Number of violations.
    pub violations_total: u64,
    /// BLAKE3 of the event log: the same seed and options give the same digest.
    pub digest: [u8; 32],
    /// The timeline, on request.
    pub trace: Timeline,
    /// Memory in use, on request.
    pub memory: Vec<Reading>,
    /// Links that were measured.
    pub measured: u64,
    /// TCP connections.
    pub tcp: TcpCounts,
}

/// What TCP connections did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpCounts {
    /// Connections whose handshake was over at the client.
    pub opened: u64,
    /// Connections whose programs have read every byte.
    pub complete: u64,
    /// Ends with a handler that admission refused.
    pub refused: u64,
    /// Connections that need not be complete: a handler was refused, a program aborted or was gone, a host crashed.
    pub excused: u64,
    /// Bytes that programs have read.
    pub bytes: u64,
    /// Segments that were handed to links.
    pub segments: u64,
    /// Calls of handlers.
    pub calls: u64,
    /// Segments that were promised to leave in time.
    pub promised: u64,
    /// Data of periods of guaranteed connections that was compared with its bound.
    pub periods: u64,
    /// Segments that found no buffer at the receiver.
    pub unbuffered: u64,
    /// Ends that went on with the handler of their link, after their own handlers.
    #[serde(default)]
    pub late: u64,
    /// Connections whose path is reserved, of those whose handshake was over.
    #[serde(default)]
    pub paths: u64,
    /// Packets that were promised to be at the other end within the bound of their channel.
    #[serde(default)]
    pub path_packets: u64,
}

impl AddAssign for TcpCounts {
    fn add_assign(&mut self, more: Self) {
        let Self {
            opened,
            complete,
            refused,
            excused,
            bytes,
            segments,
            calls,
            promised,
            periods,
            unbuffered,
            late,
            paths,
            path_packets,
        } = more;
        self.opened += opened;
        self.complete += complete;
        self.refused += refused;
        self.excused += excused;
        self.bytes += bytes;
        self.segments += segments;
        self.calls += calls;
        self.promised += promised;
        self.periods += periods;
        self.unbuffered += unbuffered;
        self.late += late;
        self.paths += paths;
        self.path_packets += path_packets;
    }
}

impl TcpCounts {
    /// Whether a run had no TCP.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Reports about messages and stages, compared with the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelinessCounts {
    /// Messages whose lateness was compared with the truth.
    pub compared: u64,
    /// Messages without a report, because no clock offset was known.
    pub unmeasured: u64,
    /// Messages that were late by more than the stated error.
    pub late: u64,
    /// Those of them that were reported as late or perhaps late.
    #[serde(rename = "late_told")] // The key stays for compatibility.
    pub late_reported: u64,
    /// Messages that were reported as certainly late.
    pub surely_late: u64,
    /// Runs in which a broken stage made messages late.
    pub breaches: u64,
    /// Runs in which it was reported at an end of a late channel within a second.
    pub named: u64,
    /// Runs in which another stage was reported.
    pub misnamed: u64,
}

impl AddAssign for TimelinessCounts {
    fn add_assign(&mut self, more: Self) {
        let Self { compared, unmeasured, late, late_reported, surely_late, breaches, named, misnamed } = more;
        self.compared += compared;
        self.unmeasured += unmeasured;
        self.late += late;
        self.late_reported += late_reported;
        self.surely_late += surely_late;
        self.breaches += breaches;
        self.named += named;
        self.misnamed += misnamed;
    }
}

/// Violations of one run that keep their text.
pub const VIOLATIONS_KEPT: usize = 20;

/// The result of many seeds, as `punctual sim --json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Number of seeds.
    pub seeds: u64,
    /// The first of them.
    pub seed_first: u64,
    /// Sum over the seeds, as in [`Outcome`].
    pub messages: u64,
    /// Sum.
    pub misses: u64,
    /// Sum.
    pub admitted: u64,
    /// Sum.
    pub refused: u64,
    /// Sum.
    pub refused_versions: u64,
    /// Sum.
    pub soft_messages: u64,
    /// Sum.
    pub soft_misses: u64,
    /// Sum.
    pub soft_borne_milli: u64,
    /// Sum.
    #[serde(default)]
    pub requests: u64,
    /// Sum.
    pub best_effort: u64,
    /// Packets served by a stage's link, summed over the links that each went over.
    pub packet_hops: u64,
    /// Sum.
    pub excused: u64,
    /// Sum.
    pub expired: u64,
    /// Sums.
    #[serde(default, rename = "told")] // The key stays for compatibility.
    pub reported: TimelinessCounts,
    /// Sums; not written without TCP.
    #[serde(default, skip_serializing_if = "TcpCounts::is_none")]
    pub tcp: TcpCounts,
    /// Largest.
    pub tightness_percent: u64,
    /// All stored violations.
    pub violations: Vec<Violation>,
    /// Number of violations.
    pub violations_total: u64,
    /// The digest of a single seed, or the BLAKE3 of the digests of several in order; hexadecimal. Empty and
    /// not written if seeds are run in any order.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
}

impl Report {
    /// Adds up outcomes, which must be in the order of their seeds.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let mut report = Self::default();
        outcomes.iter().for_each(|outcome| report.add(outcome));
        Self { digest: digest_of(outcomes).to_hex().to_string(), ..report }
    }

    /// Adds one more, all but its digest.
    pub fn add(&mut self, outcome: &Outcome) {
        self.seed_first = if self.seeds == 0 { outcome.seed } else { self.seed_first.min(outcome.seed) };
        self.seeds += 1;
        self.messages += outcome.messages;
        self.misses += outcome.misses;
        self.admitted += outcome.admitted;
        self.refused += outcome.refused;
        self.refused_versions += outcome.refused_versions;
        self.soft_messages += outcome.soft_messages;
        self.soft_misses += outcome.soft_misses;
        self.soft_borne_milli += outcome.soft_borne_milli;
        self.requests += outcome.requests;
        self.best_effort += outcome.best_effort;
        self.packet_hops += outcome.packets;
        self.excused += outcome.excused;
        self.expired += outcome.expired;
        self.reported += outcome.reported;
        self.tcp += outcome.tcp;
        self.tightness_percent = self.tightness_percent.max(outcome.tightness_percent);
        self.violations.extend(outcome.violations.iter().cloned());
        self.violations_total += outcome.violations_total;
    }

    /// Whether every check held.
    pub fn holds(&self) -> bool {
        self.violations_total == 0
    }
}

fn digest_of(outcomes: &[Outcome]) -> blake3::Hash {
    if let [only] = outcomes {
        return blake3::Hash::from_bytes(only.digest);
    }
    let mut hasher = blake3::Hasher::new();
    for outcome in outcomes {
        hasher.update(&outcome.digest);
    }
    hasher.finalize()
}
