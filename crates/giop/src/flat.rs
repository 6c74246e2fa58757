//! Types whose values always have the same parts: numbers, enumerations, arrays and structures of these.
//!
//! How many bytes such a value has depends only on where it begins, because of the padding in it. So a whole
//! value is written or read with one check of the bounds, and a sequence of values with one reservation. Where
//! a value begins at a multiple of its alignment, in the order of this machine, all places are constants. They
//! also are in a sequence, behind its first value.

#[doc(hidden)]
pub use alloc::vec::Vec;

use crate::value::LongDouble;
use crate::{ByteOrder, Decoder, Encoder, Error};

/// The greatest alignment in CDR.
const ALIGNMENT_MAX: usize = 8;

/// Where the parts of a value are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The alignment of the first part.
    first: usize,
    /// The greatest alignment of a part.
    alignment: usize,
    /// The end of a value that begins at each offset.
    ends: [usize; ALIGNMENT_MAX],
}

impl Layout {
    /// The layout of a part with so many bytes and this alignment.
    pub const fn part(bytes: usize, alignment: usize) -> Self {
        let mut ends = [0; ALIGNMENT_MAX];
        let mut begin = 0;
        while begin < ALIGNMENT_MAX {
            ends[begin] = begin.next_multiple_of(alignment) + bytes;
            begin += 1;
        }
        Self { first: alignment, alignment, ends }
    }

    /// The layout of parts one behind the other.
    pub const fn of(parts: &[Self]) -> Self {
        let mut all = Self::part(0, 1);
        let mut part = 0;
        while part < parts.len() {
            all = if part == 0 { parts[0] } else { all.then(parts[part]) };
            part += 1;
        }
        all
    }

    /// The layout of so many values with this one, one behind the other.
    pub const fn repeated(self, count: usize) -> Self {
        let mut all = self;
        let mut number = 1;
        while number < count {
            all = all.then(self);
            number += 1;
        }
        all
    }

    const fn then(self, next: Self) -> Self {
        let mut all = self;
        if next.alignment > all.alignment {
            all.alignment = next.alignment;
        }
        let mut begin = 0;
        while begin < ALIGNMENT_MAX {
            let end = self.ends[begin];
            let at = end % ALIGNMENT_MAX;
            all.ends[begin] = end - at + next.ends[at];
            begin += 1;
        }
        all
    }

    /// The least number of bytes, wherever a value begins.
    pub const fn bytes_min(&self) -> usize {
        let mut least = usize::MAX;
        let mut begin = 0;
        while begin < ALIGNMENT_MAX {
            let bytes = self.ends[begin] - begin;
            least = if bytes < least { bytes } else { least };
            begin += 1;
        }
        least
    }

    /// The greatest number of bytes, padding in front of a value included.
    const fn bytes_max(&self) -> usize {
        let mut most = 0;
        let mut begin = 0;
        while begin < ALIGNMENT_MAX {
            let bytes = self.ends[begin] - begin;
            most = if bytes > most { bytes } else { most };
            begin += 1;
        }
        most
    }

    /// Where values behind the first of a sequence begin, behind a multiple of the alignment. It is the same for
    /// all of them: the places behind a part with the greatest alignment do not depend on those before it.
    const fn phase(&self) -> usize {
        let phase = self.ends[0].next_multiple_of(self.first) % self.alignment;
        let mut begin = 0;
        while begin < self.alignment {
            assert!(self.ends[begin].next_multiple_of(self.first) % self.alignment == phase);
            begin += self.first;
        }
        phase
    }

    /// The distance of values that begin at the [phase](Self::phase).
    const fn stride(&self) -> usize {
        let phase = self.phase();
        self.ends[phase].next_multiple_of(self.first) - phase
    }
}

/// A value whose number of bytes depends only on where it begins.
pub trait Flat: Copy {
    /// Where its parts are.
    const LAYOUT: Layout;

    /// Writes it.
    ///
    /// # Errors
    /// If it has no bytes: a character that is not in Latin-1.
    fn put(&self, to: &mut Writer<'_>) -> Result<(), Error>;

    /// Reads one.
    ///
    /// # Errors
    /// If the bytes are no such value.
    fn take(from: &mut Reader<'_>) -> Result<Self, Error>;
}

/// Room for one value. Writing beyond it is a mistake of a [`Flat::LAYOUT`], and panics.
#[derive(Debug)]
pub struct Writer<'a> {
    /// Zeros; the begin is aligned for everything.
    bytes: &'a mut [u8],
    at: usize,
    swap: bool,
}

impl Writer<'_> {
    /// Writes bytes of a number, in the order of this machine.
    #[inline(always)]
    fn number<const SIZE: usize>(&mut self, alignment: usize, mut number: [u8; SIZE]) {
        if self.swap {
            number.reverse();
        }
        let at = self.at.next_multiple_of(alignment);
        self.bytes[at..at + SIZE].copy_from_slice(&number);
        self.at = at + SIZE;
    }
}

/// The bytes of one value. Reading beyond them is a mistake of a [`Flat::LAYOUT`], and panics.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The begin is aligned for everything.
    bytes: &'a [u8],
    at: usize,
    swap: bool,
    broken: Option<Broken<'a>>,
}

/// A value in which a fragment of 1.1 begins: its parts are where that fragment's alignment has them.
#[derive(Debug)]
struct Broken<'a> {
    from: Decoder<'a>,
    error: Option<Error>,
}

impl Broken<'_> {
    #[cold]
    fn number<const SIZE: usize>(&mut self, alignment: usize) -> [u8; SIZE] {
        let mut number = [0; SIZE];
        match self.from.align(alignment).and_then(|()| self.from.read(SIZE)) {
            Ok(bytes) => number.copy_from_slice(bytes),
            Err(error) => self.error = Some(error),
        }
        if self.from.order() != ByteOrder::NATIVE {
            number.reverse();
        }
        number
    }
}

impl Reader<'_> {
    /// Bytes of a number, in the order of this machine.
    #[inline(always)]
    fn number<const SIZE: usize>(&mut self, alignment: usize) -> [u8; SIZE] {
        if let Some(broken) = &mut self.broken {
            return broken.number(alignment);
        }
        let at = self.at.next_multiple_of(alignment);
        let mut number = [0; SIZE];
        number.copy_from_slice(&self.bytes[at..at + SIZE]);
        self.at = at + SIZE;
        if self.swap {
            number.reverse();
        }
        number
    }
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Flat for $number {
            const LAYOUT: Layout = Layout::part(size_of::<Self>(), size_of::<Self>());

            #[inline(always)]
            fn put(&self, to: &mut Writer<'_>) -> Result<(), Error> {
                to.number(size_of::<Self>(), self.to_ne_bytes());
                Ok(())
            }

            #[inline(always)]
            fn take(from: &mut Reader<'_>) -> Result<Self, Error> {
                Ok(Self::from_ne_bytes(from.number(size_of::<Self>())))
            }
        }
    )* };
}

numbers!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);

impl Flat for LongDouble {
    const LAYOUT: Layout = Layout::part(16, 8);

    #[inline(always)]
    fn put(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let mut number = self.0;
        if ByteOrder::NATIVE == ByteOrder::Big {
            number.reverse();
        }
        to.number(8, number);
        Ok(())
    }

    #[inline(always)]
    fn take(from: &mut Reader<'_>) -> Result<Self, Error> {
        let mut number = from.number(8);
        if ByteOrder::NATIVE == ByteOrder::Big {
            number.reverse();
        }
        Ok(Self(number))
    }
}

impl Flat for bool {
    const LAYOUT: Layout = Layout::part(1, 1);

    #[inline(always)]
    fn put(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        u8::from(*self).put(to)
    }

    #[inline(always)]
    fn take(from: &mut Reader<'_>) -> Result<Self, Error> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::Boolean(other)),
        }
    }
}

impl Flat for char {
    const LAYOUT: Layout = Layout::part(1, 1);

    #[inline(always)]
    fn put(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        u8::try_from(*self).map_err(|_| Error::Character)?.put(to)
    }

    #[inline(always)]
    fn take(from: &mut Reader<'_>) -> Result<Self, Error> {
        u8::take(from).map(Self::from)
    }
}

/// Arrays of IDL have at least one element.
impl<T: Flat, const N: usize> Flat for [T; N] {
    const LAYOUT: Layout = {
        assert!(N > 0, "arrays of IDL have at least one element");
        T::LAYOUT.repeated(N)
    };

    #[inline(always)]
    fn put(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        self.iter().try_for_each(|one| one.put(to))
    }

    #[inline(always)]
    fn take(from: &mut Reader<'_>) -> Result<Self, Error> {
        let mut all = [T::take(from)?; N];
        for one in &mut all[1..] {
            *one = T::take(from)?;
        }
        Ok(all)
    }
}

impl Encoder {
    /// Writes a flat value.
    ///
    /// # Errors
    /// Those of [`Flat::put`].
    #[inline]
    pub fn flat<T: Flat>(&mut self, value: &T) -> Result<(), Error> {
        let layout = const { T::LAYOUT };
        self.align(layout.first);
        let at = self.offset() & (layout.alignment - 1);
        if at == 0 && self.order() == ByteOrder::NATIVE {
            return value.put(&mut Writer { bytes: self.reserve(0, layout.ends[0]), at: 0, swap: false });
        }
        let swap = self.order() != ByteOrder::NATIVE;
        put_anywhere(value, &mut Writer { bytes: self.reserve(at, layout.ends[at] - at), at, swap })
    }

    /// Writes flat values, one behind the other.
    ///
    /// # Errors
    /// Those of [`Flat::put`].
    #[inline]
    pub fn flats<T: Flat>(&mut self, values: &[T]) -> Result<(), Error> {
        let Some((first, others)) = values.split_first() else { return Ok(()) };
        self.flat(first)?;
        match self.order() == ByteOrder::NATIVE {
            true => self.behind_first::<T, false>(others),
            false => self.behind_first::<T, true>(others),
        }
    }

    /// Writes the values of a sequence behind its first one: all places are constants.
    #[inline]
    fn behind_first<T: Flat, const SWAP: bool>(&mut self, values: &[T]) -> Result<(), Error> {
        let (phase, stride, end) =
            const { (T::LAYOUT.phase(), T::LAYOUT.stride(), T::LAYOUT.ends[T::LAYOUT.phase()]) };
        let Some(others) = values.len().checked_sub(1) else { return Ok(()) };
        self.align(const { T::LAYOUT.first });
        let room = self.reserve(phase, others * stride + end - phase);
        for (number, value) in values.iter().enumerate() {
            let bytes = &mut room[number * stride..][..end];
            value.put(&mut Writer { bytes, at: phase, swap: SWAP })?;
        }
        Ok(())
    }
}

impl<'a> Decoder<'a> {
    /// Reads a flat value.
    ///
    /// # Errors
    /// [`Error::Truncated`], and those of [`Flat::take`].
    #[inline]
    pub fn flat<T: Flat>(&mut self) -> Result<T, Error> {
        let layout = const { T::LAYOUT };
        self.align(layout.first)?;
        let at = self.offset() & (layout.alignment - 1);
        if self.breaks_within(const { T::LAYOUT.bytes_max() }) {
            return self.flat_in_fragments();
        }
        if at == 0 && self.order() == ByteOrder::NATIVE {
            return T::take(&mut Reader {
                bytes: self.read(layout.ends[0])?,
                at: 0,
                swap: false,
                broken: None,
            });
        }
        let swap = self.order() != ByteOrder::NATIVE;
        let bytes = self.read_behind(at, layout.ends[at] - at)?;
        take_anywhere(&mut Reader { bytes, at, swap, broken: None })
    }

    /// Reads a value in which a fragment begins.
    #[cold]
    fn flat_in_fragments<T: Flat>(&mut self) -> Result<T, Error> {
        let broken = Some(Broken { from: self.clone(), error: None });
        let mut reader = Reader { bytes: &[], at: 0, swap: false, broken };
        let taken = T::take(&mut reader);
        match reader.broken {
            Some(Broken { error: Some(error), .. }) => Err(error),
            Some(Broken { from, error: None }) => {
                *self = from;
                taken
            }
            None => taken,
        }
    }

    /// Reads so many flat values. Memory is taken after their bytes were seen.
    ///
    /// # Errors
    /// [`Error::Truncated`], and those of [`Flat::take`].
    #[inline]
    pub fn flats<T: Flat>(&mut self, count: usize) -> Result<Vec<T>, Error> {
        let layout = const { T::LAYOUT };
        let Some(others) = count.checked_sub(1) else { return Ok(Vec::new()) };
        self.align(layout.first)?;
        let least = layout.bytes_min();
        if count.checked_mul(least).is_none_or(|least| least > self.remaining()) {
            return Err(Error::Truncated);
        }
        let mut all = Vec::with_capacity(count);
        all.push(self.flat()?);
        if self.breaks_within(count.saturating_mul(layout.bytes_max())) {
            for _ in 0..others {
                all.push(self.flat()?);
            }
            return Ok(all);
        }
        match self.order() == ByteOrder::NATIVE {
            true => self.behind_first::<T, false>(others, &mut all)?,
            false => self.behind_first::<T, true>(others, &mut all)?,
        }
        Ok(all)
    }

    /// Reads the values of a sequence behind its first one: all places are constants.
    #[inline]
    fn behind_first<T: Flat, const SWAP: bool>(
        &mut self,
        count: usize,
        all: &mut Vec<T>,
    ) -> Result<(), Error> {
        let (phase, stride, end) =
            const { (T::LAYOUT.phase(), T::LAYOUT.stride(), T::LAYOUT.ends[T::LAYOUT.phase()]) };
        let Some(others) = count.checked_sub(1) else { return Ok(()) };
        self.align(const { T::LAYOUT.first })?;
        let length = others.checked_mul(stride).and_then(|bytes| bytes.checked_add(end - phase));
        let bytes = self.read_behind(phase, length.ok_or(Error::Truncated)?)?;
        for number in 0..count {
            let bytes = &bytes[number * stride..][..end];
            all.push(T::take(&mut Reader { bytes, at: phase, swap: SWAP, broken: None })?);
        }
        Ok(())
    }
}

/// [`Encode`](crate::Encode) and [`Decode`](crate::Decode) for a [`Flat`] type.
#[macro_export]
macro_rules! flat {
    ($name:ty) => {
        impl $crate::Encode for $name {
            #[inline]
            fn encode(&self, to: &mut $crate::Encoder) -> Result<(), $crate::Error> {
                to.flat(self)
            }

            #[inline]
            fn encode_slice(all: &[Self], to: &mut $crate::Encoder) -> Result<(), $crate::Error> {
                to.flats(all)
            }
        }

        impl $crate::Decode for $name {
            const BYTES_MIN: usize = <Self as $crate::Flat>::LAYOUT.bytes_min();

            #[inline]
            fn decode(from: &mut $crate::Decoder<'_>) -> Result<Self, $crate::Error> {
                from.flat()
            }

            #[inline]
            fn decode_vec(
                count: usize,
                from: &mut $crate::Decoder<'_>,
            ) -> Result<$crate::flat::Vec<Self>, $crate::Error> {
                from.flats(count)
            }
        }
    };
}

/// Writes with computed places.
#[inline(never)]
fn put_anywhere<T: Flat>(value: &T, to: &mut Writer<'_>) -> Result<(), Error> {
    value.put(to)
}

/// Reads with computed places.
#[inline(never)]
fn take_anywhere<T: Flat>(from: &mut Reader<'_>) -> Result<T, Error> {
    T::take(from)
}
