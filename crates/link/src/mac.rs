//! Addresses of Ethernet.

use std::fmt;

/// A hardware address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Reads an address from an attribute; `None` if it is no Ethernet address.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The address in the lower six bytes.
    pub const fn to_number(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The address that [`Mac::to_number`] has made this of.
    pub const fn from_number(number: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
