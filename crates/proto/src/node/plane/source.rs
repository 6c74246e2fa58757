//! A channel's source at this host: draining the application's ring, policing, fragmenting (CLIPS 4.3).
//!
//! No call takes more than a few messages out of a ring. The rest stays there as the tail of the channel's
//! queue: each message that is begun makes room for others, with the channel's own urgency, and so does the
//! background (ADR 0047).
//!
//! Slot occupancy control (HARTS 5.2.2): the handler only runs when the link has a slot for what it makes.

use punctual_analysis::arrival::SourceVerdict;
use punctual_analysis::{Instant, Nanos};

use super::best_effort::{Message, key_of};
use super::clip::Ending;
use super::outgoing::{Arrival, Fragment, Messages};
use super::work::Unit;
use super::{Clip, Context, Demoted, LinkState, Plane, Processor, RoleState, Source, SourceEnd};
use crate::api::{Notice, WorkKind};
use crate::config::Pacing;
use crate::ids::ChannelId;
use crate::limits::{RING_MESSAGES_BEHIND, RING_MESSAGES_MAX, WATCH_SLOT};
use crate::linksched::Guaranteed;
use crate::memory::{Memory, MessageRead, Outbox};
use crate::node::packet::Packet;
use crate::sched::{Activation, HandlerId};

/// Messages beyond a burst that are taken out of a ring in one call.
const DRAIN_EXTRA_MESSAGES: u32 = 16;

/// How many messages a call may take out of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Portion {
    /// At most this many messages, for a doorbell or with a message that is served. If the ring is known to
    /// hold more than was taken at once, the call takes at most [`RING_MESSAGES_BEHIND`].
    InPassing(u32),
    /// A unit of the background handler.
    Unit,
}

impl Portion {
    /// The limit of a call outside other channels' shares.
    pub const ALONE: Self = Self::InPassing(RING_MESSAGES_MAX);

    /// Messages of a ring, `has_rest` if it is known to hold more than was taken.
    pub const fn messages(self, has_rest: bool) -> u32 {
        match self {
            Self::InPassing(_) if has_rest => RING_MESSAGES_BEHIND,
            Self::InPassing(most) if most < RING_MESSAGES_MAX => most,
            _ => RING_MESSAGES_MAX,
        }
    }
}

impl<M: Memory> Plane<M> {
    /// Serves a ring after its application has changed it. From a source's or a flow's ring, takes messages as far
    /// as there is room, polices them, and returns their number. A sink's inbox has room again: resumes it.
    pub fn serve_ring(&mut self, channel: ChannelId, portion: Portion, now: Instant) -> u32 {
        let latency = self.notice_delay_max(now);
        let Some(mut end) = self.channels.source(channel) else {
            return self.serve_other(channel, portion, now);
        };
        let drained = end.drain(&mut self.context, now, latency, portion);
        if !drained.is_empty {
            self.backlog.list(&mut end, &mut self.context.processor, now);
        }
        end.arm(&mut self.context, now);
        if drained.policed {
            self.notice(channel, Notice::Policed);
        }
        drained.taken
    }

    /// Handles a doorbell for a channel that is no source: the application has taken messages out of a sink's
    /// ring, or put messages into a flow's.
    fn serve_other(&mut self, channel: ChannelId, portion: Portion, now: Instant) -> u32 {
        match self.channels.clips.get_mut(channel) {
            Some(Clip { role: RoleState::Sink(sink), .. }) => {
                self.leftovers.resume(channel, sink);
                0
            }
            _ => self.drain_flow(channel, portion, now),
        }
    }

    /// The next unit of the source's handler; `None` if it has no work.
    pub(super) fn source_unit(&self, source: &Source<M>, handler: HandlerId) -> Option<Unit> {
        let fragment = source.outgoing.peek(&self.context.messages)?;
        let run = run_of(&fragment, self.context.processor.executor.unit_packets(handler));
        let free = self.link_state(source.reservation.link).scheduler.slots_free(source.reservation.flow);
        let packets = if free < run { 0 } else { run };
        let bytes = packets * fragment.bytes;
        Some(Unit {
            kind: WorkKind::Send,
            packets,
            bytes,
            message_edge: fragment.index == 0,
            application: Nanos::ZERO,
        })
    }

    /// Makes up to `packets` fragments of the head message.
    pub fn run_source(&mut self, channel: ChannelId, packets: u32, now: Instant) {
        let latency = self.notice_delay_max(now);
        let Some(mut end) = self.channels.source(channel) else { return };
        end.touch(&mut self.context.news);
        let is_policed = end.take_behind(&mut self.context, now, latency);
        let SourceEnd { source, cpu_bound, counters, .. } = end;
        let state = &mut self.context.links.states[usize::from(source.reservation.link.0)];
        let due =
            source.outgoing.peek(&self.context.messages).map(|fragment| fragment.arrival.logical + cpu_bound);
        let messages = &mut self.context.messages;
        // The link has had a slot for each since the unit began (source_unit): only this handler takes slots
        // of the flow.
        (0..packets).try_for_each(|_| source.make_fragment(channel, cpu_bound, state, messages, now));
        let used = state.scheduler.occupancy(source.reservation.flow).slots_used_max;
        counters.occupy(used);
        // If the adapter sets the pace, or had no room, the source may have waited for the adapter.
        if state.config.pace == Pacing::Clock && now.since(state.watches.full_at) >= WATCH_SLOT {
            self.note_service(channel, due.map_or(Nanos::ZERO, |due| now.since(due)), now);
        }
        if is_policed {
            self.notice(channel, Notice::Policed);
        }
    }

    /// The next unit of the demoted part; `None` if it has no work.
    pub(super) fn demoted_unit(&self, channel: ChannelId) -> Option<Unit> {
        let source = self.channels.clips.get(channel)?.role.source()?;
        let fragment = source.demoted.as_ref()?.outgoing.peek(&self.context.messages)?;
        Some(Unit {
            kind: WorkKind::BestEffort,
            packets: 1,
            bytes: fragment.bytes,
            message_edge: false,
            application: Nanos::ZERO,
        })
    }

    /// Queues one fragment of a demoted message, if there still is room.
    pub fn run_demoted(&mut self, channel: ChannelId, now: Instant) {
        let messages = &mut self.context.messages;
        let head = self.channels.source(channel).and_then(|SourceEnd { source, local, .. }| {
            let outgoing = &mut source.demoted.as_deref_mut()?.outgoing;
            let fragment = outgoing.peek(messages)?;
            Some((source.reservation.link, local, outgoing, fragment))
        });
        let Some((link, local, outgoing, fragment)) = head else { return };
        let state = &mut self.context.links.states[usize::from(link.0)];
        let packet = Packet::Demoted { channel, number: fragment.number, fragment: fragment.index };
        let wire_bytes = state.wire_bytes(fragment.bytes);
        if state.queue_best_effort(key_of(local.path), wire_bytes, packet, now) {
            outgoing.made(messages);
        }
    }
}

/// Packets of the next unit: the source waits until the link has slots for all of them, so that no unit but the last of a
/// message or of a budget is shorter than a quantum. Admission charges runs of that length ([`Cpu::cost_parts`]).
///
/// [`Cpu::cost_parts`]: punctual_analysis::Cpu::cost_parts
fn run_of(fragment: &Fragment, packets_max: u32) -> u32 {
    u32::from(fragment.fragments - fragment.index).min(packets_max)
}

/// Result of draining an application's ring.
#[derive(Clone, Copy, Debug, Default)]
struct Drained {
    /// The contract was broken.
    policed: bool,
    /// The last check found no message.
    is_empty: bool,
    /// Messages that were taken, whatever the verdict on them.
    taken: u32,
}

impl<M: Memory> SourceEnd<'_, M> {
    /// Updates the activations of the source's handlers in the executor. Notifies signalling of a closing
    /// source whose last message has left.
    pub fn arm(&mut self, context: &mut Context<M>, now: Instant) {
        let Context { links, processor: Processor { executor, .. }, messages, news, .. } = context;
        let Self { source, cpu_bound, cpu_horizon, handler, local, .. } = self;
        if source.ends() {
            news.drained.push_back(local.channel);
        }
        let state = &mut links.states[usize::from(source.reservation.link.0)];
        match source.outgoing.peek(messages) {
            None => executor.idle(*handler),
            Some(fragment) => {
                let logical = fragment.arrival.logical;
                let activation =
                    Activation { eligible: logical - *cpu_horizon, deadline: logical + *cpu_bound };
                executor.ready(*handler, activation, now);
                let run = run_of(&fragment, executor.unit_packets(*handler));
                if state.scheduler.slots_free(source.reservation.flow) < run {
                    executor.block(*handler);
                    state.wait(local.channel, &mut source.listed);
                } else {
                    executor.unblock(*handler, now);
                }
            }
        }
        let Some(demoted) = &source.demoted else { return };
        let key = key_of(local.path);
        match demoted.outgoing.peek(messages) {
            Some(fragment) if state.scheduler.best_effort_space(key, state.wire_bytes(fragment.bytes)) => {
                let eligible = fragment.arrival.logical;
                executor.ready(demoted.handler, Activation { eligible, deadline: eligible }, now);
            }
            Some(_) => {
                executor.idle(demoted.handler);
                state.wait(local.channel, &mut source.listed);
            }
            None => executor.idle(demoted.handler),
        }
    }

    /// Called when a message is begun: takes waiting messages from the ring, so that the channel's queue is
    /// not empty while the ring holds some. Returns whether any of them broke the contract. Does nothing if
    /// the ring holds no rest.
    fn take_behind(&mut self, context: &mut Context<M>, now: Instant, wakeup: Nanos) -> bool {
        if self.source.rest_since.is_none() {
            return false;
        }
        let begins = self.source.outgoing.peek(&context.messages).is_some_and(|fragment| fragment.index == 0);
        begins && self.drain(context, now, wakeup, Portion::ALONE).policed
    }

    /// Takes messages out of the ring. The send time that the application reports decides whether it kept its
    /// contract. The message counts from that time on, but not earlier than our wake-up latency before now. A
    /// message that waited in the ring behind others of the channel counts as if it had been taken with them,
    /// if the first of them could be served all the time.
    fn drain(&mut self, context: &mut Context<M>, now: Instant, wakeup: Nanos, portion: Portion) -> Drained {
        let Context { messages, news, .. } = context;
        let mut drained = Drained::default();
        let Self { source, counters, local, .. } = self;
        let contract = &local.contract;
        let seen = source.seen(messages, now);
        let most = portion.messages(source.rest_since.is_some());
        // More than a burst at once breaks the contract: it waits for the background.
        for _ in 0..contract.burst_messages_max.saturating_add(DRAIN_EXTRA_MESSAGES).min(most) {
            let ready = if source.is_full() { None } else { source.outbox.as_mut() };
            let Some(outbox) = ready else { break };
            let Some((message, claimed)) = outbox.take(now) else {
                drained.is_empty = !outbox.is_behind();
                break;
            };
            if outbox.touch() {
                news.touched.push(local.channel);
            }
            drained.taken += 1;
            let sent = claimed.min(now);
            let number = source.number_next;
            counters.message_taken();
            if message.len() > contract.message_bytes_max {
                counters.reject(1);
                drained.policed = true;
                continue;
            }
            let verdict = source.regulator.accept_seen(sent, seen - wakeup, contract.policing);
            drained.policed |= !matches!(verdict, SourceVerdict::Conforming { .. });
            counters.delay(matches!(verdict, SourceVerdict::Delayed { .. }).into());
            let kept = match verdict {
                SourceVerdict::Conforming { logical } | SourceVerdict::Delayed { logical } => {
                    let arrival = Arrival { logical, claimed: source.regulator.claimed() };
                    source.outgoing.push(messages, message, number, arrival)
                }
                SourceVerdict::Dropped => false,
                SourceVerdict::Demoted => {
                    counters.demote();
                    source.demote(messages, message, number, sent)
                }
            };
            source.number_next += u64::from(kept);
            counters.reject((!kept).into());
        }
        source.rest_since = (!drained.is_empty && source.holds_more()).then_some(seen);
        drained
    }
}

impl<M: Memory> Source<M> {
    fn is_full(&self) -> bool {
        self.outgoing.is_full()
    }

    /// Time from which on this host could have served a message that it takes out of the ring `now`. If the
    /// channel had a message to serve ever since the last check of the ring, it is the time of that check.
    fn seen(&self, messages: &Messages<Message<M>>, now: Instant) -> Instant {
        self.rest_since.filter(|_| self.outgoing.has_head(messages)).unwrap_or(now)
    }

    /// Whether a fragment is ready to be made, of conforming or of demoted messages.
    pub fn sends(&self, messages: &Messages<Message<M>>) -> bool {
        let demoted = self.demoted.as_ref().is_some_and(|demoted| demoted.outgoing.has_head(messages));
        demoted || self.outgoing.has_head(messages)
    }

    /// Whether the ring holds messages that were not taken, or slots that were not handed back.
    fn holds_more(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_ready() || outbox.is_behind())
    }

    /// Whether more could be taken out of the ring.
    pub fn has_backlog(&self) -> bool {
        !self.is_full() && self.holds_more()
    }

    /// Whether all messages of the application have left.
    fn is_drained(&self) -> bool {
        let demoted = self.demoted.as_ref().is_none_or(|demoted| demoted.outgoing.is_empty());
        demoted && self.outgoing.is_empty() && !self.outbox.as_ref().is_some_and(Outbox::is_ready)
    }

    /// Whether the last message of a closing source has left; true once.
    fn ends(&mut self) -> bool {
        let ends = self.ending == Ending::Closing && self.is_drained();
        if ends {
            self.ending = Ending::Drained;
        }
        ends
    }

    /// Queues a message as best effort; `false` if there is no room.
    fn demote(
        &mut self,
        messages: &mut Messages<Message<M>>,
        message: Message<M>,
        number: u64,
        sent: Instant,
    ) -> bool {
        self.demoted.as_deref_mut().is_some_and(|Demoted { outgoing, .. }| {
            !outgoing.is_full() && outgoing.push(messages, message, number, Arrival::at(sent))
        })
    }

    /// Hands the next fragment to the link scheduler; `None` if there is none, or no slot: the source waits
    /// then.
    fn make_fragment(
        &mut self,
        channel: ChannelId,
        cpu_bound: Nanos,
        state: &mut LinkState<M>,
        messages: &mut Messages<Message<M>>,
        now: Instant,
    ) -> Option<()> {
        let fragment = self.outgoing.peek(messages)?;
        let nominal = fragment.arrival.logical + cpu_bound;
        let wire_bytes = state.wire_bytes(fragment.bytes);
        // A delay by the processor does not move the link's chain, as in a forwarder.
        let effective = self.link_arrivals.accept(fragment.wire_number, nominal);
        let key = Guaranteed { effective, deadline: effective + self.reservation.bound, wire_bytes };
        let packet = Packet::Source { channel, number: fragment.number, fragment: fragment.index, nominal };
        let queued = state.scheduler.enqueue(now, self.reservation.flow, key, packet).ok();
        debug_assert!(queued.is_some(), "a unit has no more packets than there are slots");
        queued.map(|()| self.outgoing.made(messages))
    }
}
