//! Operations of an interface, found by perfect hashing: one look-up and one comparison (TAO, appendix A).
//!
//! `punctual-idl` chooses seed and slots. Their function and this one are the same: [`Operations::new`] compares
//! all places when generated code is compiled.

use crate::counted::{Counted, count};

/// The operations of an interface with those of its bases.
#[derive(Debug)]
pub struct Operations {
    seed: u64,
    /// The number of the operation in each slot, from 1; 0 in empty ones. Their count is a power of two.
    slots: &'static [u16],
    names: &'static [&'static str],
}

impl Operations {
    /// These names, found through these slots.
    ///
    /// # Panics
    /// If a name is not in its slot. Generated code calls it when it is compiled.
    pub const fn new(seed: u64, slots: &'static [u16], names: &'static [&'static str]) -> Self {
        assert!(slots.len().is_power_of_two());
        let operations = Self { seed, slots, names };
        let mut number = 0;
        while number < names.len() {
            let found = operations.slots[operations.slot(names[number])];
            assert!(found as usize == number + 1, "an operation is not where its name says");
            number += 1;
        }
        operations
    }

    /// The operation with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        count(Counted::Operation);
        let number = usize::from(self.slots[self.slot(name)]).checked_sub(1)?;
        (self.names[number] == name).then_some(number)
    }

    /// All names, by their numbers.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    const fn slot(&self, name: &str) -> usize {
        hash(name.as_bytes(), self.seed) as usize & (self.slots.len() - 1)
    }
}

/// Multiplies eight bytes at a time. The last eight are the rest, with zeros.
const fn hash(name: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut hash = seed.wrapping_mul(FACTOR) ^ name.len() as u64;
    let mut rest = name;
    while let Some((word, behind)) = rest.split_first_chunk() {
        hash = mix(hash, u64::from_le_bytes(*word));
        rest = behind;
    }
    if rest.is_empty() {
        return hash;
    }
    let mut word = 0;
    let mut at = rest.len();
    while at > 0 {
        at -= 1;
        word = word << 8 | rest[at] as u64;
    }
    mix(hash, word)
}

const fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^ hash >> 32
}
