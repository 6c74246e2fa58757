//! A connection, the packets that came for it, and the rings of its program.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};
use punctual_proto::memory::{Inbox, Memory, MessageInfo, MessageRead, MessageWrite, Outbox};

use super::{Delays, Reset, Segments, Status};
use crate::config::Setting;
use crate::connection::{Connection, Ended, Received, State};
use crate::icmp::Quote;
use crate::wire::{self, Flow, Segment};

/// Replies that wait for the output handler. More are dropped: their segments come again (RFC 5961 7 bounds them, too).
const REPLIES_MAX: usize = 4;
/// Messages that one unit of input hands to the program.
const DELIVERIES_MAX: usize = 4;
/// Bytes that one unit of output takes from the program: more than a segment has.
const TAKEN_BYTES_MAX: usize = 4_096;
/// Time in FIN-WAIT-2 after which a connection without a program is forgotten, as other systems do.
const ORPHAN_LIFE: Nanos = Nanos::from_secs(60);
/// Longest user timeout of a connection without a program, whose bytes or FIN the peer does not acknowledge: the least of RFC 9293
/// 3.8.3 (RFC 1122 4.2.3.5). No program waits for the result, and the connection counts against its user's quota.
const ORPHAN_TIMEOUT: Nanos = Nanos::from_secs(100);

/// How long a peer that keeps its window closed, and answers, keeps such a connection: the time after which a peer that is silent loses one
/// with a program.
const ORPHAN_ANSWERS: Nanos = Nanos::from_secs(900);

/// The program's rings: bytes to send in messages of any length, and bytes that came in messages of at most `chunk_bytes`. An
/// empty message is the end of the stream.
pub struct Rings<M: Memory> {
    /// What the program writes.
    pub outbox: M::Outbox,
    /// What it reads.
    pub inbox: M::Inbox,
    /// Largest message of `inbox`, in bytes; at least 1.
    pub chunk_bytes: u32,
}

/// What a call of a handler has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOutcome {
    /// Packets that it processed or made.
    pub units: u32,
    /// Whether it has more to do at once.
    pub more: bool,
    /// Whether it gave the program something.
    pub delivered: bool,
    /// When the first packet that it processed had come to the driver.
    pub first_arrival: Option<Instant>,
}

pub(super) struct Entry<M: Memory> {
    connection: Connection,
    /// With the time at which each came to the driver; `None` if it came by way of a listener.
    arrived: VecDeque<(M::Frame, Option<Instant>)>,
    replies: VecDeque<Vec<u8>>,
    /// `None` once only late segments of the peer can come.
    rings: Option<Rings<M>>,
    /// A message of the program, and how many of its bytes were taken.
    taken: Option<(<M::Outbox as Outbox>::Message, u32)>,
    /// Messages to the program so far.
    number: u64,
    program: Program,
    segments_in: u64,
    segments_out: u64,
    dropped: u64,
    /// Segments since the output handler was last called.
    unanswered: u32,
    /// The program's ring may have room for bytes that wait: the input handler is called again, and the window grows.
    fills: bool,
    delays: Delays,
    /// Hardware address of the peer, if a listener has opened the connection.
    address: Option<u64>,
    /// A SYN that came when the connection was over: it opens the next one of this flow, if something listens.
    successor: Option<M::Frame>,
}

/// What the program has asked for, and what it was shown.
#[derive(Debug, Default)]
struct Program {
    /// It closes its direction when all that it wrote was taken.
    closes: bool,
    /// It has no end any more since then.
    gone_since: Option<Instant>,
    /// It was shown the end of the stream.
    saw_end: bool,
    /// The channels of the connection are gone.
    is_cut: bool,
}

impl<M: Memory> Entry<M> {
    pub fn new(connection: Connection, rings: Rings<M>) -> Self {
        Self {
            connection,
            arrived: VecDeque::new(),
            replies: VecDeque::new(),
            rings: Some(rings),
            taken: None,
            number: 0,
            program: Program::default(),
            segments_in: 0,
            segments_out: 0,
            dropped: 0,
            unanswered: 0,
            fills: false,
            delays: Delays::default(),
            address: None,
            successor: None,
        }
    }

    /// A listener has opened it, for a peer at this hardware address, of which so many packets were dropped meanwhile.
    pub const fn of_peer_at(mut self, address: u64, dropped: u64) -> Self {
        (self.address, self.dropped) = (Some(address), dropped);
        self
    }

    pub fn refuse(&mut self, now: Instant) -> Option<Reset> {
        Reset::ending(&mut self.connection, self.address?, now)
    }

    /// Whether a packet that came after the end is a SYN that a listener may have, as the first was one.
    fn is_successor(&self, packet: &[u8]) -> bool {
        let is_ours = |segment: Segment| segment.begins() && segment.flow == self.flow();
        self.address.is_some() && wire::parse(packet).is_ok_and(is_ours)
    }

    /// The SYN for the listener, and the hardware address that the peer's segments come from. It may not be processed yet.
    pub fn take_successor(&mut self) -> Option<(M::Frame, u64)> {
        let waiting = self.arrived.iter().position(|(packet, _)| self.is_successor(packet.as_ref()));
        let waiting = waiting.and_then(|at| self.arrived.remove(at)).map(|(packet, _)| packet);
        self.successor.take().or(waiting).zip(self.address)
    }

    pub const fn flow(&self) -> Flow {
        self.connection.flow()
    }

    pub fn icmp(&mut self, now: Instant, quote: &Quote) -> bool {
        self.connection.icmp(now, quote)
    }

    pub fn set(&mut self, setting: Setting) {
        self.connection.set(setting);
    }

    pub const fn rings_mut(&mut self) -> Option<&mut Rings<M>> {
        self.rings.as_mut()
    }

    pub fn route_changed(&mut self, mtu_bytes: u32, now: Instant) {
        self.connection.route_changed(mtu_bytes, now);
    }

    pub fn arrived(&mut self, packet: M::Frame, at: Option<Instant>) {
        self.arrived.push_back((packet, at));
    }

    pub fn observe(&mut self, delay: Nanos) {
        self.delays.add(delay);
    }

    pub fn has_input(&self) -> bool {
        let is_gone = self.program.gone_since.is_some();
        let delivers = self.connection.readable_bytes() > 0 || !is_gone && self.ends_stream();
        !self.arrived.is_empty() || delivers
    }

    /// Whether the end of the stream is next for the program.
    fn ends_stream(&self) -> bool {
        self.connection.is_finished() && !self.program.saw_end
    }

    pub fn input(&mut self, units: u32, now: Instant) -> CallOutcome {
        let (mut done, given, mut first_arrival) = (0, self.number, None);
        let mut has_more = self.deliver();
        let first_unit = self.segments_in;
        while done < units {
            let Some((mut packet, at)) = self.arrived.pop_front() else { break };
            first_arrival = first_arrival.or(at);
            self.segments_in += 1;
            self.unanswered = self.unanswered.saturating_add(1);
            done += self.counted(self.segments_in);
            let mut reply = Vec::new();
            let received = self.connection.input(now, packet.as_mut(), &mut reply);
            match received {
                Ok(Received::Processed) => {}
                Ok(Received::ForNobody) if self.is_successor(packet.as_ref()) => {
                    self.successor = Some(packet)
                }
                _ => self.dropped += 1,
            }
            if !reply.is_empty() && self.replies.len() < REPLIES_MAX {
                self.replies.push_back(reply);
            }
        }
        if first_unit < self.segments_in {
            // What all segments of the call have brought: a message each would cost the program a wake-up each.
            has_more = self.deliver();
        }
        if self.program.is_cut && self.arrived.is_empty() {
            self.connection.lost();
            has_more = self.deliver();
        }
        if self.rings.is_none() {
            self.connection.rest();
        }
        self.fills = has_more;
        let more = has_more || !self.arrived.is_empty();
        CallOutcome { units: done, more, delivered: self.number > given, first_arrival }
    }

    pub fn cut(&mut self) {
        self.program.is_cut = true;
        self.replies.clear();
        if self.arrived.is_empty() {
            self.connection.lost();
        }
    }

    /// Units of the segment of this number.
    fn counted(&self, number: u64) -> u32 {
        u32::from(number.is_multiple_of(2) || !active(Mutation::EverySecondSegmentCounted))
    }

    /// Hands received bytes to the program, as far as its ring has room; whether there may be room for more.
    fn deliver(&mut self) -> bool {
        let Some(rings) = self.rings.as_mut().filter(|_| self.program.gone_since.is_none()) else {
            // The program is gone: no one reads these bytes, and the peer must know (RFC 2525 2.17).
            if self.connection.readable_bytes() > 0 {
                self.connection.abort();
            }
            return false;
        };
        for _ in 0..DELIVERIES_MAX {
            let bytes = self.connection.readable_bytes().min(rings.chunk_bytes as usize);
            let is_early =
                active(Mutation::EndBeforeLastBytes) && self.connection.state() == State::CloseWait;
            let is_end = (bytes == 0 && self.connection.is_finished() || is_early) && !self.program.saw_end;
            let bytes = if is_end { 0 } else { bytes };
            if bytes == 0 && !is_end {
                return false;
            }
            // A ring without room notifies the processor when it has some.
            let Some(mut slot) = rings.inbox.reserve() else { return false };
            let read = self.connection.recv_with(bytes, |at, part| slot.copy_from(at as u32, part));
            self.program.saw_end |= is_end;
            let info = MessageInfo { number: self.number, len: read as u32, ..MessageInfo::default() };
            self.number += 1;
            rings.inbox.publish(slot, info);
        }
        self.connection.readable_bytes() > 0 || self.ends_stream()
    }

    pub fn output(
        &mut self,
        units: u32,
        now: Instant,
        packet: &mut Vec<u8>,
        out: &mut (impl Segments + ?Sized),
    ) -> CallOutcome {
        let mut made = 0;
        self.unanswered = 0;
        while made < units && out.has_room() {
            if let Some(reply) = self.replies.pop_front() {
                out.put(&reply, 0);
            } else {
                self.take(now);
                if !self.connection.output(now, packet) {
                    break;
                }
                out.put(packet, 0);
            }
            self.segments_out += 1;
            made += self.counted(self.segments_out);
        }
        self.end_orphan(now);
        let given = self.number;
        // A connection that ended shows the program that it has.
        self.deliver();
        let more = self.due(now).is_some_and(|due| due <= now);
        CallOutcome { units: made, more, delivered: self.number > given, first_arrival: None }
    }

    /// Takes bytes of the program, as far as the connection has room, and closes behind the last one.
    fn take(&mut self, now: Instant) {
        let mut left = TAKEN_BYTES_MAX;
        while left > 0 && self.connection.writable_bytes() > 0 {
            if self.taken.is_none() {
                let next = self.rings.as_mut().and_then(|rings| rings.outbox.take(now));
                self.taken = next.map(|(message, _)| (message, 0));
            }
            let Some((message, offset)) = &mut self.taken else { break };
            let rest = (message.len() - *offset) as usize;
            let from = *offset;
            let sent = self.connection.send_with(rest.min(left), |at, room| {
                message.copy_to(from + at as u32, room);
            });
            // An end that was closed takes none: then the rest is dropped with the message.
            let sent = sent.unwrap_or(rest);
            *offset += sent as u32;
            left = left.saturating_sub(sent.max(1));
            if *offset >= message.len() {
                self.taken = None;
            }
        }
        if self.program.closes && !self.has_bytes() {
            self.program.closes = false;
            self.connection.close();
        }
    }

    /// Whether the program has written bytes that were not taken.
    fn has_bytes(&self) -> bool {
        self.taken.is_some() || self.rings.as_ref().is_some_and(|rings| rings.outbox.is_ready())
    }

    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        let is_held = active(Mutation::BytesWaitForSilence) && self.connection.unacknowledged_bytes() > 0;
        // A call that only takes bytes is charged to the budget, too: where none can leave, they stay in the ring.
        let may_take = self.connection.writable_bytes() > 0 && !self.connection.is_held_back(now);
        let takes = self.has_bytes() && may_take && !is_held;
        let closes = self.program.closes && !self.has_bytes() && self.is_open();
        if !self.replies.is_empty() || takes || closes {
            return Some(now);
        }
        if self.acknowledgement_waits() {
            return Some(now + self.connection.config().ack_delay);
        }
        let orphan = self.orphan_until();
        [self.connection.next_deadline(now), orphan.map(|at| at.max(now))].into_iter().flatten().min()
    }

    /// Whether nothing but an acknowledgement can be due, and the segments behind in the queue, or bytes that the program's ring has room
    /// for, will change it. The input handler is called for them, and this is looked at again.
    fn acknowledgement_waits(&self) -> bool {
        let most = self.connection.config().ack_segments;
        let is_more = !self.arrived.is_empty() && self.unanswered < most;
        (is_more || self.fills && most > 1)
            && self.connection.state() == State::Established
            && self.connection.unacknowledged_bytes() == 0
    }

    /// Whether the handshake is over and the connection is not.
    fn is_open(&self) -> bool {
        !matches!(self.connection.state(), State::SynSent | State::SynReceived | State::Closed)
    }

    fn orphan_until(&self) -> Option<Instant> {
        let is_waiting = self.connection.state() == State::FinWait2;
        self.program.gone_since.filter(|_| is_waiting).map(|since| since + ORPHAN_LIFE)
    }

    /// A peer that never closes does not keep a connection without a program.
    fn end_orphan(&mut self, now: Instant) {
        if self.orphan_until().is_some_and(|until| until <= now) {
            self.connection.abort();
        }
    }

    pub const fn close(&mut self) {
        self.program.closes = true;
    }

    pub fn abort(&mut self) {
        self.connection.abort();
    }

    pub fn release(&mut self, now: Instant) {
        self.program.gone_since.get_or_insert(now);
        self.program.closes = true;
        let timeout = self.connection.config().user_timeout.min(ORPHAN_TIMEOUT);
        self.connection.set(Setting::UserTimeout(timeout));
        self.connection.bound_answers(ORPHAN_ANSWERS);
        let is_pointless = match self.connection.state() {
            State::SynSent => true,
            State::TimeWait | State::Closed => false,
            _ => self.has_unread(),
        };
        if is_pointless {
            self.connection.abort();
        }
        self.deliver();
    }

    /// Whether bytes are in the program's ring that it has not read: the end of the stream is none.
    fn has_unread(&self) -> bool {
        let unread = self.rings.as_ref().map_or(0, |rings| rings.inbox.unread());
        unread > u64::from(self.program.saw_end)
    }

    pub fn is_over(&mut self, now: Instant) -> bool {
        let is_early = active(Mutation::TimeWaitLeftOut) && self.connection.state() == State::TimeWait;
        (self.connection.is_over(now) || is_early) && self.replies.is_empty() && !self.has_undelivered()
    }

    /// Whether both directions have closed in order, and a program that is slow has not been given all bytes and the end.
    fn has_undelivered(&self) -> bool {
        let is_read = self.rings.is_some() && self.program.gone_since.is_none();
        is_read && self.connection.ended() == Some(Ended::Closed) && !self.program.saw_end
    }

    /// Whether only late segments of the peer can come: in TIME-WAIT, or in FIN-WAIT-2 without a program.
    pub fn only_waits(&self) -> bool {
        let is_gone = self.program.gone_since.is_some();
        let is_last = match self.connection.state() {
            State::TimeWait => is_gone || self.program.saw_end,
            State::FinWait2 => is_gone,
            _ => false,
        };
        is_last && self.replies.is_empty() && self.arrived.is_empty() && !self.has_bytes()
    }

    /// Gives the rings back, and in TIME-WAIT the buffers, too.
    pub fn detach(&mut self) -> Option<Rings<M>> {
        let rings = self.rings.take();
        self.connection.rest();
        rings
    }

    pub const fn rests(&self) -> bool {
        self.connection.rests()
    }

    pub fn status(&self) -> Status {
        Status {
            flow: self.connection.flow(),
            state: self.connection.state(),
            ended: self.connection.ended(),
            segments_in: self.segments_in,
            segments_out: self.segments_out,
            dropped: self.dropped,
            delays: self.delays,
            path_mtu_bytes: self.connection.path_mtu_bytes(),
            readable_bytes: self.connection.readable_bytes(),
            unacknowledged_bytes: self.connection.unacknowledged_bytes(),
            resent: self.connection.resent(),
            windows_bytes: self.connection.windows(),
            config: *self.connection.config(),
        }
    }
}
