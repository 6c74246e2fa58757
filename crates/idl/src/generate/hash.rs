//! Perfect hashing of an interface's operations: one look-up, one comparison.
//!
//! The ORB has the same function; `Operations::new` there compares all places when generated code is compiled.

/// A function that gives each name a slot of its own.
pub(super) struct PerfectHash {
    pub seed: u64,
    /// The number of the name in each slot, from 1; 0 in empty ones. Their count is a power of two.
    pub slots: Vec<u16>,
}

/// Seeds that are tried with one number of slots.
const SEEDS_MAX: u64 = 1_000;

impl PerfectHash {
    /// For at most [`crate::limits::GENERATED_OPERATIONS_MAX`] names.
    pub fn of(names: &[&str]) -> Self {
        let mut count = (names.len() * 2).next_power_of_two();
        loop {
            if let Some(found) = (0..SEEDS_MAX).find_map(|seed| Self::try_with(names, seed, count)) {
                return found;
            }
            count *= 2;
        }
    }

    fn try_with(names: &[&str], seed: u64, count: usize) -> Option<Self> {
        let mut slots = vec![0; count];
        for (number, name) in (1..).zip(names) {
            let slot = &mut slots[hash(name.as_bytes(), seed) as usize & (count - 1)];
            if std::mem::replace(slot, number) != 0 {
                return None;
            }
        }
        Some(Self { seed, slots })
    }
}

/// Multiplies eight bytes at a time. The last eight are the rest, with zeros.
fn hash(name: &[u8], seed: u64) -> u64 {
    let mut hash = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ name.len() as u64;
    for chunk in name.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 32;
    }
    hash
}
