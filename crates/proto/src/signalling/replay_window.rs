//! The replay window of one life of a neighbour: each packet number is taken once.

/// How far behind the newest number a packet may come in.
pub const WINDOW_PACKETS: u64 = 128;

/// The packet numbers that were received.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    newest: u64,
    /// Bit i: `newest - i` was received.
    seen: u128,
}

impl ReplayWindow {
    /// A window whose first packet is `first`; every earlier number counts as received.
    pub const fn starting_at(first: u64) -> Self {
        Self { newest: first, seen: u128::MAX }
    }
    /// Takes `number` unless it was received or is older than the window.
    pub const fn take(&mut self, number: u64) -> bool {
        if number > self.newest {
            let ahead = number - self.newest;
            self.seen = if ahead >= WINDOW_PACKETS { 1 } else { (self.seen << ahead) | 1 };
            self.newest = number;
            return true;
        }
        let behind = self.newest - number;
        if behind >= WINDOW_PACKETS || self.seen & (1 << behind) != 0 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::SplitMix64;
    use super::*;
    use alloc::collections::BTreeSet;

    /// Any numbers, near and far, up to the largest: each is taken once, and only while the window includes
    /// it.
    #[test]
    fn the_window_is_a_set_of_the_newest_numbers() {
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let first = [0, 1, 1_000, u64::MAX - 600][random.below(4) as usize];
            let (mut window, mut newest) = (ReplayWindow::starting_at(first), first);
            let mut seen = BTreeSet::from([first]);
            for _ in 0..600 {
                let number = match random.below(8) {
                    0 => newest.saturating_add(random.below(3 * WINDOW_PACKETS)),
                    1 => newest.saturating_sub(WINDOW_PACKETS - 2 + random.below(4)),
                    2 => newest.saturating_add(1),
                    _ => newest.saturating_sub(random.below(WINDOW_PACKETS)),
                };
                let is_near = newest.saturating_sub(number) < WINDOW_PACKETS && number >= first;
                let fresh = number > newest || is_near && !seen.contains(&number);
                assert_eq!(window.take(number), fresh, "seed {seed}: {number}, newest is {newest}");
                if fresh {
                    seen.insert(number);
                    newest = newest.max(number);
                }
            }
        }
    }

    /// All numbers of the window, in reverse: a full window takes no number again.
    #[test]
    fn a_full_window_takes_only_what_is_new() {
        let mut window = ReplayWindow::starting_at(0);
        assert!(window.take(500));
        assert!((500 - WINDOW_PACKETS + 1..500).rev().all(|number| window.take(number)));
        assert!((0..=500).all(|number| !window.take(number)) && window.take(501));
        assert!(!window.take(501 - WINDOW_PACKETS) && !window.take(502 - WINDOW_PACKETS));
    }

    #[test]
    fn each_number_is_taken_once_in_any_order() {
        let mut window = ReplayWindow::starting_at(10);
        for number in [12, 11, 300, 299, 173] {
            assert!(window.take(number), "{number}");
            assert!(!window.take(number), "{number} again");
        }
        assert!(!window.take(10) && !window.take(172), "too old to tell");
        assert!(window.take(u64::MAX) && !window.take(300));
    }
}
