//! RTCOP's messages. They travel in order and exactly once between neighbours ([`super::reliable_stream`]).

use alloc::boxed::Box;
use alloc::vec::Vec;

use punctual_analysis::{Contract, Nanos, Ppm};
use serde::{Deserialize, Serialize};

use super::rate_messages::RateWord;
use super::source_turns::Source;
use crate::api::{
    Breach, ChannelRefusal, CloseReason, LateArrivals, Passed, Receipt, StageGrant, StageName, Tally, UserId,
};
use crate::ids::{Address, ChannelNumber, Cookie, Epoch, LinkId, Name, NodeId, PathId};
use crate::limits::ROUTE_NODES_MAX;

/// The nodes of a route and the present position on it: source routing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub nodes: Vec<NodeId>,
    /// Index of the node that receives the message.
    pub position: u8,
}

impl Route {
    /// Whether the receiver may follow the route: the position is the receiver's, the previous node is the
    /// sender, and no node occurs twice.
    pub fn leads(&self, from: Option<NodeId>, here: NodeId) -> bool {
        let fits = (2..=ROUTE_NODES_MAX).contains(&self.nodes.len());
        let once = self.nodes.iter().enumerate().all(|(i, node)| !self.nodes[..i].contains(node));
        fits && once && self.here() == Some(here) && (from.is_none() || self.before() == from)
    }
    pub fn here(&self) -> Option<NodeId> {
        self.nodes.get(usize::from(self.position)).copied()
    }
    pub fn before(&self) -> Option<NodeId> {
        self.nodes.get(usize::from(self.position).checked_sub(1)?).copied()
    }
    pub fn next(&self) -> Option<NodeId> {
        self.nodes.get(usize::from(self.position) + 1).copied()
    }
    pub fn first(&self) -> Option<NodeId> {
        self.nodes.first().copied()
    }
    pub fn last(&self) -> Option<NodeId> {
        self.nodes.last().copied()
    }
    /// Nodes behind this one.
    pub fn nodes_left(&self) -> u64 {
        self.nodes.len().saturating_sub(usize::from(self.position) + 1) as u64
    }
    /// Nodes from the first to this one.
    pub fn nodes_done(&self) -> u64 {
        u64::from(self.position) + 1
    }
    /// The route as the next node receives it, one position further.
    pub fn advanced(&self) -> Self {
        Self { nodes: self.nodes.clone(), position: self.position.saturating_add(1) }
    }
    /// The route back, as the previous node receives it.
    pub fn back(&self) -> Self {
        let nodes: Vec<_> = self.nodes.iter().rev().copied().collect();
        let position = nodes.len().saturating_sub(usize::from(self.position)) as u8;
        Self { nodes, position }
    }
}

/// Phase one of establishment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    pub path: PathId,
    pub cookie: Cookie,
    pub route: Route,
    pub from: Name,
    pub user: UserId,
    pub to: Address,
    pub contract: Contract,
    pub fragment_bytes: u32,
    /// Holds no resources and asks no application.
    pub probe: bool,
    /// Token of the receiver's request that this CREATE answers.
    pub token: Option<u64>,
    /// The stages so far.
    pub stages: Vec<StageGrant>,
    /// The part of J here that does not depend on bounds.
    pub arrival_error_fixed: Nanos,
    /// rho, by the worst clock so far.
    pub drift: Ppm,
}

impl Create {
    /// The requesting user.
    pub const fn source(&self) -> Source {
        Source { node: self.path.node, user: self.user }
    }
}

/// A receiver's request to a source host's application to open a channel to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub token: u64,
    /// Route from the receiver to the source.
    pub route: Route,
    /// Epoch of the receiver.
    pub epoch: Epoch,
    /// Listener at the source.
    pub port: Name,
    pub reply_to: Address,
    pub contract: Contract,
    pub user: UserId,
}

impl Request {
    /// The requesting user.
    pub fn source(&self) -> Source {
        Source { node: self.route.first().unwrap_or_default(), user: self.user }
    }
}

/// A host's report about a stage of its own, or about the link that it receives from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageReport {
    pub stage: StageName,
    pub witness: Witness,
    /// Epoch of the reporting host, and number of the report within it.
    pub epoch: Epoch,
    pub number: u64,
    /// `None`: the stage keeps its promise.
    pub breach: Option<Breach>,
}

impl StageReport {
    /// The host that reports.
    pub const fn reporter(&self) -> Option<NodeId> {
        match self.witness {
            Witness::Owner => Some(self.stage.node),
            Witness::Receiver => self.stage.towards,
        }
    }
}

/// The host that reports that a stage breaks its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Witness {
    /// The host that owns the stage: to all hosts of the channels.
    Owner,
    /// The host at the other end of a link: to the hosts beyond it, because the owner's report may wait in
    /// the queue of that link.
    Receiver,
}

impl Witness {
    /// The links at the reporting host by which the report leaves, for a channel with these links.
    pub fn links(self, link_in: Option<LinkId>, link_out: Option<LinkId>) -> impl Iterator<Item = LinkId> {
        let link_in = link_in.filter(|_| self == Self::Owner);
        [link_in, link_out].into_iter().flatten()
    }
}

/// All messages of RTCOP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    Create(Create),
    /// Phase two: final bounds of the stages behind, smallest ones of those before; rho by the worst clock.
    Accept {
        path: PathId,
        drift: Ppm,
        stages: Vec<StageGrant>,
    },
    Refuse {
        path: PathId,
        refusal: ChannelRefusal,
    },
    /// Reply to a probe. No hop stores the probe, so the reply carries the route back.
    Probed {
        path: PathId,
        route: Route,
        /// The requesting user, at the source.
        user: UserId,
        /// `Ok`: the probe, with the bounds that the stages would get. The nodes that it passes test them as
        /// for an ACCEPT.
        answer: Result<Box<Create>, ChannelRefusal>,
    },
    /// The source has the ACCEPT.
    Confirm {
        path: PathId,
    },
    /// The channel ends; in either direction.
    Destroy {
        path: PathId,
        reason: CloseReason,
        /// Everything that the channel's source has sent, if the source sent this. A host that all of it has
        /// passed need not wait.
        sent: Option<Tally>,
    },
    /// The sink's final report about a channel. Hops may have removed the channel already, so it carries the
    /// route back.
    Ended {
        path: PathId,
        route: Route,
        /// `Local`: the close that the source began is complete.
        reason: CloseReason,
        receipt: Receipt,
    },
    /// Renews the leases of these channels, which the receiver of this message has from the sender.
    Refresh {
        node: NodeId,
        epoch: Epoch,
        channels: Vec<ChannelNumber>,
    },
    /// Report of a host between to the source: what has passed it, when its part of the channel has drained.
    Passed {
        path: PathId,
        route: Route,
        node: NodeId,
        passed: Passed,
    },
    /// Reports to the host at the other end of the link that its packets arrived later than allowed.
    LateArrivals(LateArrivals),
    /// A stage breaks its promise, or keeps it again. Sent along the channels that pass it, away from it.
    Stage(StageReport),
    Request(Request),
    RequestRefused {
        token: u64,
        epoch: Epoch,
        route: Route,
        /// The requesting user, at the receiver.
        user: UserId,
        refusal: ChannelRefusal,
    },
    /// A message about measuring the link, to the host at its other end.
    Rate(RateWord),
}

impl Message {
    /// `None` if it is longer than a message may be.
    pub fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_allocvec(self)
            .ok()
            .filter(|bytes| bytes.len() <= crate::limits::SIGNAL_MESSAGE_BYTES_MAX)
    }
    /// `None` if the bytes are no message.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((message, [])) => Some(message),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(nodes: &[u32], position: u8) -> Route {
        Route { nodes: nodes.iter().copied().map(NodeId).collect(), position }
    }

    #[test]
    fn a_route_leads_only_where_it_names() {
        let here = route(&[1, 2, 3], 1);
        assert!(here.leads(Some(NodeId(1)), NodeId(2)));
        assert!(!here.leads(Some(NodeId(3)), NodeId(2)) && !here.leads(Some(NodeId(1)), NodeId(3)));
        assert!(!route(&[1, 2, 1], 1).leads(Some(NodeId(1)), NodeId(2)), "a loop");
        assert!(!route(&[1], 0).leads(None, NodeId(1)) && !route(&[1, 2], 9).leads(None, NodeId(2)));
        assert!(!route(&(1..40).collect::<Vec<_>>(), 1).leads(Some(NodeId(1)), NodeId(2)), "too long");
    }

    /// At each position of a route: the nodes around it, and how many there are before and behind.
    #[test]
    fn a_route_is_counted_from_each_of_its_nodes() {
        let nodes = [5, 3, 9, 1];
        for here in 0..nodes.len() {
            let way = route(&nodes, here as u8);
            let at = |index: usize| nodes.get(index).map(|node| NodeId(*node));
            let before = here.checked_sub(1).and_then(at);
            assert_eq!((way.before(), way.here(), way.next()), (before, at(here), at(here + 1)));
            assert_eq!((way.first(), way.last()), (at(0), at(3)));
            // With this node there are as many as the route has.
            assert_eq!((way.nodes_done(), way.nodes_left()), (here as u64 + 1, 3 - here as u64));
            assert_eq!(way.advanced(), route(&nodes, here as u8 + 1));
            for (from, leads) in [(before, true), (None, true), (Some(NodeId(77)), false)] {
                assert_eq!(way.leads(from, NodeId(nodes[here])), leads, "{here} from {from:?}");
            }
        }
        let longest: Vec<_> = (1..=ROUTE_NODES_MAX as u32 + 1).collect();
        for (nodes, leads) in [(1, false), (2, true), (ROUTE_NODES_MAX, true), (ROUTE_NODES_MAX + 1, false)] {
            assert_eq!(route(&longest[..nodes], 0).leads(None, NodeId(1)), leads, "{nodes} nodes");
        }
    }

    /// The owner of a stage reports to both sides, the host at the end of a link only beyond it.
    #[test]
    fn reports_leave_by_the_links_of_their_witness() {
        let links = |witness: Witness, link_in: Option<u16>, link_out: Option<u16>| -> Vec<u16> {
            witness.links(link_in.map(LinkId), link_out.map(LinkId)).map(|link| link.0).collect()
        };
        for link_out in [None, Some(4)] {
            let onward: Vec<_> = link_out.into_iter().collect();
            assert_eq!(links(Witness::Owner, None, link_out), onward);
            assert_eq!(links(Witness::Owner, Some(3), link_out), [&[3], &*onward].concat());
            assert_eq!(links(Witness::Receiver, Some(3), link_out), onward);
        }
    }

    #[test]
    fn the_way_back_reaches_the_node_before() {
        let back = route(&[1, 2, 3, 4], 2).back();
        assert_eq!(back, route(&[4, 3, 2, 1], 2));
        assert!(back.leads(Some(NodeId(3)), NodeId(2)));
        assert_eq!(back.advanced().next(), None);
    }

    #[test]
    fn cut_or_padded_messages_are_none() {
        let message = Message::Confirm { path: PathId::default() };
        let mut bytes = message.encode().expect("short");
        assert_eq!(Message::decode(&bytes), Some(message));
        bytes.push(0);
        assert_eq!(Message::decode(&bytes), None);
        assert_eq!(Message::decode(&bytes[..1]), None);
        assert_eq!(Message::decode(&[0xff; 40]), None);
    }

    /// A message may be as long as the longest that a neighbour takes, and no longer.
    #[test]
    fn a_message_is_encoded_up_to_its_largest_length() {
        use crate::ids::ChannelNumber;
        let of = |channels: usize| {
            // Each number takes a byte.
            let channels = alloc::vec![ChannelNumber(1); channels];
            Message::Refresh { node: NodeId(1), epoch: Epoch(1), channels }.encode().map(|bytes| bytes.len())
        };
        let beside = of(1_000).expect("short") - 1_000;
        let most = crate::limits::SIGNAL_MESSAGE_BYTES_MAX;
        assert_eq!([of(most - beside), of(most - beside + 1)], [Some(most), None]);
    }
}
