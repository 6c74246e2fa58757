//! Outgoing packets. The link scheduler picks one; only then its bytes are copied into the driver's buffer. A
//! packet that passes through is not copied: its header is rewritten in place, and its frame is handed over.

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};

use super::clip::give_back_frames;
use super::outgoing::{Fragment, Messages, Outgoing};
use super::source::Portion;
use super::{Plane, SourceEnd};
use crate::api::{PacketOut, Port, Transmit};
use crate::config::Pacing;
use crate::ids::{ChannelId, Cookie, LinkId, NodeId, PathId};
use crate::limits::{HEADER_BYTES, WATCH_SLOT};
use crate::linksched::{Class, Scheduled};
use crate::memory::{Memory, MessageRead};
use crate::node::packet::Packet;
use crate::node::signals::Signals;
use crate::wire::{Age, ClockError, Header, Kind};

/// Limit of packets whose channel was closed while they waited and that one call skips: bounds the work of a
/// call.
const SKIPS_MAX: usize = 64;

impl<M: Memory> Plane<M> {
    /// The next packet that the link may take now.
    pub fn transmit(
        &mut self,
        link: LinkId,
        signalling: &mut Signals,
        now: Instant,
        out: &mut [u8],
    ) -> Option<Transmit<M::Frame>> {
        if signalling.has_signal(link) {
            self.link_state_mut(link).queue_signal(now);
        }
        for _ in 0..SKIPS_MAX {
            let scheduled = self.link_state_mut(link).scheduler.poll(now)?;
            self.judge_departure(link, &scheduled, now);
            let wire_bytes = scheduled.wire_bytes;
            if matches!(scheduled.packet, Packet::Signal) {
                let state = self.link_state_mut(link);
                state.signals.is_queued = false;
                signalling.set_received(link, state.bytes_in);
                if let Some(len) = signalling.poll_signal(link, now, scheduled.departure_latest, out) {
                    state.signals.packets += 1;
                    let packet = PacketOut::Written(len);
                    return Some(Transmit { port: Port::Signalling, wire_bytes, packet });
                }
                state.scheduler.retract();
                continue;
            }
            let packet = self.write(scheduled, now, out);
            self.unblock_one(link, now);
            if let Some(packet) = packet {
                return Some(Transmit { port: Port::Data, wire_bytes, packet });
            }
            self.link_state_mut(link).scheduler.retract();
        }
        None
    }

    /// Records a guaranteed packet that certainly leaves after the bound of its link. The adapter was slow if
    /// it sets the pace or had no room; otherwise this processor was. The latest departure is no evidence,
    /// because it assumes all interference before each packet. A soft channel's packet is none either: it may
    /// miss the bound beside others.
    fn judge_departure(&mut self, link: LinkId, scheduled: &Scheduled<Packet<M::Frame>>, now: Instant) {
        let Class::Guaranteed { deadline, .. } = scheduled.class else { return };
        if scheduled.departure_latest <= deadline {
            return;
        }
        if let Packet::Source { channel, .. } | Packet::Forward { channel, .. } = scheduled.packet
            && self.may_be_late(channel)
        {
            return;
        }
        let soonest = now + self.link_state(link).config.rate.time_of(u64::from(scheduled.wire_bytes));
        let late = soonest.since(deadline);
        if late == Nanos::ZERO {
            return;
        }
        // A late processor queues packets late: the link had no time left for them.
        let is_queued_late = self.context.processor.watch.is_stirred(now);
        let state = self.link_state_mut(link);
        // The link is filled on purpose, and no channel waits.
        if state.measuring.filler.is_some() {
            return;
        }
        let is_held =
            state.config.pace == Pacing::Completion || now.since(state.watches.full_at) < WATCH_SLOT;
        if is_held && !is_queued_late {
            state.watches.departures.late(late, now);
            self.context.news.stirred = true;
        } else {
            self.note_processor(late, now);
        }
    }

    fn write(
        &mut self,
        scheduled: Scheduled<Packet<M::Frame>>,
        now: Instant,
        out: &mut [u8],
    ) -> Option<PacketOut<M::Frame>> {
        let departure = if active(Mutation::SlackAtHandOver) { now } else { scheduled.departure_latest };
        let written = match scheduled.packet {
            Packet::Source { channel, number, fragment, nominal } => {
                self.write_source(channel, number, fragment, (nominal, departure), now, out)
            }
            Packet::Demoted { channel, number, fragment } => {
                self.write_demoted(channel, number, fragment, now, out)
            }
            Packet::Flow { channel, number, fragment } => {
                self.write_flow(channel, number, fragment, now, out)
            }
            Packet::Forward { channel, header, frame, nominal } => {
                let clip = self.channels.clips.get_mut(channel)?;
                give_back_frames(clip.soft.as_deref_mut(), 1, &mut self.context.links);
                let bound = clip.role.forwarder_mut()?.reservation.bound;
                clip.counters.packet_passed();
                let (slack_ns, closes) = ((nominal + bound).minus(departure), clip.last.is_some());
                let age = Age::of(departure.since(header.logical_arrival));
                if header.fragment + 1 == header.fragments {
                    clip.counters.message_left(header.message_bytes);
                }
                if closes {
                    self.check_for_end(channel);
                }
                return pass_on(&Header { slack_ns, age, ..header }, frame, out);
            }
            Packet::Pass { link_in, header, frame } => {
                self.link_state_mut(link_in).frames.best_effort -= 1;
                self.count_demoted(&header);
                return pass_on(&header, frame, out);
            }
            Packet::Upcall { id, number } => return self.write_upcall(id, number, now, out),
            Packet::Filler { link } => self.write_filler(link, now, out),
            Packet::Signal => None,
        };
        written.map(PacketOut::Written)
    }

    /// A packet that is sent on as best effort belongs to a channel if it was demoted.
    fn count_demoted(&mut self, header: &Header) {
        if header.kind != Kind::Guaranteed {
            return;
        }
        let Some((channel, clip)) = self.channels.clip_of_path(&header.path) else { return };
        clip.counters.packet_passed();
        self.check_for_end(channel);
    }

    fn write_source(
        &mut self,
        channel: ChannelId,
        number: u64,
        index: u16,
        (nominal, departure): (Instant, Instant),
        now: Instant,
        out: &mut [u8],
    ) -> Option<usize> {
        let mut end = self.channels.source(channel)?;
        end.touch(&mut self.context.news);
        let SourceEnd { source, local, counters, .. } = &mut end;
        let fragment = source.outgoing.fragment(&self.context.messages, number, index)?;
        let header = Header {
            slack_ns: (nominal + source.reservation.bound).minus(departure),
            age: Age::of(departure.since(fragment.arrival.claimed)),
            ..header_of(Kind::Guaranteed, local.path, local.cookie, NodeId(0), &fragment)
        };
        let len = copy_message(&header, &source.outgoing, &self.context.messages, number, out);
        counters.packet_sent(&header);
        if source.outgoing.sent(&mut self.context.messages, number) {
            counters.message_left(fragment.message_bytes);
            // A ring slot is free: a message that waits in the application's ring may be taken.
            self.serve_ring(channel, Portion::ALONE, now);
        } else {
            end.arm(&mut self.context, now);
        }
        len
    }

    fn write_demoted(
        &mut self,
        channel: ChannelId,
        number: u64,
        index: u16,
        now: Instant,
        out: &mut [u8],
    ) -> Option<usize> {
        let mut end = self.channels.source(channel)?;
        end.touch(&mut self.context.news);
        let SourceEnd { source, local, counters, .. } = &mut end;
        let demoted = source.demoted.as_mut()?;
        let fragment = demoted.outgoing.fragment(&self.context.messages, number, index)?;
        let header = Header {
            demoted: true,
            unpromised: true,
            ..header_of(Kind::Guaranteed, local.path, local.cookie, NodeId(0), &fragment)
        };
        let len = copy_message(&header, &demoted.outgoing, &self.context.messages, number, out);
        counters.packet_sent(&header);
        demoted.outgoing.sent(&mut self.context.messages, number);
        end.arm(&mut self.context, now);
        len
    }

    fn write_flow(
        &mut self,
        channel: ChannelId,
        number: u64,
        index: u16,
        now: Instant,
        out: &mut [u8],
    ) -> Option<usize> {
        let flow = self.best_effort.flows.get_mut(&channel)?;
        let fragment = flow.outgoing.fragment(&self.context.messages, number, index)?;
        let port = Cookie(flow.way.to.port.port_hash());
        let header = header_of(Kind::BestEffort, flow.way.path, port, flow.way.destination, &fragment);
        let len = copy_message(&header, &flow.outgoing, &self.context.messages, number, out);
        if flow.outgoing.sent(&mut self.context.messages, number) {
            self.drain_flow(channel, Portion::ALONE, now);
        } else {
            flow.arm(channel, &mut self.context, now);
        }
        len
    }
}

pub(super) fn header_of(
    kind: Kind,
    path: PathId,
    cookie: Cookie,
    destination: NodeId,
    fragment: &Fragment,
) -> Header {
    Header {
        kind,
        demoted: false,
        unpromised: false,
        path,
        cookie,
        message: fragment.wire_number,
        fragment: fragment.index,
        fragments: fragment.fragments,
        message_bytes: fragment.message_bytes,
        slack_ns: 0,
        logical_arrival: fragment.arrival.claimed,
        age: Age::NONE,
        payload_bytes: fragment.bytes,
        clock_error: ClockError::NONE,
        destination,
    }
}

/// Writes header and payload; `None` if the frame is too short for them.
pub(super) fn copy_message<T: MessageRead>(
    header: &Header,
    outgoing: &Outgoing,
    messages: &Messages<T>,
    number: u64,
    out: &mut [u8],
) -> Option<usize> {
    let payload = out.get_mut(HEADER_BYTES..)?;
    let bytes = outgoing.copy_to(messages, number, header.fragment, payload)?;
    Some(header.write(out) + bytes)
}

/// Writes the new header of a packet that passes through. Sends its frame on unless the frame holds bytes
/// behind the packet, which must not leave; `None` if the packet is longer than the link's packets.
fn pass_on<F: AsRef<[u8]> + AsMut<[u8]>>(
    header: &Header,
    mut frame: F,
    out: &mut [u8],
) -> Option<PacketOut<F>> {
    let len = HEADER_BYTES + header.payload_bytes as usize;
    let out = out.get_mut(..len)?;
    if frame.as_ref().len() == len {
        header.write(frame.as_mut());
        return Some(PacketOut::Frame(frame));
    }
    out.copy_from_slice(frame.as_ref().get(..len)?);
    header.write(out);
    Some(PacketOut::Written(len))
}
