//! What signalling requests of the data plane: to hold, commit and release a channel's local stages and its
//! clip.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use punctual_analysis::arrival::{ArrivalTerms, ArrivalsWithin, EffectiveArrivals, LogicalArrivals};
use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Delivery, Horizon, Nanos, Policing, Service, Urgency, buffers};

use super::buffers::Buffers;
use super::clip::{Counters, Ending, LinkReservation, NoticesGiven, PooledFrames, SoftTerms};
use super::filters::{Upstream, slack_ns_min};
use super::outgoing::Outgoing;
use super::processor::best_effort_parameters;
use super::{
    Channels, Clip, Demoted, Forwarder, HeldDeliveries, Owner, PacketQueue, Plane, RoleState, Sink, Source,
};
use crate::api::{FilterChange, Passed, Receipt, RefuseCause, Role, StageGrant, Tally};
use crate::fragment::{Fragmentation, Reassembly, packet_wire_bytes};
use crate::ids::ChannelId;
use crate::limits::BEST_EFFORT_OUTGOING_MAX;
use crate::memory::Memory;
use crate::node::stages::{Held, Pooled, Relaxed, Reserved};
use crate::sched::{Budget, Class, HandlerId, HandlerParameters, Trigger};
use crate::signalling::{Answer, CommitTerms, LocalChannel, Resources};
use crate::slab::Fifo;

/// The final bounds and horizons of the local stages.
struct Terms {
    bounds: Vec<Nanos>,
    horizons: Vec<Nanos>,
    arrival_error: Nanos,
    upstream: Nanos,
    upstream_min: Nanos,
    /// How far ahead of its logical arrival a message may leave its source.
    early: Nanos,
}

impl Terms {
    /// The terms for stages that take `bounds`.
    fn of(terms: &CommitTerms, bounds: Vec<Nanos>) -> Self {
        Self {
            horizons: (0..bounds.len()).map(|index| terms.horizon(index, &bounds)).collect(),
            arrival_error: terms.arrival_error(&bounds),
            upstream: terms.upstream(0, &bounds),
            upstream_min: terms.upstream_min,
            early: terms.early,
            bounds,
        }
    }

    /// The terms before any stage took its share of the leftover. Only an injected fault uses them.
    fn unrelaxed(&self, offered: &[Nanos]) -> Self {
        let before = |index: usize| self.upstream_min + offered.iter().take(index).copied().sum();
        Self {
            horizons: (0..offered.len()).map(before).collect(),
            upstream: self.upstream_min,
            bounds: offered.to_vec(),
            ..*self
        }
    }
}

impl<M: Memory> Resources for Plane<M> {
    fn ask(&mut self, local: &Arc<LocalChannel>, limit: Nanos, dry: bool) {
        self.stages.ask(local, limit, dry);
    }

    fn ask_final(&mut self, local: &Arc<LocalChannel>, terms: &CommitTerms) {
        let wanted = if keeps_offer(local) { &self.offered(local.channel) } else { &terms.bounds };
        self.stages.ask_final(local, wanted, terms);
    }

    fn try_final(&mut self, local: &Arc<LocalChannel>, terms: &CommitTerms, limit: Nanos) {
        let wanted = (!keeps_offer(local)).then(|| terms.bounds.clone());
        self.stages.try_final(local, wanted, terms, limit);
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        match self.stages.poll_answer()? {
            Answer::Tried(channel, Ok(_)) => {
                let tried = self.stages.take_tried(channel).ok_or(RefuseCause::Exhausted);
                Some(Answer::Tried(channel, tried.and_then(|tried| self.would_commit(tried))))
            }
            answer => {
                if let Answer::Held(channel, _) = answer {
                    let link_out = self.stages.held(channel).and_then(|held| held.link());
                    self.divide_rest(link_out.map(|(link, _)| link));
                }
                Some(answer)
            }
        }
    }

    fn commit(
        &mut self,
        local: &Arc<LocalChannel>,
        terms: &CommitTerms,
    ) -> Result<Vec<StageGrant>, RefuseCause> {
        let relaxed = self.stages.take_relaxed(local.channel).ok_or(RefuseCause::Exhausted)?;
        let terms = Terms::of(terms, relaxed.bounds.clone());
        let buffers = match active(Mutation::UnrelaxedBuffers) {
            true => buffers_of(local, &terms.unrelaxed(&relaxed.offered)),
            false => buffers_of(local, &terms),
        };
        self.stages.reserve_buffers(local.channel, reserved(local, buffers, relaxed.soft.0))?;
        self.install(local, &terms, buffers, &relaxed)?;
        self.share_with(local);
        Ok(self.stages.holding(local))
    }

    fn fits(&self, local: &LocalChannel) -> bool {
        !self.awaits_shaper(local)
    }

    fn receipt(&self, channel: ChannelId) -> Receipt {
        self.channels.clips.get(channel).map(Clip::receipt).unwrap_or_default()
    }

    fn passed(&self, channel: ChannelId) -> Passed {
        self.channels.clips.get(channel).map(Clip::passed).unwrap_or_default()
    }

    fn sent(&self, channel: ChannelId) -> Tally {
        self.channels.clips.get(channel).map(Clip::sent).unwrap_or_default()
    }

    fn await_last(&mut self, channel: ChannelId, sent: Tally) {
        if let Some(clip) = self.channels.clips.get_mut(channel) {
            clip.last = Some(Box::new(sent));
        }
        self.check_for_end(channel);
    }

    fn outdate(&mut self, channel: ChannelId) {
        if let Some(clip) = self.channels.clips.get_mut(channel) {
            clip.outdate();
        }
    }

    fn release(&mut self, channel: ChannelId) {
        self.remove_clip(channel);
        let link_out = self.stages.held(channel).and_then(|held| held.link());
        self.stages.release(channel);
        self.share_without(link_out.map(|(link, _)| link), channel);
        self.divide_rest(link_out.map(|(link, _)| link));
    }
}

/// True for a sink that delivers at the deadline: it delivers d before the deadline, so its share of the
/// leftover goes to other stages.
fn keeps_offer(local: &LocalChannel) -> bool {
    local.role == Role::Sink && local.contract.delivery == Delivery::AtDeadline
}

/// The buffer formulas (GUARANTEES).
fn buffers_of(local: &LocalChannel, terms: &Terms) -> Buffers {
    let contract = &local.contract;
    let period = contract.policed_interval();
    let jitter = terms.arrival_error;
    let stage = |index: usize| {
        let (bound, horizon) = (terms.bounds[index], terms.horizons[index]);
        let upstream = terms.upstream + terms.bounds.iter().take(index).copied().sum();
        match (contract.horizon, index) {
            (Horizon::Cumulative, _) => buffers::cumulative(horizon, bound, jitter, period),
            // Within a host h(k-1) = 0 and d(k-1) is known; at its entry, no more than all of upstream.
            (Horizon::Regulated, 0) => buffers::regulated(upstream, Nanos::ZERO, bound, jitter, period),
            (Horizon::Regulated, _) => {
                buffers::regulated(terms.bounds[index - 1], Nanos::ZERO, bound, jitter, period)
            }
        }
    };
    let cpu = match local.role {
        Role::Source => buffers::source(contract.burst_messages_max, terms.early + terms.bounds[0], period),
        Role::Forwarder | Role::Sink => stage(0),
    };
    let sink = match contract.delivery {
        Delivery::AtDeadline => buffers::sink_at_deadline(terms.early, contract.deadline, jitter, period),
        Delivery::Asap => cpu,
    };
    Buffers {
        cpu_messages: messages(cpu),
        link_messages: if local.link_out.is_some() { messages(stage(1)) } else { 0 },
        sink_messages: messages(sink),
    }
}

fn messages(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

/// Memory in bytes, and frames of the driver that packets come in through: each waiting packet keeps a whole
/// frame. Frames of a soft channel come out of a pool.
fn reserved(local: &LocalChannel, buffers: Buffers, soft: bool) -> Reserved {
    let packets = local.contract.packets_max(local.fragment_bytes);
    let message = u64::from(local.contract.message_bytes_max);
    let on_wire = message + u64::from(packets) * u64::from(packet_wire_bytes(0, 0));
    let waiting = buffers.waiting_messages();
    let frames = local.link_in.map(|link| (link, waiting.saturating_mul(packets)));
    let bytes = match local.role {
        // Packets of a source refer to the ring.
        Role::Source => u64::from(buffers.cpu_messages.max(buffers.link_messages)).saturating_mul(message),
        Role::Forwarder => u64::from(waiting).saturating_mul(on_wire),
        Role::Sink => {
            let ring = u64::from(buffers.sink_messages).saturating_mul(message);
            u64::from(waiting).saturating_mul(on_wire).saturating_add(ring)
        }
    };
    let pooled = local.soft.as_deref().filter(|_| soft).map(|own| {
        let period = local.contract.policed_interval();
        Pooled { period, mean_period: own.mean_period, ratio: own.miss_ratio }
    });
    Reserved { bytes, frames, pooled }
}

impl<M: Memory> Plane<M> {
    /// The result that [`Resources::commit`] would return for a channel whose stages could become `relaxed`.
    fn would_commit(
        &self,
        (local, relaxed, terms): (Arc<LocalChannel>, Relaxed, CommitTerms),
    ) -> Result<Vec<StageGrant>, RefuseCause> {
        let buffers = buffers_of(&local, &Terms::of(&terms, relaxed.bounds.clone()));
        let wanted = reserved(&local, buffers, relaxed.soft.0);
        self.stages.check_buffers(local.channel, &wanted)?;
        Ok(self.stages.would_hold(&local, &relaxed, wanted.bytes))
    }

    /// The smallest bounds that were offered: what is held before anything is relaxed.
    fn offered(&self, channel: ChannelId) -> Vec<Nanos> {
        let held = self.stages.held(channel);
        let link = held.and_then(Held::link).map(|(_, bound)| bound);
        held.map(Held::cpu).into_iter().chain(link).collect()
    }

    fn install(
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
    fn remove_clip(&mut self, channel: ChannelId) {
        let Some(mut clip) = self.channels.clips.remove(channel) else { return };
        self.channels.soft -= u32::from(clip.is_soft());
        self.context.processor.promises.remove(clip.local.role == Role::Source);
        self.channels.counted_gone.add(&clip.counted());
        if let Some(PooledFrames { link, kept }) = clip.pooled_mut() {
            self.link_state_mut(*link).frames.pooled -= *kept;
        }
        if let Some(link) = clip.local.link_in {
            self.channels.paths.remove(&clip.local.path, channel);
            self.context.news.filters.push_back((link, FilterChange::Clear(clip.local.path)));
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
