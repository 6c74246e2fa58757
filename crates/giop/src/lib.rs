//! GIOP, the protocol between ORBs (CORBA 15): its data representation CDR, its messages, and references to objects.
//!
//! | module | owns |
//! |---|---|
//! | [`encoder`], [`decoder`] | bytes with their order, alignment and version |
//! | [`Kept`] | a message that is read later |
//! | [`value`] | [`Encode`] and [`Decode`], for primitive types, strings, sequences and arrays |
//! | [`mod@flat`] | types whose number of bytes is known to the compiler |
//! | [`long`] | long values, which are sent without a copy |
//! | [`wide`], [`fixed`] | wide characters and strings, fixed-point numbers |
//! | [`bounded`] | strings and sequences with a bound |
//! | [`typecode`], [`any`] | descriptions of types, and values that bring theirs |
//! | [`tagged`] | lists of service contexts and of components |
//! | [`mod@reference`] | references to objects, and their forms as text |
//! | [`exception`] | system exceptions |
//! | [`message`] | messages |
//! | [`reassembly`] | messages in fragments |
//! | [`connection`] | states of a connection, for either end |
//! | [`characters`], [`codeset`] | code sets, and which one a connection has |
//! | [`context`] | service contexts that ORBs know |
//! | [`limits`] | every limit against bad bytes |
//!
//! Memory is taken only for what is there: a length is compared with the bytes behind it before anything is
//! allocated. Sequences of primitive types are copied whole. Code that `punctual-idl` generates uses this crate.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod any;
pub mod bounded;
pub mod characters;
pub mod codeset;
pub mod connection;
pub mod context;
pub mod decoder;
pub mod encoder;
pub mod exception;
pub mod fixed;
pub mod flat;
mod kept;
pub mod limits;
pub mod long;
pub mod message;
pub mod reassembly;
pub mod reference;
pub mod tagged;
pub mod typecode;
pub mod value;
mod whole;
pub mod wide;

pub use any::Any;
pub use bounded::Bounded;
pub use characters::CharacterSet;
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use exception::{Completion, SystemException, SystemExceptionKind};
pub use fixed::Fixed;
pub use flat::{Flat, Layout};
pub use kept::Kept;
pub use reference::Reference;
pub use tagged::{Tagged, TaggedList};
pub use typecode::TypeCode;
pub use value::{Decode, Encode};
pub use wide::{WChar, WString};

/// Bytes of the header that each message and fragment begins with (CORBA 15.4.1).
const MESSAGE_HEADER_BYTES: usize = 12;

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Most significant first: flag 0.
    Big,
    /// Least significant first: flag 1.
    Little,
}

impl ByteOrder {
    /// The order of this machine.
    pub const NATIVE: Self = if cfg!(target_endian = "little") { Self::Little } else { Self::Big };

    /// The flag of messages and encapsulations (CORBA 15.3.3).
    pub fn flag(self) -> u8 {
        u8::from(self == Self::Little)
    }
}

/// The version of GIOP, on which wide characters depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 1.0: no wide characters.
    V1_0,
    /// 1.1: wide characters have two bytes.
    V1_1,
    /// 1.2: wide characters have a length.
    V1_2,
}

impl Version {
    /// The version with these numbers.
    pub fn from_numbers(major: u8, minor: u8) -> Option<Self> {
        match (major, minor) {
            (1, 0) => Some(Self::V1_0),
            (1, 1) => Some(Self::V1_1),
            (1, 2) => Some(Self::V1_2),
            _ => None,
        }
    }

    /// Its numbers.
    pub fn numbers(self) -> (u8, u8) {
        match self {
            Self::V1_0 => (1, 0),
            Self::V1_1 => (1, 1),
            Self::V1_2 => (1, 2),
        }
    }
}

/// Why bytes cannot be decoded, or a value cannot be encoded. In CORBA, this is the system exception `MARSHAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end within a value.
    #[error("the message ends within a value")]
    Truncated,
    /// A length is greater than what is there, than a bound, or than a limit.
    #[error("the length {0} is too large")]
    Length(u64),
    /// A boolean that is neither 0 nor 1.
    #[error("a boolean is 0 or 1, not {0}")]
    Boolean(u8),
    /// A string without its final zero byte, or with one within.
    #[error("a string must end with a zero byte, and have no other")]
    Terminator,
    /// A string or a character that is not in its character set.
    #[error("a character is not in its character set")]
    Character,
    /// A number that no enumerator has.
    #[error("no enumerator has the number {0}")]
    Enumerator(u32),
    /// A discriminator that the arm of a union does not have.
    #[error("the discriminator does not select this arm of the union")]
    Discriminator,
    /// A fixed-point number with a wrong digit or sign.
    #[error("a fixed-point number has an invalid digit or sign")]
    Fixed,
    /// A description of a type (TypeCode) is invalid: its kind is unknown, or it refers to nothing or to itself.
    #[error("the description of a type (TypeCode) is invalid")]
    TypeCode,
    /// More levels than the limit.
    #[error("values are nested more than {} levels deep", limits::DEPTH_MAX)]
    Depth,
    /// This version of GIOP cannot carry the value: 1.0 has no wide characters.
    #[error("this version of GIOP cannot carry the value")]
    Version,
    /// A value has another type than the one that was requested.
    #[error("the value has another type than requested")]
    Type,
}
