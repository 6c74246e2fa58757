//! The rates of a world's flows in one phase: over all of it, and outside platform holes.

use punctual::Instant;

use crate::excuse::Excuses;

/// When, and the bytes that every sink had until then.
pub(super) type ByteSnapshot = (Instant, Vec<u64>);

/// The readings of a phase's sinks in steady state, the last one included.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase {
    pub samples: Vec<ByteSnapshot>,
    /// Bytes that our link has sent meanwhile, including every header; `None` for the kernel's.
    pub wire_bytes: Option<u64>,
}

/// Bytes a second of each flow.
pub(super) type Rates = Vec<f64>;

impl Phase {
    /// Rates of the whole phase.
    pub fn whole(&self) -> Rates {
        match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => rates(first, last).collect(),
            _ => Rates::new(),
        }
    }

    /// Rates of the slots between two readings that are touched neither by a hole nor by its backlog; those
    /// of the whole phase if there is no such slot.
    pub fn outside_holes(&self, excuses: &Excuses) -> Rates {
        let (mut ns, mut bytes) = (0, vec![0; self.samples.first().map_or(0, |(_, bytes)| bytes.len())]);
        for (from, to) in self.slots().filter(|(from, to)| !excuses.covers(from.0, to.0)) {
            ns += to.0.since(from.0).as_u64();
            for ((sum, before), after) in bytes.iter_mut().zip(&from.1).zip(&to.1) {
                *sum += after - before;
            }
        }
        if ns == 0 {
            return self.whole();
        }
        bytes.into_iter().map(|bytes| bytes as f64 * 1e9 / ns as f64).collect()
    }

    /// How many slots there are, and how many holes spoil.
    pub fn slots_and_excused(&self, excuses: &Excuses) -> (u64, u64) {
        let excused = self.slots().filter(|(from, to)| excuses.covers(from.0, to.0)).count();
        (self.slots().count() as u64, excused as u64)
    }

    /// What our link sent, in bytes a second.
    pub fn wire_rate(&self) -> Option<f64> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        Some(self.wire_bytes? as f64 / last.0.since(first.0).as_secs_f64().max(f64::MIN_POSITIVE))
    }

    fn slots(&self) -> impl Iterator<Item = (&ByteSnapshot, &ByteSnapshot)> {
        self.samples.iter().zip(self.samples.iter().skip(1))
    }
}

/// Bytes a second between two readings.
pub(super) fn rates<'a>(from: &'a ByteSnapshot, to: &'a ByteSnapshot) -> impl Iterator<Item = f64> + 'a {
    let seconds = to.0.since(from.0).as_secs_f64().max(f64::MIN_POSITIVE);
    from.1.iter().zip(&to.1).map(move |(from, to)| (to - from) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use punctual::Ppm;

    use super::*;
    use crate::excuse::Hole;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_hole_takes_its_slots_out_of_the_rate() {
        // 1,000 B in each of ten slots of 10 ms, but none in the fourth, which contains a hole.
        let bytes = |slot: u64| 1_000 * (slot - u64::from(slot >= 4));
        let sample = |slot: u64| (Instant((100 + 10 * slot) * MS), vec![bytes(slot)]);
        let phase = Phase { samples: (0..=10).map(sample).collect(), wire_bytes: Some(18_000) };
        let hole = Hole { start: Instant(132 * MS), end: Instant(135 * MS) };
        let excuses = Excuses::new(&[hole], Ppm(0));
        assert_eq!(phase.whole(), [90_000.0]);
        assert_eq!(phase.outside_holes(&excuses), [100_000.0]);
        assert_eq!(phase.slots_and_excused(&excuses), (10, 1));
        assert_eq!(phase.wire_rate(), Some(180_000.0));
        let always = Hole { start: Instant(0), end: Instant(1_000 * MS) };
        assert_eq!(phase.outside_holes(&Excuses::new(&[always], Ppm(0))), [90_000.0], "nothing is left");
    }
}
