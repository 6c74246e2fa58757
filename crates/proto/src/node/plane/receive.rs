//! Packets that come in: checked once, demultiplexed in O(1), policed, queued for their handler.
//!
//! This module allocates nothing, and a packet that would be dropped later is dropped here (no receive
//! livelock).

use punctual_analysis::Instant;
use punctual_analysis::arrival::{Arrival, Verdict};
use punctual_analysis::mutation::{Mutation, active};
use punctual_trial::{Defence, holds};

use super::{
    Clip, Context, Links, PacketIn, PacketQueue, Plane, PooledFrames, Processor, RoleState, SignalIn, Waiting,
};
use crate::api::{LostWhy, Port};
use crate::ids::LinkId;
use crate::limits::{HEADER_BYTES, SIGNALS_WAITING_MAX};
use crate::memory::Memory;
use crate::node::stages::Stages;
use crate::sched::{Activation, HandlerId};
use crate::slab::{Next, Slab};
use crate::wire::{Age, Header, Kind, WireError};

impl<M: Memory> Plane<M> {
    /// Handles a packet from `link`.
    pub fn receive(&mut self, link: LinkId, port: Port, received: Instant, frame: M::Frame, now: Instant) {
        let state = self.link_state_mut(link);
        state.bytes_in += frame.as_ref().len() as u64 + u64::from(state.config.overhead_bytes);
        match port {
            Port::Signalling => self.receive_signal(link, received, frame, now),
            Port::Data => self.receive_data(link, received, frame, now),
        }
    }

    fn receive_signal(&mut self, link: LinkId, received: Instant, frame: M::Frame, now: Instant) {
        let state = self.link_state_mut(link);
        if state.signals.waiting.len() >= SIGNALS_WAITING_MAX {
            self.drops.no_buffer += 1;
            return;
        }
        state.signals.waiting.push_back(SignalIn { received, frame });
        self.arm_signals(link, now);
    }

    /// Updates the next activation of a link's signalling handler in the executor.
    pub fn arm_signals(&mut self, link: LinkId, now: Instant) {
        let state = &self.context.links.states[usize::from(link.0)];
        match state.signals.waiting.front() {
            None => self.context.processor.executor.idle(state.signals.handler),
            Some(signal) => {
                let eligible = signal.received;
                let activation = Activation { eligible, deadline: eligible + state.signals.bound };
                self.context.processor.executor.ready(state.signals.handler, activation, now);
            }
        }
    }

    fn receive_data(&mut self, link: LinkId, received: Instant, frame: M::Frame, now: Instant) {
        let header = match Header::parse(frame.as_ref()) {
            Ok((header, _)) => header,
            Err(WireError::Version(_)) => {
                self.link_state_mut(link).packets_foreign += 1;
                return self.drops.version += 1;
            }
            Err(_) => return self.drops.malformed += 1,
        };
        match header.kind {
            Kind::Guaranteed => self.receive_guaranteed(link, received, frame, &header, now),
            Kind::BestEffort => {
                self.receive_best_effort(link, received, frame, header, now);
            }
        }
    }

    fn receive_guaranteed(
        &mut self,
        link: LinkId,
        received: Instant,
        frame: M::Frame,
        header: &Header,
        now: Instant,
    ) {
        let Some((channel, clip)) = self.channels.clip_of_path(&header.path) else {
            return self.drops.unknown_path += 1;
        };
        if clip.local.cookie != header.cookie && holds(Defence::Cookies) {
            return self.drops.wrong_cookie += 1;
        }
        if clip.local.link_in != Some(link) {
            return self.drops.wrong_link += 1;
        }
        let state = &mut self.context.links.states[usize::from(link.0)];
        let wire_bytes = state.wire_bytes(header.payload_bytes);
        clip.touch(&mut self.context.news);
        clip.counters.packet_came(header);
        if clip.has_expired(header) {
            clip.counters.drop_packet(LostWhy::Expired);
            return self.check_for_end(channel);
        }
        let mut header = *header;
        if let Some(late) = state.neighbour.bring_here(&mut header, received) {
            state.watches.arrivals.late(late, now);
            self.context.news.stirred = true;
            clip.counters.came_late();
        }
        let header = &header;
        match clip.police(header, wire_bytes, received) {
            Some(Verdict::Accepted { effective }) => {
                let nominal = received.offset(header.slack_ns);
                let next = Next::NONE;
                let packet = PacketIn { frame, header: *header, nominal, effective, next };
                if clip.queue(packet, &mut self.context, &self.stages) {
                    clip.arm_input(&mut self.context, now);
                } else {
                    clip.counters.drop_packet(LostWhy::NoBuffer);
                    self.drops.no_buffer += 1;
                    self.check_for_end(channel);
                }
            }
            Some(Verdict::Demoted) => {
                clip.counters.demote();
                // Slack is meaningless after demotion, so clear it.
                let header = Header { demoted: true, slack_ns: 0, age: Age::NONE, ..*header };
                if !self.receive_best_effort(link, received, frame, header, now) {
                    self.note_demoted_dropped(&header.path);
                }
            }
            None => self.drops.unknown_path += 1,
        }
    }

    /// Queues best effort, and packets that were demoted here or before, if they have a destination. Returns
    /// whether the packet is kept.
    fn receive_best_effort(
        &mut self,
        link: LinkId,
        received: Instant,
        frame: M::Frame,
        header: Header,
        now: Instant,
    ) -> bool {
        if self.take_filler(link, &header, received) {
            return true;
        }
        if !self.has_place(&header) {
            return false;
        }
        if !self.best_effort.arrivals.has_share(header.path, now) {
            self.drops.over_cap += 1;
            return false;
        }
        let state = &mut self.context.links.states[usize::from(link.0)];
        let free = state.frames.best_effort < state.frames.best_effort_max;
        let kept = free && self.best_effort.arrivals.push(Waiting { frame, header, received, link });
        if kept {
            state.frames.best_effort += 1;
            self.arm_arrivals(now);
        } else {
            self.drops.no_buffer += 1;
        }
        kept
    }

    /// Early drop: whether the next queue of the packet's route would take it.
    fn has_place(&mut self, header: &Header) -> bool {
        let Some(link) = self.onward(header) else {
            let bound = self.best_effort.bindings.contains_key(&header.cookie.0)
                && header.destination == self.config.id;
            let here = bound || header.kind == Kind::Guaranteed;
            self.drops.no_receiver += u64::from(!here);
            return here;
        };
        let state = &self.context.links.states[usize::from(link.0)];
        if header.payload_bytes + HEADER_BYTES as u32 > state.config.best_effort_bytes_max() {
            self.drops.too_large += 1;
            return false;
        }
        let key = super::best_effort::key_of(header.path);
        let space = state.scheduler.best_effort_space(key, state.wire_bytes(header.payload_bytes));
        self.drops.no_buffer += u64::from(!space);
        space
    }

    /// The link on which a best-effort or demoted packet is sent on; `None` if it ends here or has no route.
    pub fn onward(&self, header: &Header) -> Option<LinkId> {
        if header.kind == Kind::BestEffort {
            let elsewhere = header.destination != self.config.id;
            return self.best_effort_link(header.destination).filter(|_| elsewhere);
        }
        let clip = self.channels.clips.get(self.channel_of(&header.path)?)?;
        clip.local.link_out
    }

    /// Updates the handler of best-effort arrivals in the executor.
    pub fn arm_arrivals(&mut self, now: Instant) {
        match self.best_effort.arrivals.peek() {
            None => self.context.processor.executor.idle(self.best_effort.arrivals_handler),
            Some(waiting) => {
                let eligible = waiting.received;
                self.context.processor.executor.ready(
                    self.best_effort.arrivals_handler,
                    Activation { eligible, deadline: eligible },
                    now,
                );
            }
        }
    }
}

impl<M: Memory> Clip<M> {
    /// The packets that wait for the handler; a source has none.
    pub fn input_mut(&mut self) -> Option<&mut PacketQueue> {
        match &mut self.role {
            RoleState::Source(_) => None,
            RoleState::Forwarder(forwarder) => Some(&mut forwarder.input),
            RoleState::Sink(sink) => Some(&mut sink.input),
        }
    }

    /// Queues a packet for the handler, or drops it if no buffer is free.
    fn queue(&mut self, packet: PacketIn<M::Frame>, context: &mut Context<M>, stages: &Stages) -> bool {
        let Context { links: Links { states, .. }, waiting, .. } = context;
        let dry = self.pooled_mut().is_some_and(|PooledFrames { link, .. }| {
            states[usize::from(link.0)].frames.pooled >= stages.pool_frames(*link)
        });
        let input = self.input_mut().filter(|_| !dry);
        let queued = input.and_then(|input| input.push(waiting, packet).then_some(input.packets_used));
        let Some(used) = queued else { return false };
        if let Some(PooledFrames { link, kept }) = self.pooled_mut() {
            *kept += 1;
            states[usize::from(link.0)].frames.pooled += 1;
        }
        self.counters.occupy(used);
        true
    }

    /// Updates the next activations of a forwarder's or sink's handlers in the executor.
    pub fn arm_input(&self, context: &mut Context<M>, now: Instant) {
        let Context { processor: Processor { executor, .. }, waiting, .. } = context;
        match self.next_activation(waiting) {
            None => executor.idle(self.handler),
            Some(activation) => executor.ready(self.handler, activation, now),
        }
        let Some((handler, activation)) = self.next_delivery() else { return };
        match activation {
            None => executor.idle(handler),
            Some(activation) => executor.ready(handler, activation, now),
        }
    }

    /// Whether a packet of a soft channel cannot keep its deadline any more. A demoted packet has no
    /// meaningful slack.
    fn has_expired(&self, header: &Header) -> bool {
        let slack_ns_min = self.soft.as_ref().map_or(i64::MIN, |soft| soft.slack_ns_min);
        !header.demoted && header.slack_ns < slack_ns_min
    }

    /// Polices a packet: its header is not trusted (ARCHITECTURE, The life of a message).
    fn police(&mut self, header: &Header, wire_bytes: u32, received: Instant) -> Option<Verdict> {
        let believes = active(Mutation::NoRepolicing) && self.local.link_out.is_some();
        let input = self.input_mut()?;
        if header.demoted {
            return Some(Verdict::Demoted);
        }
        let nominal = received.offset(header.slack_ns);
        if believes {
            return Some(Verdict::Accepted { effective: nominal });
        }
        let arrival = Arrival { message: header.message, wire_bytes, nominal, received };
        Some(input.arrivals.accept(&input.terms, &arrival))
    }

    /// The next activation of the handler, from its head packet: eligible time and deadline.
    fn next_activation(&self, waiting: &Slab<PacketIn<M::Frame>>) -> Option<Activation> {
        let input = match &self.role {
            RoleState::Source(_) => return None,
            RoleState::Forwarder(forwarder) => &forwarder.input,
            RoleState::Sink(sink) => &sink.input,
        };
        waiting.front(&input.packets).map(|packet| Activation {
            eligible: packet.effective - self.cpu_horizon,
            deadline: packet.effective + self.cpu_bound,
        })
    }

    /// The handler that delivers at the deadline, if there is one, and its next activation.
    fn next_delivery(&self) -> Option<(HandlerId, Option<Activation>)> {
        let RoleState::Sink(sink) = &self.role else { return None };
        let at_deadline = sink.at_deadline.as_deref()?;
        let held =
            at_deadline.held.front().map(|held| Activation { eligible: held.deliver_at, deadline: held.due });
        Some((at_deadline.handler, held))
    }
}
