//! Interference within its bound: at most `sigma + rho * t` in any time t, spent at the worst times.

use punctual_analysis::{Nanos, Ppm};
use punctual_proto::config::Interference;

use crate::time::SimTime;

const PPM: u128 = 1_000_000;

/// A token bucket whose tokens are time that other work takes from a link or a processor.
#[derive(Clone, Debug)]
pub struct Bucket {
    bound: Interference,
    /// Tokens in nanoseconds times 10^6, so that small gains are not lost to rounding.
    level: u128,
    at: SimTime,
}

impl Bucket {
    /// Full at the start.
    pub fn new(bound: Interference) -> Self {
        Self { bound, level: u128::from(bound.sigma.0) * PPM, at: SimTime(0) }
    }

    /// Its bound.
    pub const fn bound(&self) -> Interference {
        self.bound
    }

    /// Changes the proportion from `now` on; the tokens stay.
    pub fn set_share(&mut self, now: SimTime, rho: Ppm) {
        self.available(now);
        self.bound.rho = rho;
    }

    /// The time that may be taken at `now`.
    pub fn available(&mut self, now: SimTime) -> Nanos {
        let gain = u128::from(now.since(self.at).0) * u128::from(self.bound.rho.0);
        self.level = (self.level + gain).min(u128::from(self.bound.sigma.0) * PPM);
        self.at = self.at.max(now);
        Nanos((self.level / PPM) as u64)
    }

    /// Takes `wanted`, or what is available if that is less.
    pub fn take(&mut self, now: SimTime, wanted: Nanos) -> Nanos {
        let taken = wanted.min(self.available(now));
        self.level -= u128::from(taken.0) * PPM;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_sigma_and_rho_t() {
        let mut bucket = Bucket::new(Interference { sigma: Nanos(1_000), rho: Ppm(100_000) });
        let mut takes = Vec::new();
        for t in (0..50_000).step_by(37) {
            takes.push((t, bucket.take(SimTime(t), Nanos(if t % 3 == 0 { 900 } else { 5 })).0));
        }
        for first in 0..takes.len() {
            let mut sum = 0;
            for &(t, taken) in &takes[first..] {
                sum += taken;
                assert!(sum <= 1_000 + (t - takes[first].0) / 10 + 1, "{sum} from {} to {t}", takes[first].0);
            }
        }
        assert!(takes.iter().map(|t| t.1).sum::<u64>() > 5_000, "the bound is used up");
    }
}
