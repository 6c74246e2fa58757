//! Components of profiles (CORBA 13.6.6).

use alloc::string::String;
use alloc::vec::Vec;

use super::address::Address;
use super::error::Error;
use crate::{ByteOrder, Decode, Decoder, Encode, Encoder, Error as CdrError, Version};

/// Which ORB made the reference.
pub const TAG_ORB_TYPE: u32 = 0;
/// Which code sets the server understands.
pub const TAG_CODE_SETS: u32 = 1;
/// Policies of the object.
pub const TAG_POLICIES: u32 = 2;
/// One more address of the server.
pub const TAG_ALTERNATE_IIOP_ADDRESS: u32 = 3;
/// The server also listens with SSL.
pub const TAG_SSL_SEC_TRANS: u32 = 20;
/// omniORB: the server also listens at a Unix socket.
pub const TAG_OMNIORB_UNIX_TRANS: u32 = 0x4154_5402;

/// What a profile says beside its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Component {
    /// What it is about.
    pub tag: u32,
    /// Its bytes: for most an encapsulation.
    pub data: Vec<u8>,
}

/// A Unix socket, as omniORB has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnixAddress {
    /// The name of the host: on another one the path leads nowhere.
    pub host: String,
    /// The path of the socket.
    pub path: String,
}

impl Component {
    /// A component whose bytes are an encapsulation.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn new(tag: u32, write: impl FnOnce(&mut Encoder) -> Result<(), CdrError>) -> Result<Self, CdrError> {
        let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
        to.write(&[ByteOrder::NATIVE.flag()]);
        write(&mut to)?;
        Ok(Self { tag, data: to.into_bytes() })
    }

    /// One more address of the server.
    ///
    /// # Errors
    /// If the host has no bytes.
    pub fn of_address(address: &Address) -> Result<Self, CdrError> {
        Self::new(TAG_ALTERNATE_IIOP_ADDRESS, |to| address.encode(to))
    }

    /// A Unix socket of the server.
    ///
    /// # Errors
    /// If the path has no bytes.
    pub fn of_unix(address: &UnixAddress) -> Result<Self, CdrError> {
        Self::new(TAG_OMNIORB_UNIX_TRANS, |to| {
            address.host.encode(to)?;
            address.path.encode(to)
        })
    }

    /// Reads its bytes, if it has this tag.
    fn read<T>(
        &self,
        tag: u32,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<T, CdrError>,
    ) -> Result<Option<T>, Error> {
        if self.tag != tag {
            return Ok(None);
        }
        Ok(Some(read(&mut Decoder::of_encapsulation(&self.data)?)?))
    }

    /// The address in it, if it is about one.
    ///
    /// # Errors
    /// [`Error::Cdr`].
    pub fn alternate_address(&self) -> Result<Option<Address>, Error> {
        self.read(TAG_ALTERNATE_IIOP_ADDRESS, Address::decode)
    }

    /// The Unix socket in it, if it is about one.
    ///
    /// # Errors
    /// [`Error::Cdr`].
    pub fn unix_address(&self) -> Result<Option<UnixAddress>, Error> {
        self.read(TAG_OMNIORB_UNIX_TRANS, |from| {
            Ok(UnixAddress { host: Decode::decode(from)?, path: Decode::decode(from)? })
        })
    }

    /// The number of the ORB in it, if it is about that.
    ///
    /// # Errors
    /// [`Error::Cdr`].
    pub fn orb_type(&self) -> Result<Option<u32>, Error> {
        self.read(TAG_ORB_TYPE, u32::decode)
    }
}

impl Encode for Component {
    fn encode(&self, to: &mut Encoder) -> Result<(), CdrError> {
        self.tag.encode(to)?;
        self.data.encode(to)
    }
}

impl Decode for Component {
    const BYTES_MIN: usize = 8;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, CdrError> {
        Ok(Self { tag: Decode::decode(from)?, data: Decode::decode(from)? })
    }
}
