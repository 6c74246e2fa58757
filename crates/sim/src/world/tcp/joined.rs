//! A connection over two channels on the processor (ADR 0055), in the order of `engine::processor::tcp::paths`: its output handler
//! fills the ring of the outgoing channel, and what the incoming one delivers goes to its input handler. Each packet is a message:
//! the ledgers of both channels judge it by the channel's bound, and a store of the checker's own knows its bytes.

use punctual_analysis::{Instant, Nanos};
use punctual_proto::api::RtuClass;
use punctual_tcp::Flow;

use super::{Place, Role, SegmentRing, Stage, TCP_KEYS, Tag, World, terms_of};
use crate::entry::Entry;
use crate::filters::Held;
use crate::memory::{Delivered, SimFrame, SimOutbox, effort};
use crate::segment::read;
use crate::world::effort::Effort;

/// Packets that wait in either direction: at least, and at most.
const WAITING: (u32, u32) = (64, 512);
/// Longest time between two looks at a ring that was full.
const PAUSE_MAX: Nanos = Nanos::from_micros(500);

/// What the processor knows of the channels.
pub(super) struct Joined {
    pause: Nanos,
    /// Packets that may wait for the input handler.
    buffers: u32,
    /// It has the channels' rings.
    is_attached: bool,
}

impl Place {
    /// Whether the ring of its outgoing channel is full.
    pub(super) fn is_full(&self) -> bool {
        self.joined.is_some() && !self.segments.ring.has_room()
    }

    /// When its output handler, which has work at `due`, is to be called: a full ring is looked at again later.
    pub(super) fn not_before_room(&self, due: Instant, now: Instant) -> Instant {
        match &self.joined {
            Some(joined) if self.is_full() => due.max(now + joined.pause),
            _ => due,
        }
    }
}

/// Packets of a class that wait in either direction.
fn waiting(class: RtuClass) -> u32 {
    let units = class.periods().map_or(0, |(_, units)| units);
    (units * 2).clamp(WAITING.0, WAITING.1)
}

impl World {
    /// Makes a connection of both channels of an end, and registers its handlers.
    pub(super) fn join_tcp(&mut self, (number, end): (usize, usize), now: Instant) {
        let plan = self.conversations[number].plan;
        let host = plan.hosts[end];
        let [outgoing, incoming] = self.channels_of(number, end);
        let is_open = outgoing.and_then(|attempt| self.open_handle(attempt, false)).is_some()
            && incoming.and_then(|attempt| self.open_handle(attempt, true)).is_some();
        if self.conversations[number].ends[end].stage != Stage::Planned {
            return;
        }
        if !is_open {
            return self.part_from_path(number, end);
        }
        let flow = Flow { local: plan.end(number, end), remote: plan.end(number, 1 - end) };
        let rings = self.make_rings((number, end));
        let terms = terms_of(plan.classes[end], self.scenario.tcp.cost);
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        let Ok(index) = tcp.endsystem.connect_over_channels(flow, &plan.config, rings, now) else {
            return self.violate(&format!("connection {number}: there is no room for it at end {end}"));
        };
        let state = &mut self.conversations[number].ends[end];
        (state.stage, state.index) = (Stage::Asked, Some(index));
        self.last_change = self.now;
        let [input, output] = [(); 2].map(|()| member.node.register_handler(terms, now));
        let (Ok(input), Ok(output)) = (input, output) else {
            for handler in input.into_iter().chain(output) {
                member.node.remove_handler(handler, now);
            }
            tcp.endsystem.remove(index);
            self.refuse_tcp(number);
            return self.over_tcp(number, end);
        };
        tcp.roles.extend([(input, Role::Input(index)), (output, Role::Output(index))]);
        let slots = waiting(plan.classes[end]);
        let segments = SegmentRing::of(SimOutbox::new(TCP_KEYS, slots), Tag::None);
        let pause = plan.path.map_or(PAUSE_MAX, |path| path.interval().min(PAUSE_MAX));
        let joined = Some(Joined { pause, buffers: slots, is_attached: false });
        let (of, held) = ((number, end), Held::default());
        let place = Place { of, input, output, segments, granted: 0, held, is_late: false, joined };
        tcp.places.insert(index, place);
        self.handle_rtu_events(host, now);
    }

    /// The handlers of an end are granted: its channels get the connection's rings, unless one has ended meanwhile.
    pub(super) fn attach_tcp(&mut self, (number, end): (usize, usize), now: Instant) {
        let host = self.conversations[number].plan.hosts[end];
        let [outgoing, incoming] = self.channels_of(number, end);
        let handles = [
            outgoing.and_then(|attempt| self.open_handle(attempt, false)),
            incoming.and_then(|attempt| self.open_handle(attempt, true)),
        ];
        let [Some(source), Some(_)] = handles else {
            return self.change_tcp(host, (number, end), now, |tcp, index| tcp.cut(index));
        };
        let index = self.conversations[number].ends[end].index;
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        let Some(place) = index.and_then(|index| tcp.places.get_mut(&index)) else { return };
        let ring = place.segments.ring.clone();
        if let Some(joined) = &mut place.joined {
            joined.is_attached = true;
        }
        let replaced = member.node.replace_outbox(source, ring.clone(), now);
        let before = outgoing.and_then(|attempt| self.channels[attempt].outbox.replace(ring));
        if replaced.is_err() || before.is_some_and(|before| before.is_held()) {
            self.violate(&format!("connection {number}: the ring of its channel at end {end}: {replaced:?}"));
        }
    }

    /// The channel that a connection sends on, if it has one.
    pub(super) fn outgoing_of(&self, host: usize, index: u32) -> Option<usize> {
        let place = self.hosts[host].tcp.as_ref()?.places.get(&index)?;
        place.joined.as_ref()?;
        self.channels_of(place.of.0, place.of.1)[0]
    }

    /// An output handler has put packets into its channel's ring: each has the promise of that channel.
    pub(super) fn record_packets(&mut self, host: usize, index: u32, stamp: Instant) {
        let Some(attempt) = self.outgoing_of(host, index) else { return };
        let place = self.hosts[host].tcp.as_mut().and_then(|tcp| tcp.places.get_mut(&index));
        let put = place.map(|place| std::mem::take(&mut place.segments.put_now));
        for packet in put.into_iter().flatten() {
            match read(&packet) {
                Some(seen) if seen.is_whole => self.trace_segment(host, &seen, true),
                _ => self.violate(&format!("host {host} puts a segment that is not whole into a channel")),
            }
            let clock = self.hosts[host].clock;
            let channel = &mut self.channels[attempt];
            let len = packet.len() as u32;
            if len > channel.plan.contract.message_bytes_max {
                self.violate(&format!("host {host} puts a packet of {len} B into a channel"));
                continue;
            }
            let number = channel.ledger.record(self.now, stamp, len, &clock);
            channel.packets.put(number, packet);
            let lost = channel.ledger.settle(self.now);
            self.note(host, Entry::Send { channel: attempt, index: number, len });
            self.report_lost(attempt, &lost);
        }
    }

    /// A ring of this host was filled by a handler on its processor.
    pub(super) fn ring_channel(&mut self, host: usize, attempt: usize, now: Instant) {
        let channel = self.channels.get(attempt).filter(|channel| !channel.source_gone);
        if let Some(id) = channel.and_then(|channel| channel.source) {
            let before = effort();
            self.hosts[host].node.handle_ring(id, now);
            self.check_effort(host, Effort::Outbox, before);
        }
    }

    /// A channel has delivered a packet: it is judged, and handed to the connection, if there is one already.
    pub(in crate::world) fn take_packet(&mut self, host: usize, message: &Delivered) {
        let attempt = message.inbox as usize;
        let (bytes, clock) = (message.bytes(), self.hosts[host].clock);
        let channel = &mut self.channels[attempt];
        let Some(index) = channel.packets.take(message.info.number, bytes) else {
            let what =
                format!("{}: a packet was altered, comes twice or is another's", self.describe(attempt));
            return self.violate(&what);
        };
        let judgement = channel.ledger.deliver_index(self.now, &message.info, index, &clock);
        self.outcome.tcp.path_packets += u64::from(judgement.counts);
        let sender = channel.tcp;
        self.count_judged(host, message, judgement);
        if let Some((number, sender)) = sender {
            self.hand_over((number, 1 - sender), bytes);
        }
    }

    fn hand_over(&mut self, (number, end): (usize, usize), bytes: &[u8]) {
        let host = self.conversations[number].plan.hosts[end];
        if let Some(seen) = read(bytes) {
            self.trace_segment(host, &seen, false);
        }
        let now = self.hosts[host].clock.read(self.now);
        let Some(index) = self.conversations[number].ends[end].index else { return };
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        let Some(place) = tcp.places.get(&index) else { return };
        // Until then the ring is the program's, which does not read.
        let Some(Joined { buffers, .. }) = place.joined.as_ref().filter(|joined| joined.is_attached) else {
            return;
        };
        if place.held.get() >= *buffers {
            self.outcome.tcp.unbuffered += 1;
            return;
        }
        place.held.set(place.held.get() + 1);
        let frame = SimFrame::new(bytes, &member.frames).counted_in(Some(place.held.clone()));
        let input = place.input;
        if tcp.endsystem.arrived(index, frame, now).is_ok() {
            member.node.make_ready(input, now);
            let wrong = tcp.accounts.get_mut(&input).and_then(|account| account.came(now));
            self.judge_tcp(host, Role::Input(index), wrong);
        }
    }
}
