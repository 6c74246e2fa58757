//! Programs at both ends of a connection: they write, read, close, abort and vanish as planned. Every byte that one reads is
//! the byte that the other has written, in order, with no end before the last.

use punctual_analysis::{Instant, Nanos};
use punctual_tcp::Ended;

use super::{Event, Stage, TcpAct, World, of_key};
use crate::entry::{Entry, TcpMoment};
use crate::memory::Delivered;
use crate::scenario::{Ending, Reads, Writes};
use crate::world::call::TcpCall;

/// Longest message of a bulk transfer.
const BULK_BYTES_MAX: u64 = 6_000;
/// Budgets of periods that are written at once while the window of a connection opens.
const WARM_BUDGETS: u32 = 3;
/// Time after which a writer tries again, at most.
const RETRY_MAX: Nanos = Nanos::from_millis(1);
/// Time of a program between two steps, at most.
const STEP_MAX: Nanos = Nanos::from_micros(300);

impl World {
    fn soon_tcp(&mut self, most: Nanos, act: TcpAct) {
        let at = self.now + self.tcp_dice.span(Nanos(1), most);
        self.queue.schedule(at, Event::Tcp(act));
    }

    fn note_tcp(&mut self, number: usize, end: usize, what: TcpMoment) {
        let host = self.conversations[number].plan.hosts[end];
        self.note(host, Entry::Tcp { connection: number, at_server: end == 1, what });
    }

    /// The handshake of an end is over.
    pub(super) fn opened_tcp(&mut self, number: usize, end: usize) {
        self.conversations[number].ends[end].stage = Stage::Open;
        self.note_tcp(number, end, TcpMoment::Opened);
        self.outcome.tcp.opened += u64::from(end == 0);
        self.outcome.tcp.paths += u64::from(end == 0 && self.conversations[number].path.is_some());
        self.soon_tcp(STEP_MAX, TcpAct::Write(number, end));
    }

    /// The connection ended at an end.
    pub(super) fn ended_tcp(&mut self, number: usize, end: usize, why: Ended) {
        let state = &mut self.conversations[number].ends[end];
        (state.stage, state.ended) = (Stage::Ended, Some(why));
        self.note_tcp(number, end, TcpMoment::Ended);
        self.journal.explain(|| why.to_string());
        let talk = &self.conversations[number];
        if why != Ended::Closed && talk.excuse.is_none() {
            let what = format!("connection {number} ({:?}): {why}", talk.plan);
            self.violate(&what);
            self.conversations[number].excuse = Some("it is broken");
        }
    }

    /// A program takes its turn to write.
    pub(super) fn write_tcp(&mut self, number: usize, end: usize) {
        let talk = &self.conversations[number];
        let state = &talk.ends[end];
        if state.stage != Stage::Open || state.is_released || talk.streams[end].is_closed() {
            return;
        }
        let stops = self.now >= self.scenario.times.stops;
        match talk.plan.writes[end] {
            Writes::Nothing => self.close_tcp(number, end),
            Writes::Bulk(bytes) => {
                let left = bytes - talk.streams[end].written();
                if stops || left == 0 {
                    return self.close_tcp(number, end);
                }
                let len = self.tcp_dice.log_between(1, BULK_BYTES_MAX.min(left)).min(left) as u32;
                let is_taken = self.put_tcp(number, end, len);
                let most = if is_taken { Nanos::from_micros(20) } else { RETRY_MAX };
                self.soon_tcp(most, TcpAct::Write(number, end));
            }
            _ if stops => self.close_tcp(number, end),
            Writes::Messages { bytes, interval } => {
                let len = self.tcp_dice.log_between(1, bytes.into()) as u32;
                self.put_tcp(number, end, len);
                self.soon_tcp(interval * 2, TcpAct::Write(number, end));
            }
            Writes::Budget => self.write_budget(number, end),
        }
    }

    /// Puts a message into the ring; whether there was room.
    fn put_tcp(&mut self, number: usize, end: usize, len: u32) -> bool {
        let host = self.conversations[number].plan.hosts[end];
        let sent = self.hosts[host].clock.read(self.now);
        let talk = &mut self.conversations[number];
        let index = talk.streams[end].next_index();
        let is_taken = talk.ends[end].outbox.as_ref().is_some_and(|outbox| outbox.send(index, len, sent));
        if is_taken {
            talk.streams[end].write(len);
        }
        // A program whose ring is full waits for room, and asks for nothing.
        if is_taken {
            self.ask_tcp(TcpCall::Ready(number, end));
        }
        is_taken
    }

    /// Data of a guaranteed class: first so much that the window of the connection is open, then the budget of each period.
    fn write_budget(&mut self, number: usize, end: usize) {
        let talk = &mut self.conversations[number];
        let Some(promise) = &mut talk.promise else { return self.close_tcp(number, end) };
        let (written, read) = (talk.streams[end].written(), talk.streams[end].read());
        let (len, was_on) = (promise.budget_bytes(), promise.is_on());
        let (is_warm, period) = (promise.is_warm(read), promise.period());
        if !is_warm && written > read {
            // The reader continues this.
            return;
        }
        if !is_warm {
            self.put_tcp(number, end, len * WARM_BUDGETS);
            return;
        }
        if !was_on {
            // What came before has no part in the windows of what is promised.
            let at = self.now + period * 3;
            return self.queue.schedule(at, Event::Tcp(TcpAct::Write(number, end)));
        }
        promise.wrote(written + u64::from(len));
        self.put_tcp(number, end, len);
        // Once in each period of its own clock.
        let host = self.conversations[number].plan.hosts[end];
        let clock = self.hosts[host].clock;
        let next = Instant(clock.read(self.now).0 / period.0 * period.0 + period.0);
        let within = Nanos(self.tcp_dice.between(0, period.0 * 3 / 4));
        self.queue.schedule(clock.when(next + within), Event::Tcp(TcpAct::Write(number, end)));
    }

    /// A program's request has reached its host: what it has written so far is there for the next period.
    pub(super) fn notified_tcp(&mut self, number: usize, end: usize, now: Instant) {
        if end == 1 || self.conversations[number].promise.is_none() {
            return;
        }
        let [from, to] = self.conversations[number].plan.hosts;
        let link = usize::from(self.conversations[number].plan.links[0]);
        let travels = self.scenario.hosts[from].config.links[link].propagation_max;
        let reaction = self.scenario.hosts[to].config.cpu.release_latency;
        let clocks = [self.hosts[from].clock, self.hosts[to].clock];
        if let Some(promise) = &mut self.conversations[number].promise {
            promise.notified(now, clocks, travels + reaction);
        }
    }

    fn close_tcp(&mut self, number: usize, end: usize) {
        self.conversations[number].streams[end].close();
        self.note_tcp(number, end, TcpMoment::Closed);
        self.ask_tcp(TcpCall::Close(number, end));
        self.part_tcp(number, end);
    }

    /// A program that has closed and has seen the end of the other's bytes has no more to do: half of them let go.
    fn part_tcp(&mut self, number: usize, end: usize) {
        let talk = &mut self.conversations[number];
        let is_done = talk.streams[end].is_closed() && talk.streams[1 - end].has_ended();
        if is_done && !talk.ends[end].is_released && self.tcp_dice.between(0, 1) == 0 {
            talk.ends[end].is_released = true;
            self.ask_tcp(TcpCall::Release(number, end));
        }
    }

    /// The endsystem has handed a program some bytes.
    pub(in crate::world) fn read_tcp(&mut self, message: Delivered) {
        let (number, end) = of_key(message.inbox);
        let Some(talk) = self.conversations.get_mut(number) else { return };
        let state = &mut talk.ends[end];
        if state.is_released {
            return;
        }
        match talk.plan.reads[end] {
            Reads::AtOnce => self.consume(number, end, message),
            Reads::After(most) => {
                state.unread.push_back(message);
                self.soon_tcp(most, TcpAct::Read(number, end));
            }
        }
    }

    pub(super) fn read_oldest(&mut self, number: usize, end: usize) {
        if let Some(message) = self.conversations[number].ends[end].unread.pop_front() {
            self.consume(number, end, message);
        }
    }

    /// A program reads a message: an empty one is the end.
    fn consume(&mut self, number: usize, end: usize, message: Delivered) {
        let talk = &mut self.conversations[number];
        let is_clean = talk.ends[end].ended.is_none_or(|ended| ended == Ended::Closed);
        let bytes = message.bytes();
        let stream = &mut talk.streams[1 - end];
        let misread = self.options.sabotage.tcp_misread;
        let wrong = if bytes.is_empty() {
            stream.end(is_clean)
        } else if misread.0 > 0 && self.fault_dice.chance(misread) {
            let mut other = bytes.to_vec();
            other[0] ^= 1;
            stream.take(&other)
        } else {
            stream.take(bytes)
        };
        self.outcome.tcp.bytes += bytes.len() as u64;
        let (read, written) = (stream.read(), stream.written());
        if let Some(wrong) = wrong {
            let what = format!("connection {number}, to end {end}: {wrong} ({:?})", talk.plan);
            talk.excuse.get_or_insert("its bytes are wrong");
            self.violate(&what);
        }
        if end == 1 {
            self.judge_promise(number, read);
            let is_waiting = self.conversations[number].promise.as_ref().is_some_and(|it| !it.is_on());
            if is_waiting && read == written {
                self.soon_tcp(STEP_MAX, TcpAct::Write(number, 0));
            }
        }
        drop(message);
        self.ask_tcp(TcpCall::Ready(number, end));
        self.part_tcp(number, end);
    }

    /// Judges the promise of a guaranteed connection, where nothing has disturbed it.
    fn judge_promise(&mut self, number: usize, read: u64) {
        let hosts = self.conversations[number].plan.hosts;
        let is_clean = self.touches.is_empty()
            && self.scenario.faults.is_none()
            && self.scenario.tcp.faults.is_none()
            && hosts.iter().all(|host| self.hosts[*host].has_been_well());
        let talk = &mut self.conversations[number];
        let Some(promise) = &mut talk.promise else { return };
        let (judged, late) = promise.read(read, self.now);
        if !is_clean {
            return;
        }
        self.outcome.tcp.periods += judged;
        if let Some(late) = late {
            let what = format!("connection {number}: data of a period is read {late} ({:?})", talk.plan);
            self.violate(&what);
        }
    }

    /// Plans what breaks a connection.
    pub(super) fn plan_break(&mut self, number: usize) {
        if let Ending::Aborted { at, .. } | Ending::Left { at, .. } = self.conversations[number].plan.ending {
            self.queue.schedule(at.max(self.now), Event::Tcp(TcpAct::Break(number)));
        }
    }

    /// A program aborts, or is gone: what comes now need not be whole.
    pub(super) fn break_tcp(&mut self, number: usize) {
        let talk = &mut self.conversations[number];
        let (end, aborts) = match talk.plan.ending {
            Ending::Aborted { by_server, .. } => (usize::from(by_server), true),
            Ending::Left { by_server, .. } => (usize::from(by_server), false),
            Ending::Closed => return,
        };
        if talk.ends[end].index.is_none() || talk.ends[end].is_released {
            return;
        }
        talk.excuse.get_or_insert("a program broke it");
        talk.streams[end].close();
        talk.ends[end].is_released = true;
        talk.ends[end].unread.clear();
        let call = if aborts { TcpCall::Abort(number, end) } else { TcpCall::Release(number, end) };
        self.ask_tcp(call);
    }
}
