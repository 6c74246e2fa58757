//! Units as types: spans and points of time, rates, proportions. Arithmetic saturates.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::{Deserialize, Serialize};

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// A span of zero.
    pub const ZERO: Self = Self(0);
    /// Longer than any admitted time.
    pub const MAX: Self = Self(u64::MAX);

    /// `n` microseconds.
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }
    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }
    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }
    /// The count of nanoseconds.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
    /// The span in seconds, for display.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// The span in milliseconds, for display.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// Number of whole or started spans of `unit`; `u64::MAX` when `unit` is zero.
    pub const fn div_ceil(self, unit: Self) -> u64 {
        if unit.0 == 0 { u64::MAX } else { self.0.div_ceil(unit.0) }
    }
    /// The difference, or `None` if it would be negative.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
impl Mul<u64> for Nanos {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}
impl Div<u64> for Nanos {
    type Output = Self;
    /// # Panics
    /// If `n` is zero.
    fn div(self, n: u64) -> Self {
        Self(self.0 / n)
    }
}
impl core::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, Add::add)
    }
}
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 10_000 => write!(f, "{n} ns"),
            n if n < 10_000_000 => write!(f, "{:.1} us", n as f64 / 1e3),
            n if n < 10_000_000_000 => write!(f, "{:.2} ms", n as f64 / 1e6),
            n => write!(f, "{:.2} s", n as f64 / 1e9),
        }
    }
}

impl Nanos {
    /// Display form of a lower limit: the printed value is never less than the exact one, so that a request
    /// for the printed value is sufficient.
    pub const fn at_least(self) -> Self {
        let unit = match self.0 {
            n if n < 10_000 => 1,
            n if n < 10_000_000 => 100,
            n if n < 10_000_000_000 => 10_000,
            _ => 10_000_000,
        };
        Self(self.0.div_ceil(unit).saturating_mul(unit))
    }
}

/// A point of time on one host's monotonic clock, in nanoseconds. Instants of two hosts are not comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(pub u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);

    /// The span since `earlier`, zero if `earlier` is in the future.
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
    /// This instant moved by a signed number of nanoseconds.
    pub const fn offset(self, by_ns: i64) -> Self {
        Self(self.0.saturating_add_signed(by_ns))
    }
    /// `self - other` in nanoseconds, negative if `other` is later; saturates.
    pub const fn minus(self, other: Self) -> i64 {
        let wide = self.0 as i128 - other.0 as i128;
        if wide > i64::MAX as i128 {
            i64::MAX
        } else if wide < i64::MIN as i128 {
            i64::MIN
        } else {
            wide as i64
        }
    }
}
impl Add<Nanos> for Instant {
    type Output = Self;
    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}
impl Sub<Nanos> for Instant {
    type Output = Self;
    fn sub(self, span: Nanos) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// A message rate, stored as the span I = 1/R between messages so that periods stay exact. At least 1 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate {
    interval_ns: u64,
}

impl Rate {
    /// `n` messages a second; `None` for zero or more than 10^9.
    pub const fn per_second(n: u64) -> Option<Self> {
        if n == 0 || n > 1_000_000_000 { None } else { Some(Self { interval_ns: 1_000_000_000 / n }) }
    }
    /// The rate of one message every `interval`; `None` for an interval of zero.
    pub const fn every(interval: Nanos) -> Option<Self> {
        if interval.0 == 0 { None } else { Some(Self { interval_ns: interval.0 }) }
    }
    /// I: the span between messages.
    pub const fn interval(self) -> Nanos {
        Nanos(self.interval_ns)
    }
    /// I' = I * (1 - 1/128): the span that policing and admission use.
    pub const fn policed_interval(self) -> Nanos {
        Nanos(self.interval_ns - self.interval_ns / 128)
    }
    /// Messages a second, for display.
    pub fn as_per_second_f64(self) -> f64 {
        1e9 / self.interval_ns as f64
    }
    /// Display form of the rate that never exceeds it, in the syntax of command lines: messages a second, or
    /// the time between two messages.
    pub const fn at_most(self) -> AtMost {
        AtMost(self)
    }
}

/// Display form of an upper limit ([`Rate::at_most`]).
#[derive(Clone, Copy, Debug)]
pub struct AtMost(Rate);

impl fmt::Display for AtMost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thousandths = 1_000_000_000_000 / self.0.interval_ns;
        match (thousandths / 1_000, thousandths % 1_000) {
            (0, _) => write!(f, "one every {}", self.0.interval().at_least()),
            (whole, 0) => write!(f, "{whole}/s"),
            (whole, rest) => write!(f, "{whole}.{rest:03}/s"),
        }
    }
}

/// A drain rate in bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct BitRate(pub u64);

impl BitRate {
    /// The time that `bytes` take, rounded up; saturates, `Nanos::MAX` at rate zero.
    pub const fn time_of(self, bytes: u64) -> Nanos {
        if self.0 == 0 {
            return Nanos::MAX;
        }
        let ns = (bytes as u128 * 8_000_000_000).div_ceil(self.0 as u128);
        if ns > u64::MAX as u128 { Nanos::MAX } else { Nanos(ns as u64) }
    }
    /// This rate less an error.
    pub const fn less(self, error: Ppm) -> Self {
        let kept = (1_000_000 - if error.0 > 1_000_000 { 1_000_000 } else { error.0 }) as u128;
        Self((self.0 as u128 * kept / 1_000_000) as u64)
    }
}

/// A proportion in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ppm(pub u32);

impl Ppm {
    /// The whole.
    pub const ONE: Self = Self(1_000_000);
    /// This proportion of a span, rounded up.
    pub const fn of(self, span: Nanos) -> Nanos {
        let ns = (span.0 as u128 * self.0 as u128).div_ceil(1_000_000);
        if ns > u64::MAX as u128 { Nanos::MAX } else { Nanos(ns as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_rate_is_messages_a_second() {
        let shown = |n| Rate::per_second(n).expect("a rate").as_per_second_f64();
        assert_eq!([1, 250, 1_000_000].map(shown), [1.0, 250.0, 1e6]);
    }

    #[test]
    fn what_is_printed_of_a_bound_is_never_less() {
        let printed = |ns: u64| Nanos(ns).at_least().to_string();
        assert_eq!(printed(27_224_900), "27.23 ms");
        assert_eq!((printed(27_220_000), printed(27_220_001)), ("27.22 ms".into(), "27.23 ms".into()));
        assert_eq!(
            (printed(9_999), printed(10_001), printed(9_999_901)),
            ("9999 ns".into(), "10.1 us".into(), "10.00 ms".into())
        );
        assert_eq!((printed(9_999_999_999), printed(10_000_000_001)), ("10.00 s".into(), "10.01 s".into()));
        for ns in (0..200_000_000_000).step_by(1_234_567).chain([u64::MAX, u64::MAX - 1]) {
            assert!(Nanos(ns).at_least() >= Nanos(ns), "{ns}");
        }
    }

    #[test]
    fn what_is_printed_of_a_rate_is_never_more() {
        let printed =
            |ns: u64| Rate::every(Nanos(ns)).map(|rate| rate.at_most().to_string()).unwrap_or_default();
        assert_eq!((printed(40_000_000), printed(33_366_700)), ("25/s".into(), "29.970/s".into()));
        assert_eq!(printed(33_366_701), "29.969/s", "a nanosecond more is less");
        assert_eq!((printed(105_000_003), printed(1_000_000_000)), ("9.523/s".into(), "1/s".into()));
        assert_eq!(
            (printed(1_000_000_001), printed(27_224_900_001)),
            ("one every 1000.01 ms".into(), "one every 27.23 s".into())
        );
    }
}
