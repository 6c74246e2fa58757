//! Assigns overlapping spans to as few lanes as possible without overlap: a viewer displays one lane as one
//! row.

use crate::time::SimTime;

/// Lanes of one track.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    free_at: Vec<SimTime>,
}

impl Lanes {
    /// The first lane that is free at `from`; taken until `to`. Spans must be given in the order of their
    /// beginnings.
    pub fn take(&mut self, from: SimTime, to: SimTime) -> usize {
        let free = self.free_at.iter().position(|free| *free <= from);
        let lane = free.unwrap_or(self.free_at.len());
        if lane == self.free_at.len() {
            self.free_at.push(to);
        }
        self.free_at[lane] = to;
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spans_get_separate_lanes() {
        let mut lanes = Lanes::default();
        let spans = [(0, 10), (5, 20), (10, 12), (11, 30), (20, 21)];
        let taken = spans.map(|(from, to)| lanes.take(SimTime(from), SimTime(to)));
        assert_eq!(taken, [0, 1, 0, 2, 0]);
    }
}
