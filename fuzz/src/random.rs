//! One seed, one run.

use punctual_proto::signalling::SplitMix64;

/// A stream of numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// Makes random numbers from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub const fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }
}
