//! Memory in use, read repeatedly while applications send.

use punctual_analysis::Nanos;

use super::World;
use crate::resident::{READINGS, Reading, growth};
use crate::time::SimTime;

impl World {
    /// Takes a reading if it is time for one.
    pub(super) fn weigh(&mut self) {
        let Some(scales) = self.options.memory else { return };
        let (stops, traffic) = (self.scenario.times.stops, self.scenario.times.traffic());
        let taken = self.outcome.memory.len() as u64;
        let next = stops - traffic + Nanos(traffic.0 / READINGS) * (taken + 1);
        if taken < READINGS && self.now >= next {
            self.outcome.memory.push(Reading { at: self.now.since(SimTime(0)), bytes: scales() });
        }
    }

    /// Checks that memory has not grown.
    pub(super) fn check_memory(&mut self) {
        if let Some(wrong) = growth(&self.outcome.memory) {
            self.violate(&wrong);
        }
    }
}
