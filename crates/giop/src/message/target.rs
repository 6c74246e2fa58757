//! Which object a request is for (CORBA 15.4.2.2).

use alloc::borrow::Cow;

use crate::reference::{self, Reference, TAG_INTERNET_IOP, iiop};
use crate::tagged::Tagged;
use crate::{Decode, Decoder, Encode, Encoder, Error, Version};

/// How a client names the object. Before 1.2 it always is the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The key that the server gave it.
    Key(&'a [u8]),
    /// A profile of its reference.
    Profile(Tagged<'a>),
    /// Its reference, and which of the profiles was chosen.
    Reference(u32, Cow<'a, Reference>),
}

/// The number of a way to name an object, which a server can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Addressing {
    /// [`Target::Key`].
    Key,
    /// [`Target::Profile`].
    Profile,
    /// [`Target::Reference`].
    Reference,
}

impl Encode for Addressing {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        (*self as u16).encode(to)
    }
}

impl Decode for Addressing {
    const BYTES_MIN: usize = 2;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        match u16::decode(from)? {
            0 => Ok(Self::Key),
            1 => Ok(Self::Profile),
            2 => Ok(Self::Reference),
            other => Err(Error::Enumerator(other.into())),
        }
    }
}

impl<'a> Target<'a> {
    /// The object's key.
    ///
    /// # Errors
    /// [`reference::Error`] if a profile is not one of IIOP, or is damaged.
    pub fn object_key(&self) -> Result<&[u8], reference::Error> {
        let (tag, data) = match self {
            Self::Key(key) => return Ok(key),
            Self::Profile(profile) => (profile.id, profile.data),
            Self::Reference(index, reference) => {
                let profile = reference.profiles.get(*index as usize).ok_or(reference::Error::NoProfile)?;
                (profile.tag, &profile.data[..])
            }
        };
        if tag == TAG_INTERNET_IOP { iiop::object_key(data) } else { Err(reference::Error::Tag(tag)) }
    }

    pub(super) fn read(from: &mut Decoder<'a>) -> Result<Self, Error> {
        if from.version() < Version::V1_2 {
            return from.octets().map(Self::Key);
        }
        Ok(match Addressing::decode(from)? {
            Addressing::Key => Self::Key(from.octets()?),
            Addressing::Profile => Self::Profile(Tagged::read(from)?),
            Addressing::Reference => {
                Self::Reference(u32::decode(from)?, Cow::Owned(Reference::decode(from)?))
            }
        })
    }
}

impl Encode for Target<'_> {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        if to.version() < Version::V1_2 {
            let Self::Key(key) = self else { return Err(Error::Version) };
            return key.encode(to);
        }
        match self {
            Self::Key(key) => {
                Addressing::Key.encode(to)?;
                key.encode(to)
            }
            Self::Profile(profile) => {
                Addressing::Profile.encode(to)?;
                profile.encode(to)
            }
            Self::Reference(index, reference) => {
                Addressing::Reference.encode(to)?;
                index.encode(to)?;
                reference.encode(to)
            }
        }
    }
}
