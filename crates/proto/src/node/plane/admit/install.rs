//! Builds the clip of an admitted channel with its queues and its handler, and removes it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use punctual_analysis::arrival::{ArrivalTerms, ArrivalsWithin, EffectiveArrivals, LogicalArrivals};
use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Delivery, Nanos, Policing, Service, Urgency};

use super::super::buffers::Buffers;
use super::super::clip::{Ending, LinkReservation, NoticesGiven};
use super::super::counters::Counters;
use super::super::filters::{Upstream, slack_ns_min};
use super::super::outgoing::Outgoing;
use super::super::processor::best_effort_parameters;
use super::super::{
    Channels, Clip, Demoted, Forwarder, HeldDeliveries, Owner, PacketQueue, Plane, PooledFrames, RoleState,
    Sink, SoftTerms, Source,
};
use super::Terms;
use crate::api::{FilterChange, RefuseCause, Role};
use crate::fragment::{Fragmentation, Reassembly};
use crate::ids::ChannelId;
use crate::limits::BEST_EFFORT_OUTGOING_MAX;
use crate::memory::Memory;
use crate::node::stages::Relaxed;
use crate::sched::{Budget, Class, HandlerId, HandlerParameters, Trigger};
use crate::signalling::LocalChannel;
use crate::slab::Fifo;

impl<M: Memory> Plane<M> {
    pub(super) fn install(
        &mut self,
        local: &Arc<LocalChannel>,
        terms: &Terms,
        buffers: Buffers,
        relaxed: &Relaxed,
    ) -> Result<(), RefuseCause> {
        let parameters = self.handler_parameters(local, relaxed)?;
        // Deliveries are due by the deadline, not by the work's budget.
        let deliveries = HandlerParameters { budget: None, trigger: Trigger::Reactive, ..parameters };
        let reservation = self.reservation(local, terms, buffers, relaxed);
        let handler = self.context.processor.add_handler(Owner::Clip(local.channel), parameters);
        let role = match (local.role, reservation) {
            (Role::Source, Some(reservation)) => RoleState::Source(self.source(local, reservation, buffers)),
            (Role::Forwarder, Some(reservation)) => {
                RoleState::Forwarder(forwarder(local, reservation, self.queue(local, terms, buffers)))
            }
            (Role::Sink, None) => {
                let delivery = (local.contract.delivery == Delivery::AtDeadline)
                    .then(|| self.context.processor.add_handler(Owner::Delivery(local.channel), deliveries));
                let input = self.queue(local, terms, buffers);
                RoleState::Sink(sink(local, terms, buffers, input, delivery))
            }
            _ => {
                self.context.processor.remove_handler(handler);
                return Err(RefuseCause::Exhausted);
            }
        };
        let Terms { upstream: most, upstream_min: least, arrival_error, early, .. } = *terms;
        let upstream = Upstream { most, least, arrival_error, early };
        self.set_filter(local, upstream, buffers);
        let soft = SoftTerms {
            slack_ns_min: slack_ns_min(&local.contract, upstream).unwrap_or(i64::MIN),
            pooled: local.link_in.filter(|_| relaxed.soft.0).map(|link| PooledFrames { link, kept: 0 }),
        };
        let clip = Clip {
            local: local.clone(),
            cpu_bound: terms.bounds[0],
            cpu_horizon: self.stages.cpu_early(local, terms.horizons[0]),
            handler,
            soft: (soft != SoftTerms { slack_ns_min: i64::MIN, pooled: None }).then(|| Box::new(soft)),
            last: None,
            counters: Counters::default(),
            notices_given: NoticesGiven::default(),
            role,
        };
        self.channels.soft += u32::from(clip.is_soft());
        self.context.processor.promises.add(clip.cpu_bound, local.role == Role::Source);
        self.channels.clips.insert(Box::new(clip));
        self.make_room_for_notices();
        let Channels { paths, clips, .. } = &mut self.channels;
        if local.link_in.is_some() {
            paths.insert(&local.path, local.channel, |id| clips.get(id).map(|clip| clip.local.path));
        }
        Ok(())
    }

    /// The handler of a channel whose stages are held.
    fn handler_parameters(
        &self,
        local: &LocalChannel,
        relaxed: &Relaxed,
    ) -> Result<HandlerParameters, RefuseCause> {
        let stage = self.stages.cpu_stage(local).ok_or(RefuseCause::Exhausted)?;
        let Urgency { class, rate, place } = stage.demand.urgency;
        let budget = stage.service.map(|Service { packets, period, .. }| {
            let deadline = stage.work_bound();
            Budget { packets, period, deadline }
        });
        Ok(HandlerParameters {
            class: match class {
                _ if relaxed.soft.0 => Class::Soft,
                punctual_analysis::Class::LowLatency => Class::LowLatency,
                punctual_analysis::Class::Guaranteed => Class::Guaranteed,
            },
            level: relaxed.rank,
            period: rate,
            place,
            quantum_packets: self.config.cpu.quantum_packets,
            budget,
            trigger: if stage.wait > Nanos::ZERO { Trigger::Periodic } else { Trigger::Reactive },
        })
    }

    fn reservation(
        &mut self,
        local: &LocalChannel,
        terms: &Terms,
        buffers: Buffers,
        relaxed: &Relaxed,
    ) -> Option<LinkReservation> {
        let link = local.link_out?;
        let packets = local.contract.packets_max(local.fragment_bytes);
        let slots = buffers.link_messages.saturating_mul(packets);
        let horizon = self.stages.link_early(local, terms.horizons[1]);
        let state = self.link_state_mut(link);
        let flow = match relaxed.soft.1 {
            true => state.scheduler.add_soft_channel(slots, horizon),
            false => state.scheduler.add_channel(slots, horizon),
        };
        if local.role == Role::Source {
            state.set_source(flow, Some(local.channel));
        }
        Some(LinkReservation { link, flow, bound: terms.bounds[1] })
    }

    fn source(&mut self, local: &LocalChannel, reservation: LinkReservation, buffers: Buffers) -> Source<M> {
        let contract = &local.contract;
        let in_ring = buffers.cpu_messages.saturating_add(buffers.link_messages);
        let demoted = (contract.policing == Policing::Demote).then(|| {
            let parameters = best_effort_parameters(&self.config);
            Box::new(Demoted {
                outgoing: Outgoing::new(
                    &mut self.context.messages,
                    BEST_EFFORT_OUTGOING_MAX,
                    local.fragment_bytes,
                ),
                handler: self.context.processor.add_handler(Owner::Demoted(local.channel), parameters),
            })
        });
        Source {
            reservation,
            outbox: None,
            regulator: LogicalArrivals::of(contract),
            number_next: 0,
            outgoing: Outgoing::new(&mut self.context.messages, in_ring, local.fragment_bytes),
            link_arrivals: within_host(local),
            demoted,
            in_backlog: false,
            rest_since: None,
            ending: Ending::default(),
            listed: false,
        }
    }

    fn queue(&mut self, local: &LocalChannel, terms: &Terms, buffers: Buffers) -> PacketQueue {
        let packets = local.contract.packets_max(local.fragment_bytes);
        let packets_max = buffers.cpu_messages.saturating_mul(packets);
        let overhead = local.link_in.map_or(0, |link| self.link_state(link).config.overhead_bytes);
        let message = Fragmentation::new(local.contract.message_bytes_max, local.fragment_bytes);
        let wire_bytes = message.map_or(0, |message| message.wire_bytes(overhead));
        let contract = &local.contract;
        let unpoliced = active(Mutation::UnpolicedInterval);
        let period = if unpoliced { contract.interval() } else { contract.policed_interval() };
        let arrival_terms = self.channels.arrival_terms.get(ArrivalTerms {
            period,
            jitter: terms.arrival_error,
            packets_max: packets,
            wire_bytes_max: wire_bytes,
            early_max: terms.early + contract.deadline,
        });
        self.context.waiting.add_room(packets_max);
        PacketQueue {
            packets: Fifo::EMPTY,
            packets_used: 0,
            packets_max,
            arrivals: EffectiveArrivals::default(),
            terms: arrival_terms,
        }
    }

    /// Removes a channel's clip with the clip's handler and packets.
    pub(super) fn remove_clip(&mut self, channel: ChannelId) {
        let Some(mut clip) = self.channels.clips.remove(channel) else { return };
        self.channels.soft -= u32::from(clip.is_soft());
        self.context.processor.promises.remove(clip.local.role == Role::Source);
        self.channels.counted_gone.add(&clip.counted());
        if let Some(PooledFrames { link, kept }) = clip.pooled_mut() {
            self.link_state_mut(*link).frames.pooled -= *kept;
        }
        if let Some(link) = clip.local.link_in {
            self.channels.paths.remove(&clip.local.path, channel);
            if !active(Mutation::FilterStays) {
                self.context.news.filters.push_back((link, FilterChange::Clear(clip.local.path)));
            }
        }
        self.context.processor.remove_handler(clip.handler);
        let reservation = match &clip.role {
            RoleState::Source(source) => {
                source
                    .demoted
                    .iter()
                    .for_each(|demoted| self.context.processor.remove_handler(demoted.handler));
                Some(source.reservation)
            }
            RoleState::Forwarder(forwarder) => Some(forwarder.reservation),
            RoleState::Sink(sink) => {
                sink.at_deadline
                    .iter()
                    .for_each(|at_deadline| self.context.processor.remove_handler(at_deadline.handler));
                None
            }
        };
        if let Some(reservation) = reservation {
            let state = self.link_state_mut(reservation.link);
            state.set_source(reservation.flow, None);
            state.scheduler.remove_channel(reservation.flow, drop);
        }
        self.dismantle(clip);
    }
}

/// e of the link out.
fn within_host(local: &LocalChannel) -> ArrivalsWithin {
    let packets = local.contract.packets_max(local.fragment_bytes);
    ArrivalsWithin::new(local.contract.policed_interval(), packets)
}

fn forwarder(local: &LocalChannel, reservation: LinkReservation, input: PacketQueue) -> Forwarder {
    Forwarder { reservation, input, link_arrivals: within_host(local), dropping: None }
}

fn sink<M: Memory>(
    local: &LocalChannel,
    terms: &Terms,
    buffers: Buffers,
    input: PacketQueue,
    delivery: Option<HandlerId>,
) -> Sink<M> {
    Sink {
        input,
        reassembly: Reassembly::of(&local.contract, buffers.sink_messages, local.fragment_bytes),
        inbox: None,
        upstream: terms.upstream,
        is_resuming: false,
        at_deadline: delivery.map(|handler| {
            Box::new(HeldDeliveries {
                handler,
                held: VecDeque::with_capacity(buffers.sink_messages as usize),
            })
        }),
    }
}
