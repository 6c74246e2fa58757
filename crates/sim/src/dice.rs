//! The run's only source of chance: everything that is drawn comes from the seed.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use punctual_analysis::{Nanos, Ppm};

/// A stream of draws. Streams of different labels are independent, so that an extra draw in one part of a run
/// does not move the others.
#[derive(Clone, Debug)]
pub struct Dice(SmallRng);

impl Dice {
    /// The stream `label` of `seed`.
    pub fn new(seed: u64, label: u64) -> Self {
        Self(SmallRng::seed_from_u64(mix(seed ^ mix(label))))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Evenly from `low` to `high`, both included; `low` where `high` is smaller.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low { low } else { self.0.random_range(low..=high) }
    }

    /// A span from `low` to `high`, both included. One draw in four is an extreme: worst cases live there.
    pub fn span(&mut self, low: Nanos, high: Nanos) -> Nanos {
        match self.between(0, 7) {
            0 => low.min(high),
            1 => high,
            _ => Nanos(self.between(low.0, high.0)),
        }
    }

    /// From `low` to `high` so that every factor of two is equally likely; `low` at least 1.
    pub fn log_between(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(1));
        let octaves = (high / low).max(1).ilog2();
        let base = low << self.between(0, u64::from(octaves)) as u32;
        self.between(base, (base * 2).min(high))
    }

    /// True with probability `chance`.
    pub fn chance(&mut self, chance: Ppm) -> bool {
        chance.0 > 0 && self.between(0, 999_999) < u64::from(chance.0)
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0, choices.len() as u64 - 1) as usize]
    }
}

/// SplitMix64's finaliser: spreads every input bit over all output bits.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_range_and_repeat() {
        let (mut one, mut two) = (Dice::new(7, 1), Dice::new(7, 1));
        for _ in 0..10_000 {
            let x = one.log_between(16, 40_000);
            assert!((16..=40_000).contains(&x), "{x}");
            assert_eq!(x, two.log_between(16, 40_000));
            assert!(one.span(Nanos(3), Nanos(9)) <= Nanos(9) && two.span(Nanos(3), Nanos(9)) >= Nanos(3));
        }
        assert_ne!(Dice::new(7, 1).bits(), Dice::new(7, 2).bits());
    }

    #[test]
    fn chance_has_its_ends() {
        let mut dice = Dice::new(1, 1);
        assert!((0..1000).all(|_| !dice.chance(Ppm(0))));
        assert!((0..1000).all(|_| dice.chance(Ppm::ONE)));
    }
}
