//! A channel's sink at this host: reassembly into the receiver's ring, delivery, evidence.

use punctual_analysis::{Delivery, Instant, Nanos};

use super::api::{Notice, WorkKind};
use super::clip::{Clip, Count, Counters, Held, Punctual, RoleState, Run, Sink};
use super::plane::Plane;
use super::work::Unit;
use crate::fragment::Outcome;
use crate::ids::ChannelId;
use crate::limits::HEADER_BYTES;
use crate::memory::{Inbox, Memory, MessageInfo};
use crate::wire::Header;

/// When a message of a fragment arrived logically and what it has to keep.
#[derive(Clone, Copy)]
struct Timing {
    /// l on this host's clock, as early as it can have been.
    logical: Instant,
    /// e + d of this stage: what a miss is measured against.
    due: Instant,
}

impl<M: Memory> Plane<M> {
    /// What one unit of the sink's handler would be.
    pub fn sink_unit(&self, clip: &Clip<M>, sink: &Sink<M>, now: Instant) -> Option<Unit> {
        let quantum = self.executor.unit_packets(clip.handler);
        let run = sink.input.head_run(&self.waiting, clip.cpu_horizon, quantum, now);
        let Run { packets, bytes, ends_message } = run;
        let waits = clip.local.contract.delivery == Delivery::AtDeadline;
        let application = if ends_message && !waits { clip.local.handler_time } else { Nanos::ZERO };
        let unit = Unit { kind: WorkKind::Receive, packets, bytes, message_edge: ends_message, application };
        (packets > 0).then_some(unit)
    }

    /// What one unit of the handler that delivers at the deadline would be.
    pub fn delivery_unit(&self, channel: ChannelId, now: Instant) -> Option<Unit> {
        let clip = self.clips.get(channel)?;
        let RoleState::Sink(sink) = &clip.role else { return None };
        let held = sink.punctual.iter().flat_map(|punctual| &punctual.held);
        let due = held.take_while(|held| held.deliver_at <= now).count() as u64;
        let application = clip.local.handler_time * due;
        let unit = Unit { kind: WorkKind::Receive, packets: 0, bytes: 0, message_edge: false, application };
        (due > 0).then_some(unit)
    }

    /// Delivers what is due.
    pub fn run_delivery(&mut self, channel: ChannelId, now: Instant) {
        let Some(clip) = self.clips.get_mut(channel) else { return };
        let before = clip.counters.misses;
        clip.deliver_held(now);
        if clip.counters.misses > before {
            self.notice(channel, Notice::Late);
        }
    }

    /// Takes up to `packets` packets in.
    pub fn run_sink(&mut self, channel: ChannelId, packets: u32, now: Instant) {
        let margin = self.config.wakeup_margin;
        let Some(clip) = self.clips.get_mut(channel) else { return };
        let before = (clip.counters.misses, clip.counters.overruns);
        let mut freed = 0;
        for _ in 0..packets {
            let Some(input) = clip.input_mut() else { break };
            let Some(packet) = input.pop(&mut self.waiting) else { break };
            let due = packet.effective + clip.cpu_bound;
            let frame = packet.frame;
            freed += 1;
            clip.accept(
                &packet.header,
                payload_of(&packet.header, frame.as_ref()),
                packet.nominal,
                due,
                margin,
                now,
            );
        }
        let after = (clip.counters.misses, clip.counters.overruns);
        clip.give_back_frames(freed, &mut self.lines);
        if after.0 > before.0 {
            self.notice(channel, Notice::Late);
        }
        if after.1 > before.1 {
            self.notice(channel, Notice::Overrun);
        }
    }

    /// A demoted packet has made its way as best effort.
    pub fn receive_demoted(&mut self, header: &Header, frame: &M::Frame, now: Instant) {
        let Some(channel) = self.channel_of(&header.path) else {
            return self.drops.unknown_path += 1;
        };
        let margin = self.config.wakeup_margin;
        let Some(clip) = self.clips.get_mut(channel) else { return };
        clip.accept(header, payload_of(header, frame.as_ref()), now, Instant(u64::MAX), margin, now);
        clip.arm_input(&mut self.executor, &self.waiting, now);
    }
}

fn payload_of<'a>(header: &Header, packet: &'a [u8]) -> &'a [u8] {
    packet.get(HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize).unwrap_or_default()
}

impl<M: Memory> Clip<M> {
    fn accept(
        &mut self,
        header: &Header,
        payload: &[u8],
        nominal: Instant,
        due: Instant,
        margin: Nanos,
        now: Instant,
    ) {
        let deadline = self.local.contract.deadline;
        let Self { role: RoleState::Sink(sink), counters, cpu_bound, .. } = self else { return };
        let timing = Timing { logical: nominal - sink.upstream, due };
        let Sink { reassembly, inbox, .. } = sink;
        counters.messages_in += u64::from(header.fragment == 0);
        match reassembly.accept(header, payload, || inbox.as_mut()?.reserve()) {
            Outcome::Complete { slot, demoted } => {
                let deadline = timing.logical + deadline;
                let info = MessageInfo {
                    number: header.message,
                    len: header.message_bytes,
                    logical_arrival: header.logical_arrival,
                    deadline,
                    delivered: now,
                    demoted,
                };
                // Admission answers for the processor within d before the deadline, not within the margin.
                let deliver_at = deadline - margin.max(*cpu_bound);
                let punctual = sink.punctual.as_deref_mut().filter(|punctual| {
                    let waits = deliver_at > now || !punctual.held.is_empty();
                    !demoted && waits
                });
                match punctual {
                    Some(punctual) => punctual.hold(Held { deliver_at, due: deadline, slot, info }),
                    None => deliver(inbox.as_mut(), counters, slot, info, timing, now),
                }
            }
            Outcome::NoSlot => counters.overruns += 1,
            Outcome::Rejected(_) => counters.dropped += 1,
            Outcome::Stored | Outcome::Duplicate | Outcome::Stale => {}
        }
        counters.incomplete = Count(u32::try_from(sink.reassembly.incomplete()).unwrap_or(u32::MAX));
    }

    /// Delivers what waits for its deadline and is due.
    fn deliver_held(&mut self, now: Instant) {
        let deadline = self.local.contract.deadline;
        let Self { role: RoleState::Sink(sink), counters, .. } = self else { return };
        let Some(punctual) = &mut sink.punctual else { return };
        while punctual.held.front().is_some_and(|held| held.deliver_at <= now) {
            let Some(Held { due, slot, info, .. }) = punctual.held.pop_front() else { break };
            let timing = Timing { logical: due - deadline, due };
            deliver(sink.inbox.as_mut(), counters, slot, info, timing, now);
        }
    }
}

impl<S> Punctual<S> {
    /// Keeps the order of completion: prediction errors may put a later message's time before an earlier one's.
    /// The earlier one's lies before its deadline, hence before the later one's.
    fn hold(&mut self, held: Held<S>) {
        let last = self.held.back().map_or(held.deliver_at, |last| last.deliver_at);
        self.held.push_back(Held { deliver_at: held.deliver_at.max(last), ..held });
    }
}

fn deliver<I: Inbox>(
    inbox: Option<&mut I>,
    counters: &mut Counters,
    slot: I::Slot,
    info: MessageInfo,
    timing: Timing,
    now: Instant,
) {
    let Some(inbox) = inbox else { return };
    counters.messages_out += 1;
    counters.bytes_out += u64::from(info.len);
    if !info.demoted {
        counters.misses += u32::from(now > timing.due);
        counters.latency_max = counters.latency_max.max(now.since(timing.logical));
    }
    inbox.publish(slot, MessageInfo { delivered: now, ..info });
}
