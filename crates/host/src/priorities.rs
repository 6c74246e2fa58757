//! Co-scheduling (RTU 3): the `SCHED_FIFO` priority of the thread that takes a channel's messages. It depends
//! on the class and the period of the channel, and is in a band below the processor's own priority.
//!
//! Priorities are rate-monotonic unless a table sets them: the band's upper half is for low-latency channels,
//! its lower half for all others. In each half shorter periods come first, in steps of half an octave: 1.41
//! times the period is one priority less.

use punctual_proto::{Activation, Contract, Nanos};

/// Channels with this period or a shorter one get the highest priority of their half of the band.
const SHORTEST: Nanos = Nanos::from_micros(250);

/// A row of the table: the priority for receivers of channels with at most this period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Longest period.
    pub period_max: Nanos,
    /// Restricts the row to low-latency channels (`true`) or to other channels (`false`); `None`: it is for
    /// both.
    pub low_latency: Option<bool>,
    /// Priority that the receivers of these channels get.
    pub priority: u8,
}

/// The mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priorities {
    /// The lowest.
    pub low: u8,
    /// The highest; below the processor's.
    pub high: u8,
    /// A table in place of the steps: the first row that fits counts, and whatever fits none gets `low`.
    pub levels: Vec<Level>,
}

impl Default for Priorities {
    fn default() -> Self {
        Self { low: 10, high: 40, levels: Vec::new() }
    }
}

impl Priorities {
    /// The priority for the receiver of a channel.
    pub fn of(&self, contract: &Contract) -> u8 {
        let low_latency = matches!(contract.activation, Activation::LowLatency { .. });
        let period = period(contract);
        if !self.levels.is_empty() {
            let fits = |level: &&Level| {
                period <= level.period_max && level.low_latency.is_none_or(|only| only == low_latency)
            };
            return self.levels.iter().find(fits).map_or(self.low, |level| level.priority);
        }
        let middle = self.low + (self.high - self.low) / 2;
        let (least, most) = match low_latency {
            true => ((middle + 1).min(self.high), self.high),
            false => (self.low, middle),
        };
        most.saturating_sub(half_octaves(period)).max(least)
    }
}

/// The period for a channel's priority: the period of its timer, the minimum time between its arrivals, or
/// its interval.
fn period(contract: &Contract) -> Nanos {
    match contract.activation {
        Activation::Deadline => contract.rate_max.interval(),
        Activation::LowLatency { interarrival, .. } => interarrival,
        Activation::Periodic { period, .. } => period,
    }
}

/// floor(2 log2(period / [`SHORTEST`])), not below 0.
fn half_octaves(period: Nanos) -> u8 {
    let square = |span: Nanos| u128::from(span.0) * u128::from(span.0);
    let ratio = (square(period) / square(SHORTEST)).max(1);
    ratio.ilog2().min(255) as u8
}

#[cfg(test)]
mod tests {
    use punctual_proto::Rate;

    use super::*;

    fn contract(per_second: u64, low_latency: bool) -> Contract {
        let rate = Rate::per_second(per_second).expect("a rate");
        let contract = Contract::new(100, rate, 1, Nanos::from_secs(1)).expect("a contract");
        let interarrival = Nanos(1_000_000_000 / per_second);
        let activation = match low_latency {
            true => Activation::LowLatency { interarrival, packets: 1 },
            false => Activation::Deadline,
        };
        Contract { activation, ..contract }
    }

    #[test]
    fn shorter_periods_come_first_and_low_latency_before_all_others() {
        let map = Priorities::default();
        let of = |per_second, low_latency| map.of(&contract(per_second, low_latency));
        // 250 us, 1 ms (4 half-octaves), 2 ms (6), 40 ms (14), 1 s (23: the end of the band).
        let others = [4_000, 1_000, 500, 25, 1].map(|rate| of(rate, false));
        assert_eq!(others, [25, 21, 19, 11, 10]);
        let low_latency = [4_000, 1_000, 500, 25, 1].map(|rate| of(rate, true));
        assert_eq!(low_latency, [40, 36, 34, 26, 26]);
        for narrow in [Priorities { low: 7, high: 7, ..map.clone() }, Priorities { low: 7, high: 8, ..map }] {
            let all = [of_map(&narrow, 4_000, true), of_map(&narrow, 1, true), of_map(&narrow, 1, false)];
            assert!(all.iter().all(|priority| (narrow.low..=narrow.high).contains(priority)), "{all:?}");
        }
    }

    fn of_map(map: &Priorities, per_second: u64, low_latency: bool) -> u8 {
        map.of(&contract(per_second, low_latency))
    }

    #[test]
    fn a_table_takes_the_place_of_the_steps() {
        let level =
            |ms, low_latency, priority| Level { period_max: Nanos::from_millis(ms), low_latency, priority };
        let levels = vec![level(2, Some(true), 39), level(10, None, 35), level(50, None, 20)];
        let map = Priorities { levels, ..Priorities::default() };
        assert_eq!(of_map(&map, 1_000, true), 39);
        assert_eq!(of_map(&map, 1_000, false), 35);
        assert_eq!(of_map(&map, 25, true), 20);
        assert_eq!(of_map(&map, 1, false), 10);
    }
}
