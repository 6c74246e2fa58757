//! Fixed-point numbers: packed decimal digits, the sign in the last half byte (CORBA 15.3.2.8).

use core::fmt;

use crate::limits::FIXED_DIGITS_MAX;
use crate::{Decode, Decoder, Encode, Encoder, Error};

/// A `fixed<DIGITS, SCALE>`: `unscaled / 10^SCALE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fixed<const DIGITS: u16, const SCALE: i16>(i128);

impl<const DIGITS: u16, const SCALE: i16> Fixed<DIGITS, SCALE> {
    const OK: () = assert!(DIGITS > 0 && DIGITS <= FIXED_DIGITS_MAX && SCALE >= 0 && SCALE as u16 <= DIGITS);

    /// The number `unscaled / 10^SCALE`.
    ///
    /// # Errors
    /// [`Error::Fixed`] if it has too many digits.
    pub fn new(unscaled: i128) -> Result<Self, Error> {
        const { Self::OK };
        let is_in = unscaled.unsigned_abs() < 10u128.pow(DIGITS.into());
        is_in.then_some(Self(unscaled)).ok_or(Error::Fixed)
    }

    /// All its digits as an integer.
    pub fn unscaled(self) -> i128 {
        self.0
    }
}

impl<const DIGITS: u16, const SCALE: i16> fmt::Display for Fixed<DIGITS, SCALE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = 10u128.pow(SCALE.unsigned_abs().into());
        let (whole, rest) = (self.0.unsigned_abs() / power, self.0.unsigned_abs() % power);
        let sign = if self.0 < 0 { "-" } else { "" };
        match SCALE {
            0 => write!(f, "{sign}{whole}"),
            scale => write!(f, "{sign}{whole}.{rest:0width$}", width = scale.unsigned_abs().into()),
        }
    }
}

/// Bytes of a number with so many digits.
pub(crate) fn bytes(digits: u16) -> usize {
    usize::from(digits) / 2 + 1
}

/// Writes a number with so many digits, at most [`FIXED_DIGITS_MAX`].
///
/// # Errors
/// [`Error::Fixed`] if it has more.
pub fn write(unscaled: i128, digits: u16, to: &mut Encoder) -> Result<(), Error> {
    if digits > FIXED_DIGITS_MAX || unscaled.unsigned_abs() >= 10u128.pow(digits.into()) {
        return Err(Error::Fixed);
    }
    let mut packed = [0u8; FIXED_DIGITS_MAX as usize / 2 + 1];
    let packed = &mut packed[..bytes(digits)];
    let mut rest = unscaled.unsigned_abs();
    let mut half = if unscaled < 0 { 0xD } else { 0xC };
    for byte in packed.iter_mut().rev() {
        *byte = half | ((rest % 10) as u8) << 4;
        rest /= 10;
        half = (rest % 10) as u8;
        rest /= 10;
    }
    to.write(packed);
    Ok(())
}

/// Reads a number with so many digits, at most [`FIXED_DIGITS_MAX`]: all its digits as an integer.
///
/// # Errors
/// [`Error::Fixed`], [`Error::Truncated`].
pub fn read(digits: u16, from: &mut Decoder<'_>) -> Result<i128, Error> {
    if digits > FIXED_DIGITS_MAX {
        return Err(Error::Fixed);
    }
    let packed = from.read(bytes(digits))?;
    let halves = packed.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let count = 2 * packed.len();
    let mut unscaled = 0i128;
    for half in halves.clone().take(count - 1) {
        if half > 9 {
            return Err(Error::Fixed);
        }
        unscaled = unscaled * 10 + i128::from(half);
    }
    if unscaled >= 10i128.pow(digits.into()) {
        return Err(Error::Fixed);
    }
    match halves.last() {
        Some(0xC) => Ok(unscaled),
        Some(0xD) => Ok(-unscaled),
        _ => Err(Error::Fixed),
    }
}

impl<const DIGITS: u16, const SCALE: i16> Encode for Fixed<DIGITS, SCALE> {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        write(self.0, DIGITS, to)
    }
}

impl<const DIGITS: u16, const SCALE: i16> Decode for Fixed<DIGITS, SCALE> {
    const BYTES_MIN: usize = DIGITS as usize / 2 + 1;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        read(DIGITS, from).and_then(Self::new)
    }
}
