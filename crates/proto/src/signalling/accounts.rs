//! The accounts of signalling: each count and index that is kept beside the tables, with the value computed
//! from the tables. Every operation that waits for a reply is in one of the tables: receivers' requests,
//! requests and replies in outboxes, decisions in progress.

use alloc::vec::Vec;

use super::states::State;
use super::{Channel, Signalling};
use crate::ids::{ChannelId, LinkId};

/// One account: the name of the count, then the count that is kept and the value computed from the tables.
pub type Entry = (&'static str, [usize; 2]);

impl Signalling {
    /// Accounts of channels, requests and decisions.
    pub fn accounts(&self) -> Vec<Entry> {
        let mut accounts: Vec<Entry> = self.channels.accounts().into();
        accounts.extend(self.requests.accounts());
        accounts.push(("paths of decisions", self.deciding.accounts()));
        accounts
    }

    /// Accounts of a link, and of the messages that wait for its neighbour.
    pub fn link_accounts(&self, link: LinkId) -> Vec<Entry> {
        let mut accounts: Vec<Entry> = self.channels.link_accounts(link).into();
        let peer = self.links.peers.get(usize::from(link.0));
        accounts.extend(peer.into_iter().flat_map(|peer| peer.outbox().accounts()));
        accounts
    }

    /// Whether a channel may hold resources here: it is in the table, or its stages were asked.
    pub fn may_hold(&self, id: ChannelId) -> bool {
        self.channels.get(id).is_some_and(|channel| channel.state.holds()) || self.deciding.has(id)
    }

    /// Channels that hold resources here.
    pub fn holders(&self) -> impl Iterator<Item = ChannelId> {
        let holds = self.channels.iter().filter(|channel| channel.state.holds());
        holds.map(|channel| channel.local.channel)
    }

    /// Number of operations that wait for a reply of another host or of this host, by kind. All are 0 when no
    /// operation is in progress: anything that remains then was leaked.
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
