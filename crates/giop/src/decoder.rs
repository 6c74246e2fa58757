//! Bytes to values.

use alloc::vec::Vec;

use zerocopy::{FromBytes, IntoBytes};

use crate::limits::DEPTH_MAX;
use crate::{ByteOrder, CharacterSet, Error, MESSAGE_HEADER_BYTES, Version};

/// Reads bytes of somebody else.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where alignment counts from.
    base: usize,
    /// Where the next fragment of 1.1 begins; the greatest number if there is none.
    next_break: usize,
    /// Where the fragments behind that one begin.
    breaks: &'a [usize],
    depth: usize,
    order: ByteOrder,
    version: Version,
    characters: CharacterSet,
}

impl<'a> Decoder<'a> {
    /// Reads `bytes`, whose begin is aligned for everything.
    pub fn new(bytes: &'a [u8], order: ByteOrder, version: Version) -> Self {
        Self {
            bytes,
            at: 0,
            base: 0,
            next_break: usize::MAX,
            breaks: &[],
            depth: 0,
            order,
            version,
            characters: CharacterSet::default(),
        }
    }

    /// The same bytes, which were joined of fragments that begin at these places. With 1.1, alignment counts anew in each of
    /// them, from the begin of its header (CORBA 15.4.9).
    pub(crate) fn with_breaks(mut self, breaks: &'a [usize]) -> Self {
        self.breaks = breaks;
        self.step_to_break();
        self
    }

    /// The next of the breaks is the first one that is left.
    fn step_to_break(&mut self) {
        match self.breaks.split_first() {
            Some((first, behind)) => (self.next_break, self.breaks) = (*first, behind),
            None => self.next_break = usize::MAX,
        }
    }

    /// Whether a fragment begins within the next `length` bytes.
    pub(crate) fn breaks_within(&self, length: usize) -> bool {
        self.next_break.saturating_sub(self.at) < length
    }

    /// Reads what is in an encapsulation, whose length was read before.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Boolean`].
    pub fn of_encapsulation(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut inner = Self::new(bytes, ByteOrder::Big, Version::V1_2);
        inner.read_order()?;
        Ok(inner)
    }

    /// Reads the order of what follows.
    fn read_order(&mut self) -> Result<(), Error> {
        self.order = match self.read(1)? {
            [0] => ByteOrder::Big,
            [1] => ByteOrder::Little,
            other => return Err(Error::Boolean(other[0])),
        };
        Ok(())
    }

    /// The order of its numbers.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// The code set of its strings: UTF-8 unless another one was set.
    pub fn characters(&self) -> CharacterSet {
        self.characters
    }

    /// Its strings are in this code set from here on.
    pub fn set_characters(&mut self, characters: CharacterSet) {
        self.characters = characters;
    }

    /// The version that it reads.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes that were read.
    pub fn offset(&self) -> usize {
        self.at - self.base
    }

    /// Bytes that are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Skips bytes up to a multiple of `alignment`, a power of two.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn align(&mut self, alignment: usize) -> Result<(), Error> {
        let padding = self.offset().wrapping_neg() & (alignment - 1);
        if self.at + padding >= self.next_break {
            return self.align_in_fragment(alignment);
        }
        self.read(padding).map(drop)
    }

    /// As [`Decoder::align`], where a fragment begins before that place: a value is never cut, so that the rest of the fragment
    /// before is padding.
    #[cold]
    fn align_in_fragment(&mut self, alignment: usize) -> Result<(), Error> {
        loop {
            while self.at >= self.next_break {
                self.base = self.next_break - MESSAGE_HEADER_BYTES;
                self.step_to_break();
            }
            let padding = self.offset().wrapping_neg() & (alignment - 1);
            if self.at + padding < self.next_break {
                return self.read(padding).map(drop);
            }
            self.at = self.next_break;
        }
    }

    /// So many bytes as they are.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn read(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let read = self.bytes[self.at..].get(..length).ok_or(Error::Truncated)?;
        self.at += length;
        Ok(read)
    }

    /// So many bytes, and the `before` bytes in front of them, which were read.
    pub(crate) fn read_behind(&mut self, before: usize, length: usize) -> Result<&'a [u8], Error> {
        let begin = self.at - before;
        self.read(length)?;
        Ok(&self.bytes[begin..self.at])
    }

    /// A length of elements that have at least `bytes_min` bytes each.
    ///
    /// # Errors
    /// [`Error::Length`] if so many cannot be there.
    pub fn length(&mut self, bytes_min: usize) -> Result<usize, Error> {
        let length = self.number().map(u32::from_le_bytes)?;
        let least = u64::from(length).saturating_mul(bytes_min as u64);
        if least > self.remaining() as u64 { Err(Error::Length(length.into())) } else { Ok(length as usize) }
    }

    /// As [`Decoder::length`], and at most `bound`.
    ///
    /// # Errors
    /// [`Error::Length`].
    pub fn bounded_length(&mut self, bytes_min: usize, bound: Option<u32>) -> Result<usize, Error> {
        let length = self.length(bytes_min)?;
        match bound {
            Some(bound) if length > bound as usize => Err(Error::Length(length as u64)),
            _ => Ok(length),
        }
    }

    /// A sequence of octets as it is.
    ///
    /// # Errors
    /// [`Error::Length`].
    pub fn octets(&mut self) -> Result<&'a [u8], Error> {
        let length = self.length(1)?;
        self.read(length)
    }

    /// The bytes of a string, without the zero byte at its end.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Terminator`].
    pub fn string(&mut self) -> Result<&'a [u8], Error> {
        let length = self.length(1)?;
        // The standard has no strings without their zero byte; some ORBs send them for empty ones.
        let Some(length) = length.checked_sub(1) else { return Ok(&[]) };
        let bytes = self.read(length)?;
        if self.read(1)? != [0] || bytes.contains(&0) {
            return Err(Error::Terminator);
        }
        Ok(bytes)
    }

    /// A string as it is: in UTF-8, or in ASCII whatever the code set.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Terminator`], [`Error::Character`].
    pub fn text(&mut self) -> Result<&'a str, Error> {
        let bytes = self.string()?;
        let is_one = self.characters == CharacterSet::Utf8 || bytes.is_ascii();
        core::str::from_utf8(bytes).ok().filter(|_| is_one).ok_or(Error::Character)
    }

    /// One number of `SIZE` bytes, least significant first.
    pub(crate) fn number<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], Error> {
        self.align(SIZE)?;
        let mut number = [0; SIZE];
        number.copy_from_slice(self.read(SIZE)?);
        if self.order == ByteOrder::Big {
            number.reverse();
        }
        Ok(number)
    }

    /// Numbers of `SIZE` bytes, whole.
    pub(crate) fn numbers<T, const SIZE: usize>(&mut self, count: usize) -> Result<Vec<T>, Error>
    where
        T: FromBytes + IntoBytes + Clone,
    {
        if count == 0 {
            return Ok(Vec::new());
        }
        self.align(SIZE)?;
        let length = count.checked_mul(SIZE).ok_or(Error::Truncated)?;
        let bytes = self.read(length)?;
        let mut numbers = alloc::vec![T::new_zeroed(); count];
        numbers.as_mut_bytes().copy_from_slice(bytes);
        if SIZE > 1 && self.order != ByteOrder::NATIVE {
            let (each, _) = numbers.as_mut_bytes().as_chunks_mut::<SIZE>();
            each.iter_mut().for_each(|number| number.reverse());
        }
        Ok(numbers)
    }

    /// Reads with `read` one level deeper.
    ///
    /// # Errors
    /// [`Error::Depth`], and those of `read`.
    pub fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= DEPTH_MAX {
            return Err(Error::Depth);
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Reads an encapsulation (CORBA 15.3.3).
    ///
    /// # Errors
    /// Those of `read`, and [`Error::Length`].
    pub fn encapsulation<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let length = self.length(1)?;
        let mut inner = self.clone();
        inner.bytes = &self.bytes[..self.at + length];
        inner.base = self.at;
        // It is a sequence of bytes, which fragments do not align.
        (inner.next_break, inner.breaks) = (usize::MAX, &[]);
        self.at += length;
        inner.read_order()?;
        inner.deeper(read)
    }

    /// The same bytes, to read again from an earlier place.
    ///
    /// # Errors
    /// [`Error::TypeCode`] if the place is not before this one.
    pub(crate) fn back_to(&self, at: usize) -> Result<Self, Error> {
        if at >= self.at { Err(Error::TypeCode) } else { Ok(Self { at, ..self.clone() }) }
    }

    /// The same place in a copy of the bytes.
    pub(crate) fn over<'b>(&self, bytes: &'b [u8], breaks: &'b [usize]) -> Decoder<'b> {
        let Self { at, base, next_break, depth, order, version, characters, .. } = *self;
        Decoder { bytes, at, base, next_break, breaks, depth, order, version, characters }
    }

    /// All bytes, those that were read too, and where fragments behind the next one begin.
    pub(crate) fn parts(&self) -> (&'a [u8], &'a [usize]) {
        (self.bytes, self.breaks)
    }

    /// The present place, for [`Decoder::back_to`].
    pub(crate) fn place(&self) -> usize {
        self.at
    }
}
