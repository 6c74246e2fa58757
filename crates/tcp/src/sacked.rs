//! What the peer has beyond the oldest byte that it has not acknowledged, by its selective acknowledgements (RFC 2018, RFC 6675).
//!
//! Invariant: the ranges are in order, and neither empty, overlapping nor adjacent.

use alloc::vec::Vec;

use crate::limits::SACKED_MAX;
use crate::sequence::{at_or_after, before, later};

/// The ranges.
#[derive(Debug, Default)]
pub(crate) struct Sacked {
    ranges: Vec<(u32, u32)>,
}

impl Sacked {
    /// Notes a range from `from` to before `to`, both between the oldest byte in flight and the end of what was sent. Returns
    /// how many bytes of it were news.
    pub(crate) fn add(&mut self, from: u32, to: u32) -> u32 {
        if !before(from, to) || self.ranges.iter().any(|(a, b)| at_or_after(from, *a) && at_or_after(*b, to))
        {
            return 0;
        }
        let touches = |(a, b): &(u32, u32)| at_or_after(to, *a) && at_or_after(*b, from);
        let (mut first, mut end, mut known) = (from, to, 0);
        for (a, b) in self.ranges.iter().filter(|range| touches(range)) {
            known += b.wrapping_sub(*a);
            first = if before(*a, first) { *a } else { first };
            end = later(end, *b);
        }
        self.ranges.retain(|range| !touches(range));
        let at = self.ranges.iter().position(|(a, _)| before(first, *a)).unwrap_or(self.ranges.len());
        self.ranges.insert(at, (first, end));
        self.ranges.truncate(SACKED_MAX);
        end.wrapping_sub(first) - known
    }

    /// Everything before `ack` was acknowledged.
    pub(crate) fn advance(&mut self, ack: u32) {
        self.ranges.retain(|(_, to)| before(ack, *to));
        if let Some((from, _)) = self.ranges.first_mut() {
            *from = later(*from, ack);
        }
    }

    /// After a timeout the peer may have dropped what it has acknowledged selectively (RFC 2018 8).
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The first hole at or after `from` above which the peer has more than `bytes_min` bytes (RFC 6675 4, `IsLost`): its first
    /// byte, and the end of it.
    pub(crate) fn hole(&self, from: u32, bytes_min: u32) -> Option<(u32, u32)> {
        let mut start = from;
        for (a, b) in &self.ranges {
            if before(start, *a) {
                return (self.bytes_above(start) > bytes_min).then_some((start, *a));
            }
            start = later(start, *b);
        }
        None
    }

    fn bytes_above(&self, seq: u32) -> u32 {
        let above = self.ranges.iter().filter(|(from, _)| before(seq, *from));
        above.map(|(from, to)| to.wrapping_sub(*from)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u32 = u32::MAX - 2_500;

    fn sacked(ranges: &[(u32, u32)]) -> Sacked {
        let mut sacked = Sacked::default();
        for (from, to) in ranges {
            sacked.add(BASE.wrapping_add(*from), BASE.wrapping_add(*to));
        }
        sacked
    }

    fn shown(sacked: &Sacked) -> Vec<(u32, u32)> {
        sacked.ranges.iter().map(|(a, b)| (a.wrapping_sub(BASE), b.wrapping_sub(BASE))).collect()
    }

    /// Also across the wrap of sequence numbers, which is at 2,501.
    #[test]
    fn ranges_are_joined_and_kept_in_order() {
        assert_eq!(shown(&sacked(&[(4_000, 5_000), (1_000, 2_000)])), [(1_000, 2_000), (4_000, 5_000)]);
        assert_eq!(shown(&sacked(&[(1_000, 2_000), (3_000, 4_000), (2_000, 3_000)])), [(1_000, 4_000)]);
        assert_eq!(shown(&sacked(&[(2_000, 3_000), (1_500, 2_500)])), [(1_500, 3_000)]);
        assert_eq!(shown(&sacked(&[(3_000, 3_000), (3_000, 2_000)])), []);
        let mut known = sacked(&[(1_000, 3_000)]);
        let mut news = |from, to| known.add(BASE.wrapping_add(from), BASE.wrapping_add(to));
        assert_eq!([news(1_000, 2_000), news(2_000, 3_001), news(5_000, 5_010)], [0, 1, 10]);
        assert_eq!([news(500, 6_000), news(500, 6_000)], [5_500 - 2_011, 0], "what is between them");
    }

    #[test]
    fn what_is_acknowledged_is_forgotten() {
        let mut some = sacked(&[(1_000, 2_000), (3_000, 4_000)]);
        some.advance(BASE.wrapping_add(2_000));
        assert_eq!(shown(&some), [(3_000, 4_000)]);
        some.advance(BASE.wrapping_add(3_500));
        assert_eq!(shown(&some), [(3_500, 4_000)]);
        some.clear();
        assert!(some.is_empty());
    }

    #[test]
    fn a_hole_counts_as_lost_when_enough_is_above_it() {
        let some = sacked(&[(1_000, 2_000), (3_000, 4_000), (5_000, 5_100)]);
        let hole = |from: u32, least| {
            let found = some.hole(BASE.wrapping_add(from), least);
            found.map(|(a, b)| (a.wrapping_sub(BASE), b.wrapping_sub(BASE)))
        };
        assert_eq!(hole(0, 2_000), Some((0, 1_000)));
        assert_eq!(hole(500, 2_099), Some((500, 1_000)));
        assert_eq!(hole(0, 2_100), None, "not more than so many bytes are above");
        assert_eq!(hole(1_000, 1_000), Some((2_000, 3_000)));
        assert_eq!(hole(2_500, 1_100), None);
        assert_eq!(hole(3_200, 99), Some((4_000, 5_000)));
        assert_eq!(hole(5_000, 0), None, "behind the last range nothing is known");
    }

    /// A peer that acknowledges every second byte costs no more memory.
    #[test]
    fn the_ranges_are_bounded() {
        let mut many = Sacked::default();
        for at in 0..1_000 {
            many.add(at * 2, at * 2 + 1);
        }
        assert_eq!(many.ranges.len(), SACKED_MAX);
        assert_eq!(many.hole(0, 0), Some((1, 2)), "the oldest are kept");
    }
}
