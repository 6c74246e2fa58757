//! Decides whose turn it is, and which source gives way when no place is left. Hosts share evenly, and the
//! users of a host share that host's part.
//!
//! The user in a message is only a claim of its source host: a host that forges users takes places from its
//! own users only.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound::{Excluded, Included, Unbounded};

use punctual_analysis::multiset::Multiset;
use punctual_trial::{Defence, holds};

use crate::api::UserId;
use crate::ids::NodeId;

/// A user of a host, as the source of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    pub node: NodeId,
    pub user: UserId,
}

impl Source {
    const fn first_of(node: NodeId) -> Self {
        Self { node, user: UserId(0) }
    }
    const fn last_of(node: NodeId) -> Self {
        Self { node, user: UserId(u32::MAX) }
    }
}

/// How many items each host and each user has.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    all: usize,
    nodes: Multiset<NodeId>,
    users: Multiset<Source>,
}

impl Counts {
    pub fn add(&mut self, source: Source) {
        self.all += 1;
        self.nodes.add(source.node);
        self.users.add(source);
    }
    /// Removes one item of `source`.
    pub fn remove(&mut self, source: Source) {
        self.all -= 1;
        self.nodes.remove(source.node);
        self.users.remove(source);
    }
    pub const fn len(&self) -> usize {
        self.all
    }
    /// The total that is counted by users or by hosts (a wrong one, if either is wrong), beside the true
    /// total.
    fn accounts(&self, held: usize) -> [usize; 2] {
        let counts = [self.users.total(), self.nodes.total()];
        let wrong = counts.into_iter().find(|count| *count != held);
        [wrong.unwrap_or(self.all), held]
    }
    fn merged(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        merged.all += other.all;
        merged.nodes.add_all(&other.nodes);
        merged.users.add_all(&other.users);
        merged
    }
    fn of_node(&self, node: NodeId) -> usize {
        self.nodes.count(&node)
    }
    fn of_user(&self, source: Source) -> usize {
        self.users.count(&source)
    }
    /// The source that loses an item when no place is free and `source` needs one: the user with the most items,
    /// either of the host with the most or of the host of `source`. `None` if `source` itself has at least as
    /// many.
    pub fn largest_holder(&self, source: Source) -> Option<Source> {
        if !holds(Defence::GivingWay) {
            return None;
        }
        let (heaviest, most) = self.nodes.counts().iter().max_by_key(|(_, count)| **count)?;
        // Then the heaviest host is another one.
        let is_less = self.of_node(source.node) + 1 < *most as usize;
        let node = if is_less { *heaviest } else { source.node };
        let users = self.users.counts().range(Source::first_of(node)..=Source::last_of(node));
        let (holder, has) = users.max_by_key(|(_, count)| **count)?;
        (is_less || self.of_user(source) + 1 < *has as usize).then_some(*holder)
    }
}

/// No source gives way: the source that needs a place has the most itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

/// Places of a table, by the number of each item.
#[derive(Debug, Default)]
pub struct Places {
    counts: Counts,
    taken: BTreeSet<Place>,
}

impl Places {
    pub fn add(&mut self, source: Source, number: u64) {
        if self.taken.insert((source, number)) {
            self.counts.add(source);
        }
    }
    pub fn remove(&mut self, source: Source, number: u64) {
        if self.taken.remove(&(source, number)) {
            self.counts.remove(source);
        }
    }
    /// The counted number of taken places, beside the true number.
    pub fn accounts(&self) -> [usize; 2] {
        self.counts.accounts(self.taken.len())
    }
    /// Number of taken places.
    pub fn len(&self) -> usize {
        self.taken.len()
    }
    /// Checks for room for one more item of `source` among `most`. If there is none, returns the item that
    /// must be removed: the last of the source that loses it.
    pub fn make_room(&self, source: Source, most: usize) -> Result<Option<u64>, Crowded> {
        if self.counts.len() < most { Ok(None) } else { self.to_evict(None, source).map(Some) }
    }
    /// The item that must be removed for one more item of `source`, from these places and from those
    /// `beside`.
    pub fn to_evict(&self, beside: Option<&Self>, source: Source) -> Result<u64, Crowded> {
        let merged = beside.map(|beside| self.counts.merged(&beside.counts));
        let holder = merged.as_ref().unwrap_or(&self.counts).largest_holder(source).ok_or(Crowded)?;
        let last = |places: &Self| places.taken.range((holder, 0)..=(holder, u64::MAX)).next_back().copied();
        let last = beside.and_then(last).or_else(|| last(self)).ok_or(Crowded)?;
        Ok(last.1)
    }
}

/// Place of a waiting item: its source, and its sequence number.
pub type Place = (Source, u64);

/// A queue that serves hosts in turn, and the users of each host in turn. Each user's items are in order.
#[derive(Debug)]
pub struct SourceTurns<T> {
    waiting: BTreeMap<Place, T>,
    counts: Counts,
    /// The host that was served last; `last_user` has the last user of each host. Only hosts that have
    /// something waiting are listed there.
    last: NodeId,
    last_user: BTreeMap<NodeId, Source>,
    /// Sequence number of the newest item.
    number: u64,
}

impl<T> Default for SourceTurns<T> {
    fn default() -> Self {
        let (waiting, counts, last_user) = (BTreeMap::new(), Counts::default(), BTreeMap::new());
        Self { waiting, counts, last: NodeId(0), last_user, number: 0 }
    }
}

impl<T> SourceTurns<T> {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
    /// All items that wait.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.values()
    }
    /// The counted number of waiting items, beside the true number.
    pub fn accounts(&self) -> [usize; 2] {
        self.counts.accounts(self.waiting.len())
    }
    /// Whether `source` may have one more of `most` waiting items, if the source with the most items loses one.
    pub fn has_place(&self, source: Source, most: usize) -> bool {
        self.len() < most || self.counts.largest_holder(source).is_some()
    }
    /// Makes room for one more item of `source` among `most`, by removing the last item of the source that
    /// has the most.
    pub fn make_room(&mut self, source: Source, most: usize) -> Option<(Place, T)> {
        if self.len() < most {
            return None;
        }
        let holder = self.counts.largest_holder(source)?;
        let place = *self.waiting.range((holder, 0)..=(holder, u64::MAX)).next_back()?.0;
        Some((place, self.remove(&place)?))
    }
    /// Adds an item; returns its place.
    pub fn push(&mut self, source: Source, item: T) -> Place {
        // Without turns all items belong to one user.
        let source = if holds(Defence::SignallingTurns) { source } else { Source::first_of(NodeId(0)) };
        self.number += 1;
        self.counts.add(source);
        self.waiting.insert((source, self.number), item);
        (source, self.number)
    }
    pub fn remove(&mut self, place: &Place) -> Option<T> {
        let item = self.waiting.remove(place)?;
        self.counts.remove(place.0);
        if self.counts.of_node(place.0.node) == 0 {
            self.last_user.remove(&place.0.node);
        }
        Some(item)
    }
    /// The next item, of the source that follows the one served last.
    pub fn pop(&mut self) -> Option<(Place, T)> {
        let node = self.next_node()?;
        let source = self.next_user(node)?;
        let place = *self.waiting.range((source, 0)..).next()?.0;
        self.last = node;
        self.last_user.insert(node, source);
        let item = self.remove(&place)?;
        Some((place, item))
    }
    fn next_node(&self) -> Option<NodeId> {
        let nodes = self.counts.nodes.counts();
        let behind = nodes.range((Excluded(self.last), Unbounded)).next();
        behind.or_else(|| nodes.first_key_value()).map(|(node, _)| *node)
    }
    fn next_user(&self, node: NodeId) -> Option<Source> {
        let users = self.counts.users.counts();
        let behind = |last| users.range((Excluded(last), Included(Source::last_of(node)))).next();
        let last = self.last_user.get(&node).filter(|last| last.user != Source::last_of(node).user);
        let next = last.and_then(|last| behind(*last));
        next.or_else(|| users.range(Source::first_of(node)..).next()).map(|(source, _)| *source)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const fn source(node: u32, user: u32) -> Source {
        Source { node: NodeId(node), user: UserId(user) }
    }

    #[test]
    fn hosts_have_turns_and_so_have_the_users_of_each() {
        let mut queue = SourceTurns::default();
        for number in 0..3 {
            for user in [0, 5, u32::MAX] {
                queue.push(source(1, user), number);
            }
            queue.push(source(2, 9), number);
        }
        let order: Vec<_> = core::iter::from_fn(|| queue.pop())
            .map(|((source, _), number)| (source.node.0, source.user.0, number))
            .collect();
        let max = u32::MAX;
        let begin =
            [(1, 0, 0), (2, 9, 0), (1, 5, 0), (2, 9, 1), (1, max, 0), (2, 9, 2), (1, 0, 1), (1, 5, 1)];
        assert_eq!((&order[..8], order.len()), (&begin[..], 12));
        assert!(queue.is_empty() && queue.counts.nodes.is_empty() && queue.last_user.is_empty());
    }

    #[test]
    fn a_new_waiter_is_served_next_however_much_waits() {
        let mut queue = SourceTurns::default();
        (0..1_000).for_each(|number| {
            queue.push(source(1, 3), number);
        });
        queue.pop();
        queue.push(source(1, 2), 7);
        assert_eq!(queue.pop().map(|((source, _), _)| source.user.0), Some(2));
        queue.push(source(4, 1), 7);
        assert_eq!(queue.pop().map(|((source, _), _)| source.node.0), Some(4));
    }

    /// A place that is added twice is held once, and given back once.
    #[test]
    fn a_place_is_taken_once_and_given_back_once() {
        let mut places = Places::default();
        for _ in 0..2 {
            places.add(source(1, 1), 7);
            assert_eq!(places.accounts(), [1, 1]);
        }
        for _ in 0..2 {
            places.remove(source(1, 1), 7);
            assert_eq!(places.accounts(), [0, 0]);
        }
    }

    /// A count by users or by hosts that is wrong shows in the account.
    #[test]
    fn a_wrong_count_shows_in_the_account() {
        let full = || {
            let mut counts = Counts::default();
            (0..3).for_each(|user| counts.add(source(1, user)));
            counts
        };
        assert_eq!(full().accounts(3), [3, 3]);
        let mut users = full();
        users.users.remove(source(1, 2));
        let mut nodes = full();
        nodes.nodes.add(NodeId(7));
        let all = Counts { all: 9, ..full() };
        for (counts, wrong) in [(users, 2), (nodes, 4), (all, 9)] {
            assert_eq!(counts.accounts(3), [wrong, 3]);
        }
        assert_eq!(full().accounts(2), [3, 2]);
    }

    /// The last item of a source gives way, whatever its number: also the smallest and the largest that there
    /// are.
    #[test]
    fn the_last_item_gives_way_whatever_its_number() {
        for number in [0, 1, u64::MAX] {
            let mut places = Places::default();
            places.add(source(1, 1), number);
            assert_eq!(places.make_room(source(2, 1), 2), Ok(None), "{number}: there is room");
            assert_eq!(places.make_room(source(2, 1), 1), Err(Crowded), "{number}: nobody has more");
            places.add(source(1, 1), 7);
            assert_eq!(places.make_room(source(2, 1), 2), Ok(Some(number.max(7))), "{number}");
            places.remove(source(1, 1), 7);
            places.add(source(1, 2), 3);
            let holder_of_most = places.make_room(source(2, 1), 2);
            assert_eq!(holder_of_most, Ok(Some(3)), "{number}: of equal users the last one");
            let mut places = Places::default();
            places.add(source(1, 1), 5);
            places.add(source(1, 2), number);
            assert_eq!(places.make_room(source(2, 1), 2), Ok(Some(number)), "it is the only one of its user");
        }
    }

    /// By brute force over small tables: the source that has most of the heaviest host gives way, if that
    /// host has at least two more than the host that needs a place; otherwise the user with the most of that
    /// host, if it has at least two more.
    #[test]
    fn who_gives_way_is_decided_by_hosts_and_then_by_users() {
        // What the users 0 and 1 of the hosts 1 and 2 have.
        for has in (0..4_u32.pow(4)).map(|n| [n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6].map(|n| n as usize)) {
            let mut counts = Counts::default();
            for (index, has) in has.into_iter().enumerate() {
                (0..has).for_each(|_| counts.add(source(1 + index as u32 / 2, index as u32 % 2)));
            }
            for own in 0..4 {
                let (mine, other) = (own / 2 * 2, 2 - own / 2 * 2);
                let of_host = |first: usize| has[first] + has[first + 1];
                let from = if of_host(mine) + 1 < of_host(other) { other } else { mine };
                let most = has[from].max(has[from + 1]);
                let gives = from == other || has[own] + 1 < most;
                let holder = counts.largest_holder(source(1 + own as u32 / 2, own as u32 % 2));
                let had = holder.map(|holder| (holder.node.0 as usize, counts.of_user(holder)));
                let expected = (gives && most > 0).then_some((1 + from / 2, most));
                assert_eq!(had, expected, "{has:?}: for {own}");
            }
        }
    }

    /// Takes one of `most` places for `source`. If none is free, it takes one from the source that has the
    /// most.
    fn take(counts: &mut Counts, most: usize, source: Source) -> bool {
        if counts.len() >= most {
            let Some(holder) = counts.largest_holder(source) else { return false };
            counts.remove(holder);
        }
        counts.add(source);
        true
    }

    #[test]
    fn the_largest_holder_gives_way_until_all_are_equal() {
        const MOST: usize = 1_024;
        for (nodes, users) in [(1, 1), (1, 15), (1, 100), (6, 1), (6, 20)] {
            let mut counts = Counts::default();
            let all = || (0..nodes).flat_map(|node| (0..users).map(move |user| source(node, user)));
            for source in all() {
                while take(&mut counts, MOST, source) {}
            }
            assert_eq!(counts.len(), MOST);
            let had: Vec<_> = all().map(|source| counts.of_user(source)).collect();
            let share = MOST / (nodes * users) as usize;
            // The first sources have given up the last items. Each has its share, except for what two give
            // each other in turn.
            assert!(had.iter().all(|had| had.abs_diff(share) <= 2), "{nodes} {users}: {had:?}");
            assert!(!take(&mut counts, MOST, source(0, 0)) || nodes * users > 1);
            assert!([(0, 999), (77, 0)].iter().all(|(node, user)| take(
                &mut counts,
                MOST,
                source(*node, *user)
            )));
        }
    }

    /// Otherwise sources would take the same place from each other without end.
    #[test]
    fn a_full_table_comes_to_rest_however_many_places_are_wanted() {
        for (nodes, users, most) in [(2, 1, 7), (3, 1, 8), (1, 3, 8), (3, 2, 100), (6, 20, 1_023), (5, 3, 11)]
        {
            let mut counts = Counts::default();
            let all = || (0..nodes).flat_map(|node| (0..users).map(move |user| source(node, user)));
            let rounds =
                (0..=most).take_while(|_| all().filter(|it| take(&mut counts, most, *it)).count() > 0);
            assert!(rounds.count() <= most, "{nodes} hosts, {users} users, {most} places: they still move");
            let of_nodes: Vec<_> = (0..nodes).map(|node| counts.of_node(NodeId(node))).collect();
            let (least, more) = (of_nodes.iter().min(), of_nodes.iter().max());
            assert!(least.zip(more).is_some_and(|(least, more)| more - least <= 1), "{of_nodes:?}");
        }
    }

    /// A host that invents users takes nothing of another's.
    #[test]
    fn users_of_a_host_take_from_one_another_first() {
        let mut counts = Counts::default();
        (0..50).for_each(|_| assert!(take(&mut counts, 100, source(1, 1))));
        let taken = (0..500).filter(|user| take(&mut counts, 100, source(2, *user))).count();
        assert_eq!(taken, 50);
        assert_eq!(counts.of_node(NodeId(1)), 50);
        assert!(!take(&mut counts, 100, source(1, 1)));
    }
}
