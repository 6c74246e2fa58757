//! Channels at one node: the state of each, and its timers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use punctual_analysis::multiset::Multiset;
use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::ordered::Ordered;
use punctual_analysis::{Contract, Instant};

use super::source_turns::{Places, Source};
use super::states::State;
use super::{Attempt, Channel, Setup};
use crate::api::{ChannelRefusal, DegradedHost, Role};
use crate::ids::{Address, ChannelId, LinkId, ListenerId, Name, NodeId, PathId};
use crate::interned::Interned;
use crate::table::{OfChannel, Paths, Table};

impl Attempt {
    /// Keeps the refusal that helps the application most: the one with the nearest offer, else the last.
    pub fn note(&mut self, refusal: ChannelRefusal, via: Vec<NodeId>) {
        let nearness =
            |refusal: &ChannelRefusal| refusal.offer.map(|offer| (offer.deadline, offer.interval()));
        let better = match (self.best.as_ref().and_then(|(best, _)| nearness(best)), nearness(&refusal)) {
            (Some(best), Some(new)) => new <= best,
            (Some(_), None) => false,
            (None, _) => true,
        };
        if better {
            self.best = Some((refusal, via));
        }
    }
}

/// Names of both ends and the nodes between them: what all channels between the same two ends have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ChannelRoute {
    pub from: Name,
    pub to: Address,
    pub nodes: Vec<NodeId>,
    /// Hosts among `nodes` that report that they cannot keep their promises. Known when the stages are final.
    pub degraded: Vec<DegradedHost>,
}

/// A time at which something is due, or none. The end of time means none, so a timer takes 8 bytes where an
/// option takes 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer(Instant);

impl Timer {
    pub const OFF: Self = Self(Instant(u64::MAX));

    pub const fn due(at: Instant) -> Self {
        Self(at)
    }
    pub fn at(self) -> Option<Instant> {
        (self != Self::OFF).then_some(self.0)
    }
    /// Clears the timer if it is due at `now`; returns whether it was.
    pub fn expires(&mut self, now: Instant) -> bool {
        let is_due = self.at().is_some_and(|at| at <= now);
        if is_due {
            *self = Self::OFF;
        }
        is_due
    }
}

impl OfChannel for Channel {
    fn channel(&self) -> ChannelId {
        self.local.channel
    }
}

impl Channel {
    fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        [self.local.link_in, self.local.link_out].into_iter().flatten()
    }
    /// The node behind this one.
    pub fn next(&self) -> Option<NodeId> {
        self.route.nodes.get(usize::from(self.position) + 1).copied()
    }
    /// The channel's setup state, taken out; an empty one if the setup is over.
    pub fn take_setup(&mut self) -> Box<Setup> {
        self.setup.take().unwrap_or_default()
    }
    /// What it is being set up with; an empty one from now on if that is over.
    pub fn setup_mut(&mut self) -> &mut Setup {
        self.setup.get_or_insert_default()
    }
    /// The user who asked for the channel, until its stages are final.
    pub fn source(&self) -> Option<Source> {
        let setup = self.setup.as_ref()?;
        Some(Source { node: self.local.path.node, user: setup.user })
    }
    fn wake(&self) -> Option<Instant> {
        let lease = self.lease.at().filter(|_| !active(Mutation::LeaseNeverExpires));
        [self.deadline.at(), lease].into_iter().flatten().min()
    }
    /// The listener whose consent the channel waits for.
    fn asks(&self) -> Option<ListenerId> {
        self.setup.as_ref().filter(|_| self.state == State::Asking)?.listener
    }
    const fn is_half_open(&self) -> bool {
        matches!(self.state, State::Creating | State::Asking | State::Accepted)
    }
}

/// All channels of a node with their names and timers. This type keeps them consistent.
#[derive(Debug, Default)]
pub struct Channels {
    by_id: Table<Channel>,
    by_path: Paths,
    /// Handles of the channels, for callers that process a few channels at a time.
    order: Ordered<ChannelId, ()>,
    timers: Ordered<(Instant, ChannelId), ()>,
    /// Channels that wait for a listener's consent.
    asking: Ordered<(ListenerId, ChannelId), ()>,
    half_open: Multiset<LinkId>,
    /// Users who own the half-open channels of each link.
    half_open_by: BTreeMap<LinkId, Places>,
    /// Number of channels that use each link, in either direction.
    on_link: Multiset<LinkId>,
    /// State that channels between the same two ends share; equal values are stored once.
    routes: Interned<ChannelRoute>,
    contracts: Interned<Contract>,
}

impl Channels {
    /// The shared copy of a route.
    pub fn route(&mut self, route: ChannelRoute) -> Arc<ChannelRoute> {
        self.routes.get(route)
    }
    /// The shared copy of a contract.
    pub fn contract(&mut self, contract: Contract) -> Arc<Contract> {
        self.contracts.get(contract)
    }
    pub fn insert(&mut self, channel: Box<Channel>) {
        let id = channel.local.channel;
        if let Some(at) = channel.wake() {
            self.timers.insert((at, id), ());
        }
        if let Some(listener) = channel.asks() {
            self.asking.insert((listener, id), ());
        }
        if let (true, Some(link)) = (channel.is_half_open(), channel.local.link_in) {
            self.half_open.add(link);
            if let Some(source) = channel.source() {
                self.half_open_by.entry(link).or_default().add(source, id.0);
            }
        }
        for link in channel.links() {
            self.on_link.add(link);
        }
        let path = channel.local.path;
        self.order.insert(id, ());
        self.by_id.insert(channel);
        let Self { by_id, by_path, .. } = self;
        by_path.insert(&path, id, |id| by_id.get(id).map(|known| known.local.path));
    }
    /// Takes a channel out, to remove it or to change it and put it back.
    pub fn take(&mut self, id: ChannelId) -> Option<Box<Channel>> {
        let channel = self.by_id.remove(id)?;
        self.by_path.remove(&channel.local.path, id);
        self.order.remove(&id);
        if let Some(at) = channel.wake() {
            self.timers.remove(&(at, id));
        }
        if let Some(listener) = channel.asks() {
            self.asking.remove(&(listener, id));
        }
        if let (true, Some(link)) = (channel.is_half_open(), channel.local.link_in) {
            self.half_open.remove(link);
            if let (Some(source), Some(by)) = (channel.source(), self.half_open_by.get_mut(&link)) {
                by.remove(source, id.0);
            }
        }
        for link in channel.links() {
            self.on_link.remove(link);
        }
        Some(channel)
    }
    /// Changes a channel; `None` if there is none.
    pub fn change<R>(&mut self, id: ChannelId, change: impl FnOnce(&mut Channel) -> R) -> Option<R> {
        let mut channel = self.take(id)?;
        let changed = change(&mut channel);
        self.insert(channel);
        Some(changed)
    }
    pub fn get(&self, id: ChannelId) -> Option<&Channel> {
        self.by_id.get(id)
    }
    pub fn of_path(&self, path: PathId) -> Option<&Channel> {
        let is = |id| self.get(id).is_some_and(|channel| channel.local.path == path);
        self.get(self.by_path.find(&path, is)?)
    }
    /// Moves the end of a lease; no effect if there is no lease.
    pub fn renew(&mut self, id: ChannelId, until: Instant) {
        let Some(channel) = self.by_id.get_mut(id).filter(|channel| channel.lease != Timer::OFF) else {
            return;
        };
        let before = channel.wake();
        channel.lease = Timer::due(until);
        let after = channel.wake();
        if before != after {
            before.map(|at| self.timers.remove(&(at, id)));
            after.map(|at| self.timers.insert((at, id), ()));
        }
    }
    /// Channels whose handles are larger than `after`, in the order of handles; all channels if it is `None`.
    pub fn behind(&self, after: Option<ChannelId>) -> impl Iterator<Item = &Channel> {
        self.order.after(after.as_ref()).filter_map(|(id, ())| self.get(*id))
    }
    /// Channels that wait for the consent of `listener`, in order of handles.
    pub fn asking(&self, listener: ListenerId) -> impl Iterator<Item = ChannelId> {
        // Handles are counted from 1 on.
        let behind = self.asking.after(Some(&(listener, ChannelId(0))));
        behind.map(|((of, id), ())| (*of, *id)).take_while(move |(of, _)| *of == listener).map(|(_, id)| id)
    }
    /// All channels, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.by_id.iter()
    }
    /// Channels for which `what` has a value, with that value, in the order in which they came here.
    pub fn chosen<T>(&self, what: impl Fn(&Channel) -> Option<T>) -> Vec<(ChannelId, T)> {
        let chosen = self.iter().filter_map(|channel| Some((channel.local.channel, what(channel)?)));
        let mut chosen: Vec<_> = chosen.collect();
        chosen.sort_unstable_by_key(|(id, _)| *id);
        chosen
    }
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
    /// Counts that are kept, with the values computed from the channels: names, handles, timers.
    pub fn accounts(&self) -> [(&'static str, [usize; 2]); 4] {
        let timers = self.iter().filter(|channel| channel.wake().is_some()).count();
        let asking = self.iter().filter(|channel| channel.asks().is_some()).count();
        [
            ("channels that wait for listeners", [self.asking.len(), asking]),
            ("paths of signalling", [self.by_path.len(), self.len()]),
            ("handles of signalling", [self.order.len(), self.len()]),
            ("timers of signalling", [self.timers.len(), timers]),
        ]
    }
    /// Accounts of a link: half-open channels that came over it, their users, and channels that use it.
    pub fn link_accounts(&self, link: LinkId) -> [(&'static str, [usize; 2]); 3] {
        let begun = || {
            let half_open = self.iter().filter(|channel| channel.is_half_open());
            half_open.filter(|channel| channel.local.link_in == Some(link))
        };
        let uses = self.iter().flat_map(Channel::links).filter(|used| *used == link).count();
        let places = self.half_open_by(link).map_or(0, |places| places.accounts()[0]);
        let sources = begun().filter(|channel| channel.source().is_some()).count();
        [
            ("half-open channels", [self.half_open(link), begun().count()]),
            ("users of half-open channels", [places, sources]),
            ("channels of signalling", [self.count_on(link), uses]),
        ]
    }
    /// Whether channels use a link, in either direction.
    pub fn use_link(&self, link: LinkId) -> bool {
        self.on_link.contains(&link)
    }
    /// Number of channels that use a link, in either direction.
    pub fn count_on(&self, link: LinkId) -> usize {
        self.on_link.count(&link)
    }
    pub fn half_open(&self, link: LinkId) -> usize {
        self.half_open.count(&link)
    }
    /// Users who own the half-open channels that came over a link; `None` if there are no such channels.
    pub fn half_open_by(&self, link: LinkId) -> Option<&Places> {
        self.half_open_by.get(&link)
    }
    /// The channel whose timer is due first.
    pub fn first_timer(&self) -> Option<(Instant, ChannelId)> {
        self.timers.first().map(|(due, ())| *due)
    }
    /// Whether a channel starts here.
    pub fn has_sources(&self) -> bool {
        self.iter().any(|channel| channel.local.role == Role::Source)
    }
}

#[cfg(test)]
mod tests;
