//! The accounts of a node: each count that the node keeps, beside the sum over the objects that are counted.
//! For tests and simulations: a call visits every channel, flow and packet.

use alloc::vec::Vec;

use super::{Clip, Plane, RoleState};
use crate::api::{Account, FilterChange};
use crate::ids::{Cookie, LinkId, PathId};
use crate::memory::Memory;
use crate::node::Node;
use crate::node::packet::Packet;

/// Handlers of every node: best effort and drained rings.
const OWN_HANDLERS: usize = 2;

impl<M: Memory> Node<M> {
    /// All counts, each beside its expected value.
    pub fn accounts(&self) -> Vec<Account> {
        let (plane, signalling) = (&self.plane, &self.signalling);
        let mut accounts = plane.accounts();
        let known = plane.channels.clips.iter().filter(|clip| signalling.knows(clip.local.path)).count();
        accounts.push(of("ends of channels", None, plane.channels.clips.len(), known));
        let stages = plane.stages.accounts(|id| signalling.may_hold(id), signalling.holders());
        let own = signalling.accounts().into_iter().chain(stages);
        accounts.extend(own.map(|(what, [counted, held])| of(what, None, counted, held)));
        for link in plane.links() {
            let sums = signalling.link_accounts(link).into_iter().chain(plane.stages.link_accounts(link));
            accounts.extend(sums.map(|(what, [counted, held])| of(what, Some(link), counted, held)));
        }
        accounts
    }

    /// Number of operations that wait for a reply, by kind: receivers' requests, outgoing requests and
    /// replies that have no place in a stream yet, decisions, probes. All are 0 when no operation is in
    /// progress: anything that remains then was leaked.
    pub fn waiting(&self) -> [(&'static str, usize); 7] {
        self.signalling.waiting()
    }

    /// Channels that come in, with their links. Once all changes of [`Self::filter_changes`] are made, the drivers
    /// have a filter for each of them, and for nothing else.
    pub fn filtered(&self) -> impl Iterator<Item = (LinkId, PathId, Cookie)> {
        let clips = self.plane.channels.clips.iter();
        clips.filter_map(|clip| Some((clip.local.link_in?, clip.local.path, clip.local.cookie)))
    }

    /// Changes of filters that [`Self::poll_filter`] has not returned yet, in their order.
    pub fn filter_changes(&self) -> impl Iterator<Item = (LinkId, FilterChange)> {
        self.plane.context.news.filters.iter().copied()
    }

    /// Frames of a link's driver that this node holds. They must equal the frames that the node received less
    /// those that it dropped.
    pub fn frames_held(&self, link: LinkId) -> u64 {
        let plane = &self.plane;
        let waiting = plane.frames_of(|clip| clip.local.link_in == Some(link));
        (waiting + plane.best_effort_frames(link) + plane.link_state(link).signals.waiting.len()) as u64
    }
}

fn of(what: &'static str, link: Option<LinkId>, counted: usize, held: usize) -> Account {
    Account { what, link, counted: counted as u64, held: held as u64 }
}

impl<M: Memory> Plane<M> {
    /// All packets in the queues of all links.
    fn queued(&self) -> impl Iterator<Item = &Packet<M::Frame>> {
        self.context.links.states.iter().flat_map(|state| state.scheduler.queued())
    }

    /// Frames of some channels that come in: before their handlers and, where they pass through, before their links.
    fn frames_of(&self, of: impl Fn(&Clip<M>) -> bool) -> usize {
        let is_theirs = |packet: &&Packet<M::Frame>| match packet {
            Packet::Forward { channel, .. } => self.channels.clips.get(*channel).is_some_and(&of),
            _ => false,
        };
        let inputs: usize = self.channels.clips.iter().filter(|clip| of(clip)).map(Clip::inputs).sum();
        inputs + self.queued().filter(is_theirs).count()
    }

    /// Best-effort and demoted packets that came in on a link.
    fn best_effort_frames(&self, link: LinkId) -> usize {
        let is_its =
            |packet: &&Packet<M::Frame>| matches!(packet, Packet::Pass { link_in, .. } if *link_in == link);
        let arrived = self.best_effort.arrivals.iter().filter(|waiting| waiting.link == link).count();
        arrived + self.queued().filter(is_its).count()
    }

    fn accounts(&self) -> Vec<Account> {
        let clips = || self.channels.clips.iter();
        let handlers: usize = clips().map(Clip::handlers).sum();
        let fillers =
            self.context.links.states.iter().filter(|state| state.measuring.filler.is_some()).count();
        let handlers = OWN_HANDLERS
            + self.context.links.states.len()
            + handlers
            + self.best_effort.flows.len()
            + fillers;
        let handlers = handlers + self.rtu_places();
        let [messages_left, inputs_left] = self.left_behind();
        let sources: usize = messages_left + clips().map(Clip::messages).sum::<usize>();
        let flows: usize = self.best_effort.flows.values().map(|flow| flow.outgoing.len() as usize).sum();
        let coming_in = clips().filter(|clip| clip.local.link_in.is_some()).count();
        let mut accounts = Vec::from([
            of("paths", None, self.channels.paths.len(), coming_in),
            of(
                "soft channels",
                None,
                self.channels.soft as usize,
                clips().filter(|clip| clip.is_soft()).count(),
            ),
            of("handlers", None, self.context.processor.owners().count(), handlers),
            of(
                "packets before handlers",
                None,
                self.context.waiting.used(),
                inputs_left + clips().map(Clip::inputs).sum::<usize>(),
            ),
            of(
                "messages on their way out",
                None,
                self.context.messages.used(),
                sources + flows + self.sent_messages(),
            ),
            of(
                "best effort before its handler",
                None,
                self.best_effort.arrivals.counted() as usize,
                self.best_effort.arrivals.iter().count(),
            ),
        ]);
        let [senders, with_handle] = self.sender_handles();
        accounts.push(of("handles of senders", None, senders, with_handle));
        let places = self.rtu_accounts();
        accounts.extend(places.map(|books| of("places of handlers", None, books[0], books[1])));
        self.links().for_each(|link| accounts.extend(self.link_accounts(link)));
        accounts
    }

    fn link_accounts(&self, link: LinkId) -> [Account; 5] {
        let state = self.link_state(link);
        let channels = || self.channels.clips.iter();
        let pooled = self.frames_of(|clip| clip.local.link_in == Some(link) && clip.is_pooled());
        let out = channels().filter(|clip| clip.local.link_out == Some(link)).count();
        let [slots, queued] = state.scheduler.accounts();
        let account = |what, [counted, held]: [usize; 2]| of(what, Some(link), counted, held);
        [
            account(
                "frames of best effort",
                [state.frames.best_effort as usize, self.best_effort_frames(link)],
            ),
            account("frames of a pool", [state.frames.pooled as usize, pooled]),
            // Signalling has one, too.
            account("queues of channels", [state.scheduler.channels(), 1 + out + self.sender_queues(link)]),
            account("slots", slots),
            account("best-effort packets", queued),
        ]
    }
}

impl<M: Memory> Clip<M> {
    fn is_pooled(&self) -> bool {
        self.soft.as_ref().is_some_and(|soft| soft.pooled.is_some())
    }

    /// Packets that wait for the clip's handler.
    pub(super) fn inputs(&self) -> usize {
        match &self.role {
            RoleState::Source(_) => 0,
            RoleState::Forwarder(forwarder) => forwarder.input.packets_used as usize,
            RoleState::Sink(sink) => sink.input.packets_used as usize,
        }
    }

    /// Messages that the clip has taken from its ring.
    pub(super) fn messages(&self) -> usize {
        let RoleState::Source(source) = &self.role else { return 0 };
        let demoted = source.demoted.as_ref().map_or(0, |demoted| demoted.outgoing.len());
        (source.outgoing.len() + demoted) as usize
    }

    fn handlers(&self) -> usize {
        1 + match &self.role {
            RoleState::Source(source) => usize::from(source.demoted.is_some()),
            RoleState::Forwarder(_) => 0,
            RoleState::Sink(sink) => usize::from(sink.at_deadline.is_some()),
        }
    }
}
