//! A clip: a channel's end (or passage) at this host with its message queue, handler and packet queue
//! (CLIPS 4.3). Source, forwarder and sink differ in what is queued; what they share is in [`Clip`].

use core::ops::AddAssign;

use punctual_analysis::{Guarantee, Instant, Nanos};

use super::{
    Channels, Clip, Forwarder, Links, PacketIn, PacketQueue, PendingOutput, RoleState, Sink, SinkEnd, Source,
    SourceEnd,
};
use crate::api::{ChannelCounters, DroppedPackets, Notice, Passed, Receipt, Tally};
use crate::ids::{ChannelId, LinkId, PathId};
use crate::lateness::Timeliness;
use crate::linksched::FlowIndex;
use crate::memory::{Inbox, Memory, Outbox};
use crate::slab::{Linked, Next, Slab};
use crate::table::OfChannel;

/// The channel's reservation on the link out of this host.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct LinkReservation {
    pub link: LinkId,
    pub flow: FlowIndex,
    /// d(k) of the link.
    pub bound: Nanos,
}

/// Terms that only soft channels have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct SoftTerms {
    /// The smallest slack in nanoseconds at which a packet has not expired. The least value if late packets
    /// are delivered too.
    pub slack_ns_min: i64,
    /// The channel's part of the frame pool of its incoming link. `None` if the channel has frames of its own, or no
    /// incoming link.
    pub pooled: Option<PooledFrames>,
}

/// A soft channel's part of a frame pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct PooledFrames {
    /// The link whose driver's frames they are.
    pub link: LinkId,
    pub kept: u32,
}

/// State of a source's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::node) enum Ending {
    #[default]
    Open,
    /// The application has closed the channel; queued messages are still sent.
    Closing,
    /// Everything that was queued has been sent, and signalling was notified.
    Drained,
}

impl<F> Linked for PacketIn<F> {
    fn next_mut(&mut self) -> &mut Next {
        &mut self.next
    }
    fn next(&self) -> Next {
        self.next
    }
}

/// Packets that one unit of work may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::node) struct Run {
    pub packets: u32,
    pub bytes: u32,
    /// The last packet of the message is among them.
    pub ends_message: bool,
}

impl PacketQueue {
    /// Queues a packet. Drops it and returns `false` if all buffers are in use.
    pub fn push<F>(&mut self, slab: &mut Slab<PacketIn<F>>, packet: PacketIn<F>) -> bool {
        let free = self.packets_used < self.packets_max;
        if free {
            slab.push(&mut self.packets, packet);
            self.packets_used += 1;
        }
        free
    }

    /// Takes the head.
    pub fn pop<F>(&mut self, slab: &mut Slab<PacketIn<F>>) -> Option<PacketIn<F>> {
        let packet = slab.pop(&mut self.packets)?;
        self.packets_used -= 1;
        Some(packet)
    }

    /// Takes the head for a unit of work that may take `left` more.
    #[inline]
    pub fn pop_for<F>(&mut self, slab: &mut Slab<PacketIn<F>>, left: &mut u32) -> Option<PacketIn<F>> {
        *left = left.checked_sub(1)?;
        self.pop(slab)
    }

    /// At most `packets_max` packets at the head, of one message (a unit is charged for one), each at or after
    /// e - h: a packet that is served earlier would need buffers at the next hop that are not reserved.
    pub fn head_run<F>(
        &self,
        slab: &Slab<PacketIn<F>>,
        horizon: Nanos,
        packets_max: u32,
        now: Instant,
    ) -> Run {
        let mut run = Run::default();
        let number = slab.front(&self.packets).map(|packet| packet.header.message);
        let current = |packet: &&PacketIn<F>| {
            Some(packet.header.message) == number && packet.effective - horizon <= now
        };
        for packet in slab.iter(&self.packets).take(packets_max as usize).take_while(current) {
            run.packets += 1;
            run.bytes += packet.header.payload_bytes;
            run.ends_message |= packet.header.fragment + 1 == packet.header.fragments;
        }
        run
    }
}

impl<M: Memory> OfChannel for Clip<M> {
    fn channel(&self) -> ChannelId {
        self.local.channel
    }
}

impl<M: Memory> Channels<M> {
    /// The channel that takes packets of `path` from a link.
    pub fn of_path(&self, path: &PathId) -> Option<ChannelId> {
        self.paths.find(path, |id| self.clips.get(id).is_some_and(|clip| clip.local.path == *path))
    }

    /// The same channel, with its clip.
    pub fn clip_of_path(&mut self, path: &PathId) -> Option<(ChannelId, &mut Clip<M>)> {
        let channel = self.of_path(path)?;
        Some((channel, self.clips.get_mut(channel)?))
    }

    /// The end of a channel that starts here.
    pub fn source(&mut self, channel: ChannelId) -> Option<SourceEnd<'_, M>> {
        self.clips.get_mut(channel)?.as_source()
    }

    /// The end of a channel that ends here.
    pub fn sink(&mut self, channel: ChannelId) -> Option<SinkEnd<'_, M>> {
        self.clips.get_mut(channel)?.as_sink()
    }
}

impl<M: Memory> RoleState<M> {
    pub const fn source(&self) -> Option<&Source<M>> {
        match self {
            Self::Source(source) => Some(source),
            Self::Forwarder(_) | Self::Sink(_) => None,
        }
    }

    pub const fn sink(&self) -> Option<&Sink<M>> {
        match self {
            Self::Sink(sink) => Some(sink),
            Self::Source(_) | Self::Forwarder(_) => None,
        }
    }

    pub const fn forwarder_mut(&mut self) -> Option<&mut Forwarder> {
        match self {
            Self::Forwarder(forwarder) => Some(forwarder),
            Self::Source(_) | Self::Sink(_) => None,
        }
    }
}

impl<M: Memory> SourceEnd<'_, M> {
    /// See [`Clip::touch`].
    pub fn touch(&mut self, news: &mut PendingOutput) {
        if self.source.outbox.as_mut().is_some_and(Outbox::touch) {
            news.touched.push(self.local.channel);
        }
    }
}

impl<M: Memory> SinkEnd<'_, M> {
    /// See [`Clip::touch`].
    pub fn touch(&mut self, news: &mut PendingOutput) {
        if self.sink.inbox.as_mut().is_some_and(Inbox::touch) {
            news.touched.push(self.local.channel);
        }
    }
}

impl<M: Memory> Clip<M> {
    /// The channel's source end, if its messages start at this host.
    pub fn as_source(&mut self) -> Option<SourceEnd<'_, M>> {
        let Self { local, cpu_bound, cpu_horizon, handler, counters, role, .. } = self;
        let (cpu_bound, cpu_horizon, handler) = (*cpu_bound, *cpu_horizon, *handler);
        match role {
            RoleState::Source(source) => {
                Some(SourceEnd { local, cpu_bound, cpu_horizon, handler, counters, source })
            }
            RoleState::Forwarder(_) | RoleState::Sink(_) => None,
        }
    }

    /// The channel's sink end, if its messages end at this host.
    pub fn as_sink(&mut self) -> Option<SinkEnd<'_, M>> {
        let Self { local, cpu_bound, soft, last, counters, role, .. } = self;
        let (cpu_bound, soft, closes) = (*cpu_bound, soft.as_deref_mut(), last.is_some());
        match role {
            RoleState::Sink(sink) => Some(SinkEnd { local, cpu_bound, soft, closes, counters, sink }),
            RoleState::Source(_) | RoleState::Forwarder(_) => None,
        }
    }

    /// The channel's part of a frame pool, if it shares one.
    pub fn pooled_mut(&mut self) -> Option<&mut PooledFrames> {
        self.soft.as_mut()?.pooled.as_mut()
    }

    /// Records that a counter of the clip is about to change. Call it before other threads can observe the
    /// cause. If the application reads the counters from shared memory, the channel joins `touched`, which
    /// has room (see [`Plane::show_from_now_on`]).
    ///
    /// [`Plane::show_from_now_on`]: super::Plane::show_from_now_on
    pub fn touch(&mut self, news: &mut PendingOutput) {
        let is_news = match &mut self.role {
            RoleState::Source(source) => source.outbox.as_mut().is_some_and(Outbox::touch),
            RoleState::Sink(sink) => sink.inbox.as_mut().is_some_and(Inbox::touch),
            RoleState::Forwarder(_) => false,
        };
        if is_news {
            news.touched.push(self.local.channel);
        }
    }

    /// Messages that a sink was never given, though later ones were taken in: numbers that are missing.
    pub fn lost(&self) -> u64 {
        let RoleState::Sink(Sink { reassembly, at_deadline, .. }) = &self.role else { return 0 };
        let held = at_deadline.as_ref().map_or(0, |at_deadline| at_deadline.held.len());
        let here = self.counters.messages_out + held as u64 + reassembly.in_progress() as u64;
        reassembly.seen_until().saturating_sub(here)
    }

    /// The report to the source about its messages.
    pub fn receipt(&self) -> Receipt {
        let Counters { messages_in, messages_out, misses, perhaps_late, unmeasured, latency_max, .. } =
            self.counters;
        Receipt {
            received: messages_in,
            passed: self.passed(),
            lost_at: None,
            delivered: messages_out,
            late: misses.into(),
            perhaps_late: perhaps_late.into(),
            unmeasured: unmeasured.into(),
            lost: self.lost(),
            latency_max,
        }
    }

    /// Counts of what has passed this host.
    pub fn passed(&self) -> Passed {
        let Counters { packets_in, packets_out, messages_out, .. } = self.counters;
        Passed { packets_in, packets_out, messages_out, thrown: self.counters.thrown() }
    }

    /// Counts of what has left a source.
    pub fn sent(&self) -> Tally {
        Tally { packets: self.counters.packets_out, digest: self.counters.digest }
    }

    /// Whether the channel is closing and every packet that was still to come was sent on, delivered or
    /// dropped. Does not count packets that wait here as best effort.
    pub fn has_ended(&self) -> bool {
        let Counters { packets_in: packets, packets_out, digest, .. } = self.counters;
        self.last.as_deref().is_some_and(|last| *last == Tally { packets, digest })
            && match &self.role {
                RoleState::Source(_) => false,
                RoleState::Forwarder(_) => packets_out + self.counters.thrown().all() >= packets,
                RoleState::Sink(sink) => {
                    sink.input.packets_used == 0
                        && sink.at_deadline.as_ref().is_none_or(|at_deadline| at_deadline.held.is_empty())
                }
            }
    }

    /// Counters of this end, as `channels` shows them.
    pub fn counted(&self) -> ChannelCounters {
        self.counters.shown(self.lost())
    }

    /// Whether not every message is promised.
    pub fn is_soft(&self) -> bool {
        self.local.contract.guarantee() == Guarantee::Soft
    }
}

/// A channel has given back frames of the driver; one that shares a pool, to that.
pub(super) fn give_back_frames<M: Memory>(soft: Option<&mut SoftTerms>, count: u32, links: &mut Links<M>) {
    let Some(PooledFrames { link, kept }) = soft.and_then(|soft| soft.pooled.as_mut()) else { return };
    *kept -= count;
    links.states[usize::from(link.0)].frames.pooled -= count;
}

/// Counters of one end of a channel, or of the part that passes through.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::node) struct Counters {
    pub messages_in: u64,
    pub messages_out: u64,
    pub bytes_out: u64,
    pub latency_max: Nanos,
    pub occupancy_max: u32,
    pub delayed: Count,
    pub dropped: Count,
    pub demoted: Count,
    pub misses: Count,
    pub perhaps_late: Count,
    pub unmeasured: Count,
    pub late_arrivals: Count,
    pub incomplete: Count,
    pub overruns: Count,
    pub no_buffer: Count,
    pub no_slot: Count,
    pub demoted_dropped: Count,
    pub expired: Count,
    pub packets_in: u64,
    pub packets_out: u64,
    /// Digest of the packets that have left a source, or that have come to another host ([`Tally`]).
    pub digest: u64,
}

/// Number of occurrences of an error. Saturates: at the shortest interval of a contract, reaching 2^32 takes
/// 71 minutes of uninterrupted errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::node) struct Count(pub u32);

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

impl Counters {
    /// Counts a message with a guarantee by its timeliness.
    pub fn judge(&mut self, timeliness: Timeliness) {
        match timeliness {
            Timeliness::InTime => {}
            Timeliness::PerhapsLate => self.perhaps_late += 1,
            Timeliness::Late => self.misses += 1,
            Timeliness::Unmeasured => self.unmeasured += 1,
        }
    }

    /// Packets that were dropped here.
    fn thrown(&self) -> DroppedPackets {
        DroppedPackets {
            no_buffer: self.no_buffer.into(),
            no_slot: self.no_slot.into(),
            demoted: self.demoted_dropped.into(),
            expired: self.expired.into(),
            receiver_full: self.overruns.into(),
        }
    }

    /// Counters as `channels` shows them. `lost` is not counted: it follows from the message numbers that are
    /// missing.
    fn shown(&self, lost: u64) -> ChannelCounters {
        ChannelCounters {
            messages_in: self.messages_in,
            messages_out: self.messages_out,
            bytes_out: self.bytes_out,
            delayed: self.delayed.into(),
            dropped: self.dropped.into(),
            demoted: self.demoted.into(),
            misses: self.misses.into(),
            perhaps_late: self.perhaps_late.into(),
            unmeasured: self.unmeasured.into(),
            late_arrivals: self.late_arrivals.into(),
            lost,
            incomplete: self.incomplete.into(),
            overruns: self.overruns.into(),
            overflows: u64::from(self.no_buffer) + u64::from(self.no_slot),
            demoted_dropped: self.demoted_dropped.into(),
            packets_in: self.packets_in,
            packets_out: self.packets_out,
            expired: self.expired.into(),
            latency_max: self.latency_max,
            occupancy_max: self.occupancy_max,
        }
    }
}

/// The notices that the application has already received.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::node) struct NoticesGiven(u8);

impl NoticesGiven {
    /// Marks `notice` as given. Returns whether it was not given before.
    pub fn first(&mut self, notice: Notice) -> bool {
        let bit = 1 << notice as u8;
        let news = self.0 & bit == 0;
        self.0 |= bit;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Counters, Timeliness};

    #[test]
    fn each_message_is_judged_once() {
        let judged = |timeliness| {
            let mut counters = Counters::default();
            counters.judge(timeliness);
            [counters.perhaps_late, counters.misses, counters.unmeasured]
        };
        assert_eq!(judged(Timeliness::InTime), [0, 0, 0].map(Count));
        assert_eq!(judged(Timeliness::PerhapsLate), [1, 0, 0].map(Count));
        assert_eq!(judged(Timeliness::Late), [0, 1, 0].map(Count));
        assert_eq!(judged(Timeliness::Unmeasured), [0, 0, 1].map(Count));
    }
}
