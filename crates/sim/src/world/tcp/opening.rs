//! A connection from its request until everything is given back, in the order of `engine::processor::tcp`.

use punctual_analysis::{Instant, Nanos};
use punctual_proto::api::{RtuEvent, RtuGrant, RtuId};
use punctual_proto::ids::LinkId;
use punctual_tcp::endsystem::{Endsystem, Rings};
use punctual_tcp::{Flow, State};

use super::account::Account;
use super::{
    BACKLOG, Conversation, Event, Inlet, Listening, Place, RING, Role, SegmentRing, Stage, Tag, TcpAct,
    World, key_of, sending_over, terms_of,
};
use crate::filters::Held;
use crate::memory::{SimInbox, SimMemory, SimOutbox};
use crate::scenario::tcp::segment_bytes;
use crate::world::call::{Call, TcpCall};

/// How soon to check again whether the last segment of a connection has left.
const LAST_SEGMENT_CHECK: Nanos = Nanos::from_micros(500);
/// Time of a program from what it does to its request, at most.
const ASK_MAX: Nanos = Nanos::from_micros(20);
/// Longest time of a program until it accepts.
const ACCEPT_MAX: Nanos = Nanos::from_millis(5);

impl World {
    /// Listens wherever a server of the plan is; admission decides at once, because the idle state is compared with it later.
    pub(super) fn listen_tcp(&mut self, host: usize) {
        for number in 0..self.conversations.len() {
            let is_used = |talk: &Conversation| {
                talk.plan.leader == number && !talk.plan.is_left_out && talk.path.is_none()
            };
            let (plan, is_used) = (&self.conversations[number].plan, self.conversations.iter().any(is_used));
            if is_used && plan.hosts[1] == host {
                self.listen_over(host, plan.links[1], number);
            }
        }
    }

    /// Listens over one link, with the settings and the class of the server of a connection.
    fn listen_over(&mut self, host: usize, link: u16, number: usize) {
        let plan = self.conversations[number].plan;
        let now = self.hosts[host].clock.read(self.now);
        let payload_bytes = segment_bytes(&self.scenario.hosts[host], link);
        let terms = terms_of(plan.classes[1], self.scenario.tcp.cost);
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        let Some(index) = tcp.endsystem.listen(&plan.config, BACKLOG) else { return };
        let segments = SegmentRing::new(Tag::Address);
        let sending = sending_over(LinkId(link), payload_bytes);
        let asked = member.node.register_sender(terms, &sending, segments.ring.clone(), now);
        while let Some(decision) = member.node.poll_decision() {
            member.node.handle_decided(decision.decide(|| Instant::ZERO), now);
        }
        let granted = match member.node.poll_rtu() {
            Some(RtuEvent::Granted(_, grant)) => Some(grant),
            _ => None,
        };
        let Some((handler, grant)) = asked.ok().zip(granted) else {
            asked.ok().inspect(|id| member.node.remove_handler(*id, now));
            tcp.endsystem.stop_listening(index);
            return self.excuse_clients(number);
        };
        let held = Held::default();
        tcp.roles.insert(handler, Role::Listener(index));
        tcp.accounts.insert(handler, Account::new(terms, &grant, None));
        let inlet = Inlet { index, held: held.clone() };
        tcp.driver.listeners.insert((link, plan.end(number, 1)), inlet);
        tcp.listeners.insert(index, Listening { handler, segments, held, is_notified: false });
    }

    /// There is no listener: connections to it are refused.
    fn excuse_clients(&mut self, leader: usize) {
        for talk in self.conversations.iter_mut().filter(|talk| talk.plan.leader == leader) {
            talk.excuse.get_or_insert("there is no listener");
            talk.promise = None;
        }
        self.outcome.tcp.refused += 1;
    }

    /// The rings of a program, whose end of them is kept.
    pub(super) fn make_rings(&mut self, (number, end): (usize, usize)) -> Rings<SimMemory> {
        let (slots, chunk_bytes) = RING;
        let host = self.conversations[number].plan.hosts[end];
        let outbox = SimOutbox::new(key_of(number, end), slots);
        let inbox = SimInbox::new(key_of(number, end), slots, chunk_bytes, &self.hosts[host].delivered);
        let state = &mut self.conversations[number].ends[end];
        state.outbox = Some(outbox.clone());
        state.inbox = Some(inbox.watch());
        Rings { outbox, inbox, chunk_bytes }
    }

    pub(super) fn connect_tcp(&mut self, number: usize, now: Instant) {
        let plan = self.conversations[number].plan;
        let flow = Flow { local: plan.end(number, 0), remote: plan.end(number, 1) };
        let rings = self.make_rings((number, 0));
        let Some(tcp) = &mut self.hosts[plan.hosts[0]].tcp else { return };
        match tcp.endsystem.connect(flow, &plan.config, rings, now) {
            Ok(index) => self.place_tcp((number, 0), index, now),
            Err(_) => self.violate(&format!("connection {number}: there is no room for it")),
        }
    }

    /// A listener's program adopts what waits.
    pub(super) fn accept_tcp(&mut self, host: usize, listener: u32, now: Instant) {
        loop {
            let Some(tcp) = &mut self.hosts[host].tcp else { return };
            if let Some(listening) = tcp.listeners.get_mut(&listener) {
                listening.is_notified = false;
            }
            let Some(accepted) = tcp.endsystem.accept(listener) else { return };
            let flow = accepted.flow();
            let number = usize::from(flow.remote.port().wrapping_sub(super::CLIENT_PORT));
            let fits = self.conversations.get(number).is_some_and(|talk| {
                (talk.plan.end(number, 1), talk.plan.end(number, 0)) == (flow.local, flow.remote)
            });
            if !fits {
                self.violate(&format!("host {host} accepts {flow:?}, which was not opened"));
                continue;
            }
            if self.conversations[number].ends[1].stage != Stage::Planned {
                self.violate(&format!("connection {number}: host {host} accepts it twice"));
                continue;
            }
            let rings = self.make_rings((number, 1));
            let tcp = self.hosts[host].tcp.as_mut();
            match tcp.and_then(|tcp| tcp.endsystem.adopt(accepted, rings).ok()) {
                Some(index) => self.place_tcp((number, 1), index, now),
                None => self.violate(&format!("connection {number}: there is no room to adopt it")),
            }
        }
    }

    /// Registers both handlers of a connection.
    fn place_tcp(&mut self, (number, end): (usize, usize), index: u32, now: Instant) {
        let plan = self.conversations[number].plan;
        let host = plan.hosts[end];
        let terms = terms_of(plan.classes[end], self.scenario.tcp.cost);
        let segments = SegmentRing::new(Tag::Number);
        let link = LinkId(plan.links[end]);
        let sending = sending_over(link, u32::from(plan.config.mtu_bytes));
        self.conversations[number].ends[end].stage = Stage::Asked;
        self.conversations[number].ends[end].index = Some(index);
        self.last_change = self.now;
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        let input = member.node.register_handler(terms, now);
        let output = member.node.register_sender(terms, &sending, segments.ring.clone(), now);
        let (Ok(input), Ok(output)) = (input, output) else {
            for handler in input.into_iter().chain(output) {
                member.node.remove_handler(handler, now);
            }
            tcp.endsystem.remove(index);
            self.over_tcp(number, end);
            return self.refuse_tcp(number);
        };
        tcp.roles.extend([(input, Role::Input(index)), (output, Role::Output(index))]);
        let of = (number, end);
        let held = Held::default();
        let place = Place { of, input, output, segments, granted: 0, held, is_late: false, joined: None };
        tcp.places.insert(index, place);
        self.handle_rtu_events(host, now);
    }

    pub(super) fn refuse_tcp(&mut self, number: usize) {
        self.conversations[number].excuse.get_or_insert("a handler was refused");
        self.conversations[number].promise = None;
        self.outcome.tcp.refused += 1;
    }

    /// Takes the node's news of handlers.
    pub(in crate::world) fn handle_rtu_events(&mut self, host: usize, now: Instant) {
        while let Some(event) = self.hosts[host].node.poll_rtu() {
            let id = match event {
                RtuEvent::Granted(id, _) | RtuEvent::Refused(id, _) | RtuEvent::Demoted(id, _) => id,
            };
            let role = self.hosts[host].tcp.as_ref().and_then(|tcp| tcp.roles.get(&id).copied());
            let Some(role) = role else {
                self.handle_rtu_event(host, &event);
                continue;
            };
            match (event, role) {
                (RtuEvent::Granted(id, grant), Role::Input(index) | Role::Output(index)) => {
                    self.granted_tcp(host, index, (id, &grant), now);
                }
                (RtuEvent::Refused(..), Role::Input(index) | Role::Output(index)) => {
                    self.give_up_tcp(host, index, now);
                }
                _ => {
                    let well = self.hosts[host].has_been_well();
                    let what =
                        format!("host {host}: a handler of TCP is honest, and the node reports {event:?}");
                    if well {
                        self.violate(&what);
                    }
                }
            }
        }
    }

    /// One more handler of a connection is granted. With both, the driver learns the flow, and the SYN may leave.
    fn granted_tcp(&mut self, host: usize, index: u32, (id, grant): (RtuId, &RtuGrant), now: Instant) {
        let cost = self.scenario.tcp.cost;
        let Some(tcp) = &mut self.hosts[host].tcp else { return };
        let Some(place) = tcp.places.get_mut(&index) else { return };
        let (number, end) = place.of;
        let plan = self.conversations[number].plan;
        let terms = terms_of(plan.classes[end], cost);
        let is_joined = place.joined.is_some();
        let waits_from = (id == place.input).then_some(end == 0 || is_joined);
        tcp.accounts.insert(id, Account::new(terms, grant, waits_from));
        if let Some(promise) = &mut self.conversations[number].promise {
            promise.grant(end, grant, id == place.input);
        }
        self.last_change = self.now;
        place.granted += 1;
        if place.granted < 2 {
            return;
        }
        let inlet = Inlet { index, held: place.held.clone() };
        let ends = (plan.end(number, end), plan.end(number, 1 - end));
        let input = place.input;
        if is_joined {
            self.ask_tcp(TcpCall::Attach(number, end));
        } else {
            tcp.driver.flows.insert(ends, inlet);
        }
        self.conversations[number].ends[end].stage = Stage::Opening;
        let Some(tcp) = &mut self.hosts[host].tcp else { return };
        // Packets may have come by way of the listener.
        if tcp.endsystem.has_input(index) {
            self.hosts[host].node.make_ready(input, now);
        }
        self.settle_tcp(host, index, now);
    }

    /// A connection that cannot begin. The peer of one that a listener has opened is reset.
    fn give_up_tcp(&mut self, host: usize, index: u32, now: Instant) {
        let Some(tcp) = &mut self.hosts[host].tcp else { return };
        let Some((number, end)) = tcp.places.get(&index).map(|place| place.of) else { return };
        let reset = tcp.endsystem.refuse(index, now);
        let link = LinkId(self.conversations[number].plan.links[end]);
        self.refuse_tcp(number);
        self.give_back_tcp(host, index, now);
        self.reset_late(host, link, reset, now);
    }

    /// Gives everything of a connection back.
    pub(super) fn give_back_tcp(&mut self, host: usize, index: u32, now: Instant) {
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        let Some(place) = tcp.places.remove(&index) else { return };
        drop(tcp.endsystem.remove(index));
        let (number, end) = place.of;
        if place.is_late {
            tcp.forget_late(index, LinkId(self.conversations[number].plan.links[end]));
        } else {
            for handler in [place.input, place.output] {
                tcp.roles.remove(&handler);
                tcp.accounts.remove(&handler);
                member.node.remove_handler(handler, now);
            }
        }
        let plan = self.conversations[number].plan;
        self.last_change = self.now;
        tcp.driver.flows.remove(&(plan.end(number, end), plan.end(number, 1 - end)));
        self.check_wait(number, end);
        self.over_tcp(number, end);
        // The ring of a channel is the node's until that is closed.
        if place.joined.is_none() && place.segments.ring.is_held() {
            self.violate(&format!(
                "connection {number}: the ring of its segments at host {host} is still held"
            ));
        }
    }

    pub(super) fn over_tcp(&mut self, number: usize, end: usize) {
        let state = &mut self.conversations[number].ends[end];
        (state.stage, state.index) = (Stage::Over, None);
        self.part_from_path(number, end);
    }

    /// Something of a connection has changed: has its output handler called when it has work, and notifies its program.
    pub(super) fn settle_tcp(&mut self, host: usize, index: u32, now: Instant) {
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        let Some(place) = tcp.places.get(&index) else { return };
        let ((number, end), output, is_joined) = (place.of, place.output, place.joined.is_some());
        if self.conversations[number].ends[end].stage == Stage::Asked {
            return;
        }
        if place.is_late {
            return self.settle_late(host, index, now);
        }
        match tcp.endsystem.due(index, now).map(|due| place.not_before_room(due, now)) {
            Some(due) if due <= now => {
                member.node.make_ready_at(output, None);
                member.node.make_ready(output, now);
            }
            due => member.node.make_ready_at(output, due),
        }
        let Some(status) = tcp.endsystem.status(index) else { return };
        let (is_over, only_waits) = (tcp.endsystem.is_over(index, now), tcp.endsystem.only_waits(index));
        let is_sending = member.node.is_sending(output);
        let is_open = !matches!(status.state, State::SynSent | State::SynReceived | State::Closed);
        if self.conversations[number].ends[end].stage == Stage::Opening && is_open {
            self.opened_tcp(number, end);
        }
        if let Some(ended) =
            status.ended.filter(|_| self.conversations[number].ends[end].stage < Stage::Ended)
        {
            self.ended_tcp(number, end, ended);
        }
        if (is_over || only_waits) && is_sending {
            // The last segment, perhaps a reset, leaves before its handler goes.
            self.hosts[host].node.make_ready_at(output, Some(now + LAST_SEGMENT_CHECK));
        } else if is_over {
            self.give_back_tcp(host, index, now);
        } else if only_waits && !is_joined {
            self.enter_time_wait(host, index, now);
        }
    }

    /// A listener's handler was called: has it called again when it has work, and its program notified of new connections.
    pub(super) fn settle_listener(&mut self, host: usize, index: u32, now: Instant) {
        let life = self.hosts[host].life;
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        while let Some(woken) = tcp.endsystem.poll_woken() {
            let of = tcp.places.get(&woken).map(|place| place.of);
            let link = of.map(|(number, end)| LinkId(self.conversations[number].plan.links[end]));
            if let Some(handler) = link.and_then(|link| tcp.wake(woken, link)) {
                member.node.make_ready(handler, now);
                // In time, because it is known by its number from now on: a violation is found when it is done.
                let _ = tcp.accounts.get_mut(&handler).and_then(|account| account.came(now));
            }
        }
        let Some(listening) = tcp.listeners.get_mut(&index) else { return };
        member.node.make_ready_at(listening.handler, tcp.endsystem.listener_due(index));
        if tcp.endsystem.has_opened(index) && !listening.is_notified {
            listening.is_notified = true;
            let at = self.now + self.tcp_dice.span(Nanos::ZERO, ACCEPT_MAX);
            self.queue.schedule(at, Event::Tcp(TcpAct::Accept { host, listener: index, life }));
        }
    }

    /// A program asks something of its end, if that is still there.
    pub(super) fn change_tcp(
        &mut self,
        host: usize,
        (number, end): (usize, usize),
        now: Instant,
        change: impl FnOnce(&mut Endsystem<SimMemory>, u32),
    ) {
        let Some(index) = self.conversations[number].ends[end].index else { return };
        self.notified_tcp(number, end, now);
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        change(&mut tcp.endsystem, index);
        let link = LinkId(self.conversations[number].plan.links[end]);
        if tcp.endsystem.has_input(index)
            && let Some(handler) = tcp.wake(index, link)
        {
            member.node.make_ready(handler, now);
        }
        self.settle_tcp(host, index, now);
    }

    /// Has a program ask its host something, which takes it a moment.
    pub(super) fn ask_tcp(&mut self, call: TcpCall) {
        let at = self.now + self.tcp_dice.span(Nanos(1), ASK_MAX);
        self.queue.schedule(at, Event::Tcp(TcpAct::Ask(call)));
    }

    /// A program's request reaches its host, if its end is still there.
    pub(super) fn pass_tcp(&mut self, call: TcpCall) {
        let (TcpCall::Attach(number, end)
        | TcpCall::Cut(number, end)
        | TcpCall::Ready(number, end)
        | TcpCall::Close(number, end)
        | TcpCall::Abort(number, end)
        | TcpCall::Release(number, end)) = call
        else {
            return;
        };
        if self.conversations[number].ends[end].index.is_some() {
            self.call(self.conversations[number].plan.hosts[end], Call::Tcp(call));
        }
    }
}
