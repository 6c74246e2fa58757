//! The checker's record of one channel: every message with an independent computation of its promise.
//!
//! Logical arrivals are computed here from the send times alone, never taken from the node.

use std::collections::VecDeque;

use punctual_analysis::{Contract, Instant, Nanos, Policing};
use punctual_proto::memory::MessageInfo;

use crate::memory::Content;
use crate::silence::{SentMessage, Silence};
use crate::time::{HostClock, SimTime};

/// Part of the interval by which a logical arrival may be closer to the previous one, to catch up after
/// lateness.
const MADE_UP: u64 = 256;

/// Whether messages keep the contract, on the source's clock: at most B + R * (t + a) in any time t, a the jitter
/// allowance and R 1/255 more than the contract's.
#[derive(Clone, Copy, Debug)]
pub struct Conformance {
    spacing: Nanos,
    tolerance: Nanos,
    last: Option<Instant>,
    mean: Option<Mean>,
}

/// The mean of a soft contract: at most 1 + (t + over) / interval messages in any time t.
#[derive(Clone, Copy, Debug)]
struct Mean {
    interval: Nanos,
    over: Nanos,
    /// Time at which the messages so far would have arrived at the mean rate, the next one included.
    due: Instant,
}

impl Conformance {
    /// The state before the first message.
    pub fn new(contract: &Contract) -> Self {
        let interval = contract.interval();
        let tolerance = interval * u64::from(contract.burst_messages_max - 1) + contract.jitter_allowance();
        let mean = contract.statistical.map(|soft| Mean {
            interval: soft.mean_rate.interval(),
            over: soft.mean_over,
            due: Instant::ZERO,
        });
        let spacing = Nanos(interval.0 - interval.0 / MADE_UP);
        Self { spacing, tolerance, last: None, mean }
    }

    /// l of a message sent at `sent`.
    pub fn logical(&self, sent: Instant) -> Instant {
        self.free().max(sent)
    }

    /// The earliest l of another message.
    fn free(&self) -> Instant {
        let peak = self.last.map_or(Instant::ZERO, |last| last + self.spacing);
        self.mean.map_or(peak, |mean| peak.max(mean.due - mean.over))
    }

    /// Whether a message sent at `sent` keeps the contract.
    pub fn conforms(&self, sent: Instant) -> bool {
        self.logical(sent).since(sent) <= self.tolerance
    }

    /// Counts a message sent at `sent`.
    pub fn accept(&mut self, sent: Instant) -> Instant {
        let logical = self.logical(sent);
        self.last = Some(logical);
        if let Some(mean) = &mut self.mean {
            mean.due = mean.due.max(logical) + mean.interval;
        }
        logical
    }

    /// The earliest time at which another message conforms.
    pub fn earliest(&self) -> Instant {
        self.free() - self.tolerance
    }

    /// The earliest time at which a burst of B conforms.
    pub fn earliest_burst(&self) -> Instant {
        self.free()
    }
}

/// Age at which messages are settled: faults, and all their after-effects, are shorter.
const SETTLED: Nanos = Nanos::from_secs(20);

#[derive(Clone, Copy, Debug)]
struct Message {
    len: u32,
    sent: SimTime,
    due: SimTime,
    promised: bool,
    delivered: bool,
}

/// The verdict on a delivered message.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Index of the message in the order of sending.
    pub index: u64,
    /// Time from the logical arrival, in true time.
    pub latency: Nanos,
    /// Due time, if it has a promise.
    pub due: Option<SimTime>,
    /// Whether its logical arrival follows from its send times: nothing has delayed it at its source.
    pub is_known: bool,
    /// True if the message was delivered after its due time without an excuse.
    pub missed: bool,
    /// True if the message has a guarantee, and no fault affected it.
    pub counts: bool,
    /// A fault touched it.
    pub excused: bool,
    /// All violations by this message.
    pub wrong: Vec<String>,
}

impl Judgement {
    /// A message that cannot be judged.
    fn of(wrong: String) -> Self {
        Self { wrong: vec![wrong], ..Self::default() }
    }
}

/// The record of one channel.
#[derive(Clone, Debug)]
pub struct Ledger {
    key: u64,
    deadline: Nanos,
    policing: Policing,
    conformance: Conformance,
    /// Messages that are not settled; the number of the first is `first`.
    messages: VecDeque<Message>,
    first: u64,
    /// Times in which a fault may have effects.
    faults: Vec<(SimTime, SimTime)>,
    /// The same for forged message numbers, and the sink's silence after each such time.
    lies: Vec<(SimTime, SimTime)>,
    silences: Vec<Silence>,
    /// Time at which an end was closed: messages that are due later have no promise.
    closed: Option<SimTime>,
    last_in_order: Option<(u64, u64)>,
    /// For a soft channel: promised messages that are due, and those of them that missed.
    borne: Option<(u64, u64)>,
}

impl Ledger {
    /// A channel with the promised bound `deadline`; its messages begin with `key`.
    pub fn new(key: u64, contract: &Contract, deadline: Nanos) -> Self {
        Self {
            key,
            deadline,
            policing: contract.policing,
            conformance: Conformance::new(contract),
            messages: VecDeque::new(),
            first: 0,
            faults: Vec::new(),
            lies: Vec::new(),
            silences: Vec::new(),
            closed: None,
            last_in_order: None,
            borne: contract.statistical.map(|_| (0, 0)),
        }
    }

    /// The contract's limits for the sender.
    pub fn conformance(&self) -> &Conformance {
        &self.conformance
    }

    /// Index of the next message.
    pub fn next_index(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    fn message(&self, index: u64) -> Option<&Message> {
        self.messages.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    /// Drops messages whose due time is so old that no further report can concern them; returns those that
    /// were lost.
    pub fn settle(&mut self, now: SimTime) -> Vec<(u64, SimTime)> {
        let settled = self.messages.iter().take_while(|message| message.due + SETTLED < now).count();
        if settled == 0 {
            return Vec::new();
        }
        let lost = self.lost_among(settled, now);
        self.silences = self.silences_before(settled).filter(|silence| !silence.is_over()).collect();
        self.messages.drain(..settled);
        self.first += settled as u64;
        lost
    }

    /// Records a message that entered the outgoing ring at `sent`, when the source's `clock` showed `stamp`.
    /// A message beyond the contract has no logical arrival if policing drops or demotes it; if policing
    /// delays it, it has one and the promise counts from there.
    pub fn record(&mut self, sent: SimTime, stamp: Instant, len: u32, clock: &HostClock) -> u64 {
        let promised = self.policing == Policing::Delay || self.conformance.conforms(stamp);
        let logical = if promised { self.conformance.accept(stamp) } else { stamp };
        let due = clock.when(logical) + self.deadline;
        self.messages.push_back(Message { len, sent, due, promised, delivered: false });
        self.next_index() - 1
    }

    /// A fault touches this channel from `from` until `until`, and may have effects for D + `recovery` after
    /// that.
    pub fn excuse(&mut self, from: SimTime, until: SimTime, recovery: Nanos) {
        let (from, until) = self.felt(from, until, recovery);
        match self.faults.last_mut() {
            Some((first, last)) if *last >= from && *first <= from => *last = until.max(*last),
            _ => self.faults.push((from, until)),
        }
    }

    /// The same for forged message numbers: the sink's silence afterwards excuses further messages.
    pub fn excuse_numbers(&mut self, from: SimTime, until: SimTime, recovery: Nanos) {
        self.lies.push(self.felt(from, until, recovery));
        self.silences.push(Silence::new(until));
    }

    /// Messages that are due from a fault's beginning on may be affected by it (ADR 0015).
    fn felt(&self, from: SimTime, until: SimTime, recovery: Nanos) -> (SimTime, SimTime) {
        (from, until + self.deadline + recovery)
    }

    /// Counts messages of a soft channel that were lost.
    pub fn bear(&mut self, lost: u64) {
        if let Some((judged, missed)) = &mut self.borne {
            (*judged, *missed) = (*judged + lost, *missed + lost);
        }
    }

    /// Promised messages of a soft channel that were delivered or lost, and those of them that missed.
    pub fn borne(&self) -> (u64, u64) {
        self.borne.unwrap_or_default()
    }

    /// One of the ends is closed from `at` on.
    pub fn close(&mut self, at: SimTime) {
        self.closed.get_or_insert(at);
    }

    fn excused(&self, message: &Message) -> bool {
        under_way(message, &self.faults) || under_way(message, &self.lies)
    }

    /// Whether a sink's silence may hide the unsettled message at this place.
    fn may_be_missed(&self, place: usize) -> bool {
        let sent_message = self.sent_message(&self.messages[place]);
        self.silences_before(place).any(|mut silence| silence.may_miss(sent_message))
    }

    /// State of the silences when the message at `place` arrives.
    fn silences_before(&self, place: usize) -> impl Iterator<Item = Silence> {
        self.silences.iter().map(move |silence| {
            let mut silence = *silence;
            for message in self.messages.iter().take(place) {
                if silence.is_over() {
                    break;
                }
                silence.may_miss(self.sent_message(message));
            }
            silence
        })
    }

    fn sent_message(&self, message: &Message) -> SentMessage {
        let Message { sent, promised, delivered, .. } = *message;
        SentMessage { sent, promised, delivered, touched: under_way(message, &self.faults) }
    }

    fn forfeited(&self, message: &Message) -> bool {
        self.closed.is_some_and(|closed| message.due >= closed)
    }

    /// Judges a delivery at `now`.
    pub fn deliver(
        &mut self,
        now: SimTime,
        info: &MessageInfo,
        bytes: &[u8],
        clock: &HostClock,
    ) -> Judgement {
        let Some(content) = Content::read(bytes) else {
            return Judgement::of(format!("delivered {} B, less than any message has", bytes.len()));
        };
        let found = self.message(content.index).copied();
        let Some(message) = found.filter(|_| content.key == self.key) else {
            return Judgement::of(format!(
                "message {content:?} was never sent on it: misdelivered or altered"
            ));
        };
        let mut wrong = Vec::new();
        self.check_content(&message, content, bytes, &mut wrong);
        self.judge(now, info, (content.index, message), clock, wrong)
    }

    /// Judges the delivery of the message of this index, whose bytes are right.
    pub fn deliver_index(
        &mut self,
        now: SimTime,
        info: &MessageInfo,
        index: u64,
        clock: &HostClock,
    ) -> Judgement {
        match self.message(index).copied() {
            Some(message) => self.judge(now, info, (index, message), clock, Vec::new()),
            None => Judgement::of(format!("message {index} comes long after it was due")),
        }
    }

    fn judge(
        &mut self,
        now: SimTime,
        info: &MessageInfo,
        (index, message): (u64, Message),
        clock: &HostClock,
        wrong: Vec<String>,
    ) -> Judgement {
        let mut judgement = Judgement { index, wrong, ..Judgement::default() };
        judgement.latency = now.since(message.due - self.deadline);
        judgement.excused = self.excused(&message);
        judgement.counts = message.promised && !judgement.excused && !self.forfeited(&message);
        if let Some((judged, missed)) = self.borne.as_mut().filter(|_| judgement.counts) {
            // A message that misses is not counted as well.
            judgement.counts = now <= message.due && !info.demoted;
            (*judged, *missed) = (*judged + 1, *missed + u64::from(!judgement.counts));
        }
        judgement.due = Some(message.due).filter(|_| message.promised);
        judgement.is_known = !info.unpromised;
        judgement.missed = judgement.counts && now > message.due;
        if judgement.counts {
            check_promise(&message, now, info, clock, &mut judgement.wrong);
        }
        self.check_order(index, info, judgement.excused, &mut judgement.wrong);
        if let Some(message) = self.messages.get_mut((index - self.first) as usize) {
            message.delivered = true;
        }
        judgement
    }

    fn check_content(&self, message: &Message, content: Content, bytes: &[u8], wrong: &mut Vec<String>) {
        if message.delivered {
            wrong.push(format!("#{} delivered twice", content.index));
        }
        if message.len as usize != bytes.len() {
            wrong.push(format!("#{} has {} B, sent were {} B", content.index, bytes.len(), message.len));
        }
        if let Some(at) = content.first_difference(bytes) {
            wrong.push(format!("#{} altered at byte {at}", content.index));
        }
    }

    fn check_order(&mut self, index: u64, info: &MessageInfo, excused: bool, wrong: &mut Vec<String>) {
        // A message touched by a fault may have any number; the following one is compared with the previous
        // one.
        if info.demoted || excused {
            return;
        }
        if let Some((last, number)) = self.last_in_order {
            if index <= last {
                wrong.push(format!("#{index} delivered after #{last}"));
            }
            if info.number <= number {
                wrong.push(format!("#{index} has number {}, one before had {number}", info.number));
            }
        }
        self.last_in_order = Some((index, info.number));
    }

    /// Promised messages that were due before `now` and were never delivered, without excuse: index and due
    /// time.
    pub fn lost(&self, now: SimTime) -> Vec<(u64, SimTime)> {
        self.lost_among(self.messages.len(), now)
    }

    fn lost_among(&self, first: usize, now: SimTime) -> Vec<(u64, SimTime)> {
        (self.messages.iter().take(first).enumerate())
            .filter(|(_, m)| {
                m.promised && m.due < now && !m.delivered && !self.excused(m) && !self.forfeited(m)
            })
            .filter(|(place, _)| !self.may_be_missed(*place))
            .map(|(place, m)| (self.first + place as u64, m.due))
            .collect()
    }
}

/// Whether a message was under way in one of these times.
fn under_way(message: &Message, times: &[(SimTime, SimTime)]) -> bool {
    times.iter().any(|&(from, until)| message.sent <= until && message.due >= from)
}

fn check_promise(
    message: &Message,
    now: SimTime,
    info: &MessageInfo,
    clock: &HostClock,
    wrong: &mut Vec<String>,
) {
    if now > message.due {
        wrong.push(format!(
            "message {} is late by {}: due {}",
            info.number,
            now.since(message.due),
            message.due
        ));
    }
    if info.demoted {
        wrong.push(format!("message {} keeps its contract and was demoted", info.number));
    }
    if info.delivered != clock.read(now) {
        wrong.push(format!("message {}: its time of delivery is not the host's time", info.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_analysis::Rate;

    const CLOCK: HostClock = HostClock::new(0, 0);

    fn contract(policing: Policing) -> Contract {
        Contract {
            message_bytes_max: 64,
            rate_max: Rate::every(Nanos(100)).expect("not zero"),
            burst_messages_max: 2,
            deadline: Nanos(50),
            policing,
            delivery: Default::default(),
            horizon: Default::default(),
            activation: Default::default(),
            late: Default::default(),
            flow: None,
            statistical: None,
            jitter: Some(Nanos::ZERO),
        }
    }

    fn send(ledger: &mut Ledger, at: u64) -> u64 {
        ledger.record(SimTime(at), Instant(at), 20, &CLOCK)
    }

    fn deliver(ledger: &mut Ledger, index: u64, at: u64, logical: u64) -> Judgement {
        let mut bytes = [0; 20];
        Content { key: 5, index }.write(0, &mut bytes);
        let info = MessageInfo {
            number: index,
            len: 20,
            logical_arrival: Instant(logical),
            delivered: Instant(at),
            ..MessageInfo::default()
        };
        ledger.deliver(SimTime(at), &info, &bytes, &CLOCK)
    }

    #[test]
    fn a_burst_waits_for_itself_and_is_judged_from_its_logical_arrival() {
        let mut ledger = Ledger::new(5, &contract(Policing::Drop), Nanos(50));
        assert_eq!((send(&mut ledger, 1_000), send(&mut ledger, 1_000)), (0, 1));
        assert!(!ledger.conformance().conforms(Instant(1_000)), "B is 2");
        assert_eq!(ledger.conformance().earliest(), Instant(1_100));
        assert_eq!(ledger.conformance().earliest_burst(), Instant(1_200));
        assert!(deliver(&mut ledger, 0, 1_050, 1_000).wrong.is_empty());
        let last = deliver(&mut ledger, 1, 1_151, 1_100);
        assert!(last.missed && last.wrong.len() == 1, "{last:?}");
    }

    #[test]
    fn excess_is_not_promised_unless_it_is_delayed() {
        for (policing, lost) in [(Policing::Drop, 2), (Policing::Demote, 2), (Policing::Delay, 3)] {
            let mut ledger = Ledger::new(5, &contract(policing), Nanos(50));
            for _ in 0..3 {
                send(&mut ledger, 0);
            }
            assert_eq!(ledger.lost(SimTime(1_000)).len(), lost, "{policing:?}");
        }
    }

    #[test]
    fn twice_altered_reordered_and_foreign_messages_are_seen() {
        let mut ledger = Ledger::new(5, &contract(Policing::Delay), Nanos(50));
        for at in [0, 100, 200] {
            send(&mut ledger, at);
        }
        assert!(deliver(&mut ledger, 1, 110, 100).wrong.is_empty());
        assert!(!deliver(&mut ledger, 1, 111, 100).wrong.is_empty(), "twice");
        assert!(!deliver(&mut ledger, 0, 112, 0).wrong.is_empty(), "out of order, and late");
        assert!(!deliver(&mut ledger, 7, 113, 0).wrong.is_empty(), "never sent");
        let info =
            MessageInfo { number: 2, len: 20, logical_arrival: Instant(200), ..MessageInfo::default() };
        let mut bytes = [0; 20];
        Content { key: 5, index: 2 }.write(0, &mut bytes);
        bytes[19] ^= 4;
        let judged = ledger.deliver(SimTime(0), &info, &bytes, &CLOCK);
        assert!(judged.wrong.iter().any(|what| what.contains("byte 19")), "{judged:?}");
    }

    #[test]
    fn invented_numbers_excuse_three_messages_however_late_they_come_and_no_fourth() {
        let mut ledger = Ledger::new(5, &contract(Policing::Delay), Nanos(50));
        for at in [0, 1_000, 2_000, 30_000, 40_000, 50_000] {
            send(&mut ledger, at);
        }
        ledger.excuse_numbers(SimTime(990), SimTime(1_010), Nanos(100));
        let lost =
            |ledger: &Ledger| ledger.lost(SimTime(90_000)).iter().map(|lost| lost.0).collect::<Vec<_>>();
        assert_eq!(lost(&ledger), [0, 5]);
        assert!(deliver(&mut ledger, 3, 30_010, 30_000).counts, "what comes is judged");
        assert_eq!(lost(&ledger), [0, 4, 5], "the silence is over with it");
    }

    #[test]
    fn a_silence_outlives_what_is_settled() {
        let mut ledger = Ledger::new(5, &contract(Policing::Delay), Nanos(50));
        ledger.excuse_numbers(SimTime(0), SimTime(10), Nanos(100));
        for turn in 1..6 {
            send(&mut ledger, turn * 2 * SETTLED.0);
            let lost = ledger.settle(SimTime((turn * 2 + 1) * SETTLED.0 + 1_000));
            assert_eq!(lost.len(), usize::from(turn > 3), "message {turn}");
        }
    }

    #[test]
    fn a_fault_excuses_its_time_and_no_other() {
        let mut ledger = Ledger::new(5, &contract(Policing::Delay), Nanos(50));
        for at in [0, 1_000, 2_000] {
            send(&mut ledger, at);
        }
        ledger.excuse(SimTime(1_010), SimTime(1_010), Nanos(100));
        assert_eq!(ledger.lost(SimTime(9_000)).iter().map(|lost| lost.0).collect::<Vec<_>>(), [0, 2]);
        ledger.close(SimTime(2_020));
        assert_eq!(ledger.lost(SimTime(9_000)).len(), 1, "what is due after closing is forfeited");
    }

    #[test]
    fn what_was_due_before_a_fault_has_not_felt_it() {
        for (fault, lost) in [(1_049, 0), (1_050, 0), (1_051, 1)] {
            let mut ledger = Ledger::new(5, &contract(Policing::Delay), Nanos(50));
            send(&mut ledger, 1_000);
            ledger.excuse(SimTime(fault), SimTime(fault), Nanos(0));
            assert_eq!(ledger.lost(SimTime(9_000)).len(), lost, "due at 1050, fault at {fault}");
        }
    }
}
