//! [`Encode`] and [`Decode`], and the types that CDR has.

use alloc::string::String;
use alloc::vec::Vec;

use crate::{CharacterSet, Decoder, Encoder, Error};

/// A value that has bytes.
pub trait Encode {
    /// Writes it.
    ///
    /// # Errors
    /// If the value has no bytes: a string with a zero byte, a length beyond 32 bits or beyond a bound.
    fn encode(&self, to: &mut Encoder) -> Result<(), Error>;

    /// Writes values one behind the other. Primitive types are copied whole.
    ///
    /// # Errors
    /// Those of [`Encode::encode`].
    fn encode_slice(all: &[Self], to: &mut Encoder) -> Result<(), Error>
    where
        Self: Sized,
    {
        all.iter().try_for_each(|one| one.encode(to))
    }
}

/// A value that bytes are made to.
pub trait Decode: Sized {
    /// The least number of bytes that a value has: a sequence is not longer than its bytes allow.
    const BYTES_MIN: usize;

    /// Reads one.
    ///
    /// # Errors
    /// If the bytes are no such value.
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error>;

    /// Reads so many values. Primitive types are copied whole.
    ///
    /// # Errors
    /// Those of [`Decode::decode`].
    fn decode_vec(count: usize, from: &mut Decoder<'_>) -> Result<Vec<Self>, Error> {
        from.deeper(|from| {
            // Values may be larger than their bytes: memory is taken as they come.
            let mut all = Vec::with_capacity(count.min(from.remaining() / size_of::<Self>().max(1)));
            for _ in 0..count {
                all.push(Self::decode(from)?);
            }
            Ok(all)
        })
    }
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Encode for $number {
            fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
                to.numbers::<_, { size_of::<Self>() }>(core::slice::from_ref(self));
                Ok(())
            }

            fn encode_slice(all: &[Self], to: &mut Encoder) -> Result<(), Error> {
                to.numbers::<_, { size_of::<Self>() }>(all);
                Ok(())
            }
        }

        impl Decode for $number {
            const BYTES_MIN: usize = size_of::<Self>();

            fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
                from.number().map(Self::from_le_bytes)
            }

            fn decode_vec(count: usize, from: &mut Decoder<'_>) -> Result<Vec<Self>, Error> {
                from.numbers::<_, { size_of::<Self>() }>(count)
            }
        }
    )* };
}

numbers!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);

/// A `long double`: the 16 bytes of an IEEE 754 binary128, least significant first. Rust has no such number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongDouble(pub [u8; 16]);

impl Encode for LongDouble {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        to.align(8);
        let mut bytes = self.0;
        if to.order() == crate::ByteOrder::Big {
            bytes.reverse();
        }
        to.write(&bytes);
        Ok(())
    }
}

impl Decode for LongDouble {
    const BYTES_MIN: usize = 16;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        from.align(8)?;
        let mut bytes = [0; 16];
        bytes.copy_from_slice(from.read(16)?);
        if from.order() == crate::ByteOrder::Big {
            bytes.reverse();
        }
        Ok(Self(bytes))
    }
}

impl Encode for bool {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        u8::from(*self).encode(to)
    }
}

impl Decode for bool {
    const BYTES_MIN: usize = 1;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        match u8::decode(from)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::Boolean(other)),
        }
    }
}

/// A `char` of IDL: one byte, in Latin-1.
impl Encode for char {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        u8::try_from(*self).map_err(|_| Error::Character)?.encode(to)
    }
}

impl Decode for char {
    const BYTES_MIN: usize = 1;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        u8::decode(from).map(Self::from)
    }
}

/// A string in the code set of the connection, with a zero byte at its end (CORBA 15.3.2.7).
impl Encode for str {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        if self.as_bytes().contains(&0) {
            return Err(Error::Terminator);
        }
        if to.characters() == CharacterSet::Latin1 && !self.is_ascii() {
            return write_latin1(self, to);
        }
        to.length(self.len() + 1)?;
        to.write(self.as_bytes());
        to.write(&[0]);
        Ok(())
    }
}

fn write_latin1(text: &str, to: &mut Encoder) -> Result<(), Error> {
    to.length(text.chars().count() + 1)?;
    text.chars().chain(['\0']).try_for_each(|c| c.encode(to))
}

impl Encode for String {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        self.as_str().encode(to)
    }
}

impl Decode for String {
    const BYTES_MIN: usize = 4;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let bytes = from.string()?;
        if from.characters() == CharacterSet::Latin1 {
            return Ok(bytes.iter().copied().map(char::from).collect());
        }
        core::str::from_utf8(bytes).map(Self::from).map_err(|_| Error::Character)
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        to.length(self.len())?;
        T::encode_slice(self, to)
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        self.as_slice().encode(to)
    }
}

impl<T: Decode> Decode for Vec<T> {
    const BYTES_MIN: usize = 4;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let count = from.length(T::BYTES_MIN.max(1))?;
        T::decode_vec(count, from)
    }
}

/// An array: its elements, without a length.
impl<T: Encode, const N: usize> Encode for [T; N] {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        T::encode_slice(self, to)
    }
}

impl<T: Decode, const N: usize> Decode for [T; N] {
    const BYTES_MIN: usize = N * T::BYTES_MIN;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        if from.remaining() < Self::BYTES_MIN {
            return Err(Error::Truncated);
        }
        T::decode_vec(N, from)?.try_into().map_err(|_| Error::Truncated)
    }
}
