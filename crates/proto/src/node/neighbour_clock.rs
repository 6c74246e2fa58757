//! The lateness of packets and messages, by the clocks of the hosts that they passed (ADR 0025).
//!
//! Each hop converts a packet's logical arrival to its own clock and adds the error of the conversion. The
//! result is not used to police, schedule or drop: a wrong clock affects only reports.

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};

use crate::lateness::drifted;
use crate::signalling::{ClockOffset, NeighbourView};
use crate::wire::{ClockError, Header};

/// State of the neighbour's clock at one link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NeighbourClock {
    offset: Option<ClockOffset>,
    /// Longest time of its packets to our driver.
    travel_max: Nanos,
}

impl NeighbourClock {
    pub const fn of(view: &NeighbourView) -> Self {
        Self { offset: view.clock, travel_max: view.travel_max }
    }

    /// Converts the logical arrival of a packet that came in at `received` to this host's clock. Returns the
    /// time by which the packet was certainly later than allowed. Its age and its logical arrival are both by
    /// the clock of the host that it comes from, so the errors of previous hops cancel.
    pub fn bring_here(&self, header: &mut Header, received: Instant) -> Option<Nanos> {
        let Some(offset) = self.offset else {
            header.clock_error = ClockError::UNKNOWN;
            return None;
        };
        let logical = offset.to_ours(header.logical_arrival);
        let error = offset.error_at(received);
        header.logical_arrival = logical;
        // The offset is that of now; since the logical arrival the clocks have drifted apart.
        let error_here = if active(Mutation::OffsetErrorLeftOut) { Nanos::ZERO } else { error };
        header.clock_error =
            header.clock_error.plus(error_here + drifted(offset.drift, received.since(logical)));
        let due = logical + header.age.span()? + self.travel_max + error;
        (received > due).then(|| received.since(due))
    }
}

#[cfg(test)]
mod tests {
    use punctual_analysis::Ppm;

    use super::*;
    use crate::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
    use crate::wire::{Age, Kind};

    fn header(logical: u64, age: u64) -> Header {
        Header {
            kind: Kind::Guaranteed,
            demoted: false,
            unpromised: false,
            path: PathId { node: NodeId(1), channel: ChannelNumber(1), epoch: Epoch(1) },
            cookie: Cookie(0),
            message: 0,
            fragment: 0,
            fragments: 1,
            message_bytes: 0,
            slack_ns: 0,
            logical_arrival: Instant(logical),
            age: Age::of(Nanos(age)),
            payload_bytes: 0,
            clock_error: ClockError::NONE.plus(Nanos(1_000)),
            destination: NodeId(0),
        }
    }

    /// A neighbour whose clock is 500 us ahead, with an error of 10 us. Packets take 100 us at most.
    fn neighbour() -> NeighbourClock {
        let offset = ClockOffset {
            offset_ns: 500_000,
            error: Nanos(10_000),
            at: Instant(10_000_000),
            drift: Ppm(200),
        };
        NeighbourClock { offset: Some(offset), travel_max: Nanos(100_000) }
    }

    #[test]
    fn the_logical_arrival_comes_to_this_clock_with_its_error() {
        let mut header = header(10_500_000, 320_000);
        assert_eq!(neighbour().bring_here(&mut header, Instant(10_400_000)), None);
        assert_eq!(header.logical_arrival, Instant(10_000_000));
        // The packet's own error, the offset's, and the drift at 200 ppm in 400 us of aging and in 400 us
        // since the logical arrival.
        assert_eq!(header.clock_error.known(), Some(Nanos(1_000 + 10_000 + 80 + 80 + 2)));
    }

    #[test]
    fn only_what_is_surely_later_than_it_may_be_is_late() {
        let received = |late: u64| 10_000_000 + 320_000 + 100_000 + 10_000 + 86 + late;
        for (late, reported) in [(0, None), (2_000, Some(2_000))] {
            let mut header = header(10_500_000, 320_000);
            let by = neighbour().bring_here(&mut header, Instant(received(late)));
            // Ages are rounded up by a thousandth at most.
            let error = by.map(|by| reported.map_or(by.0, |reported: u64| reported.abs_diff(by.0)));
            assert_eq!(by.is_some(), reported.is_some(), "{by:?}");
            assert!(error.is_none_or(|error| error <= 330), "{by:?}");
        }
        // By a nanosecond at first: what comes just in time is not late.
        let late = (0..400).filter_map(|late| {
            neighbour().bring_here(&mut header(10_500_000, 320_000), Instant(received(late)))
        });
        assert_eq!(late.min(), Some(Nanos(1)));
        let mut aged = header(10_500_000, 320_000);
        aged.age = Age::NONE;
        assert_eq!(neighbour().bring_here(&mut aged, Instant(received(9_000_000))), None);
    }

    #[test]
    fn without_a_clock_nothing_is_reported() {
        let mut header = header(10_500_000, 1);
        assert_eq!(NeighbourClock::default().bring_here(&mut header, Instant(99_000_000)), None);
        assert_eq!(header.clock_error, ClockError::UNKNOWN);
    }
}
