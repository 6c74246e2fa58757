//! The neighbour's state in the program: the key of its seals, and which packet numbers were let in.

use crate::SealKey;

/// `struct neighbour` in `punctual.bpf.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Neighbour {
    key: [u64; 2],
    is_known: u64,
    next: u64,
    seen: u64,
}

// SAFETY: 64-bit integers only: every bit pattern is valid and there is no padding.
unsafe impl aya::Pod for Neighbour {}

impl Neighbour {
    /// A neighbour of which no packet came yet.
    pub(super) fn of(key: SealKey) -> Self {
        let SealKey([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]) = key;
        let key = [[a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]].map(u64::from_le_bytes);
        Self { key, is_known: 1, next: 0, seen: 0 }
    }

    pub(super) fn has_key_of(&self, other: &Self) -> bool {
        (self.is_known, self.key) == (other.is_known, other.key)
    }
}
