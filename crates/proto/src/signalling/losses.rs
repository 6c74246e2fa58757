//! Where messages of a channel that has been closed were lost: what its source has sent, what has passed each host between,
//! what came to the sink, each by its own count.
//!
//! A host between says so when its part has drained, which is before the sink's last word; the source compares. Who says
//! nothing leaves a gap between its neighbours: the loss is put on the link behind the last host that spoke.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Signalling;
use super::channel::Channel;
use super::message::{Message, Route};
use crate::ids::{LinkId, NodeId, PathId};
use crate::node::api::{LostAt, Passed, Receipt, StageName};

/// What hosts have said of channels whose source is here and waits for the sink's last word.
#[derive(Debug, Default)]
pub struct Losses {
    channels: BTreeMap<PathId, Vec<(NodeId, Passed)>>,
}

impl Losses {
    /// The source has sent everything.
    pub fn begin(&mut self, path: PathId, source: NodeId, passed: Passed) {
        self.channels.insert(path, alloc::vec![(source, passed)]);
    }

    /// A host between has said what passed it. `false`: it was not asked for, or has said so before.
    fn note(&mut self, path: PathId, said: (NodeId, Passed)) -> bool {
        let Some(hosts) = self.channels.get_mut(&path) else { return false };
        let is_news = hosts.iter().all(|(node, _)| *node != said.0);
        if is_news {
            hosts.push(said);
        }
        is_news
    }

    /// The channel is over: where most messages were lost on the way along `nodes`.
    pub fn end(&mut self, path: PathId, nodes: &[NodeId], receipt: Option<&Receipt>) -> Option<LostAt> {
        let said = self.channels.remove(&path)?;
        let receipt = receipt?;
        let known = |node: &NodeId| said.iter().find(|(said, _)| said == node).map(|(_, passed)| *passed);
        let (sink, before) = nodes.split_last()?;
        let at_sink = (*sink, Passed { messages_in: receipt.received, messages_out: receipt.delivered });
        let hosts = before.iter().filter_map(|node| Some((*node, known(node)?))).chain([at_sink]);
        // What was demoted on its way passes hosts as best effort, which is not counted there.
        let missing = known(before.first()?)?.messages_out.saturating_sub(receipt.delivered);
        let most = most_lost(nodes, hosts).filter(|_| missing > 0)?;
        Some(LostAt { messages: most.messages.min(missing), ..most })
    }
}

fn most_lost(nodes: &[NodeId], hosts: impl Iterator<Item = (NodeId, Passed)>) -> Option<LostAt> {
    let mut most: Option<LostAt> = None;
    let mut note = |stage, sent: u64, came: u64| {
        let messages = sent.saturating_sub(came);
        if messages > most.map_or(0, |most| most.messages) {
            most = Some(LostAt { stage, messages });
        }
    };
    let mut before: Option<(NodeId, Passed)> = None;
    for (node, passed) in hosts {
        if let Some((from, sent)) = before {
            let towards = nodes.iter().skip_while(|other| **other != from).nth(1).copied();
            note(StageName { node: from, towards }, sent.messages_out, passed.messages_in);
            note(StageName { node, towards: None }, passed.messages_in, passed.messages_out);
        }
        before = Some((node, passed));
    }
    most
}

impl Signalling {
    /// Tells the source what has passed here.
    pub(super) fn send_passed(&mut self, channel: &Channel, passed: Passed) {
        let route = Route { nodes: channel.way.nodes.clone(), position: channel.position }.back();
        self.pass_passed(channel.local.path, route, (self.config.id, passed));
    }

    /// `route` as its next receiver sees it.
    fn pass_passed(&mut self, path: PathId, route: Route, (node, passed): (NodeId, Passed)) {
        let link = self.link_along(&route);
        self.say_to(link, &Message::Passed { path, route, node, passed });
    }

    /// A host between says what has passed it.
    pub(super) fn on_passed(&mut self, link: LinkId, path: PathId, route: &Route, said: (NodeId, Passed)) {
        if !route.leads(self.node_at(link), self.config.id) {
            self.counters.unexpected += 1;
        } else if route.next().is_some() {
            self.pass_passed(path, route.advanced(), said);
        } else if !self.losses.note(path, said) {
            self.counters.unexpected += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 4] = [NodeId(1), NodeId(2), NodeId(3), NodeId(4)];

    fn most(counts: &[(u32, u64, u64)]) -> Option<(u32, Option<u32>, u64)> {
        let hosts = counts.iter().map(|(node, messages_in, messages_out)| {
            (NodeId(*node), Passed { messages_in: *messages_in, messages_out: *messages_out })
        });
        let LostAt { stage, messages } = most_lost(&NODES, hosts)?;
        Some((stage.node.0, stage.towards.map(|node| node.0), messages))
    }

    #[test]
    fn the_place_of_most_losses_is_named() {
        assert_eq!(most(&[(1, 0, 10), (2, 10, 10), (3, 10, 10), (4, 10, 10)]), None);
        assert_eq!(most(&[(1, 0, 10), (2, 10, 10), (3, 3, 3), (4, 3, 2)]), Some((2, Some(3), 7)));
        assert_eq!(most(&[(1, 0, 10), (2, 10, 4), (3, 4, 4), (4, 2, 2)]), Some((2, None, 6)));
        assert_eq!(most(&[(1, 0, 10), (2, 10, 10), (3, 10, 10), (4, 10, 1)]), Some((4, None, 9)));
        // Two of the hosts have said nothing.
        assert_eq!(most(&[(1, 0, 10), (4, 8, 8)]), Some((1, Some(2), 2)));
    }
}
