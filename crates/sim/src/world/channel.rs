//! One attempt to open a channel, and what becomes of it.

use punctual_proto::api::{CloseReason, Grant};
use punctual_proto::ids::{ChannelId, PathId};

use crate::ledger::Ledger;
use crate::memory::{InboxWatch, SimOutbox};
use crate::scenario::{ChannelPlan, node_id};
use crate::sender::Sender;
use crate::time::SimTime;

/// Where an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Signalling is under way.
    Asked,
    /// Admitted.
    Open,
    /// Refused.
    Refused,
    /// One end was closed; the other or the hops may not know yet.
    Closing,
    /// Both ends are gone.
    Closed,
}

/// One attempt.
pub(super) struct Channel {
    pub plan: ChannelPlan,
    pub state: State,
    pub source: Option<ChannelId>,
    pub sink: Option<ChannelId>,
    pub path: Option<PathId>,
    pub grant: Option<Grant>,
    pub outbox: Option<SimOutbox>,
    pub inbox: Option<InboxWatch>,
    /// What the agent was told to provide.
    pub inbox_messages: u32,
    pub ledger: Ledger,
    pub sender: Sender,
    pub source_gone: bool,
    pub sink_gone: bool,
    /// By host: the most slack that a packet may leave with.
    pub slack_max: Vec<(usize, i64)>,
    /// A fault has hit one of its packets: its counters prove nothing.
    pub faulty: bool,
    /// A fault touches its signalling: since when, and until when it may end by itself.
    pub shaky: Option<(SimTime, SimTime)>,
    /// Its source sends nothing until then.
    pub rests_until: SimTime,
    /// The plan that it follows.
    pub origin: usize,
    /// It is asked for alone, on an empty network, since it was admitted once.
    pub revived: bool,
    /// Its receiver has asked for it: the token that says so.
    pub token: Option<u64>,
    /// When it was asked for.
    pub asked_at: SimTime,
    /// It was over when somebody looked last.
    pub was_over: bool,
    /// When an end was first told that it is over, and why.
    pub ended_at: Option<(SimTime, CloseReason)>,
}

impl Channel {
    /// A fresh attempt; `key` leads its messages.
    pub fn new(plan: ChannelPlan, origin: usize, key: u64, sender: Sender, now: SimTime) -> Self {
        let ledger = Ledger::new(key, &plan.contract, plan.contract.deadline);
        Self {
            plan,
            state: State::Asked,
            source: None,
            sink: None,
            path: None,
            grant: None,
            outbox: None,
            inbox: None,
            inbox_messages: 0,
            ledger,
            sender,
            source_gone: false,
            sink_gone: false,
            slack_max: Vec::new(),
            faulty: false,
            shaky: None,
            rests_until: SimTime(0),
            origin,
            revived: false,
            token: None,
            asked_at: now,
            was_over: false,
            ended_at: None,
        }
    }

    /// The host at an end has lost everything: nobody will hear of that end again.
    pub fn lose(&mut self, at_sink: bool, now: SimTime) {
        if self.grant.is_some() {
            return self.ended(at_sink, now);
        }
        if at_sink {
            self.sink_gone = true;
        } else {
            self.source_gone = true;
            self.state = State::Closed;
        }
    }

    /// Whether it bears a share of misses.
    pub fn is_soft(&self) -> bool {
        self.plan.contract.statistical.is_some()
    }

    /// The host at an end.
    pub fn host(&self, at_sink: bool) -> usize {
        if at_sink { self.plan.to } else { self.plan.from }
    }

    /// The handle at an end.
    pub fn handle(&self, at_sink: bool) -> Option<ChannelId> {
        if at_sink { self.sink } else { self.source }
    }

    /// Whether an end has ended, or its host has lost it.
    pub fn is_gone(&self, at_sink: bool) -> bool {
        if at_sink { self.sink_gone } else { self.source_gone }
    }

    /// Marks an end as gone.
    pub fn ended(&mut self, at_sink: bool, now: SimTime) {
        self.ledger.close(now);
        if at_sink {
            self.sink_gone = true;
        } else {
            self.source_gone = true;
        }
        self.state = if self.source_gone && self.sink_gone { State::Closed } else { State::Closing };
    }

    /// What a node holds of its rings.
    pub fn held(&self) -> Vec<&'static str> {
        let outbox = self.outbox.as_ref();
        let held = [
            (outbox.is_some_and(|outbox| outbox.is_held()), "the outgoing ring"),
            (outbox.is_some_and(|outbox| outbox.taken() > 0), "a message of the outgoing ring"),
            (self.inbox.as_ref().is_some_and(|inbox| inbox.is_held()), "the incoming ring"),
        ];
        held.into_iter().filter_map(|(held, what)| held.then_some(what)).collect()
    }

    /// Whether `host` is on its way.
    pub fn passes(&self, host: usize) -> bool {
        let grant = self.grant.as_ref();
        grant.is_some_and(|grant| grant.route.contains(&node_id(host)))
    }
}
