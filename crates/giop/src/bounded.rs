//! Strings and sequences with a bound on their length.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Deref;

use crate::{Decode, Decoder, Encode, Encoder, Error, WString};

/// A value with a length: characters of a string, elements of a sequence.
pub trait Measure {
    /// The length.
    fn measure(&self) -> usize;
}

impl Measure for String {
    fn measure(&self) -> usize {
        self.chars().count()
    }
}

impl Measure for WString {
    fn measure(&self) -> usize {
        self.0.encode_utf16().count()
    }
}

impl<T> Measure for Vec<T> {
    fn measure(&self) -> usize {
        self.len()
    }
}

/// A `T` whose length is at most `MAX`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bounded<T, const MAX: u32>(T);

impl<T: Measure, const MAX: u32> Bounded<T, MAX> {
    /// This value.
    ///
    /// # Errors
    /// [`Error::Length`] if it is longer.
    pub fn new(value: T) -> Result<Self, Error> {
        let length = value.measure();
        if length > MAX as usize { Err(Error::Length(length as u64)) } else { Ok(Self(value)) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T, const MAX: u32> Deref for Bounded<T, MAX> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Encode, const MAX: u32> Encode for Bounded<T, MAX> {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        self.0.encode(to)
    }
}

impl<T: Decode + Measure, const MAX: u32> Decode for Bounded<T, MAX> {
    const BYTES_MIN: usize = T::BYTES_MIN;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        T::decode(from).and_then(Self::new)
    }
}
