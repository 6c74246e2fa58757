//! One link of this host: its queues, the channels that wait for them, and its signalling.

use alloc::boxed::Box;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Policing};

use super::{LinkState, SignalIn};
use crate::breach::Watch;
use crate::config::LinkConfig;
use crate::fragment::packet_wire_bytes;
use crate::ids::{ChannelId, Cookie};
use crate::linksched::{BestEffortKey, FlowIndex, Guaranteed, LinkCounters};
use crate::memory::Memory;
use crate::node::neighbour_clock::NeighbourClock;
use crate::node::packet::Packet;
use crate::node::rate::arrivals::FillerArrivals;
use crate::slab::reserve;

/// No channel has this handle: they are counted from 1 on.
pub(super) const NO_SOURCE: ChannelId = ChannelId(0);

impl<M: Memory> LinkState<M> {
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }
    pub const fn counters(&self) -> &LinkCounters {
        self.scheduler.counters()
    }

    /// Number of received data packets of another version.
    pub const fn packets_foreign(&self) -> u64 {
        self.packets_foreign
    }

    /// Number of signalling packets that have left.
    pub const fn signal_packets(&self) -> u64 {
        self.signals.packets
    }

    /// Received bytes, in bytes of the wire.
    pub const fn bytes_in(&self) -> u64 {
        self.bytes_in
    }

    /// Time at which the link's driver had no room last.
    pub const fn full_at(&self) -> Instant {
        self.watches.full_at
    }

    /// Notes that the link's driver had no room for the next packet.
    pub const fn note_full(&mut self, now: Instant) {
        self.watches.full_at = now;
        if let Some(filler) = &mut self.measuring.filler {
            filler.note_full();
        }
    }

    /// Watch of packets that left later than the link's bound for them.
    pub const fn departures(&self) -> &Watch {
        &self.watches.departures
    }
    pub const fn departures_mut(&mut self) -> &mut Watch {
        &mut self.watches.departures
    }

    /// Watch of data packets that arrived late.
    pub const fn arrivals(&self) -> &Watch {
        &self.watches.arrivals
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.scheduler.is_empty()
    }

    /// Whether best effort waits to be sent. Flows that wait only because of their cap do not count.
    pub fn best_effort_waits(&self) -> bool {
        self.scheduler.best_effort_waits()
    }

    /// Sets what is known of the neighbour's clock.
    pub const fn set_neighbour(&mut self, neighbour: NeighbourClock) {
        self.neighbour = neighbour;
    }

    /// The next received signalling packet, and its receive time.
    pub fn take_signal(&mut self) -> Option<(Instant, M::Frame)> {
        self.signals.waiting.pop_front().map(|SignalIn { received, frame }| (received, frame))
    }

    /// Starts to count the packets with which the neighbour fills the link.
    pub fn begin_counting(&mut self, token: Cookie) {
        self.measuring.counting = Some(Box::new(FillerArrivals::new(token)));
    }

    /// Ends the count and returns it.
    pub fn end_counting(&mut self) -> Option<Box<FillerArrivals>> {
        self.measuring.counting.take()
    }

    /// Wire bytes of a packet with `payload_bytes`.
    pub fn wire_bytes(&self, payload_bytes: u32) -> u32 {
        packet_wire_bytes(payload_bytes, self.config.overhead_bytes)
    }

    /// Queues a best-effort packet that this host makes. Returns `false` if others have taken the room since
    /// the handler was armed; nothing is lost, because the handler waits again.
    pub fn queue_best_effort(
        &mut self,
        key: BestEffortKey,
        wire_bytes: u32,
        packet: Packet<M::Frame>,
        now: Instant,
    ) -> bool {
        if !self.scheduler.best_effort_space(key, wire_bytes) {
            return false;
        }
        let queued = self.scheduler.enqueue_best_effort(now, key, wire_bytes, packet).is_ok();
        debug_assert!(queued, "there is room");
        queued
    }

    /// Lists a channel that waits for room in this link's queues; `listed` keeps it from being listed twice.
    pub fn wait(&mut self, channel: ChannelId, listed: &mut bool) {
        if !core::mem::replace(listed, true) {
            self.waiters.blocked.push_back(channel);
        }
    }

    /// Notes which source of this host a flow belongs to.
    pub fn set_source(&mut self, flow: FlowIndex, source: Option<ChannelId>) {
        let index = flow.0 as usize;
        if self.waiters.sources.len() <= index {
            reserve(&mut self.waiters.sources, index + 1);
            self.waiters.sources.resize(index + 1, NO_SOURCE);
        }
        self.waiters.sources[index] = source.unwrap_or(NO_SOURCE);
    }

    /// The source of this host that a flow belongs to.
    pub fn source_of(&self, flow: FlowIndex) -> Option<ChannelId> {
        self.waiters.sources.get(flow.0 as usize).copied().filter(|source| *source != NO_SOURCE)
    }

    /// Queues the token of one outgoing signalling packet at its logical arrival.
    pub fn queue_signal(&mut self, now: Instant) {
        if self.signals.is_queued || self.scheduler.slots_free(self.signals.flow) == 0 {
            return;
        }
        let effective = self.signals.regulator.peek(now);
        self.signals.regulator.accept(now, Policing::Delay);
        let wire_bytes = self.config.signal_bytes_max() + self.config.overhead_bytes;
        if active(Mutation::SignallingAsBestEffort) {
            let key = BestEffortKey(u64::MAX);
            self.signals.is_queued =
                self.scheduler.enqueue_best_effort(now, key, wire_bytes, Packet::Signal).is_ok();
            return;
        }
        let key = Guaranteed { effective, deadline: effective + self.signals.bound, wire_bytes };
        self.signals.is_queued = self.scheduler.enqueue(now, self.signals.flow, key, Packet::Signal).is_ok();
    }
}
