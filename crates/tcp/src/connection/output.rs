//! The output handler, which makes one segment, and the timers.

use alloc::vec::Vec;

use punctual_analysis::Instant;

use super::{Connection, Ended, State};
use crate::edge;
use crate::machine::MachineState;
use crate::sequence::{before, later};

impl Connection {
    /// Makes the next segment that is due, in `packet`; returns whether there was one. If there was none,
    /// call it again at `next_deadline`, or after a segment or an action of the program.
    pub fn output(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        let is_made = self.make(now, packet);
        if is_made {
            self.note_size(packet);
        }
        is_made
    }

    fn make(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        packet.clear();
        if let Some(until) = self.time_wait {
            if now >= until {
                self.time_wait = None;
                self.ended = Some(Ended::Closed);
            }
            return false;
        }
        if self.has_nothing_left() {
            return false;
        }
        self.raise_path(now);
        self.close_behind_last_byte();
        if self.has_to_send_again() && self.send_again(now, packet) {
            self.recovery.count_resent(1);
            return true;
        }
        if self.probe(now, packet) || self.probe_repair(now, packet) || self.repeat_forgotten(now, packet) {
            return true;
        }
        loop {
            if let Some(next) = self.next_of_first_flight(self.place()) {
                self.send_beside(next, now, packet);
                self.plan_probe(now);
                return true;
            }
            let was_sent = self.numbers.sent();
            if self.probes.tail.has_made() {
                self.probes.tail.take_made(packet);
            } else {
                self.machine.output(now, packet);
            }
            if self.machine.state() == MachineState::Closed && self.ended.is_none() {
                self.ended = Some(Ended::TimedOut);
            }
            if packet.is_empty() {
                return false;
            }
            if self.skips_keep_alive(packet) {
                packet.clear();
                continue;
            }
            if matches!(self.machine.state(), MachineState::SynSent | MachineState::SynReceived) {
                self.syn_left(now);
            }
            self.cut_what_left(packet);
            if self.is_idle_probe(packet) {
                return self.replace_idle_probe(now, packet);
            }
            if !packet.is_empty() {
                self.finish(now, packet);
                self.fill_up(now, was_sent, packet);
                self.note_left(now, was_sent, packet);
                return true;
            }
        }
    }

    /// Whether `packet`, the machine's, is the keep-alive that it makes at once when they are switched on.
    fn skips_keep_alive(&mut self, packet: &[u8]) -> bool {
        if !self.misfits.skips_keep_alive {
            return false;
        }
        // Any other packet begins the idle time anew.
        self.misfits.skips_keep_alive = false;
        let una = self.place().una;
        edge::payload(packet).is_some_and(|(machine_seq, payload)| {
            payload.len() == 1 && self.numbers.to_wire(machine_seq).wrapping_add(1) == una
        })
    }

    /// Time at which `output` has work: `now` if at once, `None` if only a segment or the program can cause
    /// some.
    pub fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        if self.time_wait.is_some() {
            return self.time_wait.map(|at| at.max(now));
        }
        if self.has_nothing_left() {
            return None;
        }
        let is_ahead = self.probes.tail.has_made() || self.next_of_first_flight(self.place()).is_some();
        if self.has_to_send_again() || is_ahead || self.close_is_due() {
            return Some(now);
        }
        let forgotten = self.forgotten_deadline(now).map(|at| at.max(now));
        let machine = self.machine.deadline(now);
        let probe = [self.probes.tail.due(), self.probes.repair.due()].into_iter().flatten().min();
        let probe = probe.map(|at| at.max(now)).filter(|_| self.ended.is_none());
        let path = self.path.deadline().map(|at| at.max(now)).filter(|_| self.state() != State::Closed);
        [machine, path, probe, forgotten].into_iter().flatten().min()
    }

    /// Whether bytes that were taken wait for the peer's window or for the congestion window: more of them would change nothing.
    pub fn is_held_back(&mut self, now: Instant) -> bool {
        let unsent = self.numbers.enqueued_end().wrapping_sub(self.numbers.sent());
        // What Nagle holds back leaves when it has become a full segment.
        let fills_segment = self.config.is_nodelay || unsent >= u32::from(self.path.current());
        self.numbers.has_unsent() && fills_segment && self.next_deadline(now) != Some(now)
    }

    /// Whether no work is left: the connection ended, and its reset, if any, has left.
    pub fn is_over(&mut self, now: Instant) -> bool {
        self.ended.is_some() && self.next_deadline(now).is_none()
    }

    /// A SYN leaves. Its answer is the first measurement of the round trip, unless it left twice.
    fn syn_left(&mut self, now: Instant) {
        self.ahead.syn();
        if self.ahead.has_lost() {
            self.rtt.sent_again();
        } else {
            self.rtt.left(self.numbers.iss().wrapping_add(1), now);
        }
    }

    fn has_to_send_again(&self) -> bool {
        self.ended.is_none() && self.recovery.is_due()
    }

    /// Whether the connection ended and nothing of it may leave any more. What was aborted may have one reset left;
    /// the machine is closed then, and keeps its state where the peer gets none (SYN-SENT, TIME-WAIT).
    fn has_nothing_left(&self) -> bool {
        let has_reset = self.ended == Some(Ended::Aborted) && self.machine.state() == MachineState::Closed;
        self.ended.is_some() && !has_reset
    }

    /// This connection's timestamp clock: milliseconds from an offset of its own (RFC 7323 5.4).
    pub(super) fn clock(&self, now: Instant) -> u32 {
        self.timestamp_offset.wrapping_add((now.0 / 1_000_000) as u32)
    }

    /// Converts a packet of the machine to its form on the wire.
    pub(super) fn finish(&mut self, now: Instant, packet: &mut [u8]) {
        if packet.is_empty() {
            return;
        }
        let (clock, echo) = (self.clock(now), self.guard.as_ref().map_or(0, |guard| guard.echo()));
        let (numbers, urgent, guard) = (&mut self.numbers, &self.urgent, self.guard.as_ref());
        let (mut acknowledged, is_aborted) = (None, self.ended == Some(Ended::Aborted));
        edge::edit(packet, |tcp| {
            let machine_seq = tcp.seq_number().0 as u32;
            let mut seq = machine_seq.wrapping_add(numbers.offset(machine_seq));
            // After a timeout the machine counts from the oldest byte again, in bare acknowledgements too.
            // The peer may have received that byte: the segment would be before its window, and the peer
            // would ignore the acknowledgement. If both ends do so, the connection is stuck. The machine does not know of bytes that
            // left beside it either, behind which alone a reset counts. Other resets repeat the number of what they answer.
            if tcp.segment_len() == 0 && (!tcp.rst() || is_aborted) {
                seq = later(seq, numbers.sent());
                seq = guard.map_or(seq, |guard| guard.bare(seq));
            }
            edge::set_seq(tcp, seq);
            edge::set_timestamp(tcp, clock, if tcp.ack() { echo } else { 0 });
            let payload = tcp.segment_len() as u32;
            acknowledged = tcp.ack().then(|| tcp.ack_number().0 as u32).filter(|_| !tcp.rst());
            numbers.left(seq.wrapping_add(payload), acknowledged, tcp.window_len(), tcp.syn());
            if let Some(pointer) = urgent.pointer(seq).filter(|_| !tcp.syn() && !tcp.rst()) {
                tcp.set_urg(true);
                tcp.set_urgent_at(pointer);
            }
        });
        if let (Some(guard), Some(ack)) = (self.guard.as_mut(), acknowledged) {
            guard.acknowledged(ack);
        }
        edge::seal(packet);
    }

    /// Makes the segment that the recovery sends again, in `packet`; returns whether there was one.
    fn send_again(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        let mut payload = Vec::new();
        let Some(seq) = self.recovery.take(self.segment_bytes(), &mut payload) else { return false };
        self.rtt.sent_again();
        self.write_data(seq, &payload, now, packet);
        true
    }

    /// The machine fills its congestion window to the byte. A short segment that bytes wait behind leaves full: less than a segment
    /// beyond the window, and not two for one (RFC 9293 3.8.6.2.1). The machine makes those bytes later, and they are cut then.
    fn fill_up(&mut self, now: Instant, was_sent: u32, packet: &mut Vec<u8>) {
        let Some((seq, length)) = edge::payload(packet).map(|(seq, payload)| (seq, payload.len())) else {
            return;
        };
        let full = self.segment_bytes();
        let is_short_and_new = seq == was_sent && (1..full).contains(&length);
        let Some((_, more)) = self.next_unsent(self.place()).filter(|_| is_short_and_new) else { return };
        let mut payload = Vec::new();
        self.recovery.copy(seq, full.min(length + more), &mut payload);
        self.write_data(seq, &payload, now, packet);
        self.numbers.sent_to(seq.wrapping_add(payload.len() as u32));
    }

    /// Gives the data of a leaving packet to the recovery.
    fn note_left(&mut self, now: Instant, was_sent: u32, packet: &[u8]) {
        let Some((seq, payload)) = edge::payload(packet) else {
            if edge::has_fin(packet) {
                self.oldest_left_again(now);
            }
            return;
        };
        let end = seq.wrapping_add(payload.len() as u32);
        let is_again = !payload.is_empty() && before(seq, was_sent);
        if is_again && seq == self.place().una {
            self.oldest_left_again(now);
        }
        self.recovery.count_resent(u64::from(is_again));
        if is_again {
            self.ahead.lost();
            self.rtt.sent_again();
        } else {
            self.rtt.left(end, now);
        }
        let is_timeout = self.recovery.left(seq, payload, was_sent);
        if is_timeout {
            self.ahead.made(was_sent);
        } else if is_again {
            self.recovery.began_at(self.clock(now));
        }
        self.plan_probe(now);
        self.plan_repair(now);
    }
}
