//! The link scheduler of one link: three queues, a window, a pace (HARTS 3.4, 4.1; ARCHITECTURE, The life of
//! a message).
//!
//! - Queue 1: guaranteed packets at or after e - h, by deadline. Queue 3: earlier ones; never served from.
//!   Queue 2: best effort and demoted packets. Queue 1 precedes queue 2.
//! - Packets that were handed over and have not left stay within the window of `pipeline_depth` largest
//!   packets, in bytes. If the head of queue 1 does not fit, *nothing* is handed over: small best effort must
//!   not pass it.
//! - The scheduler owns the packet references `P` from `enqueue` to `poll`, `remove_channel` or an
//!   [`Overflow`]. It reads no clock; it allocates only in `new`, `add_channel` and `set_channel`.
//! - A slot is in use from `enqueue` until the packet has left (`complete`). With [`Pacing::Clock`] it comes
//!   free at hand-over: by then the bytes are copied into the driver's frame, which the window bounds, and a
//!   hand-over is never later than the departure up to which the buffer formula counts.
//! - Work is bounded in each call: `poll` moves at most [`limits::LINK_MOVES_MAX`] channels from queue 3;
//!   while more are due it hands nothing over and `next_timeout` is in the past: the caller must poll again.
//!
//! [`Pacing::Clock`]: crate::config::Pacing::Clock

mod best_effort;
mod guaranteed;
mod heap;
mod pacer;
mod packets;
mod parameters;

use core::num::NonZeroU32;

use pacer::Pacer;
use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{BitRate, Instant, Nanos, Ppm};

use crate::limits;
use crate::slab::Next;
use crate::times::earliest;
pub use parameters::{
    BestEffortKey, Class, FlowIndex, Guaranteed, LinkCounters, LinkParameters, Occupancy, Overflow,
    OverflowReason, Scheduled,
};

/// The scheduler of one link, over packet references `P` whose content it never accesses.
#[derive(Debug)]
pub struct LinkScheduler<P> {
    guaranteed: guaranteed::Queues<P>,
    best_effort: best_effort::Queue<P>,
    pacer: Pacer,
    mtu_wire_bytes: u32,
    counters: LinkCounters,
    polled: Polled,
}

/// The account that the packet which `poll` returned last was added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    /// There is no such packet, or it was retracted.
    None,
    Guaranteed {
        wire_bytes: u32,
        is_late: bool,
    },
    BestEffort {
        wire_bytes: u32,
    },
}

/// A queued packet; `None` of it takes no space, which keeps a slot of a small `P` within half a cache
/// line.
#[derive(Debug)]
struct Queued<P> {
    packet: P,
    effective: Instant,
    deadline: Instant,
    wire_bytes: NonZeroU32,
    /// The packet behind this one in its FIFO.
    next: Next,
}

impl<P> LinkScheduler<P> {
    /// An idle link. Reserves the memory of best effort.
    pub fn new(parameters: LinkParameters) -> Self {
        Self {
            guaranteed: guaranteed::Queues::new(),
            best_effort: best_effort::Queue::new(&parameters),
            pacer: Pacer::new(&parameters),
            mtu_wire_bytes: parameters.mtu_wire_bytes,
            counters: LinkCounters::default(),
            polled: Polled::None,
        }
    }

    /// Memory that the room for a packet of a guaranteed channel takes, in bytes.
    pub const SLOT_BYTES: usize = guaranteed::Queues::<P>::SLOT_BYTES;

    /// Adds a guaranteed channel with `slots` packets of buffer and horizon h; reserves their memory.
    pub fn add_channel(&mut self, slots: u32, horizon: Nanos) -> FlowIndex {
        self.guaranteed.add(slots, horizon, false)
    }

    /// Adds a soft channel, with the arguments of [`Self::add_channel`]. Its current packets go after all
    /// current packets of hard channels and before best effort.
    pub fn add_soft_channel(&mut self, slots: u32, horizon: Nanos) -> FlowIndex {
        self.guaranteed.add(slots, horizon, true)
    }

    /// Changes slots and horizon. Packets beyond fewer slots stay; the horizon counts from the next packet
    /// that becomes its channel's head.
    pub fn set_channel(&mut self, flow: FlowIndex, slots: u32, horizon: Nanos) {
        self.guaranteed.set(flow, slots, horizon);
    }

    /// Removes a channel. `drained` gets some of its queued packets; the others are freed by
    /// [`Self::free_some`]. Packets that were handed over still count in the window.
    pub fn remove_channel(&mut self, flow: FlowIndex, drained: impl FnMut(P)) {
        self.guaranteed.remove(flow, drained);
    }

    /// Packets that `enqueue` would still take from this channel; 0 for an unknown one.
    pub fn slots_free(&self, flow: FlowIndex) -> u32 {
        self.guaranteed.slots_free(flow)
    }

    /// Whether the channel is soft: its packets may be served after their deadlines.
    pub fn is_soft(&self, flow: FlowIndex) -> bool {
        self.guaranteed.is_soft(flow)
    }

    /// How the channel uses its slots.
    pub fn occupancy(&self, flow: FlowIndex) -> Occupancy {
        self.guaranteed.occupancy(flow)
    }

    /// Queues a guaranteed packet: in queue 1 from e - h on, in queue 3 before. O(log channels).
    ///
    /// # Errors
    /// Returns the packet if its channel is unknown or has no free slot, or the packet is too large.
    pub fn enqueue(
        &mut self,
        now: Instant,
        flow: FlowIndex,
        key: Guaranteed,
        packet: P,
    ) -> Result<(), Overflow<P>> {
        let queued = if key.wire_bytes > self.mtu_wire_bytes {
            Err(Overflow { packet, reason: OverflowReason::PacketBytes })
        } else {
            self.guaranteed.enqueue(now, flow, key, packet)
        };
        self.counters.guaranteed_overflows += u64::from(queued.is_err());
        queued
    }

    /// Queues a best-effort or demoted packet; makes its flow if it is new. O(1), O(log flows) with caps.
    ///
    /// # Errors
    /// Returns the packet if its flow has its share queued, no flow is free, or the packet is too large.
    pub fn enqueue_best_effort(
        &mut self,
        now: Instant,
        key: BestEffortKey,
        wire_bytes: u32,
        packet: P,
    ) -> Result<(), Overflow<P>> {
        let queued = self.best_effort.enqueue(now, key, wire_bytes, packet);
        self.counters.best_effort_overflows += u64::from(queued.is_err());
        queued
    }

    /// Whether `enqueue_best_effort` would take the packet. Check first to avoid work that is dropped later.
    pub fn best_effort_space(&self, key: BestEffortKey, wire_bytes: u32) -> bool {
        self.best_effort.space(key, wire_bytes)
    }

    /// Caps the share of the rate that best effort as a whole takes; [`Ppm::ONE`] is no cap.
    pub fn set_best_effort_cap(&mut self, share: Ppm) {
        self.best_effort.set_cap(share);
    }

    /// Sets other rates and caps of the link. Depth, sizes and the kind of pace stay as they are. Packets
    /// under way keep counting; with a clock they count at the old rate.
    pub fn set_parameters(&mut self, parameters: &LinkParameters) {
        self.pacer.set(parameters);
        self.best_effort.set_rate(parameters);
    }

    /// Sets the pace: `rate`, with departures delayed by `delay` at most. Returns the time at which
    /// everything that was handed over before has left, as it was stamped then.
    pub fn set_pace(&mut self, rate: BitRate, delay: Nanos, now: Instant) -> Instant {
        self.pacer.set_pace(rate, delay, now)
    }

    /// Whether queue 1 is empty: what it held has been handed over.
    pub fn is_served(&self, now: Instant) -> bool {
        !self.guaranteed.has_current() && self.guaranteed.release_next().is_none_or(|at| at > now)
    }

    /// Whether a best-effort flow has packets that its cap does not hold back.
    pub fn best_effort_waits(&self) -> bool {
        self.best_effort.has_round()
    }

    /// Whether packets of removed channels and flows, or memory that is not needed, are still here.
    pub fn has_leftovers(&self) -> bool {
        self.guaranteed.has_leftovers() || self.best_effort.has_leftovers()
    }

    /// Returns some of those packets through `drained`: at most [`limits::LEFTOVERS_MAX`] of either kind.
    pub fn free_some(&mut self, mut drained: impl FnMut(P)) {
        self.guaranteed.free_some(&mut drained);
        self.best_effort.free_some(drained);
    }

    /// Empties a best-effort flow; `drained` gets its packets, as in [`Self::remove_channel`].
    pub fn remove_best_effort(&mut self, key: BestEffortKey, drained: impl FnMut(P)) {
        self.best_effort.remove(key, drained);
    }

    /// Channels that are not removed.
    pub fn channels(&self) -> usize {
        self.guaranteed.channels()
    }

    /// All packets that are queued, in no order.
    pub fn queued(&self) -> impl Iterator<Item = &P> {
        self.guaranteed.queued().chain(self.best_effort.queued().1)
    }

    /// The counted and the true numbers of channels' slots and of best-effort packets.
    pub fn accounts(&self) -> [[usize; 2]; 2] {
        let (counted, queued) = self.best_effort.queued();
        [self.guaranteed.slots(), [counted, queued.count()]]
    }

    /// Whether nothing is queued, so that `poll` has nothing at any time.
    pub fn is_empty(&self) -> bool {
        self.guaranteed.is_empty() && self.best_effort.is_empty()
    }

    /// The packet to hand to the adapter now, if any may go.
    pub fn poll(&mut self, now: Instant) -> Option<Scheduled<P>> {
        if self.is_empty() {
            return None;
        }
        let until = self.current_until(now);
        if !self.guaranteed.settle(until, limits::LINK_MOVES_MAX) {
            return None;
        }
        let head = self.guaranteed.head_bytes();
        if active(Mutation::BestEffortFirst) || active(Mutation::SmallBestEffortPasses) {
            let waits = head.is_some_and(|bytes| !self.pacer.admits(bytes, now));
            let passes = head.is_some() && (active(Mutation::BestEffortFirst) || waits);
            let fits = |bytes| self.pacer.admits(bytes, now);
            if passes && self.best_effort.head_bytes(now, limits::LINK_MOVES_MAX).is_some_and(fits) {
                return self.send_best_effort(now);
            }
        }
        match head {
            Some(bytes) => self.pacer.admits(bytes, now).then(|| self.send_guaranteed(now))?,
            None => {
                let bytes = self.best_effort.head_bytes(now, limits::LINK_MOVES_MAX)?;
                self.pacer.admits(bytes, now).then(|| self.send_best_effort(now))?
            }
        }
    }

    /// Packets that are released until the returned time are current. Only an injected fault makes it later
    /// than now.
    fn current_until(&mut self, now: Instant) -> Instant {
        if active(Mutation::QueueThreeServedWhenIdle) {
            let best_effort = self.best_effort.head_bytes(now, limits::LINK_MOVES_MAX);
            if !self.guaranteed.has_current() && best_effort.is_none() {
                return Instant(u64::MAX);
            }
        }
        now
    }

    /// The adapter has sent `wire_bytes` more, in the order of hand-over. No effect for a clocked pace.
    pub fn complete(&mut self, wire_bytes: u32, _now: Instant) {
        self.complete_each(wire_bytes, |_| {});
    }

    /// Does the same as [`Self::complete`], and calls `left` with the channel of each guaranteed packet that
    /// has left: this channel has a free slot again.
    pub fn complete_each(&mut self, wire_bytes: u32, mut left: impl FnMut(FlowIndex)) {
        let Self { pacer, guaranteed, .. } = self;
        pacer.complete(wire_bytes, |flow| {
            guaranteed.release_slot(flow);
            left(flow);
        });
    }

    /// Removes from the window the packet that `poll` returned last, because it was not handed to the
    /// adapter; otherwise it would stay there forever. It is not counted.
    pub fn retract(&mut self) {
        match core::mem::replace(&mut self.polled, Polled::None) {
            Polled::None => {}
            Polled::Guaranteed { wire_bytes, is_late } => {
                self.counters.guaranteed_packets -= 1;
                self.counters.guaranteed_bytes -= u64::from(wire_bytes);
                self.counters.late_packets -= u64::from(is_late);
            }
            Polled::BestEffort { wire_bytes } => {
                self.counters.best_effort_packets -= 1;
                self.counters.best_effort_bytes -= u64::from(wire_bytes);
            }
        }
        if let Some(flow) = self.pacer.retract() {
            self.guaranteed.release_slot(flow);
        }
    }

    /// The time at which `poll` may have a packet because time has passed: the head of queue 3 becomes
    /// current, the pace opens, or a capped flow refills. A time in the past means that `poll` must be called
    /// now.
    pub fn next_timeout(&self) -> Option<Instant> {
        let release = self.guaranteed.release_next();
        // While queue 1 uses the link, best effort is not polled, and a refill in the past would stay due.
        if self.guaranteed.has_current() {
            return earliest(release, self.pacer.opens());
        }
        let next = earliest(release, self.best_effort.refill_next());
        if !self.best_effort.has_round() {
            return next;
        }
        // A cap that holds best effort back ends later than the window opens, or best effort waits for the
        // cap only.
        earliest(next, self.pacer.opens().max(self.best_effort.throttled()))
    }

    /// Bytes handed over that have not left.
    pub fn outstanding(&self, now: Instant) -> u64 {
        self.pacer.outstanding(now)
    }

    /// Counters since the start.
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    fn send_guaranteed(&mut self, now: Instant) -> Option<Scheduled<P>> {
        let (flow, queued) = self.guaranteed.pop(now)?;
        let (wire_bytes, deadline) = (queued.wire_bytes.get(), queued.deadline);
        let departure_latest = self.pacer.hand_over(Some(flow), wire_bytes, now);
        if !self.pacer.completes() {
            self.guaranteed.release_slot(flow);
        }
        self.counters.guaranteed_packets += 1;
        self.counters.guaranteed_bytes += u64::from(wire_bytes);
        let is_late = departure_latest > deadline;
        self.counters.late_packets += u64::from(is_late);
        self.polled = Polled::Guaranteed { wire_bytes, is_late };
        Some(Scheduled {
            packet: queued.packet,
            class: Class::Guaranteed { flow, deadline },
            wire_bytes,
            departure_latest,
        })
    }

    fn send_best_effort(&mut self, now: Instant) -> Option<Scheduled<P>> {
        let (key, queued) = self.best_effort.pop(now)?;
        let wire_bytes = queued.wire_bytes.get();
        let departure_latest = self.pacer.hand_over(None, wire_bytes, now);
        self.counters.best_effort_packets += 1;
        self.counters.best_effort_bytes += u64::from(wire_bytes);
        self.polled = Polled::BestEffort { wire_bytes };
        Some(Scheduled {
            packet: queued.packet,
            class: Class::BestEffort { key },
            wire_bytes,
            departure_latest,
        })
    }
}
