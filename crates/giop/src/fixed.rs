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

impl<const DIGITS: u16, const SCALE: i16> Encode for Fixed<DIGITS, SCALE> {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        let mut packed = [0u8; FIXED_DIGITS_MAX as usize / 2 + 1];
        let packed = &mut packed[..bytes(DIGITS)];
        let mut rest = self.0.unsigned_abs();
        let mut half = if self.0 < 0 { 0xD } else { 0xC };
        for byte in packed.iter_mut().rev() {
            *byte = half | ((rest % 10) as u8) << 4;
            rest /= 10;
            half = (rest % 10) as u8;
            rest /= 10;
        }
        to.write(packed);
        Ok(())
    }
}

impl<const DIGITS: u16, const SCALE: i16> Decode for Fixed<DIGITS, SCALE> {
    const BYTES_MIN: usize = DIGITS as usize / 2 + 1;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let packed = from.read(bytes(DIGITS))?;
        let halves = packed.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let count = 2 * packed.len();
        let mut unscaled = 0i128;
        for half in halves.clone().take(count - 1) {
            if half > 9 {
                return Err(Error::Fixed);
            }
            unscaled = unscaled * 10 + i128::from(half);
        }
        match halves.last() {
            Some(0xC) => Self::new(unscaled),
            Some(0xD) => Self::new(-unscaled),
            _ => Err(Error::Fixed),
        }
    }
}
