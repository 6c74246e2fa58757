//! A map in the order of its keys, for keys that mostly arrive in order: handles, which are consecutive, and
//! leases, which are renewed. An entry takes little more than its own size, where a B-tree that grows at its
//! end is half empty: for entries of 16 bytes 18 in place of 35 (docs/PERFORMANCE.md, "Scale and memory per
//! channel").
//!
//! Entries are in blocks. Invariants: no block is empty or has more than [`BLOCK_ENTRIES_MAX`]; two
//! neighbours together have more than half of that.

use alloc::vec::Vec;

/// Few enough that to move a block's entries costs less than to find the block in a large map.
const BLOCK_ENTRIES_MAX: usize = 32;

/// An ordered map (see the module). Finding, inserting and removing take O(log n) comparisons, and move a
/// block's entries; one change in sixteen or fewer makes or removes a block, which moves the blocks behind
/// it, three words each.
#[derive(Clone, Debug)]
pub struct Ordered<K, V> {
    blocks: Vec<Vec<(K, V)>>,
    len: usize,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Self {
        Self { blocks: Vec::new(), len: 0 }
    }
}

impl<K: Ord, V> Ordered<K, V> {
    /// Number of entries.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.blocks.iter().flatten()
    }

    /// The entries behind `key`, in the order of their keys; all if it is `None`. Finding the first takes
    /// O(log n).
    pub fn after<'a>(&'a self, key: Option<&K>) -> impl Iterator<Item = &'a (K, V)> + use<'a, K, V> {
        let (block, skipped) = key.map_or((0, 0), |key| match self.find(key) {
            (block, Ok(place)) => (block, place + 1),
            (block, Err(place)) => (block, place),
        });
        self.blocks.get(block..).unwrap_or_default().iter().flatten().skip(skipped)
    }

    /// The entry with the smallest key.
    pub fn first(&self) -> Option<&(K, V)> {
        self.blocks.first()?.first()
    }

    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        let (block, place) = self.find(key);
        Some(&self.blocks.get(block)?[place.ok()?].1)
    }

    /// Stores `value` for `key`; returns the previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (index, place) = self.find(&key);
        let place = match place {
            Ok(place) => return Some(core::mem::replace(&mut self.blocks[index][place].1, value)),
            Err(place) => place,
        };
        self.len += 1;
        let Some(block) = self.blocks.get_mut(index) else {
            self.blocks.push(Vec::from([(key, value)]));
            return None;
        };
        if block.len() < BLOCK_ENTRIES_MAX {
            block.insert(place, (key, value));
        } else if place < BLOCK_ENTRIES_MAX / 2 {
            let behind = block.split_off(BLOCK_ENTRIES_MAX / 2);
            block.insert(place, (key, value));
            self.blocks.insert(index + 1, behind);
        } else {
            // The next keys probably belong behind this one: the block before it stays full.
            let mut behind = block.split_off(place);
            behind.insert(0, (key, value));
            self.blocks.insert(index + 1, behind);
            self.join(index + 1);
        }
        None
    }

    /// Removes `key`; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (index, place) = self.find(key);
        let (_, value) = self.blocks.get_mut(index)?.remove(place.ok()?);
        self.len -= 1;
        if self.blocks[index].is_empty() {
            self.blocks.remove(index);
        } else if !self.join(index) && index > 0 {
            self.join(index - 1);
        }
        Some(value)
    }

    /// Merges this block and the next if they have few entries; returns whether it did.
    fn join(&mut self, index: usize) -> bool {
        let entries = |index: usize| self.blocks.get(index).map_or(BLOCK_ENTRIES_MAX, Vec::len);
        let few = entries(index) + entries(index + 1) <= BLOCK_ENTRIES_MAX / 2;
        if few {
            let behind = self.blocks.remove(index + 1);
            self.blocks[index].extend(behind);
        }
        few
    }

    /// The block that `key` belongs to, and its place there, or the place where it would be inserted.
    fn find(&self, key: &K) -> (usize, Result<usize, usize>) {
        let block = self.blocks.partition_point(|block| block[0].0 <= *key).saturating_sub(1);
        let place =
            self.blocks.get(block).map_or(Err(0), |block| block.binary_search_by(|entry| entry.0.cmp(key)));
        (block, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn check(map: &Ordered<u16, u32>, model: &BTreeMap<u16, u32>) {
        let entries: Vec<_> = map.iter().copied().collect();
        assert!(entries.iter().copied().eq(model.iter().map(|(key, value)| (*key, *value))));
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        assert_eq!(map.first().copied(), entries.first().copied());
        assert!(map.after(None).copied().eq(entries.iter().copied()));
        for key in (0..410).chain(990..1_010) {
            let behind = model.range(key + 1..).map(|(key, value)| (*key, *value));
            assert!(map.after(Some(&key)).copied().eq(behind), "behind {key}");
        }
        assert!(map.blocks.iter().all(|block| (1..=BLOCK_ENTRIES_MAX).contains(&block.len())));
        let few = |pair: &[Vec<_>]| pair[0].len() + pair[1].len() <= BLOCK_ENTRIES_MAX / 2;
        assert!(!map.blocks.windows(2).any(few), "neighbours with few entries are one");
    }

    proptest! {
        /// Keys that are inserted in order, in reverse and at random, and removed at random.
        #[test]
        fn it_is_a_map(changes in prop::collection::vec((0..4_u8, 0..400_u16), 0..1_500)) {
            let (mut map, mut model, mut next) = (Ordered::default(), BTreeMap::new(), 1_000);
            for (number, (kind, key)) in (0_u32..).zip(changes) {
                match kind {
                    0 => next += 1,
                    1 => {
                        prop_assert_eq!(map.insert(key, number), model.insert(key, number));
                        continue;
                    }
                    _ => {
                        prop_assert_eq!(map.get(&key), model.get(&key));
                        prop_assert_eq!(map.remove(&key), model.remove(&key));
                        continue;
                    }
                }
                prop_assert_eq!(map.insert(next, number), model.insert(next, number));
            }
            check(&map, &model);
        }
    }

    /// A full block is cut so that each part has few entries with neither neighbour, however few those have
    /// and wherever the key belongs.
    #[test]
    fn a_full_block_is_cut_into_parts_that_are_not_few_with_their_neighbours() {
        const FULL: u16 = BLOCK_ENTRIES_MAX as u16;
        for (before, behind) in [(1, 1), (1, FULL), (FULL, 1), (FULL / 2, FULL / 2), (FULL, FULL)] {
            let (mut map, mut model) = (Ordered::default(), BTreeMap::new());
            for key in 0..3 * FULL {
                map.insert(4 * key, 0);
                model.insert(4 * key, 0);
            }
            for key in (before..FULL).chain(2 * FULL + behind..3 * FULL) {
                assert_eq!(map.remove(&(4 * key)), model.remove(&(4 * key)));
            }
            assert_eq!(map.blocks.iter().map(Vec::len).sum::<usize>(), map.len());
            assert_eq!(map.blocks[1].len(), BLOCK_ENTRIES_MAX);
            for key in (4 * FULL..8 * FULL).step_by(4).map(|key| key + 2) {
                let (mut map, mut model) = (map.clone(), model.clone());
                assert_eq!(map.insert(key, 1), model.insert(key, 1));
                check(&map, &model);
            }
        }
    }

    /// A map of blocks with these sizes, whose keys are the odd numbers in their order.
    fn of_blocks(sizes: &[usize]) -> Ordered<usize, ()> {
        let mut keys = (0..).map(|number| (2 * number + 1, ()));
        let blocks = sizes.iter().map(|size| keys.by_ref().take(*size).collect()).collect();
        Ordered { blocks, len: sizes.iter().sum() }
    }

    fn sizes(map: &Ordered<usize, ()>) -> Vec<usize> {
        map.blocks.iter().map(Vec::len).collect()
    }

    /// A full block is cut behind its first half, or before a key that belongs into its second half.
    #[test]
    fn a_full_block_is_cut_where_a_key_belongs() {
        for place in 0..=BLOCK_ENTRIES_MAX {
            let mut map = of_blocks(&[BLOCK_ENTRIES_MAX]);
            map.insert(2 * place, ());
            let expected = if place < 16 { [17, 16] } else { [place, 33 - place] };
            assert_eq!(sizes(&map), expected, "{place}");
            assert!(map.iter().is_sorted_by(|one, next| one.0 < next.0), "{place}");
        }
    }

    /// A block that has lost an entry is joined with the next, or else with the one before it, if both together have half a
    /// block at most; no sooner.
    #[test]
    fn neighbours_with_few_entries_are_joined() {
        const HALF: usize = BLOCK_ENTRIES_MAX / 2;
        let mut joined = 0;
        for [before, own, behind] in (0..18_usize.pow(3)).map(|n| [n % 18, n / 18 % 18, n / 324]) {
            // 0 stands for none; the invariant holds before.
            let (first, last) = (before == 0, behind == 0);
            if own == 0 || !first && before + own <= HALF || !last && own + behind <= HALF {
                continue;
            }
            let given: Vec<_> = [before, own, behind].into_iter().filter(|size| *size > 0).collect();
            let left = own - 1;
            let mut expected = match (left + behind <= HALF && !last, before + left <= HALF && !first) {
                _ if left == 0 => [before, behind, 0],
                (true, _) => [before, left + behind, 0],
                (false, true) => [before + left, behind, 0],
                (false, false) => [before, left, behind],
            }
            .to_vec();
            expected.retain(|size| *size > 0);
            for place in [0, own / 2, own - 1] {
                let mut map = of_blocks(&given);
                let key = 2 * (before + place) + 1;
                assert_eq!((map.remove(&key), map.remove(&key)), (Some(()), None));
                assert_eq!(sizes(&map), expected, "{given:?} {place}");
                assert_eq!((map.len(), map.get(&key)), (expected.iter().sum(), None));
                assert!(map.iter().is_sorted_by(|one, next| one.0 < next.0), "{given:?} {place}");
            }
            joined += usize::from(expected.len() < given.len());
        }
        assert!(joined > 30, "{joined}");
    }

    #[test]
    fn blocks_are_full_where_keys_come_in_their_order_before_one_that_is_the_last() {
        let mut map = Ordered::default();
        map.insert(u16::MAX, 0);
        for key in 0..3_100 {
            map.insert(key, u32::from(key));
        }
        assert!(map.blocks.len() <= 101, "{} blocks", map.blocks.len());
        for key in 0..3_100 {
            assert_eq!(map.remove(&key), Some(u32::from(key)));
            assert_eq!(map.first().map(|entry| entry.0), Some(if key < 3_099 { key + 1 } else { u16::MAX }));
        }
        assert_eq!((map.len(), map.blocks.len()), (1, 1));
    }
}
