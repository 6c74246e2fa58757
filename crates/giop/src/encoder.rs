//! Values to bytes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use zerocopy::IntoBytes;

use crate::long::{LONG_BYTES, Long, Sink};
use crate::{ByteOrder, CharacterSet, Error, MESSAGE_HEADER_BYTES, Version};

/// Bytes that grow.
#[derive(Clone, Debug)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// Bytes of long values, which are not among `bytes`.
    elsewhere: usize,
    long: Long,
    /// Where alignment counts from.
    base: usize,
    order: ByteOrder,
    version: Version,
    characters: CharacterSet,
}

impl Encoder {
    /// Begins at an offset that is aligned for everything.
    pub fn new(order: ByteOrder, version: Version) -> Self {
        Self::on(Vec::new(), order, version)
    }

    /// Appends to `bytes`, whose end is aligned for everything.
    pub fn on(bytes: Vec<u8>, order: ByteOrder, version: Version) -> Self {
        Self {
            base: bytes.len(),
            bytes,
            elsewhere: 0,
            long: Long::Copied,
            order,
            version,
            characters: CharacterSet::default(),
        }
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

    /// The version that it writes.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes behind the place where alignment counts from.
    pub fn offset(&self) -> usize {
        self.place() - self.base
    }

    /// The place of the next byte, for references between places.
    pub(crate) fn place(&self) -> usize {
        self.bytes.len() + self.elsewhere
    }

    /// All bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// All bytes so far. Without those of long values, if these are counted or sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of memory that its buffer has.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Forgets all bytes and keeps their memory. Alignment counts from the next byte.
    pub fn clear(&mut self) {
        self.truncate(0);
        self.begin();
    }

    /// Forgets the bytes from this place on, which is in front of all long values.
    pub(crate) fn truncate(&mut self, place: usize) {
        self.bytes.truncate(place);
        self.elsewhere = 0;
    }

    /// Alignment counts from the next byte.
    pub(crate) fn begin(&mut self) {
        self.base = self.place();
    }

    /// From here on, long values ([`LONG_BYTES`](crate::long::LONG_BYTES)) are not copied: their bytes are counted only.
    pub fn count_long(&mut self) {
        self.long = Long::Counted;
    }

    /// Bytes of long values that were counted or sent.
    pub fn long_bytes(&self) -> usize {
        self.elsewhere
    }

    /// Prepares for writing the present message, which was written to count its long values, once more: `sink` gets
    /// its bytes and the long values, in order, as they are written.
    pub fn send_long(&mut self, sink: Arc<dyn Sink>) {
        let header = self.bytes.first_chunk::<MESSAGE_HEADER_BYTES>().copied().unwrap_or_default();
        self.clear();
        self.long = Long::Sent { header, sent: 0, sink };
    }

    /// Gives what is behind the last long value to the sink. Long values are counted from here on.
    pub fn end_long(&mut self) {
        self.long.pass(&mut self.bytes, &[]);
        self.long = Long::Counted;
    }

    /// Writes with `write`, and copies long values: what is written is patched later, or is short.
    pub(crate) fn copying<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        let long = core::mem::replace(&mut self.long, Long::Copied);
        let written = write(self);
        self.long = long;
        written
    }

    /// Writes a number of 32 bits over the one at this place.
    pub(crate) fn patch(&mut self, place: usize, number: u32) {
        let number = match self.order {
            ByteOrder::Big => number.to_be_bytes(),
            ByteOrder::Little => number.to_le_bytes(),
        };
        self.bytes[place..place + 4].copy_from_slice(&number);
    }

    /// Writes zeros up to a multiple of `alignment` bytes, a power of two.
    pub fn align(&mut self, alignment: usize) {
        let padding = self.offset().wrapping_neg() & (alignment - 1);
        self.bytes.resize(self.bytes.len() + padding, 0);
    }

    /// Writes bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        if bytes.len() >= LONG_BYTES && self.long.pass(&mut self.bytes, bytes) {
            self.elsewhere += bytes.len();
            return;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes a length.
    ///
    /// # Errors
    /// [`Error::Length`] beyond 2^32 - 1.
    pub fn length(&mut self, length: usize) -> Result<(), Error> {
        let length = u32::try_from(length).map_err(|_| Error::Length(length as u64))?;
        self.numbers::<_, 4>(&[length]);
        Ok(())
    }

    /// Writes numbers of `SIZE` bytes, which are aligned by their size, whole.
    pub(crate) fn numbers<T: IntoBytes + zerocopy::Immutable, const SIZE: usize>(&mut self, numbers: &[T]) {
        if numbers.is_empty() {
            return;
        }
        self.align(SIZE);
        if SIZE == 1 || self.order == ByteOrder::NATIVE {
            return self.write(numbers.as_bytes());
        }
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(numbers.as_bytes());
        if SIZE > 1 {
            let (each, _) = self.bytes[begin..].as_chunks_mut::<SIZE>();
            each.iter_mut().for_each(|number| number.reverse());
        }
    }

    /// So many zeros to write into, and the `before` bytes in front of them.
    pub(crate) fn reserve(&mut self, before: usize, bytes: usize) -> &mut [u8] {
        let begin = self.bytes.len() - before;
        self.bytes.resize(begin + before + bytes, 0);
        &mut self.bytes[begin..]
    }

    /// Writes an encapsulation (CORBA 15.3.3): a sequence of bytes with an order and an alignment of its own.
    ///
    /// # Errors
    /// Those of `write`, and [`Error::Length`].
    pub fn encapsulation(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        self.length(0)?;
        let begin = self.bytes.len();
        self.bytes.push(self.order.flag());
        let outer = core::mem::replace(&mut self.base, begin + self.elsewhere);
        let written = self.copying(write);
        self.base = outer;
        let length = self.bytes.len() - begin;
        let length = u32::try_from(length).map_err(|_| Error::Length(length as u64))?;
        self.patch(begin - 4, length);
        written
    }
}
