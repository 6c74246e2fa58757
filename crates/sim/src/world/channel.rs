//! One attempt to open a channel, and its state.

use punctual_proto::api::{CloseReason, Grant};
use punctual_proto::ids::{ChannelId, PathId};

use crate::ledger::Ledger;
use crate::memory::{InboxWatch, SimOutbox};
use crate::packets::Packets;
use crate::scenario::{ChannelPlan, node_id};
use crate::sender::Sender;
use crate::time::SimTime;

/// State of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Signalling is under way.
    Asked,
    /// Admitted.
    Open,
    /// Refused.
    Refused,
    /// One end was closed; the other end or the hops may not have been notified yet.
    Closing,
    /// Both ends have ended.
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
    /// Ring size that the agent was requested to provide.
    pub inbox_messages: u32,
    pub ledger: Ledger,
    pub sender: Sender,
    pub source_gone: bool,
    pub sink_gone: bool,
    /// By host: the largest allowed slack of a leaving packet.
    pub slack_max: Vec<(usize, i64)>,
    /// True if a fault has hit one of its packets, which makes its counters meaningless.
    pub faulty: bool,
    /// Time in which a fault touches its signalling: begin, and the time until which it may end because of
    /// that.
    pub shaky: Option<(SimTime, SimTime)>,
    /// Its source sends no messages until this time.
    pub rests_until: SimTime,
    /// Index of its plan.
    pub origin: usize,
    /// True if it is requested alone, on an empty network, because it was admitted once.
    pub revived: bool,
    /// The token of its receiver's request, if there is one.
    pub token: Option<u64>,
    /// Time of its request.
    pub asked_at: SimTime,
    /// If it carries the packets of a TCP connection: which one, and which end sends.
    pub tcp: Option<(usize, usize)>,
    /// Its packets that are under way.
    pub packets: Packets,
    /// True if it had ended at the last check.
    pub was_over: bool,
    /// Time at which an end was first notified of its end, and the reason.
    pub ended_at: Option<(SimTime, CloseReason)>,
}

impl Channel {
    /// A new attempt; its messages begin with `key`.
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
            tcp: None,
            packets: Packets::default(),
            was_over: false,
            ended_at: None,
        }
    }

    /// The host at an end has lost all state: no further events of that end.
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

    /// Whether its contract permits misses.
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

    /// Marks an end as ended.
    pub fn ended(&mut self, at_sink: bool, now: SimTime) {
        self.ledger.close(now);
        if at_sink {
            self.sink_gone = true;
        } else {
            self.source_gone = true;
        }
        self.state = if self.source_gone && self.sink_gone { State::Closed } else { State::Closing };
    }

    /// Handles that a node holds of its rings.
    pub fn held(&self) -> Vec<&'static str> {
        let outbox = self.outbox.as_ref();
        let held = [
            (outbox.is_some_and(|outbox| outbox.is_held()), "the outgoing ring"),
            (outbox.is_some_and(|outbox| outbox.taken() > 0), "a message of the outgoing ring"),
            (self.inbox.as_ref().is_some_and(|inbox| inbox.is_held()), "the incoming ring"),
        ];
        held.into_iter().filter_map(|(held, what)| held.then_some(what)).collect()
    }

    /// Whether `host` is on its route.
    pub fn passes(&self, host: usize) -> bool {
        let grant = self.grant.as_ref();
        grant.is_some_and(|grant| grant.route.contains(&node_id(host)))
    }
}
