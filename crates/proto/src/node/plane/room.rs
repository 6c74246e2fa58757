//! Memory of a node for the messages and packets of each channel, beside the rings of applications. A program
//! that accounts for memory by user must include it.

use super::best_effort::{Message, Slot};
use super::clip::LinkReservation;
use super::outgoing::Outgoing;
use super::{Clip, Held, HeldDeliveries, PacketIn, PacketQueue, Plane, RoleState};
use crate::ids::ChannelId;
use crate::linksched::LinkScheduler;
use crate::memory::Memory;
use crate::node::packet::Packet;
use crate::slab::Slab;

impl<M: Memory> Plane<M> {
    /// See [`Node::room_bytes`](crate::node::Node::room_bytes).
    pub fn room_bytes(&self, channel: ChannelId) -> u64 {
        self.channels.clips.get(channel).map_or(0, |clip| self.room_of(clip))
    }

    fn room_of(&self, clip: &Clip<M>) -> u64 {
        match &clip.role {
            RoleState::Source(source) => {
                let demoted = source.demoted.as_deref().map(|demoted| &demoted.outgoing);
                let queues = [Some(&source.outgoing), demoted].into_iter().flatten();
                queues.map(Outgoing::room_bytes::<Message<M>>).sum::<u64>()
                    + self.queue_bytes(&source.reservation)
            }
            RoleState::Forwarder(forwarder) => {
                input_bytes::<M>(&forwarder.input) + self.queue_bytes(&forwarder.reservation)
            }
            RoleState::Sink(sink) => {
                let held = sink.at_deadline.as_deref().map_or(0, held_bytes::<M>);
                input_bytes::<M>(&sink.input) + sink.reassembly.room_bytes() as u64 + held
            }
        }
    }

    fn queue_bytes(&self, reservation: &LinkReservation) -> u64 {
        let slots = self.link_state(reservation.link).scheduler.occupancy(reservation.flow).slots;
        u64::from(slots) * LinkScheduler::<Packet<M::Frame>>::SLOT_BYTES as u64
    }
}

/// Bytes that packets waiting for the processor take at most.
fn input_bytes<M: Memory>(input: &PacketQueue) -> u64 {
    u64::from(input.packets_max) * Slab::<PacketIn<M::Frame>>::ITEM_BYTES as u64
}

/// Bytes that messages waiting for their deadlines take.
fn held_bytes<M: Memory>(at_deadline: &HeldDeliveries<Slot<M>>) -> u64 {
    (at_deadline.held.capacity() * size_of::<Held<Slot<M>>>()) as u64
}
