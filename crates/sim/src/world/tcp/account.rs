//! What a handler of TCP may do, by an account of its calls that is independent of the node (RTU 3.2, 4.3).
//!
//! *Guaranteed*: no period has more units than B_p. *Low delay*, and guaranteed by windows: units run in their class by e + bound, where e keeps B in any
//! window of the interval; so all that ran in a time t was released in t + bound, which is at most ceil((t + bound) /
//! interval) windows of B each. Which calls ran in the class is what the executor has charged to the budget.
//! An input handler has the account of all programs' handlers besides: how late each packet was processed.

use std::collections::{BTreeMap, VecDeque};

use punctual_analysis::{Instant, Nanos};
use punctual_proto::api::{RtuActivation, RtuClass, RtuGrant, RtuTerms};

use crate::world::rtu::Body;

/// Calls that are remembered for the windows of a low-delay handler.
const CALLS_KEPT: usize = 64;

/// One call.
pub(super) struct Call {
    pub began: Instant,
    pub ended: Instant,
    /// Segments that it processed or made.
    pub units: u32,
    /// Whether there is more to do at once.
    pub more: bool,
    /// Units that the node has counted, within the budget and beyond.
    pub counted: [u64; 2],
    /// Packets that it has taken from the handler, within the budget and beyond; `None` for one that sends nothing.
    pub sent: Option<[u64; 2]>,
}

/// The account of one handler.
pub(super) struct Account {
    terms: RtuTerms,
    grant: RtuGrant,
    /// For input handlers: when packets came, and when they are due.
    body: Option<Body>,
    /// Whether all packets that wait are known: some of a connection that a listener has opened came by way of that.
    is_synced: bool,
    /// Begins of calls in the class, each with its units.
    calls: VecDeque<(Instant, u32)>,
    /// Begin of the present period, and units in it.
    period: (Instant, u32),
    counted: [u64; 2],
    sent: [u64; 2],
    /// Number of the next packet that the node takes.
    taken: u64,
    /// When packets must have left at the latest, by number.
    promised: BTreeMap<u64, Instant>,
}

impl Account {
    /// The account of a handler; `waits_from`: it is an input handler, all of whose packets are known from the start or not.
    pub fn new(terms: RtuTerms, grant: &RtuGrant, waits_from: Option<bool>) -> Self {
        let body = waits_from.map(|_| Body::silent(terms, grant.bound));
        Self {
            terms,
            grant: *grant,
            body,
            is_synced: waits_from.unwrap_or_default(),
            calls: VecDeque::new(),
            period: (Instant::ZERO, 0),
            counted: [0; 2],
            sent: [0; 2],
            taken: 0,
            promised: BTreeMap::new(),
        }
    }

    /// A packet was handed to the handler's connection.
    pub fn came(&mut self, now: Instant) -> Option<String> {
        let body = self.body.as_mut().filter(|_| self.is_synced)?;
        let wrong = body.roll(now);
        body.came(now);
        wrong
    }

    /// Judges a call.
    pub fn finish(&mut self, call: &Call) -> Option<String> {
        let within = call.counted[0] > self.counted[0];
        self.counted = call.counted;
        let late = self.judge_delay(call);
        let excess = if within { self.judge_budget(call) } else { None };
        self.note_packets(call, within).or(excess).or(late)
    }

    fn judge_delay(&mut self, call: &Call) -> Option<String> {
        let body = self.body.as_mut()?;
        if !self.is_synced {
            // With the last packet processed, the rest is known. Its budget may have been used up at this moment.
            self.is_synced = !call.more;
            if self.is_synced {
                *body = Body::silent(self.terms, self.grant.bound);
                body.use_up(call.ended);
            }
            return None;
        }
        let mut wrong = body.roll(call.ended);
        // A call that only hands on what an earlier one has processed is charged as one unit. A guaranteed handler has no
        // calls beyond its budget.
        if call.units == 0 && matches!(self.terms.class, RtuClass::Guaranteed { .. }) {
            body.use_one(call.ended);
        }
        for _ in 0..call.units {
            wrong = body.finish_unit(call.ended).or(wrong);
        }
        wrong
    }

    fn judge_budget(&mut self, call: &Call) -> Option<String> {
        let quantum = self.terms.quantum;
        if call.units > quantum {
            return Some(format!("has {} units in a call, b_p is {quantum}", call.units));
        }
        match self.terms.class {
            RtuClass::BestEffort => Some("is best effort and was charged to a budget".into()),
            RtuClass::Guaranteed { period, units, activation: RtuActivation::Periodic } => {
                let begin = Instant(call.began.0 - call.began.0 % period.0);
                if self.period.0 != begin {
                    self.period = (begin, 0);
                }
                self.period.1 += call.units;
                (self.period.1 > units).then(|| format!("has {} units in a period of {units}", self.period.1))
            }
            RtuClass::LowDelay { interval, units, .. }
            | RtuClass::Guaranteed { period: interval, units, activation: RtuActivation::Sporadic } => {
                self.judge_windows(call, interval, units)
            }
        }
    }

    fn judge_windows(&mut self, call: &Call, interval: Nanos, units: u32) -> Option<String> {
        if self.calls.len() == CALLS_KEPT {
            self.calls.pop_front();
        }
        self.calls.push_back((call.began, call.units));
        let bound = self.grant.bound?;
        let mut done = 0;
        for (began, count) in self.calls.iter().rev() {
            done += u64::from(*count);
            // Releases from `began` - bound to this call's begin, both included. A unit that comes while others wait is released
            // with the first of them.
            let span = call.began.since(*began) + bound * u64::from(units);
            let most = (span.0 / interval.0.max(1) + 1) * u64::from(units);
            if done > most {
                return Some(format!("has {done} units of its class from {began:?} to {:?}", call.began));
            }
        }
        None
    }

    /// Notes what the node has taken: packets of units in the class leave by the bound of the grant.
    fn note_packets(&mut self, call: &Call, within: bool) -> Option<String> {
        let sent = call.sent?;
        let [more, beyond] = [sent[0] - self.sent[0], sent[1] - self.sent[1]];
        self.sent = sent;
        let period = self.terms.class.periods();
        let release =
            period.map_or(call.began, |(period, _)| Instant(call.began.0 - call.began.0 % period.0));
        if let Some(span) = self.grant.sent {
            self.promised.extend((self.taken..self.taken + more).map(|number| (number, release + span)));
        }
        self.taken += more + beyond;
        (within && beyond > 0).then(|| format!("has sent {beyond} packets of its budget as best effort"))
    }

    /// A packet has left at `left`; how late, if it was promised to leave before.
    pub fn left(&mut self, number: u64, left: Instant) -> Option<Nanos> {
        let due = self.promised.remove(&number)?;
        (left > due).then(|| left.since(due))
    }

    /// Whether it has a promise for this packet.
    pub fn promises(&self, number: u64) -> bool {
        self.promised.contains_key(&number)
    }
}
