//! Handles and judges nodes' events for applications, and delivered messages.

use std::collections::BTreeSet;

use punctual_analysis::{Contract, Instant, Nanos};
use punctual_proto::api::{ChannelRefusal, CloseReason, Event as NodeEvent, Grant, Incoming, RefuseCause};

use super::channel::State;
use super::tcp::TCP_KEYS;
use super::wire::slack_max;
use super::{Act, Event, FLOOD_KEYS, World};
use crate::entry::Entry;
use crate::ledger::{Judgement, Ledger};
use crate::memory::{Content, Delivered};

/// More than the sum of the rounding of all hops on a route.
const ROUNDING: Nanos = Nanos(200);
/// Time for which a revived channel stays open.
const REVIVED: Nanos = Nanos::from_millis(20);

impl World {
    pub(super) fn poll_events(&mut self, host: usize, now: Instant) {
        // A channel that was opened has already ended: the event of that is next.
        let mut gone = BTreeSet::new();
        while let Some(event) = self.hosts[host].node.poll_event() {
            match event {
                NodeEvent::Opened { channel, grant } => match self.handles.get(&(host, channel)) {
                    Some(&(number, false)) => {
                        if !self.opened(host, number, grant, now) {
                            gone.insert(number);
                        }
                    }
                    _ => self.violate(&format!("host {host}: {channel:?} opened without a request")),
                },
                NodeEvent::Refused { channel, refusal } => match self.handles.get(&(host, channel)) {
                    Some(&(number, false)) => self.refused(host, number, &refusal),
                    _ => self.violate(&format!("host {host}: {channel:?} refused without a request")),
                },
                NodeEvent::Probed { channel, answer } => match self.handles.get(&(host, channel)) {
                    Some(&(number, false)) => self.probed(number, answer.ok()),
                    _ => self.violate(&format!("host {host}: {channel:?} probed without a request")),
                },
                NodeEvent::Incoming(incoming) => self.incoming(host, &incoming),
                NodeEvent::Closed { channel, reason, .. } => {
                    // Events of an earlier candidate route are ignored.
                    let known = self.handles.get(&(host, channel)).copied();
                    let current = |&(number, at_sink): &(usize, bool)| {
                        self.channels[number].handle(at_sink) == Some(channel)
                    };
                    if let Some((number, at_sink)) = known.filter(current) {
                        gone.remove(&number);
                        self.closed(host, number, at_sink, reason);
                    } else {
                        self.handles.remove(&(host, channel));
                    }
                }
                NodeEvent::Requested { listener, user, token, .. } => {
                    self.requested(host, listener, user, token)
                }
                NodeEvent::RequestFailed { token, refusal } => self.request_failed(host, token, &refusal),
                NodeEvent::Stage { channel, stage, healed: false } => {
                    self.check_reported_stages(host, channel, &stage)
                }
                NodeEvent::Late(stage) => self.check_reported_late(host, &stage),
                NodeEvent::Rate { link, result: Ok(found) } => self.measured(host, link, found),
                NodeEvent::Registered { channel, .. } => {
                    self.violate(&format!("host {host}: {channel:?} registered without a request"));
                }
                NodeEvent::Established { channel } => self.path_established(host, channel),
                NodeEvent::Rate { result: Err(_), .. }
                | NodeEvent::Stage { healed: true, .. }
                | NodeEvent::Notice { .. }
                | NodeEvent::Link { .. }
                | NodeEvent::RequestOver { .. }
                | NodeEvent::Decided { .. } => {}
            }
        }
        for number in gone {
            self.violate(&format!("channel {number} is open and its source does not list it"));
        }
    }

    /// Handles an admitted channel; returns whether its source (still) lists it and it could start.
    fn opened(&mut self, host: usize, number: usize, grant: Grant, now: Instant) -> bool {
        let entry = Entry::Open { channel: number, deadline_ns: grant.deadline.0 };
        self.note(host, entry);
        self.outcome.admitted += 1;
        self.last_change = self.now;
        let wanted = self.channels[number].plan.contract;
        if grant.deadline > wanted.deadline {
            let what = format!("channel {number}: granted {}, wanted {}", grant.deadline, wanted.deadline);
            self.violate(&what);
        }
        if !self.channels[number].plan.consents {
            self.violate(&format!("channel {number} opened though its receiver refuses"));
        }
        let id = self.channels[number].source;
        let listed = self.hosts[host].node.channels().into_iter().find(|status| Some(status.channel) == id);
        let status = listed.filter(|_| !self.options.sabotage.listings_denied);
        if let Some(status) = &status {
            self.paths.insert(status.path, number);
            self.channels[number].path = Some(status.path);
        }
        let slots = grant.outbox_messages;
        self.check_opened_across(number, &grant);
        let channel = &mut self.channels[number];
        channel.ledger = Ledger::new(number as u64, &wanted, grant.deadline.min(wanted.deadline));
        channel.slack_max = slack_max(&wanted, &grant);
        channel.grant = Some(grant);
        channel.state = State::Open;
        if channel.tcp.is_none() {
            self.channels.admit(number);
        }
        self.feel_all(number);
        if self.channels[number].revived {
            let act = Act::Close { channel: number, at_sink: false };
            self.queue.schedule(self.now + REVIVED, Event::Act(act));
        }
        if status.is_some() {
            self.start(host, number, slots, now);
        }
        status.is_some()
    }

    fn refused(&mut self, host: usize, number: usize, refusal: &ChannelRefusal) {
        self.note(host, Entry::Refuse { channel: number });
        self.journal.explain(|| refusal.to_string());
        self.outcome.refused += 1;
        self.last_change = self.now;
        self.channels[number].state = State::Refused;
        self.channels[number].source_gone = true;
        self.path_channel_ended(host, number, "a channel was refused");
        if self.channels[number].revived {
            self.violate(&format!(
                "channel {number} was admitted among others, and is refused alone: {refusal}"
            ));
        }
        self.check_refused_across(number, &refusal.cause);
        let by_receiver = matches!(refusal.cause, RefuseCause::Receiver(_));
        if by_receiver && self.channels[number].plan.consents {
            self.violate(&format!("channel {number} refused by a receiver that consents"));
        }
        let silent = matches!(
            refusal.cause,
            RefuseCause::Timeout | RefuseCause::ReceiverSilent | RefuseCause::Unreachable(_)
        );
        let expected =
            self.channels[number].plan.silent && matches!(refusal.cause, RefuseCause::ReceiverSilent);
        if silent && !expected && !self.may_be_silent(self.channels[number].asked_at) {
            self.violate(&format!("channel {number} refused without a fault: {refusal}"));
        }
    }

    /// The smallest deadline is known now: requests a channel with that.
    fn probed(&mut self, number: usize, grant: Option<Grant>) {
        self.last_change = self.now;
        let channel = &mut self.channels[number];
        channel.state = State::Refused;
        channel.source_gone = true;
        let mut plan = channel.plan;
        if !plan.squeezes {
            return self.violate(&format!("channel {number} was probed and not opened"));
        }
        let Some(grant) = grant else { return self.outcome.refused += 1 };
        plan.squeezes = false;
        plan.contract.deadline = plan.contract.deadline.min(grant.bound_possible + ROUNDING);
        self.scenario.channels.push(plan);
        self.queue.schedule(self.now, Event::Act(Act::Ask { plan: self.scenario.channels.len() - 1 }));
    }

    fn incoming(&mut self, host: usize, incoming: &Incoming) {
        let number = incoming.user.0 as usize;
        let known = self.channels.get(number).is_some_and(|channel| channel.plan.to == host);
        if !known || Some(incoming.listener) != self.hosts[host].listener {
            return self.violate(&format!("host {host}: {incoming:?} is for somebody else"));
        }
        let channel = &mut self.channels[number];
        let wanted = channel.plan.contract;
        channel.sink = Some(incoming.channel);
        channel.sink_gone = false;
        channel.inbox_messages = incoming.inbox_messages;
        self.handles.insert((host, incoming.channel), (number, true));
        if incoming.contract != wanted {
            let what =
                format!("channel {number}: the agent sees {:?}, wanted is {wanted:?}", incoming.contract);
            self.violate(&what);
        }
        self.comes_as_asked(host, incoming);
        if !self.channels[number].plan.silent {
            self.think(number);
        }
    }

    fn closed(&mut self, host: usize, number: usize, at_sink: bool, reason: CloseReason) {
        self.note(host, Entry::Close { channel: number, at_sink });
        self.note_end(number, reason);
        self.last_change = self.now;
        let channel = &mut self.channels[number];
        let wanted = matches!(channel.state, State::Closing | State::Closed | State::Refused | State::Asked);
        let was_open = channel.grant.is_some();
        if was_open {
            channel.ended(at_sink, self.now);
        } else if at_sink {
            channel.sink_gone = true;
        }
        let again = channel.plan.reopens && channel.state == State::Closed && was_open;
        if !wanted {
            self.ended_by_itself(host, number, reason);
        }
        self.path_channel_ended(host, number, if wanted { "" } else { "a channel ended" });
        if again && self.now < self.scenario.times.stops {
            self.reopen(number);
        }
    }

    /// Only a fault that touches its signalling may end a channel; its losses on the way are caused by the
    /// fault too.
    fn ended_by_itself(&mut self, host: usize, number: usize, reason: CloseReason) {
        let frames = !self.scenario.faults.is_none() && !self.is_well();
        let shaky = self.channels[number].shaky;
        let touched = shaky.filter(|(_, until)| self.now <= *until);
        if let Some((since, _)) = touched {
            let recovery = self.recovery(number);
            self.channels[number].ledger.excuse(since, self.now, recovery);
        } else if !frames {
            self.violate(&format!("channel {number} ended by itself at host {host}: {reason:?}"));
        }
    }

    /// Requests the same plan once more, this time to the end.
    fn reopen(&mut self, number: usize) {
        let mut plan = self.channels[number].plan;
        plan.reopens = false;
        plan.closes_at = None;
        self.scenario.channels.push(plan);
        let again = Act::Ask { plan: self.scenario.channels.len() - 1 };
        self.queue.schedule(self.now, Event::Act(again));
    }

    /// Judges the messages that the node of `host` has delivered since the last check.
    pub(super) fn deliver(&mut self, host: usize) {
        let delivered = self.hosts[host].delivered.take();
        for mut message in delivered {
            if message.inbox >= TCP_KEYS {
                self.read_tcp(message);
                continue;
            }
            if message.inbox >= FLOOD_KEYS {
                self.judge_flood(host, &message);
                continue;
            }
            if self.fault_dice.chance(self.options.sabotage.misdeliver) {
                message.inbox = (message.inbox + 1) % self.channels.count() as u64;
            }
            if self.channels.get(message.inbox as usize).is_some_and(|channel| channel.tcp.is_some()) {
                self.take_packet(host, &message);
                continue;
            }
            self.judge(host, &message);
            if self.fault_dice.chance(self.options.sabotage.deliver_twice) {
                self.judge(host, &message);
            }
            if self.hosts[host].is_deaf {
                self.hosts[host].hoard.push(message);
            }
        }
    }

    fn judge(&mut self, host: usize, message: &Delivered) {
        let number = message.inbox as usize;
        if self.channels.get(number).is_none() {
            return self.violate(&format!("host {host}: channel {number} is over for long and delivers"));
        }
        let clock = self.hosts[host].clock;
        let channel = &mut self.channels[number];
        let judgement = channel.ledger.deliver(self.now, &message.info, message.bytes(), &clock);
        self.count_judged(host, message, judgement);
    }

    /// Counts a delivered message, and records what is wrong with it.
    pub(super) fn count_judged(&mut self, host: usize, message: &Delivered, judgement: Judgement) {
        let number = message.inbox as usize;
        let channel = &self.channels[number];
        let latency_ns = judgement.latency.0;
        let deadline = channel.plan.contract.deadline.0.max(1);
        self.outcome.messages += 1;
        self.outcome.misses += u64::from(judgement.missed);
        self.outcome.excused += u64::from(judgement.excused);
        if judgement.counts {
            let percent = latency_ns.saturating_mul(100) / deadline;
            self.outcome.tightness_percent = self.outcome.tightness_percent.max(percent);
        }
        self.note(host, Entry::Deliver { channel: number, index: judgement.index, latency_ns });
        // Another fault may have moved its logical arrival; in runs with a broken assumption there is no
        // other fault.
        let is_known = judgement.is_known && (self.is_broken() || !judgement.excused);
        if let Some(due) = judgement.due.filter(|_| is_known) {
            self.compare_reported(host, number, &message.info, due);
        }
        for wrong in judgement.wrong {
            self.violate(&format!("{}: {wrong}", self.describe(number)));
        }
    }

    /// Describes a channel in a violation.
    pub(super) fn describe(&self, number: usize) -> String {
        let plan = &self.channels[number].plan;
        let name = |host: usize| &self.scenario.hosts[host].config.name;
        let Contract { policing, delivery, horizon, activation, .. } = plan.contract;
        let (from, to) = (name(plan.from), name(plan.to));
        format!(
            "channel {number} ({from} to {to}, {:?}, {policing:?}, {delivery:?}, {horizon:?}, {activation:?})",
            plan.arrivals
        )
    }

    /// Best effort may be lost, but never altered, duplicated or misdelivered; faults may duplicate it.
    fn judge_flood(&mut self, host: usize, message: &Delivered) {
        self.outcome.best_effort += 1;
        let bytes = message.bytes();
        let Some(content) = Content::read(bytes) else {
            return self.violate(&format!("host {host}: best effort of {} B was never sent", bytes.len()));
        };
        let number = content.key.wrapping_sub(FLOOD_KEYS) as usize;
        let index = content.index;
        let plan = self.scenario.floods.get(number).filter(|plan| plan.to == host);
        let fits = plan.is_some_and(|plan| plan.message_bytes as usize == bytes.len());
        let sent = self.floods.get(number).is_some_and(|flood| index < flood.sent);
        if !fits || !sent || content.first_difference(bytes).is_some() {
            return self.violate(&format!("host {host}: best effort {content:?} altered or misdelivered"));
        }
        let (word, bit) = ((index / 64) as usize, 1 << (index % 64));
        let again = self.floods[number].received[word] & bit != 0;
        self.floods[number].received[word] |= bit;
        if again && self.scenario.faults.duplicate.0 == 0 {
            self.violate(&format!("flood {number}: #{index} delivered twice"));
        }
    }
}
