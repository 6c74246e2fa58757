//! A channel's sink at this host: reassembly into the receiver's ring, delivery, evidence.

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Delivery, Instant, Nanos, Ppm};

use super::clip::{Run, give_back_frames};
use super::counters::Counters;
use super::work::Unit;
use super::{Clip, Held, HeldDeliveries, Plane, Sink, SinkEnd};
use crate::api::{LostWhy, Notice, WorkKind};
use crate::fragment::Outcome;
use crate::ids::ChannelId;
use crate::lateness::{Timeliness, drifted, timeliness};
use crate::limits::HEADER_BYTES;
use crate::memory::{Inbox, Memory, MessageInfo};
use crate::wire::Header;

/// The largest number of messages that wait for their deadlines and are delivered in one unit. After a pause
/// a whole ring may be due.
const DELIVERIES_PER_UNIT_MAX: usize = 16;

/// Reference values for the timeliness of a delivery.
#[derive(Clone, Copy)]
struct Judge {
    /// Deadline D of the channel, counted from a message's logical arrival.
    deadline: Nanos,
    /// Tolerance of this host's clock.
    tolerance: Ppm,
    now: Instant,
}

impl<M: Memory> Plane<M> {
    /// The next unit of the sink's handler; `None` if it has no work.
    pub(super) fn sink_unit(&self, clip: &Clip<M>, sink: &Sink<M>, now: Instant) -> Option<Unit> {
        let quantum = self.context.processor.executor.unit_packets(clip.handler);
        let run = sink.input.head_run(&self.context.waiting, clip.cpu_horizon, quantum, now);
        let Run { packets, bytes, ends_message } = run;
        let waits = clip.local.contract.delivery == Delivery::AtDeadline;
        let application = if ends_message && !waits { clip.local.handler_time } else { Nanos::ZERO };
        let unit = Unit { kind: WorkKind::Receive, packets, bytes, message_edge: ends_message, application };
        (packets > 0).then_some(unit)
    }

    /// The next unit of the handler that delivers at the deadline; `None` if it has no work.
    pub(super) fn delivery_unit(&self, channel: ChannelId, now: Instant) -> Option<Unit> {
        let clip = self.channels.clips.get(channel)?;
        let held = clip.role.sink()?.at_deadline.iter().flat_map(|at_deadline| &at_deadline.held);
        let due = held.take(DELIVERIES_PER_UNIT_MAX).take_while(|held| held.deliver_at <= now).count() as u64;
        let application = clip.local.handler_time * due;
        let unit = Unit { kind: WorkKind::Receive, packets: 0, bytes: 0, message_edge: false, application };
        (due > 0).then_some(unit)
    }

    /// Delivers messages that are due.
    pub fn run_delivery(&mut self, channel: ChannelId, now: Instant) {
        let Some(mut end) = self.channels.sink(channel) else { return };
        end.touch(&mut self.context.news);
        let before = end.counters.misses();
        end.deliver_held(self.config.clock_tolerance, now);
        let (is_late, closes) = (end.counters.misses() > before, end.closes);
        if is_late {
            self.notice(channel, Notice::Late);
        }
        if closes {
            self.check_for_end(channel);
        }
    }

    /// Processes up to `packets` received packets.
    pub fn run_sink(&mut self, channel: ChannelId, packets: u32, now: Instant) {
        let host = Host { margin: self.config.wakeup_margin, tolerance: self.config.clock_tolerance };
        let mut late = Nanos::ZERO;
        let Some(mut end) = self.channels.sink(channel) else { return };
        end.touch(&mut self.context.news);
        let before = (end.counters.misses(), end.counters.overruns());
        let is_first = end.counters.is_new();
        let (mut left, mut freed) = (packets, 0);
        while let Some(packet) = end.sink.input.pop_for(&mut self.context.waiting, &mut left) {
            freed += 1;
            late = late.max(now.since(packet.effective + end.cpu_bound));
            let payload = payload_of(&packet.header, packet.frame.as_ref());
            end.accept(&packet.header, payload, packet.nominal, host, now);
        }
        let after = (end.counters.misses(), end.counters.overruns());
        let closes = end.closes;
        give_back_frames(end.soft, freed, &mut self.context.links);
        self.note_service(channel, late, now);
        if is_first {
            self.context.news.first_data = Some(channel);
        }
        if closes {
            self.check_for_end(channel);
        }
        if after.0 > before.0 {
            self.notice(channel, Notice::Late);
        }
        if after.1 > before.1 {
            self.notice(channel, Notice::Overrun);
        }
    }

    /// Handles a demoted packet that has arrived as best effort.
    pub fn receive_demoted(&mut self, header: &Header, frame: &M::Frame, now: Instant) {
        let found = self.channels.clip_of_path(&header.path);
        let found = found.and_then(|(channel, clip)| Some((channel, clip.as_sink()?)));
        let Some((channel, mut end)) = found else { return self.drops.unknown_path += 1 };
        let host = Host { margin: self.config.wakeup_margin, tolerance: self.config.clock_tolerance };
        end.touch(&mut self.context.news);
        let before = end.counters.misses();
        end.accept(header, payload_of(header, frame.as_ref()), now, host, now);
        let is_late = end.counters.misses() > before;
        self.arm_clip(channel, now);
        if is_late {
            self.notice(channel, Notice::Late);
        }
        self.check_for_end(channel);
    }
}

fn payload_of<'a>(header: &Header, packet: &'a [u8]) -> &'a [u8] {
    packet.get(HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize).unwrap_or_default()
}

/// Values that all sinks of a host share.
#[derive(Clone, Copy)]
struct Host {
    /// How long before its deadline a held message is delivered.
    margin: Nanos,
    /// Tolerance of the host's clock.
    tolerance: Ppm,
}

impl<M: Memory> SinkEnd<'_, M> {
    fn accept(&mut self, header: &Header, payload: &[u8], nominal: Instant, host: Host, now: Instant) {
        let deadline = self.local.contract.deadline;
        let judge = Judge { deadline, tolerance: host.tolerance, now };
        let Self { sink, counters, cpu_bound, .. } = self;
        let Sink { reassembly, inbox, upstream, .. } = sink;
        counters.message_begun(header);
        match reassembly.accept(header, payload, || inbox.as_mut()?.reserve()) {
            Outcome::Complete { slot, demoted } => {
                let by_slack = active(Mutation::LatenessBySlack);
                let info = MessageInfo {
                    number: header.message,
                    len: header.message_bytes,
                    logical_arrival: if by_slack { nominal - *upstream } else { header.logical_arrival },
                    clock_error: header.clock_error.known(),
                    deadline: header.logical_arrival + deadline,
                    delivered: now,
                    demoted,
                    unpromised: header.unpromised,
                    timeliness: Timeliness::Unmeasured,
                };
                // The deadline follows from slack, which needs only this host's clock: it is computed from
                // the earliest possible l. Admission guarantees the processor within d before the deadline,
                // not within the margin.
                let due = nominal - *upstream + deadline;
                let deliver_at = due - host.margin.max(*cpu_bound);
                let at_deadline = sink.at_deadline.as_deref_mut().filter(|at_deadline| {
                    let waits = deliver_at > now || !at_deadline.held.is_empty();
                    !demoted && waits
                });
                match at_deadline {
                    Some(at_deadline) => at_deadline.hold(Held { deliver_at, due, slot, info }),
                    None => deliver(inbox.as_mut(), counters, slot, info, judge),
                }
            }
            Outcome::NoSlot => counters.drop_packet(LostWhy::ReceiverFull),
            Outcome::Rejected(_) => counters.reject(1),
            Outcome::Stored | Outcome::Duplicate | Outcome::Stale => {}
        }
        counters.set_incomplete(sink.reassembly.incomplete());
    }

    /// Delivers held messages that are due, up to the limit of a unit.
    fn deliver_held(&mut self, tolerance: Ppm, now: Instant) {
        let judge = Judge { deadline: self.local.contract.deadline, tolerance, now };
        let Sink { at_deadline, inbox, .. } = &mut *self.sink;
        let held = at_deadline.iter_mut().flat_map(|at_deadline| {
            let due = at_deadline.held.iter().take(DELIVERIES_PER_UNIT_MAX);
            let due = due.take_while(|held| held.deliver_at <= now).count();
            at_deadline.held.drain(..due)
        });
        for Held { slot, info, .. } in held {
            deliver(inbox.as_mut(), self.counters, slot, info, judge);
        }
    }
}

impl<S> HeldDeliveries<S> {
    /// Keeps the order of completion: prediction errors may give a later message an earlier time. The earlier
    /// message's time is before its deadline, and so before the later message's deadline.
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
    judge: Judge,
) {
    let Some(inbox) = inbox else { return };
    counters.message_left(info.len);
    let latency = judge.now.since(info.logical_arrival);
    // This host's clock drifts while it measures.
    let clock_error = info.clock_error.map(|error| error + drifted(judge.tolerance, latency));
    let timeliness = timeliness(latency, clock_error, judge.deadline);
    if !info.unpromised {
        counters.judge(timeliness);
        if clock_error.is_some() {
            counters.took(latency);
        }
    }
    inbox.publish(slot, MessageInfo { delivered: judge.now, clock_error, timeliness, ..info });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::HandlerId;
    use crate::signalling::SplitMix64;
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    /// A message that waits is delivered at its own time, but not before those that were complete before it.
    #[test]
    fn held_messages_keep_their_order_and_wait_no_longer_than_those_before_them() {
        let mut random = SplitMix64::new(7);
        for _ in 0..200 {
            let mut waiting = HeldDeliveries { handler: HandlerId(0), held: VecDeque::new() };
            let times: Vec<_> = (0..8).map(|_| random.below(20)).collect();
            for (slot, time) in times.iter().enumerate() {
                let (deliver_at, due) = (Instant(*time), Instant(time + 5));
                waiting.hold(Held { deliver_at, due, slot, info: MessageInfo::default() });
            }
            let held: Vec<_> = waiting.held.iter().map(|held| (held.slot, held.deliver_at)).collect();
            let latest = |slot: usize| times[..=slot].iter().copied().max().map(Instant);
            let expected: Vec<_> = (0..8).filter_map(|slot| Some((slot, latest(slot)?))).collect();
            assert_eq!(held, expected, "{times:?}");
        }
    }
}
