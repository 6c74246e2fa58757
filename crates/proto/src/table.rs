//! Tables of a node's objects by channel. Each object contains its channel's id, so a table holds pointers
//! only: 9 bytes per place, where a map of names to pointers takes 17, and a map of paths to names 25.

use alloc::boxed::Box;
use core::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::ids::{ChannelId, PathId};

/// An object of a channel.
pub(crate) trait OfChannel {
    fn channel(&self) -> ChannelId;
}

/// Entries by their channel, one each. The order of iteration depends only on the operations on the table.
#[derive(Debug)]
pub(crate) struct Table<T>(HashTable<Box<T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

/// Handles are consecutive numbers of their node: a multiplication spreads them, and other hosts cannot
/// choose them.
const fn hash(channel: ChannelId) -> u64 {
    channel.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<T: OfChannel> Table<T> {
    pub(crate) fn get(&self, channel: ChannelId) -> Option<&T> {
        self.0.find(hash(channel), |entry| entry.channel() == channel).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, channel: ChannelId) -> Option<&mut T> {
        self.0.find_mut(hash(channel), |entry| entry.channel() == channel).map(Box::as_mut)
    }

    /// Inserts an entry whose channel has none.
    pub(crate) fn insert(&mut self, entry: Box<T>) {
        debug_assert!(self.get(entry.channel()).is_none(), "one entry a channel");
        self.0.insert_unique(hash(entry.channel()), entry, |entry| hash(entry.channel()));
    }

    pub(crate) fn remove(&mut self, channel: ChannelId) -> Option<Box<T>> {
        let found = self.0.find_entry(hash(channel), |entry| entry.channel() == channel);
        found.ok().map(|found| found.remove().0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(Box::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Channels by their path. The paths themselves are in the entries. Paths come from other nodes: they are
/// hashed with a secret.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    channels: HashTable<ChannelId>,
    hasher: DefaultHashBuilder,
}

impl Paths {
    /// The channel of `path`; `is` returns whether a channel has it.
    pub(crate) fn find(&self, path: &PathId, is: impl Fn(ChannelId) -> bool) -> Option<ChannelId> {
        self.channels.find(self.hasher.hash_one(path), |channel| is(*channel)).copied()
    }

    /// Inserts a channel by `path`; `path_of` returns the path of each inserted channel, this one included.
    pub(crate) fn insert(
        &mut self,
        path: &PathId,
        channel: ChannelId,
        path_of: impl Fn(ChannelId) -> Option<PathId>,
    ) {
        let hash = |path: &PathId| self.hasher.hash_one(path);
        let again = |channel: &ChannelId| path_of(*channel).map_or(0, |path| hash(&path));
        self.channels.insert_unique(hash(path), channel, again);
    }

    /// Number of inserted channels.
    pub(crate) fn len(&self) -> usize {
        self.channels.len()
    }

    pub(crate) fn remove(&mut self, path: &PathId, channel: ChannelId) {
        if let Ok(found) = self.channels.find_entry(self.hasher.hash_one(path), |known| *known == channel) {
            found.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ChannelNumber, Epoch, NodeId};

    struct Entry(ChannelId, PathId);

    impl OfChannel for Entry {
        fn channel(&self) -> ChannelId {
            self.0
        }
    }

    fn path(number: u64) -> PathId {
        PathId { node: NodeId(7), channel: ChannelNumber(number as u32), epoch: Epoch(9) }
    }

    #[test]
    fn channels_are_found_by_handle_and_by_path_while_tables_grow_and_shrink() {
        let (mut table, mut paths) = (Table::default(), Paths::default());
        for number in 0..1_000 {
            let id = ChannelId(number);
            table.insert(Box::new(Entry(id, path(number))));
            paths.insert(&path(number), id, |id| table.get(id).map(|entry: &Entry| entry.1));
        }
        for number in (0..1_000).filter(|number| number % 3 == 0) {
            assert!(table.remove(ChannelId(number)).is_some_and(|entry| entry.0.0 == number));
            paths.remove(&path(number), ChannelId(number));
        }
        // What was removed is removed once, and of another's path nothing goes.
        paths.remove(&path(0), ChannelId(0));
        paths.remove(&path(1), ChannelId(2));
        assert_eq!((table.len(), table.iter().count(), table.is_empty()), (666, 666, false));
        assert_eq!(paths.len(), 666);
        for number in 0..1_000 {
            let found = paths.find(&path(number), |id| table.get(id).is_some_and(|e| e.1 == path(number)));
            assert_eq!(found, (number % 3 != 0).then_some(ChannelId(number)));
        }
    }
}
