//! Cleans up after programs that are gone, one slice at a time.
//!
//! The processor ends each end of a channel, after messages. A client with a thousand of them would block the
//! service. So the service ends one slice in a turn, for one account after the other, and serves requests of
//! others in between. Requests of the same account wait until all is ended: a program that restarts then
//! finds its names and places free.

use std::collections::VecDeque;

use punctual_ipc::api::Resource;
use punctual_proto::api::UserId;
use punctual_proto::ids::{ChannelId, ListenerId};
use punctual_proto::node::Node;
use punctual_trial::{Defence, holds};

use super::{ClientId, End, Host, Service, Stage};

/// Maximum number of objects ended in one call of the processor, which takes some tens of microseconds.
const SLICE: usize = 8;

/// An object whose owner is gone, or broke its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abandoned {
    Channel(ChannelId),
    Listener(ListenerId),
    /// A request of a remote receiver of which the client was notified.
    Requested(u64),
}

/// The objects to end, by account, in the order in which accounts are served.
#[derive(Debug, Default)]
pub(super) struct Cleanup(VecDeque<(UserId, VecDeque<Abandoned>)>);

impl Cleanup {
    pub(super) fn add(&mut self, account: UserId, left: impl IntoIterator<Item = Abandoned>) {
        match self.0.iter_mut().find(|(other, _)| *other == account) {
            Some((_, waiting)) => waiting.extend(left),
            None => {
                let waiting: VecDeque<Abandoned> = left.into_iter().collect();
                if !waiting.is_empty() {
                    self.0.push_back((account, waiting));
                }
            }
        }
    }

    /// Listeners among it.
    pub(super) fn listeners(&self) -> usize {
        let all = self.0.iter().flat_map(|(_, waiting)| waiting);
        all.filter(|left| matches!(left, Abandoned::Listener(_))).count()
    }

    fn has(&self, account: UserId) -> bool {
        self.0.iter().any(|(other, _)| *other == account)
    }

    /// Takes the next objects to end, with the user whose turn it is.
    fn slice(&mut self) -> Option<(UserId, Vec<Abandoned>)> {
        let (account, mut waiting) = self.0.pop_front()?;
        let most = if holds(Defence::SlicedEnds) { SLICE } else { usize::MAX };
        let slice = waiting.drain(..waiting.len().min(most)).collect();
        if !waiting.is_empty() {
            self.0.push_back((account, waiting));
        }
        Some((account, slice))
    }
}

impl<H: Host> Service<H> {
    /// Takes over the objects of a disconnected client; [`Self::end_some`] ends them.
    pub(super) fn leave(&mut self, client: ClientId, account: UserId) {
        let is_its =
            |(listener, (owner, _)): (&ListenerId, &(ClientId, _))| (*owner == client).then_some(*listener);
        let listeners: Vec<ListenerId> = self.listeners.iter().filter_map(is_its).collect();
        // From now on no client is notified of events for these listeners.
        listeners.iter().for_each(|listener| drop(self.listeners.remove(listener)));
        self.cleanup.add(account, listeners.into_iter().map(Abandoned::Listener));
        let tokens: Vec<u64> =
            self.requested.iter().filter(|(_, owner)| **owner == client).map(|(token, _)| *token).collect();
        self.requested.retain(|_, owner| *owner != client);
        self.cleanup.add(account, tokens.into_iter().map(Abandoned::Requested));
        let mut channels = Vec::new();
        for (channel, end) in self.ends.iter_mut().filter(|(_, end)| end.client == Some(client)) {
            end.client = None;
            // The channels of a connection are closed when it is over.
            if !matches!(end.stage, Stage::Joined { .. }) {
                channels.push(*channel);
            }
        }
        self.cleanup.add(account, channels.into_iter().map(Abandoned::Channel));
    }

    /// Whether anything of `client`'s account is still to be ended: its requests wait for that.
    pub fn is_leaving(&self, client: ClientId) -> bool {
        self.account_of(client).is_some_and(|account| self.cleanup.has(account))
    }

    /// Whether objects of disconnected clients are still to be ended.
    pub fn has_left(&self) -> bool {
        !self.cleanup.0.is_empty()
    }

    /// Ends some of the objects of disconnected clients.
    pub fn end_some(&mut self) {
        let Some((account, slice)) = self.cleanup.slice() else { return };
        let work = slice.clone();
        // A stopped engine has ended everything.
        let _ = self.on_node(move |node, now| work.into_iter().for_each(|left| end(node, left, now)));
        for left in slice {
            match left {
                Abandoned::Channel(channel) => self.after_end(channel),
                Abandoned::Listener(_) => self.accounts.give_back(account, Resource::Listeners, 1),
                Abandoned::Requested(_) => {}
            }
        }
        self.charge(account);
    }

    /// Continues after the node was requested to end a channel.
    pub(super) fn after_end(&mut self, channel: ChannelId) {
        self.end_co_schedule(channel);
        if self.ends.get(&channel).is_some_and(|end| end.doorbell.is_some()) {
            self.host.unwatch(channel);
        }
        let is_tcp = |end: &End| matches!(end.stage, Stage::Tcp(_) | Stage::TcpListener { .. });
        if let (true, Some(tcp)) = (self.ends.get(&channel).is_some_and(is_tcp), self.host.tcp()) {
            tcp.release(channel);
        }
        if self.ends.get(&channel).is_some_and(|end| matches!(end.stage, Stage::Capture)) {
            self.host.end_capture(channel);
        }
        // For these no event of the node follows.
        let is_over = |end: &End| {
            let is_handler = matches!(end.stage, Stage::Registering(_) | Stage::Handler { .. });
            is_handler || matches!(end.stage, Stage::BestEffort | Stage::Capture)
        };
        if self.ends.get(&channel).is_some_and(is_over) {
            self.release_end(channel);
        }
    }
}

fn end<M: punctual_proto::memory::Memory>(
    node: &mut Node<M>,
    left: Abandoned,
    now: punctual_analysis::Instant,
) {
    // `Unknown` means that the node has ended it already: its event is on the way.
    let _ = match left {
        Abandoned::Channel(channel) => node.abandon(channel, now),
        Abandoned::Listener(listener) => node.unlisten(listener, now),
        Abandoned::Requested(token) => node.refuse_request(token, "the program is gone", now),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_take_turns_and_each_thing_is_ended_once() {
        let (ann, bob) = (UserId(1), UserId(2));
        let channel = |number: u64| Abandoned::Channel(ChannelId(number));
        let mut leaving = Cleanup::default();
        leaving.add(ann, (0..20).map(channel));
        leaving.add(bob, (100..103).map(channel));
        leaving.add(ann, (20..22).map(channel));
        let mut order = Vec::new();
        let mut ended = Vec::new();
        while let Some((account, slice)) = leaving.slice() {
            assert!(slice.len() <= SLICE);
            order.push((account, slice.len()));
            ended.extend(slice);
        }
        assert_eq!(order, [(ann, 8), (bob, 3), (ann, 8), (ann, 6)]);
        ended.sort_by_key(|left| format!("{left:?}"));
        ended.dedup();
        assert_eq!(ended.len(), 25);
        assert!(!leaving.has(ann) && !leaving.has(bob));
        leaving.add(ann, []);
        assert!(!leaving.has(ann), "who leaves nothing waits for nothing");
    }
}
