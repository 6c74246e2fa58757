//! Both channels of a connection whose path is reserved (ADR 0055), as its programs open and close them: the client asks the server
//! for a channel, opens the other one when that is there, and each end joins both. They close when the connection is over at an
//! end, first the outgoing one.

use std::net::{IpAddr, Ipv6Addr};

use punctual_analysis::{Contract, Nanos};
use punctual_proto::ids::ChannelId;

use super::{Event, Stage, TcpAct, World};
use crate::scenario::{ChannelPlan, Reply, RequestPlan, node_id};
use crate::topology::Arrivals;
use crate::world::call::{Call, TcpCall};
use crate::world::channel::State;

/// Time of a client until it opens its channel, and of a server until it accepts, at most.
const STEP_MAX: [Nanos; 2] = [Nanos::from_micros(300), Nanos::from_millis(5)];
/// Time of a host until it closes the channels of a connection that is over, at most.
const CLOSE_MAX: Nanos = Nanos::from_micros(300);

/// The address of a host on reserved paths (RFC 4193).
pub(super) fn path_address(host: usize) -> IpAddr {
    let id = u128::from(node_id(host).0);
    Ipv6Addr::from(0xfd70_756e_6374_u128 << 80 | id).into()
}

/// The channels of a connection.
pub(super) struct Path {
    contract: Contract,
    /// The client's request for the channel to it.
    request: Option<usize>,
    /// The attempt that carries what each end sends.
    channels: [Option<usize>; 2],
    /// Whether the channel to each end is established there.
    is_established: [bool; 2],
    /// An end has begun to close them, or one has ended.
    is_ending: bool,
}

impl Path {
    pub const fn new(contract: Contract) -> Self {
        Self { contract, request: None, channels: [None; 2], is_established: [false; 2], is_ending: false }
    }

    pub const fn is_ending(&self) -> bool {
        self.is_ending
    }
}

impl World {
    /// The attempts that an end of a connection sends and receives on, as far as there are any.
    pub(super) fn channels_of(&self, number: usize, end: usize) -> [Option<usize>; 2] {
        let channels = self.conversations[number].path.as_ref().map(|path| path.channels);
        channels.map_or([None; 2], |channels| [channels[end], channels[1 - end]])
    }

    /// The handle of a channel that is open at the host where it begins, or ends.
    pub(super) fn open_handle(&self, attempt: usize, at_sink: bool) -> Option<ChannelId> {
        let channel = self.channels.get(attempt)?;
        let is_open = channel.state == State::Open && !channel.is_gone(at_sink);
        channel.handle(at_sink).filter(|_| is_open)
    }

    /// The client asks for the channel to it.
    pub(in crate::world) fn request_path(&mut self, number: usize) {
        let [asker, source] = self.conversations[number].plan.hosts;
        let Some(path) = &mut self.conversations[number].path else { return };
        let plan = RequestPlan { asker, source, contract: path.contract, at: self.now, reply: Reply::Opens };
        path.request = Some(self.scenario.requests.len());
        self.request_beside(plan);
    }

    fn path_of(&self, request: usize) -> Option<usize> {
        let asked = |path: &Path| path.request == Some(request);
        self.conversations.iter().position(|talk| talk.path.as_ref().is_some_and(asked))
    }

    /// Whether a receiver's request is that of a connection.
    pub(in crate::world) fn is_path(&self, request: usize) -> bool {
        self.path_of(request).is_some()
    }

    /// The server opens the channel that a client has asked for.
    pub(in crate::world) fn path_answered(&mut self, request: usize, attempt: usize) {
        if let Some(number) = self.path_of(request) {
            self.carry((number, 1), attempt);
        }
    }

    /// There will be no channel from the server.
    pub(in crate::world) fn path_refused(&mut self, request: usize) {
        if let Some(number) = self.path_of(request) {
            self.excuse_path(number, "its request failed");
        }
    }

    fn carry(&mut self, (number, end): (usize, usize), attempt: usize) {
        self.channels[attempt].tcp = Some((number, end));
        if let Some(path) = &mut self.conversations[number].path {
            path.channels[end] = Some(attempt);
        }
    }

    fn excuse_path(&mut self, number: usize, why: &'static str) {
        self.conversations[number].excuse.get_or_insert(why);
        self.conversations[number].promise = None;
    }

    /// The client has the channel from the server, and opens the other one.
    pub(super) fn open_forward(&mut self, number: usize) {
        let [from, to] = self.conversations[number].plan.hosts;
        let Some(contract) = self.conversations[number].path.as_ref().map(|path| path.contract) else {
            return;
        };
        let plan = ChannelPlan { arrivals: Arrivals::Breaker, ..self.plain_channel((from, to), contract) };
        let attempt = self.ask_beside(plan);
        self.carry((number, 0), attempt);
    }

    /// A channel was established at the host where it ends.
    pub(in crate::world) fn path_established(&mut self, host: usize, channel: ChannelId) {
        let Some(&(attempt, true)) = self.handles.get(&(host, channel)) else { return };
        let Some((number, end)) = self.channels[attempt].tcp else { return };
        let receiver = 1 - end;
        if let Some(path) = &mut self.conversations[number].path {
            path.is_established[receiver] = true;
        }
        if receiver == 0 {
            let at = self.now + self.tcp_dice.span(Nanos(1), STEP_MAX[0]);
            return self.queue.schedule(at, Event::Tcp(TcpAct::Forward(number)));
        }
        self.join_soon(number, receiver);
    }

    /// A channel was opened at the host where it begins.
    pub(in crate::world) fn path_opened(&mut self, attempt: usize) {
        if let Some((number, end)) = self.channels[attempt].tcp {
            self.join_soon(number, end);
        }
    }

    /// An end that has both channels joins them.
    fn join_soon(&mut self, number: usize, end: usize) {
        let [outgoing, _] = self.channels_of(number, end);
        let is_open = outgoing.and_then(|attempt| self.open_handle(attempt, false)).is_some();
        let Some(Path { is_established, is_ending, .. }) = &self.conversations[number].path else { return };
        if *is_ending {
            self.part_from_path(number, end);
        } else if is_open && is_established[end] {
            let at = self.now + self.tcp_dice.span(Nanos(1), STEP_MAX[end]);
            self.queue.schedule(at, Event::Tcp(TcpAct::Join(number, end)));
        }
    }

    /// A channel of a connection was refused or has ended at `host`, and why that is nobody's wish.
    pub(in crate::world) fn path_channel_ended(&mut self, host: usize, attempt: usize, why: &'static str) {
        let Some((number, sender)) = self.channels[attempt].tcp else { return };
        if !why.is_empty() {
            self.excuse_path(number, why);
        }
        if let Some(path) = &mut self.conversations[number].path {
            path.is_ending = true;
        }
        let end = if self.channels[attempt].plan.from == host { sender } else { 1 - sender };
        match self.conversations[number].ends[end].stage {
            Stage::Planned | Stage::Over => self.part_from_path(number, end),
            _ => self.ask_tcp(TcpCall::Cut(number, end)),
        }
    }

    /// An end has no connection any more: its host closes the channels.
    pub(super) fn part_from_path(&mut self, number: usize, end: usize) {
        let is_kept = self.options.sabotage.tcp_path_kept;
        let is_there = matches!(self.conversations[number].ends[end].stage, Stage::Planned | Stage::Over);
        if self.conversations[number].path.is_some() && is_there && !is_kept {
            let at = self.now + self.tcp_dice.span(Nanos(1), CLOSE_MAX);
            self.queue.schedule(at, Event::Tcp(TcpAct::ClosePath(number, end)));
        }
    }

    /// The outgoing channel is first: it still sends what is queued. The other one follows when it has ended.
    pub(super) fn close_path(&mut self, number: usize, end: usize) {
        let host = self.conversations[number].plan.hosts[end];
        let [outgoing, incoming] = self.channels_of(number, end);
        let is_there = |attempt: &usize| {
            self.channels.get(*attempt).is_some_and(|it| it.source.is_some() && !it.source_gone)
        };
        let first = match outgoing.filter(is_there) {
            Some(attempt) => (attempt, false),
            None => match incoming {
                Some(attempt) => (attempt, true),
                None => return,
            },
        };
        let (attempt, at_sink) = first;
        if self.open_handle(attempt, at_sink).is_some() {
            if let Some(path) = &mut self.conversations[number].path {
                path.is_ending = true;
            }
            self.call(host, Call::Close { channel: attempt, at_sink });
        }
    }
}
