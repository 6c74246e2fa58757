//! Establishment: CREATE forward, hop by hop, along one candidate route after the other (HARTS 3.2, Figure 3).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos, Soft};

use super::channel::{ChannelRoute, Timer};
use super::message::{Create, Message, Route};
use super::pending_decisions::NextStep;
use super::resources::{LocalChannel, Resources};
use super::states::{Input, State};
use super::transitions::{InputDetails, ask_final, commit};
use super::{Attempt, Channel, Setup, Signalling, budget};
use crate::api::{
    ChannelRefusal, CloseReason, DegradedHost, Event, Grant, Incoming, OpenRequest, RefuseCause,
    RequestError, Role, StageGrant, degraded,
};
use crate::config::Degraded;
use crate::ids::{ChannelId, Cookie, LinkId, NodeId, PathId};
use crate::limits::CHANNELS_MAX;

impl Signalling {
    /// Opens (or probes) a channel; `Opened`, `Refused` or `Probed` follows.
    ///
    /// # Errors
    /// If the request cannot even be tried.
    pub fn open(
        &mut self,
        request: OpenRequest,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<ChannelId, RequestError> {
        request.contract.validate()?;
        let node = self.config.resolve(&request.to.host)?;
        let candidates = self.candidates(node);
        if candidates.is_empty() {
            return Err(RequestError::NoRoute(request.to.host));
        }
        if self.channels.len() >= CHANNELS_MAX || self.leaving {
            return Err(RequestError::Exhausted);
        }
        let asked = match request.token {
            Some(token) => Some(self.requests.take_asked(token).ok_or(RequestError::Unknown)?),
            None => None,
        };
        let (user, probe) = (request.user, request.probe);
        let candidates = candidates.into();
        let attempt = Attempt { user, probe, candidates, best: None, offering: None, asked };
        let id = self.next_channel_id();
        self.try_routes(id, &request, attempt, now, resources);
        Ok(id)
    }

    /// Sends CREATE along the first candidate route that has room here. If none is left, reports the best
    /// refusal.
    pub(super) fn try_routes(
        &mut self,
        id: ChannelId,
        request: &OpenRequest,
        mut attempt: Attempt,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        while let Some(via) = attempt.candidates.pop_front() {
            if let Some(link) = self.closed_towards(via.first().copied()) {
                attempt.candidates.push_front(via);
                return self.wait_to_open(link, id, request, attempt);
            }
            let create = self.first_create(request, &attempt, via.clone());
            match self.local_channel(id, None, &create) {
                Ok(local) => {
                    let then = NextStep::Try { request: Box::new(request.clone()), attempt, via };
                    self.ask_stages(local, create, then, resources);
                    return self.settle(now, resources);
                }
                Err(cause) => attempt.note(self.refusal_of(cause, None, &create), via),
            }
        }
        self.refused(id, request, attempt, now, resources);
    }

    /// Continues when the stages here are held: sends CREATE along the route.
    pub(super) fn tried(
        &mut self,
        mut channel: Box<Channel>,
        attempt: Attempt,
        create: Create,
        now: Instant,
    ) {
        let consent = if attempt.probe { Nanos::ZERO } else { self.config.signalling.consent_timeout };
        channel.deadline = Timer::due(now + self.answer_time() + consent);
        channel.state = if attempt.probe { State::Probing } else { State::Creating };
        self.start(channel, attempt, create, now);
        self.refreshes.at.get_or_insert(now + self.refresh_interval());
    }

    /// Sends the CREATE for the present candidate route of `attempt`.
    pub(super) fn start(
        &mut self,
        mut channel: Box<Channel>,
        attempt: Attempt,
        create: Create,
        now: Instant,
    ) {
        channel.setup_mut().attempt = Some(attempt);
        self.pass_create(&mut channel, create, now);
        self.channels.insert(channel);
    }

    /// CREATE as this node, the source, would receive it. Every route is tried under a new path, so packets
    /// of an earlier try cannot affect it.
    pub(super) fn first_create(
        &mut self,
        request: &OpenRequest,
        attempt: &Attempt,
        via: Vec<NodeId>,
    ) -> Create {
        let (node, epoch) = (self.config.id, self.config.epoch);
        let path_of = |channel| PathId { node, channel, epoch };
        self.numbers.channel_number = self
            .numbers
            .channel_number
            .next_free(|channel| self.channels.of_path(path_of(channel)).is_some());
        let path = path_of(self.numbers.channel_number);
        let nodes: Vec<_> = core::iter::once(self.config.id).chain(via).collect();
        let asker = |back: &Route| back.last() == nodes.last().copied();
        let token = attempt.asked.as_ref().filter(|asked| asker(&asked.back)).map(|asked| asked.token);
        Create {
            path,
            cookie: Cookie(self.secrets.random.next() as u32),
            route: Route { nodes, position: 0 },
            from: self.config.name.clone(),
            user: request.user,
            to: request.to.clone(),
            contract: request.contract,
            fragment_bytes: self.config.fragment_bytes_of(&request.contract),
            probe: request.probe,
            token,
            stages: Vec::new(),
            arrival_error_fixed: Nanos::ZERO,
            drift: self.drift,
        }
    }

    /// CREATE from a neighbour.
    pub(super) fn on_create(
        &mut self,
        link: LinkId,
        mut create: Create,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let leads = create.route.leads(self.node_at(link), self.config.id);
        if !leads || create.route.first() != Some(create.path.node) {
            self.counters.unexpected += 1;
            return;
        }
        let known = self.channels.of_path(create.path);
        if let Some(known) = known.filter(|_| !active(Mutation::DuplicateCreateHeldTwice)) {
            let id = known.local.channel;
            self.apply(id, Input::CreateAgain, InputDetails::default(), now, resources);
            return;
        }
        if !self.has_room(link) {
            // The reply would find no room. The source gives the channel up when its time is over.
            self.counters.unanswered += 1;
            return;
        }
        if self.deciding.knows(create.path) || self.wait_to_create(link, &create) {
            return;
        }
        create.drift = create.drift.max(self.drift);
        if let Err(cause) = self.make_room_half_open(link, create.source(), now, resources) {
            let refusal = self.refusal_of(cause, None, &create);
            return self.answer_refused(link, &create, refusal);
        }
        let id = self.next_channel_id();
        match self.local_channel(id, Some(link), &create) {
            Ok(local) => {
                self.ask_stages(local, create, NextStep::PassOn(link), resources);
                self.settle(now, resources);
            }
            Err(cause) => {
                let refusal = self.refusal_of(cause, None, &create);
                self.answer_refused(link, &create, refusal);
            }
        }
    }

    /// Continues when the stages here are held, or tested for a probe: forwards the CREATE, or asks its
    /// receiver.
    pub(super) fn entered(
        &mut self,
        link: LinkId,
        mut channel: Box<Channel>,
        create: Create,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        match (channel.local.role, create.probe) {
            (Role::Sink, false) => self.make_final(link, channel, create, now, resources),
            (Role::Sink, true) => {
                let probe = Create { stages: channel.take_setup().all_stages, ..create };
                match self.try_probe(channel.local.clone(), probe.clone(), resources) {
                    Ok(()) => self.settle(now, resources),
                    Err(cause) => {
                        let refusal = self.refusal_of(cause, None, &probe);
                        self.answer_probe(&probe, Err(refusal));
                    }
                }
            }
            (_, probe) => {
                channel.lease = Timer::due(now + self.config.signalling.lease);
                self.pass_create(&mut channel, create, now);
                if !probe {
                    self.channels.insert(channel);
                }
            }
        }
    }

    pub(super) fn local_channel(
        &mut self,
        id: ChannelId,
        link_in: Option<LinkId>,
        create: &Create,
    ) -> Result<LocalChannel, RefuseCause> {
        self.check_room()?;
        create
            .contract
            .validate()
            .map_err(|error| RefuseCause::Unsuitable(alloc::format!("{error}").into()))?;
        let (role, link_out) = self.next_hop(link_in, create)?;
        let ends_here = role == Role::Sink;
        let handler_time = if ends_here { self.handler_time(&create.to.port) } else { Nanos::ZERO };
        Ok(LocalChannel {
            channel: id,
            path: create.path,
            cookie: create.cookie,
            role,
            link_in,
            link_out,
            contract: self.channels.contract(create.contract),
            fragment_bytes: create.fragment_bytes,
            soft: soft_of(create).map(Box::new),
            handler_time,
        })
    }

    /// The part of D that the stages before, `own` and the outgoing link take.
    pub(super) fn spent_with(&self, create: &Create, local: &LocalChannel, own: &[StageGrant]) -> Nanos {
        let own: Nanos = own.iter().map(|stage| stage.bound).sum();
        let before = budget::spent(&create.stages, create.drift) + self.propagation_max(local.link_out);
        before + own + create.drift.of(own)
    }

    pub(super) fn channel_of(
        &mut self,
        local: Arc<LocalChannel>,
        create: &Create,
        stages: Vec<StageGrant>,
    ) -> Channel {
        let role = local.role;
        let setup = Setup {
            user: create.user,
            listener: if role == Role::Sink { self.listener(&create.to.port) } else { None },
            own: create.stages.len()..create.stages.len() + stages.len(),
            all_stages: create.stages.iter().chain(&stages).copied().collect(),
            stages,
            arrival_error_fixed: create.arrival_error_fixed,
            attempt: None,
            accepted: None,
        };
        let nodes = create.route.nodes.clone();
        Channel {
            local,
            route: self.channels.route(ChannelRoute {
                from: create.from.clone(),
                to: create.to.clone(),
                nodes,
                degraded: Vec::new(),
            }),
            position: create.route.position,
            state: if role == Role::Sink { State::Asking } else { State::Creating },
            drift: create.drift,
            deadline: Timer::OFF,
            lease: Timer::OFF,
            reason: CloseReason::PathLost,
            setup: Some(Box::new(setup)),
        }
    }

    fn check_room(&self) -> Result<(), RefuseCause> {
        let full = self.channels.len() + self.deciding.len() >= CHANNELS_MAX;
        if full || self.leaving { Err(RefuseCause::Exhausted) } else { Ok(()) }
    }

    /// This node's role for the channel, and the outgoing link.
    fn next_hop(
        &self,
        link_in: Option<LinkId>,
        create: &Create,
    ) -> Result<(Role, Option<LinkId>), RefuseCause> {
        match create.route.next() {
            Some(next) => {
                let link = self.link_to(next).ok_or_else(|| self.unreachable(next))?;
                if !self.takes(link, create.source()) {
                    return Err(RefuseCause::Busy(next));
                }
                Ok((if link_in.is_none() { Role::Source } else { Role::Forwarder }, Some(link)))
            }
            None if self.listener(&create.to.port).is_some() => Ok((Role::Sink, None)),
            None => Err(RefuseCause::NoListener(create.to.port.clone())),
        }
    }

    /// Forwards a CREATE with the stages so far. They come back with ACCEPT.
    fn pass_create(&mut self, channel: &mut Channel, create: Create, now: Instant) {
        let Some(link) = channel.local.link_out else { return };
        let added = self.link_config(link).map_or(Nanos::ZERO, budget::arrival_error_of);
        let create = Create {
            route: create.route.advanced(),
            stages: channel
                .setup
                .as_mut()
                .map(|setup| core::mem::take(&mut setup.all_stages))
                .unwrap_or_default(),
            arrival_error_fixed: create.arrival_error_fixed + added,
            ..create
        };
        self.ask_for(link, create.source(), &Message::Create(create), now);
    }

    /// The sink commits before it asks its application, so that an accepted channel cannot fail here.
    fn make_final(
        &mut self,
        link: LinkId,
        mut channel: Box<Channel>,
        create: Create,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let stages =
            channel.setup.as_mut().map(|setup| core::mem::take(&mut setup.all_stages)).unwrap_or_default();
        match ask_final(&channel, &stages, resources) {
            Ok(()) => {
                self.await_final(link, create, channel, stages);
                self.settle(now, resources);
            }
            Err(cause) => self.refuse_to_ask(link, &channel, cause, &create, resources),
        }
    }

    fn refuse_to_ask(
        &mut self,
        link: LinkId,
        channel: &Channel,
        cause: RefuseCause,
        create: &Create,
        resources: &mut dyn Resources,
    ) {
        resources.release(channel.local.channel);
        let refusal = self.refusal_of(cause, None, create);
        self.answer_refused(link, create, refusal);
    }

    /// Asks the receiver, after the stages have become final.
    pub(super) fn ask_receiver(
        &mut self,
        link: LinkId,
        mut channel: Box<Channel>,
        mut stages: Vec<StageGrant>,
        create: &Create,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let no_listener = || RefuseCause::NoListener(create.to.port.clone());
        let listener = channel.setup.as_ref().and_then(|setup| setup.listener);
        let committed = commit(&mut channel, &mut stages, resources)
            .and_then(|terms| Ok((terms, listener.ok_or_else(no_listener)?)));
        let (terms, listener) = match committed {
            Ok(committed) => committed,
            Err(cause) => return self.refuse_to_ask(link, &channel, cause, create, resources),
        };
        self.note_degraded(&mut channel, &stages);
        let setup = channel.setup_mut();
        let bounds: Vec<_> = setup.stages.iter().map(|stage| stage.bound).collect();
        let last = setup.own.start.checked_sub(1).and_then(|index| stages.get(index));
        let before = last.map_or(Nanos::ZERO, |stage| stage.bound);
        let inbox_messages = budget::inbox_messages(&create.contract, &terms, &bounds, before);
        setup.all_stages = stages;
        channel.deadline = Timer::due(now + self.config.signalling.consent_timeout);
        channel.lease = Timer::due(now + self.config.signalling.lease);
        self.announcements.events.push_back(Event::Incoming(Incoming {
            channel: channel.local.channel,
            listener,
            from: channel.route.from.clone(),
            user: create.user,
            contract: create.contract,
            inbox_messages,
            token: self.requests.answered(create.token, create.path.node),
        }));
        self.channels.insert(channel);
    }

    /// Notes which hosts of the route are degraded, once the stages of the whole route are known.
    pub(super) fn note_degraded(&mut self, channel: &mut Channel, stages: &[StageGrant]) {
        // A broken stage may heal, which is reported separately.
        let lasts = |host: &DegradedHost| host.why != Degraded::Broken;
        let degraded: Vec<_> = degraded(stages).into_iter().filter(lasts).collect();
        if !degraded.is_empty() {
            let ChannelRoute { from, to, nodes, .. } = &*channel.route;
            let route = ChannelRoute { from: from.clone(), to: to.clone(), nodes: nodes.clone(), degraded };
            channel.route = self.channels.route(route);
        }
    }

    /// The grant for the application at the source.
    pub(super) fn grant(&self, channel: &Channel, stages: Vec<StageGrant>) -> Grant {
        let own = channel.setup.iter().flat_map(|setup| &setup.stages);
        let here: Nanos = own.map(|stage| stage.bound).sum();
        Grant {
            deadline: channel.local.contract.deadline,
            jitter_allowance: channel.local.contract.jitter_allowance(),
            bound_possible: budget::possible(&stages, channel.drift),
            stages,
            hosts: self.config.names_of(&channel.route.nodes),
            route: channel.route.nodes.clone(),
            outbox_messages: budget::outbox_messages(&channel.local.contract, here),
        }
    }

    /// A refusal of this hop with the nearest offer.
    pub(super) fn refusal_of(
        &self,
        cause: RefuseCause,
        possible: Option<Nanos>,
        create: &Create,
    ) -> ChannelRefusal {
        let (done, left) = (create.route.nodes_done(), create.route.nodes_left());
        let offer = budget::offer(&create.contract, &cause, possible, done, left);
        ChannelRefusal { offer, ..self.refusal(cause) }
    }
    /// A refusal of this hop without an offer.
    pub(super) const fn refusal(&self, cause: RefuseCause) -> ChannelRefusal {
        ChannelRefusal { node: self.config.id, cause, offer: None, stages: Vec::new(), hosts: Vec::new() }
    }
}

/// The requirements of a soft channel for each stage of the route. Its miss ratio is shared by two stages at
/// each node, one at the last, and by the pools of buffers of all. Arrivals are moved by the fixed part of J
/// and by the drift of D at most.
fn soft_of(create: &Create) -> Option<Soft> {
    let nodes = u32::try_from(create.route.nodes.len()).unwrap_or(u32::MAX);
    let parts = nodes.saturating_mul(3).saturating_sub(1);
    let jitter = create.arrival_error_fixed + create.drift.of(create.contract.deadline);
    Soft::of(&create.contract).map(|soft| soft.at_stage(parts, jitter))
}
