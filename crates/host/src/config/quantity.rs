//! Quantities as people write them: "10ms", "64KiB", "40Mbit/s", "2%". A number without a unit is an error where
//! units could be mixed up.

use std::fmt;
use std::marker::PhantomData;

use punctual_proto::{BitRate, Nanos, Ppm};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use thiserror::Error;

/// Text that is not the quantity that was expected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no {what}: write it like {example}")]
pub struct QuantityError {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// A quantity with its units.
pub trait Quantity: Sized {
    /// Name of the quantity in errors.
    const WHAT: &'static str;
    /// Example that shows how to write the quantity.
    const EXAMPLE: &'static str;
    /// Units, with their factors to the smallest one; longer names come before names that are their endings.
    const UNITS: &'static [(&'static str, u64)];

    /// Makes the quantity from a count of the smallest unit; `None` if that is out of range.
    fn from_smallest(count: u64) -> Option<Self>;

    /// Reads a decimal number, its unit behind it, blanks between them allowed. A rest below the smallest unit is
    /// cut off.
    ///
    /// # Errors
    /// If it is something else, or out of range.
    fn parse(text: &str) -> Result<Self, QuantityError> {
        let trimmed = text.trim();
        Self::UNITS
            .iter()
            .find_map(|(unit, factor)| trimmed.strip_suffix(unit).map(|number| (number.trim_end(), *factor)))
            .and_then(|(number, factor)| scaled(number, factor))
            .and_then(Self::from_smallest)
            .ok_or_else(|| QuantityError { text: text.into(), what: Self::WHAT, example: Self::EXAMPLE })
    }
}

/// `number * factor` for a decimal number such as `1.25`, exactly.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 18 {
        return None;
    }
    if number.ends_with('.') {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    let part = if fraction.is_empty() {
        0
    } else {
        u128::from(fraction.parse::<u64>().ok()?) * u128::from(factor) / 10u128.pow(fraction.len() as u32)
    };
    whole.checked_add(u64::try_from(part).ok()?)
}

impl Quantity for Nanos {
    const WHAT: &'static str = "time";
    const EXAMPLE: &'static str = "\"10ms\" (ns, us, ms, s, min, h)";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("min", 60_000_000_000),
        ("s", 1_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    fn from_smallest(count: u64) -> Option<Self> {
        Some(Self(count))
    }
}

impl Quantity for BitRate {
    const WHAT: &'static str = "rate";
    const EXAMPLE: &'static str = "\"40Mbit/s\" (bit/s, kbit/s, Mbit/s, Gbit/s)";
    const UNITS: &'static [(&'static str, u64)] =
        &[("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)];
    fn from_smallest(count: u64) -> Option<Self> {
        (count > 0).then_some(Self(count))
    }
}

/// A configured rate, or one that is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateOrAuto {
    /// The rate that is written down.
    Rate(BitRate),
    /// The rate is measured once the neighbour is there.
    Auto,
}

impl Quantity for RateOrAuto {
    const WHAT: &'static str = "rate";
    const EXAMPLE: &'static str = "\"40Mbit/s\" (bit/s, kbit/s, Mbit/s, Gbit/s), or \"auto\"";
    const UNITS: &'static [(&'static str, u64)] = BitRate::UNITS;
    fn from_smallest(count: u64) -> Option<Self> {
        BitRate::from_smallest(count).map(Self::Rate)
    }
    fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.trim() == "auto" {
            return Ok(Self::Auto);
        }
        let wrong = |error| QuantityError { what: Self::WHAT, example: Self::EXAMPLE, ..error };
        BitRate::parse(text).map(Self::Rate).map_err(wrong)
    }
}

impl Quantity for Ppm {
    const WHAT: &'static str = "proportion";
    const EXAMPLE: &'static str = "\"2%\" or \"100ppm\", at most 100%";
    const UNITS: &'static [(&'static str, u64)] = &[("ppm", 1), ("%", 10_000)];
    fn from_smallest(count: u64) -> Option<Self> {
        u32::try_from(count).ok().map(Self).filter(|proportion| *proportion <= Self::ONE)
    }
}

/// A rate, or a proportion of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateOrShare {
    /// The rate itself.
    Rate(BitRate),
    /// The rate as a proportion of the other rate.
    Share(Ppm),
}

impl RateOrShare {
    /// The rate, where `whole` is the rate that a proportion refers to.
    pub fn of(self, whole: BitRate) -> BitRate {
        match self {
            Self::Rate(rate) => rate,
            Self::Share(Ppm(ppm)) => BitRate((u128::from(whole.0) * u128::from(ppm) / 1_000_000) as u64),
        }
    }
}

impl Quantity for RateOrShare {
    const WHAT: &'static str = "rate or proportion";
    const EXAMPLE: &'static str = "\"10%\" or \"10Mbit/s\"";
    const UNITS: &'static [(&'static str, u64)] = &[];
    fn from_smallest(_: u64) -> Option<Self> {
        None
    }
    fn parse(text: &str) -> Result<Self, QuantityError> {
        let rate = BitRate::parse(text).map(Self::Rate);
        rate.or_else(|_| Ppm::parse(text).map(Self::Share)).map_err(|error| QuantityError {
            what: Self::WHAT,
            example: Self::EXAMPLE,
            ..error
        })
    }
}

/// How long to poll before sleeping: a time, or always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin(pub Nanos);

impl Quantity for Spin {
    const WHAT: &'static str = "time to spin";
    const EXAMPLE: &'static str = "\"20us\" or \"always\"";
    const UNITS: &'static [(&'static str, u64)] = Nanos::UNITS;
    fn from_smallest(count: u64) -> Option<Self> {
        Some(Self(Nanos(count)))
    }
    fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.trim() == "always" {
            return Ok(Self(Nanos::MAX));
        }
        let wrong = |error| QuantityError { what: Self::WHAT, example: Self::EXAMPLE, ..error };
        Nanos::parse(text).map(Self).map_err(wrong)
    }
}

/// A count of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Quantity for Bytes {
    const WHAT: &'static str = "size";
    const EXAMPLE: &'static str = "\"64KiB\" (B, kB, KB, MB, GB, KiB, MiB, GiB)";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    fn from_smallest(count: u64) -> Option<Self> {
        Some(Self(count))
    }
}

/// A quantity in a configuration file: a string with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<Q>(pub Q);

impl<'de, Q: Quantity> Deserialize<'de> for Text<Q> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<Q>(PhantomData<Q>);
        impl<Q: Quantity> Visitor<'_> for Reader<Q> {
            type Value = Q;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a {} with its unit like {}", Q::WHAT, Q::EXAMPLE)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Q, E> {
                Q::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Reader(PhantomData)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_exact() {
        assert_eq!(Nanos::parse("1.5ms"), Ok(Nanos(1_500_000)));
        assert_eq!(Nanos::parse("200 us"), Ok(Nanos(200_000)));
        assert_eq!(Nanos::parse("2min"), Ok(Nanos::from_secs(120)));
        assert_eq!(Nanos::parse("20s"), Ok(Nanos::from_secs(20)));
        assert_eq!(Nanos::parse("7ns"), Ok(Nanos(7)));
        assert_eq!(BitRate::parse("40Mbit/s"), Ok(BitRate(40_000_000)));
        assert_eq!(BitRate::parse("2.5Gbit/s"), Ok(BitRate(2_500_000_000)));
        assert_eq!(Ppm::parse("2%"), Ok(Ppm(20_000)));
        assert_eq!(Ppm::parse("0.01%"), Ok(Ppm(100)));
        let whole = BitRate(40_000_000);
        assert_eq!(RateOrShare::parse("10%").map(|share| share.of(whole)), Ok(BitRate(4_000_000)));
        assert_eq!(RateOrShare::parse("3Mbit/s").map(|rate| rate.of(whole)), Ok(BitRate(3_000_000)));
        assert_eq!(Bytes::parse("64KiB"), Ok(Bytes(65_536)));
        assert_eq!(Bytes::parse("110KB"), Ok(Bytes(110_000)));
        assert_eq!(Bytes::parse("1400B"), Ok(Bytes(1_400)));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "ms", "-1ms", "1e3ms", "10", "1.ms", "ten ms", "10 parsecs", "99999999999h", ".5s"] {
            let error = Nanos::parse(text).expect_err(text).to_string();
            assert!(error.contains("10ms") && error.contains(text), "{error}");
        }
        assert!(BitRate::parse("0Mbit/s").is_err());
        assert!(Ppm::parse("101%").is_err());
        let error = RateOrShare::parse("10").expect_err("no unit").to_string();
        assert!(error.contains("10Mbit/s") && error.contains("10%"), "{error}");
        assert!(Bytes::parse("99999999999GiB").is_err());
    }
}
