//! Applications: they request, consent, send, flood, close and request again, as planned.

use punctual_analysis::{Instant, Nanos};
use punctual_proto::api::{OpenRequest, RequestError, UserId};
use punctual_proto::ids::{Address, Name};

use super::call::Call;
use super::channel::{Channel, State};
use super::effort::Effort;
use super::{Act, Event, FLOOD_BYTES_MAX, LISTENER, RECEIVER, World};
use crate::dice::{Dice, Draw};
use crate::entry::Entry;
use crate::memory::{SimInbox, SimOutbox, effort};
use crate::sender::Sender;
use crate::time::SimTime;

/// Longest time of an agent's decision, well within its timeout.
pub(super) const CONSENT_MAX: Nanos = Nanos::from_millis(30);

/// A sender whose ring was full tries again after this time.
const RETRY: Nanos = Nanos::from_millis(1);

impl World {
    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Ask { plan } => {
                self.ask(plan);
            }
            Act::Request { request } => self.request(request),
            Act::Reply { request, token, life } => self.reply(request, token, life),
            Act::Answer { channel } => self.call(self.channels[channel].plan.to, Call::Answer(channel)),
            Act::Send { channel } => self.send(channel),
            Act::Close { channel, at_sink } => {
                let open = self.channels.get(channel).filter(|known| known.state == State::Open);
                if let Some(host) = open.map(|known| known.host(at_sink)) {
                    self.call(host, Call::Close { channel, at_sink });
                }
            }
            Act::Flood { flood } => self.flood(flood),
            Act::Prompt { host, id, life } => self.prompt(host, id, life),
            Act::Measure => self.measure(),
            Act::Compare => self.compare(),
            Act::LookAround => self.compare_host(),
            Act::LookAcross { fault } => self.compare_hosts(fault),
            Act::Revive => self.revive(),
            Act::AskAgain => self.ask_again(),
            Act::CloseAll => self.close_all(),
            Act::CheckEmpty => self.check_empty(),
        }
    }

    /// Requests the channel of a plan; returns the number of the attempt.
    pub(super) fn ask(&mut self, origin: usize) -> usize {
        self.forget_attempts();
        let number = self.channels.count();
        let plan = self.scenario.channels[origin];
        let dice = Dice::of(self.outcome.seed, Draw::Sender(number as u64));
        let sender = Sender::new(plan.arrivals, plan.contract, dice).with_full_messages(plan.full);
        self.channels.push(Channel::new(plan, origin, number as u64, sender, self.now));
        self.channels[number].revived = self.scenario.heals() && self.now >= self.scenario.times.revives;
        self.last_change = self.now;
        self.note(plan.from, Entry::Ask { channel: number });
        let (from, to) = (&self.scenario.hosts[plan.from], &self.scenario.hosts[plan.to]);
        self.journal.explain(|| {
            let (from, to) = (&from.config.name, &to.config.name);
            format!("{from} to {to}, {:?}, {:?}", plan.arrivals, plan.contract)
        });
        self.call(plan.from, Call::Ask(number));
        number
    }

    /// The source sends its due messages, and schedules its next turn.
    fn send(&mut self, number: usize) {
        let now = self.now;
        let Some(channel) = self.channels.get(number) else { return };
        let gone = channel.plan.vanishes_at.is_some_and(|at| at <= now && now < self.scenario.times.heals);
        if channel.state != State::Open || now >= self.scenario.times.stops || gone {
            return;
        }
        let rests_until = channel.rests_until;
        if now < rests_until {
            return self.queue.schedule(rests_until, Event::Act(Act::Send { channel: number }));
        }
        let host = self.channels[number].plan.from;
        let clock = self.hosts[host].clock;
        let stamp = clock.read(now);
        let channel = &mut self.channels[number];
        let count = channel.sender.count(stamp, channel.ledger.conformance());
        let fitted = (0..count).all(|_| self.send_one(number, stamp));
        let channel = &mut self.channels[number];
        let next = channel.sender.next(now, &clock, channel.ledger.conformance());
        let next = if fitted { next } else { next.max(now + RETRY) };
        self.queue.schedule(next, Event::Act(Act::Send { channel: number }));
        if count > 0 {
            self.call(host, Call::Doorbell(number));
        }
    }

    fn send_one(&mut self, number: usize, stamp: Instant) -> bool {
        let channel = &mut self.channels[number];
        let host = channel.plan.from;
        let Some(outbox) = &channel.outbox else { return false };
        let (index, len) = (channel.ledger.next_index(), channel.sender.draw_len());
        if !outbox.send(index, len, stamp) {
            if channel.sender.keeps_contract() && !channel.faulty {
                let slots = channel.grant.as_ref().map_or(0, |grant| grant.outbox_messages);
                let channel = self.describe(number);
                self.violate(&format!("{channel}: its ring of {slots} messages is full though it conforms"));
            }
            return false;
        }
        channel.ledger.record(self.now, stamp, len, &self.hosts[host].clock);
        let lost = channel.ledger.settle(self.now);
        self.note(host, Entry::Send { channel: number, index, len });
        self.report_lost(number, &lost);
        true
    }

    /// A best-effort source fills its ring, from its start to the end of traffic.
    fn flood(&mut self, number: usize) {
        let plan = self.scenario.floods[number];
        if self.now >= self.scenario.times.stops {
            return self.call(plan.from, Call::StopFlood(number));
        }
        let stamp = self.hosts[plan.from].clock.read(self.now);
        let flood = &mut self.floods[number];
        let call =
            if flood.handle.is_some() { Call::FloodDoorbell(number) } else { Call::StartFlood(number) };
        if flood.outbox.send(flood.sent, plan.message_bytes, stamp) {
            flood.sent += 1;
            flood.received.resize((flood.sent as usize).div_ceil(64), 0);
            self.call(plan.from, call);
        }
        self.queue.schedule(self.now + plan.interval, Event::Act(Act::Flood { flood: number }));
    }

    fn close_all(&mut self) {
        self.check_lost();
        for channel in self.channels.numbers() {
            // The channels of connections close when these are over.
            if self.channels[channel].state == State::Open && self.channels[channel].tcp.is_none() {
                let at_sink = self.channels[channel].plan.sink_closes;
                self.call(self.channels[channel].host(at_sink), Call::Close { channel, at_sink });
            }
        }
    }

    fn check_lost(&mut self) {
        for number in self.channels.numbers() {
            let lost = self.channels[number].ledger.lost(self.now);
            self.report_lost(number, &lost);
        }
    }

    pub(super) fn report_lost(&mut self, number: usize, lost: &[(u64, SimTime)]) {
        if self.channels[number].is_soft() {
            return self.channels[number].ledger.bear(lost.len() as u64);
        }
        for (index, due) in lost {
            let channel = self.describe(number);
            self.violate(&format!("{channel}: #{index}, due {due}, keeps its contract and was lost"));
        }
        if !lost.is_empty() {
            self.explain_counters(number);
        }
    }

    /// Adds each hop's counters of a channel to the timeline.
    fn explain_counters(&mut self, number: usize) {
        let path = self.channels[number].path;
        for (host, plan) in self.hosts.iter().zip(&self.scenario.hosts) {
            for status in host.node.channels().iter().filter(|status| Some(status.path) == path) {
                self.journal.explain(|| format!("{}: {:?}", plan.config.name, status.counters));
            }
        }
    }

    /// Executes an application's request at the node.
    pub(super) fn do_call(&mut self, host: usize, call: Call, now: Instant) {
        let done = match call {
            Call::Ask(channel) => self.do_ask(host, channel, now),
            Call::Answer(channel) => self.do_answer(host, channel, now),
            Call::Request(request) => self.do_request(host, request, now),
            Call::Decline(token) => self.do_decline(host, token, now),
            Call::Close { channel, at_sink } => self.do_close(host, channel, at_sink, now),
            Call::StartFlood(flood) => self.start_flood(host, flood, now),
            Call::Doorbell(channel) => {
                let known = self.channels.get(channel).filter(|known| !known.source_gone);
                let open = known.and_then(|known| known.source);
                let before = effort();
                open.inspect(|&id| self.hosts[host].node.handle_ring(id, now));
                self.check_effort(host, Effort::Outbox, before);
                Ok(())
            }
            Call::FloodDoorbell(flood) => {
                self.floods[flood].handle.inspect(|&id| self.hosts[host].node.handle_ring(id, now));
                Ok(())
            }
            Call::StopFlood(flood) => {
                self.floods[flood].handle.map_or(Ok(()), |id| self.hosts[host].node.close(id, now))
            }
            Call::Prompt { id, count } => {
                self.do_prompt(host, id, count, now);
                Ok(())
            }
            Call::Tcp(call) => {
                self.do_tcp_call(host, call, now);
                Ok(())
            }
            Call::Measure(link) => {
                // Mostly refused: channels use it, or another measurement is in progress.
                let _ = self.hosts[host].node.measure_rate(link, now);
                Ok(())
            }
            Call::Shutdown => {
                self.hosts[host].node.shutdown(now);
                Ok(())
            }
        };
        if let Err(error) = done {
            // An agent that has decided too late: a fault has ended the request.
            let late = match call {
                Call::Answer(_) | Call::Decline(_) => true,
                Call::Ask(channel) => self.is_asked_too_late(channel),
                _ => false,
            };
            let late = late && error == RequestError::Unknown;
            if !late || self.is_well() {
                self.violate(&format!("host {host} refuses {call:?}: {error}"));
            }
        }
    }

    /// Whether this is an attempt in reply to a receiver that has given up: there will be no channel.
    fn is_asked_too_late(&mut self, number: usize) -> bool {
        let channel = &mut self.channels[number];
        let is_answer = channel.token.is_some();
        if is_answer {
            (channel.state, channel.source_gone) = (State::Refused, true);
        }
        is_answer
    }

    pub(super) fn address(&self, host: usize, port: &str) -> Result<Address, RequestError> {
        let host = self.scenario.hosts[host].config.name.clone();
        let port = Name::new(port).map_err(|_| RequestError::Unknown)?;
        Ok(Address { port, host })
    }

    fn do_ask(&mut self, host: usize, number: usize, now: Instant) -> Result<(), RequestError> {
        let plan = self.channels[number].plan;
        let to = self.address(plan.to, LISTENER)?;
        let user = UserId(number as u32);
        let probe = plan.squeezes;
        let token = self.channels[number].token;
        token.inspect(|token| self.answered(host, *token));
        let request = OpenRequest { to, contract: plan.contract, user, probe, token };
        let id = self.hosts[host].node.open(request, now)?;
        self.channels[number].source = Some(id);
        self.handles.insert((host, id), (number, false));
        Ok(())
    }

    fn do_answer(&mut self, host: usize, number: usize, now: Instant) -> Result<(), RequestError> {
        let channel = &mut self.channels[number];
        let Some(id) = channel.sink.filter(|_| !channel.sink_gone) else { return Ok(()) };
        if !channel.plan.consents {
            return self.hosts[host].node.refuse(id, "not wanted", now);
        }
        let slots = channel.inbox_messages;
        let bytes = channel.plan.contract.message_bytes_max;
        let inbox = SimInbox::new(number as u64, slots, bytes, &self.hosts[host].delivered);
        channel.inbox = Some(inbox.watch());
        self.hosts[host].node.consent(id, inbox, now)
    }

    fn do_close(
        &mut self,
        host: usize,
        number: usize,
        at_sink: bool,
        now: Instant,
    ) -> Result<(), RequestError> {
        let channel = &mut self.channels[number];
        // A source may be notified of its channel after the sink has given it up: that end has nothing to
        // close.
        let there = channel.state == State::Open && !channel.is_gone(at_sink);
        let Some(id) = channel.handle(at_sink).filter(|_| there) else { return Ok(()) };
        channel.state = State::Closing;
        channel.ledger.close(self.now);
        self.last_change = self.now;
        self.hosts[host].node.close(id, now)
    }

    fn start_flood(&mut self, host: usize, number: usize, now: Instant) -> Result<(), RequestError> {
        if self.floods[number].handle.is_some() {
            return Ok(());
        }
        let to = self.address(self.scenario.floods[number].to, RECEIVER)?;
        let outbox = self.floods[number].outbox.clone();
        let id = self.hosts[host].node.open_best_effort(to, FLOOD_BYTES_MAX, outbox, now)?;
        self.floods[number].handle = Some(id);
        self.hosts[host].node.handle_ring(id, now);
        Ok(())
    }

    /// Schedules an agent's decision.
    pub(super) fn think(&mut self, channel: usize) {
        let at = self.now + self.dice.span(Nanos::ZERO, CONSENT_MAX);
        self.queue.schedule(at, Event::Act(Act::Answer { channel }));
    }

    /// A channel was admitted: its source gets its ring and starts.
    pub(super) fn start(&mut self, host: usize, number: usize, slots: u32, now: Instant) {
        let outbox = SimOutbox::new(number as u64, slots);
        self.channels[number].outbox = Some(outbox.clone());
        let Some(id) = self.channels[number].source else { return };
        if let Err(error) = self.hosts[host].node.attach_outbox(id, outbox, now) {
            self.violate(&format!("channel {number}: its outbox is refused: {error}"));
        }
        if self.channels[number].tcp.is_some() {
            return self.path_opened(number);
        }
        let first = self.now + Nanos(self.dice.between(0, 5_000_000));
        self.queue.schedule(first, Event::Act(Act::Send { channel: number }));
        let plan = self.channels[number].plan;
        if let Some(at) = plan.closes_at {
            let act = Act::Close { channel: number, at_sink: plan.sink_closes };
            self.queue.schedule(at.max(self.now), Event::Act(act));
        }
    }
}
