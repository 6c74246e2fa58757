//! References to objects (CORBA 13.6): profiles, components, and their forms as text.
//!
//! | module | owns |
//! |---|---|
//! | [`iiop`] | profiles of IIOP 1.0, 1.1 and 1.2 |
//! | [`component`] | what a profile says beside the address |
//! | [`text`] | the forms as text: `IOR:`, `corbaloc:`, `corbaname:` |
//! | [`corbaloc`], [`corbaname`] | the latter two |

use alloc::string::String;
use alloc::vec::Vec;

use crate::{Decode, Decoder, Encode, Encoder, Error as CdrError, Version};

mod address;
pub mod component;
pub mod corbaloc;
pub mod corbaname;
mod error;
mod escape;
pub mod iiop;
pub mod text;

pub use address::Address;
pub use component::{Component, UnixAddress};
pub use error::Error;
pub use iiop::IiopProfile;
pub use text::{Link, stringify};

/// The tag of profiles of IIOP.
pub const TAG_INTERNET_IOP: u32 = 0;
/// The tag of profiles that only have components.
pub const TAG_MULTIPLE_COMPONENTS: u32 = 1;

/// A way to an object: bytes that the transport with this tag understands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    /// Which transport; 0 is IIOP.
    pub tag: u32,
    /// An encapsulation.
    pub data: Vec<u8>,
}

impl Encode for Profile {
    fn encode(&self, to: &mut Encoder) -> Result<(), CdrError> {
        self.tag.encode(to)?;
        self.data.encode(to)
    }
}

impl Decode for Profile {
    const BYTES_MIN: usize = 8;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, CdrError> {
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

    /// A reference with one profile of IIOP.
    ///
    /// # Errors
    /// If the profile has no bytes.
    pub fn iiop(type_id: &str, profile: &IiopProfile) -> Result<Self, CdrError> {
        let data = profile.to_bytes()?;
        Ok(Self { type_id: type_id.into(), profiles: alloc::vec![Profile { tag: TAG_INTERNET_IOP, data }] })
    }

    /// Its profiles of IIOP, in their order.
    pub fn iiop_profiles(&self) -> impl Iterator<Item = Result<IiopProfile, Error>> + '_ {
        let iiop = self.profiles.iter().filter(|profile| profile.tag == TAG_INTERNET_IOP);
        iiop.map(|profile| IiopProfile::parse(&profile.data))
    }
}

impl Encode for Reference {
    fn encode(&self, to: &mut Encoder) -> Result<(), CdrError> {
        self.type_id.encode(to)?;
        self.profiles.encode(to)
    }
}

impl Decode for Reference {
    const BYTES_MIN: usize = 8;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, CdrError> {
        Ok(Self { type_id: Decode::decode(from)?, profiles: Decode::decode(from)? })
    }
}

/// A version of IIOP is one of GIOP with the same numbers. Later ones than 1.2 are read as 1.2 (CORBA 15.7.2).
fn version(major: u8, minor: u8) -> Result<Version, Error> {
    Version::from_numbers(major, minor.min(2)).ok_or(Error::Version(major, minor))
}
