//! Queue 2: best-effort and demoted packets, FIFO within a flow, fair among flows.
//!
//! Deficit round robin on bytes with a quantum of one largest packet (Shreedhar and Varghese 1995): O(1) a
//! packet. A flow with a cap that has spent it leaves the round until its bucket has refilled. A flow's queue
//! is bounded in bytes, and in packets by the space that is still free (Choudhury and Hahne 1998), so that a
//! flood of small packets leaves room for every other flow. When all places are taken, a new flow gets the one
//! that has been idle longest, with the bytes that are not paid for there. Invariant: a flow with packets is in
//! exactly one of the round and the heap of capped flows, a flow without packets is in the list of idle flows.
//! So a place comes free only by `pop` and `remove`, where the caller can wake who waits for it.

use alloc::vec::Vec;

use hashbrown::HashMap;
use punctual_analysis::{BitRate, Instant, Nanos, Ppm};

use super::Queued;
use super::heap::Heap;
use super::parameters::{BestEffortKey, ByteTime, LinkParameters, Overflow, OverflowReason};
use crate::limits::{BEST_EFFORT_CAP_BURST_PACKETS, LEFTOVERS_MAX};
use crate::slab::{Fifo, Slab};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Idle,
    Round,
    Capped,
}

#[derive(Debug)]
struct Flow {
    key: BestEffortKey,
    packets: Fifo,
    packets_queued: u32,
    bytes: u64,
    deficit_bytes: u64,
    /// Time at which the bytes sent are paid for at the cap.
    tat: Instant,
    place: Place,
    previous: u32,
    next: u32,
}

/// A list of flows, linked within them.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

impl List {
    const EMPTY: Self = Self { head: NONE, tail: NONE };

    fn push_back(&mut self, flows: &mut [Flow], index: u32) {
        flows[index as usize].previous = self.tail;
        flows[index as usize].next = NONE;
        match self.tail {
            NONE => self.head = index,
            tail => flows[tail as usize].next = index,
        }
        self.tail = index;
    }

    fn unlink(&mut self, flows: &mut [Flow], index: u32) {
        let (previous, next) = (flows[index as usize].previous, flows[index as usize].next);
        match previous {
            NONE => self.head = next,
            previous => flows[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => flows[next as usize].previous = previous,
        }
    }
}

/// The token bucket of each flow, or of all together.
#[derive(Clone, Copy, Debug)]
struct Cap {
    byte_time: ByteTime,
    /// How far ahead of its rate a flow may run.
    tolerance: Nanos,
}

impl Cap {
    /// `None` if the share is no cap.
    fn of(share: Ppm, rate: BitRate, packet_wire_bytes: u64) -> Option<Self> {
        (share < Ppm::ONE).then(|| {
            let byte_time = ByteTime::of(rate.less(Ppm(Ppm::ONE.0 - share.0)));
            let burst_bytes = packet_wire_bytes * BEST_EFFORT_CAP_BURST_PACKETS;
            Self { byte_time, tolerance: byte_time.time_of(burst_bytes) }
        })
    }
}

/// Queue 2 of a link.
#[derive(Debug)]
pub(super) struct Queue<P> {
    flows: Vec<Flow>,
    by_key: HashMap<BestEffortKey, u32>,
    packets: Slab<Queued<P>>,
    packets_queued: u32,
    round: List,
    /// Whether the first of the round has got its quantum for this turn.
    turn_open: bool,
    /// Least recently used first.
    idle: List,
    capped: Heap<u32>,
    caps: Caps,
    bounds: Bounds,
    /// Packets of flows that were removed; they count as queued.
    leaving: Vec<Fifo>,
}

/// Caps on the flows' use of the link.
#[derive(Debug)]
struct Caps {
    /// Rate of the link, which the caps are shares of.
    rate: BitRate,
    /// Cap of each flow.
    flow: Option<Cap>,
    /// The bucket of all flows together: the time at which its bytes are paid for, and the time until which
    /// it holds all flows back.
    whole: Option<Cap>,
    whole_tat: Instant,
    throttled: Option<Instant>,
}

/// The limits of the queue.
#[derive(Debug)]
struct Bounds {
    /// Bytes that a flow may send in one turn of the round: a largest packet.
    quantum_bytes: u64,
    flow_bytes: u64,
    flows: usize,
    packets: u32,
}

impl<P> Queue<P> {
    pub(super) fn new(parameters: &LinkParameters) -> Self {
        let bounds = Bounds {
            quantum_bytes: u64::from(parameters.best_effort_wire_bytes),
            flow_bytes: u64::from(parameters.best_effort_flow_bytes_max),
            flows: parameters.best_effort_flows_max as usize,
            packets: parameters.best_effort_packets_max,
        };
        let cap_of = |share| Cap::of(share, parameters.rate, bounds.quantum_bytes);
        let caps = Caps {
            rate: parameters.rate,
            flow: cap_of(parameters.best_effort_flow_cap),
            whole: cap_of(parameters.best_effort_cap),
            whole_tat: Instant::ZERO,
            throttled: None,
        };
        let mut packets = Slab::new();
        packets.reserve(bounds.packets as usize);
        let mut capped = Heap::new();
        if caps.flow.is_some() {
            capped.reserve(bounds.flows);
        }
        Self {
            flows: Vec::with_capacity(bounds.flows),
            by_key: HashMap::with_capacity(bounds.flows),
            packets,
            packets_queued: 0,
            round: List::EMPTY,
            turn_open: false,
            idle: List::EMPTY,
            capped,
            caps,
            bounds,
            leaving: Vec::new(),
        }
    }

    /// The counted number of queued packets, and the packets.
    pub(super) fn queued(&self) -> (usize, impl Iterator<Item = &P>) {
        (self.packets_queued as usize, self.packets.items().map(|queued| &queued.packet))
    }

    /// Caps the share of the link that all flows together take.
    pub(super) fn set_cap(&mut self, share: Ppm) {
        self.caps.whole = Cap::of(share, self.caps.rate, self.bounds.quantum_bytes);
    }

    /// Sets another rate of the link; caps are shares of that rate from now on.
    pub(super) fn set_rate(&mut self, parameters: &LinkParameters) {
        self.caps.rate = parameters.rate;
        // Flows that their cap holds back now are freed by the change: it does not add or remove the caps
        // themselves.
        if self.caps.flow.is_some() {
            let cap = Cap::of(parameters.best_effort_flow_cap, parameters.rate, self.bounds.quantum_bytes);
            self.caps.flow = cap.or(self.caps.flow);
        }
        self.set_cap(parameters.best_effort_cap);
        self.caps.throttled = None;
    }

    /// Whether a packet would be taken.
    pub(super) fn space(&self, key: BestEffortKey, wire_bytes: u32) -> bool {
        self.refusal(key, wire_bytes).is_none()
    }

    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        key: BestEffortKey,
        wire_bytes: u32,
        packet: P,
    ) -> Result<(), Overflow<P>> {
        if let Some(reason) = self.refusal(key, wire_bytes) {
            return Err(Overflow { packet, reason });
        }
        let index = self.flow_of(key);
        let flow = &mut self.flows[index as usize];
        self.packets.push(&mut flow.packets, Queued::new(packet, wire_bytes, now, now));
        flow.packets_queued += 1;
        flow.bytes += u64::from(wire_bytes.max(1));
        self.packets_queued += 1;
        if flow.place == Place::Idle {
            self.idle.unlink(&mut self.flows, index);
            self.place_busy(index, now);
        }
        Ok(())
    }

    /// The size of the packet whose turn it is, in bytes. At most `moves_max` refilled flows join the round
    /// before.
    pub(super) fn head_bytes(&mut self, now: Instant, moves_max: u32) -> Option<u32> {
        self.refill(now, moves_max);
        self.caps.throttled = self.caps.throttled.filter(|until| *until > now);
        if self.caps.throttled.is_some() {
            return None;
        }
        // The quantum is a largest packet: the second flow of the round can always send.
        for _ in 0..2 {
            let index = self.round.head;
            let flow = self.flows.get_mut(index as usize)?;
            let head = self.packets.front(&flow.packets)?;
            if !self.turn_open {
                self.turn_open = true;
                flow.deficit_bytes += self.bounds.quantum_bytes;
            }
            if u64::from(head.wire_bytes.get()) <= flow.deficit_bytes {
                return Some(head.wire_bytes.get());
            }
            self.leave_round(index);
            self.join_round(index);
        }
        None
    }

    /// Takes the packet whose size `head_bytes` returned.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(BestEffortKey, Queued<P>)> {
        let index = self.round.head;
        let flow = self.flows.get_mut(index as usize)?;
        let queued = self.packets.pop(&mut flow.packets)?;
        let bytes = u64::from(queued.wire_bytes.get());
        self.packets_queued -= 1;
        flow.packets_queued -= 1;
        flow.bytes -= bytes;
        flow.deficit_bytes = flow.deficit_bytes.saturating_sub(bytes);
        if let Some(cap) = &self.caps.flow {
            flow.tat = flow.tat.max(now) + cap.byte_time.time_of(bytes);
        }
        if let Some(cap) = &self.caps.whole {
            self.caps.whole_tat = self.caps.whole_tat.max(now) + cap.byte_time.time_of(bytes);
            self.caps.throttled = Some(self.caps.whole_tat - cap.tolerance).filter(|until| *until > now);
        }
        let (key, empty) = (flow.key, flow.packets.is_empty());
        if empty {
            self.leave_round(index);
            self.place_idle(index);
        } else if self.capped_until(index).is_some_and(|until| until > now) {
            self.leave_round(index);
            self.place_busy(index, now);
        }
        Some((key, queued))
    }

    /// Returns all packets of a flow, a few at once and others by [`Self::free_some`]. The flow is idle then.
    pub(super) fn remove(&mut self, key: BestEffortKey, drained: impl FnMut(P)) {
        let Some(&index) = self.by_key.get(&key) else { return };
        let flow = &mut self.flows[index as usize];
        let packets = core::mem::replace(&mut flow.packets, Fifo::EMPTY);
        flow.packets_queued = 0;
        flow.bytes = 0;
        match flow.place {
            Place::Idle => return,
            Place::Round => self.leave_round(index),
            Place::Capped => self.capped.remove(index),
        }
        self.place_idle(index);
        self.leaving.push(packets);
        self.free_some(drained);
    }

    /// Whether [`Self::free_some`] has something to do.
    pub(super) fn has_leftovers(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Gives `drained` some packets of a flow that was removed.
    pub(super) fn free_some(&mut self, mut drained: impl FnMut(P)) {
        let Some(mut packets) = self.leaving.pop() else { return };
        for _ in 0..LEFTOVERS_MAX {
            let Some(queued) = self.packets.pop(&mut packets) else { return };
            self.packets_queued -= 1;
            drained(queued.packet);
        }
        if !packets.is_empty() {
            self.leaving.push(packets);
        }
    }

    /// Time until which the cap of all flows together holds them back; `None` if it does not.
    pub(super) const fn throttled(&self) -> Option<Instant> {
        self.caps.throttled
    }

    /// Whether no flow waits to send or to be refilled.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_round() && self.capped.peek().is_none()
    }

    /// Whether a flow is in the round.
    pub(super) const fn has_round(&self) -> bool {
        self.round.head != NONE
    }

    /// Time at which the first capped flow has refilled.
    pub(super) fn refill_next(&self) -> Option<Instant> {
        self.capped.peek().map(|(until, _)| Instant(until))
    }

    fn refusal(&self, key: BestEffortKey, wire_bytes: u32) -> Option<OverflowReason> {
        if u64::from(wire_bytes) > self.bounds.quantum_bytes {
            return Some(OverflowReason::PacketBytes);
        }
        let (packets, bytes) = match self.by_key.get(&key) {
            Some(&index) => (self.flows[index as usize].packets_queued, self.flows[index as usize].bytes),
            None if self.flows.len() >= self.bounds.flows && self.idle.head == NONE => {
                return Some(OverflowReason::Flows);
            }
            None => (0, 0),
        };
        let fits = bytes + u64::from(wire_bytes) <= self.bounds.flow_bytes
            && packets < self.bounds.packets - self.packets_queued;
        (!fits).then_some(OverflowReason::FlowFull)
    }

    /// The flow of `key`; adds it if it is new. `refusal` has checked that there is room.
    fn flow_of(&mut self, key: BestEffortKey) -> u32 {
        if let Some(&index) = self.by_key.get(&key) {
            return index;
        }
        let flow = Flow {
            key,
            packets: Fifo::EMPTY,
            packets_queued: 0,
            bytes: 0,
            deficit_bytes: 0,
            tat: Instant::ZERO,
            place: Place::Idle,
            previous: NONE,
            next: NONE,
        };
        let index = if self.flows.len() < self.bounds.flows {
            self.flows.push(flow);
            (self.flows.len() - 1) as u32
        } else {
            let index = self.idle.head;
            self.idle.unlink(&mut self.flows, index);
            let place = &mut self.flows[index as usize];
            let before = core::mem::replace(place, Flow { tat: place.tat, ..flow });
            self.by_key.remove(&before.key);
            index
        };
        self.idle.push_back(&mut self.flows, index);
        self.by_key.insert(key, index);
        index
    }

    fn capped_until(&self, index: u32) -> Option<Instant> {
        self.caps.flow.as_ref().map(|cap| self.flows[index as usize].tat - cap.tolerance)
    }

    fn refill(&mut self, now: Instant, moves_max: u32) {
        for _ in 0..moves_max {
            let Some((_, index)) = self.capped.peek().filter(|(until, _)| *until <= now.0) else { return };
            self.capped.pop();
            self.join_round(index);
        }
    }

    /// Puts a flow with packets that is in no list into the list that it belongs to.
    fn place_busy(&mut self, index: u32, now: Instant) {
        match self.capped_until(index).filter(|until| *until > now) {
            Some(until) => {
                self.flows[index as usize].place = Place::Capped;
                self.capped.push(until.0, index);
            }
            None => self.join_round(index),
        }
    }

    fn place_idle(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        flow.place = Place::Idle;
        flow.deficit_bytes = 0;
        self.idle.push_back(&mut self.flows, index);
    }

    fn join_round(&mut self, index: u32) {
        self.flows[index as usize].place = Place::Round;
        self.round.push_back(&mut self.flows, index);
    }

    fn leave_round(&mut self, index: u32) {
        if self.round.head == index {
            self.turn_open = false;
        }
        self.round.unlink(&mut self.flows, index);
    }
}

#[cfg(test)]
mod tests {
    use punctual_analysis::BitRate;

    use super::*;
    use crate::config::LinkConfig;
    use crate::ids::NodeId;

    /// The scheduler allocates where it is made: for all flows that a cap may hold back, if there is one.
    #[test]
    fn there_is_room_for_every_flow_that_a_cap_holds_back() {
        for (cap, flows, is_room) in [(Ppm::ONE, 100, false), (Ppm(500_000), 100, true), (Ppm(1), 9, true)] {
            let queue = Queue::<u32>::new(&LinkParameters {
                best_effort_flow_cap: cap,
                best_effort_flows_max: flows,
                ..LinkParameters::of(&LinkConfig::new("l", NodeId(1), BitRate(8_000_000)))
            });
            assert_eq!(queue.capped.room() >= flows as usize, is_room, "{cap:?} {flows}");
        }
    }
}
