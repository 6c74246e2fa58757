//! The bytes of whole messages, which may have been joined of fragments.

use alloc::vec::Vec;

/// A message that was joined of fragments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    bytes: Vec<u8>,
    breaks: Vec<usize>,
}

impl Joined {
    /// These bytes, in which fragments of 1.1 begin at `breaks`.
    pub(crate) fn new(bytes: Vec<u8>, breaks: Vec<usize>) -> Self {
        Self { bytes, breaks }
    }

    /// The message, as [`Message::read_whole`](crate::message::Message::read_whole) reads it.
    pub fn whole(&self) -> Whole<'_> {
        Whole { bytes: &self.bytes, breaks: &self.breaks }
    }
}

impl From<Vec<u8>> for Joined {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, breaks: Vec::new() }
    }
}

/// The bytes of a whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<'a> {
    /// All bytes, from the header on.
    pub bytes: &'a [u8],
    /// Where fragments of 1.1 begin in them. With 1.2, alignment does not depend on it.
    pub breaks: &'a [usize],
}

impl Whole<'_> {
    /// A copy.
    pub fn to_joined(&self) -> Joined {
        Joined { bytes: self.bytes.to_vec(), breaks: self.breaks.to_vec() }
    }
}

impl<'a> From<&'a [u8]> for Whole<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, breaks: &[] }
    }
}
