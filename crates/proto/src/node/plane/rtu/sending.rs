//! What programs' handlers send: a flow of the link scheduler with slots of its own, served like a channel's within the
//! handler's budget, and as best effort beyond it (ADR 0051).
//!
//! Invariants: within the budget a body is called only while there are slots for all that its PDUs may send, so nothing is
//! made that would be dropped; no window of the handler's period has more packets in queue 1 than its budget.

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};

use super::releases::Sporadic;
use super::{Own, Rtu};
use crate::api::{PacketOut, RtuEvent, RtuId, RtuSending, RtuSent};
use crate::ids::{ChannelId, Cookie, LinkId, NodeId, PathId};
use crate::limits::{BEST_EFFORT_OUTGOING_MAX, RAW_TAG_BYTES};
use crate::linksched::{FlowIndex, Guaranteed};
use crate::memory::{Memory, MessageRead, Outbox};
use crate::node::packet::Packet;
use crate::node::plane::best_effort::key_of;
use crate::node::plane::outgoing::{Arrival, Outgoing};
use crate::node::plane::transmit::{copy_message, header_of};
use crate::node::plane::{Context, LinkState, Links, Plane};
use crate::node::stages::RtuPlace;
use crate::wire::Kind;

/// The destination of a handler's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub link: LinkId,
    /// Path of the packets. It also identifies the handler's best-effort queue.
    pub path: PathId,
    /// Port and host that the packets are addressed to. `None`: the node sends them unchanged, without its header.
    pub receiver: Option<(Cookie, NodeId)>,
}

/// How a handler sends.
pub(super) struct Sending<M: Memory> {
    /// The handler's handle among flows and channels.
    channel: ChannelId,
    route: Route,
    /// Largest number of packets for one PDU.
    packets: u32,
    /// Bytes of the largest message.
    message_bytes: u32,
    outbox: M::Outbox,
    outgoing: Outgoing,
    /// The handler's slots in queue 1, if it has any.
    slots: Option<Slots>,
    /// True while the handler waits for room in the link's queues.
    listed: bool,
    /// True if a full link has prevented a call of the body since the last call.
    was_held: bool,
    number_next: u64,
    counted: Counted,
}

/// Slots in queue 1.
struct Slots {
    flow: FlowIndex,
    /// The bounds of the processor and of the link, in this order.
    bounds: [Nanos; 2],
    /// Effective arrivals at the link.
    pace: Sporadic,
}

#[derive(Default)]
struct Counted {
    packets: u64,
    packets_beyond: u64,
    too_long: u64,
}

impl<M: Memory> Sending<M> {
    /// The link on which the handler has or has requested a place.
    pub const fn link(&self) -> LinkId {
        self.route.link
    }

    /// True if the handler sends over this path.
    pub fn has(&self, path: PathId) -> bool {
        self.route.path == path
    }

    pub const fn has_slots(&self) -> bool {
        self.slots.is_some()
    }

    /// Number of messages that are queued and have not left.
    pub const fn messages(&self) -> usize {
        self.outgoing.len() as usize
    }

    /// True if messages are in the handler's ring or in the link's queues.
    pub fn is_busy(&self) -> bool {
        !self.outgoing.is_empty() || self.outbox.is_ready()
    }

    /// Returns true if a full link has prevented a call of the body since the last call of this function.
    pub const fn take_held(&mut self) -> bool {
        core::mem::replace(&mut self.was_held, false)
    }

    /// Bytes that a message takes on the wire. A packet that is sent unchanged counts as if it had the headers of UDP
    /// and IP, too. So the result is too large by these and the tag at most.
    fn wire_bytes(&self, state: &LinkState<M>, message_bytes: u32) -> u32 {
        match self.route.receiver {
            Some(_) => state.wire_bytes(message_bytes),
            None => message_bytes.saturating_add(state.config.overhead_bytes),
        }
    }

    /// PDUs for which there are slots in queue 1.
    pub fn units_free(&self, state: &LinkState<M>) -> u32 {
        let free = self.slots.as_ref().map_or(0, |slots| state.scheduler.slots_free(slots.flow));
        free.min(self.outgoing.room()) / self.packets
    }

    /// Whether there is room in queue 2 for a packet.
    fn has_room_beyond(&self, state: &LinkState<M>) -> bool {
        let wire_bytes = self.wire_bytes(state, self.message_bytes);
        let space = state.scheduler.best_effort_space(key_of(self.route.path), wire_bytes);
        space && !self.outgoing.is_full()
    }

    /// True if the link has room for the handler to run, within its budget or beyond. If not, the handler is woken
    /// when there is room.
    pub fn may_run(&mut self, state: &mut LinkState<M>, within: bool) -> bool {
        if within {
            let is_free = self.units_free(state) > 0;
            self.was_held |= !is_free;
            return is_free;
        }
        let is_free = self.has_room_beyond(state);
        if !is_free {
            state.wait(self.channel, &mut self.listed);
        }
        is_free
    }

    /// Status of what the handler sends.
    pub fn status(&self, state: &LinkState<M>, own: Option<Own>) -> RtuSent {
        let slots = self.slots.as_ref();
        let occupancy = slots.map(|slots| state.scheduler.occupancy(slots.flow)).unwrap_or_default();
        RtuSent {
            link: self.route.link,
            bound: own.and(slots).map(|slots| slots.bounds[0] + slots.bounds[1]),
            packets: self.counted.packets,
            packets_beyond: self.counted.packets_beyond,
            too_long: self.counted.too_long,
            slots: occupancy.slots,
            slots_used_max: occupancy.slots_used_max,
        }
    }
}

/// A message for a link: the packet, and its tag behind it. A message without room for a tag is no packet.
fn raw_packet<F>(handler: RtuId, message: &[u8]) -> Option<PacketOut<F>> {
    let (packet, tag) = message.split_last_chunk::<RAW_TAG_BYTES>()?;
    let tag = u64::from_le_bytes(*tag);
    (!packet.is_empty()).then_some(PacketOut::Raw { handler, tag, len: packet.len() })
}

/// Number of slots that a budget of `packets` a period needs. A slot is in use from the release at the earliest until
/// the departure.
fn slots_of(packets: u32, period: Nanos, bounds: [Nanos; 2]) -> u32 {
    let windows = (bounds[0] + bounds[1]).0 / period.0.max(1) + 1;
    packets.saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX))
}

impl<M: Memory> Rtu<M> {
    /// True if the link already has the capacity that admission assumes. If not, the grant waits for the link's shaper.
    pub(super) fn has_share(&self, place: &RtuPlace, links: &mut Links<M>) -> bool {
        let (Some(on), Some(sending)) = (&place.link, &self.sending) else { return true };
        let shaper = links.states[usize::from(on.link.0)].shaper.as_mut();
        shaper.is_none_or(|shaper| shaper.add(sending.channel, &on.demand, on.bound))
    }

    /// Gives the handler its slots, after the link has granted it a place.
    pub(super) fn give_slots(&mut self, place: &RtuPlace, context: &mut Context<M>) {
        let (Some(on), Some(sending)) = (&place.link, &mut self.sending) else { return };
        let bounds = [place.bound, on.bound];
        let slots = slots_of(on.packets, on.demand.period, bounds);
        let state = &mut context.links.states[usize::from(on.link.0)];
        let flow = state.scheduler.add_channel(slots, place.bound);
        state.set_source(flow, Some(sending.channel));
        let messages = &mut context.messages;
        let few = core::mem::replace(
            &mut sending.outgoing,
            Outgoing::new(messages, slots.saturating_add(BEST_EFFORT_OUTGOING_MAX), sending.message_bytes),
        );
        few.dissolve(messages);
        sending.slots = Some(Slots { flow, bounds, pace: Sporadic::new(on.demand.period, on.packets) });
    }

    /// Queues the packets that a unit's PDUs, released at `released`, have put into the ring, at most as many as these
    /// PDUs may send. Packets for which there is no room stay in the ring.
    pub(super) fn send(
        &mut self,
        id: RtuId,
        released: Option<Instant>,
        units: u32,
        context: &mut Context<M>,
        now: Instant,
    ) {
        let Some(sending) = self.sending.as_mut() else { return };
        let state = &mut context.links.states[usize::from(sending.route.link.0)];
        let messages = &mut context.messages;
        for _ in 0..units.max(1).saturating_mul(sending.packets) {
            let released = released.filter(|_| sending.slots.is_some());
            let has_room = match released {
                Some(_) => sending.has_slot(state),
                None => sending.has_room_beyond(state),
            };
            let ready = has_room.then_some(&mut sending.outbox);
            let Some((message, sent)) = ready.and_then(|outbox| outbox.take(now)) else { break };
            if message.len() > sending.message_bytes {
                sending.counted.too_long += 1;
                continue;
            }
            let number = sending.number_next;
            sending.number_next += 1;
            sending.outgoing.push(messages, message, number, Arrival::at(sent));
            let Some(fragment) = sending.outgoing.peek(messages) else { return };
            sending.outgoing.made(messages);
            let packet = Packet::Upcall { id, number: fragment.number };
            let wire_bytes = sending.wire_bytes(state, fragment.bytes);
            sending.queue(state, released, wire_bytes, packet, now);
        }
        // The rest goes with the next PDUs, even if its body has nothing more to do.
        if sending.outbox.is_ready() {
            self.since.get_or_insert(now);
        }
    }
}

impl<M: Memory> Plane<M> {
    /// State of a handler that sends the messages in `outbox` over `route`. It has no reservation of the link yet.
    pub(super) fn sending(
        &mut self,
        channel: ChannelId,
        route: Route,
        wanted: &RtuSending,
        outbox: M::Outbox,
    ) -> Sending<M> {
        let messages = &mut self.context.messages;
        let tag_bytes = if route.receiver.is_some() { 0 } else { RAW_TAG_BYTES as u32 };
        let message_bytes = wanted.payload_bytes + tag_bytes;
        Sending {
            channel,
            route,
            packets: wanted.packets,
            message_bytes,
            outbox,
            outgoing: Outgoing::new(messages, BEST_EFFORT_OUTGOING_MAX, message_bytes),
            slots: None,
            listed: false,
            was_held: false,
            number_next: 0,
            counted: Counted::default(),
        }
    }

    /// The shaper of a link has been adjusted. Returns true if `channel` is the handle of a handler that waited for it.
    pub(in crate::node) fn fit_sender(&mut self, channel: ChannelId, now: Instant) -> bool {
        let waiting =
            self.rtus.of_channel(channel).and_then(|(id, rtu)| Some((id, rtu.waiting.take()?, rtu)));
        let Some((id, (place, grant), rtu)) = waiting else { return false };
        rtu.grant(id, &place, &self.config, &mut self.context, now);
        self.rtus.news.own.push_back(RtuEvent::Granted(id, grant));
        true
    }

    /// Drops the packets that a removed handler has queued.
    pub(super) fn drop_sending(&mut self, sending: Sending<M>, now: Instant) {
        let link = sending.route.link;
        self.rtus.senders.remove(&sending.channel);
        self.share_without(Some(link), sending.channel);
        sending.outgoing.dissolve(&mut self.context.messages);
        let state = self.link_state_mut(link);
        if let Some(slots) = sending.slots {
            state.set_source(slots.flow, None);
            state.scheduler.remove_channel(slots.flow, drop);
        }
        state.scheduler.remove_best_effort(key_of(sending.route.path), drop);
        self.note_leftovers();
        self.unblock_one(link, now);
    }

    /// Wakes a handler after room came free. Returns false if there is no such handler or it has no work.
    pub(in crate::node::plane) fn arm_sender(&mut self, channel: ChannelId, now: Instant) -> bool {
        let sender = self.rtus.of_channel(channel);
        let Some((id, Rtu { sending: Some(Sending { listed, .. }), since, .. })) = sender else {
            return false;
        };
        *listed = false;
        let has_work = since.is_some();
        self.arm_rtu(id, now);
        has_work
    }

    /// The next packet of a handler that the link may send now.
    pub(in crate::node::plane) fn write_upcall(
        &mut self,
        id: RtuId,
        number: u64,
        now: Instant,
        out: &mut [u8],
    ) -> Option<PacketOut<M::Frame>> {
        let rtu = self.rtus.handlers.get_mut(&id)?;
        let sending = rtu.sending.as_mut()?;
        let messages = &mut self.context.messages;
        let fragment = sending.outgoing.fragment(messages, number, 0)?;
        let packet = match sending.route.receiver {
            Some((port, host)) => {
                let header = header_of(Kind::BestEffort, sending.route.path, port, host, &fragment);
                copy_message(&header, &sending.outgoing, messages, number, out).map(PacketOut::Written)
            }
            None => {
                sending.outgoing.copy_to(messages, number, 0, out).and_then(|len| raw_packet(id, &out[..len]))
            }
        };
        sending.outgoing.sent(messages, number);
        self.arm_rtu(id, now);
        packet
    }
}

impl<M: Memory> Sending<M> {
    /// Whether one more packet has a slot.
    fn has_slot(&self, state: &LinkState<M>) -> bool {
        let is_free = |slots: &Slots| state.scheduler.slots_free(slots.flow) > 0;
        self.slots.as_ref().is_some_and(is_free) && !self.outgoing.is_full()
    }

    /// Queues a packet for which there is room. `released`: release of its PDU, or `None` beyond the budget.
    fn queue(
        &mut self,
        state: &mut LinkState<M>,
        released: Option<Instant>,
        wire_bytes: u32,
        packet: Packet<M::Frame>,
        now: Instant,
    ) {
        let slots = self.slots.as_mut().zip(released);
        let queued = match slots {
            Some((Slots { flow, bounds, pace }, released)) => {
                self.counted.packets += 1;
                // Not before the processor may have made the packet, and not before now.
                let effective = pace.take((released + bounds[0]).max(now));
                if active(Mutation::BudgetPacketAsBestEffort) {
                    state.queue_best_effort(key_of(self.route.path), wire_bytes, packet, now);
                    return;
                }
                let key = Guaranteed { effective, deadline: effective + bounds[1], wire_bytes };
                state.scheduler.enqueue(now, *flow, key, packet).is_ok()
            }
            None => {
                self.counted.packets_beyond += 1;
                state.queue_best_effort(key_of(self.route.path), wire_bytes, packet, now)
            }
        };
        debug_assert!(queued, "there is room");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A budget has its slots for as many periods as a message may be under way, the begun ones included.
    #[test]
    fn slots_last_for_all_periods_that_a_message_is_under_way() {
        let of = |packets, period, bounds: [u64; 2]| slots_of(packets, Nanos(period), bounds.map(Nanos));
        for (packets, period, bounds, slots) in [
            (3, 100, [0, 0], 3),
            (3, 100, [60, 39], 3),
            (3, 100, [60, 40], 6),
            (3, 100, [0, 99], 3),
            (3, 100, [0, 100], 6),
            (3, 100, [100, 0], 6),
            (7, 100, [250, 300], 42),
            (2, 1, [3, 4], 16),
            (2, 0, [3, 4], 16),
            (u32::MAX, 100, [60, 40], u32::MAX),
            (1, 1, [u64::MAX / 2, 9], u32::MAX),
        ] {
            assert_eq!(of(packets, period, bounds), slots, "{packets} in {period} ns, {bounds:?}");
        }
    }
}
