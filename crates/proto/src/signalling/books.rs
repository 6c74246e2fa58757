//! The books of signalling: each count and index that it keeps beside its tables, and what the tables themselves say. Whatever
//! waits for an answer is in one of them: requests of receivers, asks and answers in outboxes, decisions under way.

use alloc::vec::Vec;

use super::states::State;
use super::{Channel, Signalling};
use crate::ids::{ChannelId, LinkId};

/// One account: what it counts, then the count that is kept and the count of what is there.
pub type Entry = (&'static str, [usize; 2]);

impl Signalling {
    /// What is counted of channels, requests and decisions, and what they themselves say.
    pub fn books(&self) -> Vec<Entry> {
        let mut books: Vec<Entry> = self.channels.books().into();
        books.extend(self.requests.books());
        books.push(("paths of decisions", self.deciding.books()));
        books
    }

    /// Accounts of a link, together with what waits for its neighbour.
    pub fn link_books(&self, link: LinkId) -> Vec<Entry> {
        let mut books: Vec<Entry> = self.channels.link_books(link).into();
        let peer = self.links.peers.get(usize::from(link.0));
        books.extend(peer.into_iter().flat_map(|peer| peer.outbox().books()));
        books
    }

    /// Whether a channel may hold resources here: it is there, or its stages were asked.
    pub fn may_hold(&self, id: ChannelId) -> bool {
        self.channels.get(id).is_some_and(|channel| channel.state.holds()) || self.deciding.has(id)
    }

    /// Channels that hold resources here.
    pub fn holders(&self) -> impl Iterator<Item = ChannelId> {
        let holds = self.channels.iter().filter(|channel| channel.state.holds());
        holds.map(|channel| channel.local.channel)
    }

    /// What waits for an answer, of somebody else or of this host, by kind. Nothing does if nobody wants anything: what
    /// stays is forgotten.
    pub fn waiting(&self) -> [(&'static str, usize); 7] {
        let [sent, asked] = self.requests.waiting();
        let outboxes = self.links.peers.iter().map(|peer| peer.outbox().waiting());
        let [asks, answers] = outboxes.fold([0, 0], |sum, of| [sum[0] + of[0], sum[1] + of[1]]);
        let probes = |channel: &&Channel| matches!(channel.state, State::Probing | State::Offering);
        [
            ("requests to others", sent),
            ("requests of others", asked),
            ("asks for a link", asks),
            ("answers for a link", answers),
            ("decisions", self.deciding.len()),
            ("probes", self.channels.iter().filter(probes).count()),
            ("channels that wait for a measurement", self.links.closed.len()),
        ]
    }
}
