//! Profiles of IIOP (CORBA 15.7.2).

use alloc::vec::Vec;

use super::address::Address;
use super::component::Component;
use super::error::Error;
use super::version;
use crate::{ByteOrder, Decode, Decoder, Encode, Encoder, Error as CdrError, Version};

/// A profile of IIOP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IiopProfile {
    /// The latest version of GIOP that the server understands.
    pub version: Version,
    /// Where it listens.
    pub address: Address,
    /// The object's key.
    pub object_key: Vec<u8>,
    /// What else it says. 1.0 has none.
    pub components: Vec<Component>,
}

impl IiopProfile {
    /// Reads the bytes of a profile.
    ///
    /// # Errors
    /// [`Error::Version`], [`Error::Cdr`].
    pub fn parse(data: &[u8]) -> Result<Self, Error> {
        let (version, mut from) = opened(data)?;
        let address = Address::decode(&mut from)?;
        let object_key = from.octets()?.to_vec();
        let components = if version > Version::V1_0 { Decode::decode(&mut from)? } else { Vec::new() };
        Ok(Self { version, address, object_key, components })
    }

    /// The bytes of the profile, an encapsulation.
    ///
    /// # Errors
    /// If a part has no bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CdrError> {
        let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
        to.write(&[ByteOrder::NATIVE.flag()]);
        let (major, minor) = self.version.numbers();
        to.write(&[major, minor]);
        self.address.encode(&mut to)?;
        self.object_key.encode(&mut to)?;
        if self.version > Version::V1_0 {
            self.components.encode(&mut to)?;
        }
        Ok(to.into_bytes())
    }

    /// All addresses: its own, and those of its components.
    ///
    /// # Errors
    /// If a component is damaged.
    pub fn addresses(&self) -> Result<Vec<Address>, Error> {
        let mut all = alloc::vec![self.address.clone()];
        for component in &self.components {
            all.extend(component.alternate_address()?);
        }
        Ok(all)
    }
}

/// The version, and a decoder behind it.
fn opened(data: &[u8]) -> Result<(Version, Decoder<'_>), Error> {
    let mut from = Decoder::of_encapsulation(data)?;
    let version = version(u8::decode(&mut from)?, u8::decode(&mut from)?)?;
    Ok((version, from))
}

/// The object's key in the bytes of a profile.
///
/// # Errors
/// [`Error::Version`], [`Error::Cdr`].
pub fn object_key(data: &[u8]) -> Result<&[u8], Error> {
    let (_, mut from) = opened(data)?;
    from.octets()?;
    u16::decode(&mut from)?;
    Ok(from.octets()?)
}
