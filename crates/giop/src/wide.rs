//! Wide characters and strings, in UTF-16 (CORBA 15.3.1.6 and 15.3.2.7).
//!
//! | GIOP | character | string |
//! |---|---|---|
//! | 1.0 | none | none |
//! | 1.1 | two bytes, aligned | length in characters with a final zero, then characters |
//! | 1.2 | length in bytes (one byte), bytes | length in bytes, bytes, no final zero |
//!
//! With GIOP 1.2 UTF-16 is big-endian unless a byte order mark says otherwise. Text that begins like a mark is written
//! behind one.

use alloc::string::String;
use alloc::vec::Vec;

use crate::{ByteOrder, Decode, Decoder, Encode, Encoder, Error, Version};

/// A `wchar`: a unit of UTF-16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WChar(pub u16);

/// A `wstring`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WString(pub String);

impl From<&str> for WString {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// Units from bytes, most significant first unless a mark says otherwise.
fn units(bytes: &[u8]) -> Result<Vec<u16>, Error> {
    let (order, bytes) = match bytes {
        [0xFE, 0xFF, rest @ ..] => (ByteOrder::Big, rest),
        [0xFF, 0xFE, rest @ ..] => (ByteOrder::Little, rest),
        all => (ByteOrder::Big, all),
    };
    let (units, []) = bytes.as_chunks::<2>() else { return Err(Error::Character) };
    let unit = |unit: &[u8; 2]| match order {
        ByteOrder::Big => u16::from_be_bytes(*unit),
        ByteOrder::Little => u16::from_le_bytes(*unit),
    };
    Ok(units.iter().map(unit).collect())
}

/// The mark that has to be in front of text that begins with this unit: else a reader takes the unit for a mark.
fn mark(first: Option<u16>) -> &'static [u8] {
    if matches!(first, Some(0xFEFF | 0xFFFE)) { &[0xFE, 0xFF] } else { &[] }
}

impl Encode for WChar {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        match to.version() {
            Version::V1_0 => return Err(Error::Version),
            Version::V1_1 => return self.0.encode(to),
            Version::V1_2 => {}
        }
        let mark = mark(Some(self.0));
        to.write(&[mark.len() as u8 + 2]);
        to.write(mark);
        to.write(&self.0.to_be_bytes());
        Ok(())
    }
}

impl Decode for WChar {
    const BYTES_MIN: usize = 2;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        match from.version() {
            Version::V1_0 => return Err(Error::Version),
            Version::V1_1 => return u16::decode(from).map(Self),
            Version::V1_2 => {}
        }
        let length = u8::decode(from)?;
        match *units(from.read(length.into())?)? {
            [unit] => Ok(Self(unit)),
            _ => Err(Error::Character),
        }
    }
}

impl Encode for WString {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        if self.0.contains('\0') {
            return Err(Error::Terminator);
        }
        let count = self.0.encode_utf16().count();
        match to.version() {
            Version::V1_0 => return Err(Error::Version),
            Version::V1_1 => {
                to.length(count + 1)?;
                return self.0.encode_utf16().chain([0]).try_for_each(|unit| unit.encode(to));
            }
            Version::V1_2 => {}
        }
        let mark = mark(self.0.encode_utf16().next());
        to.length(count.saturating_mul(2).saturating_add(mark.len()))?;
        to.write(mark);
        self.0.encode_utf16().for_each(|unit| to.write(&unit.to_be_bytes()));
        Ok(())
    }
}

impl Decode for WString {
    const BYTES_MIN: usize = 4;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let units = match from.version() {
            Version::V1_0 => return Err(Error::Version),
            Version::V1_1 => {
                let count = from.length(2)?;
                let mut units = u16::decode_vec(count, from)?;
                if count > 0 && units.pop() != Some(0) {
                    return Err(Error::Terminator);
                }
                units
            }
            Version::V1_2 => {
                let length = from.length(1)?;
                units(from.read(length)?)?
            }
        };
        if units.contains(&0) {
            return Err(Error::Terminator);
        }
        String::from_utf16(&units).map(Self).map_err(|_| Error::Character)
    }
}
