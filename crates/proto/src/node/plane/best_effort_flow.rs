//! A best-effort flow that starts here: from the application's ring to queue 2 of the link.

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::best_effort::{Binding, key_of};
use super::outgoing::Outgoing;
use super::processor::best_effort_parameters;
use super::source::Portion;
use super::work::Unit;
use super::{Context, Flow, Owner, Plane, Processor};
use crate::api::WorkKind;
use crate::ids::{Address, ChannelId, LinkId, Name, NodeId, PathId};
use crate::limits::{BEST_EFFORT_OUTGOING_MAX, FRAGMENTS_MAX, HEADER_BYTES};
use crate::memory::Memory;
use crate::node::packet::Packet;
use crate::sched::Activation;

/// Destination and route of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct FlowRoute {
    pub to: Address,
    pub destination: NodeId,
    pub path: PathId,
    pub link: LinkId,
}

impl<M: Memory> Plane<M> {
    /// Whether a flow, or a program's handler, has this path.
    pub fn has_flow(&self, path: PathId) -> bool {
        self.best_effort.flows.values().any(|flow| flow.way.path == path) || self.has_sender(path)
    }

    /// Payload of the packets into which the messages of a flow over `link` are cut, in bytes.
    fn flow_fragment_bytes(&self, link: LinkId) -> u32 {
        let packet_bytes = self.link_state(link).config.best_effort_bytes_max();
        self.config.fragment_bytes.min(packet_bytes.saturating_sub(HEADER_BYTES as u32))
    }

    /// The longest message that a flow over `link` can send, in bytes: it is cut into [`FRAGMENTS_MAX`] packets at most.
    pub fn flow_message_bytes_max(&self, link: LinkId) -> u32 {
        self.flow_fragment_bytes(link).saturating_mul(FRAGMENTS_MAX)
    }

    /// Opens a flow, whose messages are no longer than [`Self::flow_message_bytes_max`].
    pub fn open_flow(
        &mut self,
        channel: ChannelId,
        way: FlowRoute,
        message_bytes_max: u32,
        outbox: M::Outbox,
        now: Instant,
    ) {
        let fragment_bytes = self.flow_fragment_bytes(way.link);
        let Context { processor, messages, .. } = &mut self.context;
        let handler = processor.add_handler(Owner::Flow(channel), best_effort_parameters(&self.config));
        let outgoing = Outgoing::new(messages, BEST_EFFORT_OUTGOING_MAX, fragment_bytes);
        let flow = Flow { way, message_bytes_max, outbox, outgoing, handler, listed: false, number_next: 0 };
        self.best_effort.flows.insert(channel, flow);
        self.drain_flow(channel, Portion::ALONE, now);
    }

    /// Whether a receiver is bound to a name.
    pub fn is_bound(&self, port: &Name) -> bool {
        self.best_effort.bindings.contains_key(&port.port_hash())
    }

    /// See [`Node::port_room_bytes`](crate::node::Node::port_room_bytes).
    pub fn port_room_bytes(message_bytes_max: u32) -> u64 {
        Binding::<M>::room_bytes(message_bytes_max)
    }

    /// Binds a name that is not bound yet, to receive best effort.
    pub fn bind(&mut self, channel: ChannelId, port: &Name, message_bytes_max: u32, inbox: M::Inbox) {
        let hash = port.port_hash();
        self.best_effort.bindings.insert(hash, Binding::new(message_bytes_max, inbox));
        self.best_effort.bound.insert(channel, hash);
    }

    /// Closes a flow or a bound port; `false` if `channel` is neither. Waiting sources and flows get the room
    /// of the messages that the flow had queued.
    pub fn close_best_effort(&mut self, channel: ChannelId, now: Instant) -> bool {
        if let Some(flow) = self.best_effort.flows.remove(&channel) {
            self.context.processor.remove_handler(flow.handler);
            flow.outgoing.dissolve(&mut self.context.messages);
            self.link_state_mut(flow.way.link).scheduler.remove_best_effort(key_of(flow.way.path), drop);
            self.note_leftovers();
            self.unblock_one(flow.way.link, now);
            return true;
        }
        let Some(hash) = self.best_effort.bound.remove(&channel) else { return false };
        self.best_effort.bindings.remove(&hash).is_some()
    }

    /// Closes every flow and every bound port.
    pub fn close_all_best_effort(&mut self, now: Instant) {
        let flows: Vec<ChannelId> = self.best_effort.flows.keys().copied().collect();
        for flow in flows {
            self.close_best_effort(flow, now);
        }
        self.best_effort.bindings.clear();
        self.best_effort.bound.clear();
    }

    /// Takes messages from a flow's ring; returns their number. Each message that is sent makes room for the
    /// next.
    pub fn drain_flow(&mut self, channel: ChannelId, portion: Portion, now: Instant) -> u32 {
        let Some(flow) = self.best_effort.flows.get_mut(&channel) else { return 0 };
        let messages_max = portion.messages(false);
        let taken = flow.drain(&mut self.context.messages, messages_max, &mut self.drops, now);
        flow.arm(channel, &mut self.context, now);
        taken
    }

    /// Updates the next activation of a flow's handler in the executor.
    pub fn arm_flow(&mut self, channel: ChannelId, now: Instant) {
        let Some(flow) = self.best_effort.flows.get_mut(&channel) else { return };
        flow.arm(channel, &mut self.context, now);
    }

    /// The next unit of the flow's handler; `None` if it has no work.
    pub(super) fn flow_unit(&self, channel: ChannelId) -> Option<Unit> {
        let fragment = self.best_effort.flows.get(&channel)?.outgoing.peek(&self.context.messages)?;
        let message_edge = fragment.index == 0;
        Some(Unit {
            kind: WorkKind::BestEffort,
            packets: 1,
            bytes: fragment.bytes,
            message_edge,
            application: Nanos::ZERO,
        })
    }

    /// Queues one fragment, if there still is room.
    pub fn run_flow(&mut self, channel: ChannelId, now: Instant) {
        let messages = &mut self.context.messages;
        let flow = self.best_effort.flows.get_mut(&channel);
        let head = flow.and_then(|flow| Some((flow.outgoing.peek(messages)?, flow)));
        let Some((fragment, Flow { way: FlowRoute { link, path, .. }, outgoing, .. })) = head else { return };
        let state = &mut self.context.links.states[usize::from(link.0)];
        let packet = Packet::Flow { channel, number: fragment.number, fragment: fragment.index };
        let wire_bytes = state.wire_bytes(fragment.bytes);
        if state.queue_best_effort(key_of(*path), wire_bytes, packet, now) {
            outgoing.made(messages);
        }
    }
}

impl<M: Memory> Flow<M> {
    /// Updates the next activation of the flow's handler in the executor. Without room in queue 2 the handler
    /// does not compete.
    pub(super) fn arm(&mut self, channel: ChannelId, context: &mut Context<M>, now: Instant) {
        let Context { links, processor: Processor { executor, .. }, messages, .. } = context;
        let state = &mut links.states[usize::from(self.way.link.0)];
        let Some(fragment) = self.outgoing.peek(messages) else { return executor.idle(self.handler) };
        executor.ready(self.handler, Activation { eligible: now, deadline: now }, now);
        if state.scheduler.best_effort_space(key_of(self.way.path), state.wire_bytes(fragment.bytes)) {
            executor.unblock(self.handler, now);
        } else {
            executor.block(self.handler);
            state.wait(channel, &mut self.listed);
        }
    }
}
