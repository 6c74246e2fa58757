//! Lists of numbers with bytes: service contexts of messages (CORBA 13.7) and components of profiles (CORBA 13.6.3) have the same form.

use crate::{Decode, Decoder, Encode, Encoder, Error};

/// A number that says what the bytes are, and the bytes: for most numbers an encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tagged<'a> {
    /// What it is.
    pub id: u32,
    /// Its bytes.
    pub data: &'a [u8],
}

impl<'a> Tagged<'a> {
    /// Reads one.
    ///
    /// # Errors
    /// If the bytes are none.
    pub fn read(from: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(Self { id: u32::decode(from)?, data: from.octets()? })
    }
}

impl Encode for Tagged<'_> {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        self.id.encode(to)?;
        self.data.encode(to)
    }
}

/// A list of them: of the caller, or within the bytes of a message.
#[derive(Clone, Debug)]
pub struct TaggedList<'a>(Source<'a>);

#[derive(Clone, Debug)]
enum Source<'a> {
    Given(&'a [Tagged<'a>]),
    /// Bytes that were read once before.
    Read(usize, Decoder<'a>),
}

impl Default for TaggedList<'_> {
    fn default() -> Self {
        Self(Source::Given(&[]))
    }
}

impl<'a> From<&'a [Tagged<'a>]> for TaggedList<'a> {
    fn from(all: &'a [Tagged<'a>]) -> Self {
        Self(Source::Given(all))
    }
}

impl<'a> TaggedList<'a> {
    /// Reads a list, and checks each of its elements.
    ///
    /// # Errors
    /// If the bytes are none.
    pub fn read(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let count = from.length(8)?;
        let begin = from.clone();
        (0..count).try_for_each(|_| Tagged::read(from).map(drop))?;
        Ok(Self(Source::Read(count, begin)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Given(all) => all.len(),
            Source::Read(count, _) => *count,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Tagged<'a>> + use<'a> {
        let (given, count, mut read) = match &self.0 {
            Source::Given(all) => (*all, 0, None),
            Source::Read(count, from) => (&[][..], *count, Some(from.clone())),
        };
        let read = (0..count).map_while(move |_| Tagged::read(read.as_mut()?).ok());
        given.iter().copied().chain(read)
    }

    /// The bytes of the first one with this number.
    pub fn find(&self, id: u32) -> Option<&'a [u8]> {
        self.iter().find(|one| one.id == id).map(|one| one.data)
    }
}

impl PartialEq for TaggedList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for TaggedList<'_> {}

impl Encode for TaggedList<'_> {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        to.length(self.len())?;
        self.iter().try_for_each(|one| one.encode(to))
    }
}
