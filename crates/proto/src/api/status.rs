//! The status of a node: its channels, links and counters.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use punctual_analysis::{BitRate, Contract, Delivery, Guarantee, Instant, Nanos, Ppm};
use serde::{Deserialize, Serialize};

use super::record::{BusyRecord, PathRecord, WakeRecord};
use super::{BrokenStage, LateStage, RateStatus, StageGrant};
use crate::breach::Lateness;
use crate::config::{Degraded, KernelTraffic};
use crate::ids::{Address, ChannelId, LinkId, Name, NodeId, PathId, Role};
use crate::latencies::Observed;

/// Counters of one channel at one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelCounters {
    /// Messages taken in (source) or begun (elsewhere).
    pub messages_in: u64,
    /// Messages handed to the link completely, or delivered.
    pub messages_out: u64,
    /// Payload bytes of those.
    pub bytes_out: u64,
    /// Messages that broke the contract, beyond its jitter allowance, and that the source delayed because of
    /// that.
    pub delayed: u64,
    /// Messages dropped by policing at the source; at the sink, packets that contradict earlier ones of their
    /// message.
    pub dropped: u64,
    /// Packets or messages demoted to best effort.
    pub demoted: u64,
    /// Messages that were certainly delivered later than their deadline, by the clocks of the hosts on the
    /// route.
    pub misses: u64,
    /// Messages whose deadline was within the clocks' error of their delivery.
    #[serde(default)]
    pub perhaps_late: u64,
    /// Messages whose lateness is unknown, because the clock offsets of the hosts were not known yet.
    #[serde(default)]
    pub unmeasured: u64,
    /// Packets that came in later than the previous link's bound.
    #[serde(default)]
    pub late_arrivals: u64,
    /// Messages that are missing at the sink before the last one that arrived.
    #[serde(default)]
    pub lost: u64,
    /// Messages never completed (a fragment was lost) .
    pub incomplete: u64,
    /// Messages lost because the receiver's ring was full.
    pub overruns: u64,
    /// Packets dropped for lack of slots or buffers.
    pub overflows: u64,
    /// Packets that were demoted and then dropped, because best effort had no room for them.
    #[serde(default)]
    pub demoted_dropped: u64,
    /// Packets that arrived, whatever happened to them.
    #[serde(default)]
    pub packets_in: u64,
    /// Packets that were handed to the link.
    #[serde(default)]
    pub packets_out: u64,
    /// Packets of a soft channel that were dropped because they came too late for the deadline.
    pub expired: u64,
    /// Largest latency at the sink from the logical arrival, by the known clock offsets.
    pub latency_max: Nanos,
    /// Most slots or messages of the reservation in use at once.
    pub occupancy_max: u32,
}

impl ChannelCounters {
    /// Adds the counters of another channel or end; of maxima, the larger one is kept.
    pub(crate) fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.messages_in, other.messages_in),
            (&mut self.messages_out, other.messages_out),
            (&mut self.bytes_out, other.bytes_out),
            (&mut self.delayed, other.delayed),
            (&mut self.dropped, other.dropped),
            (&mut self.demoted, other.demoted),
            (&mut self.misses, other.misses),
            (&mut self.perhaps_late, other.perhaps_late),
            (&mut self.unmeasured, other.unmeasured),
            (&mut self.late_arrivals, other.late_arrivals),
            (&mut self.lost, other.lost),
            (&mut self.incomplete, other.incomplete),
            (&mut self.overruns, other.overruns),
            (&mut self.overflows, other.overflows),
            (&mut self.demoted_dropped, other.demoted_dropped),
            (&mut self.packets_in, other.packets_in),
            (&mut self.packets_out, other.packets_out),
            (&mut self.expired, other.expired),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.latency_max = self.latency_max.max(other.latency_max);
        self.occupancy_max = self.occupancy_max.max(other.occupancy_max);
    }
}

/// A channel as `channels` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// Local handle.
    pub channel: ChannelId,
    /// Name on every hop.
    pub path: PathId,
    /// Role of this host for the channel.
    pub role: Role,
    /// Source host's name.
    pub from: String,
    /// Listener.
    pub to: Address,
    /// The contract.
    pub contract: Contract,
    /// Jitter allowance of the channel: how far ahead of its logical arrival a message may come.
    #[serde(default)]
    pub jitter_allowance: Nanos,
    /// Strength of the guarantee.
    pub guarantee: Guarantee,
    /// Hosts of the route, by name, whose bounds are no guarantees: with one of them nothing is guaranteed.
    #[serde(default)]
    pub degraded_by: Vec<String>,
    /// Reasons why nothing is guaranteed: one line for each host and reason.
    #[serde(default)]
    pub degraded_why: Vec<String>,
    /// All reasons of `degraded_why` and `broken` in one list, each with the name of its cause: why nothing
    /// is guaranteed now. Empty: the guarantee holds.
    #[serde(default)]
    pub degraded: Vec<DegradedPlace>,
    /// Local stages as they are held now. The terms of a bound and the smallest offer are in the grant.
    pub stages: Vec<StageGrant>,
    /// State of signalling (`open`, `creating`, ...).
    pub state: String,
    /// How the channel's messages are delivered.
    pub delivery: Delivery,
    /// Counters.
    pub counters: ChannelCounters,
    /// Latencies at the sink; `None` elsewhere.
    #[serde(default)]
    pub observed: Option<Observed>,
    /// Stages of the route that break their promise now, as far as this host knows: nothing is guaranteed
    /// meanwhile.
    #[serde(default)]
    pub broken: Vec<BrokenStage>,
}

/// Some channels in the order of their handles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelPage {
    /// Channels that still exist.
    pub channels: Vec<ChannelStatus>,
    /// The last handle that was visited: the next page begins behind it.
    pub seen: Option<ChannelId>,
    /// Whether there are handles behind it.
    pub more: bool,
}

/// A place on a channel's route, and why it guarantees nothing now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DegradedPlace {
    /// `host r` if it is degraded by its configuration, `link a-r` or `processor of r` if it breaks its
    /// promise.
    pub place: String,
    /// Name of the cause: one of those of [`Degraded`] and [`Cause`](super::Cause).
    pub cause_kind: String,
    /// The cause as text for users.
    pub cause_text: String,
}

impl DegradedPlace {
    /// A host that is degraded by its configuration.
    pub fn host(host: &str, why: Degraded) -> Self {
        Self { place: format!("host {host}"), cause_kind: why.name().into(), cause_text: why.to_string() }
    }
    /// A stage that breaks its promise.
    pub fn stage(stage: &BrokenStage) -> Self {
        let BrokenStage { cause, .. } = stage;
        Self { place: stage.name(), cause_kind: cause.name().into(), cause_text: cause.to_string() }
    }
}

/// A link as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Index.
    pub link: LinkId,
    /// Name.
    pub name: String,
    /// The neighbour.
    pub neighbour: NodeId,
    /// Name of the neighbour.
    #[serde(default)]
    pub neighbour_name: String,
    /// Whether HELLOs arrive.
    pub alive: bool,
    /// Set if the neighbour is up and uses another version, so that no channel can be agreed with it.
    #[serde(default)]
    pub foreign: Option<ForeignVersion>,
    /// Received packets of other versions: data, and signalling of members of the domain.
    #[serde(default)]
    pub packets_foreign: u64,
    /// The neighbour's clock minus ours, and the error bound of that; `None` before the first round trip.
    pub clock_offset_ns: Option<(i64, u64)>,
    /// How often one of the two clocks was stepped, or drifted beyond its tolerance, in this life of the neighbour.
    #[serde(default)]
    pub clock_breaks: u32,
    /// Bytes received over the link since the start, in bytes of the wire.
    #[serde(default)]
    pub wire_bytes_in: u64,
    /// HELLOs of the neighbour that certainly came later than allowed, since the start. They cannot be
    /// forged.
    #[serde(default)]
    pub late_signals: Lateness,
    /// Packets of channels that came later than allowed.
    #[serde(default)]
    pub late_packets: Lateness,
    /// Smallest round trip measured.
    pub round_trip_min: Option<Nanos>,
    /// The last round trip measured: the smallest does not show that a queue grows.
    #[serde(default)]
    pub round_trip_recent: Option<Nanos>,
    /// Received signalling packets that do not authenticate, or are not from that neighbour to this node.
    #[serde(default)]
    pub unauthenticated: u64,
    /// Rate of the link, and its origin.
    #[serde(default)]
    pub rate: RateStatus,
    /// Utilisation that is reserved for channels.
    pub utilisation: Ppm,
    /// What is known of other traffic on the link's device.
    #[serde(default)]
    pub kernel_traffic: KernelTraffic,
    /// The kernel's part of the link, if it follows admission.
    #[serde(default)]
    pub kernel_share: Option<KernelShare>,
    /// Guaranteed packets sent.
    pub packets_guaranteed: u64,
    /// Best-effort packets sent.
    pub packets_best_effort: u64,
    /// Signalling packets sent.
    pub packets_signalling: u64,
    /// Bytes sent, on the wire.
    pub wire_bytes: u64,
    /// Best-effort packets dropped at this link's queue.
    pub best_effort_dropped: u64,
}

/// The rate that kernel traffic may have of a link, in bits of the wire a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelShare {
    /// Rate that the kernel has at present.
    pub now_bps: BitRate,
    /// The smallest rate, whatever is admitted: admission assumes this one.
    pub least_bps: BitRate,
    /// The largest rate, however little is admitted.
    pub most_bps: BitRate,
    /// Channels whose grants wait until the kernel has less.
    pub waiting: u32,
}

/// Two incompatible versions of RTCOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignVersion {
    /// The neighbour's.
    pub theirs: u8,
    /// This node's.
    pub ours: u8,
}

/// Packets that were dropped on reception, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCounters {
    /// Shorter than a header, or inconsistent lengths.
    pub malformed: u64,
    /// Another version of the protocol.
    pub version: u64,
    /// Packets with a path that is not known here.
    pub unknown_path: u64,
    /// The cookie is not the channel's.
    pub wrong_cookie: u64,
    /// Packets that came in over another link than the channel's.
    pub wrong_link: u64,
    /// Signalling that does not authenticate.
    pub unauthenticated: u64,
    /// Signalling that was received before.
    pub replayed: u64,
    /// Packets for which no reserved buffer was free.
    pub no_buffer: u64,
    /// Packets for which no reserved slot of a link's queue was free.
    #[serde(default)]
    pub no_slot: u64,
    /// Best effort to a port that is not bound, or to an unknown host.
    pub no_receiver: u64,
    /// Best effort larger than the next link's best-effort packets, or than its receiver has declared, and
    /// messages larger than their own flow has declared.
    pub too_large: u64,
    /// Best effort beyond its flow's share of the processor.
    pub over_cap: u64,
    /// Best-effort messages whose receiver had not taken the previous ones: its ring was full.
    pub receiver_full: u64,
}

/// Everything that `status` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// This node.
    pub id: NodeId,
    /// Name of this host in the directory.
    pub name: Name,
    /// Channels that start, pass or end here.
    pub channels: u32,
    /// Channels among `channels` whose guarantee is soft.
    pub channels_soft: u32,
    /// Share of the CPU that admission has reserved.
    pub cpu_utilisation: Ppm,
    /// Bytes of buffers reserved.
    pub buffer_bytes: u64,
    /// Links.
    pub links: Vec<LinkStatus>,
    /// Packets dropped on reception.
    pub drops: DropCounters,
    /// Handlers that overran their declared time.
    pub overruns: u64,
    /// Measured costs of work, by path, beside what admission assumes.
    pub work: Vec<PathRecord>,
    /// Busy periods, beside what admission assumes for them.
    pub busy: BusyRecord,
    /// Wake-ups by time, beside the release latency that admission assumes.
    pub wakes: WakeRecord,
    /// Packets that this processor served later than its bound for them, since the start.
    #[serde(default)]
    pub late_service: Lateness,
    /// Stages that break their promise now: this host's, and those on the routes of its channels.
    #[serde(default)]
    pub broken: Vec<BrokenStage>,
    /// Stages that this host has observed to be late in the last minute, and that do not count as broken.
    #[serde(default)]
    pub late: Vec<LateStage>,
    /// Totals of all channels here since the start, including those that have ended.
    #[serde(default)]
    pub channels_total: ChannelCounters,
    /// Signalling messages retransmitted.
    pub retransmissions: u64,
    /// Requests of neighbours that this host did not reply to, because too many replies wait for them
    /// already.
    #[serde(default)]
    pub unanswered: u64,
    /// This host's time.
    pub now: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters that all differ, in multiples of `times`.
    const fn counters(times: u64) -> ChannelCounters {
        ChannelCounters {
            messages_in: times,
            messages_out: 2 * times,
            bytes_out: 3 * times,
            delayed: 4 * times,
            dropped: 5 * times,
            demoted: 6 * times,
            misses: 7 * times,
            perhaps_late: 8 * times,
            unmeasured: 9 * times,
            late_arrivals: 10 * times,
            lost: 11 * times,
            incomplete: 12 * times,
            overruns: 13 * times,
            overflows: 14 * times,
            demoted_dropped: 15 * times,
            packets_in: 16 * times,
            packets_out: 17 * times,
            expired: 18 * times,
            latency_max: Nanos(19 * times),
            occupancy_max: 20 * times as u32,
        }
    }

    /// Each count is the sum of both, each maximum the larger one.
    #[test]
    fn counters_of_channels_add_up() {
        for (one, other) in [(3, 5), (5, 3), (0, 4), (4, 0)] {
            let mut sum = counters(one);
            sum.add(&counters(other));
            let largest = counters(one.max(other));
            let (latency_max, occupancy_max) = (largest.latency_max, largest.occupancy_max);
            assert_eq!(sum, ChannelCounters { latency_max, occupancy_max, ..counters(one + other) });
        }
        let mut most = ChannelCounters { lost: u64::MAX, ..counters(1) };
        most.add(&counters(1));
        assert_eq!(
            most,
            ChannelCounters { lost: u64::MAX, latency_max: Nanos(19), occupancy_max: 20, ..counters(2) }
        );
    }
}
