//! Locates the losses of a closed channel, from the number of messages that its source has sent, that have
//! passed each host between, and that arrived at the sink, each by its own count.
//!
//! A host between reports when its part has drained, which is before the sink's final report. The source
//! compares. If a host does not report, the loss is attributed to the link behind the last host before it
//! that did. Messages that a host dropped were lost there, for its reason. Only messages that no host counted
//! as dropped were lost on the link between.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::message::{Message, Route};
use super::{Channel, Signalling};
use crate::api::{LostAt, Passed, Receipt, StageName};
use crate::ids::{LinkId, NodeId, PathId};

/// Reports of hosts about channels whose source is here and waits for the sink's final report.
#[derive(Debug, Default)]
pub struct Losses {
    channels: BTreeMap<PathId, ChannelLosses>,
}

/// What hosts have reported about one channel.
#[derive(Debug)]
struct ChannelLosses {
    hosts: Vec<(NodeId, Passed)>,
    /// The sink's final report, if it came before the hosts between have released the channel.
    word: Option<Receipt>,
}

impl Losses {
    /// Begins to collect reports: the source has sent everything.
    pub fn begin(&mut self, path: PathId, source: NodeId, passed: Passed) {
        self.channels.insert(path, ChannelLosses { hosts: alloc::vec![(source, passed)], word: None });
    }

    /// Stores the sink's final report.
    pub fn keep_word(&mut self, path: PathId, word: Receipt) {
        if let Some(reported) = self.channels.get_mut(&path) {
            reported.word = Some(word);
        }
    }

    /// The sink's final report, if it has come.
    pub fn word(&self, path: PathId) -> Option<Receipt> {
        self.channels.get(&path)?.word
    }

    /// Stores the report of a host between. Returns `false` if it was not expected, or has come before.
    fn note(&mut self, path: PathId, reported: (NodeId, Passed)) -> bool {
        let Some(ChannelLosses { hosts, .. }) = self.channels.get_mut(&path) else { return false };
        let is_news = hosts.iter().all(|(node, _)| *node != reported.0);
        if is_news {
            hosts.push(reported);
        }
        is_news
    }

    /// Ends the collection. Returns where most messages were lost on the route along `nodes`.
    pub fn end(&mut self, path: PathId, nodes: &[NodeId], receipt: Option<&Receipt>) -> Option<LostAt> {
        let reported = self.channels.remove(&path)?.hosts;
        let receipt = receipt?;
        let known =
            |node: &NodeId| reported.iter().find(|(reported, _)| reported == node).map(|(_, passed)| *passed);
        let (sink, before) = nodes.split_last()?;
        let hosts = before.iter().filter_map(|node| Some((*node, known(node)?)));
        let missing = known(before.first()?)?.messages_out.saturating_sub(receipt.delivered);
        let most = most_lost(nodes, hosts, (*sink, receipt.passed)).filter(|_| missing > 0)?;
        Some(LostAt { messages: most.messages.min(missing), ..most })
    }
}

/// `hosts`: those before the sink that have reported, in order.
fn most_lost(
    nodes: &[NodeId],
    hosts: impl Iterator<Item = (NodeId, Passed)>,
    (sink, at_sink): (NodeId, Passed),
) -> Option<LostAt> {
    let mut most: Option<LostAt> = None;
    let mut note = |stage, messages: u64, why| {
        if messages > most.map_or(0, |most| most.messages) {
            most = Some(LostAt { stage, messages, why });
        }
    };
    let mut before: Option<(NodeId, Passed)> = None;
    for (node, passed) in hosts.chain([(sink, at_sink)]) {
        if let Some((from, sent)) = before {
            let towards = nodes.iter().skip_while(|other| **other != from).nth(1).copied();
            let on_link = sent.packets_out.saturating_sub(passed.packets_in);
            note(StageName { node: from, towards }, on_link, None);
            // No packet leaves a sink: a packet that it has not dropped was delivered, or belongs to an
            // incomplete message.
            let here = match node == sink {
                true => passed.thrown.all(),
                false => passed.packets_in.saturating_sub(passed.packets_out),
            };
            note(StageName::processor(node), here, passed.thrown.mostly());
        }
        before = Some((node, passed));
    }
    most
}

impl Signalling {
    /// Reports to the source what has passed here.
    pub(super) fn send_passed(&mut self, channel: &Channel, passed: Passed) {
        let route = Route { nodes: channel.route.nodes.clone(), position: channel.position }.back();
        self.pass_passed(channel.local.path, route, (self.config.id, passed));
    }

    /// `route` as its next receiver sees it.
    fn pass_passed(&mut self, path: PathId, route: Route, (node, passed): (NodeId, Passed)) {
        let link = self.link_along(&route);
        self.send_to_neighbour(link, &Message::Passed { path, route, node, passed });
    }

    /// Handles a report of a host between.
    pub(super) fn on_passed(
        &mut self,
        link: LinkId,
        path: PathId,
        route: &Route,
        reported: (NodeId, Passed),
    ) {
        if !route.leads(self.node_at(link), self.config.id) {
            self.counters.unexpected += 1;
        } else if route.next().is_some() {
            self.pass_passed(path, route.advanced(), reported);
        } else if !self.losses.note(path, reported) {
            self.counters.unexpected += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{DroppedPackets, LostWhy};

    const NODES: [NodeId; 4] = [NodeId(1), NodeId(2), NodeId(3), NodeId(4)];

    /// For each host: messages that arrived, left, and were dropped for lack of a buffer and of a slot. The
    /// last host is the sink.
    fn most(counts: &[(u32, [u64; 4])]) -> Option<(u32, Option<u32>, u64, Option<LostWhy>)> {
        let passed = |[packets_in, packets_out, no_buffer, no_slot]: [u64; 4]| Passed {
            packets_in,
            packets_out,
            thrown: DroppedPackets { no_buffer, no_slot, ..DroppedPackets::default() },
            ..Passed::default()
        };
        let mut hosts: Vec<_> = counts.iter().map(|(node, of)| (NodeId(*node), passed(*of))).collect();
        let sink = hosts.pop()?;
        let LostAt { stage, messages, why } = most_lost(&NODES, hosts.into_iter(), sink)?;
        Some((stage.node.0, stage.towards.map(|node| node.0), messages, why))
    }

    #[test]
    fn the_place_of_most_losses_is_named() {
        const OUT: [u64; 4] = [0, 10, 0, 0];
        const ALL: [u64; 4] = [10, 10, 0, 0];
        const TAKEN: [u64; 4] = [10, 0, 0, 0];
        assert_eq!(most(&[(1, OUT), (2, ALL), (3, ALL), (4, TAKEN)]), None);
        let lossy = [(1, OUT), (2, ALL), (3, [3, 3, 0, 0]), (4, [3, 0, 1, 0])];
        assert_eq!(most(&lossy), Some((2, Some(3), 7, None)));
        // Two of the hosts have not reported.
        assert_eq!(most(&[(1, OUT), (4, [8, 0, 0, 0])]), Some((1, Some(2), 2, None)));
        assert_eq!(most(&[(1, OUT), (4, [9, 0, 0, 0])]), Some((1, Some(2), 1, None)), "a single one");
    }

    /// A loss is reported from the first message on that the sink has not delivered, and no more of them than
    /// are missing.
    #[test]
    fn a_loss_is_reported_from_the_first_missing_message_on() {
        let path = PathId { node: NODES[0], ..PathId::default() };
        let passed = |packets_in, packets_out, messages_out| Passed {
            packets_in,
            packets_out,
            messages_out,
            ..Passed::default()
        };
        // Ten messages of three packets each; those of the last one or two are missing behind the first host.
        for (delivered, lost) in [(10, None), (9, Some(1)), (8, Some(2)), (0, Some(3)), (11, None)] {
            let mut losses = Losses::default();
            losses.begin(path, NODES[0], passed(0, 30, 10));
            assert!(losses.note(path, (NODES[1], passed(27, 27, 9))));
            assert!(!losses.note(path, (NODES[1], passed(1, 1, 1))), "it has said so");
            let receipt = Receipt { delivered, passed: passed(27, 0, 9), ..Receipt::default() };
            let lost_at = losses.end(path, &NODES, Some(&receipt));
            let place = lost_at.map(|at| (at.stage, at.messages));
            let stage = StageName { node: NODES[0], towards: Some(NODES[1]) };
            assert_eq!(place, lost.map(|messages| (stage, messages)), "{delivered}");
            assert_eq!(losses.end(path, &NODES, Some(&receipt)), None, "it is over");
            assert!(!losses.note(path, (NODES[2], passed(1, 1, 1))));
        }
    }

    #[test]
    fn drops_of_a_host_count_there_and_not_on_the_link_before() {
        use LostWhy::{NoBuffer, NoSlot};
        const OUT: [u64; 4] = [0, 12_000, 0, 0];
        let slow = |no_buffer, no_slot| [12_000, 12_000 - no_buffer - no_slot, no_buffer, no_slot];
        let came = [10_760, 0, 0, 0];
        let forwarder = [(1, OUT), (2, slow(997, 243)), (4, came)];
        assert_eq!(most(&forwarder), Some((2, None, 1_240, Some(NoBuffer))));
        assert_eq!(most(&[(1, OUT), (2, slow(3, 1_237)), (4, came)]), Some((2, None, 1_240, Some(NoSlot))));
        let sink = [(1, OUT), (2, slow(0, 0)), (4, [12_000, 0, 0, 9])];
        assert_eq!(most(&sink), Some((4, None, 9, Some(NoSlot))));
        let unnamed = [(1, OUT), (2, [12_000, 11_000, 0, 0]), (4, [11_000, 0, 0, 0])];
        assert_eq!(most(&unnamed), Some((2, None, 1_000, None)), "for a reason that it does not know");
    }
}
