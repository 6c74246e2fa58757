//! Channels and best effort that pass through this host: from packets of one link to those of another.

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};

use super::best_effort::key_of;
use super::clip::give_back_frames;
use super::work::Unit;
use super::{Clip, Forwarder, Plane, RoleState};
use crate::api::{LostWhy, WorkKind};
use crate::ids::ChannelId;
use crate::linksched::Guaranteed;
use crate::memory::Memory;
use crate::node::packet::Packet;
use crate::wire::Kind;

impl<M: Memory> Plane<M> {
    /// The next unit of the forwarder's handler; without packets if it has no work.
    pub(super) fn forward_unit(&self, clip: &Clip<M>, forwarder: &Forwarder, now: Instant) -> Unit {
        let quantum = self.context.processor.executor.unit_packets(clip.handler);
        let run = forwarder.input.head_run(&self.context.waiting, clip.cpu_horizon, quantum, now);
        Unit {
            kind: WorkKind::Forward,
            packets: run.packets,
            bytes: 0,
            message_edge: false,
            application: Nanos::ZERO,
        }
    }

    /// Hands up to `packets` packets to the link out.
    pub fn run_forward(&mut self, channel: ChannelId, packets: u32, now: Instant) {
        let clip = self.channels.clips.get_mut(channel);
        let Some(Clip { role: RoleState::Forwarder(forwarder), cpu_bound, counters, soft, .. }) = clip else {
            return;
        };
        let state = &mut self.context.links.states[usize::from(forwarder.reservation.link.0)];
        let (mut left, mut freed) = (packets, 0);
        let mut late = Nanos::ZERO;
        while let Some(packet) = forwarder.input.pop_for(&mut self.context.waiting, &mut left) {
            let number = packet.header.message;
            if forwarder.dropping == Some(number) {
                counters.drop_packet(LostWhy::NoSlot);
                self.drops.no_slot += 1;
                freed += 1;
                continue;
            }
            late = late.max(now.since(packet.effective + *cpu_bound));
            let nominal = packet.nominal + *cpu_bound;
            let wire_bytes = state.wire_bytes(packet.header.payload_bytes);
            // A delay by this processor (it had no time for a while) does not move the link's chain.
            // Otherwise the burst that follows would push the chain ahead by one interval per message, which
            // is recovered at only I/128 each.
            let ignored = active(Mutation::LinkChainIgnoresLateness);
            let received = if ignored { nominal } else { now.min(packet.effective + *cpu_bound) };
            let effective = forwarder.link_arrivals.accept(number, nominal.max(received));
            let key = Guaranteed { effective, deadline: effective + forwarder.reservation.bound, wire_bytes };
            let reference = Packet::Forward { channel, header: packet.header, frame: packet.frame, nominal };
            counters.message_begun(&packet.header);
            if state.scheduler.enqueue(now, forwarder.reservation.flow, key, reference).is_err() {
                counters.drop_packet(LostWhy::NoSlot);
                self.drops.no_slot += 1;
                freed += 1;
                forwarder.dropping = Some(number);
            }
        }
        give_back_frames(soft.as_deref_mut(), freed, &mut self.context.links);
        if freed > 0 {
            self.check_for_end(channel);
        }
        self.note_service(channel, late, now);
    }

    /// The next unit of the best-effort arrivals; `None` if there is no packet.
    pub(super) fn arrivals_unit(&self) -> Option<Unit> {
        let waiting = self.best_effort.arrivals.peek()?;
        let bytes = if self.onward(&waiting.header).is_some() { 0 } else { waiting.header.payload_bytes };
        Some(Unit {
            kind: WorkKind::BestEffort,
            packets: 1,
            bytes,
            message_edge: false,
            application: Nanos::ZERO,
        })
    }

    /// Sends one best-effort or demoted packet on, or delivers it to its port or channel.
    pub fn run_arrivals(&mut self, now: Instant) {
        let Some(waiting) = self.best_effort.arrivals.pop() else { return };
        let (header, frame, link_in) = (waiting.header, waiting.frame, waiting.link);
        if let Some(link) = self.onward(&header) {
            let state = self.link_state_mut(link);
            let wire_bytes = state.wire_bytes(header.payload_bytes);
            let packet = Packet::Pass { link_in, header, frame };
            if state.scheduler.enqueue_best_effort(now, key_of(header.path), wire_bytes, packet).is_err() {
                self.drops.no_buffer += 1;
                let kept = u32::from(active(Mutation::RefusedBestEffortKeepsFrame));
                self.link_state_mut(link_in).frames.best_effort -= 1 - kept;
                if header.kind == Kind::Guaranteed {
                    self.note_demoted_dropped(&header.path);
                }
            }
            return;
        }
        self.link_state_mut(link_in).frames.best_effort -= 1;
        if header.kind == Kind::Guaranteed {
            return self.receive_demoted(&header, &frame, now);
        }
        let payload = frame.as_ref().get(crate::limits::HEADER_BYTES..).unwrap_or_default();
        let payload = payload.get(..header.payload_bytes as usize).unwrap_or_default();
        match self.best_effort.bindings.get_mut(&header.cookie.0) {
            Some(binding) => binding.accept(&header, payload, now, &mut self.drops),
            None => self.drops.no_receiver += 1,
        }
    }
}
