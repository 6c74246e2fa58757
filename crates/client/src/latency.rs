//! How long a message was on its way.

use punctual_proto::Nanos;
use punctual_proto::memory::MessageInfo;

/// One-way latency of a message: from its logical arrival at the source to its delivery at this host, by this host's clock.
///
/// ```
/// # fn seen(info: &punctual::MessageInfo) {
/// match punctual::OneWayLatency::of(info) {
///     Some(latency) => println!("{} +- {}", latency.measured, latency.error),
///     None => println!("the clocks of the hosts on the way are not known"),
/// }
/// # }
/// ```
///
/// A sender that keeps its rate sends at the logical arrival. If a message is sent too soon, its wait for
/// that time is not counted. A message that is served ahead of its logical arrival, within the jitter
/// allowance, may be delivered before it and then has a latency of 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneWayLatency {
    /// Latency as measured. It is 0 if the delivery is earlier than the logical arrival, or seems to be by
    /// the clocks' error.
    pub measured: Nanos,
    /// The most that it may be wrong by, either way.
    pub error: Nanos,
}

impl OneWayLatency {
    /// The latency of a message. `None` if the clock of a host on the way is unknown, and for best effort,
    /// whose send time is the source's own claim.
    pub fn of(info: &MessageInfo) -> Option<Self> {
        let measured = info.delivered.since(info.logical_arrival);
        info.clock_error.map(|error| Self { measured, error })
    }

    /// The message certainly took at least this long.
    pub fn at_least(self) -> Nanos {
        self.measured - self.error
    }

    /// The message certainly took no longer than this.
    pub fn at_most(self) -> Nanos {
        self.measured + self.error
    }
}

#[cfg(test)]
mod tests {
    use punctual_proto::Instant;
    use punctual_proto::memory::Timeliness;

    use super::*;

    fn info(logical_arrival: u64, delivered: u64, clock_error: Option<u64>) -> MessageInfo {
        MessageInfo {
            number: 0,
            len: 1,
            logical_arrival: Instant(logical_arrival),
            clock_error: clock_error.map(Nanos),
            deadline: Instant(logical_arrival + 1_000),
            delivered: Instant(delivered),
            demoted: false,
            unpromised: false,
            timeliness: Timeliness::InTime,
        }
    }

    #[test]
    fn a_latency_has_the_clocks_error_on_both_sides() {
        let latency = OneWayLatency::of(&info(5_000, 5_700, Some(40))).expect("the clocks are known");
        assert_eq!((latency.measured, latency.error), (Nanos(700), Nanos(40)));
        assert_eq!((latency.at_least(), latency.at_most()), (Nanos(660), Nanos(740)));
        // The clocks disagree by more than it took.
        let short = OneWayLatency::of(&info(5_000, 4_990, Some(40))).expect("the clocks are known");
        assert_eq!((short.at_least(), short.measured, short.at_most()), (Nanos(0), Nanos(0), Nanos(40)));
    }

    #[test]
    fn no_latency_is_computed_without_known_clocks() {
        assert_eq!(OneWayLatency::of(&info(5_000, 5_700, None)), None);
    }
}
