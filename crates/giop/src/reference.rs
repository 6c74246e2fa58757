//! References to objects (CORBA 13.6.2).

use alloc::string::String;
use alloc::vec::Vec;

use crate::{Decode, Decoder, Encode, Encoder, Error};

/// A way to an object: bytes that the transport with this tag understands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    /// Which transport; 0 is IIOP.
    pub tag: u32,
    /// An encapsulation.
    pub data: Vec<u8>,
}

impl Encode for Profile {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        self.tag.encode(to)?;
        self.data.encode(to)
    }
}

impl Decode for Profile {
    const BYTES_MIN: usize = 8;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(Self { tag: Decode::decode(from)?, data: Decode::decode(from)? })
    }
}

/// A reference. Without profiles it is nil.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The repository identifier of an interface of the object, or nothing.
    pub type_id: String,
    /// Ways to the object.
    pub profiles: Vec<Profile>,
}

impl Reference {
    /// Whether it refers to nothing.
    pub fn is_nil(&self) -> bool {
        self.profiles.is_empty()
    }
}

impl Encode for Reference {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        self.type_id.encode(to)?;
        self.profiles.encode(to)
    }
}

impl Decode for Reference {
    const BYTES_MIN: usize = 8;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(Self { type_id: Decode::decode(from)?, profiles: Decode::decode(from)? })
    }
}
