//! Addresses of servers.

use alloc::string::String;
use core::fmt;

use crate::{Decode, Decoder, Encode, Encoder, Error as CdrError};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// A name, or an address of IPv4 or IPv6 without brackets.
    pub host: String,
    /// The port of TCP.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Encode for Address {
    fn encode(&self, to: &mut Encoder) -> Result<(), CdrError> {
        self.host.encode(to)?;
        self.port.encode(to)
    }
}

impl Decode for Address {
    const BYTES_MIN: usize = 6;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, CdrError> {
        Ok(Self { host: Decode::decode(from)?, port: Decode::decode(from)? })
    }
}
