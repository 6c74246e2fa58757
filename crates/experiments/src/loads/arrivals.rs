//! When messages are sent.

use std::sync::Arc;

use punctual_analysis::{Instant, Nanos};

use crate::measure::Sent;

/// The times of a source, from its start on.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// One every `interval`.
    Periodic {
        /// Time between two messages.
        interval: Nanos,
    },
    /// `burst` at once, every `burst` times `interval`: the same mean rate as periodic.
    Bursty {
        /// Mean span between messages.
        interval: Nanos,
        /// Messages at once.
        burst: u32,
    },
    /// At these times; then again from the beginning.
    Recorded {
        /// Ascending, from the start of a round.
        times: Arc<[Nanos]>,
        /// One round.
        period: Nanos,
    },
    /// As fast as the sender accepts them.
    Continuous,
}

impl Arrivals {
    /// When message `index` is due after the source's start; `None` for "as soon as it is taken".
    pub fn due(&self, index: u64) -> Option<Nanos> {
        match self {
            Self::Periodic { interval } => Some(*interval * index),
            Self::Bursty { interval, burst } => {
                let burst = u64::from(*burst).max(1);
                Some(*interval * (index / burst * burst))
            }
            Self::Recorded { times, period } => {
                let len = times.len() as u64;
                let round = index.checked_div(len)?;
                Some(*period * round + times[(index % len) as usize])
            }
            Self::Continuous => None,
        }
    }

    /// Makes the messages that were sent from `start` on count from when they were due.
    pub fn count_from_due(&self, sent: &mut [Sent], start: Instant) {
        for (index, sent) in sent.iter_mut().enumerate() {
            sent.logical = self.due(index as u64).map_or(sent.logical, |due| start + due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_keep_the_mean_rate() {
        let bursty = Arrivals::Bursty { interval: Nanos(10), burst: 4 };
        let due: Vec<_> = (0..9).map(|index| bursty.due(index).unwrap().0).collect();
        assert_eq!(due, [0, 0, 0, 0, 40, 40, 40, 40, 80]);
        assert_eq!(Arrivals::Periodic { interval: Nanos(10) }.due(4), Some(Nanos(40)));
        assert_eq!(Arrivals::Continuous.due(4), None);
    }

    #[test]
    fn recordings_go_round() {
        let recorded = Arrivals::Recorded { times: Arc::from([Nanos(0), Nanos(3)]), period: Nanos(10) };
        let due: Vec<_> = (0..4).map(|index| recorded.due(index).unwrap().0).collect();
        assert_eq!(due, [0, 3, 10, 13]);
    }
}
