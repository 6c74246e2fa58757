//! How many segments behind a hole show that it is lost: three at first (RFC 5681 3.2). A path may reorder by more. Then what is sent
//! again arrives twice, and the window has shrunk for nothing. The peer tells: it acknowledges the first copy by the time of that copy
//! (RFC 3522, Eifel), or it reports the second one as a duplicate (RFC 2883, RFC 3708). Each time the number doubles, up to a limit and
//! to three quarters of the flight: a loss is still seen within it.

use crate::limits::REORDERED_MAX;
use crate::sequence::{at_or_after, before, later};

/// What is known of the path's order.
#[derive(Debug)]
pub(super) struct Reordering {
    /// Segments behind a hole that show that it is lost.
    segments: u32,
    /// Duplicates that have brought news since the oldest byte changed.
    shown: u32,
    /// What the present recovery has sent again, until the peer tells whether that was needed.
    again: Option<(u32, u32)>,
    /// The clock of timestamps when it began.
    begun: Option<u32>,
}

impl Default for Reordering {
    fn default() -> Self {
        Self { segments: u32::from(super::REPEATS), shown: 0, again: None, begun: None }
    }
}

impl Reordering {
    /// Segments that show a loss, where so many are in flight.
    pub(super) fn segments(&self, in_flight: u32) -> u32 {
        self.segments.min(in_flight / 4 * 3).max(u32::from(super::REPEATS))
    }

    /// Duplicates that have brought news since the oldest byte changed.
    pub(super) const fn shown(&self) -> u32 {
        self.shown
    }

    /// A duplicate brings news.
    pub(super) const fn shows_more(&mut self) {
        self.shown = self.shown.saturating_add(1);
    }

    /// A recovery begins: the bytes `from` to `to` leave again.
    pub(super) const fn begins(&mut self, from: u32, to: u32) {
        (self.again, self.begun) = (Some((from, to)), None);
    }

    /// The clock of timestamps when it began.
    pub(super) fn begins_at(&mut self, clock: u32) {
        self.begun = self.again.map(|_| clock);
    }

    /// It sends more again, up to `to`.
    pub(super) fn goes_on(&mut self, to: u32) {
        self.again = self.again.map(|(from, end)| (from, later(end, to)));
    }

    /// What left again may leave for a third time: two copies arrive, and show nothing.
    pub(super) const fn forget(&mut self) {
        (self.again, self.begun) = (None, None);
    }

    /// Something new is acknowledged, by a segment that echoes this clock.
    pub(super) fn advances(&mut self, echo: Option<u32>) {
        self.shown = 0;
        let (Some(begun), Some(echo)) = (self.begun.take(), echo) else { return };
        if before(echo, begun) {
            self.reordered();
        } else {
            // The copy has filled the hole.
            self.again = None;
        }
    }

    /// The first block of an acknowledgement may be before it: a duplicate that the peer has got.
    pub(super) fn reported(&mut self, ack: u32, blocks: &[(u32, u32)]) {
        let (Some((from, to)), Some((first, last))) = (blocks.first(), self.again) else { return };
        if at_or_after(ack, *to) && at_or_after(*from, first) && at_or_after(last, *to) {
            self.reordered();
        }
    }

    fn reordered(&mut self) {
        self.segments = (self.segments * 2).min(REORDERED_MAX);
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first new acknowledgement after the recovery began decides: by its echo, the first copy or the second.
    #[test]
    fn a_first_copy_that_arrives_doubles_the_number() {
        let mut order = Reordering::default();
        for (echo, segments) in [(Some(99), 6), (Some(100), 6), (None, 6), (Some(101), 6), (Some(0), 12)] {
            order.begins(1_000, 2_000);
            order.begins_at(100);
            order.advances(echo);
            assert_eq!(order.segments(1_000), segments, "{echo:?}");
            order.advances(Some(0));
            assert_eq!(order.segments(1_000), segments, "only the first decides");
        }
    }

    /// Without timestamps: a duplicate of what was sent again, reported before the acknowledgement, and once.
    #[test]
    fn a_second_copy_that_is_reported_doubles_the_number() {
        let mut order = Reordering::default();
        order.reported(9_000, &[(1_000, 2_000)]);
        assert_eq!(order.segments(1_000), 3, "nothing was sent again");
        order.begins(1_000, 2_000);
        order.goes_on(3_000);
        for blocks in [&[][..], &[(500, 1_500)], &[(2_500, 3_500)], &[(9_500, 9_900), (2_000, 3_000)]] {
            order.reported(9_000, blocks);
            assert_eq!(order.segments(1_000), 3, "{blocks:?}");
        }
        order.reported(9_000, &[(2_000, 3_000)]);
        order.reported(9_000, &[(2_000, 3_000)]);
        assert_eq!(order.segments(1_000), 6);
        order.begins(1_000, 2_000);
        order.forget();
        order.reported(9_000, &[(1_000, 2_000)]);
        assert_eq!(order.segments(1_000), 6, "it left a third time");
    }

    #[test]
    fn the_number_is_bounded_and_less_than_the_flight() {
        let mut order = Reordering::default();
        for _ in 0..20 {
            order.begins(0, 1);
            order.reported(1, &[(0, 1)]);
        }
        assert_eq!(order.segments(10_000), REORDERED_MAX);
        assert_eq!((order.segments(40), order.segments(7), order.segments(0)), (30, 3, 3));
    }
}
