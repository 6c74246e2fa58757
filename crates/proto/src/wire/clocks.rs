//! The times in the header beside slack, in few bits: the error of a clock reading, and the age of a packet
//! when it leaves.

use punctual_analysis::Nanos;

/// Largest error of a time in a header: the sum of the errors of all clock offsets that converted it, in ns,
/// up to 4.29 s. A larger error is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockError(u32);

impl ClockError {
    /// No error: a time at the source, on its own clock.
    pub const NONE: Self = Self(0);
    /// The error is unknown.
    pub const UNKNOWN: Self = Self(u32::MAX);

    /// Reads the error from its bits on the wire.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
    /// The error as bits for the wire.
    pub const fn to_bits(self) -> u32 {
        self.0
    }
    /// This error with another one added; unknown if the sum is beyond the range.
    #[must_use]
    pub fn plus(self, more: Nanos) -> Self {
        Self(u32::try_from(more.0).map_or(u32::MAX, |more| self.0.saturating_add(more)))
    }
    /// The error; `None` if it is unknown.
    pub const fn known(self) -> Option<Nanos> {
        match self {
            Self::UNKNOWN => None,
            Self(error_ns) => Some(Nanos(error_ns as u64)),
        }
    }
}

/// Longest time from a packet's logical arrival until it leaves a host, on that host's clock: a float of 16
/// bits, rounded up by at most one part in 1,024 (16 ns at least). 0 means unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Age(u16);

/// Bits of the significand; the others are the exponent.
const SIGNIFICAND_BITS: u32 = 11;
/// Value of the last bit of the smallest exponent, in ns.
const UNIT_NS: u64 = 16;

impl Age {
    /// The age of packets that state none: best effort, and demoted packets.
    pub const NONE: Self = Self(0);

    /// The age of a span, rounded up; [`Age::NONE`] for a span of more than 19 hours.
    pub fn of(span: Nanos) -> Self {
        let units = span.0.div_ceil(UNIT_NS).max(1);
        let exponent = (u64::BITS - units.leading_zeros()).saturating_sub(SIGNIFICAND_BITS);
        let significand = ((units - 1) >> exponent) + 1;
        // Rounding up may need one bit more.
        let carry = (significand >> SIGNIFICAND_BITS) as u32;
        let (exponent, significand) = (exponent + carry, significand >> carry);
        u16::try_from(exponent << SIGNIFICAND_BITS | significand as u32).map_or(Self::NONE, Self)
    }
    /// Reads the age from its bits on the wire.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
    /// The age as bits for the wire.
    pub const fn to_bits(self) -> u16 {
        self.0
    }
    /// The span; `None` if it is unknown.
    pub const fn span(self) -> Option<Nanos> {
        let significand = self.0 & ((1 << SIGNIFICAND_BITS) - 1);
        if significand == 0 {
            return None;
        }
        Some(Nanos(((significand as u64) << (self.0 >> SIGNIFICAND_BITS)) * UNIT_NS))
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn ages_are_rounded_up_by_a_thousandth_at_most() {
        for shift in 0..46 {
            for near in [-1_i64, 0, 1, 7, 999] {
                let span = Nanos((1_u64 << shift).saturating_add_signed(near).max(1));
                let read = Age::of(span).span().expect("within the range");
                assert!(read >= span && read.0 - span.0 <= (span.0 / 1_024).max(UNIT_NS), "{span} {read}");
                assert_eq!(Age::from_bits(Age::of(read).to_bits()).span(), Some(read), "it fits itself");
            }
        }
        assert_eq!(Age::of(Nanos::ZERO).span(), Some(Nanos(UNIT_NS)), "an age is something that is said");
        assert_eq!(Age::of(Nanos(u64::MAX)), Age::NONE);
        assert_eq!(Age::NONE.span(), None);
    }

    /// A span that the wire can state stays as it is. One between two of them is rounded up to the longer one.
    #[test]
    fn each_span_is_rounded_up_to_the_next_that_the_wire_can_state() {
        let stated: BTreeSet<Nanos> = (0..=u16::MAX).filter_map(|bits| Age::from_bits(bits).span()).collect();
        let mut shorter = Nanos::ZERO;
        for span in stated {
            for within in [shorter + Nanos(1), Nanos((shorter.0 + span.0) / 2 + 1), span] {
                assert_eq!(Age::of(within).span(), Some(span), "{within}");
            }
            shorter = span;
        }
    }

    #[test]
    fn errors_add_up_until_they_are_unknown() {
        let error = ClockError::NONE.plus(Nanos(7)).plus(Nanos(5));
        assert_eq!(error.known(), Some(Nanos(12)));
        assert_eq!(error.plus(Nanos(u64::from(u32::MAX) - 13)).known(), Some(Nanos(u64::from(u32::MAX) - 1)));
        assert_eq!(error.plus(Nanos(u64::from(u32::MAX) - 12)), ClockError::UNKNOWN);
        assert_eq!(ClockError::UNKNOWN.plus(Nanos(1)), ClockError::UNKNOWN);
        assert_eq!(error.plus(Nanos(u64::MAX)), ClockError::UNKNOWN);
    }
}
