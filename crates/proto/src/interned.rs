//! Values that many channels have in common, stored once: a node's channels have few different contracts and
//! routes.

use alloc::sync::Arc;
use core::hash::Hash;

use hashbrown::HashSet;

/// Constant part of the number of values that may be stored before unused ones are removed.
const FORGOTTEN_MAX: usize = 16;

/// The values that are in use. At most twice as many as were in use at the last removal, plus
/// [`FORGOTTEN_MAX`], are stored; unused ones stay until the next removal.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    known: HashSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: Eq + Hash> Default for Interned<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Eq + Hash> Interned<T> {
    pub(crate) fn new() -> Self {
        Self { known: HashSet::new(), sweep_at: FORGOTTEN_MAX }
    }

    /// The stored value that is equal to `value`; stores this one if there is none.
    pub(crate) fn get(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.sweep_at = 2 * self.known.len() + FORGOTTEN_MAX;
        }
        let value = Arc::new(value);
        self.known.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn equal_values_are_stored_once_and_unused_ones_are_removed() {
        let mut shared = Interned::new();
        let (kept, again) = (shared.get(7), shared.get(7));
        assert!(Arc::ptr_eq(&kept, &again));
        for other in 100..10_000 {
            drop(shared.get(other));
        }
        assert!(shared.known.len() <= 2 * FORGOTTEN_MAX + 2, "{}", shared.known.len());
        assert!(Arc::ptr_eq(&kept, &shared.get(7)), "in use, so it stays");
        let many: Vec<_> = (0..1_000).map(|value| shared.get(value)).collect();
        assert_eq!(Arc::strong_count(&many[7]), 4);
    }

    /// The bound on the size: twice the number of values in use at the last check, plus a constant.
    #[test]
    fn never_more_is_kept_than_twice_what_is_used_and_a_few() {
        for used in [0, 1, 7, 40] {
            let mut shared = Interned::new();
            let kept: Vec<_> = (0..used).map(|value| shared.get(value)).collect();
            let mut most = 0;
            for other in 100..2_000usize {
                drop(shared.get(other));
                most = most.max(shared.known.len());
            }
            assert_eq!(most, 2 * used + FORGOTTEN_MAX, "{used} in use");
            assert!(kept.iter().enumerate().all(|(value, kept)| Arc::ptr_eq(kept, &shared.get(value))));
        }
    }
}
