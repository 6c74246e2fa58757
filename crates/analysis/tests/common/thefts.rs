//! The worst interference of a simulated stage.

use punctual_analysis::{Interference, Ppm};

/// Interference that takes all that sigma + rho·t allows from a time on: a burst, then a chunk whenever there is
/// time for one.
pub struct Thefts {
    next_ns: u64,
    next_length_ns: u64,
    chunk_ns: u64,
    every_ns: u64,
}

impl Thefts {
    pub fn new(model: Interference, begin_ns: u64) -> Self {
        let chunk_ns = model.sigma.0 / 4;
        let every_ns = match model.rho {
            Ppm(0) => u64::MAX,
            Ppm(rho) => (chunk_ns * 1_000_000).div_ceil(u64::from(rho)).max(1),
        };
        Self { next_ns: begin_ns + 1, next_length_ns: model.sigma.0 - chunk_ns, chunk_ns, every_ns }
    }

    /// The end of work of `length_ns` that begins at `begin_ns`.
    pub fn end_of(&mut self, begin_ns: u64, length_ns: u64) -> u64 {
        let mut end_ns = begin_ns + length_ns;
        while self.next_ns < end_ns {
            // Interference while nothing is served has no effect on the idle stage.
            end_ns += (self.next_ns + self.next_length_ns).saturating_sub(self.next_ns.max(begin_ns));
            self.next_length_ns = self.chunk_ns;
            self.next_ns = self.next_ns.saturating_add(self.every_ns);
        }
        end_ns
    }
}
