//! What a clip counts of its channel at this host. The code at each event calls the method of that event;
//! reports are made of the sums.

use core::ops::AddAssign;

use punctual_analysis::Nanos;

use crate::api::{ChannelCounters, DroppedPackets, LostWhy, Passed, Receipt, Tally};
use crate::lateness::Timeliness;
use crate::wire::Header;

/// Counters of one end of a channel, or of the part that passes through.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::node) struct Counters {
    packets_in: u64,
    packets_out: u64,
    /// Digest of the packets that have left a source, or that have come to another host ([`Tally`]).
    digest: u64,
    messages_in: u64,
    messages_out: u64,
    bytes_out: u64,
    latency_max: Nanos,
    judged: Judged,
    policed: Policed,
    dropped: Dropped,
    late_arrivals: Count,
    incomplete: Count,
    occupancy_max: u32,
}

/// Messages with a guarantee that were not certainly in time.
#[derive(Clone, Copy, Debug, Default)]
struct Judged {
    misses: Count,
    perhaps_late: Count,
    unmeasured: Count,
}

/// Messages, or packets, that broke the contract.
#[derive(Clone, Copy, Debug, Default)]
struct Policed {
    delayed: Count,
    dropped: Count,
    demoted: Count,
}

/// Packets that were dropped here, by reason.
#[derive(Clone, Copy, Debug, Default)]
struct Dropped {
    no_buffer: Count,
    no_slot: Count,
    demoted: Count,
    expired: Count,
    receiver_full: Count,
}

/// Number of occurrences of an error. Saturates: at the shortest interval of a contract, reaching 2^32 takes
/// 71 minutes of uninterrupted errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::node) struct Count(u32);

impl AddAssign<u32> for Count {
    fn add_assign(&mut self, more: u32) {
        self.0 = self.0.saturating_add(more);
    }
}

impl From<Count> for u64 {
    fn from(count: Count) -> Self {
        count.0.into()
    }
}

/// Events.
impl Counters {
    /// A packet has come, whatever happens to it.
    pub fn packet_came(&mut self, header: &Header) {
        self.packets_in += 1;
        self.mark(header);
    }

    /// A packet has left its source.
    pub fn packet_sent(&mut self, header: &Header) {
        self.packet_passed();
        self.mark(header);
    }

    /// A packet that came from another host has left.
    pub fn packet_passed(&mut self) {
        self.packets_out += 1;
    }

    fn mark(&mut self, header: &Header) {
        self.digest = self.digest.wrapping_add(Tally::mark(header.message, header.fragment));
    }

    /// The source has taken a message out of the ring.
    pub fn message_taken(&mut self) {
        self.messages_in += 1;
    }

    /// A packet is processed at a forwarder or sink: its first one begins a message.
    pub fn message_begun(&mut self, header: &Header) {
        self.messages_in += u64::from(header.fragment == 0);
    }

    /// The last packet of a message has left, or the receiver has got the message.
    pub fn message_left(&mut self, bytes: u32) {
        self.messages_out += 1;
        self.bytes_out += u64::from(bytes);
    }

    /// A message with a guarantee was delivered.
    pub fn judge(&mut self, timeliness: Timeliness) {
        match timeliness {
            Timeliness::InTime => {}
            Timeliness::PerhapsLate => self.judged.perhaps_late += 1,
            Timeliness::Late => self.judged.misses += 1,
            Timeliness::Unmeasured => self.judged.unmeasured += 1,
        }
    }

    /// A message with a guarantee took this long.
    pub fn took(&mut self, latency: Nanos) {
        self.latency_max = self.latency_max.max(latency);
    }

    /// The source delays `messages`, because they broke the contract.
    pub fn delay(&mut self, messages: u32) {
        self.policed.delayed += messages;
    }

    /// The source drops `messages`, or the sink a packet that contradicts an earlier one.
    pub fn reject(&mut self, messages: u32) {
        self.policed.dropped += messages;
    }

    /// A message or packet is demoted.
    pub fn demote(&mut self) {
        self.policed.demoted += 1;
    }

    /// A packet is dropped.
    pub fn drop_packet(&mut self, why: LostWhy) {
        match why {
            LostWhy::NoBuffer => self.dropped.no_buffer += 1,
            LostWhy::NoSlot => self.dropped.no_slot += 1,
            LostWhy::Demoted => self.dropped.demoted += 1,
            LostWhy::Expired => self.dropped.expired += 1,
            LostWhy::ReceiverFull => self.dropped.receiver_full += 1,
        }
    }

    /// A packet came later than the link before may bring it.
    pub fn came_late(&mut self) {
        self.late_arrivals += 1;
    }

    /// The sink has given up this many messages, since its start, of which fragments are missing.
    pub fn set_incomplete(&mut self, messages: u64) {
        self.incomplete = Count(u32::try_from(messages).unwrap_or(u32::MAX));
    }

    /// So many slots or buffers of the reservation are in use.
    pub fn occupy(&mut self, used: u32) {
        self.occupancy_max = self.occupancy_max.max(used);
    }
}

/// Sums.
impl Counters {
    /// Messages that certainly came too late.
    pub fn misses(&self) -> Count {
        self.judged.misses
    }

    /// Messages that the receiver's ring had no room for.
    pub fn overruns(&self) -> Count {
        self.dropped.receiver_full
    }

    /// Whether no message was begun yet.
    pub fn is_new(&self) -> bool {
        self.messages_in == 0
    }

    /// Messages that the receiver has got, or whose last packet was sent.
    pub fn messages_out(&self) -> u64 {
        self.messages_out
    }

    /// What has come to a host behind the source.
    pub fn came(&self) -> Tally {
        Tally { packets: self.packets_in, digest: self.digest }
    }

    /// What has left a source.
    pub fn sent(&self) -> Tally {
        Tally { packets: self.packets_out, digest: self.digest }
    }

    /// Whether every packet that came to a forwarder was sent on or dropped.
    pub fn has_passed_all(&self) -> bool {
        self.packets_out + self.thrown().all() >= self.packets_in
    }

    /// What has passed this host.
    pub fn passed(&self) -> Passed {
        let Self { packets_in, packets_out, messages_out, .. } = *self;
        Passed { packets_in, packets_out, messages_out, thrown: self.thrown() }
    }

    /// The report to the source; `lost`: messages that are missing at the sink.
    pub fn receipt(&self, lost: u64) -> Receipt {
        Receipt {
            received: self.messages_in,
            passed: self.passed(),
            lost_at: None,
            delivered: self.messages_out,
            late: self.judged.misses.into(),
            perhaps_late: self.judged.perhaps_late.into(),
            unmeasured: self.judged.unmeasured.into(),
            lost,
            latency_max: self.latency_max,
        }
    }

    /// Packets that were dropped here.
    fn thrown(&self) -> DroppedPackets {
        let Dropped { no_buffer, no_slot, demoted, expired, receiver_full } = self.dropped;
        DroppedPackets {
            no_buffer: no_buffer.into(),
            no_slot: no_slot.into(),
            demoted: demoted.into(),
            expired: expired.into(),
            receiver_full: receiver_full.into(),
        }
    }

    /// Counters as `channels` shows them; `lost`: messages that are missing at the sink.
    pub fn shown(&self, lost: u64) -> ChannelCounters {
        let (Judged { misses, perhaps_late, unmeasured }, thrown) = (self.judged, self.thrown());
        ChannelCounters {
            messages_in: self.messages_in,
            messages_out: self.messages_out,
            bytes_out: self.bytes_out,
            delayed: self.policed.delayed.into(),
            dropped: self.policed.dropped.into(),
            demoted: self.policed.demoted.into(),
            misses: misses.into(),
            perhaps_late: perhaps_late.into(),
            unmeasured: unmeasured.into(),
            late_arrivals: self.late_arrivals.into(),
            lost,
            incomplete: self.incomplete.into(),
            overruns: thrown.receiver_full,
            overflows: thrown.no_buffer + thrown.no_slot,
            demoted_dropped: thrown.demoted,
            packets_in: self.packets_in,
            packets_out: self.packets_out,
            expired: thrown.expired,
            latency_max: self.latency_max,
            occupancy_max: self.occupancy_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_judged_once() {
        let judged = |timeliness| {
            let mut counters = Counters::default();
            counters.judge(timeliness);
            let ChannelCounters { perhaps_late, misses, unmeasured, .. } = counters.shown(0);
            [perhaps_late, misses, unmeasured]
        };
        assert_eq!(judged(Timeliness::InTime), [0, 0, 0]);
        assert_eq!(judged(Timeliness::PerhapsLate), [1, 0, 0]);
        assert_eq!(judged(Timeliness::Late), [0, 1, 0]);
        assert_eq!(judged(Timeliness::Unmeasured), [0, 0, 1]);
    }

    /// Each reason has its own count, in both reports.
    #[test]
    fn each_dropped_packet_is_counted_once_by_its_reason() {
        let dropped = |why| {
            let mut counters = Counters::default();
            counters.drop_packet(why);
            let shown = counters.shown(0);
            let of_channel = [shown.overflows, shown.demoted_dropped, shown.expired, shown.overruns];
            (counters.passed().thrown, of_channel)
        };
        let none = DroppedPackets::default();
        assert_eq!(dropped(LostWhy::NoBuffer), (DroppedPackets { no_buffer: 1, ..none }, [1, 0, 0, 0]));
        assert_eq!(dropped(LostWhy::NoSlot), (DroppedPackets { no_slot: 1, ..none }, [1, 0, 0, 0]));
        assert_eq!(dropped(LostWhy::Demoted), (DroppedPackets { demoted: 1, ..none }, [0, 1, 0, 0]));
        assert_eq!(dropped(LostWhy::Expired), (DroppedPackets { expired: 1, ..none }, [0, 0, 1, 0]));
        assert_eq!(
            dropped(LostWhy::ReceiverFull),
            (DroppedPackets { receiver_full: 1, ..none }, [0, 0, 0, 1])
        );
    }
}
