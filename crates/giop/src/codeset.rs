//! Code sets: how characters are sent (CORBA 13.10).
//!
//! A server says in its references which code sets it understands. A client chooses, and says what it chose in a service context of
//! its first requests on a connection. This ORB understands UTF-8 and ISO 8859-1 for characters, and UTF-16 for wide ones. It
//! prefers UTF-8, which loses nothing.

use alloc::vec::Vec;

use crate::characters::{CharacterSet, CodeSetId};
use crate::context::CODE_SETS;
use crate::reference::component::{Component, TAG_CODE_SETS};
use crate::{ByteOrder, Decode, Decoder, Encode, Encoder, Error, TaggedList};

/// Code sets that a server understands, for one width of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Understood {
    /// The one that it uses itself; 0 if it has no such characters.
    pub native: u32,
    /// Those that it can convert.
    pub conversions: Vec<u32>,
}

impl Understood {
    fn has(&self, id: CodeSetId) -> bool {
        self.native == id.0 || self.conversions.contains(&id.0)
    }
}

impl Encode for Understood {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        self.native.encode(to)?;
        self.conversions.encode(to)
    }
}

impl Decode for Understood {
    const BYTES_MIN: usize = 8;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(Self { native: Decode::decode(from)?, conversions: Decode::decode(from)? })
    }
}

/// What a server says in its references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSets {
    /// For characters.
    pub characters: Understood,
    /// For wide characters.
    pub wide: Understood,
}

/// Client and server have no code set in common: `CODESET_INCOMPATIBLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server understands none of the code sets UTF-8 and ISO 8859-1")]
pub struct Incompatible;

impl CodeSets {
    /// Those of this ORB.
    pub fn own() -> Self {
        let understood = |native: CodeSetId, conversions: &[CodeSetId]| Understood {
            native: native.0,
            conversions: conversions.iter().map(|id| id.0).collect(),
        };
        Self {
            characters: understood(CodeSetId::UTF_8, &[CodeSetId::ISO_8859_1]),
            wide: understood(CodeSetId::UTF_16, &[]),
        }
    }

    /// The component of a profile.
    ///
    /// # Errors
    /// None in practice: it is short.
    pub fn component(&self) -> Result<Component, Error> {
        Component::new(TAG_CODE_SETS, |to| {
            self.characters.encode(to)?;
            self.wide.encode(to)
        })
    }

    /// What the component of a profile says, if it is about code sets.
    ///
    /// # Errors
    /// If its bytes are damaged.
    pub fn of_component(component: &Component) -> Result<Option<Self>, Error> {
        if component.tag != TAG_CODE_SETS {
            return Ok(None);
        }
        let mut from = Decoder::of_encapsulation(&component.data)?;
        Ok(Some(Self { characters: Decode::decode(&mut from)?, wide: Decode::decode(&mut from)? }))
    }

    /// What a client of this ORB chooses (CORBA 13.10.2.6).
    ///
    /// # Errors
    /// [`Incompatible`].
    pub fn choose(&self) -> Result<Chosen, Incompatible> {
        let sets = [CharacterSet::Utf8, CharacterSet::Latin1];
        let chosen = sets.into_iter().find(|set| self.characters.has(set.id()));
        Ok(Chosen { characters: chosen.ok_or(Incompatible)?, wide: self.wide.has(CodeSetId::UTF_16) })
    }
}

/// What was chosen for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chosen {
    /// For characters.
    pub characters: CharacterSet,
    /// Whether wide characters can be sent: in UTF-16.
    pub wide: bool,
}

impl Chosen {
    /// Without negotiation: Latin-1, and no wide characters (CORBA 13.10.2.5).
    pub const DEFAULT: Self = Self { characters: CharacterSet::Latin1, wide: false };

    /// The bytes of the service context.
    pub fn to_context(self) -> [u8; 12] {
        let wide = if self.wide { CodeSetId::UTF_16.0 } else { 0 };
        let [c0, c1, c2, c3] = self.characters.id().0.to_be_bytes();
        let [w0, w1, w2, w3] = wide.to_be_bytes();
        [ByteOrder::Big.flag(), 0, 0, 0, c0, c1, c2, c3, w0, w1, w2, w3]
    }

    /// What a client chose, by its service context. A server answers `CODESET_INCOMPATIBLE` to what it does not understand.
    ///
    /// # Errors
    /// [`Error::Character`] for a code set that this ORB does not have, and those of damaged bytes.
    pub fn of_context(data: &[u8]) -> Result<Self, Error> {
        let mut from = Decoder::of_encapsulation(data)?;
        let (characters, wide) = (u32::decode(&mut from)?, u32::decode(&mut from)?);
        let characters = CharacterSet::from_id(CodeSetId(characters)).ok_or(Error::Character)?;
        let is_known = wide == 0 || wide == CodeSetId::UTF_16.0;
        if is_known { Ok(Self { characters, wide: wide != 0 }) } else { Err(Error::Character) }
    }

    /// What a client chose, by the service contexts of a request; `None` if they do not say it.
    ///
    /// # Errors
    /// As [`Chosen::of_context`].
    pub fn of_contexts(contexts: &TaggedList<'_>) -> Result<Option<Self>, Error> {
        contexts.find(CODE_SETS).map(Self::of_context).transpose()
    }
}
