//! Receivers' requests for channels, their results, and waiting operations of all nodes: an operation that
//! waits without a counterpart was leaked.

use std::collections::BTreeMap;

use punctual_analysis::{Contract, Instant, Nanos};
use punctual_proto::api::{ChannelRefusal, Incoming, RefuseCause, RequestError, UserId};
use punctual_proto::ids::{ListenerId, Name};

use super::applications::CONSENT_MAX;
use super::call::Call;
use super::{Act, Event, LISTENER, World};
use crate::scenario::{ChannelPlan, Reply, RequestPlan};
use crate::time::SimTime;
use crate::topology::Arrivals;

/// Tolerance of the time at which a request is given up: clocks run differently, processors are busy.
const GIVEN_UP_WITHIN: Nanos = Nanos::from_millis(60);

/// State of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not made yet, or lost with its host.
    #[default]
    None,
    /// It waits for a reply.
    Waiting,
    /// It is complete.
    Over,
}

/// The requests of a run.
#[derive(Debug, Default)]
pub(super) struct Requests {
    states: Vec<State>,
    /// The request of each host's token.
    tokens: BTreeMap<(usize, u64), usize>,
    /// Requests that applications have received and not answered: by host and token, with their time.
    asked: BTreeMap<(usize, u64), SimTime>,
}

impl Requests {
    pub(super) fn new(count: usize) -> Self {
        Self { states: vec![State::None; count], ..Self::default() }
    }
}

impl World {
    /// Schedules each request for its time.
    pub(super) fn schedule_requests(&mut self) {
        for (request, plan) in self.scenario.requests.iter().enumerate() {
            self.queue.schedule(plan.at, Event::Act(Act::Request { request }));
        }
    }

    /// Makes a request that the plan does not have; returns its index.
    pub(super) fn request_beside(&mut self, plan: RequestPlan) -> usize {
        self.scenario.requests.push(plan);
        self.requests.states.push(State::None);
        let request = self.scenario.requests.len() - 1;
        self.request(request);
        request
    }

    pub(super) fn request(&mut self, request: usize) {
        self.last_change = self.now;
        self.call(self.scenario.requests[request].asker, Call::Request(request));
    }

    pub(super) fn do_request(
        &mut self,
        host: usize,
        request: usize,
        now: Instant,
    ) -> Result<(), RequestError> {
        let plan = self.scenario.requests[request];
        let source = self.address(plan.source, LISTENER)?;
        let port = Name::new(LISTENER).map_err(|_| RequestError::Unknown)?;
        let user = UserId(request as u32);
        let token = self.hosts[host].node.request(&source, port, plan.contract, user, now)?;
        self.requests.tokens.insert((host, token), request);
        self.requests.states[request] = State::Waiting;
        self.last_change = self.now;
        Ok(())
    }

    /// An application receives a request; it decides later, or not at all.
    pub(super) fn requested(&mut self, host: usize, listener: ListenerId, user: UserId, token: u64) {
        self.last_change = self.now;
        let request = user.0 as usize;
        let plan = self.scenario.requests.get(request).filter(|plan| plan.source == host);
        let Some(&RequestPlan { reply, .. }) = plan.filter(|_| Some(listener) == self.hosts[host].listener)
        else {
            return self.violate(&format!(
                "host {host} gets a request for a channel that no receiver has requested"
            ));
        };
        self.requests.asked.insert((host, token), self.now);
        if reply != Reply::Silent {
            let at = self.now + self.dice.span(Nanos::ZERO, CONSENT_MAX);
            let life = self.hosts[host].life;
            self.queue.schedule(at, Event::Act(Act::Reply { request, token, life }));
        }
    }

    /// The application replies.
    pub(super) fn reply(&mut self, request: usize, token: u64, life: u32) {
        let plan = self.scenario.requests[request];
        if self.hosts[plan.source].life != life {
            return;
        }
        if plan.reply == Reply::Refuses {
            return self.call(plan.source, Call::Decline(token));
        }
        let channel = ChannelPlan {
            sink_closes: request.is_multiple_of(2),
            arrivals: if self.is_path(request) { Arrivals::Breaker } else { Arrivals::Sporadic },
            ..self.plain_channel((plan.source, plan.asker), plan.contract)
        };
        let number = self.ask_beside(channel);
        self.channels[number].token = Some(token);
        self.path_answered(request, number);
    }

    /// A channel that is requested now, and not again.
    pub(super) const fn plain_channel(&self, (from, to): (usize, usize), contract: Contract) -> ChannelPlan {
        ChannelPlan {
            from,
            to,
            contract,
            arrivals: Arrivals::Sporadic,
            squeezes: false,
            full: false,
            consents: true,
            silent: false,
            storm: true,
            vanishes_at: None,
            opens_at: self.now,
            closes_at: None,
            sink_closes: false,
            reopens: false,
        }
    }

    /// Requests a channel that the plan does not have; returns the number of the attempt.
    pub(super) fn ask_beside(&mut self, channel: ChannelPlan) -> usize {
        self.scenario.channels.push(channel);
        self.ask(self.scenario.channels.len() - 1)
    }

    pub(super) fn do_decline(&mut self, host: usize, token: u64, now: Instant) -> Result<(), RequestError> {
        self.answered(host, token);
        self.hosts[host].node.refuse_request(token, "not wanted", now)
    }

    /// Notes that an application has answered a request.
    pub(super) fn answered(&mut self, host: usize, token: u64) {
        self.last_change = self.now;
        self.requests.asked.remove(&(host, token));
    }

    /// Checks a channel that arrives at the receiver which requested one.
    pub(super) fn comes_as_asked(&mut self, host: usize, incoming: &Incoming) {
        let Some(token) = incoming.token else { return };
        self.last_change = self.now;
        let request = self.requests.tokens.get(&(host, token)).copied();
        let plan = request.map(|request| self.scenario.requests[request]);
        let waits = request.is_some_and(|request| self.requests.states[request] == State::Waiting);
        if !waits || plan.is_none_or(|plan| plan.reply != Reply::Opens || plan.contract != incoming.contract)
        {
            return self.violate(&format!("host {host}: {incoming:?} answers a request that was not made"));
        }
        if let Some(request) = request {
            self.come_to_end(request);
        }
    }

    fn come_to_end(&mut self, request: usize) {
        self.requests.states[request] = State::Over;
        self.outcome.requests += 1;
    }

    /// A receiver is notified that there will be no channel.
    pub(super) fn request_failed(&mut self, host: usize, token: u64, refusal: &ChannelRefusal) {
        self.last_change = self.now;
        let request = self.requests.tokens.get(&(host, token)).copied();
        let waits = request.filter(|request| self.requests.states[*request] == State::Waiting);
        let Some(request) = waits else {
            return self.violate(&format!("host {host} is refused what it has not asked for: {refusal}"));
        };
        self.come_to_end(request);
        self.path_refused(request);
        let plan = self.scenario.requests[request];
        let fits = match (plan.reply, &refusal.cause) {
            (Reply::Silent, cause) => *cause == RefuseCause::Timeout,
            (Reply::Refuses, cause) => matches!(cause, RefuseCause::Receiver(_)),
            // Its source has reported why there is no channel; whether that is allowed is checked with the
            // attempt.
            (Reply::Opens, cause) => *cause != RefuseCause::Timeout,
        };
        if !fits && !self.may_be_silent(plan.at) {
            self.violate(&format!("request {request} of host {host} fails without a fault: {refusal}"));
        }
    }

    /// A host has lost the requests that it had received and sent.
    pub(super) fn forget_requests(&mut self, host: usize) {
        let Requests { states, tokens, asked } = &mut self.requests;
        tokens.retain(|(asker, _), request| {
            let stays = *asker != host;
            if !stays && states[*request] == State::Waiting {
                states[*request] = State::None;
            }
            stays
        });
        asked.retain(|(source, _), _| *source != host);
    }

    /// When the network is idle: each waiting operation of a node must have a counterpart.
    pub(super) fn check_waiting(&mut self, host: usize) {
        if !self.hosts[host].is_up {
            return;
        }
        let more = usize::from(self.options.sabotage.waiting_off);
        let consent = self.scenario.hosts[host].config.signalling.consent_timeout;
        let theirs = |within: Nanos| {
            let of_host = self.requests.asked.iter().filter(|((source, _), _)| *source == host);
            of_host.filter(|(_, since)| self.now.since(**since) <= within).count()
        };
        let theirs = [theirs(consent - GIVEN_UP_WITHIN), theirs(consent + GIVEN_UP_WITHIN)];
        let waits = |request: &usize| self.requests.states[*request] == State::Waiting;
        let ours =
            self.requests.tokens.iter().filter(|((asker, _), request)| *asker == host && waits(request));
        let ours = ours.count();
        for (what, count) in self.hosts[host].node.waiting() {
            let [least, most] = match what {
                "requests to others" => [ours, ours],
                "requests of others" => theirs,
                _ => [0, 0],
            };
            let count = count + more;
            if !(least..=most).contains(&count) {
                self.violate(&format!(
                    "host {host} has {count} {what} waiting, {least} to {most} are wanted"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_proto::ids::NodeId;

    use super::*;
    use crate::options::Options;
    use crate::scenario::Scenario;

    /// The server may not even hear of the request: then no attempt of it says that there is no connection.
    #[test]
    fn a_connection_whose_request_fails_is_excused() {
        let options = Options { tcp: true, ..Options::default() };
        let draw = |seed| {
            let scenario = Scenario::draw(seed, &options).expect("drawn");
            let mut plans = scenario.tcp.connections.iter();
            let number = plans.position(|plan| plan.path.is_some() && !plan.is_left_out)?;
            Some((seed, scenario, number))
        };
        let (seed, scenario, number) = (0..50).find_map(draw).expect("some have reserved paths");
        let asker = scenario.tcp.connections[number].hosts[0];
        let mut world = World::new(seed, scenario, &options).expect("a world");
        world.request_path(number);
        let request = world.scenario.requests.len() - 1;
        world.do_request(asker, request, Instant(1)).expect("it can be asked");
        let (&(host, token), _) = world.requests.tokens.iter().next().expect("a token");
        assert_eq!((host, world.excuse_of(number)), (asker, None));
        let cause = RefuseCause::Unreachable(NodeId(1));
        let refusal =
            ChannelRefusal { node: NodeId(1), cause, offer: None, stages: Vec::new(), hosts: Vec::new() };
        world.request_failed(asker, token, &refusal);
        assert_eq!(world.excuse_of(number), Some("its request failed"));
    }
}
