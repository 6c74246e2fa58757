//! A set that counts how often each key is in it: users of a link, channels of a kind.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

/// A set with multiplicities (see the module). A key is in the map exactly while it is counted at least once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiset<K> {
    counts: BTreeMap<K, u32>,
}

impl<K> Default for Multiset<K> {
    fn default() -> Self {
        Self { counts: BTreeMap::new() }
    }
}

impl<K: Ord> Multiset<K> {
    /// Adds one to the count of `key`.
    pub fn add(&mut self, key: K) {
        *self.counts.entry(key).or_default() += 1;
    }

    /// Subtracts one from the count of `key`; `false` if it was not counted.
    pub fn remove(&mut self, key: K) -> bool {
        let Entry::Occupied(mut entry) = self.counts.entry(key) else { return false };
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
        }
        true
    }

    /// Adds all counts of `other`.
    pub fn add_all(&mut self, other: &Self)
    where
        K: Copy,
    {
        for (key, count) in &other.counts {
            *self.counts.entry(*key).or_default() += count;
        }
    }

    /// Count of `key`.
    pub fn count(&self, key: &K) -> usize {
        self.counts.get(key).map_or(0, |count| *count as usize)
    }

    /// Whether `key` is counted at all.
    pub fn contains(&self, key: &K) -> bool {
        self.counts.contains_key(key)
    }

    /// Keys and their counts, in the order of the keys.
    pub const fn counts(&self) -> &BTreeMap<K, u32> {
        &self.counts
    }

    /// Number of different keys.
    pub fn kinds(&self) -> usize {
        self.counts.len()
    }

    /// Sum of all counts.
    pub fn total(&self) -> usize {
        self.counts.values().map(|count| *count as usize).sum()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Multiset;

    #[test]
    fn a_key_is_in_it_as_often_as_it_was_added_and_not_removed() {
        let mut set = Multiset::default();
        for key in [3, 5, 3] {
            set.add(key);
        }
        assert_eq!((set.count(&3), set.count(&5), set.count(&4)), (2, 1, 0));
        assert_eq!((set.kinds(), set.total()), (2, 3));
        assert!(set.remove(3) && set.contains(&3));
        assert!(set.remove(3) && !set.contains(&3));
        assert!(set.remove(5) && set.is_empty());
    }

    #[test]
    fn the_counts_of_another_are_added_to_its_own() {
        let of = |keys: &[u8]| {
            let mut set = Multiset::default();
            keys.iter().for_each(|key| set.add(*key));
            set
        };
        let mut set = of(&[1, 2]);
        set.add_all(&of(&[2, 2, 3]));
        assert_eq!(set, of(&[1, 2, 2, 2, 3]));
    }

    #[test]
    fn what_is_not_in_it_is_not_removed() {
        let mut set = Multiset::default();
        set.add(1);
        assert!(!set.remove(2));
        assert_eq!(set.total(), 1);
    }
}
