//! Joins the logs of a stream's two ends: which messages were late, lost or delivered.

use std::collections::HashMap;

use punctual_analysis::suggest::Packets;
use punctual_analysis::{Contract, Instant, Nanos};
use serde::Serialize;

use super::latency::LatencySummary;
use super::throughput::mbit_per_s;
use super::{Latencies, ReceiveLog, Received, SendLog, Sent, Throughput, Windows};
use crate::excuse::Excuses;

/// Which figures of a stream are requested.
pub struct Question<'a> {
    /// Contract of the stream; `None` for best effort.
    pub contract: Option<&'a Contract>,
    /// The platform's holes.
    pub excuses: &'a Excuses,
    /// Only messages sent in here are counted and judged.
    pub judged: &'a Windows,
    /// When its system was loaded: the time axis of the throughput.
    pub loaded: &'a Windows,
    /// When rates are measured: steady state within `loaded`.
    pub steady: &'a Windows,
}

/// A miss that no hole excuses, with the last hole before it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Miss {
    /// Which message.
    pub sequence: u64,
    /// The lateness beyond the bound, in ms.
    pub excess_ms: f64,
    /// The kind of miss.
    pub kind: MissKind,
    /// How long before its logical arrival the last hole had ended, in ms.
    pub after_hole_ms: Option<f64>,
    /// How long that hole was, in ms.
    pub hole_ms: Option<f64>,
}

/// The kinds of misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissKind {
    /// The message came after its bound.
    Late,
    /// The message was accepted at the sender and never arrived complete.
    Lost,
    /// The message kept its contract and was refused at the sender.
    Refused,
}

/// Maximum number of misses that are reported one by one.
const MISSES_REPORTED_MAX: usize = 10;

/// The results of a stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamSummary {
    /// Messages that the application made.
    pub offered: u64,
    /// Messages among these that were not taken, whatever the reason.
    pub refused: u64,
    /// Messages among these that were guaranteed and kept their contract: misses. The others were policed, or
    /// are best effort that met a full queue.
    pub refused_conforming: u64,
    /// Delivered.
    pub delivered: u64,
    /// Accepted at the sender and never delivered.
    pub lost: u64,
    /// Messages that differ from what was sent.
    pub damaged: u64,
    /// Guaranteed messages late, lost, damaged, or refused though they kept their contract: all of them, excused or not.
    pub misses: u64,
    /// Misses among these that a platform hole excuses.
    pub excused: u64,
    /// Latencies from the logical arrival (guaranteed) or from sending (best effort).
    pub latency: LatencySummary,
    /// Latencies from sending. They include the wait of an early message for its logical arrival.
    pub from_sending: LatencySummary,
    /// The lateness of the worst unexcused miss beyond its bound, in ms.
    pub worst_excess_ms: f64,
    /// The first of the misses that no hole excuses.
    pub unexcused_misses: Vec<Miss>,
    /// The load that the application offered in steady state, Mbit/s of payload.
    pub offered_mbit_s: f64,
    /// The rate that the contract reserves, Mbit/s of payload.
    pub reserved_mbit_s: Option<f64>,
    /// The delivered rate in steady state, Mbit/s of payload, by the time of delivery.
    pub delivered_mbit_s: f64,
    /// The same with every header, as the link counts it.
    pub delivered_wire_mbit_s: f64,
    /// The delivered part of what was due in steady state, Mbit/s of payload: guaranteed streams by their
    /// logical arrival, others by the time of delivery.
    pub due_mbit_s: f64,
    /// Delivered against min(offered, reserved), window by window; guaranteed streams by logical arrival.
    pub delivered_ratio: f64,
    /// For plots.
    #[serde(skip)]
    pub latencies: Latencies,
    #[serde(skip)]
    since_sent: Latencies,
    /// For plots: by time of delivery, slices laid end to end.
    #[serde(skip)]
    pub throughput: Throughput,
}

impl StreamSummary {
    /// Joins the two logs.
    pub fn new(sent: &SendLog, received: &ReceiveLog, question: &Question<'_>) -> Self {
        let mut summary = Self::default();
        let arrivals: HashMap<u64, &Received> = received.iter().map(|one| (one.sequence, one)).collect();
        let mut rates = Rates::new(question);
        for message in sent {
            rates.offered(message, question);
            let arrival = arrivals.get(&message.sequence).copied().filter(|_| message.taken);
            if let Some(arrival) = arrival {
                rates.delivered(message, arrival.delivered, question);
                if let Some(position) = question.loaded.position(arrival.delivered) {
                    summary.throughput.record(position, u64::from(arrival.bytes));
                }
            }
            if question.judged.index(message.sent).is_some() {
                summary.count(message, arrival, question);
            }
        }
        summary.latency = summary.latencies.summary();
        summary.from_sending = summary.since_sent.summary();
        rates.finish(&mut summary, question);
        summary
    }

    fn count(&mut self, message: &Sent, arrival: Option<&Received>, question: &Question<'_>) {
        self.offered += 1;
        if !message.taken {
            self.refused += 1;
            if question.contract.is_some() && message.conforms {
                self.refused_conforming += 1;
                self.miss(message, (MissKind::Refused, Nanos::ZERO), message.sent, question.excuses);
            }
            return;
        }
        match arrival {
            Some(arrival) => {
                self.delivered += 1;
                self.damaged += u64::from(!arrival.intact);
                self.latencies.record(arrival.delivered.since(message.logical));
                self.since_sent.record(arrival.delivered.since(message.sent));
            }
            None => self.lost += 1,
        }
        if let Some(contract) = question.contract {
            let due = message.logical + contract.deadline;
            let whole = arrival.filter(|one| one.intact).map(|one| one.delivered);
            self.judge(message, due, whole, question.excuses);
        }
    }

    /// `delivered`: `None` if it never came whole; it is judged as if it had come right after its bound.
    fn judge(&mut self, message: &Sent, due: Instant, delivered: Option<Instant>, excuses: &Excuses) {
        let at = delivered.unwrap_or(due + Nanos(1));
        let excess = at.since(due);
        if excess > Nanos::ZERO {
            let kind = if delivered.is_some() { MissKind::Late } else { MissKind::Lost };
            self.miss(message, (kind, excess), at, excuses);
        }
    }

    /// `at`: when it was delivered, or refused. A message that was refused arrived just then: only a hole at that time, or the
    /// backlog of one, excuses it.
    fn miss(&mut self, message: &Sent, (kind, excess): (MissKind, Nanos), at: Instant, excuses: &Excuses) {
        self.misses += 1;
        let arrived = message.logical.min(at);
        if excuses.covers(arrived, at) {
            self.excused += 1;
            return;
        }
        self.worst_excess_ms = self.worst_excess_ms.max(excess.as_millis_f64());
        if self.unexcused_misses.len() < MISSES_REPORTED_MAX {
            let hole = excuses.last_before(arrived);
            self.unexcused_misses.push(Miss {
                sequence: message.sequence,
                excess_ms: excess.as_millis_f64(),
                kind,
                after_hole_ms: hole.map(|hole| arrived.since(hole.end).as_millis_f64()),
                hole_ms: hole.map(|hole| hole.length().as_millis_f64()),
            });
        }
    }

    /// Messages that were to come and never did: lost, or refused though they kept their contract.
    pub const fn never_came(&self) -> u64 {
        self.lost + self.refused_conforming
    }

    /// (latency in ms, share of messages later than that), falling; a message that never came is later than
    /// any.
    pub fn exceedance(&self) -> Vec<(f64, f64)> {
        self.latencies.exceedance(self.never_came())
    }

    /// The same with latencies from sending.
    pub fn exceedance_from_sending(&self) -> Vec<(f64, f64)> {
        self.since_sent.exceedance(self.never_came())
    }

    /// Messages that are judged: what broke the contract and was refused is policed.
    pub const fn judged(&self) -> u64 {
        self.offered - self.refused + self.refused_conforming
    }

    /// Misses that no hole excuses.
    pub const fn unexcused(&self) -> u64 {
        self.misses - self.excused
    }
}

/// Bytes in each window of steady state.
struct Rates {
    offered: Vec<u64>,
    /// Delivered bytes, by logical arrival if there is one.
    matched: u64,
    /// Delivered, by the time of delivery.
    delivered: u64,
    delivered_wire: u64,
}

impl Rates {
    fn new(question: &Question<'_>) -> Self {
        let offered = vec![0; question.steady.spans().len()];
        Self { offered, matched: 0, delivered: 0, delivered_wire: 0 }
    }

    fn offered(&mut self, message: &Sent, question: &Question<'_>) {
        if let Some(window) = question.steady.index(message.sent) {
            self.offered[window] += u64::from(message.bytes);
        }
    }

    /// For the comparison with the expected amount, guaranteed messages count at their logical arrival:
    /// delivery is promised a constant time later, so a window of whole intervals contains a whole number of
    /// messages.
    fn delivered(&mut self, message: &Sent, delivered: Instant, question: &Question<'_>) {
        let bytes = u64::from(message.bytes);
        let due = if question.contract.is_some() { message.logical } else { delivered };
        if question.steady.index(due).is_some() {
            self.matched += bytes;
        }
        if question.steady.index(delivered).is_some() {
            self.delivered += bytes;
            self.delivered_wire += wire_bytes(bytes);
        }
    }

    /// Offered bytes, but in each window at most those reserved for its length.
    fn expected(&self, question: &Question<'_>) -> f64 {
        let windows = self.offered.iter().zip(question.steady.spans());
        let least = |(&offered, &(from, until)): (&u64, &(Instant, Instant))| {
            let reserved = question.contract.map(|contract| reserved_bytes(contract, until.since(from)));
            reserved.unwrap_or(f64::MAX).min(offered as f64)
        };
        windows.map(least).sum()
    }

    fn finish(&self, summary: &mut StreamSummary, question: &Question<'_>) {
        let span = question.steady.total();
        summary.offered_mbit_s = mbit_per_s(self.offered.iter().sum(), span);
        summary.delivered_mbit_s = mbit_per_s(self.delivered, span);
        summary.due_mbit_s = mbit_per_s(self.matched, span);
        summary.delivered_wire_mbit_s = mbit_per_s(self.delivered_wire, span);
        summary.reserved_mbit_s =
            question.contract.map(|contract| reserved_bytes(contract, Nanos::from_secs(1)) * 8e-6);
        let expected = self.expected(question);
        summary.delivered_ratio = if expected > 0.0 { self.matched as f64 / expected } else { 1.0 };
    }
}

/// The wire bytes of a message of `bytes`.
pub fn wire_bytes(bytes: u64) -> u64 {
    let packets = Packets::default();
    bytes + bytes.div_ceil(u64::from(packets.fragment_bytes)).max(1) * u64::from(packets.overhead_bytes)
}

/// What S * R is in `span`.
fn reserved_bytes(contract: &Contract, span: Nanos) -> f64 {
    f64::from(contract.message_bytes_max) * contract.rate_max.as_per_second_f64() * span.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use punctual_analysis::{Ppm, Rate};

    use super::*;
    use crate::excuse::Hole;

    const MS: u64 = 1_000_000;

    fn contract() -> Contract {
        Contract::new(1_000, Rate::per_second(100).unwrap(), 1, Nanos::from_millis(10)).unwrap()
    }
    fn sent(sequence: u64, taken: bool) -> Sent {
        let at = Instant((100 + sequence * 10) * MS);
        Sent { sequence, sent: at, logical: at, bytes: 1_000, taken, conforms: true }
    }
    fn received(sequence: u64, latency_ms: u64) -> Received {
        let delivered = Instant((100 + sequence * 10 + latency_ms) * MS);
        Received { sequence, delivered, bytes: 1_000, intact: true }
    }
    fn ask(
        sends: &SendLog,
        receives: &ReceiveLog,
        holes: &[Hole],
        contract: Option<&Contract>,
    ) -> StreamSummary {
        let mut windows = Windows::default();
        windows.push(Instant(100 * MS), Instant(150 * MS));
        let excuses = Excuses::new(holes, Ppm(0));
        let question =
            Question { contract, excuses: &excuses, judged: &windows, loaded: &windows, steady: &windows };
        StreamSummary::new(sends, receives, &question)
    }

    #[test]
    fn late_lost_and_damaged_messages_are_misses() {
        let policed = Sent { conforms: false, ..sent(4, false) };
        let sends = (0..4).map(|sequence| sent(sequence, true)).chain([policed]).collect();
        let mut receives = vec![received(0, 10), received(1, 11), received(3, 2)];
        receives[2].intact = false;
        let summary = ask(&sends, &receives, &[], Some(&contract()));
        assert_eq!((summary.offered, summary.refused, summary.delivered), (5, 1, 3));
        assert_eq!((summary.lost, summary.damaged), (1, 1));
        assert_eq!(summary.misses, 3, "1 is late, 2 is lost, 3 is damaged, 4 was policed");
        assert_eq!((summary.unexcused(), summary.judged(), summary.refused_conforming), (3, 4, 0));
        assert!((summary.worst_excess_ms - 1.0).abs() < 1e-9);
        let reported: Vec<_> =
            summary.unexcused_misses.iter().map(|miss| (miss.sequence, miss.kind)).collect();
        assert_eq!(reported, [(1, MissKind::Late), (2, MissKind::Lost), (3, MissKind::Lost)]);
    }

    #[test]
    fn a_conforming_message_that_is_refused_is_a_miss_unless_a_hole_is_there() {
        let sends = vec![sent(0, false), sent(1, true), sent(2, false)];
        let receives = vec![received(1, 1)];
        let hole = Hole { start: Instant(118 * MS), end: Instant(121 * MS) };
        let summary = ask(&sends, &receives, &[hole], Some(&contract()));
        assert_eq!((summary.refused, summary.refused_conforming, summary.judged()), (2, 2, 3));
        assert_eq!((summary.misses, summary.excused), (2, 1), "the hole was at 2, not at 0");
        let [miss] = &summary.unexcused_misses[..] else { panic!("{:?}", summary.unexcused_misses) };
        assert_eq!((miss.sequence, miss.kind, miss.excess_ms), (0, MissKind::Refused, 0.0));
        let best_effort = ask(&sends, &receives, &[], None);
        assert_eq!((best_effort.misses, best_effort.refused_conforming), (0, 0));
    }

    #[test]
    fn only_its_own_hole_excuses_a_message() {
        let sends = vec![sent(0, true), sent(1, true)];
        let receives = vec![received(0, 30), received(1, 30)];
        let hole = Hole { start: Instant(101 * MS), end: Instant(105 * MS) };
        let summary = ask(&sends, &receives, &[hole], Some(&contract()));
        assert_eq!((summary.misses, summary.excused), (2, 1));
    }

    #[test]
    fn rates_in_steady_state() {
        // 5 messages of 1000 B in 50 ms.
        let sends = (0..5).map(|sequence| sent(sequence, true)).collect();
        let receives = (0..4).map(|sequence| received(sequence, 1)).collect();
        let summary = ask(&sends, &receives, &[], Some(&contract()));
        assert!((summary.offered_mbit_s - 0.8).abs() < 1e-9, "{summary:?}");
        assert!((summary.delivered_mbit_s - 0.64).abs() < 1e-9);
        assert!((summary.due_mbit_s - 0.64).abs() < 1e-9);
        assert_eq!(wire_bytes(1_401), 1_401 + 2 * 130);
        assert!((summary.reserved_mbit_s.unwrap() - 0.8).abs() < 1e-9);
        assert!((summary.delivered_ratio - 0.8).abs() < 1e-9);
    }

    #[test]
    fn what_is_offered_beyond_the_contract_is_not_expected() {
        // 200 messages a second where 100 are reserved: every other one is refused.
        let half = |n: u64| {
            let taken = n.is_multiple_of(2);
            Sent { sent: Instant((100 + n * 5) * MS), conforms: taken, ..sent(n / 2, taken) }
        };
        let sends = (0..10).map(half).collect();
        let receives = (0..5).map(|sequence| received(sequence, 1)).collect();
        let summary = ask(&sends, &receives, &[], Some(&contract()));
        assert!((summary.offered_mbit_s - 1.6).abs() < 1e-9, "{summary:?}");
        assert!((summary.delivered_ratio - 1.0).abs() < 1e-9, "{summary:?}");
        assert_eq!((summary.refused, summary.misses), (5, 0));
    }

    #[test]
    fn best_effort_has_no_misses() {
        let sends = vec![sent(0, true), sent(1, true)];
        let summary = ask(&sends, &vec![received(0, 500)], &[], None);
        assert_eq!((summary.misses, summary.lost), (0, 1));
    }
}
