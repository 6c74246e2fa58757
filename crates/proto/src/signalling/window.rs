//! The replay window of one life of a neighbour: each packet number is taken once.

/// How far behind the newest number a packet may come in.
pub const WINDOW_PACKETS: u64 = 128;

/// Which packet numbers were seen.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    newest: u64,
    /// Bit i: `newest - i` was seen.
    seen: u128,
}

impl ReplayWindow {
    /// A window whose first packet is `first`; whatever was sent before it counts as seen.
    pub const fn starting_at(first: u64) -> Self {
        Self { newest: first, seen: u128::MAX }
    }
    /// Takes `number` unless it was seen or is too old to tell.
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
    use super::*;

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
