//! Helpers of the message handlers: look-up of routes, links and neighbours, and sending.

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::Signalling;
use super::message::{Message, Route};
use super::packet::VERSION as RTCOP_VERSION;
use super::peer::Peer;
use super::source_turns::Source;
use crate::api::RefuseCause;
use crate::config::LinkConfig;
use crate::ids::{LinkId, ListenerId, Name, NodeId};

/// Longest time of retransmissions after which a neighbour's silence counts as a refusal.
const ANSWER_TIME_MAX: Nanos = Nanos::from_secs(60);

impl Signalling {
    pub(super) fn listener(&self, port: &Name) -> Option<ListenerId> {
        self.listeners.by_name.get(port).map(|listener| listener.id)
    }
    pub(super) fn handler_time(&self, port: &Name) -> Nanos {
        self.listeners.by_name.get(port).map_or(Nanos::ZERO, |listener| listener.handler_time)
    }
    /// Candidate routes without this node, in order of preference. A direct link is one of them.
    pub(super) fn candidates(&self, node: NodeId) -> Vec<Vec<NodeId>> {
        let configured = self.config.routes.iter().filter(|route| route.via.last() == Some(&node));
        let mut routes: Vec<_> = configured.map(|route| route.via.clone()).collect();
        let direct = alloc::vec![node];
        if self.config.links.iter().any(|link| link.neighbour == node) && !routes.contains(&direct) {
            routes.push(direct);
        }
        routes.retain(|via| {
            let nodes = core::iter::once(self.config.id).chain(via.iter().copied()).collect();
            Route { nodes, position: 0 }.leads(None, self.config.id)
        });
        routes
    }
    /// The link to a neighbour that is not known to be down.
    pub(super) fn link_to(&self, node: NodeId) -> Option<LinkId> {
        let index = self.links.peers.iter().position(|peer| peer.node() == node && peer.is_reachable())?;
        Some(LinkId(index as u16))
    }
    /// The link to the next node of `route`, where `route` is as that node will receive it.
    pub(super) fn link_along(&self, route: &Route) -> Option<LinkId> {
        self.link_to(route.here()?)
    }
    /// Why nothing can be sent to a node.
    pub(super) fn unreachable(&self, node: NodeId) -> RefuseCause {
        let peer = self.links.peers.iter().find(|peer| peer.node() == node);
        match peer.and_then(Peer::foreign_version) {
            Some(theirs) => RefuseCause::Version { node, theirs, ours: RTCOP_VERSION },
            None => RefuseCause::Unreachable(node),
        }
    }
    /// Whether replies to requests over a link have room.
    pub(super) fn has_room(&self, link: LinkId) -> bool {
        self.links.peers.get(usize::from(link.0)).is_some_and(Peer::has_room)
    }
    /// Whether `source` may send one more request over a link.
    pub(super) fn takes(&self, link: LinkId, source: Source) -> bool {
        self.links.peers.get(usize::from(link.0)).is_some_and(|peer| peer.takes(source))
    }
    pub(super) fn node_at(&self, link: LinkId) -> Option<NodeId> {
        self.links.peers.get(usize::from(link.0)).map(Peer::node)
    }
    pub(super) fn link_config(&self, link: LinkId) -> Option<&LinkConfig> {
        self.config.links.get(usize::from(link.0))
    }
    pub(super) fn propagation_max(&self, link: Option<LinkId>) -> Nanos {
        link.and_then(|link| self.link_config(link)).map_or(Nanos::ZERO, |link| link.propagation_max)
    }
    /// Longest time of a reply of the network: a peer's whole back-off.
    pub(super) fn answer_time(&self) -> Nanos {
        let doublings = self.config.signalling.retransmits_max.saturating_add(1).min(20);
        (self.config.signalling.retransmit * (1 << doublings)).min(ANSWER_TIME_MAX)
    }
    /// Applies `what` to the neighbour of a link. Links are indexes into the configuration's list, which has
    /// a neighbour for each. No effect for another link.
    pub(super) fn with_peer(&mut self, link: LinkId, what: impl FnOnce(&mut Peer)) {
        if let Some(peer) = self.links.peers.get_mut(usize::from(link.0)) {
            what(peer);
        }
    }
    pub(super) fn queue_message(&mut self, link: LinkId, message: &Message) {
        self.with_peer(link, |peer| peer.queue_message(message));
    }
    /// Sends the reply to a request of `source`.
    pub(super) fn answer(&mut self, link: Option<LinkId>, source: Source, message: &Message) {
        if let Some(link) = link {
            self.with_peer(link, |peer| peer.answer(source, message));
        }
    }
    /// Queues a request of `source`, which is sent in its turn.
    pub(super) fn ask_for(&mut self, link: LinkId, source: Source, message: &Message, now: Instant) {
        self.with_peer(link, |peer| peer.ask(source, message, now));
    }
    pub(super) fn send_to_neighbour(&mut self, link: Option<LinkId>, message: &Message) {
        if let Some(link) = link {
            self.queue_message(link, message);
        }
    }
}
