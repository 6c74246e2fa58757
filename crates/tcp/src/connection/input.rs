//! The input handler, which processes one segment.

use alloc::vec::Vec;

use punctual_analysis::Instant;

use super::{Connection, Ended, Received, State};
use crate::config::Config;
use crate::edge;
use crate::guard::{Changes, Guard, Place, Verdict, is_old};
use crate::handshake::{Opening, shift_of};
use crate::machine::MachineState;
use crate::secrets::Secrets;
use crate::sequence::{before, later};
use crate::wire::{self, Malformed, Segment, bare};

impl Connection {
    /// A connection whose handshake a listener has completed. The caller passes the third segment of the
    /// handshake next. `None` if the addresses or ports of the flow are invalid for a connection.
    pub fn accept(opening: &Opening, config: &Config, secrets: &Secrets, now: Instant) -> Option<Self> {
        let shake = &opening.0;
        let mut connection = Self::closed(shake.syn.flow, config, secrets, shake.iss, now)?;
        if !connection.machine.listen(connection.flow) {
            return None;
        }
        // The machine opens as if the SYN arrived now; the listener has already sent its reply.
        let (mut packet, mut answer) = (Vec::new(), Vec::new());
        wire::write(&shake.syn, connection.config.hop_limit, false, &mut packet);
        connection.machine.input(now, &packet, &mut answer);
        connection.synchronize(&shake.syn, now);
        let end = shake.iss.wrapping_add(1);
        match shake.answered_at {
            Some(at) => connection.rtt.left(end, at),
            None => connection.ahead.syn(),
        }
        connection.output(now, &mut answer);
        // Now, and not when the segment is processed: it may wait until the program takes the connection.
        connection.rtt.acknowledged(end, now);
        (connection.state() == State::SynReceived).then_some(connection)
    }

    /// Processes the packet of one segment; a reply that must leave at once is in `reply`, which is empty
    /// otherwise. `packet` is used as scratch.
    ///
    /// # Errors
    ///
    /// The packet is malformed; nothing changed.
    pub fn input(
        &mut self,
        now: Instant,
        packet: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Result<Received, Malformed> {
        let segment = wire::parse(packet)?;
        Ok(self.input_checked(now, &segment, packet, reply))
    }

    /// [`Connection::input`] of a packet that [`wire::parse`] checked.
    pub fn input_checked(
        &mut self,
        now: Instant,
        segment: &Segment,
        packet: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Received {
        reply.clear();
        if segment.flow != self.flow {
            return Received::ForNobody;
        }
        match self.state() {
            State::Closed => Received::ForNobody,
            State::TimeWait => self.input_time_wait(now, segment, reply),
            State::SynSent => self.input_syn_sent(now, segment, packet, reply),
            _ => self.input_synchronized(now, segment, packet, reply),
        }
    }

    fn input_syn_sent(
        &mut self,
        now: Instant,
        segment: &Segment,
        packet: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Received {
        let acks_syn = segment.ack == Some(self.numbers.iss().wrapping_add(1));
        // RFC 9293 3.10.7.3: a wrong acknowledgement is reset, a reset without the right one is dropped.
        if segment.ack.is_some() && !acks_syn {
            wire::reset_for(segment, reply);
            if !reply.is_empty() {
                self.open_again();
            }
            return Received::Dropped;
        }
        if segment.flags.rst {
            if acks_syn {
                self.ended = Some(Ended::Refused);
            }
            return if acks_syn { Received::Processed } else { Received::Dropped };
        }
        if !segment.flags.syn {
            return Received::Dropped;
        }
        self.deliver(now, segment, packet, Changes::default(), reply);
        if self.machine.state() != MachineState::SynSent {
            self.synchronize(segment, now);
            self.rtt.acknowledged(self.place().una, now);
        }
        Received::Processed
    }

    /// The peer had an old connection of this flow, for example in TIME-WAIT, which the reset ends (RFC 9293 3.5.1, figure 9): the SYN
    /// leaves again behind the reset, and not a second later. Once: a peer that answers wrongly makes no storm.
    fn open_again(&mut self) {
        if !self.misfits.is_opened_again {
            self.misfits.is_opened_again = true;
            self.numbers.begin_again();
            self.machine.connect_again(self.flow);
        }
    }

    /// Initialises the connection from the peer's SYN.
    fn synchronize(&mut self, syn: &Segment, now: Instant) {
        let shift = syn.scale.map_or(0, |_| shift_of(self.config.receive_bytes));
        let window = u16::try_from(self.config.receive_bytes).unwrap_or(u16::MAX);
        self.numbers.synchronize(syn.seq, window, shift);
        // RFC 9293 3.7.1: without the option 536 bytes, over IPv6 1,220.
        let mss = syn.mss.unwrap_or(if self.flow.is_v6() { 1_220 } else { 536 });
        self.ahead.synchronize(mss, syn.sack);
        self.guard = Some(Guard::new(syn, self.config.has_timestamps, now));
    }

    fn input_synchronized(
        &mut self,
        now: Instant,
        segment: &Segment,
        packet: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Received {
        let place = self.place();
        let Some(guard) = self.guard.as_mut() else { return Received::Dropped };
        let window = guard.repeated_window(place.una);
        match guard.judge(segment, place, now) {
            Verdict::Drop => Received::Dropped,
            Verdict::Challenge => {
                self.challenge(now, reply);
                Received::Dropped
            }
            Verdict::Pass(changes) => {
                self.note_urgent(segment, place);
                let blocks = if self.ahead.has_sack() { wire::sacked(packet) } else { Vec::new() };
                if !self.takes_acknowledgement(now, (segment, changes), window, &blocks) {
                    if segment.window == 0 {
                        self.machine.heard(now);
                    }
                    return Received::Processed;
                }
                self.machine.told(now);
                self.acknowledge_in_parts(now, (segment, changes), packet, reply);
                self.deliver(now, segment, packet, changes, reply);
                self.plan(now);
                self.after_input(now, segment, reply);
                Received::Processed
            }
            Verdict::Outside => {
                // An old acknowledgement would leave it without an answer.
                let ack = segment.ack.map(|ack| later(ack, place.una));
                self.deliver(now, segment, packet, Changes { ack, ..Changes::default() }, reply);
                if is_old(segment, place) {
                    self.renumber(reply);
                }
                self.plan(now);
                Received::Processed
            }
        }
    }

    /// Plans what follows from the state after a segment.
    fn plan(&mut self, now: Instant) {
        self.note_loss(now);
        self.rtt.acknowledged(self.place().una, now);
        self.plan_probe(now);
        self.plan_repair(now);
    }

    /// Passes a segment to the machine, in the machine's numbers.
    fn deliver(
        &mut self,
        now: Instant,
        segment: &Segment,
        packet: &mut [u8],
        changes: Changes,
        reply: &mut Vec<u8>,
    ) {
        let ack = changes.ack.or(segment.ack).map(|ack| self.numbers.to_machine(ack));
        let data_end = segment.seq.wrapping_add(u32::from(segment.payload_bytes));
        let is_fin = segment.flags.fin && !segment.flags.syn && !segment.flags.rst;
        let has_fin_behind_news = is_fin && before(self.place().next, data_end);
        if is_fin && segment.payload_bytes > 0 && data_end == self.place().next {
            // All of its data is here; the machine would not look at the FIN of a segment that begins before the window.
            let window = changes.window.unwrap_or(segment.window);
            self.deliver_fin(now, &Segment { seq: data_end, ack, window, ..*segment }, reply);
            return self.finish(now, reply);
        }
        edge::edit(packet, |tcp| {
            if has_fin_behind_news {
                tcp.set_fin(false);
            }
            if let Some(ack) = ack {
                edge::set_ack(tcp, ack);
            }
            if let Some(seq) = changes.seq {
                edge::set_seq(tcp, seq);
            }
            if let Some(window) = changes.window {
                tcp.set_window_len(window);
            }
        });
        self.machine.input(now, packet, reply);
        // The machine would take the FIN even where it has no room for the last bytes before it, which then come too late.
        if has_fin_behind_news && self.place().next == data_end {
            let window = changes.window.unwrap_or(segment.window);
            self.deliver_fin(now, &Segment { seq: data_end, ack, window, ..*segment }, reply);
        }
        self.finish(now, reply);
    }

    /// Passes the FIN of a segment to the machine, without the data before it. The acknowledgement is in the machine's numbers.
    fn deliver_fin(&mut self, now: Instant, segment: &Segment, reply: &mut Vec<u8>) {
        let mut packet = Vec::new();
        wire::write_with(segment, &[], self.config.hop_limit, false, &mut packet);
        self.machine.input(now, &packet, reply);
    }

    fn after_input(&mut self, now: Instant, segment: &Segment, reply: &mut Vec<u8>) {
        self.urgent.acknowledged(self.place().una);
        match self.machine.state() {
            MachineState::TimeWait => self.enter_time_wait(now, reply),
            MachineState::Closed => {
                self.ended = Some(if segment.flags.rst { Ended::Reset } else { Ended::Closed });
            }
            // A reset returns the machine to LISTEN, a state of the listener.
            MachineState::Listen => self.ended = Some(Ended::Reset),
            _ => (),
        }
    }

    fn note_urgent(&mut self, segment: &Segment, place: Place) {
        let Some(pointer) = segment.urgent else { return };
        // RFC 9293 3.10.7.4, sixth: only in the window, which the guard has checked, and only while data may arrive.
        if before(segment.seq, place.edge) && !self.has_received_fin() {
            self.urgent.received(segment.seq, pointer);
        }
    }

    /// Sends the peer an acknowledgement of the present state, within the limit of challenges.
    pub(super) fn challenge(&mut self, now: Instant, reply: &mut Vec<u8>) {
        if self.misfits.challenges.may_send(now) {
            self.answer(now, reply);
        }
    }

    /// An acknowledgement of all received data: <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>.
    pub(super) fn answer(&mut self, now: Instant, reply: &mut Vec<u8>) {
        let seq = self.numbers.sent();
        self.write_at(self.guard.as_ref().map_or(seq, |guard| guard.bare(seq)), &[], now, reply);
    }

    /// Every second reply to an old segment has the number behind all that was sent. A peer that has taken the probe of its window, whose
    /// answer was lost, takes no segment before that, nor its acknowledgement; one that has not takes none behind its window.
    fn renumber(&mut self, reply: &mut [u8]) {
        let seq = self.numbers.sent();
        self.misfits.was_first_reply = !self.misfits.was_first_reply;
        if self.misfits.was_first_reply {
            return;
        }
        edge::edit(reply, |tcp| {
            if tcp.segment_len() == 0 && !tcp.rst() {
                edge::set_seq(tcp, seq);
            }
        });
        edge::seal(reply);
    }

    /// Writes data at `seq`, with what belongs to it.
    pub(super) fn write_data(&self, seq: u32, payload: &[u8], now: Instant, packet: &mut Vec<u8>) {
        self.write_at(seq, payload, now, packet);
        let is_last = seq.wrapping_add(payload.len() as u32) == self.numbers.enqueued_end();
        let pointer = self.urgent.pointer(seq);
        if is_last || pointer.is_some() {
            edge::edit(packet, |tcp| {
                tcp.set_psh(is_last);
                if let Some(pointer) = pointer {
                    tcp.set_urg(true);
                    tcp.set_urgent_at(pointer);
                }
            });
            edge::seal(packet);
        }
    }

    /// Writes a segment at `seq` that acknowledges all received data and announces the window's edge again.
    pub(super) fn write_at(&self, seq: u32, payload: &[u8], now: Instant, packet: &mut Vec<u8>) {
        let place = self.place();
        let clock = self.clock(now);
        let timestamp =
            self.guard.as_ref().filter(|guard| guard.has_timestamps()).map(|guard| (clock, guard.echo()));
        let window = self.numbers.window(place.next);
        let ack = Some(place.next);
        let segment = Segment { seq, ack, window, timestamp, ..bare(self.flow) };
        wire::write_with(&segment, payload, self.config.hop_limit, true, packet);
    }

    /// The state of the connection, in sequence numbers of the wire.
    pub(super) fn place(&self) -> Place {
        let (state, socket) = (self.machine.state(), self.machine.socket());
        let is_open =
            !matches!(state, MachineState::SynSent | MachineState::SynReceived | MachineState::Listen);
        let fin_acked = matches!(state, MachineState::FinWait2 | MachineState::TimeWait);
        let acked = self.numbers.enqueued_end().wrapping_sub(socket.send_queue() as u32);
        let una = if is_open { acked.wrapping_add(u32::from(fin_acked)) } else { self.numbers.iss() };
        let arrived = self.numbers.read_end().wrapping_add(socket.recv_queue() as u32);
        let next = arrived.wrapping_add(u32::from(self.has_received_fin()));
        Place { una, sent: self.numbers.sent(), next, edge: self.numbers.edge() }
    }
}
