//! A best-effort flow that starts here: from the application's ring to queue 2 of the link.

use punctual_analysis::{Instant, Nanos};

use super::best_effort::{Flow, key_of};
use super::packet::Packet;
use super::plane::Plane;
use super::source::Portion;
use super::work::Unit;
use crate::api::WorkKind;
use crate::ids::ChannelId;
use crate::memory::Memory;
use crate::sched::Activation;

impl<M: Memory> Plane<M> {
    /// Takes some of what the application has put into a flow's ring; says how many messages. Each that is sent brings in the
    /// next.
    pub fn drain_flow(&mut self, channel: ChannelId, portion: Portion, now: Instant) -> u32 {
        let Some(flow) = self.flows.get_mut(&channel) else { return 0 };
        let taken = flow.drain(&mut self.messages, portion.messages(false), now);
        self.arm_flow(channel, now);
        taken
    }

    /// Tells the executor what the flow's handler has to do; without room in queue 2 it does not compete.
    pub fn arm_flow(&mut self, channel: ChannelId, now: Instant) {
        let Some(flow) = self.flows.get_mut(&channel) else { return };
        let line = &mut self.lines[usize::from(flow.link.0)];
        let Some(fragment) = flow.outgoing.peek(&self.messages) else {
            return self.executor.idle(flow.handler);
        };
        let activation = Activation { eligible: now, deadline: now };
        self.executor.ready(flow.handler, activation, now);
        if line.scheduler.best_effort_space(now, key_of(flow.path), line.wire_bytes(fragment.bytes)) {
            self.executor.unblock(flow.handler, now);
        } else {
            self.executor.block(flow.handler);
            line.wait(channel, &mut flow.listed);
        }
    }

    /// What one unit of the flow's handler would be.
    pub fn flow_unit(&self, channel: ChannelId) -> Option<Unit> {
        let fragment = self.flows.get(&channel)?.outgoing.peek(&self.messages)?;
        let message_edge = fragment.index == 0;
        Some(Unit {
            kind: WorkKind::BestEffort,
            packets: 1,
            bytes: fragment.bytes,
            message_edge,
            application: Nanos::ZERO,
        })
    }

    /// Queues one fragment.
    pub fn run_flow(&mut self, channel: ChannelId, now: Instant) {
        let Some(Flow { link, path, outgoing, .. }) = self.flows.get_mut(&channel) else { return };
        let Some(fragment) = outgoing.peek(&self.messages) else { return };
        let line = &mut self.lines[usize::from(link.0)];
        let packet = Packet::Flow { channel, number: fragment.number, fragment: fragment.index };
        let wire_bytes = line.wire_bytes(fragment.bytes);
        match line.scheduler.enqueue_best_effort(now, key_of(*path), wire_bytes, packet) {
            Ok(()) => outgoing.made(&mut self.messages),
            Err(_) => outgoing.drop_rest(&mut self.messages),
        }
    }
}
