//! Service contexts that ORBs know (CORBA 13.7.1). Applications have numbers of their own.

use alloc::vec::Vec;

use crate::reference::Address;
use crate::{ByteOrder, Decode, Decoder, Encode, Encoder, Error, Version};

/// The code sets that the client chose ([`crate::codeset::Chosen`]).
pub const CODE_SETS: u32 = 1;
/// Where the client can be called over its connection ([`ListenPoints`]).
pub const BI_DIR_IIOP: u32 = 5;

/// Addresses under which a client has published its objects. A server sends requests for them over the connection on which
/// this came (CORBA 15.8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenPoints(pub Vec<Address>);

impl ListenPoints {
    /// The bytes of the service context.
    ///
    /// # Errors
    /// If a host has no bytes.
    pub fn to_context(&self) -> Result<Vec<u8>, Error> {
        let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
        to.write(&[ByteOrder::NATIVE.flag()]);
        self.0.encode(&mut to)?;
        Ok(to.into_bytes())
    }

    /// Reads the bytes of the service context.
    ///
    /// # Errors
    /// If they are damaged.
    pub fn of_context(data: &[u8]) -> Result<Self, Error> {
        Decode::decode(&mut Decoder::of_encapsulation(data)?).map(Self)
    }
}
