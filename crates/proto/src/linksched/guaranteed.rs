//! Queues 1 and 3: guaranteed packets, by deadline from e - h on (soft channels' behind all others'), by e -
//! h before.
//!
//! Effective arrivals and deadlines do not decrease within a channel (the e-chain), so each channel is a FIFO
//! and only its head is in a heap: the work and memory of the heaps depend on the number of channels, not of
//! packets. A removed channel leaves its heap entry behind and its index is reused when that has surfaced and
//! nothing of it is in flight: removal needs no search.

use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};

use super::Queued;
use super::heap::Heap;
use super::parameters::{FlowIndex, Guaranteed, Occupancy, Overflow, OverflowReason};
use crate::limits::LEFTOVERS_MAX;
use crate::slab::{Fifo, Slab, reserve};

/// Where the head of a channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The channel has no packet, and is in no heap.
    Idle,
    /// Queue 3.
    Early,
    /// Queue 1.
    Current,
}

/// Half a cache line: at many channels each access to one is a miss.
#[derive(Debug)]
#[repr(align(32))]
struct Flow {
    packets: Fifo,
    horizon: Nanos,
    slots: u32,
    /// Slots of packets that are queued or, if completions drive the link, in flight.
    slots_used: u32,
    slots_used_max: u32,
    place: Place,
    /// Removed: takes no packets, waits for its heap entry and its packets in flight.
    retired: bool,
    /// True if the channel is soft: its packets are served after those of all hard channels.
    soft: bool,
}

/// Offset that places soft channels in queue 1 behind every deadline of a hard channel: longer than any
/// bound, horizon and wait together, and far below the range of 64 bits.
const SOFT_BEHIND: Nanos = Nanos(1 << 60);

impl Flow {
    /// Rank in queue 1 of a flow whose head is due by `deadline`: the smallest rank goes first.
    fn rank(&self, deadline: Instant) -> u64 {
        if self.soft { (deadline + SOFT_BEHIND).0 } else { deadline.0 }
    }
}

const _: () = assert!(size_of::<Flow>() == 32);

/// The two queues of all channels of a link.
#[derive(Debug)]
pub(super) struct Queues<P> {
    flows: Vec<Flow>,
    free: Vec<FlowIndex>,
    packets: Slab<Queued<P>>,
    slots_total: usize,
    /// Queue 1: channels by the deadline of their heads.
    current: Heap<FlowIndex>,
    /// Queue 3: channels by e - h of their heads.
    early: Heap<FlowIndex>,
    /// Packets of removed channels, with the channel's index and its slots, which are freed with the packets.
    leaving: Vec<(FlowIndex, Fifo, u32)>,
}

impl<P> Queues<P> {
    /// Memory that the room for a packet takes, in bytes.
    pub(super) const SLOT_BYTES: usize = Slab::<Queued<P>>::ITEM_BYTES;

    pub(super) const fn new() -> Self {
        Self {
            flows: Vec::new(),
            free: Vec::new(),
            packets: Slab::new(),
            slots_total: 0,
            current: Heap::new(),
            early: Heap::new(),
            leaving: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, slots: u32, horizon: Nanos, soft: bool) -> FlowIndex {
        let flow = Flow {
            soft,
            packets: Fifo::EMPTY,
            place: Place::Idle,
            retired: false,
            slots,
            slots_used: 0,
            slots_used_max: 0,
            horizon,
        };
        self.slots_total += slots as usize;
        self.packets.add_room(slots);
        if let Some(index) = self.free.pop() {
            self.flows[index.0 as usize] = flow;
            return index;
        }
        let flows = self.flows.len() + 1;
        reserve(&mut self.flows, flows);
        self.flows.push(flow);
        reserve(&mut self.free, flows);
        self.current.reserve(flows);
        self.early.reserve(flows);
        FlowIndex((flows - 1) as u32)
    }

    pub(super) fn set(&mut self, flow: FlowIndex, slots: u32, horizon: Nanos) {
        let Some(known) = self.get_mut(flow) else { return };
        let before = core::mem::replace(&mut known.slots, slots);
        known.horizon = horizon;
        self.slots_total = self.slots_total + slots as usize - before as usize;
        self.packets.add_room(slots);
        self.packets.remove_room(before);
    }

    pub(super) fn remove(&mut self, flow: FlowIndex, drained: impl FnMut(P)) {
        let Some(known) = self.get_mut(flow) else { return };
        known.retired = true;
        let (slots, packets) = (known.slots, core::mem::replace(&mut known.packets, Fifo::EMPTY));
        self.slots_total -= slots as usize;
        // The newest is served first, so a removed channel with many packets does not delay the others.
        self.leaving.push((flow, packets, slots));
        self.free_some(drained);
    }

    /// Whether [`Self::free_some`] has something to do.
    pub(super) fn has_leftovers(&self) -> bool {
        !self.leaving.is_empty() || self.packets.has_leftovers()
    }

    /// Returns some packets of a removed channel through `drained`, and frees some memory that is not needed
    /// any more.
    pub(super) fn free_some(&mut self, mut drained: impl FnMut(P)) {
        let Some((flow, mut queue, slots)) = self.leaving.pop() else {
            return self.packets.free_some();
        };
        for _ in 0..LEFTOVERS_MAX {
            let Some(queued) = self.packets.pop(&mut queue) else { break };
            self.flows[flow.0 as usize].slots_used -= 1;
            drained(queued.packet);
        }
        if queue.is_empty() {
            self.packets.remove_room(slots);
            self.reuse_if_gone(flow);
        } else {
            self.leaving.push((flow, queue, slots));
        }
    }

    pub(super) fn slots_free(&self, flow: FlowIndex) -> u32 {
        self.get(flow).map_or(0, |known| known.slots.saturating_sub(known.slots_used))
    }

    pub(super) fn occupancy(&self, flow: FlowIndex) -> Occupancy {
        self.get(flow).map_or(Occupancy::default(), |known| Occupancy {
            slots_used: known.slots_used,
            slots_used_max: known.slots_used_max,
            slots: known.slots,
        })
    }

    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        flow: FlowIndex,
        key: Guaranteed,
        packet: P,
    ) -> Result<(), Overflow<P>> {
        let Some(known) = self.flows.get_mut(flow.0 as usize).filter(|known| !known.retired) else {
            return Err(Overflow { packet, reason: OverflowReason::UnknownFlow });
        };
        if known.slots_used >= known.slots {
            return Err(Overflow { packet, reason: OverflowReason::Slots });
        }
        let (mut effective, mut deadline) = (key.effective, key.deadline);
        if let Some(before) = self.packets.back(&known.packets) {
            effective = effective.max(before.effective);
            deadline = deadline.max(before.deadline);
        }
        let queued = Queued::new(packet, key.wire_bytes, effective, deadline);
        self.packets.push(&mut known.packets, queued);
        known.slots_used += 1;
        known.slots_used_max = known.slots_used_max.max(known.slots_used);
        let ignored = known.horizon == Nanos::ZERO && active(Mutation::ZeroHorizonIgnored);
        let release = if ignored { now } else { effective - known.horizon };
        match known.place {
            // The head is in a heap already, or the entry of an emptied head is: see `settle`.
            Place::Early | Place::Current => {}
            Place::Idle if release > now => {
                known.place = Place::Early;
                self.early.push(release.0, flow);
            }
            Place::Idle => {
                known.place = Place::Current;
                self.current.push(known.rank(deadline), flow);
            }
        }
        Ok(())
    }

    /// Moves channels whose head has become current from queue 3 to queue 1, at most `moves_max`. Returns
    /// `false` if more are due: nothing may be served before all are moved, or a later deadline could be
    /// served before an earlier one.
    pub(super) fn settle(&mut self, now: Instant, moves_max: u32) -> bool {
        for _ in 0..moves_max {
            if let Some((_, flow)) = self.early.peek().filter(|(release, _)| *release <= now.0) {
                self.early.pop();
                self.make_current(flow);
            } else if let Some(flow) = self.retired_head() {
                self.current.pop();
                self.leave_heap(flow);
            } else {
                return true;
            }
        }
        self.early.peek().is_none_or(|(release, _)| release > now.0) && self.retired_head().is_none()
    }

    /// The size of the packet with the earliest deadline in queue 1, in bytes; call `settle` first.
    pub(super) fn head_bytes(&self) -> Option<u32> {
        let (_, flow) = self.current.peek()?;
        Some(self.packets.front(&self.flows[flow.0 as usize].packets)?.wire_bytes.get())
    }

    /// Takes that packet; its slot stays in use until `release_slot`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(FlowIndex, Queued<P>)> {
        let (_, flow) = self.current.peek()?;
        let known = &mut self.flows[flow.0 as usize];
        let queued = self.packets.pop(&mut known.packets)?;
        match self.packets.front(&known.packets) {
            Some(next) if next.effective - known.horizon <= now => {
                self.current.rekey_top(known.rank(next.deadline))
            }
            Some(next) => {
                known.place = Place::Early;
                self.current.pop();
                self.early.push((next.effective - known.horizon).0, flow);
            }
            None => {
                known.place = Place::Idle;
                self.current.pop();
            }
        }
        Some((flow, queued))
    }

    /// Frees the slot of a packet of `flow` that was taken.
    pub(super) fn release_slot(&mut self, flow: FlowIndex) {
        let known = &mut self.flows[flow.0 as usize];
        known.slots_used = known.slots_used.saturating_sub(1);
        self.reuse_if_gone(flow);
    }

    /// Time at which the head of queue 3 becomes current.
    pub(super) fn release_next(&self) -> Option<Instant> {
        self.early.peek().map(|(release, _)| Instant(release))
    }

    /// Whether neither queue has an entry.
    pub(super) fn is_empty(&self) -> bool {
        self.current.peek().is_none() && self.early.peek().is_none()
    }

    /// Whether queue 1 has an entry.
    pub(super) fn has_current(&self) -> bool {
        self.current.peek().is_some()
    }

    /// Channels that are not removed.
    pub(super) fn channels(&self) -> usize {
        self.flows.iter().filter(|flow| !flow.retired).count()
    }

    /// The counted slots of all channels, and their sum.
    pub(super) fn slots(&self) -> [usize; 2] {
        let live = self.flows.iter().filter(|flow| !flow.retired);
        [self.slots_total, live.map(|flow| flow.slots as usize).sum()]
    }

    /// All packets that are queued.
    pub(super) fn queued(&self) -> impl Iterator<Item = &P> {
        self.packets.items().map(|queued| &queued.packet)
    }

    /// Whether a channel is soft.
    pub(super) fn is_soft(&self, flow: FlowIndex) -> bool {
        self.get(flow).is_some_and(|known| known.soft)
    }

    fn get(&self, flow: FlowIndex) -> Option<&Flow> {
        self.flows.get(flow.0 as usize).filter(|known| !known.retired)
    }

    fn get_mut(&mut self, flow: FlowIndex) -> Option<&mut Flow> {
        self.flows.get_mut(flow.0 as usize).filter(|known| !known.retired)
    }

    fn make_current(&mut self, flow: FlowIndex) {
        let known = &mut self.flows[flow.0 as usize];
        match self.packets.front(&known.packets) {
            Some(head) => {
                known.place = Place::Current;
                let ignored = active(Mutation::SoftFromQueueThreeAsHard);
                let rank = if ignored { head.deadline.0 } else { known.rank(head.deadline) };
                self.current.push(rank, flow);
            }
            None => self.leave_heap(flow),
        }
    }

    /// The removed channel whose entry is on top of queue 1.
    fn retired_head(&self) -> Option<FlowIndex> {
        let (_, flow) = self.current.peek()?;
        self.flows[flow.0 as usize].packets.is_empty().then_some(flow)
    }

    fn leave_heap(&mut self, flow: FlowIndex) {
        self.flows[flow.0 as usize].place = Place::Idle;
        self.reuse_if_gone(flow);
    }

    fn reuse_if_gone(&mut self, flow: FlowIndex) {
        let known = &self.flows[flow.0 as usize];
        if known.retired && known.place == Place::Idle && known.slots_used == 0 {
            self.free.push(flow);
        }
    }
}
